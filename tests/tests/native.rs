//! The tools that run inside the daemon.

use std::fs;

use rye_tests::{Outcome, World, until};
use serde_json::{Value, json};

const ORCHESTRATOR: &str = "rye/agent/threads/orchestrator";
const CONTROL: &str = "rye/agent/threads/internal/control";
const EMITTER: &str = "rye/agent/threads/internal/emitter";

const OUT: &str = "\n  out: {type: return, output: \"${state.got}\"}";

/// Waits for the file that its input `go` names, and fails if the input requests that.
const WAITS: &str = r#"start: work
nodes:
  work:
    action:
      item_id: rye/bash
      params:
        env: {GO: "${inputs.go}"}
        command: "echo up >>up; until [ -e $GO ]; do sleep 0.01; done; exit $(cat $GO)"
    next: out
  out: {type: return, output: "${inputs.go}"}"#;

fn execute(world: &World, id: &str, params: &Value) -> Outcome {
    world
        .ryectl("execute tool --json --params -")
        .arg(id)
        .stdin(params.to_string())
        .run()
}

fn ask(world: &World, id: &str, params: &Value) -> Value {
    execute(world, id, params).code(0).json()["data"].clone()
}

/// A graph that calls `id` with `params` and returns the answer.
fn calling(id: &str, params: &Value) -> String {
    format!(
        "start: call\nnodes:\n  call:\n    action: {{item_id: {id}, params: {params}}}\n    \
         assign: {{got: \"${{result}}\"}}\n    next: out{OUT}"
    )
}

/// Returns the record of a run of `id` that has ended or is suspended.
fn ran(world: &World, id: &str) -> Value {
    let run = world.start_run(id);
    world.settled(&run)
}

fn start_waiting(world: &World, go: &str) -> String {
    world.graph("t/waits", WAITS);
    let before = world.read("up").lines().count();
    let run = world
        .ryectl("run --detach t/waits -i")
        .arg(format!("go={go}"))
        .ok()
        .line();
    until("the run to be at work", || {
        (world.read("up").lines().count() > before).then_some(())
    });
    run
}

fn status(world: &World, run: &str) -> String {
    world.record(run)["status"].as_str().unwrap().to_owned()
}

fn refused(world: &World, id: &str, params: &Value, told: &[&str]) {
    let _told = execute(world, id, params).code(1).stderr_contains(told);
}

/// A graph without permissions whose hook calls the control tool.
const ASKS: &str = "start: call\nhooks:\n  - event: error\n    action: {item_id: rye/agent/threads/internal/control, params: {action: abort}}\n\
    nodes:\n  call: {action: {item_id: rye/core/echo}, next: out}\n  out: {type: return, output: past}";

#[test]
fn hooks_answer_by_the_control_tool_without_a_capability() {
    let world = World::new();
    world.graph_with("t/ask", "permissions: []", ASKS);
    let out = ran(&world, "t/ask");
    assert_eq!(out["status"], "error", "{out}");
    let answer = json!({"action": "retry", "max_retries": 2});
    assert_eq!(ask(&world, CONTROL, &answer), answer);
    refused(
        &world,
        CONTROL,
        &json!({"action": "explode"}),
        &["retry, fail, abort"],
    );
    let echo = calling("rye/core/echo", &answer);
    world.graph_with("t/echo", "permissions: []", &echo);
    let _denied = world
        .ryectl("run t/echo")
        .run()
        .code(1)
        .stderr_contains(&["permission denied"]);
}

#[test]
fn a_tool_of_the_project_by_the_name_of_an_internal_one_needs_its_capability() {
    let world = World::new();
    world.python(EMITTER, "open('pwned', 'w').close()\nreturn {}");
    let emit = calling(EMITTER, &json!({"event_type": "checkpoint_saved"}));
    world.graph_with("t/emit", "permissions: []", &emit);
    let _denied = world
        .ryectl("run t/emit")
        .run()
        .code(1)
        .stderr_contains(&["permission denied"]);
    assert!(!world.project().join("pwned").exists());
}

#[test]
fn emitted_event_is_in_transcript_of_its_run() {
    let world = World::new();
    let event = json!({"event_type": "checkpoint_saved", "payload": {"at": 3}});
    let emit = calling(EMITTER, &event);
    world.graph_with("t/emit", "permissions: []", &emit);
    let report = world.ryectl("graph validate t/emit --json").ok().json();
    assert_eq!(report["warnings"], json!([]));
    let out = ran(&world, "t/emit");
    assert_eq!(out["output"]["success"], true, "{out}");
    let run = out["run_id"].as_str().unwrap();
    let path = format!(".ai/state/threads/{run}/transcript.jsonl");
    let emitted = until("the event in the transcript", || {
        let text = world.read(&path);
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["event_type"] == "emitted")
    });
    let content = json!({"name": "checkpoint_saved", "content": {"at": 3}});
    assert_eq!(emitted["payload"], content);
    let other = json!({"event_type": "x", "thread_id": "../../elsewhere"});
    refused(&world, EMITTER, &other, &["the run that emits it"]);
    let ours = json!({"event_type": "graph_completed"});
    refused(&world, EMITTER, &ours, &["event of the daemon"]);
    let _done = execute(&world, EMITTER, &json!({"name": "a.b", "content": {}})).code(0);
}

#[test]
fn process_tools_report_and_cancel_runs() {
    let world = World::new();
    let daemon = world.start("");
    let run = start_waiting(&world, "go");
    let params = json!({"run_id": run});
    let told = ask(&world, "rye/core/processes/status", &params);
    assert_eq!(told["alive"], true, "{told}");
    assert_eq!(told["pid"], daemon.pid());
    assert_eq!(told["status"], "running");
    assert_eq!(told["current_node"], "work");
    assert_eq!(told["directive"], "t/waits");
    let listed = ask(&world, "rye/core/processes/list", &json!({}));
    assert_eq!(listed["count"], 1, "{listed}");
    assert_eq!(listed["runs"][0]["run_id"], json!(run));
    let wrong = json!({"status": "lost"});
    refused(&world, "rye/core/processes/list", &wrong, &["suspended"]);
    let answer = ask(
        &world,
        "rye/core/processes/cancel",
        &json!({"run_id": run, "reason": "enough", "grace": 30}),
    );
    assert_eq!(answer["status"], "cancelled", "{answer}");
    assert_eq!(answer["method"], "cancelled");
    let told = ask(&world, "rye/core/processes/status", &params);
    assert_eq!(told["alive"], false);
    assert_eq!(told["cancel_requested"], "enough");
    assert_eq!(told["current_node"], "work", "where it ended");
    refused(&world, "rye/core/processes/cancel", &params, &["has ended"]);
    let listed = ask(
        &world,
        "rye/core/processes/list",
        &json!({"status": "cancelled"}),
    );
    assert_eq!(listed["count"], 1, "{listed}");
    drop(daemon);
}

#[test]
fn steps_and_status_name_errors_that_were_suppressed() {
    let world = World::new();
    world.graph(
        "t/shaky",
        "start: a\non_error: continue\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}, next: out}\n  out: {type: return}",
    );
    let out = ran(&world, "t/shaky");
    let params = json!({"run_id": out["run_id"]});
    let steps = ask(&world, "rye/core/processes/steps", &params);
    assert_eq!(steps["count"], 2, "{steps}");
    assert_eq!(steps["errors_suppressed"], 1);
    assert_eq!(steps["steps"][0]["status"], "error");
    assert!(steps["steps"][0]["error"].is_string());
    assert_eq!(steps["steps"][0]["cache_hit"], false);
    let told = ask(&world, "rye/core/processes/status", &params);
    assert_eq!(told["errors_suppressed"], 1);
    assert_eq!(told["status"], "completed_with_errors");
    assert_eq!(told["current_node"], json!(null));
    let listed = ask(
        &world,
        "rye/core/processes/list",
        &json!({"status": "completed_with_errors"}),
    );
    assert_eq!(listed["runs"][0]["errors_suppressed"], 1);
    world.graph(
        "t/fails",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"exit 3\"}}}",
    );
    let out = ran(&world, "t/fails");
    let params = json!({"run_id": out["run_id"]});
    // A report about a failure succeeds.
    let told = ask(&world, "rye/core/processes/status", &params);
    assert_eq!(told["status"], "error");
    assert_eq!(told["current_node"], "a");
    let run = out["run_id"].as_str().unwrap();
    let page = format!(".ai/knowledge/graphs/t/fails/{run}.md");
    let page = until("the final state file", || {
        let text = world.read(&page);
        text.contains("status: \"error\"").then_some(text)
    });
    assert!(page.contains("current_node: \"a\"\n"), "{page}");
}

#[test]
fn a_graph_stops_only_its_child_runs() {
    let world = World::new();
    let daemon = world.start("");
    let stranger = start_waiting(&world, "go");
    for (id, params) in [
        ("rye/core/processes/cancel", json!({"run_id": stranger})),
        (
            ORCHESTRATOR,
            json!({"operation": "cancel_thread", "thread_id": stranger}),
        ),
        (
            ORCHESTRATOR,
            json!({"operation": "kill_thread", "thread_id": stranger}),
        ),
        (
            ORCHESTRATOR,
            json!({"operation": "resume_thread", "thread_id": stranger}),
        ),
    ] {
        world.graph("t/stop", &calling(id, &params));
        let record = ran(&world, "t/stop");
        assert_eq!(record["error"]["code"], "permission_denied", "{record}");
    }
    assert_eq!(status(&world, &stranger), "running");
    let _killed = world.ryectl("kill --grace 0").arg(&stranger).ok();
    world.graph(
        "t/own",
        "start: begin\nnodes:\n  begin:\n    action: {item_id: t/waits, params: {async: true, go: never}}\n    assign: {below: \"${result.graph_run_id}\"}\n    next: kill\n  kill:\n    action: {item_id: rye/agent/threads/orchestrator, params: {operation: kill_thread, thread_id: \"${state.below}\"}}\n    assign: {got: \"${result}\"}\n    next: out\n  out: {type: return, output: \"${state.got}\"}",
    );
    let out = ran(&world, "t/own");
    assert_eq!(out["output"]["killed"], true, "{out}");
    assert_eq!(out["output"]["status"], "killed");
    drop(daemon);
}

#[test]
fn native_tools_hide_runs_of_other_projects() {
    let world = World::new();
    let daemon = world.start("");
    let run = start_waiting(&world, "go");
    let other = world.home().join("other");
    fs::create_dir_all(other.join(".ai")).unwrap();
    let elsewhere = |params: Value| {
        world
            .ryectl("execute tool rye/agent/threads/orchestrator --json --params -")
            .within(&other)
            .stdin(params.to_string())
            .run()
    };
    for operation in ["get_status", "cancel_thread", "kill_thread", "get_chain"] {
        let params = json!({"operation": operation, "thread_id": run});
        let _told = elsewhere(params)
            .code(1)
            .stderr_contains(&["there is no run"]);
    }
    let listed = elsewhere(json!({"operation": "list_active"}))
        .code(0)
        .json();
    assert_eq!(listed["data"]["count"], 0, "{listed}");
    assert_eq!(status(&world, &run), "running");
    let killed = ask(
        &world,
        ORCHESTRATOR,
        &json!({"operation": "kill_thread", "thread_id": run, "grace": 0}),
    );
    assert_eq!(killed["killed"], true, "{killed}");
    assert!(killed["receipt"]["processes"][0]["pid"].is_number());
    drop(daemon);
}

#[test]
fn wait_threads_reports_every_run_in_both_shapes() {
    let world = World::new();
    let daemon = world.start("");
    world.write("good", "0");
    world.write("bad", "3");
    let good = start_waiting(&world, "good");
    let bad = start_waiting(&world, "bad");
    let parameters = json!({
        "operation": "wait_threads",
        "thread_ids": [good, {"graph_run_id": bad}, "t-none-1", null, {"success": false, "error": "no start"}],
    });
    let out = execute(&world, ORCHESTRATOR, &parameters).code(1);
    let data = out.json()["data"].clone();
    assert_eq!(data["success"], false, "{data}");
    assert_eq!(data["threads"], data["results"]);
    assert_eq!(data["total_cost"], 0.0);
    assert!(data["elapsed_seconds"].is_number());
    let threads = &data["threads"];
    assert_eq!(threads[&good]["status"], "completed");
    assert_eq!(threads[&good]["outputs"], "good");
    assert_eq!(threads[&good]["error"], Value::Null);
    assert_eq!(threads[&bad]["status"], "error");
    assert!(threads[&bad]["error"].is_string());
    assert_eq!(threads["t-none-1"]["error"], "there is no run `t-none-1`");
    assert_eq!(threads["__failed_3"]["status"], "error");
    assert_eq!(threads["__failed_4"]["error"], "no start");
    let alone = json!({"operation": "wait_threads", "thread_ids": [good], "timeout": 0});
    assert_eq!(ask(&world, ORCHESTRATOR, &alone)["success"], true);
    let all = json!({"operation": "aggregate_results", "thread_ids": [good]});
    let told = ask(&world, ORCHESTRATOR, &all);
    assert_eq!(told["results"][&good]["outputs"], "good", "{told}");
    drop(daemon);
}

#[test]
fn wait_threads_ends_at_timeout_first_end_or_first_failure() {
    let world = World::new();
    let daemon = world.start("");
    let (slow, other) = (
        start_waiting(&world, "never"),
        start_waiting(&world, "late"),
    );
    let wait = |more: Value| {
        let mut params = json!({"operation": "wait_threads", "thread_ids": [slow, other]});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        execute(&world, ORCHESTRATOR, &params)
    };
    let data = wait(json!({"timeout": 0.1})).code(1).json()["data"].clone();
    assert_eq!(data["threads"][&slow]["status"], "timeout", "{data}");
    assert_eq!(data["threads"][&other]["status"], "timeout");
    let _told = wait(json!({"cancel_siblings_on_failure": true}))
        .code(1)
        .stderr_contains(&["fail_fast: true"]);
    world.write("late", "0");
    let data = wait(json!({"require_all": false})).code(0).json()["data"].clone();
    assert_eq!(data["success"], true, "{data}");
    assert_eq!(data["threads"][&other]["status"], "completed");
    assert_eq!(data["threads"][&slow]["status"], "running");
    world.write("fails", "3");
    let failing = start_waiting(&world, "fails");
    let params = json!({
        "operation": "wait_threads",
        "thread_ids": [slow, failing],
        "fail_fast": true,
        "cancel_siblings_on_failure": true,
    });
    let data = execute(&world, ORCHESTRATOR, &params).code(1).json()["data"].clone();
    assert_eq!(data["threads"][&failing]["status"], "error", "{data}");
    assert_eq!(data["threads"][&slow]["status"], "cancelled");
    assert_eq!(data["threads"][&slow]["reason"], "sibling_failure");
    assert_eq!(world.settled(&slow)["status"], "cancelled");
    drop(daemon);
}

#[test]
fn a_graph_waits_for_what_it_started_and_again_after_a_crash() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/waits", WAITS);
    world.graph(
        "t/fan",
        "start: a\nnodes:\n  a: {action: {item_id: t/waits, params: {async: true, go: go}}, assign: {a: \"${result}\"}, next: b}\n  b: {action: {item_id: t/waits, params: {async: true, go: go}}, assign: {b: \"${result}\"}, next: wait}\n  wait:\n    action: {item_id: orchestrator, params: {operation: wait_threads, thread_ids: [\"${state.a}\", \"${state.b.graph_run_id}\"], timeout: 0}}\n    assign: {got: \"${result}\"}\n    next: out\n  out: {type: return, output: \"${state.got}\"}",
    );
    let run = world.start_run("t/fan");
    until("both to be at work", || {
        (world.read("up").lines().count() >= 2).then_some(())
    });
    daemon.kill();
    let _status = daemon.ended();
    let daemon = world.start("");
    until("both to be at work again", || {
        (world.read("up").lines().count() >= 4).then_some(())
    });
    world.write("go", "0");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let threads = record["output"]["threads"].as_object().unwrap();
    assert_eq!(threads.len(), 2);
    assert!(threads.values().all(|thread| thread["outputs"] == "go"));
    let asked = json!({"operation": "list_children", "thread_id": run});
    assert_eq!(ask(&world, ORCHESTRATOR, &asked)["count"], 2);
    drop(daemon);
}

#[test]
fn waiting_graph_stops_on_cancel() {
    let world = World::new();
    let daemon = world.start("");
    let waited = start_waiting(&world, "never");
    let params = json!({"operation": "wait_threads", "thread_ids": [waited], "timeout": 0});
    world.graph("t/wait", &calling(ORCHESTRATOR, &params));
    let run = world.start_run("t/wait");
    until("the wait to begin", || {
        let told = ask(&world, "rye/core/processes/status", &json!({"run_id": run}));
        (told["current_node"] == "call").then_some(())
    });
    let _killed = world.ryectl("kill").arg(&run).ok();
    assert_eq!(status(&world, &run), "killed");
    assert_eq!(status(&world, &waited), "running");
    let _killed = world.ryectl("kill --grace 0").arg(&waited).ok();
    drop(daemon);
}

#[test]
fn wait_threads_refuses_own_tree() {
    let world = World::new();
    world.graph(
        "t/own",
        "start: list\nnodes:\n  list: {action: {item_id: orchestrator, params: {operation: list_active}}, assign: {all: \"${result.active_threads}\"}, next: wait}\n  wait: {action: {item_id: orchestrator, params: {operation: wait_threads, thread_ids: \"${state.all}\", timeout: 0}}, next: out}\n  out: {type: return}",
    );
    world.graph("t/top", &calling("t/own", &json!({})));
    let record = ran(&world, "t/top");
    let error = record["error"]["message"].as_str().unwrap();
    let told = format!(
        "`{}` is the run that waits, or waits for it",
        record["run_id"].as_str().unwrap()
    );
    assert!(error.contains(&told), "{error}");
}

#[test]
fn continuation_chain_is_listed_from_root() {
    let world = World::new();
    let daemon = world.start("");
    world.write("go", "3");
    let first = start_waiting(&world, "go");
    assert_eq!(world.settled(&first)["status"], "error");
    world.write("go", "0");
    let resumed = ask(
        &world,
        ORCHESTRATOR,
        &json!({"operation": "resume_thread", "thread_id": first}),
    );
    let second = resumed["new_thread_id"].as_str().unwrap();
    assert_eq!(resumed["old_thread_id"], json!(first), "{resumed}");
    assert_eq!(resumed["original_thread_id"], Value::Null);
    // Both ids are accepted from here on. The answer names the run that was active.
    let params = json!({"operation": "wait_threads", "thread_ids": [first]});
    let waited = ask(&world, ORCHESTRATOR, &params);
    assert_eq!(waited["threads"][&first]["thread_id"], second, "{waited}");
    assert_eq!(waited["threads"][&first]["status"], "completed");
    let chain = ask(
        &world,
        ORCHESTRATOR,
        &json!({"operation": "get_chain", "thread_id": second}),
    );
    assert_eq!(chain["chain_length"], 2);
    assert_eq!(chain["chain"][0]["thread_id"], json!(first), "{chain}");
    assert_eq!(chain["chain"][1]["thread_id"], second);
    let message = json!({"operation": "resume_thread", "thread_id": first, "message": "hi"});
    refused(
        &world,
        ORCHESTRATOR,
        &message,
        &["only a thread has a model"],
    );
    for operation in ["dance", "read_transcript", "chain_search", "handoff_thread"] {
        let unknown = json!({"operation": operation});
        let told = [operation, "wait_threads"];
        refused(&world, ORCHESTRATOR, &unknown, &told);
    }
    drop(daemon);
}

#[test]
fn a_file_in_the_directory_of_a_run_cancels_it() {
    let world = World::new();
    let daemon = world.start("");
    for (name, content, cause) in [
        ("cancel", "", "the file `cancel`"),
        ("cancel.requested", "{\"reason\": \"too dear\"}", "too dear"),
    ] {
        let run = start_waiting(&world, "never");
        let file = world.write(&format!(".ai/state/threads/{run}/{name}"), content);
        assert_eq!(world.settled(&run)["status"], "cancelled");
        let told = ask(&world, "rye/core/processes/status", &json!({"run_id": run}));
        assert_eq!(told["cancel_requested"], cause);
        assert!(file.exists());
    }
    drop(daemon);
}

#[test]
fn a_graph_reads_and_writes_files_of_its_project_and_no_others() {
    let world = World::new();
    world.write("in.txt", "one\ntwo\n");
    let file = r#"start: read
nodes:
  read:
    action: {item_id: rye/file-system/read, params: {path: in.txt}}
    assign: {lines: "${result.total_lines}"}
    next: write
  write:
    action: {item_id: fs_write, params: {path: "${inputs.to}", content: "${state.lines} lines\n"}}
    assign: {got: "${result.file_path}"}
    next: out"#;
    world.graph("t/files", &format!("{file}{OUT}"));
    let _daemon = world.start("");
    let out = world.ryectl("run t/files -i to=made/out.txt").ok();
    assert_eq!(out.stdout(), "made/out.txt\n");
    assert_eq!(world.read("made/out.txt"), "2 lines\n");
    let _refused = world
        .ryectl("run t/files -i to=../out.txt")
        .run()
        .code(1)
        .stderr_contains(&["`../out.txt` is outside the project"]);
    let _unsigned = world
        .ryectl("run t/files -i to=.venv/lib/x.pth")
        .run()
        .code(1)
        .stderr_contains(&[
            "`.venv/lib/x.pth` takes effect without a signature",
            "rye.execute.tool.rye.file-system.write.unsafe",
        ]);
    let narrow = "--cap rye.execute.tool.rye.file-system.read";
    let _denied = world
        .ryectl(&format!("run t/files -i to=x {narrow}"))
        .run()
        .code(1)
        .stderr_contains(&["rye.execute.tool.rye.file-system.write"]);
    let told = ask(&world, "rye/file-system/ls", &json!({}));
    assert_eq!(
        told["entries"][0],
        json!({"name": "made", "type": "directory"})
    );
}

#[test]
fn double_dollar_passes_variable_to_shell() {
    let world = World::new();
    world.graph(
        "t/loop",
        "start: a
nodes:
  a:
    action: {item_id: rye/bash, params: {command: 'for f in one.txt two; do echo \"build/$${f%.txt} $${#f}$TAIL\"; done', env: {TAIL: '${inputs.tail}'}}}
    assign: {out: '${result.stdout}'}
    next: done
  done: {type: return, output: {out: '${state.out}'}}",
    );
    let out = world.ryectl("run t/loop --quiet -i tail=${f}").ok().json();
    assert_eq!(out, json!({"out": "build/one 7${f}\nbuild/two 3${f}\n"}));
}
