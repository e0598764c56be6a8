//! Values that are too deep or too large are refused on input, and the daemon continues and can restart. Large sets are
//! written in several commits.

use std::collections::BTreeSet;

use rye_tests::World;
use serde_json::{Value, json};

/// Returns `levels` nested lists as JSON.
fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

/// Asserts that this daemon and the next one can read everything that was acknowledged.
fn assert_all_is_readable(world: &World, daemon: rye_tests::Daemon) {
    let look = || {
        let runs = world.ryectl("ps --all --json").ok().json();
        for run in runs.as_array().unwrap() {
            let id = run["run_id"].as_str().unwrap();
            let _record = world.record(id);
            let _events = world.ryectl("events --json").arg(id).ok();
        }
        runs
    };
    let before = look();
    daemon.kill();
    let _status = daemon.ended();
    let daemon = world.start("");
    assert_eq!(
        look().as_array().map(Vec::len),
        before.as_array().map(Vec::len)
    );
    drop(daemon);
}

const TAKES: &str = "start: a\nnodes:\n  a: {assign: {x: \"${inputs.x}\"}, next: b}\n  b: {type: return, output: \"${state.x}\"}";

#[test]
fn an_input_is_at_most_64_levels_deep() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/takes", TAKES);
    for levels in [65, 120, 127, 200] {
        let input = format!("x:={}", nested(levels));
        let refused = world.ryectl("run t/takes -i").arg(input).run().code(2);
        let _told = refused.stderr_contains(&[if levels < 128 {
            "64 levels deep"
        } else {
            "recursion"
        }]);
    }
    let input = format!("x:={}", nested(63));
    let out = world.ryectl("run t/takes -i").arg(input).ok();
    assert_eq!(out.json().to_string(), nested(63));
    assert_all_is_readable(&world, daemon);
}

#[test]
fn a_result_that_is_too_deep_fails_the_step_and_nothing_else() {
    let world = World::new();
    let daemon = world.start("");
    world.python(
        "t/deep",
        "value = 1\nfor _ in range(params['levels']):\n    value = [value]\nreturn {'value': value}",
    );
    world.graph(
        "t/calls",
        "start: a\nnodes:\n  a:\n    action: {item_id: t/deep, params: {levels: \"${inputs.levels}\"}}\n    assign: {x: \"${result}\"}\n    next: b\n  b: {type: return, output: \"${state.x}\"}",
    );
    for levels in [64, 100, 124] {
        let out = world
            .ryectl(&format!("run t/calls -i levels:={levels} --json"))
            .run()
            .code(1);
        let error = out.json()["error"].clone();
        assert_eq!(error["code"], "result_refused", "{levels}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("more than 64 levels deep"), "{message}");
    }
    let out = world.ryectl("run t/calls -i levels:=62").ok();
    assert_eq!(out.json()["value"].to_string().len(), 2 * 62 + 1);
    assert_all_is_readable(&world, daemon);
}

#[test]
fn a_state_that_wraps_itself_fails_its_node() {
    let world = World::new();
    let daemon = world.start("");
    world.graph(
        "t/wraps",
        "max_steps: 400\nstart: a\nnodes:\n  a: {assign: {x: [\"${state.x}\"]}, next: a}",
    );
    let out = world.ryectl("run t/wraps --json").run().code(1);
    let record: Value = out.json();
    assert_eq!(record["error"]["code"], "interpolation_failed", "{record}");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("nested more than 64 levels deep"),
        "{message}"
    );
    assert_all_is_readable(&world, daemon);
}

#[test]
fn a_state_that_doubles_itself_fails_its_node() {
    let world = World::new();
    let daemon = world.start("");
    world.graph(
        "t/doubles",
        "max_steps: 60\nstate: {x: 0123456789abcdef}\nstart: a\nnodes:\n  a: {assign: {x: \"${state.x}${state.x}\"}, next: a}",
    );
    let run = world.start_run("t/doubles");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(message.contains("larger than 64 MiB"), "{message}");
    assert_all_is_readable(&world, daemon);
}

#[test]
fn results_of_items_do_not_fill_the_memory() {
    let world = World::new();
    let daemon = world.start("");
    world.python("t/large", "return {'text': 'x' * 7_000_000}");
    world.graph(
        "t/each",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n    action: {item_id: t/large, params: {}}\n    collect: all\n    next: b\n  b: {type: return}",
    );
    let run = world.start_run("t/each");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(message.contains("results of the items"), "{message}");
    drop(daemon);
}

#[test]
fn lossy_json_of_tool_fails_step() {
    let world = World::new();
    let daemon = world.start("");
    for (name, printed, told) in [
        ("twice", r#"{"a": 1, "a": 2}"#, "`a`"),
        ("large", r#"{"a": 100000000000000000000000}"#, "64 bits"),
        (
            "beyond",
            r#"{"success": false, "k": 1e400}"#,
            "out of range",
        ),
    ] {
        let head = "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\n";
        let script =
            format!("description: \"A script.\"\nconfig:\n  script: |\n    echo '{printed}'\n");
        world.tool(
            &format!("t/{name}.yaml"),
            &format!("{head}name: {name}\n{script}"),
        );
        let out = world.ryectl("execute tool").arg(format!("t/{name}")).run();
        let _told = out
            .code(1)
            .stderr_contains(&["JSON that cannot be used", told]);
    }
    drop(daemon);
}

#[test]
fn cached_items_are_committed_in_batches() {
    const ITEMS: u32 = 2_000;
    let world = World::new();
    let _daemon = world.start("");
    world.graph(
        "t/cached",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: \"${inputs.list}\"\n    parallel: true\n    \
         cache_result: true\n    action: {item_id: rye/core/echo, params: {n: \"${item}\"}}\n    next: b\n  b: {type: return}",
    );
    let list: Vec<u32> = (0..ITEMS).collect();
    world.write("in.json", json!({"list": list}).to_string());
    let run = || {
        let words = "run t/cached --quiet --json --input @in.json";
        let run = world.ryectl(words).ok().json();
        let events = world
            .ryectl("events --json")
            .arg(run["run_id"].as_str().unwrap())
            .ok();
        events.json_lines()
    };
    let _filled = run();
    let events = run();
    let hits = events
        .iter()
        .filter(|event| event["event_type"] == "item_completed");
    // All events of one commit have the same time.
    let commits: BTreeSet<_> = hits.clone().map(|hit| hit["timestamp"].as_str()).collect();
    assert_eq!(hits.count(), list.len());
    assert!(commits.len() > 1, "{commits:?}");
}

#[test]
fn long_state_is_complete_in_every_query() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph(
        "t/long",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"head -c 400000 /dev/zero | tr '\\\\0' x\"}}, \
         assign: {x: \"${result.stdout}\", y: \"\\\"é\\\"\", z: \"${result.stdout}\"}, next: b}\n  b: {type: return, output: \"${state}\"}",
    );
    world.graph("t/takes", TAKES);
    let short = world.ryectl("run t/takes --detach -i x=1").ok().line();
    let long = world.start_run("t/long");
    assert_eq!(world.settled(&long)["status"], "completed");
    let text = "x".repeat(400_000);
    let state = json!({"inputs": {}, "x": text, "y": "\"é\"", "z": text});

    assert_eq!(world.ryectl("state").arg(&long).ok().json(), state);
    let record = world.record(&long);
    assert_eq!((&record["state"], &record["output"]), (&state, &state));
    let waited = world.ryectl(&format!("wait {short} {long} {short} --json"));
    let waited = waited.ok().json();
    let states: Vec<_> = waited
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["state"]["x"])
        .collect();
    assert_eq!(states, [&json!("1"), &json!(text), &json!("1")]);
    assert_eq!(waited[1]["output"], state);
}
