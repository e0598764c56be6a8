//! Nodes about managed processes: services of a graph, and waits for a process.

use std::fs;
use std::net::TcpListener;

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{named, start, stop, until_named};

/// A server of the project's files on the port `http`, which says so first.
const SERVER: &str =
    "echo compiled in 42 ms; exec python3 -m http.server --bind 127.0.0.1 {port.http}";

/// Requests a page of the service `web`, and prints the status.
const GET: &str = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:${services.web.ports.http}/').status)\"";

/// A graph with the service `web`, then these nodes from `boot` on.
fn graph(world: &World, name: &str, web: &Value, rest: &Value) {
    let mut service = json!({
        "type": "service", "command": SERVER, "ports": {"http": "auto"}, "ready": {"http": {"port": "http"}}, "next": "boot",
    });
    let more = web.as_object().unwrap().clone();
    service.as_object_mut().unwrap().extend(more);
    let mut nodes = json!({"web": service, "done": {"type": "return"}});
    let rest = rest.as_object().unwrap().clone();
    nodes.as_object_mut().unwrap().extend(rest);
    world.graph(name, &json!({"start": "web", "nodes": nodes}).to_string());
}

fn bash(command: &str, next: &str) -> Value {
    json!({
        "action": {"item_id": "rye/bash", "params": {"command": command}},
        "assign": {"answer": "${result.stdout}", "port": "${services.web.ports.http}", "up": "${services.web}"},
        "next": next,
    })
}

/// The port that the run has in its state.
fn port(run: &Value) -> u16 {
    let port = run["state"]["port"].as_u64();
    port.unwrap_or_else(|| panic!("no port in {run}"))
        .try_into()
        .unwrap()
}

fn steps(world: &World, run: &str) -> Vec<(String, String)> {
    let steps = world.ryectl("steps --json").arg(run).ok().json();
    let text = |step: &Value, key: &str| step[key].as_str().unwrap_or_default().to_owned();
    let steps = steps.as_array().unwrap().iter();
    steps
        .map(|step| (text(step, "node"), text(step, "status")))
        .collect()
}

#[test]
fn service_is_tested_over_http_and_its_port_is_free_when_the_run_has_ended() {
    let world = World::new();
    let _daemon = world.start("");
    let boot = json!({
        "type": "wait", "process": "${services.web.handle}", "line": "compiled in (?<ms>[0-9]+)", "for": 60,
        "assign": {"ms": "${result.groups.ms}", "stream": "${result.stream}"}, "next": "tests",
    });
    let rest = json!({"boot": boot, "tests": bash(GET, "done")});
    graph(&world, "t/serve", &json!({}), &rest);
    // Two at once, each on a port of its own.
    let (one, two) = (world.start_run("t/serve"), world.start_run("t/serve"));
    let mut ports = Vec::new();
    for run in [one, two] {
        let ended = world.settled(&run);
        assert_eq!(ended["status"], "completed", "{ended}");
        let state = &ended["state"];
        assert_eq!(state["answer"].as_str().unwrap().trim(), "200");
        assert_eq!(
            (&state["ms"], &state["stream"]),
            (&json!("42"), &json!("stdout"))
        );
        assert_eq!(
            (&state["up"]["running"], &state["up"]["ready"]),
            (&json!(true), &json!(true))
        );
        assert!(state.get("services").is_none());
        TcpListener::bind(("127.0.0.1", port(&ended))).unwrap();
        let handle = state["up"]["handle"].as_str().unwrap();
        assert_eq!(world.record(handle)["status"], "cancelled");
        let words = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = pairs.iter();
            pairs
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let expected = [
            ("web", "service"),
            ("boot", "wait"),
            ("tests", "ok"),
            ("done", "return"),
        ];
        assert_eq!(steps(&world, &run), words(&expected));
        ports.push(port(&ended));
    }
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn service_that_is_not_ready_fails_its_node_and_is_stopped() {
    let world = World::new();
    let _daemon = world.start("");
    let rest = json!({"boot": bash("true", "done")});
    let slow = json!({"command": "echo so far; exec sleep 60", "ready_timeout": 0.5});
    graph(&world, "t/slow", &slow, &rest);
    let crash = json!({"command": "echo oops >&2; exit 3", "restart": "no"});
    graph(&world, "t/crash", &crash, &rest);
    for (name, part, stream) in [
        ("t/slow", "nothing listens on its port", "stdout_tail"),
        ("t/crash", "exited with code 3", "stderr_tail"),
    ] {
        let run = world.start_run(name);
        let ended = world.settled(&run);
        let error = &ended["error"];
        assert_eq!(
            (&error["code"], &error["node"]),
            (&json!("service_not_ready"), &json!("web")),
            "{ended}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
        assert!(
            !error[stream].as_str().unwrap_or_default().is_empty(),
            "{error}"
        );
        until_named(&world, "sleep", 0);
    }
}

#[test]
fn service_is_up_again_after_the_daemon_is_killed_and_each_step_completes_once() {
    let world = World::new();
    let daemon = world.start("");
    let wait = "until [ -e go ]; do sleep 0.05; done; ";
    let rest = json!({"boot": bash(&format!("{wait}{GET}"), "done")});
    graph(&world, "t/serve", &json!({"restart": "no"}), &rest);
    let run = world.start_run("t/serve");
    until("the step behind the service", || {
        let steps = steps(&world, &run);
        (steps.len() == 2).then_some(())
    });
    daemon.kill();
    let _daemon = world.start("");
    fs::write(world.project().join("go"), "").unwrap();
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["state"]["answer"].as_str().unwrap().trim(), "200");
    let nodes: Vec<String> = steps(&world, &run)
        .into_iter()
        .map(|(node, _)| node)
        .collect();
    assert_eq!(nodes, ["web", "boot", "done"]);
    assert_eq!(named(&world, "python3"), []);
}

#[test]
fn suspended_run_keeps_its_service() {
    let world = World::new();
    let _daemon = world.start("");
    let ask = json!({"type": "approval", "message": "go on?", "next": "tests"});
    let rest = json!({"boot": ask, "tests": bash(GET, "done")});
    graph(&world, "t/serve", &json!({}), &rest);
    let run = world.start_run("t/serve");
    let suspended = world.settled(&run);
    assert_eq!(suspended["status"], "suspended", "{suspended}");
    let before = named(&world, "python3");
    assert_eq!(before.len(), 1);
    let _approved = world.ryectl("approve").arg(&run).ok();
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["state"]["answer"].as_str().unwrap().trim(), "200");
    assert_eq!(named(&world, "python3"), []);
}

#[test]
fn service_that_cannot_be_started_again_fails_the_step_at_hand() {
    let world = World::new();
    let daemon = world.start("");
    let once = "if [ -e once ]; then exit 9; fi; touch once; exec python3 -m http.server --bind 127.0.0.1 {port.http}";
    let rest = json!({"boot": bash("exec sleep 60", "done")});
    graph(
        &world,
        "t/once",
        &json!({"command": once, "restart": "no"}),
        &rest,
    );
    let run = world.start_run("t/once");
    until_named(&world, "sleep", 1);
    daemon.kill();
    let _daemon = world.start("");
    let ended = world.settled(&run);
    let error = &ended["error"];
    assert_eq!(
        (&error["code"], &error["node"]),
        (&json!("service_lost"), &json!("boot")),
        "{ended}"
    );
    assert!(
        error["message"].as_str().unwrap().contains("`web`"),
        "{error}"
    );
    until_named(&world, "sleep", 0);
}

#[test]
fn waits_for_a_process_lose_no_line_and_fail_by_name() {
    let world = World::new();
    let _daemon = world.start("");
    let printer = start(
        &world,
        json!({"command": "for i in 1 2 3; do echo line $i; done; exec sleep 60", "name": "printer"}),
    );
    let line = |next: &str| {
        json!({
            "type": "wait", "process": "${inputs.process}", "line": "line (?<n>.)", "for": 60,
            "assign": {"seen": "${state.seen | append(result.groups.n)}"}, "next": next,
        })
    };
    let nodes = json!({"one": line("two"), "two": line("three"), "three": line("done"), "done": {"type": "return"}});
    let config = json!({"start": "one", "state": {"seen": []}, "nodes": nodes});
    world.graph("t/lines", &config.to_string());
    let nodes = json!({
        "late": {"type": "wait", "process": "${inputs.process}", "line": "never", "for": 0.2, "on_error": "over", "next": "over"},
        "over": {"type": "wait", "process": "${inputs.process}", "exit": true, "for": 60,
            "assign": {"late": "${state._last_error.code}", "signal": "${result.signal}", "cause": "${result.cause}"}, "next": "gone"},
        "gone": {"type": "wait", "process": "${inputs.process}", "ready": true},
    });
    world.graph(
        "t/ends",
        &json!({"start": "late", "nodes": nodes}).to_string(),
    );
    let begin = |graph: &str| {
        let run = world.ryectl("run --detach").arg(graph);
        run.arg("-i").arg(format!("process={printer}")).ok().line()
    };
    let lines = world.settled(&begin("t/lines"));
    assert_eq!(lines["state"]["seen"], json!(["1", "2", "3"]), "{lines}");
    let run = begin("t/ends");
    until("the second wait", || {
        (steps(&world, &run).len() == 2).then_some(())
    });
    stop(&world, &printer);
    let ended = world.settled(&run);
    let state = &ended["state"];
    assert_eq!(
        (&state["late"], &state["signal"], &state["cause"]),
        (&json!("wait_timeout"), &json!(15), &json!("cancelled")),
        "{ended}"
    );
    assert_eq!(ended["error"]["code"], "process_ended", "{ended}");
}

#[test]
fn graph_with_a_wrong_service_is_refused() {
    let world = World::new();
    let _daemon = world.start("");
    for (name, nodes, part) in [
        (
            "t/name",
            json!({"web": {"type": "service"}}),
            "`command` is missing",
        ),
        (
            "t/other",
            json!({"web": {"type": "fail", "message": "${services.wbe.handle}"}, "b": {"type": "service", "command": "x"}}),
            "no node `wbe` has `type: service`",
        ),
        (
            "t/fact",
            json!({"web": {"type": "service", "command": "x", "assign": {"p": "${services.web.port}"}}}),
            "a service has no `port`",
        ),
        (
            "t/both",
            json!({"web": {"type": "wait", "process": "p", "line": "x", "exit": true}}),
            "exactly one of",
        ),
    ] {
        world.graph(name, &json!({"start": "web", "nodes": nodes}).to_string());
        let refused = world.ryectl("graph validate").arg(name).run().code(1);
        let text = format!("{}{}", refused.stdout(), refused.stderr());
        assert!(text.contains(part), "{name}: {text}");
    }
}
