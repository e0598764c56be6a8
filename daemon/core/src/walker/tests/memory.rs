//! Limits of a state in the memory that all runs share.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A node that makes a state of more than 100,000 bytes, and a node to go to if that fails.
const GROWS: &str = "
  start: a
  nodes:
    a: {assign: {x: '${inputs.text}${inputs.text}'}, next: end, on_error: full}
    full: {type: return, output: {why: '${state._last_error.error}'}}
    end: {type: return, output: {why: none}}
";

fn stage(config: &str, inputs: Value, memory: &Arc<Memory>) -> Stage {
    let mut stage = Stage::of(config, run(inputs, None));
    stage.walker = stage.walker.clone().with_memory(Arc::clone(memory));
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
fn state_beyond_memory_fails_node() {
    let inputs = json!({"text": "x".repeat(60_000)});
    let memory = Arc::new(Memory::new(300_000));
    assert_eq!(why(&mut stage(GROWS, inputs.clone(), &memory)), "none");
    memory.count(0, 250_000);
    let full = why(&mut stage(GROWS, inputs, &memory));
    assert!(full.as_str().unwrap().contains("memory"), "{full}");
    assert_eq!(memory.taken(), 250_000);
}

#[test]
fn charge_is_released_when_recorded() {
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
    let memory = Arc::new(Memory::new(10_000));
    assert_eq!(why(&mut stage(each, json!({}), &memory)), "none");
    memory.count(0, 10_000);
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
fn move_ends_after_large_assignments() {
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

/// A clock that advances by a fixed number of nanoseconds at each reading.
#[derive(Debug)]
struct SteppingClock {
    costs: u64,
    done: AtomicU64,
}

impl SteppingClock {
    fn costs(costs: u64) -> Arc<Self> {
        let done = AtomicU64::new(0);
        Arc::new(Self { costs, done })
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn up(&self) -> Uptime {
        Uptime::from_ns(self.done.fetch_add(self.costs, Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        0
    }
}

#[test]
fn slow_pure_steps_are_committed_early() {
    let gates = "max_steps: 500\n  start: a\n  nodes:\n    a: {type: gate, next: b}\n    b: {type: gate, next: a}\n";
    let handed_out = |mut walker: Walker| {
        let now = Tick {
            at: Timestamp::default(),
            up: Uptime::default(),
        };
        match walker.next(now) {
            Move::Note(events) => events.len(),
            other @ (Move::Call(..)
            | Move::Query(..)
            | Move::Wait(..)
            | Move::Suspended(_)
            | Move::End(_)) => panic!("{other:?}"),
        }
    };
    let walker = Stage::of(&format!("\n  {gates}"), run(json!({}), None)).walker;
    assert_eq!(handed_out(walker.clone()), NOTE_STEPS);
    let few = handed_out(walker.paced(SteppingClock::costs(1_000_000)));
    assert!((1..8).contains(&few), "{few}");
}

#[test]
fn items_of_large_state_are_light_after_a_fast_one() {
    let each = "\n  start: each\n  nodes:\n    each: {type: foreach, over: '${inputs.items}', \
                action: {item_id: rye/core/echo, params: {n: '${item}'}}, next: end}\n    end: {type: return}\n";
    let now = Tick {
        at: Timestamp::default(),
        up: Uptime::default(),
    };
    let begun = |clock: Arc<SteppingClock>| {
        let inputs = json!({"items": ["x", "y"], "text": "x".repeat(2_000_000)});
        let mut walker = Stage::of(each, run(inputs, None)).walker.paced(clock);
        assert!(walker.is_heavy(None), "nothing is known yet");
        loop {
            if let Move::Call(_, call) = walker.next(now) {
                return (walker, call);
            }
        }
    };
    assert!(begun(SteppingClock::costs(1_000_000)).0.is_heavy(None));
    let (mut walker, call) = begun(SteppingClock::costs(0));
    assert!(!walker.is_heavy(None));
    let _announced = walker.start(now, &call, None, InputHashes::default());
    assert!(!walker.is_heavy(Some(&came_to(1))));
    assert!(walker.is_heavy(Some(&came_to(2_000_000))));
    let mut gives_up = walker.clone();
    let failed = CallOutcome {
        failure: Some(Failure::permanent("broken", "it is broken")),
        ..came_to(1)
    };
    let _ended = gives_up.conclude(now, call.slot, &failed);
    assert!(gives_up.is_heavy(None), "the node fails");
    let _ended = walker.conclude(now, call.slot, &came_to(1));
    assert!(!walker.is_heavy(None), "another item follows");
    let Move::Call(_, call) = walker.next(now) else {
        panic!("another item follows");
    };
    let _announced = walker.start(now, &call, None, InputHashes::default());
    let _ended = walker.conclude(now, call.slot, &came_to(1));
    assert!(walker.is_heavy(None), "the node ends");
}

fn came_to(text: usize) -> CallOutcome {
    CallOutcome::known(json!("x".repeat(text)))
}

#[test]
fn patterns_and_large_values_are_heavy() {
    let config = |when: &str| {
        format!(
            "\n  start: a\n  nodes:\n    a: {{type: gate, next: [{{to: end, when: {when}}}, {{to: end}}]}}\n    end: {{type: return}}\n"
        )
    };
    let walker = |when: &str, text: usize| {
        let inputs = json!({"text": "x".repeat(text)});
        let mut stage = Stage::of(&config(when), run(inputs, None));
        stage.play();
        stage.walker
    };
    let plain = "{path: inputs.text, op: contains, value: y}";
    assert!(!walker(plain, 100_000).is_heavy(None));
    assert!(walker(plain, 2_000_000).is_heavy(None));
    let pattern = "{path: inputs.text, op: regex, value: '(?=x)y'}";
    assert!(walker(pattern, 1).is_heavy(None));
    let many = format!("{{any: [{}]}}", vec![plain; 400].join(", "));
    assert!(walker(&many, 100_000).is_heavy(None));
    assert!(!walker(&many, 100).is_heavy(None));

    assert!(!walker(plain, 1).is_heavy(Some(&came_to(1000))));
    assert!(walker(plain, 1).is_heavy(Some(&came_to(2_000_000))));
    assert!(walker(&many, 1).is_heavy(Some(&came_to(100_000))));
}
