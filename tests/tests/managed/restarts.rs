//! Restarts after failures and on request, and the signs by which a process is ready.

use std::thread;

use rye_tests::{World, until};
use serde_json::json;

use super::{call, events, handle, named, start, status, status_when, stop, until_named};

#[test]
fn crashing_process_restarts_until_its_limit_is_used_up() {
    let world = World::new();
    let _daemon = world.start("");
    let begin = json!({"action": "start", "command": "echo go; exit 7", "name": "crash", "restart": "on-failure",
        "max_restarts": 2, "ready_pattern": "never", "ready_timeout": 0.1});
    let crash = handle(&call(&world, &begin));
    let record = world.settled(&crash);
    assert_eq!(record["error"]["code"], "process_exited", "{record}");
    assert_eq!(record["error"]["exit_code"], 7);
    let ended = status(&world, &crash);
    assert_eq!(
        (&ended["restarts"], &ended["status"]),
        (&json!(2), &json!("exited"))
    );
    let events = events(&world, &crash);
    let count = |name: &str| events.iter().filter(|event| *event == name).count();
    assert_eq!(count("process_launched"), 3);
    assert_eq!(count("process_exited"), 3);
    assert_eq!(count("process_restart_scheduled"), 2);
}

#[test]
fn process_that_is_ready_late_is_answered_for_and_becomes_ready() {
    let world = World::new();
    let _daemon = world.start("");
    let begin = json!({"action": "start", "name": "late", "ready_pattern": "^listening on [0-9]+$", "ready_timeout": 0.2,
        "command": "until [ -e go ]; do sleep 0.05; done; printf '\\033[32mlistening\\033[0m on 80\\n'; exec sleep 60"});
    let started = call(&world, &begin);
    assert_eq!(
        (&started["running"], &started["ready"]),
        (&json!(true), &json!(false))
    );
    let late = handle(&started);
    world.write("go", "");
    let waited = call(
        &world,
        &json!({"action": "wait", "handle_id": late, "for": "ready"}),
    );
    assert_eq!(waited["ready"], true);
    let _stopped = stop(&world, &late);
}

#[test]
fn pattern_is_matched_by_the_current_attempt_only() {
    let world = World::new();
    let _daemon = world.start("");
    let server = start(
        &world,
        json!({"name": "once", "ready_pattern": "ready", "ready_timeout": 0.5,
            "command": "if [ ! -e second ]; then touch second; echo ready; fi; exec sleep 60"}),
    );
    assert_eq!(status(&world, &server)["ready"], true);
    let restarted = call(&world, &json!({"action": "restart", "handle_id": server}));
    assert_eq!(
        (
            &restarted["running"],
            &restarted["ready"],
            &restarted["restarts"]
        ),
        (&json!(true), &json!(false), &json!(1))
    );
    let _stopped = stop(&world, &server);
}

#[test]
fn hostile_pattern_is_given_up_with_a_warning() {
    let world = World::new();
    let _daemon = world.start("");
    let line = "a".repeat(200);
    let begin = json!({"action": "start", "name": "bomb", "ready_timeout": 0.5, "ready_pattern": "^(?=(a|aa|aaa)+$)(a|aa)+b\\1$",
        "command": format!("for i in 1 2 3 4 5; do echo {line}; done; exec sleep 60")});
    let started = call(&world, &begin);
    assert_eq!(started["ready"], false);
    let bomb = handle(&started);
    let _stopped = stop(&world, &bomb);
}

#[test]
fn concurrent_restarts_and_stops_leave_one_process_or_none() {
    let world = World::new();
    let _daemon = world.start("");
    let server = start(&world, json!({"command": "exec sleep 60", "name": "nap"}));
    let restart = json!({"action": "restart", "handle_id": server});
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| drop(super::envelope(&world, &restart)));
        }
    });
    let now = status_when(&world, &server, "one that is ready", |now| {
        now["ready"] == true
    });
    assert_eq!(named(&world, "sleep").len(), 1, "{now}");
    let end = json!({"action": "stop", "handle_id": server});
    thread::scope(|scope| {
        for turn in 0..20 {
            let params = if turn % 2 == 0 { &restart } else { &end };
            scope.spawn(|| drop(super::envelope(&world, params)));
        }
    });
    until_named(&world, "sleep", 0);
    assert_eq!(status(&world, &server)["status"], "stopped");
    let ended = events(&world, &server);
    let launched = ended
        .iter()
        .filter(|name| *name == "process_launched")
        .count();
    let exited = ended
        .iter()
        .filter(|name| *name == "process_exited")
        .count();
    assert_eq!(launched, exited, "each attempt has one end: {ended:?}");
}

#[test]
fn process_that_ignores_term_is_killed_after_its_grace() {
    let world = World::new();
    let _daemon = world.start("");
    let deaf = start(
        &world,
        json!({"command": "trap '' TERM; echo on; while :; do sleep 0.1; done", "name": "deaf", "grace": 0.3,
            "ready_pattern": "on"}),
    );
    let stopped = stop(&world, &deaf);
    assert_eq!(
        (&stopped["stopped"], &stopped["signal"]),
        (&json!(true), &json!(9))
    );
    until("nothing is left", || {
        named(&world, "bash").is_empty().then_some(())
    });
}
