//! Managed processes, through the programs.

mod freeze;
mod lives;
mod outputs;
mod owners;
mod ports;
mod probes;
mod restarts;
mod services;
mod survivors;
mod verbs;
mod watch;

use rye_tests::{World, processes, until};
use serde_json::{Value, json};

/// Calls the tool for a person; returns its result.
fn call(world: &World, params: &Value) -> Value {
    let envelope = envelope(world, params);
    assert_eq!(envelope["status"], "success", "{envelope}");
    envelope["data"].clone()
}

/// Calls the tool for a person; returns the whole envelope.
fn envelope(world: &World, params: &Value) -> Value {
    let mut command = world.ryectl("execute tool rye/agent/threads/managed_subprocess --json");
    command = command.arg("--params").arg(params.to_string());
    command.run().json()
}

/// Starts a process; returns its handle.
fn start(world: &World, params: Value) -> String {
    let mut params = params;
    params["action"] = json!("start");
    handle(&call(world, &params))
}

fn handle(answer: &Value) -> String {
    let handle = answer["handle_id"].as_str();
    handle
        .unwrap_or_else(|| panic!("no handle in {answer}"))
        .to_owned()
}

fn status(world: &World, handle: &str) -> Value {
    call(world, &json!({"action": "status", "handle_id": handle}))
}

fn stop(world: &World, handle: &str) -> Value {
    call(world, &json!({"action": "stop", "handle_id": handle}))
}

/// The texts of the lines that a process has printed.
fn printed(world: &World, handle: &str) -> Vec<String> {
    let logs = json!({"action": "logs", "handle_id": handle, "tail": 1000});
    let lines = call(world, &logs)["lines"].as_array().unwrap().clone();
    let text = |line: Value| line["text"].as_str().unwrap().to_owned();
    lines.into_iter().map(text).collect()
}

/// Waits until `is_so` holds of the status of a process, and returns it.
fn status_when(world: &World, handle: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    until(what, || {
        Some(status(world, handle)).filter(|status| is_so(status))
    })
}

/// Processes of the world with this name.
fn named(world: &World, name: &str) -> Vec<processes::Process> {
    let mut found = world.processes();
    found.retain(|process| process.name == name);
    found
}

/// Waits until the world has that many processes with this name.
fn until_named(world: &World, name: &str, count: usize) {
    until(&format!("{count} processes {name}"), || {
        (named(world, name).len() == count).then_some(())
    });
}

/// Types of the events of a run.
fn events(world: &World, run: &str) -> Vec<String> {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let name = |event: Value| event["event_type"].as_str().unwrap().to_owned();
    events.into_iter().map(name).collect()
}
