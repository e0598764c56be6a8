//! What a state may take of the memory that all runs share.

use super::*;

/// A node that makes a state of a hundred thousand bytes and more, and one to go to if that fails.
const GROWS: &str = "
  start: a
  nodes:
    a: {assign: {x: '${inputs.text}${inputs.text}'}, next: end, on_error: full}
    full: {type: return, output: {why: '${state._last_error.error}'}}
    end: {type: return, output: {why: none}}
";

fn stage(config: &str, inputs: Value, memory: &Arc<Memory>) -> Stage {
    let mut stage = Stage::of(config, run(inputs, None));
    stage.walker = stage.walker.clone().within(Arc::clone(memory));
    stage
}

fn why(stage: &mut Stage) -> Value {
    assert_eq!(stage.play(), Rest::Ended);
    match stage.run().outcome() {
        Some(Outcome::Completed { output } | Outcome::CompletedWithErrors { output, .. }) => {
            output["why"].clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_state_that_does_not_fit_beside_others_fails_its_node() {
    let inputs = json!({"text": "x".repeat(60_000)});
    let memory = Arc::new(Memory::new(300_000));
    assert_eq!(why(&mut stage(GROWS, inputs.clone(), &memory)), "none");
    memory.count(0, 250_000);
    let full = why(&mut stage(GROWS, inputs, &memory));
    assert!(full.as_str().unwrap().contains("memory"), "{full}");
    assert_eq!(memory.taken(), 250_000);
}

#[test]
fn what_was_taken_is_given_back_when_the_record_says_it() {
    let inputs = json!({"text": "x".repeat(60_000)});
    let memory = Arc::new(Memory::default());
    let mut stage = stage(GROWS, inputs, &memory);
    assert_eq!(stage.play(), Rest::Ended);
    assert!(memory.taken() > 100_000, "{}", memory.taken());
    let record = Arc::clone(stage.walker.run());
    stage.walker.rebase(record);
    assert_eq!(memory.taken(), 0);
}

#[test]
fn no_item_starts_while_there_is_no_memory() {
    let each = "
  start: each
  nodes:
    each:
      type: foreach
      over: [1, 2, 3]
      action: {item_id: rye/core/echo, params: {n: '${item}'}}
      next: end
      on_error: full
    full: {type: return, output: {why: '${state._last_error.error}'}}
    end: {type: return, output: {why: none}}
";
    let memory = Arc::new(Memory::new(1000));
    assert_eq!(why(&mut stage(each, json!({}), &memory)), "none");
    memory.count(0, 1000);
    let mut full = stage(each, json!({}), &memory);
    let told = why(&mut full);
    assert!(told.as_str().unwrap().contains("memory"), "{told}");
    let started = full
        .names()
        .into_iter()
        .filter(|name| *name == "item_started");
    assert_eq!(started.count(), 0);
}

#[test]
fn a_move_ends_when_it_has_assigned_much() {
    let large = "
  start: a
  nodes:
    a: {assign: {x: '${inputs.text}'}, next: b}
    b: {assign: {y: 1}, next: a}
";
    let steps = |bytes: usize| {
        let inputs = json!({"text": "x".repeat(bytes)});
        let mut stage = Stage::of(large, run(inputs, Some(1000)));
        let Move::Note(events) = stage.walker.next(tick(0)) else {
            panic!("pure steps are noted");
        };
        let done = |event: &&Event| event.name() == "step_completed";
        events.iter().filter(done).count()
    };
    assert!(steps(10) > 30);
    assert_eq!(steps(600_000), 3);
    assert_eq!(steps(2_000_000), 1);
}
