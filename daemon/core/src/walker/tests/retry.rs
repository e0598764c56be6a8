//! Tries after a failure: those of the node, of the graph's hooks, and of the configuration.

use super::*;
use crate::model::GraphEvent;
use crate::model::event::{RetryScheduled, StepFailed};

const BUILT_IN: &str = "hook_conditions";

/// One node that fails while the count of its retries is below `below`.
fn flaky(keys: &str, below: u32, more: &str) -> String {
    format!(
        "
  start: a
  nodes:
    a:
      action: {{item_id: rye/core/echo, params: {{fail: boom, n: '${{state._retries.a}}', below: {below}}}}}
      {keys}
      next: b
    b: {{assign: {{seen: '${{state._retries.a}}'}}}}
{more}"
    )
}

fn built_in(max: u32) -> Value {
    json!({BUILT_IN: {"builtin_hooks": [
        {"id": "again", "event": "error", "action": {"retry": true, "max_retries": max}}
    ]}})
}

const OWN: &str = "  hooks: [{id: own, event: error, action: {retry: true, max_retries: 2}}]\n";

fn asked_by(stage: &Stage) -> Vec<String> {
    let by = stage.log.iter().filter_map(|(_, event)| {
        let Event::Graph(GraphEvent::RetryScheduled(RetryScheduled { by, .. })) = event else {
            return None;
        };
        Some(by.clone())
    });
    by.collect()
}

#[test]
fn the_number_of_a_node_is_the_only_bound_and_the_graph_comes_before_the_configuration() {
    for (keys, hooks) in [("retry: 1", OWN), ("retry: 1", "")] {
        let config = flaky(keys, 9, hooks);
        let mut stage = Stage::under(&config, run(json!({}), None), &built_in(3));
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(asked_by(&stage), ["node"], "no hook tries it again");
        assert_eq!(stage.path(), "a:error");
        assert_eq!(stage.run().steps(), 1, "a retry costs no step");
    }
    let config = flaky("retry: {max: 0}", 9, OWN);
    let mut stage = Stage::under(&config, run(json!({}), None), &built_in(3));
    assert_eq!(stage.play(), Rest::Ended);
    assert!(asked_by(&stage).is_empty(), "none is none");

    let mut stage = Stage::under(&flaky("", 9, OWN), run(json!({}), None), &built_in(3));
    stage.play();
    assert_eq!(
        asked_by(&stage),
        ["own", "own"],
        "the first answer of the hooks is the graph's, and it is used up at 2"
    );
}

#[test]
fn an_answer_that_a_call_of_a_hook_gives_is_bound_by_the_node_too() {
    let hooks = "  hooks: [{id: asks, event: error, action: {item_id: rye/core/echo, params: {action: retry}}}]\n";
    let mut stage = Stage::of(&flaky("retry: 0", 9, hooks), run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert!(asked_by(&stage).is_empty());
    assert_eq!(stage.path(), "a:error");
}

#[test]
fn successful_retry_shows_count_and_keeps_step() {
    let mut stage = Stage::of(&flaky("retry: 3", 2, ""), run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok b:gate");
    assert_eq!(stage.state()["seen"], 2);
    let tries: Vec<_> = stage
        .calls
        .iter()
        .map(|call| (call.step, call.attempt, call.now))
        .collect();
    let first = stage.calls[0].now;
    assert_eq!(tries, [(1, 1, first), (1, 2, first), (1, 3, first)]);
    assert!(
        stage
            .calls
            .iter()
            .all(|call| call.key == stage.calls[0].key)
    );
    assert!(stage.run().graph().unwrap().at.step().is_none());
    assert!(stage.state().get("_last_error").is_none());
}

#[test]
fn an_edge_into_the_node_sets_its_count_back() {
    let config = "
  start: a
  nodes:
    a:
      action: {item_id: rye/core/echo, params: {fail: boom, n: '${state._retries.a}', below: 1}}
      retry: 1
      assign: {rounds: '${state._retries}'}
      next: back
    back: {next: [{to: a, when: {path: state.once, op: not_exists}}], assign: {before: '${state.once}'}}
";
    let config = config.replace(
        "back: {next: [{to: a, when: {path: state.once, op: not_exists}}], assign: {before: '${state.once}'}}",
        "back: {next: [{to: set, when: {path: state.once, op: ne, value: true}}]}\n    set: {assign: {once: true}, next: a}",
    );
    let mut stage = Stage::of(&config, run(json!({}), None));
    stage.play();
    assert_eq!(stage.path(), "a:ok back:gate set:gate a:ok back:gate");
    assert_eq!(asked_by(&stage).len(), 2, "each visit has its own retries");
    assert_ne!(stage.calls[0].key, stage.calls[2].key);
    assert_eq!(stage.state()["rounds"], json!({"a": 1}));
}

#[test]
fn a_continuation_keeps_the_count_of_retries() {
    let config = flaky("retry: 2", 9, "");
    let mut first = Stage::of(&config, run(json!({}), None));
    first.play();
    assert_eq!(first.run().graph().unwrap().retries["a"], 2);
    let node = first.failure().node.clone().unwrap();
    let progress = first.run().inherited().unwrap();
    let mut second = Stage::of(&config, seeded(&node, progress, Extent::Rest));
    second.play();
    assert_eq!(second.calls.len(), 1, "the retries are used up");
    assert_eq!(second.calls[0].key, first.calls[0].key, "the same visit");
    assert_eq!(second.state()["_retries"], json!({"a": 2}));
}

#[test]
fn pauses_are_waited_for_and_cancellable_and_survive_a_crash() {
    let config = flaky("retry: {max: 2, backoff: fixed, delay: 30}", 2, "");
    let mut stage = Stage::of(&config, run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    let due = up(stage.clock + 30_000);
    assert_eq!(stage.settle(), Rest::Waits(Some(due)));
    stage.crash();
    stage.clock += 29_999;
    assert_eq!(stage.settle(), Rest::Waits(Some(due)));
    stage.clock += 1;
    stage.settle();
    assert_eq!(stage.calls.len(), 2);
    stage.end_one(echo);
    assert!(matches!(stage.settle(), Rest::Waits(Some(_))));
    stage.cancel();
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Cancelled);
    assert_eq!(stage.run().stood_at(), Some("a"));
}

#[test]
fn a_wall_clock_that_is_set_neither_shortens_nor_stretches_a_pause() {
    let config = flaky("retry: {max: 2, backoff: fixed, delay: 30}", 2, "");
    for step in [-365 * 24 * 3_600_000, 3_600_000] {
        let mut stage = Stage::of(&config, run(json!({}), None));
        stage.call();
        stage.end_one(echo);
        let due = up(stage.clock + 30_000);
        assert_eq!(stage.settle(), Rest::Waits(Some(due)));
        stage.wall_is_ahead = step;
        assert_eq!(stage.settle(), Rest::Waits(Some(due)), "{step}");
        // A new life trusts the wall clock, but waits no longer than the pause was.
        stage.crash();
        let Rest::Waits(Some(until)) = stage.settle() else {
            assert!(step > 0, "only a clock that was set forward ends the pause");
            continue;
        };
        assert!(until <= due, "{step}");
    }
}

#[test]
fn a_run_suspended_in_a_pause_resumes_with_it() {
    let config = flaky("retry: {max: 1, backoff: fixed, delay: 30}", 1, "");
    let mut stage = Stage::of(&config, run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    stage.settle();
    stage.walker.hold(Suspension::new(SuspendReason::User));
    assert_eq!(stage.settle(), Rest::Suspended);
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok b:gate");
    assert!(stage.clock >= 30_000, "the pause is not cut short");
}

#[test]
fn an_at_most_once_attempt_is_tried_again_only_if_it_never_began() {
    for (end, tries) in [("never", 3), ("answered", 1)] {
        let keys = "effect: at_most_once\n      retry: 2";
        let config = flaky(keys, 9, "").replace(
            "fail: boom",
            &format!("fail: boom, again: true, end: {end}"),
        );
        let mut stage = Stage::under(&config, run(json!({}), None), &built_in(9));
        assert_eq!(stage.play(), Rest::Ended);
        let used = stage.calls.len();
        assert_eq!(used.min(3), tries, "{end}");
    }
}

#[test]
fn refused_step_is_not_retried() {
    let config = flaky("retry: 2", 9, OWN).replace("fail: boom", "fail: boom, end: never");
    let mut stage = Stage::of(&config, run(json!({}), None));
    stage.play();
    assert_eq!(stage.calls.len(), 1);
    assert!(asked_by(&stage).is_empty());
    let template =
        flaky("retry: 2", 9, OWN).replace("fail: boom", "x: '${inputs.text | from_json}'");
    let mut stage = Stage::of(&template, run(json!({"text": "{"}), None));
    stage.play();
    assert!(stage.calls.is_empty() && asked_by(&stage).is_empty());
    assert_eq!(stage.failure().code, "interpolation_failed");
}

#[test]
fn a_call_refused_at_its_second_try_is_a_failure_of_the_step() {
    let mut stage = Stage::of(&flaky("retry: 1", 9, ""), run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    let at = stage.tick();
    let Move::Call(events, call) = stage.walker.next(at) else {
        unreachable!()
    };
    stage.note(events);
    assert_eq!(call.attempt, 2);
    let refused = CallOutcome {
        failure: Some(Failure::permanent("item_not_found", "gone")),
        certainty: Certainty::NeverStarted,
        ..answered(Value::Null)
    };
    let events = stage.walker.conclude(at, call.slot, &refused);
    stage.note(events);
    assert_eq!(stage.settle(), Rest::Ended);
    stage.check_record();
    assert_eq!(stage.failure().code, "item_not_found");
}

#[test]
fn a_result_that_cannot_be_assigned_is_not_fetched_again() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {x: '{'}}, assign: {k: 1, x: '${result.x | from_json}'}, retry: 3}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    stage.play();
    assert_eq!(stage.calls.len(), 1);
    assert_eq!(stage.failure().code, "interpolation_failed");
    assert!(
        stage.state().get("k").is_none(),
        "nothing is assigned by halves"
    );
}

#[test]
fn failing_gates_and_returns_reach_hooks() {
    for (node, fixed) in [
        ("a: {assign: {x: '${inputs.text | from_json}'}}", "a:error"),
        (
            "a: {type: return, output: {x: '${inputs.text | from_json}'}}",
            "a:error",
        ),
    ] {
        let config = format!("\n  start: a\n  nodes:\n    {node}\n{OWN}");
        let mut stage = Stage::of(&config, run(json!({"text": "{"}), None));
        stage.play();
        assert_eq!(
            stage.path(),
            fixed,
            "a failed template is not tried again unasked"
        );
        assert!(asked_by(&stage).is_empty());

        let suspended = config.replace(
            "{retry: true, max_retries: 2}",
            "{item_id: rye/agent/threads/internal/control, params: {action: suspend, suspend_reason: error}}",
        );
        let mut stage = Stage::of(&suspended, run(json!({"text": "{"}), None));
        assert_eq!(stage.play(), Rest::Suspended);
        stage.resume(None);
        assert_eq!(
            stage.play(),
            Rest::Suspended,
            "it is tried again, and fails again"
        );
        assert_eq!(asked_by(&stage), ["resume"]);
        assert_eq!(stage.why_suspended().node.as_deref(), Some("a"));
    }
}

#[test]
fn classification_backoff_delays_hook_retry() {
    let configuration = json!({
        BUILT_IN: {"builtin_hooks": [
            {"id": "again", "event": "error", "condition": {"path": "classification.retryable", "op": "eq", "value": true},
             "action": {"retry": true}}
        ]},
        "error_classification": {"patterns": [
            {"id": "boom", "category": "transient", "match": {"path": "error.message", "op": "eq", "value": "boom"},
             "retry_policy": {"type": "fixed", "delay": 5}}
        ]},
    });
    let mut stage = Stage::under(&flaky("", 2, ""), run(json!({}), None), &configuration);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok b:gate");
    assert!(stage.clock >= 10_000, "{}", stage.clock);
    let Some((_, Event::Graph(GraphEvent::StepFailed(StepFailed { classification, .. })))) = stage
        .log
        .iter()
        .find(|(_, event)| matches!(event, Event::Graph(GraphEvent::StepFailed(_))))
    else {
        unreachable!()
    };
    assert_eq!(
        classification,
        &json!({"category": "transient", "code": "boom", "retryable": true,
                "retry_policy": {"type": "fixed", "delay": 5.0}})
    );
}
