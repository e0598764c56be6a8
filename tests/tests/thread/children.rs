//! Graphs that a model calls: child runs of its thread.

use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};
use serde_json::Value;

use super::{payloads, start};

/// Permits all items of the tests, and the shell that they call.
const ALL: &str =
    "<permissions><execute><tool>t/*</tool><tool>rye/bash</tool></execute></permissions>";

/// Returns its input.
const RETURNS_INPUT: &str =
    "start: out\nnodes:\n  out: {type: return, output: \"got ${inputs.n}\"}";

/// Is suspended at its limit of one step, and ends when it may take two.
const PARKS: &str = "start: first\nmax_steps: 1\nhooks:\n  - event: limit\n    \
    action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}\nnodes:\n  \
    first: {assign: {a: 1}, next: out}\n  out: {type: return, output: parked}";

/// Appends its key to `ran` and waits for the file `go`.
const WAITS: &str = "start: work\nnodes:\n  work:\n    action:\n      item_id: rye/bash\n      params:\n        \
    command: \"echo $RYE_IDEMPOTENCY_KEY >> ran; until [ -e go ]; do sleep 0.01; done; echo done\"\n    \
    assign: {said: \"${result.stdout}\"}\n    next: out\n  out: {type: return, output: \"${state.said}\"}";

/// Scripts a model that calls the graph `item` with `params` in its first turn, and ends once it gets `result`.
fn script(item: &str, params: &str, result: &str) -> String {
    format!(
        "
- when: {{turn: 1}}
  reply:
    text: I call.
    calls: [{{name: rye_execute, input: {{item_id: {item}, parameters: {params}}}}}]
    usage: {{input: 100, output: 10}}
- when: {{turn: 2, tool_result: {result}}}
  reply: {{text: Done., usage: {{input: 100, output: 10}}}}
"
    )
}

fn world(server: &ModelServer, graph: &str, config: &str) -> World {
    let world = World::with_models(server);
    world.graph(graph, config);
    world.directive("t/asks", ALL, "", "Call it.");
    world
}

/// Returns the run that carries out the only call of `thread`, once it exists.
pub(super) fn child(world: &World, thread: &str) -> String {
    let started = until("a child run", || {
        payloads(world, thread, "tool_call_start").pop()
    });
    started["child"].as_str().expect("a child run").to_owned()
}

pub(super) fn completed(world: &World, run: &str) {
    let record = world.settled(run);
    assert_eq!(record["status"], "completed", "{record}");
}

pub(super) fn first_result(world: &World, thread: &str) -> Value {
    payloads(world, thread, "tool_call_result").remove(0)
}

#[test]
fn a_graph_that_a_model_calls_is_a_run_below_the_thread() {
    let server = ModelServer::start(&script("t/says", "{n: 3}", "got 3"));
    let world = world(&server, "t/says", RETURNS_INPUT);
    let _daemon = world.start("");
    let thread = start(&world, "t/asks");
    completed(&world, &thread);
    let child = child(&world, &thread);
    let record = world.record(&child);
    assert_eq!(record["parent_id"], thread.as_str(), "{record}");
    assert_eq!(record["status"], "completed");
    assert_eq!(first_result(&world, &thread)["is_error"], false);
    let path = world.ryectl("budget show --json").arg(&child).ok().json();
    let accounts = path["path"].as_array().unwrap();
    assert_eq!(
        accounts.len(),
        2,
        "its account is below that of the thread: {path}"
    );
}

#[test]
fn a_thread_is_suspended_with_the_run_it_waits_for_and_resumes_with_it() {
    let server = ModelServer::start(&script("t/parks", "{}", "parked"));
    let world = world(&server, "t/parks", PARKS);
    let _daemon = world.start("");
    let thread = start(&world, "t/asks");
    let record = world.settled(&thread);
    assert_eq!(record["status"], "suspended", "{record}");
    let child = child(&world, &thread);
    assert_eq!(record["suspend"]["reason"], "child", "{record}");
    assert_eq!(record["suspend"]["child"], child.as_str(), "{record}");
    let _resumed = world.ryectl("resume --raise steps=9").arg(&child).ok();
    until("the thread to be over", || {
        (world.record(&thread)["status"] == "completed").then_some(())
    });
    assert!(
        first_result(&world, &thread)["output"]
            .to_string()
            .contains("parked")
    );
}

#[test]
fn thread_reattaches_to_child_run_after_crash() {
    let server = ModelServer::start(&script("t/waits", "{}", "done"));
    let world = world(&server, "t/waits", WAITS);
    let daemon = world.start("");
    let thread = start(&world, "t/asks");
    let child = child(&world, &thread);
    until("the step to run", || {
        (world.read("ran").lines().count() == 1).then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    world.write("go", "");
    completed(&world, &thread);
    let started = payloads(&world, &thread, "tool_call_start");
    assert!(
        started.iter().all(|start| start["child"] == child.as_str()),
        "{started:?}"
    );
    assert_eq!(world.record(&child)["status"], "completed");
    let ran = world.read("ran");
    let keys: std::collections::BTreeSet<&str> = ran.lines().collect();
    assert_eq!(
        keys.len(),
        1,
        "its step was repeated by the same key: {ran}"
    );
    assert_eq!(server.requests().len(), 2, "the model is not asked again");
}

#[test]
fn refused_child_run_fails_only_its_call() {
    for (limit, code) in [
        ("depth=0", "depth_exceeded"),
        ("spawns=0", "spawns_exceeded"),
    ] {
        let server = ModelServer::start(&script("t/says", "{n: 3}", code));
        let world = world(&server, "t/says", RETURNS_INPUT);
        let _daemon = world.start("");
        let run = world
            .ryectl("run --detach directive:t/asks --limit")
            .arg(limit);
        let thread = run.ok().line();
        completed(&world, &thread);
        let told = first_result(&world, &thread);
        assert_eq!(
            (&told["is_error"], &told["code"]),
            (&true.into(), &code.into())
        );
    }
}
