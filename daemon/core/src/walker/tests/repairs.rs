//! Runs that repeat the failures of a run that completed with errors, and nothing else.

use super::*;
use crate::model::Chunks;

const SCRAPE: &str = "
  start: list
  on_error: continue
  nodes:
    list: {action: {item_id: rye/core/echo}, assign: {pages: '${inputs.pages}'}, next: each}
    each:
      type: foreach
      over: '${state.pages}'
      action: {item_id: rye/core/echo, params: {it: '${item}'}}
      on_item_error: collect
      collect: all
      next: mail
    mail: {action: {item_id: rye/core/echo, params: {to: ada}}, assign: {sent: '${result.to}'}, next: note}
    note: {action: {item_id: rye/core/echo, params: {done: yes}}, next: end}
    end: {type: return, output: {all: '${state.all}', sent: '${state.sent}'}}
";

/// The run that continues `first`.
fn repairing(first: &Run) -> Run {
    let (state, failed, then) = first.graph().unwrap().repairs().expect("something failed");
    let start_from = StartFrom {
        node: failed.node.to_string(),
        left: Some(failed.left.clone().reopened()),
        state,
        then,
        extent: Extent::Repairs,
    };
    begun(Spec {
        task: beginning_at(start_from),
        ..spec(Value::Object(first.spec.inputs.clone()), None)
    })
}

/// Item 1 of the pages, and the mail, fail.
fn outage(call: &Call) -> CallOutcome {
    let is_down = matches!(call.slot, Slot::Part(1)) || call.node == "mail";
    CallOutcome {
        failure: is_down.then(|| Failure::permanent("tool_failed", "down")),
        ..echo(call)
    }
}

fn pages() -> Value {
    json!({"pages": ["a", "b", "c"]})
}

fn failed() -> Stage {
    let mut first = Stage::of(SCRAPE, run(pages(), None));
    assert_eq!(first.play_with(outage), Rest::Ended);
    assert_eq!(
        first.path(),
        "list:ok each:foreach mail:error note:ok end:return"
    );
    assert_eq!(first.run().status(), Status::CompletedWithErrors);
    assert!(first.run().is_repairable());
    first
}

fn suppressed(run: &Run) -> Vec<(u32, String)> {
    let errors = run.suppressed().into_iter().flat_map(Chunks::iter);
    errors
        .map(|error| (error.step, error.node.clone()))
        .collect()
}

#[test]
fn repair_repeats_failed_items_only() {
    let first = failed();
    let mut second = Stage::of(SCRAPE, repairing(first.run()));
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(second.path(), "each:foreach mail:ok end:return");
    assert_eq!(second.items(), [1], "of the items only the one that failed");
    assert_eq!(second.run().status(), Status::Completed);
    assert_eq!(suppressed(second.run()), []);
    assert!(!second.run().is_repairable());
    let output = &second.run().result()["output"];
    let all = json!([{"it": "a"}, {"it": "b"}, {"it": "c"}]);
    assert_eq!(output, &json!({"all": all, "sent": "ada"}));
    // The tool sees that it is the same call.
    let key = |stage: &Stage, slot: Slot, node: &str| {
        let call = stage
            .calls
            .iter()
            .find(|call| call.slot == slot && call.node == node);
        call.unwrap().key.clone()
    };
    for (slot, node) in [(Slot::Part(1), "each"), (Slot::Main, "mail")] {
        assert_eq!(key(&first, slot, node), key(&second, slot, node), "{node}");
    }
    assert_eq!(second.calls[0].step, 6, "steps are counted on");
}

#[test]
fn repair_can_be_repeated() {
    let first = failed();
    let mut second = Stage::of(SCRAPE, repairing(first.run()));
    let mail_is_up = |call: &Call| {
        if call.node == "mail" {
            echo(call)
        } else {
            outage(call)
        }
    };
    assert_eq!(second.play_with(mail_is_up), Rest::Ended);
    assert_eq!(second.path(), "each:foreach mail:ok end:return");
    assert_eq!(second.run().status(), Status::CompletedWithErrors);
    assert_eq!(suppressed(second.run()), [(6, "each".to_owned())]);
    let mut third = Stage::of(SCRAPE, repairing(second.run()));
    assert_eq!(third.play(), Rest::Ended);
    assert_eq!(third.path(), "each:foreach end:return");
    assert_eq!(
        (third.items(), third.run().status()),
        (vec![1], Status::Completed)
    );
}

#[test]
fn a_repair_survives_a_crash() {
    let first = failed();
    let mut second = Stage::of(SCRAPE, repairing(first.run()));
    second.call();
    second.crash();
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(second.path(), "each:foreach mail:ok end:return");
    assert_eq!(second.run().status(), Status::Completed);
}

#[test]
fn repair_refuses_items_of_other_list() {
    let first = failed();
    let mut again = repairing(first.run());
    let mut spec = Spec::clone(&again.spec);
    let mut start = spec.start_from().unwrap().clone();
    start.state.vars.set("pages", json!(["a", "b"]));
    spec.task = beginning_at(start);
    again = begun(spec);
    let mut second = Stage::of(SCRAPE, again);
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(second.items(), [0; 0]);
    assert_eq!(second.path(), "each:error mail:ok end:return");
}

#[test]
fn successful_items_need_no_repair() {
    let mut first = Stage::of(SCRAPE, run(pages(), None));
    first.play();
    assert_eq!(first.run().status(), Status::Completed);
    assert!(first.run().graph().unwrap().unrepaired.is_empty());
}

const CHECKS: &str = "
  start: checks
  nodes:
    checks:
      type: parallel
      branches: {lint: {item_id: rye/core/echo}, tests: {item_id: rye/core/echo}}
      on_item_error: collect
      assign: {red: '${result.failed}'}
      next: note
    note: {action: {item_id: rye/core/echo, params: {n: '${state.red}'}}, next: judge}
    judge: {next: [{to: reject, when: {path: state.red, op: gt, value: 0}}, {to: publish}]}
    reject: {type: fail, message: '${state.red} failed'}
    publish: {action: {item_id: rye/core/echo}, effect: at_most_once, next: end}
    end: {type: return}
";

/// The run that walks on from the first failure of `first`.
fn walking_on(first: &Run) -> Run {
    let (state, failed) = first
        .graph()
        .unwrap()
        .from_failed()
        .expect("something failed");
    let work = (state, failed.left.clone().reopened());
    seeded(&failed.node, work, Extent::FromFailed)
}

/// The branch `tests` fails.
fn red(call: &Call) -> CallOutcome {
    CallOutcome {
        failure: (call.slot == Slot::Part(1))
            .then(|| Failure::permanent("tool_failed", "2 of 9 failed")),
        ..echo(call)
    }
}

#[test]
fn run_that_ended_at_a_fail_node_walks_on_from_the_failed_branch() {
    let mut first = Stage::of(CHECKS, run(json!({}), None));
    assert_eq!(first.play_with(red), Rest::Ended);
    assert_eq!(
        first.path(),
        "checks:parallel note:ok judge:gate reject:error"
    );
    assert!(first.run().failed_after_failures());
    let mut second = Stage::of(CHECKS, walking_on(first.run()));
    second.call();
    second.crash();
    assert_eq!(second.play(), Rest::Ended);
    assert_eq!(
        second.path(),
        "checks:parallel note:ok judge:gate publish:ok end:return"
    );
    assert!(second.items().iter().all(|item| *item == 1), "lint is done");
    assert_eq!(second.run().status(), Status::Completed);
    assert_eq!(suppressed(second.run()), []);
    let keys = |stage: &Stage, node: &str| {
        let of_node = stage.calls.iter().filter(|call| call.node == node);
        of_node.map(|call| call.key.clone()).collect::<Vec<_>>()
    };
    let (before, after) = (keys(&first, "checks"), keys(&second, "checks"));
    assert_eq!(before.last(), after.first(), "the same call");
    assert_ne!(keys(&first, "note"), keys(&second, "note"), "another visit");
}

#[test]
fn failure_on_the_way_of_a_walk_from_a_failure_counts_anew() {
    let mut first = Stage::of(CHECKS, run(json!({}), None));
    first.play_with(red);
    let mut second = Stage::of(CHECKS, walking_on(first.run()));
    assert_eq!(second.play_with(red), Rest::Ended);
    assert_eq!(second.failure().message, "1 failed");
    assert_eq!(suppressed(second.run()), [(5, "checks".to_owned())]);
    let mut third = Stage::of(CHECKS, walking_on(second.run()));
    assert_eq!(third.play(), Rest::Ended);
    assert_eq!(third.items(), [1]);
}

#[test]
fn at_most_once_node_after_a_failure_bars_the_walk_from_there() {
    let config = CHECKS.replace("note: {action", "note: {effect: at_most_once, action");
    let mut first = Stage::of(&config, run(json!({}), None));
    first.play_with(red);
    assert!(!first.run().failed_after_failures());
    let failed = first.run().first_failed().unwrap();
    assert_eq!(failed.once_since, ["note".into()]);
}
