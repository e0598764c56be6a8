//! Hooks: the time of their calls, their input, and the effects of their answers.

use super::*;
use crate::ledger::{Cost, Usage};
use crate::model::RunEvent;
use crate::model::event::{HookCompleted, HookStarted, HooksBegun, Warning};
use crate::money::Usd;
use crate::walker::{CostSource, idempotency_key};

const CONTROL: &str = "rye/agent/threads/internal/control";

/// A graph of `nodes` under `hooks`.
fn hooked(nodes: &str, hooks: &[&str]) -> String {
    let hooks: Vec<String> = hooks.iter().map(|hook| format!("    - {hook}\n")).collect();
    format!(
        "\n  start: a\n  nodes:\n{nodes}  hooks:\n{}",
        hooks.concat()
    )
}

fn control(event: &str, params: &str) -> String {
    format!("{{event: {event}, action: {{item_id: {CONTROL}, params: {{{params}}}}}}}")
}

/// A hook whose action answers with its params.
fn calling(event: &str, params: &str) -> String {
    format!("{{event: {event}, action: {{item_id: rye/core/echo, params: {{{params}}}}}}}")
}

const STEP: &str = "    a: {action: {item_id: rye/core/echo, params: {x: 1}}, next: b}\n    b: {assign: {k: 1}, next: c}\n    c: {type: return}\n";
const FAILING: &str = "    a: {action: {item_id: rye/core/echo, params: {fail: boom}}, assign: {k: 1}, next: b}\n    b: {assign: {at: b}}\n";
const LOOP: &str = "    a: {assign: {k: 1}, next: a}\n";

fn contexts(stage: &Stage) -> Vec<(String, Value)> {
    let begun = stage.log.iter().filter_map(|(_, event)| {
        let Event::Run(RunEvent::HooksBegun(HooksBegun { event, context, .. })) = event else {
            return None;
        };
        Some((event.clone(), Value::Object(Object::clone(context))))
    });
    begun.collect()
}

/// Like [`contexts`], without the cost of the run, which is zero here.
fn contexts_but_cost(stage: &Stage) -> Vec<(String, Value)> {
    let mut contexts = contexts(stage);
    for (_, context) in &mut contexts {
        context.as_object_mut().unwrap().shift_remove("cost");
    }
    contexts
}

#[test]
fn event_names_match_validator() {
    use crate::definition::HookEvent;

    let all = HookEvent::ALL.map(|event| calling(event.as_str(), ""));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut told = Vec::new();
    for (nodes, limit) in [(STEP, None), (FAILING, None), (LOOP, Some(1))] {
        let mut stage = Stage::of(&hooked(nodes, &all), run(json!({}), limit));
        assert_eq!(stage.play(), Rest::Ended);
        told.extend(contexts(&stage));
    }
    for event in HookEvent::ALL {
        let told = told.iter().filter(|(name, _)| name == event.as_str());
        let contexts: Vec<&Value> = told.map(|(_, context)| context).collect();
        assert!(!contexts.is_empty(), "{}", event.as_str());
        for context in contexts {
            let names: Vec<&String> = context.as_object().unwrap().keys().collect();
            assert_eq!(names, event.names(), "{}", event.as_str());
        }
    }
}

#[test]
fn events_carry_documented_names() {
    let all = [
        calling("graph_started", "g: '${graph_id}', s: '${state.inputs.n}'"),
        calling(
            "after_step",
            "n: '${node}', to: '${next_node}', s: '${state.k}', c: '${step_count}', r: '${result.x}'",
        ),
        calling(
            "graph_completed",
            "g: '${graph_id}', c: '${steps}', as: '${status}', e: '${error}', s: '${state.k}'",
        ),
    ];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut stage = Stage::of(&hooked(STEP, &all), run(json!({"n": 5}), None));
    assert_eq!(stage.play(), Rest::Ended);
    let params: Vec<Value> = stage
        .hooks()
        .iter()
        .map(|call| json!(call.params))
        .collect();
    assert_eq!(
        params,
        [
            json!({"g": "t/g", "s": 5}),
            json!({"n": "a", "to": "b", "c": 1, "r": 1}),
            json!({"n": "b", "to": "c", "s": 1, "c": 2}),
            json!({"n": "c", "s": 1, "c": 3}),
            json!({"g": "t/g", "c": 3, "as": "completed", "s": 1}),
        ]
    );
    let told = contexts_but_cost(&stage);
    let expected = [
        ("graph_started", json!({"graph_id": "t/g", "step_count": 0})),
        (
            "after_step",
            json!({"node": "a", "next_node": "b", "result": {"x": 1}, "step_count": 1}),
        ),
        (
            "after_step",
            json!({"node": "b", "next_node": "c", "result": {}, "step_count": 2}),
        ),
        (
            "after_step",
            json!({"node": "c", "next_node": null, "result": {}, "step_count": 3}),
        ),
        (
            "graph_completed",
            json!({"graph_id": "t/g", "steps": 3, "status": "completed", "error": null, "step_count": 3}),
        ),
    ];
    assert_eq!(
        told,
        expected.map(|(event, context)| (event.to_owned(), context))
    );
}

#[test]
fn error_event_carries_error_class_and_node() {
    let hook = calling(
        "error",
        "e: '${error}', c: '${classification}', n: '${node}', s: '${state}', at: '${step_count}'",
    );
    let mut stage = Stage::of(&hooked(FAILING, &[&hook]), run(json!({}), None));
    stage.play();
    let class = json!({"category": "permanent", "code": "default", "retryable": false, "retry_policy": null});
    assert_eq!(
        contexts_but_cost(&stage)[0].1,
        json!({"error": {"status": "error", "error": "boom", "code": "tool_failed"}, "classification": class,
               "node": "a", "step_count": 1})
    );
    let call = stage.hooks()[0];
    assert_eq!(
        (&call.params["n"], &call.params["at"]),
        (&json!("a"), &json!(1))
    );
    assert_eq!(call.params["s"], json!({"inputs": {}}));
    assert_eq!(
        stage.path(),
        "a:error",
        "an answer that is no control changes nothing"
    );
    assert_eq!(
        stage
            .names()
            .iter()
            .filter(|name| **name == "hook_completed")
            .count(),
        1
    );
}

#[test]
fn limit_event_carries_limit() {
    let hook = calling(
        "limit",
        "code: '${limit_code}', is: '${current_value}', max: '${current_max}', k: '${state.k}'",
    );
    let mut stage = Stage::of(&hooked(LOOP, &[&hook]), run(json!({}), Some(2)));
    stage.play();
    assert_eq!(
        json!(stage.hooks()[0].params),
        json!({"code": "max_steps_exceeded", "is": 2, "max": 2, "k": 1})
    );
    assert_eq!(stage.failure().code, "max_steps_exceeded");
}

#[test]
fn after_step_hook_runs_after_every_successful_node() {
    let nodes = "    a: {type: foreach, over: [1], action: {item_id: rye/core/echo}, next: b}
    b: {assign: {k: 1}, next: c}
    c: {action: {item_id: rye/core/echo, params: {fail: x}}, on_error: d}
    d: {type: return}\n";
    let hook = calling("after_step", "n: '${node}'");
    let mut stage = Stage::of(&hooked(nodes, &[&hook]), run(json!({}), None));
    stage.play();
    let nodes: Vec<_> = stage
        .hooks()
        .iter()
        .map(|call| call.params["n"].clone())
        .collect();
    assert_eq!(nodes, [json!("a"), json!("b"), json!("d")]);
}

#[test]
fn hooks_receive_cost_at_start_of_round() {
    let spent = Usage {
        money: Usd::parse("0.31").unwrap(),
        turns: 4,
        ..Usage::default()
    };
    let cost = Cost {
        usage: spent,
        estimated: Usd::ZERO,
    };
    let hooks = [
        "{event: after_step, condition: {path: cost.spend, op: gt, value: 0.31}, action: {item_id: rye/core/echo}}".to_owned(),
        "{event: after_step, condition: {path: cost.spend, op: gte, value: 0.31}, action: {item_id: rye/core/echo, params: {turns: '${cost.turns}'}}}".to_owned(),
    ];
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    let mut stage = Stage::of(&hooked(STEP, &hooks), run(json!({}), None));
    stage.walker = stage
        .walker
        .clone()
        .with_cost(CostSource::new(move || cost));
    assert_eq!(stage.play(), Rest::Ended);
    let asked = stage.hooks();
    assert_eq!(asked.len(), 3, "the second hook, after each step");
    for call in asked {
        assert_eq!(
            (call.slot, json!(call.params)),
            (Slot::Hook(1), json!({"turns": 4}))
        );
    }
    let told = contexts(&stage);
    assert_eq!(
        told[0].1["cost"]["spend"],
        json!(0.31),
        "as a number, and on record"
    );
}

#[test]
fn conditions_choose_the_hooks_when_the_round_begins() {
    let hooks = [
        "{id: no, event: after_step, condition: {path: node, op: eq, value: z}, action: {item_id: rye/core/echo}}",
        "{id: yes, event: after_step, condition: {path: state.step_count, op: eq, value: 2}, action: {item_id: rye/core/echo}}",
    ];
    let mut stage = Stage::of(&hooked(STEP, &hooks), run(json!({}), None));
    stage.play();
    assert_eq!(stage.hooks().len(), 1);
    assert_eq!(stage.hooks()[0].slot, Slot::Hook(1));
    assert_eq!(
        contexts(&stage).len(),
        1,
        "a round without hooks leaves no event"
    );
}

#[test]
fn first_answer_wins_and_third_layer_reports() {
    let configuration = json!({"hook_conditions": {
        "builtin_hooks": [{"id": "second", "event": "error", "action": {"item_id": CONTROL, "params": {"action": "skip"}}}],
        "infra_hooks": [{"id": "third", "event": "error", "action": {"item_id": CONTROL, "params": {"action": "continue"}}}],
    }});
    let silent = calling("error", "x: 1");
    let proceed = control("error", "action: continue");
    for (hooks, status) in [
        (vec![silent.as_str()], Status::Completed),
        (vec![silent.as_str(), &proceed], Status::CompletedWithErrors),
    ] {
        let mut stage = Stage::under(
            &hooked(FAILING, &hooks),
            run(json!({}), None),
            &configuration,
        );
        stage.play();
        assert_eq!(stage.run().status(), status);
        let asked = stage
            .names()
            .into_iter()
            .filter(|name| *name == "hook_completed");
        assert_eq!(asked.count(), hooks.len() + 2);
    }
    let mut only = configuration;
    only["hook_conditions"]["builtin_hooks"] = json!([]);
    let mut stage = Stage::under(&hooked(FAILING, &[&silent]), run(json!({}), None), &only);
    stage.play();
    assert_eq!(
        stage.path(),
        "a:error",
        "not the `continue` of the third layer"
    );
}

#[test]
fn a_hook_that_fails_is_a_warning() {
    for broken in [
        calling("after_step", "fail: boom"),
        calling("after_step", "x: '${node | from_json}'"),
        calling("after_step", "action: dance"),
    ] {
        let mut stage = Stage::of(&hooked(STEP, &[&broken]), run(json!({}), None));
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.run().status(), Status::Completed);
        let about_a = |(_, event): &(_, Event)| matches!(event, Event::Run(RunEvent::Warning(Warning { node: Some(node), .. })) if node == "a");
        assert!(stage.log.iter().any(about_a), "{:?}", stage.log);
        assert!(
            stage
                .warnings()
                .iter()
                .any(|it| it.contains("hook `hook-1` failed")),
            "{:?}",
            stage.warnings()
        );
        let failed = stage.log.iter().filter(|(_, event)| {
            matches!(
                event,
                Event::Run(RunEvent::HookCompleted(HookCompleted {
                    error: Some(_),
                    ..
                }))
            )
        });
        assert_eq!(failed.count(), 3);
    }
}

#[test]
fn hook_answers_decide_after_error() {
    for (answer, path, status, message) in [
        ("action: fail", "a:error", Status::Error, "boom"),
        (
            "action: fail, error: 'because ${node}'",
            "a:error",
            Status::Error,
            "because a",
        ),
        ("action: abort", "a:error", Status::Error, "boom"),
        (
            "action: continue",
            "a:error b:gate",
            Status::CompletedWithErrors,
            "",
        ),
        ("action: skip", "a:error b:gate", Status::Completed, ""),
    ] {
        // An error edge is not followed if a hook chooses the way.
        for edge in ["", "on_error: b, "] {
            let nodes = FAILING.replace("assign: {k: 1}, ", &format!("assign: {{k: 1}}, {edge}"));
            let hook = control("error", answer);
            let mut stage = Stage::of(&hooked(&nodes, &[&hook]), run(json!({}), None));
            assert_eq!(stage.play(), Rest::Ended);
            assert_eq!(
                (stage.path().as_str(), stage.run().status()),
                (path, status),
                "{answer}"
            );
            if status == Status::Error {
                assert_eq!(stage.failure().message, message);
                assert_eq!(stage.failure().node.as_deref(), Some("a"));
            }
            assert!(stage.state().get("k").is_none());
            assert_eq!(stage.state()["_last_error"]["node"], "a");
        }
    }
}

#[test]
fn both_spellings_of_retry_do_the_same() {
    for hook in [
        "{event: error, action: {retry: true, max_retries: 2}}".to_owned(),
        control("error", "action: retry, max_retries: 2"),
        calling("error", "action: retry, max_retries: 2"),
    ] {
        let mut stage = Stage::of(&hooked(FAILING, &[&hook]), run(json!({}), None));
        stage.play();
        let tries = stage.calls.iter().filter(|call| call.slot == Slot::Main);
        assert_eq!(tries.count(), 3, "{hook}");
        assert_eq!(stage.path(), "a:error");
    }
}

#[test]
fn run_suspended_after_failure_retries_on_resume() {
    for (answer, reason) in [
        (
            "action: suspend, suspend_reason: approval",
            SuspendReason::Approval,
        ),
        ("action: suspend", SuspendReason::Error),
        ("action: escalate", SuspendReason::Error),
    ] {
        let hook = control("error", answer);
        let nodes = FAILING.replace(
            "{fail: boom}",
            "{fail: boom, n: '${state._retries.a}', below: 1}",
        );
        let mut stage = Stage::of(&hooked(&nodes, &[&hook]), run(json!({}), None));
        assert_eq!(stage.play(), Rest::Suspended);
        assert_eq!(
            (
                stage.why_suspended().reason,
                stage.why_suspended().node.as_deref()
            ),
            (reason, Some("a"))
        );
        let told = stage.run().failure().unwrap();
        assert_eq!(
            (
                told.message.as_str(),
                told.code.as_str(),
                told.node.as_deref()
            ),
            ("boom", "tool_failed", Some("a"))
        );
        assert_eq!(
            stage.state()["_last_error"],
            json!({"node": "a", "error": "boom", "code": "tool_failed"})
        );
        stage.resume(None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.path(), "a:ok b:gate");
        assert_eq!(stage.calls[0].key, stage.calls[1].key);
    }
}

#[test]
fn hook_answers_decide_at_limit() {
    for (answer, steps, code) in [
        (
            "action: continue, additional_steps: 3",
            8,
            "max_steps_exceeded",
        ),
        ("action: continue", 52, "max_steps_exceeded"),
        (
            "action: continue, additional_steps: 0",
            2,
            "max_steps_exceeded",
        ),
        ("action: fail, error: enough", 2, "max_steps_exceeded"),
        ("action: abort", 2, "max_steps_exceeded"),
        ("action: skip", 2, "max_steps_exceeded"),
    ] {
        let hook = control("limit", answer).replace(
            "{event: limit,",
            "{event: limit, condition: {path: current_max, op: lt, value: 7},",
        );
        let mut stage = Stage::of(&hooked(LOOP, &[&hook]), run(json!({}), Some(2)));
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.run().steps(), steps, "{answer}");
        assert_eq!(
            (
                stage.failure().code.as_str(),
                stage.failure().node.as_deref()
            ),
            (code, Some("a"))
        );
        assert_eq!(
            stage.failure().message == "enough",
            answer.contains("enough")
        );
    }
}

#[test]
fn a_run_suspended_at_its_limit_resumes_with_a_higher_one() {
    let hook = control("limit", "action: escalate");
    let mut stage = Stage::of(&hooked(LOOP, &[&hook]), run(json!({}), Some(2)));
    assert_eq!(stage.play(), Rest::Suspended);
    let why = stage.why_suspended();
    assert_eq!(
        (
            why.reason,
            why.code.as_deref(),
            why.current.as_deref(),
            why.max.as_deref()
        ),
        (
            SuspendReason::Limit,
            Some("max_steps_exceeded"),
            Some("2"),
            Some("2")
        )
    );
    stage.resume(Some(4));
    assert_eq!(stage.play(), Rest::Suspended);
    assert_eq!(stage.run().steps(), 4);
    stage.resume(None);
    assert_eq!(
        stage.play(),
        Rest::Suspended,
        "no higher limit: it is asked again"
    );
    assert_eq!(stage.run().steps(), 4);
}

#[test]
fn between_steps_a_hook_may_end_or_suspend_the_run() {
    for (event, path) in [("graph_started", ""), ("after_step", "a:ok")] {
        for (answer, code) in [
            ("action: fail, error: no", "hook_failed"),
            ("action: abort", "aborted"),
        ] {
            let mut stage = Stage::of(
                &hooked(STEP, &[&control(event, answer)]),
                run(json!({}), None),
            );
            assert_eq!(stage.play(), Rest::Ended);
            assert_eq!(
                (stage.path().as_str(), stage.failure().code.as_str()),
                (path, code)
            );
        }
        let answer = "action: suspend, suspend_reason: user";
        let mut stage = Stage::of(
            &hooked(STEP, &[&control(event, answer)]),
            run(json!({}), None),
        );
        assert_eq!(stage.play(), Rest::Suspended);
        assert_eq!(stage.path(), path);
        stage.resume(None);
        while stage.play() == Rest::Suspended {
            stage.resume(None);
        }
        assert_eq!(
            stage.path(),
            "a:ok b:gate c:return",
            "what was asked for once is not done twice"
        );
    }
}

#[test]
fn graph_completed_hook_runs_at_every_end() {
    let hook = calling("graph_completed", "as: '${status}', e: '${error}'");
    let told = |stage: &Stage| json!(stage.hooks()[0].params);
    let mut fine = Stage::of(&hooked(STEP, &[&hook]), run(json!({}), None));
    fine.play();
    assert_eq!(told(&fine), json!({"as": "completed"}));
    let mut error = Stage::of(&hooked(FAILING, &[&hook]), run(json!({}), None));
    error.play();
    assert_eq!(told(&error), json!({"as": "error", "e": "boom"}));
    assert_eq!(error.failure().message, "boom");
    let lenient = hooked(FAILING, &[&hook]) + "  on_error: continue\n";
    let mut suppressed = Stage::of(&lenient, run(json!({}), None));
    suppressed.play();
    assert_eq!(told(&suppressed), json!({"as": "completed_with_errors"}));
    let mut limit = Stage::of(&hooked(LOOP, &[&hook]), run(json!({}), Some(3)));
    limit.play();
    assert_eq!(told(&limit)["as"], "error");
    assert_eq!(limit.failure().code, "max_steps_exceeded");
    assert_eq!(
        limit.run().stood_at(),
        Some("a"),
        "where a continuation begins"
    );
    let mut cancelled = Stage::of(&hooked(STEP, &[&hook]), run(json!({}), None));
    cancelled.call();
    cancelled.cancel();
    cancelled.end_one(echo);
    assert_eq!(cancelled.play(), Rest::Ended);
    assert_eq!(told(&cancelled), json!({"as": "cancelled"}));
    assert_eq!(cancelled.run().status(), Status::Cancelled);
    assert_eq!(cancelled.run().stood_at(), Some("b"));
}

#[test]
fn stopped_end_hook_is_not_repeated() {
    let hooks = [
        calling("graph_completed", "x: 1"),
        calling("graph_completed", "x: 2"),
    ];
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    let mut stage = Stage::of(&hooked(LOOP, &hooks), run(json!({}), Some(0)));
    stage.call();
    stage.cancel();
    for expected in [1, 2] {
        assert!(
            matches!(stage.settle(), Rest::Waits(_)),
            "a request to stop does not keep the end from being told"
        );
        let call = stage.in_flight.pop_front().unwrap();
        assert_eq!(call.params["x"], expected);
        stage.walker.abandon(call.slot);
    }
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(
        stage.failure().code,
        "max_steps_exceeded",
        "the outcome was decided before"
    );
    stage.check_record();
}

#[test]
fn a_hook_in_flight_at_a_crash_repeats_with_the_same_key_and_time() {
    let hook = calling("after_step", "at: '${_timestamp}', n: '${node}'");
    let mut stage = Stage::of(&hooked(STEP, &[&hook]), run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    let first = stage.call();
    stage.clock += 5_000;
    stage.crash();
    let second = stage.call();
    assert_eq!(
        second,
        Call {
            attempt: 2,
            ..first
        }
    );
    assert_eq!(stage.play(), Rest::Ended);
    let keys: BTreeSet<_> = stage.hooks().iter().map(|call| call.key.clone()).collect();
    assert_eq!((stage.hooks().len(), keys.len()), (4, 3));
}

#[test]
fn failure_hook_keeps_step_and_key_in_every_try() {
    let hook = calling("error", "at: '${step_count}'");
    let again = control("error", "action: retry, max_retries: 1");
    let nodes = "    a: {assign: {k: 1}, next: b}
    b: {action: {item_id: rye/core/echo, params: {fail: boom}}}\n";
    let mut stage = Stage::of(&hooked(nodes, &[&hook, &again]), run(json!({}), None));
    stage.play();
    let asked = stage.hooks();
    let asked = asked.iter().map(|call| (call.step, &call.params["at"]));
    assert_eq!(asked.collect::<Vec<_>>(), [(2, &json!(2)), (2, &json!(2))]);
    let told = stage.log.iter().filter_map(|(_, event)| match event {
        Event::Run(
            RunEvent::HookStarted(HookStarted { step, .. })
            | RunEvent::HookCompleted(HookCompleted { step, .. }),
        ) => Some(*step),
        Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) | Event::Process(_) => {
            None
        }
    });
    assert_eq!(told.collect::<Vec<_>>(), [2; 6]);
    // In the logs of runs that an older daemon began, keys count the steps completed before.
    let key = idempotency_key("t-1-a", "b", 1, None, Some("error/1/hook-1"));
    assert!(stage.hooks().iter().all(|call| call.key == key));
}

#[test]
fn hooks_of_one_id_in_two_layers_have_different_keys() {
    let configuration = json!({"hook_conditions": {
        "builtin_hooks": [{"id": "same", "event": "error", "action": {"item_id": "rye/core/echo"}}],
    }});
    let own = "{id: same, event: error, action: {item_id: rye/core/echo}}";
    let mut stage = Stage::under(
        &hooked(FAILING, &[own]),
        run(json!({}), None),
        &configuration,
    );
    stage.play();
    let keys: BTreeSet<_> = stage.hooks().iter().map(|call| &call.key).collect();
    assert_eq!(keys.len(), 2);
}

#[test]
fn stop_applies_before_each_hook() {
    let hooks = [calling("after_step", "x: 1"), calling("after_step", "x: 2")];
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    let mut stage = Stage::of(&hooked(STEP, &hooks), run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    stage.call();
    stage.cancel();
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.hooks().len(), 1);
    assert_eq!(stage.run().status(), Status::Cancelled);
}

#[test]
fn an_unfinished_round_continues_when_the_run_resumes() {
    let hooks = [calling("error", "x: 1"), control("error", "action: skip")];
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    let mut stage = Stage::of(&hooked(FAILING, &hooks), run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    stage.call();
    stage.walker.hold(Suspension::new(SuspendReason::User));
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Suspended);
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(
        stage.path(),
        "a:error b:gate",
        "the answer of the second hook, not another try"
    );
}

#[test]
fn hook_answer_survives_suspension() {
    let hook = calling("error", "action: skip");
    let mut stage = Stage::of(&hooked(FAILING, &[&hook]), run(json!({}), None));
    stage.call();
    stage.end_one(echo);
    stage.call();
    stage.end_one(echo);
    // The disk is full: finished work is recorded, and the run is suspended.
    stage.observe(Event::Run(RunEvent::RunSuspended(Suspension::new(
        SuspendReason::Storage,
    ))));
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.path(), "a:error b:gate");
}
