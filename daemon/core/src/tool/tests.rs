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

/// A run whose call, of that effect, is in flight. Its program repeats its calls if `replays`.
fn calling(effect: Effect, replays: bool) -> ToolMachine {
    let mut machine = machine();
    let Move::Call(_, mut call) = machine.next(tick(1)) else {
        panic!("a fresh run makes its call");
    };
    (call.effect, call.replays) = (effect, replays);
    machine.start(tick(1), &call, None, InputHashes::default());
    machine
}

#[test]
fn program_that_repeats_its_calls_is_started_again_after_a_crash_and_a_suspension() {
    let before = calling(Effect::Idempotent, true);
    let mut recovered = ToolMachine::new(Arc::clone(before.run()));
    let Move::Call(_, mut call) = recovered.next(tick(9)) else {
        panic!("{:?}", recovered.run().work);
    };
    assert_eq!(call.attempt, 2);
    call.replays = true;
    recovered.start(tick(9), &call, None, InputHashes::default());
    let child = RunId::new("t-2-a").unwrap();
    recovered.suspend_for(call.slot, child.clone());
    let Move::Suspended(_) = recovered.next(tick(10)) else {
        panic!("{:?}", recovered.run().life);
    };
    let why = recovered.run().suspension().unwrap();
    assert_eq!(
        (why.reason, &why.child),
        (SuspendReason::Child, &Some(child))
    );
    let resumed = RunEvent::resumed(Epoch(1));
    recovered.observe(tick(11).at, &resumed.into()).unwrap();
    let mut resumed = ToolMachine::new(Arc::clone(recovered.run()));
    let Move::Call(_, call) = resumed.next(tick(12)) else {
        panic!("{:?}", resumed.run().life);
    };
    assert_eq!(call.attempt, 3);
}

#[test]
fn at_most_once_call_of_unknown_outcome_stays_on_record() {
    let unknown = CallOutcome {
        failure: Some(Failure::permanent("timeout", "too long")),
        certainty: Certainty::Unknown,
        ..CallOutcome::known(Value::Null)
    };
    for (effect, is_unknown) in [(Effect::AtMostOnce, true), (Effect::Idempotent, false)] {
        let cut_off = calling(effect, false);
        let mut interrupted = ToolMachine::new(Arc::clone(cut_off.run()));
        assert!(matches!(interrupted.next(tick(9)), Move::End(_)));
        let mut overdue = cut_off;
        overdue.conclude(tick(9), Slot::Main, &unknown);
        for ended in [interrupted, overdue] {
            assert_eq!(ended.run().status(), Status::Error);
            assert_eq!(ended.run().is_call_unknown(), is_unknown, "{effect:?}");
        }
    }
    let mut failed = calling(Effect::AtMostOnce, false);
    failed.conclude(
        tick(9),
        Slot::Main,
        &outcome(Some(Failure::permanent("no", "no"))),
    );
    assert!(!failed.run().is_call_unknown(), "it reported its outcome");
}
