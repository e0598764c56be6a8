//! Attempts that child runs carry out.

use super::*;

const ACTION: &str = "
  start: a
  nodes:
    a: {action: {item_id: t/below, params: {x: 1}}, effect: at_most_once, next: b}
    b: {assign: {k: 1}}
";
const ITEMS: &str = "
  start: a
  nodes:
    a: {type: foreach, over: [0, 1, 2], parallel: true, max_concurrency: 2, action: {item_id: t/below}, collect: all}
";
const HOOK: &str = "
  start: a
  nodes:
    a: {assign: {k: 1}}
  hooks: [{event: after_step, action: {item_id: t/below}}]
";

fn below(n: u32) -> RunId {
    RunId::new(format!("t-below-{n}-a").as_str()).unwrap()
}

/// Announces the next call as one that the run `child` carries out.
fn launched(stage: &mut Stage, child: u32) -> Call {
    let at = stage.tick();
    let Move::Call(events, call) = stage.walker.next(at) else {
        unreachable!("no call")
    };
    stage.note(events);
    let events = stage
        .walker
        .start(at, &call, Some(below(child)), InputHashes::default());
    stage.note(events);
    *call
}

#[test]
fn crash_reattaches_child_run_silently() {
    for config in [ACTION, ITEMS, HOOK] {
        let mut stage = Stage::of(config, run(json!({}), None));
        let first = launched(&mut stage, 1);
        stage.crash();
        let before = stage.log.len();
        let at = stage.tick();
        let Move::Call(events, call) = stage.walker.next(at) else {
            unreachable!("no call")
        };
        assert_eq!(events, []);
        assert_eq!(
            *call,
            Call {
                attached: Some(below(1)),
                ..first
            }
        );
        assert_eq!(
            stage.walker.start(at, &call, None, InputHashes::default()),
            []
        );
        assert_eq!(stage.log.len(), before);
        let in_flight: Vec<_> = stage.run().attempts().collect();
        assert_eq!(in_flight.len(), 1);
        assert_eq!(in_flight[0].child, Some(below(1)));
        stage.in_flight.push_back(*call);
        assert_eq!(stage.play(), Rest::Ended);
        assert_eq!(stage.run().status(), Status::Completed);
    }
}

#[test]
fn a_run_rests_while_its_child_run_is_suspended() {
    for config in [ACTION, HOOK] {
        let mut stage = Stage::of(config, run(json!({}), None));
        let call = launched(&mut stage, 1);
        stage.walker.suspend_for(call.slot, below(9));
        assert_eq!(stage.settle(), Rest::Suspended);
        assert_eq!(
            (
                stage.why_suspended().reason,
                stage.why_suspended().child.clone()
            ),
            (SuspendReason::Child, Some(below(9)))
        );
        stage.resume(None);
        let again = stage.call();
        assert_eq!((again.attached, again.attempt), (Some(below(1)), 1));
    }
}

#[test]
fn a_suspended_item_keeps_its_place_and_the_others_continue() {
    let mut stage = Stage::of(ITEMS, run(json!({}), None));
    let call = launched(&mut stage, 1);
    stage.walker.suspend_for(call.slot, below(1));
    stage.settle();
    assert_eq!(stage.items(), [1]);
    stage.end_one(echo);
    stage.settle();
    assert_eq!(stage.items(), [1, 2]);
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Suspended);
    assert_eq!(stage.why_suspended().child, Some(below(1)));
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [1, 2, 0]);
}

#[test]
fn failed_item_stops_suspended_one() {
    let mut stage = Stage::of(ITEMS, run(json!({}), None));
    let call = launched(&mut stage, 1);
    stage.settle();
    stage.walker.suspend_for(call.slot, below(1));
    stage.end_one(|_| CallOutcome {
        failure: Some(Failure::permanent("tool_failed", "no")),
        ..answered(Value::Null)
    });
    assert_eq!(stage.settle(), Rest::Waits(None));
    let attached = stage.in_flight.back().expect("it is attached to again");
    assert_eq!(attached.attached, Some(below(1)));
    assert_eq!(stage.stop_useless(), [call.slot]);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.items(), [1, 0], "2 never starts");
    assert_eq!(stage.run().status(), Status::Error);
    assert_eq!(stage.failure().message, "a[1] failed: no (tool_failed)");
}
