//! Deaths during a graph that uses the whole language: parallel and sequential foreach, at-most-once effects, retries,
//! handled failures, a child run, a cached node, parallel branches, a wait and a hook.
//!
//! Every effect appends its label and its idempotency key to a file outside of the daemon. If the daemon is killed
//! during an at-most-once effect, the run is suspended as `uncertain`. The test then answers from the content of that
//! file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rye_tests::transcript::check;
use rye_tests::until::within;
use rye_tests::{World, until};
use serde_json::Value;

use super::{ROUNDS, Random, Victims, die, events, left_by, rounds, transcript};

/// Longest time to the end of the run once it may end.
const LAST_LAP: Duration = Duration::from_mins(1);

/// A run without an effect for this time may be suspended.
const QUIET: Duration = Duration::from_millis(150);

/// Loops until the file `stop` exists, or `laps` times. Its final state depends only on the number of laps.
const LAPS: &str = r#"start: tick
max_steps: 1000000
state: {n: 0}
hooks:
  - id: after_charge
    event: after_step
    condition: {path: node, op: eq, value: charge}
    action: {item_id: rye/bash, params: {command: 'echo "hook $RYE_IDEMPOTENCY_KEY" >>log'}}
nodes:
  tick:
    action:
      item_id: rye/bash
      params:
        env: {N: "${state.n}", LAPS: "${inputs.laps}"}
        command: |
          echo "tick $RYE_IDEMPOTENCY_KEY" >>log
          n=$((N + 1)) more=true
          if [ -e stop ] || [ "$n" -ge "$LAPS" ]; then more=false; fi
          echo "{\"n\": $n, \"more\": $more, \"third\": $((n % 3))}"
    assign: {lap: "${result.stdout | from_json}"}
    next: fan
  fan:
    type: foreach
    over: [1, 2, 3, 4]
    parallel: true
    max_concurrency: 3
    action:
      item_id: rye/bash
      params:
        env: {X: "${item}", N: "${state.lap.n}"}
        command: 'echo "fan $RYE_IDEMPOTENCY_KEY" >>log; echo "$((X * N))"'
    collect: products
    next: charge
  charge:
    effect: at_most_once
    action: {item_id: rye/bash, params: {command: 'echo "charge $RYE_IDEMPOTENCY_KEY" >>log; sleep 0.04'}}
    next: charges
  charges:
    type: foreach
    over: [a, b]
    effect: at_most_once
    action: {item_id: rye/bash, params: {command: 'echo "charges $RYE_IDEMPOTENCY_KEY" >>log; sleep 0.01'}}
    next: flaky
  flaky:
    retry: {max: 2, backoff: fixed, delay: 0.01}
    action:
      item_id: rye/bash
      params:
        env: {TRY: "${state._retries.flaky}"}
        command: 'echo "flaky $RYE_IDEMPOTENCY_KEY" >>log; [ -n "$TRY" ]'
    next: hopeless
  hopeless:
    retry: {max: 1, backoff: fixed, delay: 0.01}
    action: {item_id: rye/bash, params: {command: 'echo "hopeless $RYE_IDEMPOTENCY_KEY" >>log; exit 3'}}
    on_error: nested
    next: nested
  nested:
    action: {item_id: t/below, params: {n: "${state.lap.n}"}}
    assign: {below: "${result.output}"}
    next: cached
  cached:
    cache_result: true
    action:
      item_id: rye/bash
      params:
        env: {THIRD: "${state.lap.third}"}
        command: 'echo "cached $RYE_IDEMPOTENCY_KEY" >>log; echo "$THIRD"'
    assign: {third: "${result.stdout}"}
    next: both
  both:
    type: parallel
    branches:
      left: {item_id: rye/bash, params: {env: {N: "${state.lap.n}"}, command: 'echo "both $RYE_IDEMPOTENCY_KEY" >>log; echo "l$N"'}}
      right: {item_id: rye/bash, params: {command: 'echo "both $RYE_IDEMPOTENCY_KEY" >>log; sleep 0.02; echo r'}}
    assign: {both: "${result.left.stdout | trim}${result.right.stdout | trim}"}
    next: rest
  rest: {type: wait, for: 0.02, next: around}
  around:
    assign: {n: "${state.lap.n}"}
    next:
      - {to: tick, when: {path: state.lap.more, op: eq, value: true}}
      - {to: done}
  done: {type: return, output: "${state.n}"}"#;

const BELOW: &str = r#"start: first
nodes:
  first:
    action:
      item_id: rye/bash
      params: {env: {N: "${inputs.n}"}, command: 'echo "below $RYE_IDEMPOTENCY_KEY" >>log; echo $((N * 2))'}
    assign: {twice: "${result.stdout}"}
    next: second
  second:
    action: {item_id: rye/bash, params: {command: 'echo "below $RYE_IDEMPOTENCY_KEY" >>log'}}
    next: done
  done: {type: return, output: {twice: "${state.twice}"}}"#;

#[test]
fn every_kind_of_node_survives_death_at_any_instant() {
    let seed = seed();
    let mut battle = Battle::begin(seed);
    for round in 0..rounds(ROUNDS) {
        battle.fight(round);
    }
    battle.conclude();
}

fn seed() -> u64 {
    let told = std::env::var_os("RYE_CRASH_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    told.unwrap_or(0x5eed_0003)
}

/// Makes a world with both graphs, signed.
fn world() -> World {
    let world = World::new();
    world.graph("t/laps", LAPS);
    world.graph("t/below", BELOW);
    world
}

struct Battle {
    world: World,
    daemon: Option<rye_tests::Daemon>,
    run: String,
    random: Random,
    /// Seed, for messages.
    seed: u64,
    /// Effects that were recorded as finished at a death, with the number of their executions at that time.
    finished: HashMap<String, usize>,
    /// Number of suspensions with an effect of unknown outcome.
    suspended: usize,
}

impl Battle {
    fn begin(seed: u64) -> Self {
        let world = world();
        let daemon = world.start("");
        let started = world.ryectl("run --detach t/laps -i laps:=1000000").ok();
        Self {
            run: started.line(),
            world,
            daemon: Some(daemon),
            random: Random(seed),
            seed,
            finished: HashMap::new(),
            suspended: 0,
        }
    }

    /// Lets the run continue a little, kills the daemon at a random time, and checks what is left.
    fn fight(&mut self, round: usize) {
        let before = self.effects().len();
        let deadline = Instant::now() + LAST_LAP;
        while self.effects().len() < before + 2 {
            assert!(
                Instant::now() < deadline,
                "round {round}, seed {}: the run does not continue: {}",
                self.seed,
                self.world.record(&self.run)
            );
            // A suspended run has no effects for a while.
            if within(QUIET, || (self.effects().len() >= before + 2).then_some(())).is_none() {
                self.answer();
            }
        }
        thread::sleep(Duration::from_micros(self.random.below(250_000)));
        let victims = if round.is_multiple_of(2) {
            Victims::Daemon
        } else {
            Victims::DaemonAndParent
        };
        die(self.daemon.take().unwrap(), victims);
        let left = left_by(victims, &self.world);
        assert!(
            left.is_empty(),
            "round {round}, seed {}: {left:#?}",
            self.seed
        );
        self.compare(&format!("round {round}, seed {}", self.seed));
        self.daemon = Some(self.world.start(""));
    }

    /// Asserts that every effect recorded as finished has happened, and does not happen again.
    fn compare(&mut self, at: &str) {
        let counts = count(&self.effects());
        for run in self.family() {
            for key in Record::of(&self.world, &run).finished {
                let times = counts.get(&key).copied().unwrap_or_default();
                let before = *self.finished.entry(key.clone()).or_insert(times);
                assert!(times >= 1, "{at}: {key} is on record and did not happen");
                assert_eq!(before, times, "{at}: {key} was finished and happened again");
            }
        }
    }

    /// Returns the run and its child runs.
    fn family(&self) -> Vec<String> {
        let folder = self.world.project().join(".ai/state/threads");
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("t-")).collect()
    }

    /// Returns label and key of every effect, in order.
    fn effects(&self) -> Vec<(String, String)> {
        let text = self.world.read("log");
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(label, key)| (label.to_owned(), key.to_owned()))
            .collect()
    }

    /// If the run is suspended, reports the results of the effects in doubt.
    fn answer(&mut self) {
        let record = self.world.record(&self.run);
        if record["status"] != "suspended" {
            assert!(record["error"].is_null(), "seed {}: {record}", self.seed);
            return;
        }
        let mut resume = self.world.ryectl("resume --detach").arg(&self.run);
        if record["suspend"]["reason"] == "uncertain" {
            self.suspended += 1;
            let happened: HashSet<String> =
                self.effects().into_iter().map(|(_, key)| key).collect();
            let names = record["suspend"]["uncertain"].as_array().unwrap();
            let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
            until("the transcript to tell that the run is suspended", || {
                let events = events(&self.world, &self.run);
                let mut last = events.iter().rev();
                let last = last.find(|event| event["event_type"] != "checkpoint")?;
                (last["event_type"] == "run_suspended").then_some(())
            });
            let open = Record::of(&self.world, &self.run).open;
            for name in names {
                let key = &open[name];
                let verdict = if happened.contains(key) {
                    "done"
                } else {
                    "retry"
                };
                resume = resume.arg("--uncertain").arg(format!("{name}={verdict}"));
            }
        }
        let _run = resume.ok();
    }

    /// Lets the run end. Compares its record with the effects outside, and with a run without deaths.
    fn conclude(mut self) {
        let at = format!("seed {}", self.seed);
        self.world.write("stop", "");
        let ended = within(LAST_LAP, || {
            self.answer();
            let record = self.world.record(&self.run);
            record["success"].is_boolean().then_some(record)
        });
        let Some(record) = ended else {
            panic!("{at}: no end: {}", self.world.record(&self.run));
        };
        assert_eq!(record["status"], "completed", "{at}: {record}");
        let text = until("the whole transcript", || {
            let text = transcript(&self.world, &self.run);
            text.contains("\"graph_completed\"").then_some(text)
        });
        check(text.trim_end(), &self.run, &self.world.node_key()).unwrap();
        self.compare(&at);
        self.every_effect_has_its_record(&at);
        self.every_lap_had_one_child_run(&at, &record);
        self.undisturbed(&at, &record);
    }

    fn every_effect_has_its_record(&self, at: &str) {
        let mut labels: HashMap<String, String> = HashMap::new();
        for (label, key) in self.effects() {
            assert_eq!(*labels.entry(key).or_insert(label.clone()), label);
        }
        let counts = count(&self.effects());
        let mut tries: HashMap<String, u64> = HashMap::new();
        for run in self.family() {
            tries.extend(Record::of(&self.world, &run).tries);
        }
        for (key, times) in &counts {
            let label = &labels[key];
            if label.starts_with("charge") {
                assert_eq!(*times, 1, "{at}: {label} {key} happened {times} times");
            }
            let allowed = tries.get(key).copied().unwrap_or_default();
            assert!(
                u64::try_from(*times).unwrap() <= allowed,
                "{at}: {label} {key} happened {times} times and was tried {allowed} times"
            );
        }
    }

    fn every_lap_had_one_child_run(&self, at: &str, record: &Value) {
        let laps = record["output"].as_u64().unwrap();
        let mut children: BTreeMap<String, HashSet<String>> = BTreeMap::new();
        for event in events(&self.world, &self.run) {
            if let Some(child) = event["payload"]["child"].as_str() {
                let key = event["payload"]["key"].as_str().unwrap().to_owned();
                children.entry(key).or_default().insert(child.to_owned());
            }
        }
        assert!(
            children.values().all(|runs| runs.len() == 1),
            "{at}: {children:?}"
        );
        assert_eq!(u64::try_from(children.len()).unwrap(), laps, "{at}");
        let below: HashSet<String> = children.into_values().flatten().collect();
        let mut family: HashSet<String> = self.family().into_iter().collect();
        assert!(family.remove(&self.run));
        assert_eq!(
            family, below,
            "{at}: a child run was started twice, or is lost"
        );
        for run in &below {
            let text = until("the transcript of a child run", || {
                let text = transcript(&self.world, run);
                text.contains("\"graph_completed\"").then_some(text)
            });
            check(text.trim_end(), run, &self.world.node_key()).unwrap();
        }
    }

    fn undisturbed(self, at: &str, record: &Value) {
        let calm = world();
        let _daemon = calm.start("");
        let laps = format!("laps:={}", record["output"]);
        let other = calm.ryectl("run t/laps --json --quiet -i").arg(laps);
        let other = other.ok().json();
        let state = |record: &Value| {
            let mut state = record["state"].clone();
            state.as_object_mut().unwrap().remove("inputs");
            state
        };
        assert_eq!(state(&other), state(record), "{at}");
        assert_eq!(other["steps"], record["steps"], "{at}");
        assert!(
            self.suspended > 0 || rounds(ROUNDS) < 30,
            "{at}: no death hit an at-most-once effect"
        );
    }
}

/// The effects of a run by its transcript, which contains only durable events.
#[derive(Default)]
struct Record {
    /// Keys of finished effects.
    finished: Vec<String>,
    /// Keys of effects in flight, by the name of the attempt in the run's question.
    open: HashMap<String, String>,
    /// Number of tries of each effect.
    tries: HashMap<String, u64>,
}

impl Record {
    fn of(world: &World, run: &str) -> Self {
        let mut record = Self::default();
        for event in events(world, run) {
            record.take_in(&event);
        }
        record
    }

    fn take_in(&mut self, event: &Value) {
        let payload = &event["payload"];
        let node = payload["node"].as_str().unwrap_or_default();
        let hook = payload["hook"].as_str().unwrap_or_default();
        let name = match event["event_type"].as_str().unwrap_or_default() {
            // The item events of a foreach node and the child run report its effects.
            "step_started" | "step_failed" | "step_completed"
                if payload.get("items").is_some() || payload.get("child").is_some() =>
            {
                return;
            }
            "step_started" | "step_completed" => node.to_owned(),
            "item_started" | "item_completed" => format!("{node}[{}]", payload["item"]),
            "hook_started" | "hook_completed" => format!("hook {hook}"),
            _ => return,
        };
        if let Some(key) = payload["key"].as_str() {
            *self.tries.entry(key.to_owned()).or_default() += 1;
            self.open.insert(name, key.to_owned());
        } else if let Some(key) = self.open.remove(&name) {
            self.finished.push(key);
        }
    }
}

fn count(effects: &[(String, String)]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for (_, key) in effects {
        *counts.entry(key.clone()).or_default() += 1;
    }
    counts
}
