//! The daemon dies while programs call it.

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{below, node};

/// An inner graph of three commands, each of which appends a line. The second waits for the file `go`.
fn inner(world: &World) {
    let step = |name: &str, command: &str, next: &str| {
        format!(
            "  {name}: {{action: {{item_id: rye/bash, params: {{command: {}}}}}, next: {next}}}\n",
            json!(command)
        )
    };
    let steps = [
        step("one", "echo one >> done", "two"),
        step(
            "two",
            "touch waits; until [ -e go ]; do sleep 0.02; done; echo two >> done",
            "three",
        ),
        step("three", "echo three >> done", "end"),
    ];
    let steps = steps.concat();
    world.graph(
        "t/inner",
        &format!("start: one\nnodes:\n{steps}  end: {{type: return}}"),
    );
}

fn caller(world: &World, key: &str) -> String {
    let command = format!(
        "echo '{{\"id\": 1, \"call\": \"execute\", \"item_id\": \"t/inner\", \"params\": {{}}{key}}}' | \"$RYE_CTL\" call"
    );
    node(world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    until("the second inner step", || {
        world.project().join("waits").exists().then_some(())
    });
    run
}

#[test]
fn keyed_call_continues_after_the_daemon_died_and_its_run_is_not_started_twice() {
    let world = World::new();
    inner(&world);
    let daemon = world.start("");
    let run = caller(&world, ", \"idempotency_key\": \"k\"");
    daemon.kill();
    let _daemon = world.start("");
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let below = below(&world, &run);
    assert_eq!(below.len(), 1, "{below:?}");
    assert_eq!(below[0]["status"], "completed");
    assert_eq!(world.read("done"), "one\ntwo\nthree\n");
    let out = record["output"]["out"]["stdout"].as_str().unwrap();
    assert!(out.contains("\"status\":\"success\""), "{out}");
}

#[test]
fn call_without_a_key_is_made_again_and_its_run_ends() {
    let world = World::new();
    inner(&world);
    let daemon = world.start("");
    let run = caller(&world, "");
    daemon.kill();
    let _daemon = world.start("");
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let below = below(&world, &run);
    let ends: Vec<&str> = below
        .iter()
        .map(|run| run["status"].as_str().unwrap())
        .collect();
    assert_eq!(ends, ["cancelled", "completed"], "{below:?}");
}

#[test]
fn kill_of_a_run_ends_the_runs_of_its_programs_and_nothing_begins() {
    let world = World::new();
    inner(&world);
    let _daemon = world.start("");
    let run = caller(&world, "");
    let _killed = world.ryectl("kill --grace 0.1").arg(&run).ok();
    assert_eq!(world.record(&run)["status"], "killed");
    let below = below(&world, &run);
    assert_eq!(below.len(), 1);
    assert_eq!(below[0]["status"], "killed");
    assert_eq!(world.read("done"), "one\n");
}

#[test]
fn spawn_bomb_that_calls_back_ends_with_the_kill_of_its_run() {
    let world = World::new();
    let _daemon = world.start("");
    // Each run starts three more, and so does each orphan that it leaves.
    let call = json!({"id": 1, "call": "execute", "item_id": "t/bomb", "params": {}});
    let command = format!(
        "for i in 1 2 3; do (echo '{call}' | \"$RYE_CTL\" call; echo '{call}' | \"$RYE_CTL\" call) & done; wait; sleep 60"
    );
    let command = json!(command);
    world.graph_with(
        "t/bomb",
        "permissions: [rye.execute.*]",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: {command}}}}}, next: b}}\n  b: {{type: return}}"
        ),
    );
    let run = world.start_run("t/bomb");
    let all = || {
        let listed = world.ryectl("ps --all --json").ok().json();
        listed.as_array().unwrap().clone()
    };
    until("the bomb to grow", || (all().len() >= 12).then_some(()));
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    let killed = all();
    let live: Vec<_> = killed
        .iter()
        .filter(|run| run["ended_at"].is_null())
        .collect();
    assert!(live.is_empty(), "{live:?}");
    let left = world.processes();
    let left: Vec<_> = left.iter().filter(|left| left.name != "ryed").collect();
    assert!(left.is_empty(), "{left:?}");
    // Whatever was on its way was refused.
    let _later = world
        .ryectl("execute tool rye/core/echo --params {\"text\":\"x\"}")
        .ok();
    let bombs = |runs: &[Value]| {
        let ids = runs.iter().map(|run| run["run_id"].as_str().unwrap());
        ids.filter(|id| !id.contains("echo")).count()
    };
    assert_eq!(bombs(&all()), bombs(&killed));
}

#[test]
fn key_of_a_call_belongs_to_its_parameters() {
    let world = World::new();
    let _daemon = world.start("");
    let call = |text: &str| {
        format!(
            "{{\"id\": \"{text}\", \"call\": \"execute\", \"item_id\": \"rye/core/echo\", \"params\": {{\"text\": \"{text}\"}}, \"idempotency_key\": \"k\"}}"
        )
    };
    // One after the other, as the second needs the first.
    let command = format!(
        "echo '{}' | \"$RYE_CTL\" call; echo '{}' | \"$RYE_CTL\" call; echo '{}' | \"$RYE_CTL\" call",
        call("a"),
        call("a"),
        call("b")
    );
    node(&world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    let out = record["output"]["out"]["stdout"].as_str().unwrap();
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["result"]["status"], "success", "{out}");
    assert_eq!(lines[1]["result"]["status"], "success", "{out}");
    assert!(
        lines[2]["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("other parameters")),
        "{out}"
    );
    assert_eq!(below(&world, &run).len(), 1);
}
