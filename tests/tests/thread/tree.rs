//! A tree of five threads with tools and money, whose daemon is killed at random instants.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use rye_tests::model_server::ModelServer;
use rye_tests::{World, transcript};
use serde_json::Value;

use super::crash::{call, die, keys, on_record};
use super::{account, payloads};
use crate::crash::rounds;

/// How often the daemon dies, unless `RYE_CRASH_ROUNDS` says how often.
const ROUNDS: usize = 4;

/// The threads: which start which in their first turn, and how many turns with a tool follow.
const THREADS: [(&str, &[&str], u32); 5] = [
    ("root", &["left", "right"], 4),
    ("left", &["below_left"], 6),
    ("right", &["below_right"], 8),
    ("below_left", &[], 12),
    ("below_right", &[], 16),
];

/// How many times the usual number of turns there are: enough for all deaths that are asked for.
fn scale() -> u32 {
    u32::try_from(rounds(ROUNDS).div_ceil(ROUNDS)).unwrap()
}

fn script() -> String {
    // Each call is another one: a model that repeats itself is stopped.
    let note = |turn: u32| {
        let command = format!("echo $RYE_IDEMPOTENCY_KEY >> keys; sleep 0.01; echo noted {turn}");
        call(&command)
    };
    let mut script = String::new();
    for (name, below, tools) in THREADS {
        let start = |below: &&str| {
            format!("{{name: rye_execute, input: {{item_type: directive, item_id: t/{below}}}}}")
        };
        let starts: Vec<String> = below.iter().map(start).collect();
        let notes = (0..tools * scale()).map(note);
        let first = (!starts.is_empty()).then(|| starts.join(", "));
        let mut turn = 0;
        for calls in first.into_iter().chain(notes) {
            turn += 1;
            let _written = writeln!(
                script,
                "- when: {{directive: {name}, turn: {turn}}}\n  reply: {{text: Turn {turn}., calls: [{calls}], usage: {{input: 10, output: 1}}}}"
            );
        }
        let _written = writeln!(
            script,
            "- when: {{directive: {name}}}\n  reply: {{text: Done., usage: {{input: 10, output: 1}}}}"
        );
    }
    script
}

/// The ids of the root and of all runs below it.
fn tree(world: &World, root: &str) -> Vec<String> {
    let mut open = vec![world.ryectl("tree --json").arg(root).ok().json()[0].clone()];
    let mut found = Vec::new();
    while let Some(node) = open.pop() {
        found.extend(node["run_id"].as_str().map(str::to_owned));
        open.extend(node["children"].as_array().cloned().unwrap_or_default());
    }
    found
}

fn nanos(amount: &Value) -> u64 {
    let text = amount.as_str().unwrap_or("0.000000000").replace('.', "");
    text.parse().unwrap()
}

#[test]
fn a_tree_of_threads_lives_through_deaths_at_random_instants_and_no_cent_of_it_is_lost() {
    let server = ModelServer::start(&script());
    let world = World::with_models(&server);
    // Calls wait for the whole message: of one that is cut off, those that began would be all of it, and the second thread that
    // the first one was to start in that turn would never be asked for again.
    let metadata = "<tools start=\"message\"/><limits turns=\"1000\" tokens=\"10000000\"/><permissions><execute effect=\"idempotent\">\
                    <tool>rye/bash</tool><directive>t/*</directive></execute></permissions>";
    for (name, _, _) in THREADS {
        world.directive(&format!("t/{name}"), metadata, "", "Work.");
    }
    let mut daemon = world.start("");
    let run = world.ryectl("run --detach directive:t/root --limit spend=100");
    let root = run.ok().line();
    let mut finished: HashMap<String, usize> = HashMap::new();
    let mut seed: u64 = 0x7ee5_0017;
    let mut deaths = 0;
    for round in 0..rounds(ROUNDS) {
        if world.record(&root)["status"] == "completed" {
            break;
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        thread::sleep(Duration::from_micros(seed % 400_000));
        die(daemon);
        deaths += 1;
        daemon = world.start("");
        // The tree goes on meanwhile: what is on record by now has run as often as it ever will.
        let runs = tree(&world, &root);
        let done: Vec<String> = runs.iter().flat_map(|run| on_record(&world, run)).collect();
        let ran = keys(&world);
        for key in done {
            // What a run of its own carries out notes nothing.
            let Some(times) = ran.get(&key).copied() else {
                continue;
            };
            let known = *finished.entry(key).or_insert(times);
            assert_eq!(known, times, "round {round}: a finished call ran again");
        }
    }
    let record = world.settled(&root);
    assert_eq!(record["status"], "completed", "{record}");
    let runs = tree(&world, &root);
    assert_eq!(
        runs.len(),
        THREADS.len(),
        "no thread is started twice: {runs:?}"
    );
    let (mut sum, mut tools, mut estimated) = (0, 0, 0);
    for run in &runs {
        let spoken = payloads(&world, run, "cognition_out");
        let turns: Vec<u64> = spoken
            .iter()
            .filter_map(|said| said["turn"].as_u64())
            .collect();
        let expected: Vec<u64> = (1..).take(turns.len()).collect();
        assert_eq!(turns, expected, "each turn of {run} came to one message");
        let settled = payloads(&world, run, "budget_settled");
        assert_eq!(
            settled.len(),
            payloads(&world, run, "budget_held").len(),
            "{run}"
        );
        estimated += settled
            .iter()
            .filter(|settled| settled["estimated"] == true)
            .count();
        sum += settled
            .iter()
            .map(|settled| nanos(&settled["usage"]["usd"]))
            .sum::<u64>();
        tools += payloads(&world, run, "tool_call_result").len();
        let text = world.read(&format!(".ai/state/threads/{run}/transcript.jsonl"));
        transcript::check(&text, run, &world.node_key()).unwrap();
    }
    let calls: usize = THREADS
        .iter()
        .map(|(_, below, tools)| below.len() + usize::try_from(*tools * scale()).unwrap())
        .sum();
    assert_eq!(tools, calls, "each call has one result");
    let paid = account(&world, &root);
    assert_eq!(
        (nanos(&paid["actual"]), nanos(&paid["held"])),
        (sum, 0),
        "{paid}"
    );
    println!(
        "{deaths} deaths, {tools} calls of tools, {estimated} calls of models charged at their hold, {sum} nano-dollars"
    );
    drop(daemon);
}
