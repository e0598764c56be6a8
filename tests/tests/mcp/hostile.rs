//! Servers that break the protocol, and runs that are stopped: nothing waits without limit, and no process is left.

use rye_tests::{World, until};
use serde_json::json;

use super::{execute, server, until_none_is_left};

#[test]
fn a_server_that_breaks_the_rules_fails_its_call_and_nothing_else() {
    let world = World::new();
    let _daemon = world.start("");
    let quick = "  start_timeout: 30\n  timeout: 30\n";
    for (mode, code, words) in [
        ("junk", "mcp_failed", "what is no message"),
        (
            "dies",
            "mcp_failed",
            "exit code 3; it wrote last: out of luck",
        ),
        ("flood", "mcp_failed", "that answer nothing"),
        ("huge", "mcp_failed", "more than 8 MiB"),
    ] {
        server(&world, mode, quick, &["act"]);
        let out = execute(&world, &format!("mcp/{mode}/act"), &json!({}));
        assert_eq!(out["metadata"]["code"], code, "{mode}: {out}");
        assert!(
            out["error"].as_str().unwrap().contains(words),
            "{mode}: {out}"
        );
    }
    server(&world, "ids", quick, &["act", "pid"]);
    let out = execute(&world, "mcp/ids/act", &json!({}));
    assert_eq!(out["data"]["content"][0]["text"], "first", "{out}");
    server(&world, "questions", quick, &["act"]);
    let out = execute(&world, "mcp/questions/act", &json!({}));
    assert_eq!(out["data"]["content"][0]["text"], "asked", "{out}");
    until("the questions to be declined", || {
        let heard = world.read("heard.txt");
        let are_declined = heard.contains("declined s") && heard.contains("declined e");
        are_declined.then_some(())
    });
    until_none_is_left(&world);
}

#[test]
fn nonconforming_mcp_answer_is_kept_with_warning() {
    let world = World::new();
    let _daemon = world.start("");
    let quick = "  start_timeout: 5\n  timeout: 5\n";
    for mode in ["odd", "failed", "unclear"] {
        server(&world, mode, quick, &["act", "pid"]);
    }
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: mcp/odd/act}, assign: {content: \"${result.content}\"}, next: b}\n  \
         b: {type: return, output: {content: \"${state.content}\"}}",
    );
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    let content =
        json!([{"type": "text", "text": "half \u{fffd}"}, {"type": "widget", "rows": [1]}]);
    assert_eq!(record["output"]["content"], content, "{record}");
    let events = world.ryectl("events").arg(&run).ok().stdout();
    for remark in ["widget", "[db] connected"] {
        assert!(events.contains(remark), "no {remark} in {events}");
    }
    let failed = execute(&world, "mcp/failed/act", &json!({}));
    assert_eq!(failed["metadata"]["code"], "tool_failed", "{failed}");
    assert!(
        failed["error"].as_str().unwrap().contains("RATE_LIMITED"),
        "{failed}"
    );
    let unclear = execute(&world, "mcp/unclear/act", &json!({}));
    assert_eq!(unclear["metadata"]["code"], "result_refused", "{unclear}");
    assert!(
        unclear["error"].as_str().unwrap().contains("perhaps"),
        "{unclear}"
    );
}

#[test]
fn silent_mcp_server_times_out_as_configured() {
    let world = World::new();
    let _daemon = world.start("");
    let quick = "  start_timeout: 1\n  timeout: 1\n";
    server(&world, "stuck", quick, &["pid"]);
    let out = execute(&world, "mcp/stuck/pid", &json!({}));
    assert_eq!(out["metadata"]["code"], "mcp_start_failed", "{out}");
    assert!(
        out["error"].as_str().unwrap().contains("start_timeout"),
        "{out}"
    );
    server(&world, "endless", "  start_timeout: 20\n", &["pid"]);
    let out = execute(&world, "mcp/endless/pid", &json!({}));
    assert!(
        out["error"]
            .as_str()
            .unwrap()
            .contains("more than 1000 tools"),
        "{out}"
    );
    server(&world, "circling", "", &["pid"]);
    let run = world.ryectl("run mcp/circling/pid --json").ok().json();
    let run = run["run_id"].as_str().unwrap();
    let events = world.ryectl("events").arg(run).ok().stdout();
    assert!(events.contains("it repeats a cursor"), "{events}");
    let quick = "  timeout: 1\n";
    server(&world, "good", quick, &["never", "slow"]);
    let out = execute(&world, "mcp/good/never", &json!({}));
    assert_eq!(out["metadata"]["code"], "timeout", "{out}");
    until("the server to hear that nobody waits", || {
        world.read("heard.txt").contains("cancelled").then_some(())
    });
    // Three seconds with progress messages do not count as silence.
    let out = execute(&world, "mcp/good/slow", &json!({}));
    assert_eq!(out["data"]["content"][0]["text"], "done", "{out}");
    until_none_is_left(&world);
}

#[test]
fn dead_mcp_server_restarts_for_next_call() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "dies", "", &["act", "pid"]);
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: mcp/dies/act}, retry: 0, on_error: b, next: b}\n  \
         b: {action: {item_id: mcp/dies/pid}, assign: {pid: \"${result.parsed}\"}, next: c}\n  \
         c: {type: return, output: {pid: \"${state.pid}\"}}",
    );
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert!(record["output"]["pid"].is_number(), "{record}");
    assert_eq!(world.read("heard.txt").matches("initialize").count(), 2);
}

#[test]
fn stopped_run_leaves_no_mcp_server() {
    let world = World::new();
    let _daemon = world.start("");
    let graph = |mode: &str| {
        server(&world, mode, "", &["never"]);
        world.graph(
            &format!("t/{mode}"),
            &format!("start: a\nnodes:\n  a: {{action: {{item_id: mcp/{mode}/never}}, next: b}}\n  b: {{type: return}}"),
        );
        let run = world.start_run(&format!("t/{mode}"));
        until("the server to start", || {
            world.read("heard.txt").contains("initialize").then_some(())
        });
        run
    };
    let run = graph("deaf");
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    until_none_is_left(&world);
    world.write("heard.txt", "");
    let run = graph("good");
    let _cancelled = world.ryectl("cancel").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "cancelled");
    until("the server to hear of it", || {
        world.read("heard.txt").contains("cancelled").then_some(())
    });
    until_none_is_left(&world);
}

#[test]
fn servers_of_a_daemon_that_died_are_ended_by_the_next() {
    let world = World::new();
    let daemon = world.start("");
    server(&world, "deaf", "", &["never"]);
    world.graph(
        "t/g",
        "start: a\nnodes:\n  a: {action: {item_id: mcp/deaf/never}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/g");
    until("the server to start", || {
        world.read("heard.txt").contains("initialize").then_some(())
    });
    // A process that left the group of the server is ended only by the next daemon.
    let left = || {
        let processes = world.processes().into_iter();
        let mut sleeping = processes.filter(|process| process.name == "sleep");
        sleeping.next().map(|process| process.pid)
    };
    let pid = left().expect("the server started it");
    daemon.kill_both();
    let _status = daemon.ended();
    let _again = world.start("");
    until("what was left to end", || {
        let mut processes = world.processes().into_iter();
        (!processes.any(|process| process.pid == pid)).then_some(())
    });
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    until_none_is_left(&world);
}

#[test]
fn caller_cannot_choose_mcp_server_program_or_tool() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["add"]);
    server(&world, "junk", "", &[]);
    let params = json!({
        "a": 1, "b": 2, "server": "mcp/servers/junk", "server_config_path": ".ai/tools/mcp/servers/junk.yaml", "tool_name": "act",
        "command": "touch", "args": ["planted"], "env": {"PATH": "/"}, "url": "http://127.0.0.1:1/", "transport": "http", "timeout": 0,
    });
    let out = execute(&world, "mcp/good/add", &params);
    assert_eq!(out["data"]["parsed"], json!({"sum": 3}), "{out}");
    assert!(!world.project().join("planted").exists());
    until_none_is_left(&world);
}
