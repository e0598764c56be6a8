//! Items and branches that are stopped because another one failed.

use super::again::ends;
use super::*;

const CHECKS: &str = "
  start: checks
  nodes:
    checks:
      type: parallel
      branches:
        lint: {item_id: rye/core/echo, params: {fail: untidy}}
        types: {item_id: rye/core/echo}
        publish: {item_id: rye/core/echo, params: {once: true}}
      MODE
      next: end
    end: {type: return}
";

/// A run of which the first branch has failed.
fn failed(mode: &str) -> Stage {
    let mut stage = Stage::of(&CHECKS.replace("MODE", mode), run(json!({}), None));
    stage.settle();
    stage.end_one(echo);
    stage.settle();
    stage
}

#[test]
fn failed_branch_stops_its_siblings_unless_they_are_at_most_once() {
    let mut stage = failed("on_item_error: fail");
    assert_eq!(stage.stop_useless(), [Slot::Part(1)]);
    assert_eq!(stage.stop_useless(), []);
    assert_eq!(stage.settle(), Rest::Waits(None), "publish ends by itself");
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Ended);
    let stopped = (1, Some("sibling_failed"));
    assert_eq!(ends(&stage), [(0, Some("tool_failed")), stopped, (2, None)]);
    let failure = stage.failure();
    assert_eq!(failure.message, "checks[lint] failed: untidy (tool_failed)");
    stage.check_record();
}

#[test]
fn collecting_node_stops_no_branch() {
    let mut stage = failed("on_item_error: collect");
    assert_eq!(stage.stop_useless(), []);
    assert_eq!(stage.play(), Rest::Ended);
    assert_eq!(stage.items(), [0, 1, 2]);
}

#[test]
fn stopped_branches_are_repeated_by_a_continuation() {
    let mut first = failed("on_item_error: fail");
    first.stop_useless();
    assert_eq!(first.play(), Rest::Ended);
    let progress = first.run().inherited().unwrap();
    let config = CHECKS.replace("fail: untidy", "x: 1").replace("MODE", "");
    let mut second = Stage::of(&config, seeded("checks", progress, Extent::Rest));
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(second.items(), [0, 1], "publish is done");
    assert_eq!(second.run().status(), Status::Completed);
}

#[test]
fn sibling_that_succeeds_before_it_is_stopped_counts() {
    let mut stage = failed("");
    stage.end_one(echo);
    assert_eq!(stage.stop_useless(), []);
    stage.end_one(echo);
    assert_eq!(stage.settle(), Rest::Ended);
    assert_eq!(
        ends(&stage),
        [(0, Some("tool_failed")), (1, None), (2, None)]
    );
}

#[test]
fn items_of_renamed_branches_are_not_mixed_up() {
    let mut first = failed("");
    first.stop_useless();
    first.play();
    let progress = first.run().inherited().unwrap();
    let config = CHECKS.replace("fail: untidy", "x: 1").replace("MODE", "");
    let config = config.replace("publish:", "deploy:");
    let mut second = Stage::of(&config, seeded("checks", progress, Extent::Rest));
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(second.items(), [0, 1, 2]);
}
