//! The runs that own processes, and the daemon.

use std::net::TcpListener;

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{call, envelope, events, handle, named, start, status, stop, until_named};

/// A port that nothing listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A graph that starts `sleep 60` and then does `next`.
fn owner(world: &World, next: &str) {
    world.graph(
        "t/owner",
        &format!(
            "start: a\nnodes:\n  a:\n    action: {{item_id: rye/agent/threads/managed_subprocess, params: {{action: start, command: exec sleep 60, name: nap}}}}\n    \
             assign: {{handle: \"${{result.handle_id}}\"}}\n    next: b\n  b: {next}\n  done: {{type: return}}"
        ),
    );
}

/// The process that the run has started.
fn child(world: &World, run: &str) -> String {
    let started = || {
        let events = world.ryectl("events --json").arg(run).ok().json_lines();
        let mut started = events.into_iter();
        let started = started.find(|event| event["event_type"] == "child_started")?;
        Some(started["payload"]["child"].as_str().unwrap().to_owned())
    };
    until("the process", started)
}

#[test]
fn server_is_tested_by_a_later_node_and_ends_with_its_graph() {
    let world = World::new();
    let _daemon = world.start("");
    let port = free_port();
    world.graph(
        "t/serve",
        &format!(
            "start: serve\nnodes:\n  serve:\n    action:\n      item_id: rye/agent/threads/managed_subprocess\n      params: {{action: start, \
             command: 'sleep 0.3; exec python3 -m http.server {port} --bind 127.0.0.1', ready_port: {port}, name: web}}\n    \
             assign: {{handle: \"${{result.handle_id}}\"}}\n    next: test\n  test:\n    action:\n      item_id: rye/bash\n      params:\n        \
             command: \"python3 -c \\\"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/').status)\\\"\"\n    \
             assign: {{answer: \"${{result.stdout}}\"}}"
        ),
    );
    let run = world.start_run("t/serve");
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["state"]["answer"].as_str().unwrap().trim(), "200");
    assert_eq!(ended["spawn_count"], 1, "{ended}");
    let server = ended["state"]["handle"].as_str().unwrap().to_owned();
    let over = world.settled(&server);
    assert_eq!(over["status"], "cancelled", "{over}");
    assert_eq!(over["parent_id"], run);
    until("the port is free", || {
        TcpListener::bind(("127.0.0.1", port)).ok().map(drop)
    });
}

#[test]
fn every_end_of_its_owner_stops_a_process() {
    let world = World::new();
    let _daemon = world.start("");
    for (next, end, status) in [
        ("{type: return}", None, "completed"),
        (
            "{action: {item_id: rye/bash, params: {command: exit 1}}}",
            None,
            "error",
        ),
        (
            "{type: wait, for: 600, next: done}",
            Some("cancel"),
            "cancelled",
        ),
        ("{type: wait, for: 600, next: done}", Some("kill"), "killed"),
    ] {
        owner(&world, next);
        let run = world.start_run("t/owner");
        let nap = child(&world, &run);
        if let Some(verb) = end {
            until_named(&world, "sleep", 1);
            let _ended = world.ryectl(verb).arg(&run).ok();
        }
        assert_eq!(world.settled(&run)["status"], status);
        let over = world.settled(&nap)["status"].clone();
        let expected = if status == "killed" {
            "killed"
        } else {
            "cancelled"
        };
        assert_eq!(over, expected, "{status}");
        until_named(&world, "sleep", 0);
    }
}

#[test]
fn suspended_owner_keeps_its_processes() {
    let world = World::new();
    let _daemon = world.start("");
    owner(&world, "{type: wait, for: 600, next: done}");
    let run = world.start_run("t/owner");
    let nap = child(&world, &run);
    until_named(&world, "sleep", 1);
    let _suspended = world.ryectl("suspend").arg(&run).ok();
    assert_eq!(world.record(&run)["status"], "suspended");
    assert_eq!(status(&world, &nap)["running"], true);
    let _cancelled = world.ryectl("cancel").arg(&run).ok();
    assert_eq!(world.settled(&nap)["status"], "cancelled");
}

#[test]
fn processes_count_among_the_child_runs_of_their_owner() {
    let world = World::new();
    let _daemon = world.start("");
    owner(&world, "{type: return}");
    let run = world
        .ryectl("run t/owner --limit spawns=0 --detach")
        .ok()
        .line();
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "error", "{ended}");
    let text = ended["error"]["message"].as_str().unwrap();
    assert!(text.contains("child runs"), "{text}");
    assert_eq!(named(&world, "sleep"), []);
}

#[test]
fn graph_stops_only_its_own_processes() {
    let world = World::new();
    let _daemon = world.start("");
    let nap = start(&world, json!({"command": "exec sleep 60", "name": "nap"}));
    world.graph(
        "t/other",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: rye/agent/threads/managed_subprocess, params: {{action: status, handle_id: {nap}}}}}, \
             assign: {{seen: \"${{result.running}}\"}}, next: b}}\n  b: {{action: {{item_id: rye/agent/threads/managed_subprocess, params: \
             {{action: stop, handle_id: {nap}}}}}}}"
        ),
    );
    let run = world.start_run("t/other");
    let ended = world.settled(&run);
    assert_eq!(
        (&ended["state"]["seen"], &ended["status"]),
        (&json!(true), &json!("error"))
    );
    assert_eq!(ended["error"]["code"], "permission_denied", "{ended}");
    assert_eq!(status(&world, &nap)["running"], true);
    let _stopped = stop(&world, &nap);
}

#[test]
fn port_that_is_taken_refuses_the_start() {
    let world = World::new();
    let _daemon = world.start("");
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = json!({"action": "start", "command": "sleep 60", "ready_port": port});
    let refused = envelope(&world, &start);
    assert_eq!(refused["metadata"]["code"], "port_in_use", "{refused}");
    assert_eq!(named(&world, "sleep"), []);
}

#[test]
fn killed_daemon_leaves_no_process_and_starts_at_most_one() {
    for (policy, expected) in [("no", "stale"), ("on-failure", "running")] {
        let world = World::new();
        let daemon = world.start("");
        let nap = start(
            &world,
            json!({"command": "exec sleep 60", "name": "nap", "restart": policy}),
        );
        until_named(&world, "sleep", 1);
        let first = named(&world, "sleep").remove(0).pid;
        daemon.kill();
        until_named(&world, "sleep", 0);
        let _daemon = world.start("");
        let now = until("its state", || {
            let now = status(&world, &nap);
            let is_settled = now["ready"] == true || now["status"] == "stale";
            is_settled.then_some(now)
        });
        assert_eq!(now["status"], expected, "{now}");
        let count = usize::from(policy != "no");
        let seen = named(&world, "sleep");
        assert_eq!(seen.len(), count, "{seen:?}");
        assert!(seen.iter().all(|process| process.pid != first));
        if policy == "no" {
            assert_eq!(world.record(&nap)["error"]["code"], "interrupted");
        } else {
            assert_eq!(now["restarts"], 1);
            let again = call(
                &world,
                &json!({"action": "start", "command": "exec sleep 60", "name": "nap"}),
            );
            assert_eq!(
                (handle(&again), &again["exists"]),
                (nap.clone(), &Value::Bool(true))
            );
            let _stopped = stop(&world, &nap);
        }
        let launched = events(&world, &nap);
        let launched = launched.iter().filter(|name| *name == "process_launched");
        assert_eq!(launched.count(), count + 1);
    }
}

#[test]
fn output_of_a_removed_process_is_removed() {
    let world = World::new();
    let _daemon = world.start("");
    let nap = start(
        &world,
        json!({"command": "echo x; exec sleep 60", "name": "nap"}),
    );
    let directory = world.state().join("procs").join(&nap);
    until("its output", || {
        directory.join("out.log").exists().then_some(())
    });
    let _stopped = stop(&world, &nap);
    let _removed = world.ryectl("rm").arg(&nap).ok();
    assert!(!directory.exists());
}
