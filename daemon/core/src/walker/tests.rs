//! What the walker does, told as the nodes it attempts and the end it comes to.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::definition;
use crate::id::{Epoch, ItemId, RunId};
use crate::model::{Birth, Durability, GraphSource, Limits, Outcome, Recovery, RunKind, Status};

const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    category: t\npermissions: [\"rye.*\"]\n";

fn graph(config: &str) -> Arc<Graph> {
    let text = format!("{HEAD}config:\n{config}");
    let (graph, _) = definition::parse(&text).unwrap_or_else(|findings| panic!("{findings:#?}"));
    Arc::new(graph)
}

fn run(inputs: Value, steps: Option<u32>) -> Run {
    let id = RunId::new("t-1-a").unwrap();
    let Value::Object(inputs) = inputs else {
        unreachable!()
    };
    let birth = Birth {
        item: ItemRef::tool(ItemId::new("t/g").unwrap()),
        kind: RunKind::Graph,
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        parent: None,
        depth: 0,
        detached: false,
        effect_scope: None,
        seed: None,
        chain_root: id.clone(),
        continuation_of: None,
        limits: Limits { steps, depth: None },
        layers: Vec::new(),
        durability: Durability::Strict,
        recovery: Recovery::Resume,
        inputs,
        content_hash: String::new(),
        graph: Some(GraphSource {
            text: String::new(),
            category: "t".into(),
            version: "1.0.0".into(),
            nodes: 0,
            policy: String::new(),
            config_hash: String::new(),
        }),
        start_key: None,
    };
    let mut run = Run::create(id, now(0), Arc::new(birth));
    run.apply(now(0), &Event::RunStarted { epoch: Epoch(1) })
        .unwrap();
    run
}

fn now(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + ms)
}

fn policy() -> Arc<Policy> {
    Arc::new(Policy::from_config(&json!({})).unwrap())
}

fn answered(result: Value) -> Answer {
    Answer {
        result,
        failure: None,
        certainty: Certainty::Answered,
        cached: false,
        node_input_hash: None,
    }
}

/// The next call, announced; the events before it and its announcement.
fn called(walker: &mut Walker, at: Timestamp) -> (Vec<Event>, Box<Call>) {
    let Move::Call(mut events, call) = walker.next(at) else {
        unreachable!("no call")
    };
    events.extend(walker.start(at, &call, None, None));
    (events, call)
}

/// A tool that answers with its parameters, or fails if they say so.
fn echo(call: &Call) -> Answer {
    let result = Value::Object(call.params.clone());
    match call.params.get("fail") {
        Some(why) => Answer {
            failure: Some(Failure::permanent("tool_failed", why.to_string())),
            ..answered(json!({"status": "error", "error": why}))
        },
        None => answered(result),
    }
}

/// Walks to the end; returns the nodes in the order of their completion, and the record.
fn walk(config: &str, run: Run) -> (String, Run) {
    let mut walker = Walker::new(graph(config), policy(), run);
    let mut path = Vec::new();
    let mut note = |events: &[Event]| {
        for event in events {
            if let Event::StepCompleted { node, status, .. } = event {
                path.push(format!("{node}:{}", status.as_str()));
            }
        }
    };
    for tick in 0.. {
        assert!(tick < 10_000, "the walk does not end");
        match walker.next(now(tick)) {
            Move::Note(events) => note(&events),
            Move::Call(events, call) => {
                note(&events);
                note(&walker.start(now(tick), &call, None, None));
                let answer = echo(&call);
                note(&walker.conclude(now(tick), call.slot, &answer));
            }
            Move::Wait(events, _) => note(&events),
            Move::Park(events) | Move::End(events) => {
                note(&events);
                break;
            }
        }
    }
    (path.join(" "), walker.run().clone())
}

fn state(run: &Run) -> Value {
    let mut state = run.progress.state.clone();
    state.as_object_mut().unwrap().shift_remove("inputs");
    state
}

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
        ended.phase,
        Phase::Ended {
            outcome: Outcome::Completed {
                output: json!({"size": "big", "n": 9})
            }
        }
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
        ended.phase,
        Phase::Ended {
            outcome: Outcome::Completed { output: json!({}) }
        }
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
        assert_eq!(
            state(&ended)["_last_error"],
            json!({"node": "a", "error": "\"boom\""})
        );
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
        assert_eq!(ended.progress.steps, most);
        let Phase::Ended {
            outcome: Outcome::Error { error },
        } = &ended.phase
        else {
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
    let mut walker = Walker::new(graph(config), policy(), run(json!({}), None));
    let (_, call) = called(&mut walker, now(1));
    walker
        .observe(
            now(2),
            &Event::CancelRequested {
                cause: "ada".into(),
            },
        )
        .unwrap();
    walker.conclude(now(3), call.slot, &echo(&call));
    let Move::End(events) = walker.next(now(4)) else {
        unreachable!()
    };
    assert!(
        matches!(&events[..], [Event::GraphCancelled { cause, steps: 1, .. }] if cause == "ada"),
        "{events:?}"
    );
}

#[test]
fn a_step_in_flight_is_repeated_as_it_was() {
    let config = "
  start: a
  nodes:
    a: {action: {item_id: rye/core/echo, params: {at: '${_timestamp}', n: '${inputs.n}'}}, assign: {at: '${result.at}'}}
";
    let mut first = Walker::new(graph(config), policy(), run(json!({"n": 1}), None));
    let (_, before) = called(&mut first, now(5));
    let mut taken_up = first.run().clone();
    taken_up
        .apply(now(900), &Event::RunStarted { epoch: Epoch(2) })
        .unwrap();
    let mut second = Walker::new(graph(config), policy(), taken_up);
    let (events, after) = called(&mut second, now(1000));
    assert!(
        matches!(
            &events[..],
            [Event::StepStarted {
                attempt: 2,
                step: 1,
                ..
            }]
        ),
        "{events:?}"
    );
    assert_eq!(
        *after,
        Call {
            attempt: 2,
            ..*before
        },
        "same key, same parameters, the next attempt"
    );
    second.conclude(now(1001), after.slot, &echo(&after));
    assert!(matches!(second.next(now(1002)), Move::End(_)));
    assert_eq!(second.run().progress.steps, 1);
}

#[test]
fn keys_differ_by_visit_and_node_and_not_by_attempt() {
    let keys: BTreeSet<_> = [("r", "a", 0), ("r", "a", 1), ("r", "b", 0), ("s", "a", 0)]
        .map(|(r, n, v)| idempotency_key(r, n, v, None, None))
        .into();
    assert_eq!(keys.len(), 4);
    assert_ne!(
        idempotency_key("r", "a", 0, Some(0), None),
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
        let Phase::Ended {
            outcome: Outcome::Error { error },
        } = &ended.phase
        else {
            unreachable!()
        };
        assert_eq!(
            (error.code.as_str(), error.node.as_deref()),
            (code, Some("a"))
        );
    }
}

/// A graph of actions and gates with arbitrary edges.
fn any_graph() -> impl Strategy<Value = (String, u32)> {
    let node = (
        any::<bool>(),
        any::<bool>(),
        proptest::option::of(0..6_usize),
        proptest::option::of(0..6_usize),
    );
    (proptest::collection::vec(node, 6), 0..30_u32, any::<bool>()).prop_map(
        |(nodes, max, lenient)| {
            let lines: Vec<String> = nodes
                .iter()
                .enumerate()
                .map(|(index, (acts, fails, next, rescue))| {
                    let mut keys = vec![if *acts {
                        let params = if *fails { ", params: {fail: x}" } else { "" };
                        format!("action: {{item_id: rye/core/echo{params}}}")
                    } else {
                        "assign: {k: '${_now}'}".to_owned()
                    }];
                    keys.extend(next.map(|to| format!("next: n{to}")));
                    keys.extend(
                        rescue
                            .filter(|_| *acts)
                            .map(|to| format!("on_error: n{to}")),
                    );
                    format!("    n{index}: {{{}}}\n", keys.join(", "))
                })
                .collect();
            let lines = lines.concat();
            let policy = if lenient { "continue" } else { "fail" };
            (
                format!(
                    "  start: n0\n  on_error: {policy}\n  max_steps: {}\n  nodes:\n{lines}",
                    max.max(1)
                ),
                max.max(1),
            )
        },
    )
}

proptest! {
    #[test]
    fn every_walk_ends_within_max_steps_and_its_events_give_its_state((config, max) in any_graph()) {
        let mut walker = Walker::new(graph(&config), policy(), run(json!({}), None));
        let mut replayed = walker.run().clone();
        let mut all = Vec::new();
        loop {
            match walker.next(now(1)) {
                Move::Note(events) => all.extend(events),
                Move::Call(events, call) => {
                    all.extend(events);
                    all.extend(walker.start(now(1), &call, None, None));
                    all.extend(walker.conclude(now(1), call.slot, &echo(&call)));
                }
                Move::Wait(events, _) => all.extend(events),
                Move::Park(events) | Move::End(events) => {
                    all.extend(events);
                    break;
                }
            }
        }
        for event in &all {
            replayed.apply(now(1), event).expect("the walker emits legal events");
        }
        prop_assert!(walker.run().status().is_terminal());
        prop_assert!(walker.run().progress.steps <= max);
        prop_assert_eq!(&replayed, walker.run());
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
