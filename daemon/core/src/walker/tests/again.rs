//! Further tries of items and branches, as `retry` of their node grants them.

use super::*;
use crate::model::event::{ItemCompleted, RetryScheduled};

fn each(keys: &str) -> String {
    format!(
        "
  start: each
  nodes:
    each:
      type: foreach
      over: [0, 1, 2]
      action: {{item_id: rye/core/echo, params: {{it: '${{item}}'}}}}
      collect: all
      {keys}
      next: end
    end: {{type: return}}
"
    )
}

const BRANCHES: &str = "
  start: checks
  nodes:
    checks:
      type: parallel
      branches: {lint: {item_id: rye/core/echo}, tests: {item_id: rye/core/echo}}
      on_item_error: collect
      retry: 1
      next: end
    end: {type: return, output: {red: '${state.red}'}}
";

/// Item 0 fails in its first `tries` tries.
fn first_fails(tries: u32) -> impl Fn(&Call) -> CallOutcome {
    move |call| CallOutcome {
        failure: (call.slot == Slot::Part(0) && call.attempt <= tries)
            .then(|| Failure::permanent("tool_failed", "not yet")),
        ..echo(call)
    }
}

/// Returns item, number of the coming try and error of each retry.
fn retries(stage: &Stage) -> Vec<(Option<u32>, u32, Option<&str>)> {
    let retries = stage.log.iter().filter_map(|(_, event)| {
        let Event::Graph(GraphEvent::RetryScheduled(RetryScheduled {
            item,
            attempt,
            error,
            ..
        })) = event
        else {
            return None;
        };
        let error = error.as_ref().map(|error| error.message.as_str());
        Some((*item, *attempt, error))
    });
    retries.collect()
}

/// Returns the items that ended, with the code of their failure.
pub(super) fn ends(stage: &Stage) -> Vec<(u32, Option<&str>)> {
    let ends = stage.log.iter().filter_map(|(_, event)| {
        let Event::Graph(GraphEvent::ItemCompleted(ItemCompleted { item, error, .. })) = event
        else {
            return None;
        };
        Some((*item, error.as_ref().map(|error| error.code.as_str())))
    });
    ends.collect()
}

#[test]
fn items_use_the_place_of_one_that_pauses() {
    let keys = "parallel: true\n      max_concurrency: 1\n      retry: {max: 2, delay: 30}";
    let mut stage = Stage::of(&each(keys), run(json!({}), None));
    assert_eq!(stage.play_with(first_fails(1)), Rest::Ended);
    assert_eq!(stage.items(), [0, 1, 2, 0]);
    assert_eq!(stage.most_at_once, 1);
    assert_eq!(retries(&stage), [(Some(0), 2, Some("not yet"))]);
    assert_eq!(stage.calls[0].key, stage.calls[3].key);
    assert!(stage.clock >= 30_000, "{}", stage.clock);
    assert_eq!(stage.run().status(), Status::Completed);
    assert_eq!(stage.state()["all"][0], json!({"it": 0}));
    assert_eq!(stage.path(), "each:foreach end:return");
    assert!(stage.state().get("_retries").is_none());
}

#[test]
fn sequential_items_keep_their_order_over_retries() {
    let mut stage = Stage::of(&each("retry: {max: 2, delay: 30}"), run(json!({}), None));
    assert_eq!(stage.play_with(first_fails(2)), Rest::Ended);
    assert_eq!(stage.items(), [0, 0, 0, 1, 2]);
}

#[test]
fn collected_items_are_retried_each_by_itself() {
    let keys = "on_item_error: collect\n      retry: 1";
    let mut stage = Stage::of(&each(keys), run(json!({}), None));
    let two_fail = |call: &Call| CallOutcome {
        failure: (call.slot != Slot::Part(1)).then(|| Failure::permanent("tool_failed", "no")),
        ..echo(call)
    };
    assert_eq!(stage.play_with(two_fail), Rest::Ended);
    assert_eq!(stage.items(), [0, 0, 1, 2, 2]);
    let failed = Some("tool_failed");
    assert_eq!(ends(&stage), [(0, failed), (1, None), (2, failed)]);
    assert_eq!(stage.run().status(), Status::CompletedWithErrors);
    assert_eq!(stage.run().suppressed().unwrap().len(), 2);

    let mut stage = Stage::of(BRANCHES, run(json!({}), None));
    assert_eq!(stage.play_with(first_fails(1)), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Completed);
    assert_eq!(stage.items(), [0, 1, 0]);
}

#[test]
fn pause_of_an_item_continues_after_a_crash() {
    let keys = "retry: {max: 1, delay: 30}";
    let mut stage = Stage::of(&each(keys), run(json!({}), None));
    stage.settle();
    stage.end_one(first_fails(1));
    let due = 30_001;
    assert_eq!(stage.settle(), Rest::Waits(Some(up(due))));
    stage.clock += 20_000;
    stage.crash();
    assert_eq!(stage.settle(), Rest::Waits(Some(up(due))), "the rest of it");
    // Whatever the wall clock, no pause gets longer.
    stage.wall_is_ahead = -100_000;
    stage.crash();
    assert_eq!(
        stage.settle(),
        Rest::Waits(Some(up(stage.clock + 30_000))),
        "not more than all of it"
    );
    stage.wall_is_ahead = 0;
    stage.crash();
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0, 0, 1, 2]);
    assert_eq!(stage.run().status(), Status::Completed);
}

#[test]
fn cancel_and_suspension_end_the_pause_of_an_item() {
    let keys = "retry: {max: 1, delay: 30}";
    let paused = || {
        let mut stage = Stage::of(&each(keys), run(json!({}), None));
        stage.settle();
        stage.end_one(first_fails(1));
        stage.settle();
        stage
    };
    let mut stage = paused();
    stage.cancel();
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(stage.run().status(), Status::Cancelled);

    let mut stage = paused();
    stage.walker.hold(Suspension::new(SuspendReason::User));
    assert_eq!(stage.settle(), Rest::Suspended);
    stage.resume(None);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0, 0, 1, 2]);
}

#[test]
fn items_that_pause_end_with_their_failure_when_the_node_fails() {
    let keys = "parallel: true\n      retry: {max: 1, delay: 30}";
    let mut stage = Stage::of(&each(keys), run(json!({}), None));
    let one_is_refused = |call: &Call| match call.slot {
        Slot::Part(1) => CallOutcome::never_started(Failure::permanent("denied", "no")),
        Slot::Main | Slot::Part(_) | Slot::Hook(_) => first_fails(9)(call),
    };
    assert_eq!(stage.play_with(one_is_refused), Rest::Ended);
    let denied = (1, Some("denied"));
    assert_eq!(ends(&stage), [denied, (2, None), (0, Some("tool_failed"))]);
    assert_eq!(stage.clock, 3, "no pause is waited for");
    assert_eq!(
        stage.failure().message,
        "each[0] failed: not yet (tool_failed); each[1] failed: no (denied)"
    );
}

#[test]
fn item_that_may_have_executed_once_is_not_retried() {
    let keys = "on_item_error: collect\n      effect: at_most_once\n      retry: 3";
    let mut stage = Stage::of(&each(keys), run(json!({}), None));
    assert_eq!(stage.play_with(first_fails(1)), Rest::Ended);
    assert_eq!(stage.items(), [0, 1, 2]);
}

#[test]
fn continuation_grants_items_their_retries_again() {
    let mut first = Stage::of(&each("retry: 1"), run(json!({}), None));
    assert_eq!(first.play_with(first_fails(2)), Rest::Ended);
    assert_eq!(first.items(), [0, 0]);
    let progress = first.run().inherited().unwrap();
    let mut second = Stage::of(&each("retry: 1"), seeded("each", progress, Extent::Rest));
    assert_eq!(second.play_with(first_fails(3)), Rest::Ended);
    assert_eq!(second.items(), [0, 0, 1, 2]);
    assert_eq!(second.calls[0].attempt, 3, "tries are counted on");
}
