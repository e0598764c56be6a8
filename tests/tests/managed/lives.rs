//! From the start of a process to its end.

use rye_tests::{World, until};
use serde_json::json;

use super::{
    call, envelope, events, handle, named, printed, start, status, status_when, stop, until_named,
};

#[test]
fn sleep_is_started_seen_and_stopped() {
    let world = World::new();
    let _daemon = world.start("");
    let begin = json!({"action": "start", "command": "sleep 60", "name": "nap"});
    let started = call(&world, &begin);
    assert_eq!(
        (&started["running"], &started["ready"], &started["name"]),
        (&json!(true), &json!(true), &json!("nap"))
    );
    let nap = handle(&started);
    assert!(nap.starts_with("nap-"), "{nap}");
    let pid = started["pid"].as_i64().unwrap();
    let seen = named(&world, "sleep");
    assert_eq!(seen.len(), 1);
    assert!(seen.iter().any(|process| i64::from(process.pid) >= pid));

    let again = call(&world, &begin);
    assert_eq!(
        (&again["exists"], handle(&again)),
        (&json!(true), nap.clone())
    );
    assert_eq!(named(&world, "sleep").len(), 1, "nothing starts");
    let listed = call(&world, &json!({"action": "list"}));
    assert_eq!(
        (&listed["count"], handle(&listed["processes"][0])),
        (&json!(1), nap.clone())
    );

    let stopped = stop(&world, &nap);
    assert_eq!(
        (&stopped["stopped"], &stopped["running"], &stopped["signal"]),
        (&json!(true), &json!(false), &json!(15))
    );
    assert_eq!(named(&world, "sleep"), []);
    assert_eq!(stop(&world, &nap)["status"], "stopped", "again");
    assert_eq!(status(&world, &nap)["status"], "stopped");
    assert_eq!(call(&world, &json!({"action": "list"}))["count"], 0);
    assert_eq!(
        events(&world, &nap),
        [
            "run_created",
            "run_started",
            "process_launched",
            "process_started",
            "process_ready",
            "cancel_requested",
            "process_exited",
            "process_ended"
        ]
    );
    let anew = handle(&call(&world, &begin));
    assert_ne!(
        anew, nap,
        "a process that has ended is not found by its name"
    );
    let _stopped = stop(&world, &anew);
}

#[test]
fn process_run_works_with_the_verbs_of_runs() {
    let world = World::new();
    let _daemon = world.start("");
    let nap = start(
        &world,
        json!({"command": "echo hello; exec sleep 60", "name": "nap"}),
    );
    let record = world.record(&nap);
    assert_eq!(
        (&record["kind"], &record["status"]),
        (&json!("process"), &json!("running"))
    );
    let listed = world.ryectl("ps --json").ok().json();
    assert_eq!(listed[0]["run_id"], nap);
    let _tree = world.ryectl("tree").arg(&nap).ok().prints(&[&nap]);
    until("its output", || {
        let logs = world.ryectl("logs").arg(&nap).ok();
        logs.stdout().contains("hello").then_some(())
    });
    let refused = world.ryectl("suspend").arg(&nap).run().code(5);
    let _refused = refused.stderr_contains(&["proc stop"]);
    let killed = world.ryectl("kill --json").arg(&nap).ok().json();
    assert_eq!(killed["survivors"], json!([]));
    assert!(
        !killed["processes"].as_array().unwrap().is_empty(),
        "{killed}"
    );
    let _waited = world.ryectl("wait").arg(&nap).run().code(1);
    let file = format!(".ai/state/threads/{nap}/process.json");
    let shown = until("the handle file", || {
        let path = world.project().join(&file);
        let text = std::fs::read_to_string(path).ok()?;
        let shown: serde_json::Value = serde_json::from_str(&text).ok()?;
        (shown["status"] == "stopped").then_some(shown)
    });
    assert_eq!(
        (&shown["handle"], &shown["command"]),
        (&json!(nap), &json!("echo hello; exec sleep 60"))
    );
    assert_eq!(status(&world, &nap)["status"], "stopped");
    until_named(&world, "sleep", 0);
}

#[test]
fn end_of_a_process_has_its_exit_code_and_last_lines() {
    let world = World::new();
    let _daemon = world.start("");
    let failed = envelope(
        &world,
        &json!({"action": "start", "command": "echo out; echo oops >&2; exit 3", "name": "bad", "ready_pattern": "never"}),
    );
    assert_eq!(failed["status"], "error", "{failed}");
    let data = &failed["data"];
    assert_eq!(
        (&data["exit_code"], &data["status"]),
        (&json!(3), &json!("exited"))
    );
    let bad = handle(data);
    let mut lines = printed(&world, &bad);
    lines.sort();
    assert_eq!(lines, ["oops", "out"]);
    let record = world.record(&bad);
    assert_eq!(record["error"]["code"], "process_exited");
    assert_eq!(record["error"]["stderr_tail"], "oops");

    let done = start(&world, json!({"command": "true", "name": "good"}));
    let ended = status_when(&world, &done, "its end", |status| {
        status["running"] == false
    });
    assert_eq!(
        (&ended["exit_code"], &ended["status"]),
        (&json!(0), &json!("exited"))
    );
    assert_eq!(world.record(&done)["status"], "completed");
}

#[test]
fn program_with_arguments_needs_no_shell_and_a_missing_one_fails_the_start() {
    let world = World::new();
    let _daemon = world.start("");
    let echo = start(
        &world,
        json!({"command": "/bin/echo", "args": ["a b", "$HOME; x"], "env": {"A": "1"}}),
    );
    assert_eq!(status(&world, &echo)["name"], "echo");
    until("the line", || {
        (printed(&world, &echo) == ["a b $HOME; x"]).then_some(())
    });
    let missing = envelope(
        &world,
        &json!({"action": "start", "command": "no-such-program", "args": []}),
    );
    assert_eq!(missing["status"], "error", "{missing}");
    assert_eq!(
        missing["metadata"]["code"], "executor_not_found",
        "{missing}"
    );
}

#[test]
fn wrong_parameters_are_refused_by_their_name() {
    let world = World::new();
    let _daemon = world.start("");
    let count = || call(&world, &json!({"action": "list", "all": true}))["count"].clone();
    for (key, value) in [
        ("name", json!("a/b")),
        ("name", json!("..")),
        ("name", json!("a\u{7}b")),
        ("cwd", json!("..")),
        ("cwd", json!("/")),
        ("env", json!({"LD_PRELOAD": "x"})),
        ("env", json!({"RYE_RUN_ID": "x"})),
        ("ready_pattern", json!("a(")),
        ("ready_port", json!(70000)),
        ("max_restarts", json!(5000)),
    ] {
        let mut params = json!({"action": "start", "command": "sleep 60"});
        params[key] = value.clone();
        let refused = envelope(&world, &params);
        assert_eq!(refused["status"], "error", "{key} {value}: {refused}");
        let text = refused["error"].as_str().unwrap();
        assert!(text.contains(key), "{key} {value}: {text}");
    }
    assert_eq!(count(), 0);
    let unknown = world.ryectl("execute tool rye/agent/threads/managed_subprocess --params");
    let unknown = unknown.arg(r#"{"action": "start", "command": "true", "forever": true}"#);
    let _refused = unknown.run().code(2).stderr_contains(&["forever"]);
}

#[test]
fn permission_for_the_tool_is_needed() {
    let world = World::new();
    let _daemon = world.start("");
    world.graph_with(
        "t/g",
        "permissions: [rye.execute.tool.rye.bash]\n",
        "start: a\nnodes:\n  a: {action: {item_id: rye/agent/threads/managed_subprocess, params: {action: start, command: sleep 60}}}",
    );
    let run = world.start_run("t/g");
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "error", "{ended}");
    assert_eq!(ended["error"]["code"], "permission_denied", "{ended}");
}
