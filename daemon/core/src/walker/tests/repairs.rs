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
