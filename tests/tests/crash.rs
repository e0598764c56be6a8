//! `kill -9` at random times during one long run.
//!
//! Each step of the run appends its idempotency key to a file. After every death no process is left, and after every
//! restart the run resumes by itself. At the end, every step that was recorded as finished has run once. At most one
//! step per death, the one in flight, has run twice.

mod exports;
mod history;
mod language;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::thread;
use std::time::Duration;

use rye_tests::processes::Process;
use rye_tests::transcript::check;
use rye_tests::{Daemon, World, processes, until};
use serde_json::Value;

/// Deaths per variant. `RYE_CRASH_ROUNDS` overrides it.
const ROUNDS: usize = 8;

/// Counts until the file `stop` exists. Each step is a process that works, waits briefly and ends.
const COUNT: &str = r#"start: tick
max_steps: 1000000
state: {n: 0}
nodes:
  tick:
    action:
      item_id: rye/bash
      params:
        env: {N: "${state.n}"}
        command: |
          echo "$RYE_IDEMPOTENCY_KEY" >>keys
          sleep 0.005
          if [ -e stop ]; then more=false; else more=true; fi
          echo "{\"n\": $((N + 1)), \"more\": $more}"
    assign: {got: "${result.stdout | from_json}"}
    next: keep
  keep:
    assign: {n: "${state.got.n}"}
    next:
      - {to: tick, when: {path: state.got.more, op: eq, value: true}}
      - {to: done}
  done: {type: return, output: "${state.n}"}"#;

/// The processes that are killed.
#[derive(Debug, Clone, Copy)]
enum Victims {
    Daemon,
    DaemonAndParent,
}

#[test]
fn a_run_survives_the_death_of_the_daemon_at_any_instant() {
    survive(Victims::Daemon, 0x5eed_0001);
}

#[test]
fn a_run_survives_the_death_of_daemon_and_parent_at_any_instant() {
    survive(Victims::DaemonAndParent, 0x5eed_0002);
}

fn survive(victims: Victims, seed: u64) {
    let world = World::new();
    world.graph("t/count", COUNT);
    let mut random = Random(seed);
    let mut daemon = world.start("");
    let run = world.start_run("t/count");
    // Keys of steps that were recorded as finished at a death, with the number of their executions at that time.
    let mut finished: HashMap<String, usize> = HashMap::new();
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        let before = executions(&world).len();
        until("the run to continue", || {
            (executions(&world).len() > before + 1).then_some(())
        });
        thread::sleep(Duration::from_micros(random.below(150_000)));
        die(daemon, victims);
        let left = left_by(victims, &world);
        assert!(left.is_empty(), "round {round}, seed {seed:#x}: {left:#?}");
        let counts = count(&executions(&world));
        for key in keys_on_record(&world, &run) {
            let times = counts.get(&key).copied().unwrap_or_default();
            assert!(
                times >= 1,
                "round {round}, seed {seed:#x}: {key} is on record and did not run"
            );
            assert_eq!(
                *finished.entry(key).or_insert(times),
                times,
                "round {round}, seed {seed:#x}: a finished step ran again"
            );
        }
        daemon = world.start("");
    }
    world.write("stop", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "seed {seed:#x}: {record}");

    let executions = executions(&world);
    let counts = count(&executions);
    assert_eq!(
        record["output"],
        counts.len(),
        "a step is missing or counted twice"
    );
    for (key, times) in &finished {
        assert_eq!(
            counts[key], *times,
            "seed {seed:#x}: {key} ran again after it was finished"
        );
    }
    let repeated = executions.len() - counts.len();
    assert!(
        repeated <= rounds,
        "seed {seed:#x}: {repeated} repeats for {rounds} deaths"
    );
    assert!(counts.values().all(|times| *times <= rounds + 1));
    let text = until("the whole transcript", || {
        let text = transcript(&world, &run);
        text.contains("\"graph_completed\"").then_some(text)
    });
    let twice: HashSet<&String> = counts
        .iter()
        .filter(|(_, times)| **times > 1)
        .map(|(key, _)| key)
        .collect();
    let retried: HashSet<String> = attempts_beyond_the_first(&world, &run);
    let unexplained: Vec<&&String> = twice
        .iter()
        .filter(|key| !retried.contains(**key))
        .collect();
    assert!(
        unexplained.is_empty(),
        "seed {seed:#x}: {unexplained:?} ran twice without a second attempt on record:\n{text}"
    );

    check(text.trim_end(), &run, &world.node_key()).unwrap();
    drop(daemon);
}

fn die(daemon: Daemon, victims: Victims) {
    match victims {
        Victims::Daemon => daemon.kill(),
        Victims::DaemonAndParent => daemon.kill_both(),
    }
    let _status = daemon.ended();
}

/// Returns the processes that are left after the death of `victims`. A parent that survives exits only when no process
/// is left. Without it the kernel kills the daemon's children, which takes a moment.
fn left_by(victims: Victims, world: &World) -> Vec<Process> {
    match victims {
        Victims::Daemon => processes::below(world.root()),
        Victims::DaemonAndParent => processes::left(world.root()),
    }
}

/// Returns the number of deaths: that of `RYE_CRASH_ROUNDS`, else `unless_told`.
pub(crate) fn rounds(unless_told: usize) -> usize {
    let told =
        std::env::var_os("RYE_CRASH_ROUNDS").and_then(|rounds| rounds.to_str()?.parse().ok());
    told.unwrap_or(unless_told)
}

/// Returns the key of every execution, in order.
fn executions(world: &World) -> Vec<String> {
    world.read("keys").lines().map(str::to_owned).collect()
}

fn count(keys: &[String]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for key in keys {
        *counts.entry(key.clone()).or_default() += 1;
    }
    counts
}

fn transcript(world: &World, run: &str) -> String {
    let path = world
        .project()
        .join(format!(".ai/state/threads/{run}/transcript.jsonl"));
    fs::read_to_string(path).unwrap_or_default()
}

fn events(world: &World, run: &str) -> Vec<Value> {
    let text = transcript(world, run);
    // The last line may be torn.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Returns the keys of steps that the transcript reports as completed. It contains only durable events.
fn keys_on_record(world: &World, run: &str) -> Vec<String> {
    let events = events(world, run);
    let mut started = HashMap::new();
    let mut keys = Vec::new();
    for event in &events {
        let payload = &event["payload"];
        let step = payload["step"].as_u64().unwrap_or_default();
        match event["event_type"].as_str() {
            Some("step_started") => {
                started.insert(step, payload["key"].as_str().unwrap().to_owned());
            }
            Some("step_completed") => keys.extend(started.remove(&step)),
            _ => {}
        }
    }
    keys
}

fn attempts_beyond_the_first(world: &World, run: &str) -> HashSet<String> {
    let started = events(world, run);
    started
        .iter()
        .filter(|event| {
            event["event_type"] == "step_started" && event["payload"]["attempt"].as_u64() > Some(1)
        })
        .map(|event| event["payload"]["key"].as_str().unwrap().to_owned())
        .collect()
}

/// A small generator (xorshift64), so that a failing seed can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
