//! A run that would take the memory of all others fails by itself: the daemon lives, and what else runs there ends as it should.

use std::fs;

use rye_tests::{Daemon, World, until};
use serde_json::{Value, json};

/// Doubles its state with each step, of which 46 MB of JSON would take 8 GB.
const DOUBLES: &str = "max_steps: 100\nstate: {s: [null, null]}\nstart: a\nnodes:\n  \
    a: {assign: {s: {a: \"${state.s}\", b: \"${state.s}\"}}, next: a}";
const WAITS: &str = "start: a\nnodes:\n  \
    a: {action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.05; done\"}}, next: b}\n  \
    b: {type: return, output: {}}";
/// Holds four times what it is given, and waits.
const HOLDS: &str = "start: a\nnodes:\n  a: {assign: {x: \"${inputs.text}${inputs.text}${inputs.text}${inputs.text}\"}, next: b}\n  \
    b: {action: {item_id: rye/bash, params: {command: \"until [ -e go ]; do sleep 0.05; done\"}}, next: c}\n  \
    c: {type: return, output: {}}";
/// Takes JSON without numbers, as a schema that refers to itself says in four ways.
const TREE: &str = "permissions: []\nconfig_schema:\n  $defs:\n    tree:\n      anyOf:\n        \
    - {type: string}\n        - {type: array, items: {$ref: '#/$defs/tree'}}\n        \
    - {type: object, additionalProperties: {$ref: '#/$defs/tree'}}\n        \
    - {type: array, prefixItems: [{$ref: '#/$defs/tree'}]}\n  \
    type: object\n  properties: {tree: {$ref: '#/$defs/tree'}}";

/// The most memory that the daemon has taken so far, in MB.
fn most_resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() >> 10
}

fn error_of(world: &World, run: &str) -> Value {
    let record = world.settled(run);
    assert_eq!(record["status"], "error", "{record}");
    record["error"].clone()
}

#[test]
fn a_state_that_is_small_as_json_and_large_in_memory_fails_its_node() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/doubles", DOUBLES);
    world.graph("t/waits", WAITS);
    let beside = world.start_run("t/waits");
    for _ in 0..3 {
        let error = error_of(&world, &world.start_run("t/doubles"));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("64 MiB in memory"), "{error}");
    }
    let most = most_resident(&daemon);
    assert!(most < 1000, "{most} MB");
    world.write("go", "");
    assert_eq!(world.settled(&beside)["status"], "completed");
}

#[test]
fn a_run_that_asks_for_more_than_all_runs_may_have_fails_and_is_resumed_when_others_have_ended() {
    let world = World::new();
    let _daemon = world.start("limits: {memory_mb: 64}");
    world.graph("t/holds", HOLDS);
    let start = |megabytes: usize| {
        let inputs = json!({"text": "x".repeat(megabytes << 20)}).to_string();
        let file = world.write("inputs.json", inputs);
        let command = world.ryectl("run --detach --json t/holds --input");
        command.arg(format!("@{}", file.display())).run()
    };
    let begun = |megabytes| {
        let out = start(megabytes).code(0).json();
        out["run_id"].as_str().unwrap().to_owned()
    };
    let first = begun(10);
    until("the first run holds 50 MB", || {
        (world.record(&first)["steps"] == 1).then_some(())
    });
    let second = begun(10);
    let error = error_of(&world, &second);
    assert_eq!(error["code"], "memory_exceeded", "{error}");
    let _refused = start(15).code(5).tells(&["limits.memory_mb"]);
    world.write("go", "");
    assert_eq!(world.settled(&first)["status"], "completed");
    let resumed = world.ryectl("resume --json").arg(&second).ok().json();
    let resumed = resumed["run_id"].as_str().unwrap().to_owned();
    assert_eq!(world.settled(&resumed)["status"], "completed");
}

#[test]
fn inputs_that_do_not_fit_a_schema_that_refers_to_itself_are_refused_and_fill_no_memory() {
    let world = World::new();
    let daemon = world.start("");
    world.graph_with(
        "t/tree",
        TREE,
        "start: a\nnodes:\n  a: {type: return, output: {}}",
    );
    let nested = |levels: usize, inner: &str| {
        format!("tree:={}{inner}{}", "[".repeat(levels), "]".repeat(levels))
    };
    let _fits = world.ryectl("run t/tree -i").arg(nested(40, "\"x\"")).ok();
    for levels in [14, 20, 40] {
        let command = world.ryectl("run t/tree --json -i");
        let refused = command.arg(nested(levels, "1")).run().code(2);
        let error = refused.json()["error"].clone();
        let code = error["reason"].as_str().unwrap();
        assert!(
            ["input_validation_failed", "too_complex"].contains(&code),
            "{error}"
        );
    }
    let most = most_resident(&daemon);
    assert!(most < 400, "{most} MB");
}
