//! Graphs within graphs: child runs, and how they stop, suspend and restart together.

use std::fs;
use std::thread;
use std::time::Duration;

use rye_tests::until::within;
use rye_tests::{Daemon, World, processes, until};
use serde_json::{Value, json};

/// Appends a line to `ran` and waits for the file `go`.
const WAITS: &str = r#"start: work
nodes:
  work:
    action:
      item_id: rye/bash
      params:
        command: "echo \"$RYE_IDEMPOTENCY_KEY\" >>ran; until [ -e go ]; do sleep 0.01; done; echo done"
    assign: {said: "${result.stdout}"}
    next: out
  out: {type: return, output: {said: "${state.said}", n: "${inputs.n}"}}"#;

/// Works like [`WAITS`], with a tool that appends a line to `asked` on TERM, and continues.
const STUBBORN: &str = r#"start: work
nodes:
  work:
    action:
      item_id: rye/bash
      params:
        command: "trap 'echo once >>asked' TERM; echo \"$RYE_IDEMPOTENCY_KEY\" >>ran; until [ -e go ]; do sleep 0.01; done"
    next: out
  out: {type: return}"#;

/// Calls the graph `id` with `params` (YAML flow) and returns its result.
fn calls(id: &str, params: &str) -> String {
    format!(
        "start: call\nnodes:\n  call:\n    action: {{item_id: {id}, params: {params}}}\n    \
         assign: {{got: \"${{result}}\"}}\n    next: out\n  out: {{type: return, output: \"${{state.got}}\"}}"
    )
}

/// Is suspended at its limit of one step, and ends when it may take two.
const PARKS: &str = "start: first\nmax_steps: 1\nhooks:\n  - event: limit\n    \
    action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}\nnodes:\n  first: {assign: {a: 1}, next: out}\n  out: {type: return, output: 7}";

/// Returns the answer of the native tool `id` to a person who calls it with `params`.
fn ask(world: &World, id: &str, params: &Value) -> Value {
    let out = world
        .ryectl("execute tool --json --params -")
        .arg(id)
        .stdin(params.to_string())
        .ok();
    out.json()["data"].clone()
}

fn orchestrate(world: &World, params: &Value) -> Value {
    ask(world, "rye/agent/threads/orchestrator", params)
}

fn children(world: &World, run: &str) -> Vec<Value> {
    let params = json!({"operation": "list_children", "thread_id": run});
    let answer = orchestrate(world, &params);
    answer["children"].as_array().unwrap().clone()
}

/// Returns the only child run of `run`, once it exists.
fn child(world: &World, run: &str) -> String {
    let found = until("a child run", || children(world, run).pop());
    found["run_id"].as_str().unwrap().to_owned()
}

/// Returns the record of a run of `id` that has ended or is suspended.
fn ran(world: &World, id: &str) -> Value {
    let run = world.start_run(id);
    world.settled(&run)
}

fn status(world: &World, run: &str) -> String {
    let record = world.record(run);
    record["status"].as_str().unwrap().to_owned()
}

fn lines(world: &World, file: &str) -> Vec<String> {
    world.read(file).lines().map(str::to_owned).collect()
}

/// Waits until `file` has `count` lines.
fn until_lines(world: &World, file: &str, count: usize) {
    until("lines in a file", || {
        (lines(world, file).len() >= count).then_some(())
    });
}

fn restart(world: &World, daemon: Daemon) -> Daemon {
    daemon.kill();
    let _status = daemon.ended();
    world.start("")
}

#[test]
fn a_graph_in_a_graph_is_a_run_of_its_own() {
    let world = World::new();
    world.write("go", "");
    world.graph("t/child", WAITS);
    world.graph("t/parent", &calls("t/child", "{n: 3}"));
    let out = ran(&world, "t/parent");
    let got = &out["output"];
    assert_eq!(got["output"], json!({"said": "done\n", "n": 3}), "{out}");
    assert_eq!(got["success"], true);
    assert_eq!(got["status"], "completed");
    assert_eq!(got["steps"], 2);
    assert_eq!(got["state"]["said"], "done\n");
    let parent = out["run_id"].as_str().unwrap();
    let below = child(&world, parent);
    assert_eq!(got["graph_run_id"], below);
    let steps = ask(
        &world,
        "rye/core/processes/steps",
        &json!({"run_id": below}),
    );
    assert_eq!(steps["graph_id"], "t/child");
    assert_eq!(steps["steps"][0]["node"], "work");
}

#[test]
fn control_parameters_are_removed_from_inputs() {
    let world = World::new();
    world.graph(
        "t/tell",
        "start: out\nnodes:\n  out: {type: return, output: \"${inputs}\"}",
    );
    let params = "{a: 1, async: false, validate: false, resume: false, graph_run_id: null, resume_run_id: null, \
                  node: null, inject_state: null, capabilities: [\"rye.*\"], depth: 3, max_steps: 5}";
    world.graph("t/parent", &calls("t/tell", params));
    let out = ran(&world, "t/parent");
    assert_eq!(out["output"]["output"], json!({"a": 1}), "{out}");
    let resumed = "{resume: true, graph_run_id: t-tell-1}";
    world.graph("t/wrong", &calls("t/tell", resumed));
    let _told = world
        .ryectl("run t/wrong")
        .run()
        .code(1)
        .stderr_contains(&["resume_thread", "not by a node"]);
    world.graph(
        "t/valid",
        &calls("t/tell", "{validate: true, async: false}"),
    );
    let out = ran(&world, "t/valid");
    assert_eq!(out["output"]["success"], true, "{out}");
    let parent = out["run_id"].as_str().unwrap();
    assert_eq!(children(&world, parent), Vec::<Value>::new());
}

#[test]
fn a_child_run_does_no_more_than_its_parent_may() {
    let world = World::new();
    world.write("go", "");
    world.graph("t/child", WAITS);
    let permissions = "permissions: [\"rye.execute.tool.t.*\"]";
    world.graph_with("t/parent", permissions, &calls("t/child", "{}"));
    let out = world.ryectl("run t/parent --json").run().code(1);
    let _told = out.stderr_contains(&["rye.execute.tool.rye.bash", "permissions of tool:t/parent"]);
    assert!(!world.project().join("ran").exists());
}

#[test]
fn run_depth_is_limited() {
    let world = World::new();
    world.graph("t/deep", &calls("t/deep", "{depth: 2}"));
    let out = world.ryectl("run t/deep --json").run().code(1);
    let _told = out.stderr_contains(&["at most 3 levels"]);
    let runs = world.ryectl("ps --all --json").ok().json();
    let graphs = runs.as_array().unwrap().iter();
    let graphs = graphs.filter(|run| run["kind"] == "graph").count();
    assert_eq!(graphs, 4, "{runs}");
}

#[test]
fn a_child_run_is_attached_to_after_a_crash_and_not_started_again() {
    let world = World::new();
    world.graph("t/leaf", WAITS);
    world.graph("t/middle", &calls("t/leaf", "{n: 1}"));
    world.graph("t/top", &calls("t/middle", "{}"));
    let daemon = world.start("");
    let top = world.start_run("t/top");
    until_lines(&world, "ran", 1);
    let middle = child(&world, &top);
    let leaf = child(&world, &middle);
    let daemon = restart(&world, daemon);
    until_lines(&world, "ran", 2);
    world.write("go", "");
    let record = world.settled(&top);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(children(&world, &top).len(), 1);
    assert_eq!(child(&world, &top), middle);
    assert_eq!(child(&world, &middle), leaf);
    let keys = lines(&world, "ran");
    assert_eq!(
        keys[0], keys[1],
        "the step in flight was repeated under its key"
    );
    drop(daemon);
}

#[test]
fn no_child_run_is_started_twice_whenever_the_daemon_dies() {
    const ITEMS: usize = 12;
    let world = World::new();
    world.graph(
        "t/item",
        "start: work\nnodes:\n  work:\n    action: {item_id: rye/bash, params: {command: \"sleep 0.05; echo $N >>ran\", env: {N: \"${inputs.n}\"}}}\n    next: out\n  out: {type: return, output: \"${inputs.n}\"}",
    );
    world.graph(
        "t/all",
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]\n    as: n\n    parallel: true\n    max_concurrency: 3\n    action: {item_id: t/item, params: {n: \"${n}\"}}\n    collect: got\n    next: out\n  out: {type: return, output: \"${state.got}\"}",
    );
    let mut daemon = world.start("");
    let mut pause = 20_011;
    for _ in 0..2 {
        world.write("ran", "");
        let run = world.start_run("t/all");
        // With one more death, a child run on a slow machine would count as the cause of the crashes.
        for _ in 0..3 {
            let before = lines(&world, "ran").len();
            until("an item to end", || {
                let more = lines(&world, "ran").len() > before;
                (more || before >= ITEMS).then_some(())
            });
            pause = pause * 48_271 % 120_000;
            thread::sleep(Duration::from_micros(pause));
            daemon = restart(&world, daemon);
        }
        let record = world.settled(&run);
        assert_eq!(record["status"], "completed", "{record}");
        let got = record["output"].as_array().unwrap();
        let got: Vec<_> = got.iter().map(|item| item["output"].clone()).collect();
        assert_eq!(json!(got), json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        let below = children(&world, &run);
        assert_eq!(below.len(), ITEMS, "{below:#?}");
        assert!(below.iter().all(|run| run["status"] == "completed"));
    }
    drop(daemon);
}

/// Starts a chain of three runs; the last one waits.
fn line(world: &World) -> [String; 3] {
    world.graph("t/leaf", WAITS);
    world.graph("t/middle", &calls("t/leaf", "{n: 1}"));
    world.graph("t/top", &calls("t/middle", "{}"));
    let before = lines(world, "ran").len();
    let top = world.start_run("t/top");
    until_lines(world, "ran", before + 1);
    let middle = child(world, &top);
    let leaf = child(world, &middle);
    [top, middle, leaf]
}

fn assert_no_tool_is_left(world: &World) {
    until("the tools to be gone", || {
        let left = world.processes();
        let ours =
            |process: &processes::Process| matches!(process.name.as_str(), "ryed" | "ryectl");
        left.iter().all(ours).then_some(())
    });
}

#[test]
fn a_cancel_reaches_every_child_run() {
    let world = World::new();
    let daemon = world.start("");
    let [top, middle, leaf] = line(&world);
    let _asked = world.ryectl("cancel").arg(&top).ok();
    for run in [&leaf, &middle, &top] {
        assert_eq!(world.settled(run)["status"], "cancelled");
    }
    let told = orchestrate(
        &world,
        &json!({"operation": "get_status", "thread_id": leaf}),
    );
    assert_eq!(told["cancel_requested"], format!("its parent {middle}"));
    assert_no_tool_is_left(&world);
    let events = world.ryectl("events --json").arg(&leaf).ok().json_lines();
    let asked = events
        .iter()
        .filter(|event| event["event_type"] == "cancel_requested");
    assert_eq!(asked.count(), 1, "{events:#?}");
    drop(daemon);
}

#[test]
fn a_kill_ends_every_child_run_with_its_processes() {
    let world = World::new();
    let daemon = world.start("");
    let [top, middle, leaf] = line(&world);
    let killed = world.ryectl("kill --grace 0.1 --json").arg(&top).ok();
    for run in [&top, &middle, &leaf] {
        assert_eq!(status(&world, run), "killed");
    }
    let killed = killed.json();
    let below = &killed["below"][0]["below"][0];
    assert_eq!(below["run_id"], leaf.as_str(), "{killed}");
    assert!(
        below["processes"][0]["pid"].is_number(),
        "those of the child runs: {killed}"
    );
    assert_no_tool_is_left(&world);
    drop(daemon);
}

#[test]
fn kill_completes_after_caller_disconnects() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/stubborn", STUBBORN);
    world.graph(
        "t/top",
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [0, 1]\n    parallel: true\n    action: {item_id: t/stubborn, params: {}}\n    collect: got\n    next: out\n  out: {type: return}",
    );
    let top = world.start_run("t/top");
    until_lines(&world, "ran", 2);
    let below = children(&world, &top);
    let mut caller = world.ryectl("kill --grace 2").arg(&top).spawn();
    // Their processes use the grace that they are given. The caller goes away meanwhile.
    until_lines(&world, "asked", 1);
    caller.kill().unwrap();
    let _status = caller.wait();
    assert_eq!(world.settled(&top)["status"], "killed");
    for run in &below {
        let run = run["run_id"].as_str().unwrap();
        assert_eq!(world.settled(run)["status"], "killed");
    }
    assert_eq!(lines(&world, "asked").len(), 2);
    assert_no_tool_is_left(&world);
    drop(daemon);
}

#[test]
fn a_process_gets_the_grace_of_the_kill_and_a_shorter_one_cuts_it_short() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/stubborn", STUBBORN);
    let run = world.start_run("t/stubborn");
    until_lines(&world, "ran", 1);
    let mut caller = world.ryectl("kill --grace 60").arg(&run).spawn();
    until_lines(&world, "asked", 1);
    // Longer than the default grace of a process.
    let ended = within(Duration::from_secs(6), || {
        (status(&world, &run) == "killed").then_some(())
    });
    assert!(
        ended.is_none(),
        "the grace is not the one that was asked for"
    );
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    assert_eq!(status(&world, &run), "killed");
    assert!(caller.wait().unwrap().success());
    assert_no_tool_is_left(&world);
    drop(daemon);
}

#[test]
fn no_child_run_outlives_a_parent_that_was_stopped_when_the_daemon_died() {
    let world = World::new();
    let mut daemon = world.start("");
    for (round, verb) in ["kill --grace 0", "cancel"]
        .iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let runs = line(&world);
        let mut caller = world
            .ryectl(verb)
            .arg("--no-autostart")
            .arg(&runs[0])
            .spawn();
        let pause = u64::try_from(round).unwrap() * 3;
        thread::sleep(Duration::from_millis(pause));
        daemon.kill();
        let _status = daemon.ended();
        let _status = caller.wait();
        let left = processes::left(world.root());
        assert!(left.is_empty(), "round {round}: {left:#?}");
        daemon = world.start("");
        let live = runs.each_ref().map(|run| status(&world, run));
        if live
            .iter()
            .all(|word| word == "running" || word == "created")
        {
            // The request was not recorded.
            let _killed = world.ryectl("kill --grace 0").arg(&runs[0]).ok();
        }
        until("the whole line to end", || {
            let words = runs.each_ref().map(|run| status(&world, run));
            let over = words
                .iter()
                .all(|word| word == "killed" || word == "cancelled");
            over.then_some(())
        });
        assert_no_tool_is_left(&world);
    }
    drop(daemon);
}

#[test]
fn externally_cancelled_child_run_fails_its_node() {
    let world = World::new();
    let daemon = world.start("");
    // The name of the graph must not be taken for a reason to retry.
    world.graph("t/network-probe", WAITS);
    let handled = calls("t/network-probe", "{}")
        .replace("    next: out\n", "    on_error: sorry\n    next: out\n")
        + "\n  sorry: {type: return, output: \"${state._last_error}\"}";
    world.graph("t/parent", &handled);
    let parent = world.start_run("t/parent");
    until_lines(&world, "ran", 1);
    let below = child(&world, &parent);
    let _asked = world.ryectl("cancel").arg(&below).ok();
    let record = world.settled(&parent);
    assert_eq!(record["status"], "completed", "{record}");
    let error = record["output"]["error"].as_str().unwrap();
    assert!(error.contains("was cancelled by"), "{error}");
    assert!(error.contains(&below), "{error}");
    let steps = ask(
        &world,
        "rye/core/processes/steps",
        &json!({"run_id": parent}),
    );
    assert_eq!(steps["steps"][0]["status"], "error", "{steps}");
    drop(daemon);
}

#[test]
fn the_timeout_of_a_node_ends_its_child_run() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/child", WAITS);
    let limited = calls("t/child", "{}").replace("    assign", "    timeout: 0.3\n    assign");
    world.graph("t/parent", &limited);
    let record = ran(&world, "t/parent");
    assert_eq!(record["error"]["code"], "timeout", "{record}");
    let parent = record["run_id"].as_str().unwrap();
    assert_eq!(status(&world, &child(&world, parent)), "cancelled");
    assert_no_tool_is_left(&world);
    drop(daemon);
}

/// Makes a chain of three runs; the last one is suspended at its limit.
fn suspended_line(world: &World) -> [String; 3] {
    world.graph("t/parks", PARKS);
    world.graph("t/middle", &calls("t/parks", "{}"));
    world.graph("t/top", &calls("t/middle", "{}"));
    let top = world.start_run("t/top");
    let record = world.settled(&top);
    assert_eq!(record["status"], "suspended", "{record}");
    let middle = child(world, &top);
    let leaf = child(world, &middle);
    [top, middle, leaf]
}

fn resume(world: &World, run: &str) {
    let params = json!({"operation": "resume_thread", "thread_id": run, "max_steps": 9});
    let answer = orchestrate(world, &params);
    assert_eq!(answer["resumed"], true, "{answer}");
    assert_eq!(answer["new_thread_id"], run);
}

#[test]
fn suspended_run_shows_cause_and_resume_command() {
    let world = World::new();
    let [top, _middle, leaf] = suspended_line(&world);
    let out = world.ryectl("get").arg(&top).ok();
    let _told = out.stderr_contains(&[
        &format!("{leaf} is suspended: limit"),
        &format!("ryectl resume {top} --raise steps=N"),
    ]);
}

#[test]
fn a_suspended_run_suspends_its_ancestors_and_they_resume_together() {
    let world = World::new();
    let daemon = world.start("");
    for from in 0..3 {
        let line = suspended_line(&world);
        for above in &line[..2] {
            let record = orchestrate(
                &world,
                &json!({"operation": "get_status", "thread_id": above}),
            );
            assert_eq!(record["suspended"]["reason"], "child", "{record}");
            assert_eq!(record["suspended"]["child"], line[2], "{record}");
        }
        resume(&world, &line[from]);
        for run in &line {
            let record = world.settled(run);
            assert_eq!(record["status"], "completed", "from {from}: {record}");
        }
        assert_eq!(world.settled(&line[0])["output"]["output"]["output"], 7);
    }
    drop(daemon);
}

#[test]
fn suspended_chain_survives_restart_and_resumes() {
    let world = World::new();
    let daemon = world.start("");
    let line = suspended_line(&world);
    let daemon = restart(&world, daemon);
    for run in &line {
        assert_eq!(status(&world, run), "suspended");
    }
    resume(&world, &line[0]);
    assert_eq!(world.settled(&line[0])["status"], "completed");
    drop(daemon);
}

#[test]
fn suspended_chain_is_cancelled_and_killed_together() {
    let world = World::new();
    let daemon = world.start("");
    let line = suspended_line(&world);
    let _asked = world.ryectl("cancel").arg(&line[0]).ok();
    for run in &line {
        assert_eq!(status(&world, run), "cancelled");
    }
    let line = suspended_line(&world);
    let _killed = world.ryectl("kill").arg(&line[0]).ok();
    for run in &line {
        assert_eq!(status(&world, run), "killed");
    }
    drop(daemon);
}

#[test]
fn a_run_suspended_for_its_child_resumes_when_that_one_is_ended() {
    let world = World::new();
    let daemon = world.start("");
    for (verb, ended) in [("cancel", "cancelled"), ("kill", "killed")] {
        for at in [2, 1] {
            let line = suspended_line(&world);
            let _asked = world.ryectl(verb).arg(&line[at]).ok();
            for run in &line[at..] {
                assert_eq!(status(&world, run), ended);
            }
            for run in &line[..at] {
                let record = world.settled(run);
                assert_eq!(record["status"], "error", "{verb} {at}: {record}");
                let error = record["error"]["message"].as_str().unwrap();
                assert!(error.contains(&line[at]), "{error}");
            }
        }
    }
    drop(daemon);
}

#[test]
fn several_suspended_runs_of_one_node_resume_together() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/parks", PARKS);
    world.graph(
        "t/all",
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [0, 1, 2]\n    parallel: true\n    action: {item_id: t/parks, params: {}}\n    collect: got\n    next: out\n  out: {type: return, output: \"${state.got}\"}",
    );
    let run = world.start_run("t/all");
    assert_eq!(world.settled(&run)["status"], "suspended");
    let below = children(&world, &run);
    assert_eq!(below.len(), 3);
    // The raise is for the run that the suspension names. The others resume, reach their limit and are suspended again.
    for resumed in 1..=3 {
        resume(&world, &run);
        let _settled = world.settled(&run);
        if resumed == 1 {
            for child in &below {
                let id = child["run_id"].as_str().unwrap();
                let events = world.ryectl("events --json").arg(id).ok().stdout();
                assert_eq!(events.matches("run_resumed").count(), 1, "{events}");
            }
        }
        if status(&world, &run) == "completed" {
            break;
        }
    }
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["output"].as_array().unwrap().len(), 3);
    drop(daemon);
}

#[test]
fn a_run_suspended_for_a_child_that_has_resumed_meanwhile_resumes_with_it() {
    let world = World::new();
    let daemon = world.start("");
    // The first of two runs is suspended at its limit while the second one works.
    world.graph(
        "t/part",
        r#"start: work
max_steps: 1
hooks:
  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}
nodes:
  work:
    action: {item_id: rye/bash, params: {command: '[ "$N" = 0 ] || until [ -e go ]; do sleep 0.01; done', env: {N: "${inputs.n}"}}}
    next: [{to: more, when: {path: inputs.n, op: eq, value: "0"}}]
  more:
    action: {item_id: rye/bash, params: {command: "until [ -e end ]; do sleep 0.01; done"}}"#,
    );
    world.graph(
        "t/both",
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [\"0\", \"1\"]\n    parallel: true\n    \
         action: {item_id: t/part, params: {n: \"${item}\"}}",
    );
    let run = world.start_run("t/both");
    let suspended = until("a child run to be suspended", || {
        let mut below = children(&world, &run).into_iter();
        below.find(|child| child["status"] == "suspended")
    });
    let suspended = suspended["run_id"].as_str().unwrap();
    let _resumed = world
        .ryectl("resume --detach --raise steps=9")
        .arg(suspended)
        .ok();
    world.write("go", "");
    until("the parent to be suspended", || {
        let told = world.ryectl("events").arg(&run).ok().stdout();
        told.contains("run_suspended").then_some(())
    });
    world.write("end", "");
    until("the parent to end", || {
        (status(&world, &run) == "completed").then_some(())
    });
    drop(daemon);
}

#[test]
fn a_detached_run_continues_by_itself() {
    let world = World::new();
    let daemon = world.start("");
    world.graph("t/child", WAITS);
    world.graph("t/parent", &calls("t/child", "{async: true, n: 4}"));
    let out = ran(&world, "t/parent");
    let parent = out["run_id"].as_str().unwrap();
    let below = child(&world, parent);
    let expected = json!({
        "success": true,
        "run_id": below,
        "graph_run_id": below,
        "graph_id": "t/child",
        "status": "running",
        "pid": daemon.pid(),
    });
    assert_eq!(out["output"], expected);
    assert_eq!(out["spawn_count"], 1, "{out}");
    until_lines(&world, "ran", 1);
    let daemon = restart(&world, daemon);
    until_lines(&world, "ran", 2);
    assert_eq!(status(&world, &below), "running");
    world.write("go", "");
    let record = world.settled(&below);
    assert_eq!(record["output"], json!({"said": "done\n", "n": 4}));
    drop(daemon);
}

/// Writes `t/parent`, which starts a detached run of `t/child`, reports that in the file `up`, and keeps running.
fn detaching(world: &World) {
    world.graph("t/child", WAITS);
    let both = calls("t/child", "{async: true}").replace("next: out\n", "next: wait\n")
        + "\n  wait: {action: {item_id: rye/bash, params: {command: \"echo up >>up; sleep 60\"}}, next: out}";
    world.graph("t/parent", &both);
}

#[test]
fn a_detached_run_is_left_alone_when_its_parent_is_stopped() {
    let world = World::new();
    let daemon = world.start("");
    detaching(&world);
    for verb in ["cancel", "kill --grace 0"] {
        let _removed = fs::remove_file(world.project().join("up"));
        let parent = world.start_run("t/parent");
        until_lines(&world, "up", 1);
        let below = child(&world, &parent);
        let _stopped = world.ryectl(verb).arg(&parent).ok();
        let _over = world.settled(&parent);
        assert_eq!(status(&world, &below), "running");
        let _killed = world.ryectl("kill --grace 0").arg(&below).ok();
    }
    drop(daemon);
}

#[test]
fn a_kill_of_the_tree_ends_detached_runs_too() {
    let world = World::new();
    let daemon = world.start("");
    detaching(&world);
    let parent = world.start_run("t/parent");
    until_lines(&world, "up", 1);
    let below = child(&world, &parent);
    let _killed = world.ryectl("kill --grace 0 --tree").arg(&parent).ok();
    assert_eq!(status(&world, &parent), "killed");
    assert_eq!(status(&world, &below), "killed");
    drop(daemon);
}

#[test]
fn a_detached_run_that_is_refused_fails_its_node() {
    let world = World::new();
    let schema = "permissions: [\"rye.*\"]\nconfig_schema:\n  type: object\n  required: [n]\n  properties: {n: {type: integer}}";
    world.graph_with(
        "t/child",
        schema,
        "start: out\nnodes:\n  out: {type: return}",
    );
    world.graph("t/parent", &calls("t/child", "{async: true}"));
    let _told = world
        .ryectl("run t/parent")
        .run()
        .code(1)
        .stderr_contains(&["`n`"]);
}

/// Charges at most once, waits for the file `go`, and then fails while the file `ok` is missing.
const CHARGES: &str = r#"start: charge
nodes:
  charge:
    effect: at_most_once
    action: {item_id: rye/bash, params: {command: "echo charged >>ran; until [ -e go ]; do sleep 0.01; done"}}
    next: after
  after:
    action: {item_id: rye/bash, params: {command: "echo after >>ran; [ -e ok ]"}}
    next: out
  out: {type: return, output: 5}"#;

/// Makes a world with the graph `t/top`, which calls `t/middle`, which calls [`CHARGES`]. `keys` are the keys of the
/// call in the middle.
fn charging(keys: &str) -> World {
    let world = World::new();
    world.graph("t/charges", CHARGES);
    let middle = calls("t/charges", "{}").replace("    next: out", &format!("{keys}    next: out"));
    world.graph("t/middle", &middle);
    world.graph("t/top", &calls("t/middle", "{}"));
    world
}

/// Resumes `run`, which is refused until the user allows the charge to happen again.
fn assert_asks_about_the_charge(world: &World, run: &str) {
    world.write("go", "");
    world.write("ok", "");
    let middle = child(world, run);
    let below = child(world, &middle);
    for asked in [run, &middle, &below] {
        let _over = world.settled(asked);
        let record = world.record(asked);
        let [charge] = &record["uncertain"].as_array().unwrap()[..] else {
            panic!("{record}");
        };
        assert_eq!(charge["name"], "charge");
        assert_eq!(charge["key"].as_str().map(str::len), Some(64), "{charge}");
        assert!(charge["started_at"].is_string(), "{charge}");
        let of = charge["run_id"].as_str();
        assert_eq!(of, (asked != below).then_some(below.as_str()));
        let answer = format!("ryectl resume {asked} --uncertain charge=retry");
        let shown = world.ryectl("get").arg(asked).ok();
        let _told =
            shown.stderr_contains(&["charge: at most once, and may have executed", &answer]);
    }
    let listed = world.ryectl("ps --all --json").ok().json();
    for run in listed.as_array().unwrap() {
        assert!(run.get("uncertain").is_none(), "{run}");
    }
    let _asks = world
        .ryectl("resume")
        .arg(run)
        .run()
        .code(5)
        .stderr_contains(&[
            "`charge` of the child run `t-charges-",
            "--uncertain charge=retry",
        ]);
    let _ended = world
        .ryectl("resume --uncertain charge=done")
        .arg(run)
        .run()
        .code(5);
    assert_eq!(lines(world, "ran"), ["charged"]);
    let out = world
        .ryectl("resume --json --uncertain charge=retry")
        .arg(run)
        .ok();
    assert_eq!(out.json()["output"]["output"]["output"], 5);
    assert_eq!(lines(world, "ran"), ["charged", "charged", "after"]);
    assert!(
        world.record(run).get("uncertain").is_none(),
        "it is answered"
    );
}

#[test]
fn charge_cut_off_by_end_of_parent_repeats_only_on_verdict() {
    for (keys, verb) in [
        ("", "kill --grace 0"),
        ("", "cancel"),
        ("    effect: at_most_once\n", "kill --grace 0"),
    ] {
        let world = charging(keys);
        let run = world.start_run("t/top");
        until_lines(&world, "ran", 1);
        let _stopped = world.ryectl(verb).arg(&run).ok();
        let _over = world.settled(&run);
        assert_asks_about_the_charge(&world, &run);
    }
}

#[test]
fn killed_chain_with_uncertain_charge_still_needs_verdict() {
    let world = charging("");
    let daemon = world.start("");
    let run = world.start_run("t/top");
    until_lines(&world, "ran", 1);
    let _daemon = restart(&world, daemon);
    assert_eq!(world.settled(&run)["suspend"]["reason"], "child");
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    assert_asks_about_the_charge(&world, &run);
}

#[test]
fn no_finished_step_of_a_child_run_runs_twice_when_the_line_resumes() {
    let world = charging("");
    world.write("go", "");
    let failed = ran(&world, "t/top");
    assert_eq!(failed["error"]["node"], "call", "{failed}");
    let run = failed["run_id"].as_str().unwrap();
    let below = child(&world, run);
    world.write("ok", "");
    let out = world.ryectl("resume --json").arg(run).ok();
    assert_eq!(out.json()["output"]["output"]["output"], 5);
    assert_eq!(lines(&world, "ran"), ["charged", "after", "after"]);
    let next = child(&world, out.json()["run_id"].as_str().unwrap());
    assert_eq!(world.record(&next)["continuation_of"], below);
    assert_eq!(world.record(&below)["continued_by"], next);
}

#[test]
fn separately_resumed_child_run_is_not_repeated() {
    let world = charging("");
    let run = world.start_run("t/top");
    until_lines(&world, "ran", 1);
    let middle = child(&world, &run);
    let below = child(&world, &middle);
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    let _resumed = world
        .ryectl("resume --detach --uncertain charge=retry")
        .arg(&below)
        .ok();
    until_lines(&world, "ran", 2);
    let _busy = world
        .ryectl("resume")
        .arg(&run)
        .run()
        .code(5)
        .stderr_contains(&["continues by itself"]);
    assert!(world.record(&run).get("uncertain").is_none());
    world.write("go", "");
    world.write("ok", "");
    let own = world.record(&below)["continued_by"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(world.settled(&own)["status"], "completed");
    let out = world.ryectl("resume --json").arg(&run).ok();
    assert_eq!(out.json()["output"]["output"]["graph_run_id"], own);
    assert_eq!(lines(&world, "ran"), ["charged", "charged", "after"]);
}

#[test]
fn child_run_ended_after_its_last_node_is_not_repeated() {
    for (keys, at_top) in [("", true), ("    retry: {max: 2, delay: 0.01}\n", false)] {
        let world = World::new();
        world.graph(
            "t/charges",
            r#"start: charge
hooks:
  - id: last
    event: graph_completed
    action: {item_id: rye/bash, params: {command: "echo last >>ran; until [ -e go ]; do sleep 0.01; done"}}
nodes:
  charge:
    effect: at_most_once
    action: {item_id: rye/bash, params: {command: "echo charged >>ran"}}
    next: out
  out: {type: return}"#,
        );
        let call =
            calls("t/charges", "{}").replace("    next: out", &format!("{keys}    next: out"));
        world.graph("t/top", &call);
        let run = world.start_run("t/top");
        until_lines(&world, "ran", 2);
        let killed = if at_top {
            run.clone()
        } else {
            child(&world, &run)
        };
        let _killed = world.ryectl("kill --grace 0").arg(killed).ok();
        let _over = world.settled(&run);
        world.write("go", "");
        let out = world.ryectl("resume").arg(&run).run().code(1);
        let _told = out.stderr_contains(&["nothing of it is left to do"]);
        assert_eq!(lines(&world, "ran"), ["charged", "last"]);
    }
}

#[test]
fn another_try_of_a_node_continues_its_child_run() {
    for keys in [
        "    retry: {max: 2, delay: 0.01}\n",
        "    effect: at_most_once\n    retry: {max: 2, delay: 0.01}\n",
    ] {
        let world = charging(keys);
        world.write("go", "");
        let failed = ran(&world, "t/middle");
        assert_eq!(failed["status"], "error");
        assert_eq!(failed["spawn_count"], 1, "{failed}");
        let ran = lines(&world, "ran");
        assert_eq!(
            ran.iter().filter(|line| *line == "charged").count(),
            1,
            "{ran:?}"
        );
    }
}

#[test]
fn node_retry_does_not_repeat_cut_off_charge_of_child_run() {
    let world = charging("    timeout: 2\n    retry: {max: 2, delay: 0.01}\n");
    let failed = ran(&world, "t/middle");
    assert_eq!(failed["error"]["code"], "timeout", "{failed}");
    assert_eq!(lines(&world, "ran"), ["charged"]);
    let run = failed["run_id"].as_str().unwrap();
    let _asks = world
        .ryectl("resume")
        .arg(run)
        .run()
        .code(5)
        .stderr_contains(&["`charge`"]);
}

#[test]
fn charge_cut_off_below_hook_repeats_only_on_verdict() {
    for verb in ["kill --grace 0", "cancel"] {
        let world = World::new();
        world.graph("t/charges", CHARGES);
        world.graph(
            "t/top",
            "start: a\nhooks: [{event: error, action: {item_id: t/charges}}]\nnodes:\n  \
             a: {action: {item_id: rye/bash, params: {command: \"[ -e fine ]\"}}}",
        );
        let run = world.start_run("t/top");
        until_lines(&world, "ran", 1);
        let _stopped = world.ryectl(verb).arg(&run).ok();
        let _over = world.settled(&run);
        world.write("go", "");
        world.write("ok", "");
        let _asks = world
            .ryectl("resume")
            .arg(&run)
            .run()
            .code(5)
            .stderr_contains(&[
                "`charge` of the child run `t-charges-",
                "--uncertain charge=retry",
            ]);
        assert_eq!(lines(&world, "ran"), ["charged"]);
        // The node fails as before, so the hook is called again.
        let again = "resume --uncertain charge=retry";
        let _failed = world.ryectl(again).arg(&run).run().code(1);
        assert_eq!(lines(&world, "ran"), ["charged", "charged", "after"]);
    }
}

#[test]
fn items_continue_their_child_runs() {
    let world = World::new();
    world.graph("t/charges", CHARGES);
    world.graph(
        "t/each",
        "start: each\nnodes:\n  each:\n    type: foreach\n    over: [0, 1]\n    parallel: true\n    \
         action: {item_id: t/charges}\n    collect: all\n    next: out\n  \
         out: {type: return, output: \"${state.all | length}\"}",
    );
    let run = world.start_run("t/each");
    until_lines(&world, "ran", 2);
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    world.write("go", "");
    let _asks = world.ryectl("resume").arg(&run).run().code(5);
    let again = "resume --json --uncertain charge=retry";
    let failed = world.ryectl(again).arg(&run).run().code(1);
    assert_eq!(failed.json()["error"]["code"], "item_failed");
    world.write("ok", "");
    assert_eq!(
        world.ryectl("resume --json").arg(&run).ok().json()["output"],
        2
    );
    let chain = world.ryectl("chain --json").arg(&run).ok().json();
    let runs = chain.as_array().unwrap().iter();
    let spawned: Vec<&Value> = runs.map(|run| &run["spawn_count"]).collect();
    assert_eq!(spawned, [2, 2, 2], "each item counts once in the chain");
    let ran = lines(&world, "ran");
    assert_eq!(
        ran.iter().filter(|line| *line == "charged").count(),
        4,
        "{ran:?}"
    );
}

#[test]
fn graph_as_hook_answers_with_its_output() {
    let world = World::new();
    let daemon = world.start("");
    world.graph(
        "t/answers",
        "start: a\nnodes:\n  a: {type: return, output: {action: skip}}",
    );
    world.graph(
        "t/asks",
        "start: a\nhooks: [{event: error, action: {item_id: t/answers}}]\nnodes:\n  \
         a: {action: {item_id: rye/bash, params: {command: exit 1}}, next: b}\n  b: {type: return, output: well}",
    );
    let record = ran(&world, "t/asks");
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["output"], "well");
    drop(daemon);
}
