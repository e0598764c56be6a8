//! A client that somebody else wrote in another language, as it ships: grpc for Python with its reflection client. `RYE_GRPC_PYTHON` names
//! a Python that has `grpcio` and `grpcio-reflection`; without it this test says so and checks nothing.

use rye_tests::World;
use rye_tests::command::in_clean_environment;
use serde_json::{Value, json};

const ASKS: &str = r#"start: build
nodes:
  build: {action: {item_id: rye/bash, params: {command: "echo built"}}, next: ask}
  ask: {type: approval, message: "Ship it?", assign: {why: "${result.comment}"}, next: done}
  done: {type: return, output: {why: "${state.why}"}}"#;

#[test]
fn a_client_of_another_language_needs_no_option() {
    let Some(python) = std::env::var_os("RYE_GRPC_PYTHON") else {
        println!("RYE_GRPC_PYTHON names no Python that has grpcio, so nothing is checked");
        return;
    };
    let world = World::new();
    world.graph("t/ask", ASKS);
    let _daemon = world.start("");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/clients/client.py");
    let ended = in_clean_environment(&python, world.root(), world.root())
        .arg(script)
        .arg(world.socket())
        .arg(world.project())
        .arg("t/ask")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}");
    let seen: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let services: Vec<_> = seen["services"].as_array().unwrap().iter().collect();
    for service in [
        "rye.v1.Items",
        "rye.v1.Node",
        "rye.v1.Runs",
        "grpc.health.v1.Health",
    ] {
        assert!(services.contains(&&json!(service)), "{seen}");
    }
    assert_eq!(seen["first"], "run_created", "{seen}");
    assert_eq!(seen["suspended"], "approval", "{seen}");
    assert_eq!(seen["question"], "Ship it?", "{seen}");
    assert_eq!(seen["last"], "graph_completed", "{seen}");
    assert_eq!(seen["output"], json!({"why": "from Python"}), "{seen}");
    assert_eq!(seen["logs"], "built\n", "{seen}");
    assert!(
        seen["listed"].as_array().unwrap().contains(&seen["run"]),
        "{seen}"
    );
}
