//! Nodes, edges, limits and keys: the plain walk.

use serde_json::Map;

use super::*;
use crate::model::GraphEvent;
use crate::model::event::GraphCancelled;

#[test]
fn results_are_assigned_in_order_and_choose_the_edge() {
    let config = "
  start: a
  nodes:
    a:
      action: {item_id: rye/core/echo, params: {x: '${inputs.n}', gone: '${inputs.nope}'}}
      assign: {x: '${result.x}', y: '${state.x}', whole: '${result}'}
      next: [{to: big, when: {path: state.x, op: gt, value: 5}}, {to: small}]
    big: {assign: {size: big}, next: end}
    small: {assign: {size: small}, next: end}
    end: {type: return, output: {size: '${state.size}', n: '${inputs.n}'}}
";
    let (path, ended) = walk(config, run(json!({"n": 9}), None));
    assert_eq!(path, "a:ok big:gate end:return");
    assert_eq!(
        state(&ended),
        json!({"x": 9, "y": 9, "whole": {"x": 9}, "size": "big"})
    );
    assert_eq!(
        ended.outcome(),
        Some(&Outcome::Completed {
            output: Arc::new(json!({"size": "big", "n": 9}))
        })
    );
    assert_eq!(
        walk(config, run(json!({"n": 1}), None)).0,
        "a:ok small:gate end:return"
    );
}

#[test]
fn no_edge_is_an_implicit_return() {
    let config = "
  start: a
  nodes:
    a:
      action: {item_id: rye/core/echo}
      next: [{to: a, when: {path: state.never, op: exists}}]
";
    let (path, ended) = walk(config, run(json!({}), None));
    assert_eq!(path, "a:ok");
    assert_eq!(
        ended.outcome(),
        Some(&Outcome::Completed {
            output: Arc::new(json!({}))
        })
    );
}

#[test]
fn missing_reads_are_reported_once() {
    let config = "
  max_steps: 5
  start: a
  nodes:
    a:
      assign: {x: '${state.nowhere}'}
      next: a
";
    let mut stage = Stage::of(config, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    let warnings = stage.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("state.nowhere"), "{warnings:?}");
    let dead_end = "
  start: a
  nodes:
    a: {next: [{to: a, when: {path: state.never, op: exists}}]}
";
    let mut stage = Stage::of(dead_end, run(json!({}), None));
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(
        stage.warnings(),
        ["the condition of no edge holds, so the run ends here"]
    );
}

#[test]
fn a_failed_node_follows_its_error_edge_before_the_policy() {
    let failing = "action: {item_id: rye/core/echo, params: {fail: boom}}, assign: {x: 1}";
    for (edge, policy, path, status) in [
        ("", "fail", "a:error", Status::Error),
        (
            "",
            "continue",
            "a:error b:gate",
            Status::CompletedWithErrors,
        ),
        (
            "on_error: rescue,",
            "fail",
            "a:error rescue:gate",
            Status::Completed,
        ),
        (
            "on_error: rescue,",
            "continue",
            "a:error rescue:gate",
            Status::Completed,
        ),
    ] {
        let config = format!(
            "
  start: a
  on_error: {policy}
  nodes:
    a: {{{failing}, {edge} next: b}}
    b: {{assign: {{at: b}}}}
    rescue: {{assign: {{why: '${{state._last_error.error}}'}}}}
"
        );
        let (walked, ended) = walk(&config, run(json!({}), None));
        assert_eq!(
            (walked.as_str(), ended.status()),
            (path, status),
            "{edge} {policy}"
        );
        let last = &state(&ended)["_last_error"];
        assert_eq!(
            (&last["node"], &last["error"], &last["code"]),
            (&json!("a"), &json!("boom"), &json!("tool_failed"))
        );
        assert_eq!(last["result"]["error"], "boom", "{last}");
        assert!(
            state(&ended).get("x").is_none(),
            "a failed node assigns nothing"
        );
    }
}

#[test]
fn steps_are_counted_and_limited() {
    let config = "
  start: a
  max_steps: 7
  nodes:
    a: {action: {item_id: rye/core/echo}, next: b}
    b: {assign: {n: '${_timestamp}'}, next: a}
";
    for (limit, most) in [(None, 7), (Some(3), 3), (Some(0), 0)] {
        let (_, ended) = walk(config, run(json!({}), limit));
        assert_eq!(ended.steps(), most);
        let Some(Outcome::Error { error }) = ended.outcome() else {
            unreachable!()
        };
        assert_eq!(error.code, "max_steps_exceeded");
    }
}

#[test]
fn a_cancelled_run_ends_before_its_next_node() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo}, next: b}
    b: {action: {item_id: rye/core/echo}, next: a}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    stage.call();
    stage.cancel();
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.path(), "a:ok");
    assert!(
        matches!(stage.log.last(), Some((_, Event::Graph(GraphEvent::GraphCancelled(GraphCancelled { cause, steps: 1, .. })))) if cause == "ada")
    );
    assert_eq!(stage.run().stood_at(), Some("b"));
}

#[test]
fn a_step_in_flight_is_repeated_as_it_was() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {at: '${_timestamp}', n: '${inputs.n}'}}, assign: {at: '${result.at}'}}
";
    let mut stage = Stage::of(config, run(json!({"n": 1}), None));
    let before = stage.call();
    stage.clock = 1000;
    stage.crash();
    let after = stage.call();
    assert_eq!(
        after,
        Call {
            attempt: 2,
            ..before
        },
        "same key, same parameters, the next attempt"
    );
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.run().steps(), 1);
}

#[test]
fn pure_call_is_a_step_at_lookup_time() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {at: '${_timestamp}'}}, assign: {was: '${result.at}', is: '${_timestamp}'}}
";
    let mut stage = Stage::of(config, run(json!({}), None));
    let Move::Call(events, call) = stage.walker.next(tick(5)) else {
        unreachable!()
    };
    stage.note(events);
    stage.clock = 40;
    let cached = CallOutcome {
        cached: true,
        ..echo(&call)
    };
    let events = stage.walker.conclude(tick(40), call.slot, &cached);
    stage.note(events);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.path(), "a:cached");
    let at = now(5).ms();
    assert_eq!(stage.state(), json!({"was": at, "is": at}));
}

#[test]
fn keys_differ_by_visit_and_node_and_not_by_attempt() {
    let keys: BTreeSet<_> = [("r", "a", 0), ("r", "a", 1), ("r", "b", 0), ("s", "a", 0)]
        .map(|(r, n, v)| idempotency_key(r, n, v, None, None))
        .into();
    assert_eq!(keys.len(), 4);
    assert_ne!(
        idempotency_key("r", "a", 0, Some(&json!(0)), None),
        idempotency_key("r", "a", 0, None, None)
    );
}

#[test]
fn an_id_that_resolves_outside_its_space_fails_the_node() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: 'stub/${inputs.name}'}}
";
    for (name, code) in [
        (json!("../rye/bash"), "invalid_item_id"),
        (json!(null), "invalid_item_id"),
    ] {
        let (_, ended) = walk(config, run(json!({"name": name}), None));
        let Some(Outcome::Error { error }) = ended.outcome() else {
            unreachable!()
        };
        assert_eq!(
            (error.code.as_str(), error.node.as_deref()),
            (code, Some("a"))
        );
    }
}

#[test]
fn the_state_keeps_the_order_of_its_assignments() {
    let config = "
  start: a
  nodes:
    a: {assign: {z: 1, b: 2, a: 3}}
";
    let (_, ended) = walk(config, run(json!({}), None));
    let keys: Vec<_> = state(&ended)
        .as_object()
        .map(Map::keys)
        .unwrap()
        .cloned()
        .collect();
    assert_eq!(keys, ["z", "b", "a"]);
}
