//! A tree of five threads with tools, money and reserved shares. Its daemon dies at random times and at named events.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use rye_tests::model_server::ModelServer;
use rye_tests::{World, transcript, until};
use serde_json::Value;

use super::crash::{call, die, keys};
use super::{account, payloads};
use crate::crash::rounds;

/// Number of deaths. `RYE_CRASH_ROUNDS` overrides it.
const ROUNDS: usize = 6;
/// Upper bound on the number of deaths.
const MOST_ROUNDS: usize = 140;

/// The threads: which ones each starts in its first turn, with which share of its money. Each death can cost a held
/// call without an answer. Then each thread calls a tool, turn by turn, until the tool reports that it is enough.
const THREADS: [(&str, &[(&str, u32)]); 5] = [
    ("root", &[("left", 4000), ("right", 3000)]),
    ("left", &[("below_left", 1000)]),
    ("right", &[("below_right", 1000)]),
    ("below_left", &[]),
    ("below_right", &[]),
];

/// The threads that work in parallel, deepest first, because parents wait for children. A file with the name of the
/// level ends its work.
const LEVELS: [(&str, &[&str]); 3] = [
    ("leaves", &["below_left", "below_right"]),
    ("middle", &["left", "right"]),
    ("top", &["root"]),
];

/// Events at which the daemon dies after every second restart.
const EVENTS: [&str; 8] = [
    "step_start",
    "tool_call_start",
    "cognition_out",
    "process_started",
    "tool_call_result",
    "step_finish",
    "budget_settled",
    "run_started",
];

fn level_of(name: &str) -> &'static str {
    let level = LEVELS.iter().find(|(_, threads)| threads.contains(&name));
    level.expect("each thread has a level").0
}

fn script() -> String {
    let mut script = String::new();
    let usage = "usage: {input: 10, output: 1}";
    for (name, below) in THREADS {
        let mut rule = |when: &str, reply: &str| {
            let _written = writeln!(
                script,
                "- when: {{directive: {name}{when}}}\n  reply: {{{reply}, {usage}}}"
            );
        };
        let start = |(below, share): &(&str, u32)| {
            format!(
                "{{name: rye_execute, input: {{item_type: directive, item_id: t/{below}, limit_overrides: {{spend: {share}}}}}}}"
            )
        };
        let starts: Vec<String> = below.iter().map(start).collect();
        if !starts.is_empty() {
            rule(
                ", turn: 1",
                &format!("text: I ask., calls: [{}]", starts.join(", ")),
            );
        }
        rule(", tool_result: enough", "text: Done.");
        let note = format!(
            "echo $RYE_IDEMPOTENCY_KEY >> keys; echo >> ran.{name}; sleep 0.05; [ -e stop.{} ] && echo enough || echo more",
            level_of(name)
        );
        rule("", &format!("text: I work., calls: [{}]", call(&note)));
    }
    script
}

/// Returns the ids of the root and of all runs below it.
fn tree(world: &World, root: &str) -> Vec<String> {
    let mut open = vec![world.ryectl("tree --json").arg(root).ok().json()[0].clone()];
    let mut found = Vec::new();
    while let Some(node) = open.pop() {
        found.extend(node["run_id"].as_str().map(str::to_owned));
        open.extend(node["children"].as_array().cloned().unwrap_or_default());
    }
    found
}

pub(super) fn nanos(amount: &Value) -> u64 {
    let text = amount.as_str().unwrap_or("0.000000000").replace('.', "");
    text.parse().unwrap()
}

/// Returns the keys of the calls whose results are in the transcripts of all runs.
fn on_record(world: &World) -> Vec<String> {
    let runs = fs::read_dir(world.project().join(".ai/state/threads"));
    let mut keys = Vec::new();
    for run in runs.into_iter().flatten().flatten() {
        let text = fs::read_to_string(run.path().join("transcript.jsonl")).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut started: HashMap<String, String> = HashMap::new();
        for line in lines {
            let of = |name: &str| {
                line["payload"][name]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            if line["event_type"] == "tool_call_start" {
                started.insert(of("call_id"), of("key"));
            } else if line["event_type"] == "tool_call_result" {
                keys.extend(started.remove(&of("call_id")));
            }
        }
    }
    keys
}

/// Number of deaths so far, and the executions at that time.
struct Deaths {
    random: Random,
    count: usize,
    finished: HashMap<String, usize>,
}

/// A xorshift generator, so that a failed run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, range: Range<u64>) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        range.start + self.0 % (range.end - range.start)
    }
}

impl Deaths {
    /// Runs the daemon once while `threads` work: until they have progressed and a random time has passed, or up to an
    /// event.
    fn live(&mut self, world: &World, threads: &[&str]) {
        if self.count.is_multiple_of(2) {
            let daemon = world.start("");
            let ran = |name: &str| world.read(&format!("ran.{name}")).lines().count();
            let before: Vec<usize> = threads.iter().map(|name| ran(name)).collect();
            until("the threads to get on", || {
                let mut now = threads.iter().map(|name| ran(name)).zip(&before);
                now.all(|(now, before)| now >= before + 2).then_some(())
            });
            thread::sleep(Duration::from_micros(self.random.below(0..200_000)));
            die(daemon);
        } else {
            let event = usize::try_from(self.random.below(0..8)).unwrap();
            let side = ["before", "after"][usize::try_from(self.random.below(0..2)).unwrap()];
            // After one start of the daemon, each run has this event at most once.
            let number = match EVENTS[event] {
                "run_started" => 1,
                _ => self.random.below(1..7),
            };
            world.live_until(&format!("{side}:{}:{number}", EVENTS[event]), "");
        }
        self.count += 1;
        let ran = keys(world);
        for key in on_record(world) {
            // A call that a child run carries out records no key.
            let Some(times) = ran.get(&key).copied() else {
                continue;
            };
            let known = *self.finished.entry(key).or_insert(times);
            assert_eq!(
                known, times,
                "death {}: a finished call ran again",
                self.count
            );
        }
    }
}

#[test]
fn thread_tree_survives_random_deaths_without_losing_money() {
    let server = ModelServer::start(&script());
    let world = World::with_models(&server);
    // A model that repeats one call forever is stopped by default, so the limit is off.
    let own =
        "version: \"1.0.0\"\ncategory: agent\nname: resilience\nlimits: {repeated_calls: 0}\n";
    let path = world.home().join(".ai/config/agent/resilience.yaml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, own).unwrap();
    let _signed = world.ryectl("sign").arg(&path).ok();
    // Calls wait for the whole message. Otherwise the calls that began in a message that is cut off would be all of it.
    // Then the second thread that the first one was to start in that turn would never be requested again.
    let metadata = "<tools start=\"message\"/><limits turns=\"100000\" tokens=\"1000000000\" duration_seconds=\"86400\"/>\
                    <permissions><execute effect=\"idempotent\"><tool>rye/bash</tool><directive>t/*</directive></execute></permissions>";
    for (name, _) in THREADS {
        world.directive(&format!("t/{name}"), metadata, "", "Work.");
    }
    let daemon = world.start("");
    let run = world.ryectl("run --detach directive:t/root --limit spend=10000");
    let root = run.ok().line();
    die(daemon);
    let rounds = rounds(ROUNDS).min(MOST_ROUNDS);
    let mut deaths = Deaths {
        random: Random(0x7ee5_0017),
        count: 0,
        finished: HashMap::new(),
    };
    for (level, (name, threads)) in LEVELS.iter().enumerate() {
        while deaths.count < rounds * (level + 1) / LEVELS.len() {
            deaths.live(&world, threads);
        }
        world.write(&format!("stop.{name}"), "");
    }
    assert_eq!(deaths.count, rounds);
    let daemon = world.start("");
    let record = world.settled(&root);
    assert_eq!(record["status"], "completed", "{record}");
    assert_paid(&world, &root, deaths.count);
    drop(daemon);
}

/// Asserts that each turn has one message and each call one result, and that the payments are the sum of the
/// settlements.
fn assert_paid(world: &World, root: &str, deaths: usize) {
    let runs = tree(world, root);
    assert_eq!(
        runs.len(),
        THREADS.len(),
        "no thread is started twice: {runs:?}"
    );
    let (mut sum, mut turns, mut tools, mut estimated) = (0, 0, 0, 0);
    for run in &runs {
        let spoken = payloads(world, run, "cognition_out");
        let said: Vec<u64> = spoken
            .iter()
            .filter_map(|said| said["turn"].as_u64())
            .collect();
        let expected: Vec<u64> = (1..).take(said.len()).collect();
        assert_eq!(said, expected, "each turn of {run} came to one message");
        let settled = payloads(world, run, "budget_settled");
        let held = payloads(world, run, "budget_held");
        assert_eq!(settled.len(), held.len(), "{run}");
        estimated += settled
            .iter()
            .filter(|settled| settled["estimated"] == true)
            .count();
        sum += settled
            .iter()
            .map(|settled| nanos(&settled["usage"]["usd"]))
            .sum::<u64>();
        let asked = spoken
            .iter()
            .filter_map(|said| said["message"]["blocks"].as_array().cloned());
        let asked = asked
            .flatten()
            .filter(|block| block["type"] == "call")
            .count();
        let results = payloads(world, run, "tool_call_result").len();
        assert_eq!(results, asked, "each call of {run} has one result");
        turns += said.len();
        tools += results;
        let text = world.ryectl("transcript --json").arg(run).ok().stdout();
        transcript::check(&text, run, &world.node_key()).unwrap();
    }
    let paid = account(world, root);
    let amounts = ["actual", "held", "reserved"].map(|name| nanos(&paid[name]));
    assert_eq!(amounts, [sum, 0, 0], "{paid}");
    println!(
        "{deaths} deaths, {turns} turns, {tools} calls of tools, {estimated} calls of models charged at their hold, {sum} nano-dollars"
    );
}
