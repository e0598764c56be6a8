//! Clients in another language with its usual libraries: gRPC for Python, with its reflection client and with code
//! generated from the contract. `RYE_GRPC_PYTHON` names a Python with `grpcio`, `grpcio-reflection` and `grpcio-tools`.
//! Without it these tests report that and check nothing.

use rye_tests::command::in_clean_environment;
use rye_tests::{World, skipped};
use serde_json::{Value, json};

use crate::pages::example;

const ASKS: &str = r#"start: build
nodes:
  build: {action: {item_id: rye/bash, params: {command: "echo built"}}, next: ask}
  ask: {type: approval, message: "Ship it?", assign: {why: "${result.comment}"}, next: done}
  done: {type: return, output: {why: "${state.why}"}}"#;

#[test]
fn a_client_of_another_language_needs_no_option() {
    let Some(python) = std::env::var_os("RYE_GRPC_PYTHON") else {
        skipped("RYE_GRPC_PYTHON names no Python that has grpcio");
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

#[test]
fn documented_python_client_works_as_shown() {
    let Some(python) = std::env::var_os("RYE_GRPC_PYTHON") else {
        skipped("RYE_GRPC_PYTHON names no Python that has grpcio");
        return;
    };
    let world = World::new();
    let run = |arguments: &[&std::ffi::OsStr]| {
        in_clean_environment(&python, world.root(), world.root())
            .args(arguments)
            .output()
            .unwrap()
    };
    let has_tools = run(&["-c".as_ref(), "import grpc_tools".as_ref()]);
    if !has_tools.status.success() {
        skipped("the Python of RYE_GRPC_PYTHON has no grpcio-tools");
        return;
    }
    let page = "docs/call-from-another-language.md";
    let program = world.root().join("ship.py");
    std::fs::write(&program, example(page, "ship.py")).unwrap();
    let graph = example("docs/ask-for-approval.md", "team/ship");
    world.tool("team/ship.yaml", &graph);
    let contract = rye_pages::root().join("proto/proto");
    let generate = "-m grpc_tools.protoc --python_out=. --grpc_python_out=. rye/v1/rye.proto -I";
    let mut generate: Vec<&std::ffi::OsStr> = generate.split(' ').map(AsRef::as_ref).collect();
    generate.push(contract.as_os_str());
    let generated = run(&generate);
    let said = String::from_utf8_lossy(&generated.stderr);
    assert!(generated.status.success(), "{said}");
    let _daemon = world.start("");
    let (socket, project) = (world.socket(), world.project());
    let call = |graph: &str| {
        let arguments = [
            program.as_os_str(),
            socket.as_os_str(),
            project.as_os_str(),
            graph.as_ref(),
        ];
        let ended = run(&arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            ended.status.code(),
            text(&ended.stdout),
            text(&ended.stderr),
        )
    };
    let (code, said, complaint) = call("team/ship");
    assert_eq!(code, Some(0), "{said}{complaint}");
    for part in [
        "event: 1 run_created\n",
        "asked: Ship 1.2?\n",
        "graph_completed\n",
        "ended: RUN_STATUS_COMPLETED {\"said\":\"shipped to 2\"",
        "log: step 1 build | built 1.2\n",
        "log: step 3 ship | shipped to 2\n",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let (code, said, complaint) = call("team/none");
    assert!(said.contains("before: team-ship-"), "{said}");
    assert_eq!(code, Some(2), "{complaint}");
    assert!(
        complaint.starts_with("NOT_FOUND (not_found): "),
        "{complaint}"
    );
}
