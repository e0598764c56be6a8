//! Ends and pauses: the time limit of a run, requests, single steps and continuations.

use super::*;

const TWO: &str = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {x: '${state.x}'}}, assign: {x: 1}, next: b}
    b: {action: {item_id: rye/core/echo}, next: c}
    c: {type: return, output: {x: '${state.x}'}}
";

fn limited(config: &str, seconds: u32) -> String {
    format!("{config}  timeout: {seconds}\n")
}

#[test]
fn timeout_ends_run_after_running_attempts() {
    let mut stage = Stage::of(&limited(TWO, 2), run(json!({}), None));
    assert_eq!(
        stage.settle(),
        Rest::Waits(Some(up(2000))),
        "somebody must stop the call then"
    );
    assert_eq!(stage.walker.time_left(), Some(Duration::from_secs(2)));
    stage.clock = 2000;
    assert_eq!(stage.settle(), Rest::Waits(None));
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok");
    assert_eq!(
        (
            stage.failure().code.as_str(),
            stage.failure().node.as_deref()
        ),
        ("duration_exceeded", Some("b"))
    );
}

#[test]
fn time_counts_from_the_first_start_over_crashes_and_anew_when_a_suspended_run_resumes() {
    let mut stage = Stage::of(&limited(TWO, 2), run(json!({}), None));
    stage.call();
    stage.clock = 1500;
    stage.crash();
    assert_eq!(stage.settle(), Rest::Waits(Some(up(2000))));
    stage.walker.hold(Suspension::new(SuspendReason::User));
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Suspended);
    stage.clock = 60_000;
    stage.resume(None);
    assert_eq!(stage.settle(), Rest::Waits(Some(up(62_000))));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Completed);
}

#[test]
fn a_wall_clock_that_is_set_neither_ends_nor_stalls_a_run() {
    const YEAR: i64 = 365 * 24 * 3_600_000;
    for step in [YEAR, -YEAR, -3_600_000] {
        let mut stage = Stage::of(&limited(TWO, 8), run(json!({}), None));
        stage.call();
        stage.clock = 1_000;
        stage.wall_is_ahead = step;
        assert_eq!(stage.settle(), Rest::Waits(Some(up(8_000))), "{step}");
        stage.end_one(echo);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.run().status(), Status::Completed, "{step}");
    }
}

#[test]
fn clock_change_between_lives_keeps_time_limit() {
    let mut stage = Stage::of(&limited(TWO, 8), run(json!({}), None));
    stage.call();
    stage.clock = 3_000;
    stage.wall_is_ahead = -3_600_000;
    stage.crash();
    assert_eq!(stage.settle(), Rest::Waits(Some(up(11_000))));
}

#[test]
fn a_pause_before_a_retry_ends_with_the_time_of_the_run() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {fail: x}}, retry: {max: 1, backoff: fixed, delay: 60}}
";
    let mut stage = Stage::of(&limited(config, 2), run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.failure().code, "duration_exceeded");
    assert_eq!(stage.clock, 2000);
}

#[test]
fn held_run_suspends_before_next_attempt() {
    let mut at_start = Stage::of(TWO, run(json!({}), None));
    at_start.walker.hold(Suspension::new(SuspendReason::User));
    assert_eq!(at_start.settle(), Rest::Suspended);
    assert_eq!(at_start.why_suspended().node.as_deref(), Some("a"));
    let mut in_step = Stage::of(TWO, run(json!({}), None));
    in_step.call();
    in_step
        .walker
        .hold(Suspension::new(SuspendReason::Approval));
    assert!(matches!(in_step.settle(), Rest::Waits(_)));
    in_step.end_one(echo);
    assert_eq!(in_step.settle(), Rest::Suspended);
    assert_eq!(in_step.why_suspended().node.as_deref(), Some("b"));
    let mut abandoned = Stage::of(TWO, run(json!({}), None));
    abandoned.call();
    abandoned.walker.hold(Suspension::new(SuspendReason::User));
    abandoned.walker.abandon(Slot::Main);
    assert_eq!(abandoned.settle(), Rest::Suspended);
    abandoned.in_flight.clear();
    for mut stage in [at_start, in_step, abandoned] {
        stage.resume(None);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.path(), "a:ok b:ok c:return");
    }
}

#[test]
fn cancel_keeps_stopped_step() {
    let mut stage = Stage::of(TWO, run(json!({}), None));
    let call = stage.call();
    stage.cancel();
    stage.walker.abandon(call.slot);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Cancelled);
    assert_eq!(stage.run().stood_at(), Some("a"));
    let progress = stage.run().inherited().unwrap();
    let mut next = Stage::of(TWO, seeded("a", progress, Extent::Rest));
    assert_eq!(next.call().key, call.key, "the same visit: the same key");
}

#[test]
fn a_continuation_after_an_error_begins_at_the_failed_node_with_the_same_key() {
    let config = TWO
        .replace(
            "b: {action: {item_id: rye/core/echo}",
            "b: {action: {item_id: rye/core/echo, params: {fail: '${state.bad}'}}",
        )
        .replace("assign: {x: 1}", "assign: {x: 1, bad: '${inputs.bad}'}");
    let mut first = Stage::of(&config, run(json!({"bad": "x"}), None));
    first.play();
    assert_eq!(first.path(), "a:ok b:error");
    let mut progress = first.run().inherited().unwrap();
    progress.0.vars.set("bad", Value::Null);
    let mut second = Stage::of(&config, seeded("b", progress, Extent::Rest));
    second.play();
    assert_eq!(second.path(), "b:ok c:return");
    assert_eq!(second.calls[0].key, first.calls[1].key);
    assert_eq!(second.calls[0].step, 3, "steps are counted on");
    assert_eq!(second.state()["x"], 1);
    assert!(!second.names().contains(&"hooks_begun"));
    let document = second.run().result();
    assert_eq!(
        (&document["output"], &document["steps"]),
        (&json!({"x": 1}), &json!(4))
    );
}

#[test]
fn continued_run_has_its_own_limit() {
    let mut first = Stage::of(TWO, run(json!({}), Some(1)));
    first.play();
    assert_eq!(first.failure().code, "max_steps_exceeded");
    let progress = first.run().inherited().unwrap();
    let node = first.failure().node.clone().unwrap();
    let mut second = Stage::of(TWO, seeded(&node, progress, Extent::Rest));
    second.play();
    assert_eq!(second.path(), "b:ok c:return");
}

#[test]
fn single_step_runs_one_node_and_names_next() {
    let vars = Object::from_iter([("x".into(), json!(9)), ("inputs".into(), json!({"n": 1}))]);
    let before = GraphState {
        vars: vars.into(),
        ..GraphState::default()
    };
    let progress = (before, UnfinishedWork::default());
    let config = TWO.replace(
        "b: {action: {item_id: rye/core/echo}, next: c}",
        "b: {action: {item_id: rye/core/echo, params: {fail: x}}, on_error: c, next: a}",
    );
    for (config, node, success, next, x) in [
        (TWO, "a", true, json!("b"), 1),
        (TWO, "c", true, Value::Null, 9),
        (&config, "b", false, json!("c"), 9),
        (
            &config.replace("on_error: c, ", ""),
            "b",
            false,
            Value::Null,
            9,
        ),
    ] {
        let hooks = "  hooks: [{event: graph_started, action: {item_id: t/h}}, {event: graph_completed, action: {item_id: t/h}}]\n";
        let mut stage = Stage::of(
            &format!("{config}{hooks}"),
            seeded(node, progress.clone(), Extent::OneNode),
        );
        assert_eq!(stage.play(), Rest::Ended);
        assert!(
            stage.hooks().is_empty(),
            "the graph neither starts nor ends"
        );
        let mut document = stage.run().result();
        assert_eq!(document["state"]["x"], x);
        assert_eq!(document["state"]["inputs"], json!({"n": 1}));
        let document = document.as_object_mut().unwrap();
        document.shift_remove("state");
        let mut expected =
            json!({"success": success, "executed_node": node, "next_node": next, "step_count": 1});
        if !success {
            expected["error"] = json!("x");
            expected["code"] = json!("tool_failed");
        }
        assert_eq!(json!(document), expected);
    }
}

#[test]
fn a_single_step_retries_and_has_no_limit() {
    let config = "
  start: a
  max_steps: 1
  nodes:
    a: {action: {item_id: rye/core/echo, params: {fail: x, n: '${state._retries.a}', below: 1}}, retry: 1, next: a}
";
    let before = GraphState {
        steps: 5,
        ..GraphState::default()
    };
    let progress = (before, UnfinishedWork::default());
    let mut stage = Stage::of(config, seeded("a", progress, Extent::OneNode));
    stage.play();
    assert_eq!(stage.path(), "a:ok");
    assert_eq!(stage.run().result()["next_node"], "a");
}

#[test]
fn summary_counts_suppressed_errors() {
    let config = "
  start: a
  on_error: continue
  nodes:
    a: {action: {item_id: rye/core/echo, params: {fail: x}}, next: c}
    c: {type: return, output: {o: 1}}
";
    let (_, run) = walk(config, run(json!({}), None));
    let mut document = run.result();
    document.as_object_mut().unwrap().shift_remove("state");
    assert_eq!(
        document,
        json!({"success": true, "status": "completed_with_errors", "output": {"o": 1}, "steps": 2, "run_id": "t-1-a", "graph_run_id": "t-1-a",
               "errors_suppressed": 1, "errors": [{"step": 1, "node": "a", "error": "x"}]})
    );
}
