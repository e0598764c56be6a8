//! The one call of a tool run, in every order of its events.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::id::{Epoch, ItemId, ItemRef};
use crate::machine::Observe as _;
use crate::model::ToolEvent;
use crate::model::event::{CancelRequested, ToolCompleted};
use crate::model::{Budget, Object, Outcome, Spec, Status, SuspendReason, Task};

fn tick(ms: i64) -> Tick {
    Tick {
        at: Timestamp::from_ms(1_700_000_000_000 + ms),
        up: Uptime::default().plus(Duration::from_millis(u64::try_from(ms).unwrap())),
    }
}

fn machine() -> ToolMachine {
    let id = RunId::new("t-1-a").unwrap();
    let spec = Spec {
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        inputs: Object::from_iter([("a".to_owned(), json!(1))]),
        ..Spec::new(
            Task::Tool,
            ItemRef::tool(ItemId::new("t/echo").unwrap()),
            id.clone(),
            Budget::open(id.clone()),
        )
    };
    let mut run = Run::create(id, tick(0).at, Arc::new(spec));
    let started = RunEvent::started(Epoch(1)).into();
    run.apply(tick(0).at, &started).unwrap();
    ToolMachine::new(Arc::new(run))
}

fn started(machine: &mut ToolMachine) -> Call {
    let Move::Call(events, call) = machine.next(tick(1)) else {
        panic!("a fresh run makes its call");
    };
    assert_eq!(events, []);
    let events = machine.start(tick(1), &call, None, InputHashes::default());
    assert_eq!(events[0].name(), "step_started");
    *call
}

fn outcome(failure: Option<Failure>) -> CallOutcome {
    CallOutcome {
        failure,
        ..CallOutcome::known(json!({"b": 2}))
    }
}

#[test]
fn the_call_is_made_once_and_its_outcome_ends_the_run() {
    for (failure, status) in [
        (None, Status::Completed),
        (Some(Failure::permanent("tool_failed", "no")), Status::Error),
    ] {
        let mut machine = machine();
        let call = started(&mut machine);
        assert_eq!(json!(call.params), json!({"a": 1}));
        assert_eq!(machine.next(tick(2)), Move::Wait(Vec::new(), None));
        let events = machine.conclude(tick(41), call.slot, &outcome(failure));
        let Event::Tool(ToolEvent::ToolCompleted(ToolCompleted { elapsed_ms, .. })) = events[0]
        else {
            panic!("{events:?}");
        };
        assert_eq!(elapsed_ms, 40);
        assert_eq!(machine.next(tick(42)), Move::End(Vec::new()));
        assert_eq!(machine.run().status(), status);
        assert_eq!(machine.run().output().unwrap()["b"], 2);
    }
}

#[test]
fn interrupted_call_is_not_repeated() {
    let mut before = machine();
    started(&mut before);
    let mut recovered = ToolMachine::new(Arc::clone(before.run()));
    let Move::End(events) = recovered.next(tick(9)) else {
        panic!("it ends");
    };
    assert_eq!(events.len(), 1);
    let Some(Outcome::Error { error }) = recovered.run().outcome() else {
        panic!("{:?}", recovered.run().life);
    };
    assert_eq!(error.code, "interrupted");
}

#[test]
fn a_cancel_ends_the_run_before_its_call_and_when_its_call_was_stopped() {
    let cancel = || CancelRequested { cause: "u".into() }.into();
    let mut early = machine();
    early.observe(tick(1).at, &cancel()).unwrap();
    assert!(matches!(early.next(tick(2)), Move::End(_)));
    assert_eq!(early.run().status(), Status::Cancelled);

    let mut late = machine();
    let call = started(&mut late);
    late.observe(tick(2).at, &cancel()).unwrap();
    assert_eq!(late.next(tick(3)), Move::Wait(Vec::new(), None));
    late.abandon(call.slot);
    assert!(matches!(late.next(tick(4)), Move::End(_)));
    assert_eq!(late.run().status(), Status::Cancelled);
}

#[test]
fn a_run_is_suspended_before_its_call_and_never_during_it() {
    let mut fresh = machine();
    fresh.hold(Suspension::new(SuspendReason::User));
    assert!(matches!(fresh.next(tick(1)), Move::Suspended(_)));
    let resumed = RunEvent::resumed(Epoch(1));
    fresh.observe(tick(2).at, &resumed.into()).unwrap();
    started(&mut fresh);

    let mut calling = machine();
    let call = started(&mut calling);
    calling.hold(Suspension::new(SuspendReason::User));
    assert_eq!(calling.next(tick(2)), Move::Wait(Vec::new(), None));
    calling.conclude(tick(3), call.slot, &outcome(None));
    assert_eq!(calling.run().status(), Status::Completed);
}
