//! Calls that child runs carry out: the item `t/graph` of these tests.

use super::stage::{Met, execute, result};
use super::*;
use crate::model::event::CancelRequested;
use crate::model::{Failure, SuspendReason};

const ALL: &str = "<execute><tool>t/*</tool></execute>";
const FIRST: &str = "t-graph-1-aaaaaaaaaa";

/// A thread whose model has requested `calls`: ids and items.
fn asking(calls: &[(&str, &str)]) -> Stage {
    let mut stage = Stage::new(terms(&directive(ALL, "")), |_| {});
    assert_eq!(stage.play(), Met::Model);
    stage.say(said(calls));
    assert_eq!(stage.play(), Met::Waits);
    stage
}

fn said(calls: &[(&str, &str)]) -> Vec<ModelSignal> {
    let calls: Vec<(&str, &str, Value)> = (1..)
        .zip(calls)
        .map(|(number, (id, item))| (*id, "rye_execute", execute(item, number)))
        .collect();
    message_signals("", &calls)
}

fn first() -> RunId {
    RunId::new(FIRST).unwrap()
}

fn resumed() -> RunEvent {
    RunEvent::resumed(Epoch::default())
}

/// The driver leaves a suspended thread, and another driver resumes it.
fn resume(stage: &mut Stage) {
    stage.others(resumed());
    let run = Arc::clone(&stage.machine.run);
    stage.machine = ThreadMachine::new(Arc::clone(&stage.terms), run);
}

#[test]
fn child_run_result_is_reported_once() {
    let mut stage = asking(&[("c1", "t/graph")]);
    assert_eq!(stage.run().spawn_count, 1);
    let children: Vec<_> = stage.run().attempts().map(|a| a.child.clone()).collect();
    assert_eq!(children, [Some(first())]);
    stage.end(0, &result(json!({"sum": 3})));
    assert_eq!(stage.play(), Met::Model);
    assert_eq!(stage.call_results(), [("c1".into(), "{\"sum\":3}".into())]);
    assert_eq!(stage.run().spawn_count, 1);
    stage.assert_replay();
}

#[test]
fn calls_of_one_graph_run_side_by_side() {
    let stage = asking(&[
        ("c1", "t/graph"),
        ("c2", "t/graph"),
        ("c3", "t/a"),
        ("c4", "t/a"),
    ]);
    let items: Vec<&str> = stage
        .running
        .iter()
        .map(|call| call.item.id.as_str())
        .collect();
    assert_eq!(items, ["t/graph", "t/graph", "t/a"]);
    assert_eq!(stage.run().spawn_count, 2);
}

#[test]
fn crash_reattaches_child_run() {
    let mut stage = asking(&[("c1", "t/graph"), ("c2", "t/a")]);
    for life in 2..5 {
        stage.crash();
        assert_eq!(stage.play(), Met::Waits);
        let again = stage.begun.last().unwrap();
        assert_eq!(
            (again.attached.as_ref(), again.attempt),
            (Some(&first()), life)
        );
        assert_eq!(again.key, stage.begun[0].key);
    }
    assert_eq!(
        stage.running.len(),
        1,
        "nobody knows what became of the other"
    );
    stage.end(0, &result(json!("late")));
    assert_eq!(stage.play(), Met::Model);
    let told = stage.call_results();
    assert_eq!(told[0], ("c1".into(), "late".into()));
    assert!(told[1].1.contains("unknown"), "{told:?}");
    assert_eq!(stage.run().spawn_count, 1);
    stage.assert_replay();
}

#[test]
fn suspended_child_suspends_thread_after_other_calls() {
    let mut stage = asking(&[("c1", "t/graph"), ("c2", "t/a"), ("c3", "t/a")]);
    let suspended = stage.running.remove(0);
    stage.machine.suspend_for(suspended.slot, first());
    assert_eq!(stage.play(), Met::Waits, "a call is in flight");
    stage.end(0, &result(json!("a")));
    assert_eq!(stage.play(), Met::Rests, "no call starts any more");
    let why = stage.run().suspension().unwrap();
    assert_eq!(
        (why.reason, why.child.clone()),
        (SuspendReason::Child, Some(first()))
    );
    assert_eq!(stage.begun.len(), 2);
    resume(&mut stage);
    assert_eq!(stage.play(), Met::Waits);
    let attached: Vec<_> = stage
        .running
        .iter()
        .map(|call| call.attached.clone())
        .collect();
    assert_eq!(
        attached,
        [Some(first()), None],
        "and the call that had to wait starts"
    );
    stage.end(0, &result(json!("g")));
    stage.end(0, &result(json!("b")));
    assert_eq!(stage.play(), Met::Model);
    let told: Vec<_> = stage
        .call_results()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(told, ["g", "a", "b"]);
    assert_eq!(stage.run().spawn_count, 1);
    stage.assert_replay();
}

#[test]
fn suspended_child_holds_back_further_calls() {
    let mut stage = Stage::new(terms(&directive(ALL, "")), |_| {});
    stage.play();
    let mut heard = said(&[("c1", "t/graph"), ("c2", "t/a")]).into_iter();
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits);
    let suspended = stage.running.remove(0);
    stage.machine.suspend_for(suspended.slot, first());
    stage.signal(heard.next().unwrap());
    assert_eq!(stage.play(), Met::Waits, "the model speaks");
    assert_eq!(stage.begun.len(), 1);
    stage.signal(heard.next().unwrap());
    stage.over();
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.run().suspension().unwrap().child, Some(first()));
    stage.assert_replay();
}

#[test]
fn a_cancel_of_a_suspended_child_ends_the_thread() {
    let mut stage = asking(&[("c1", "t/graph")]);
    stage.others(CancelRequested {
        cause: "me".to_owned(),
    });
    stage.running.clear();
    stage.machine.suspend_for(Slot::Part(0), first());
    assert_eq!(stage.play(), Met::Rests);
    assert_eq!(stage.run().status(), Status::Cancelled);
    stage.assert_replay();
}

/// A run that cannot be paid for is refused together with the plan that announces its call. The call gets that failure
/// without a start.
#[test]
fn refused_child_fails_its_call_only() {
    let refusal = CallOutcome {
        failure: Some(Failure::permanent(
            "hierarchical_budget_exceeded",
            "too dear",
        )),
        ..result(Value::Null)
    };
    // While the model streams, and after its message.
    for speaks in [true, false] {
        let mut stage = Stage::new(terms(&directive(ALL, "")), |_| {});
        stage.play();
        let mut heard = said(&[("c1", "t/graph"), ("c2", "t/a")]);
        let rest = heard.split_off(if speaks { 1 } else { 3 });
        for heard in heard {
            stage.signal(heard);
        }
        if !speaks {
            stage.over();
        }
        let Move::Call(events, call) = stage.machine.next(stage.now) else {
            panic!("{:?}", stage.names());
        };
        stage.log.extend(events);
        assert_eq!(call.item.id.as_str(), "t/graph");
        let events = stage.machine.conclude(stage.now, call.slot, &refusal);
        stage.log.extend(events);
        assert_eq!(stage.play(), Met::Waits);
        for heard in rest {
            stage.signal(heard);
        }
        if speaks {
            stage.over();
            assert_eq!(stage.play(), Met::Waits);
        }
        assert_eq!(stage.begun.len(), 1, "it is not offered again");
        stage.end(0, &result(json!("a")));
        assert_eq!(stage.play(), Met::Model);
        let told = stage.call_results();
        assert!(told[0].1.contains("too dear"), "{told:?}");
        assert_eq!(told[1].1, "a");
        assert_eq!(stage.run().spawn_count, 0);
        stage.assert_replay();
    }
}

#[test]
fn directive_call_separates_settings_from_inputs() {
    let permissions = "<execute><directive>t/*</directive></execute>";
    let terms = terms(&directive(permissions, ""));
    let contract = &terms.contract;
    let execute = contract
        .offered
        .iter()
        .find(|offered| offered.does == Does::Execute)
        .unwrap();
    assert_eq!(
        execute.tool.schema["properties"]["item_type"]["enum"],
        json!(["directive"])
    );
    assert!(execute.tool.schema["properties"]["limit_overrides"].is_object());
    let object = |value: Value| value.as_object().cloned().unwrap();
    let asked = object(json!({
        "item_type": "directive", "item_id": "t/below", "parameters": {"model": "T"},
        "async": true, "model": "fast", "limit_overrides": {"turns": 2},
    }));
    let Target::Execute { item, params, .. } = contract.target("rye_execute", &asked) else {
        panic!("{:?}", contract.target("rye_execute", &asked));
    };
    assert_eq!(item.to_string(), "directive:t/below");
    let order = ThreadOrder::of_action(item, params).unwrap();
    assert_eq!(json!(order.inputs), json!({"model": "T"}));
    assert!(order.is_async);
    assert_eq!(
        (order.model.as_deref(), order.limits.turns),
        (Some("fast"), Some(2))
    );
    let internal = object(json!({"item_type": "directive", "item_id": "t/internal/x"}));
    assert!(matches!(
        contract.target("rye_execute", &internal),
        Target::Refused { .. }
    ));
}

#[test]
fn model_is_offered_executable_items_only() {
    for (permissions, kinds) in [
        ("<execute><tool>t/a</tool></execute>", vec!["tool"]),
        (
            "<execute><directive>t/a</directive></execute>",
            vec!["directive"],
        ),
        ("<execute>*</execute>", vec!["tool", "directive"]),
        ("*", vec!["tool", "directive"]),
        ("<fetch><tool>*</tool></fetch>", vec![]),
    ] {
        let terms = terms(&directive(permissions, ""));
        let execute = terms
            .contract
            .offered
            .iter()
            .find(|offered| offered.does == Does::Execute);
        let told =
            execute.map(|offered| offered.tool.schema["properties"]["item_type"]["enum"].clone());
        let expected = (!kinds.is_empty()).then(|| json!(kinds));
        assert_eq!(told, expected, "{permissions}");
    }
}
