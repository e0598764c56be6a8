//! Ended threads that are continued: their conversation, their account, their limits.

use rye_tests::World;
use rye_tests::model_server::{ModelServer, Request};
use serde_json::Value;

use super::{BASH, account, payloads, start};
use crate::thread::crash::call;

/// Works in its first turn; the second fails permanently, once.
const FAILS: &str = "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: 'echo x >> ran; echo worked'}}}], usage: {input: 100, output: 10}}
- when: {turn: 2, tool_result: worked}
  times: 1
  reply: {status: 400}
- when: {turn: 2, tool_result: worked}
  reply: {text: Done., usage: {input: 200, output: 20}}
- when: {turn: 3}
  reply: {text: The tests too., usage: {input: 300, output: 30}}
";

fn contains_text(request: &Request, text: &str) -> bool {
    request.body["messages"].to_string().contains(text)
}

fn resume(world: &World, words: &str, run: &str) -> Value {
    let resumed = world.ryectl(&format!("resume --json {words}")).arg(run);
    resumed.ok().json()
}

#[test]
fn failed_thread_continues_with_conversation_and_account() {
    let server = ModelServer::start(FAILS);
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    let before = account(&world, &run)["actual"].clone();
    // An edit of the directive affects only other threads.
    world.directive("t/work", BASH, "", "Do something else.");
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let next = resume(&world, "", &run);
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(next["result"], "Done.");
    assert_eq!(next["continuation_of"], run.as_str());
    assert_eq!(world.record(&run)["continued_by"], next["run_id"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].body["messages"], requests[1].body["messages"]);
    assert_eq!(world.read("ran").lines().count(), 1, "no call runs twice");
    let id = next["run_id"].as_str().unwrap();
    assert_ne!(account(&world, id)["actual"], before);
    assert_eq!(account(&world, id)["run_id"], id);
    assert_eq!(next["cost"]["turns"], 2, "of the chain: {next}");
    let begun = payloads(&world, id, "thread_started");
    assert_eq!(begun[0]["continuation_of"], run.as_str());

    // A completed thread continues only with a new message.
    let _refused = world
        .ryectl("resume")
        .arg(id)
        .run()
        .code(5)
        .stderr_contains(&["it has completed", "--message TEXT"]);
    let more = world.ryectl("resume --json --message");
    let more = more.arg("And the tests?").arg(id).ok().json();
    assert_eq!(more["result"], "The tests too.", "{more}");
    assert!(contains_text(&server.requests()[3], "And the tests?"));
    let chain = world.ryectl("chain --json").arg(&run).ok().json();
    assert_eq!(chain.as_array().unwrap().len(), 3, "{chain}");
}

#[test]
fn call_cut_off_by_kill_is_reported_to_model_and_not_repeated() {
    const WAITS: &str = "echo x >> ran; until [ -e go ]; do sleep 0.01; done; echo done";
    let script = format!(
        "
- when: {{turn: 1}}
  reply: {{text: I work., calls: [{}]}}
- when: {{turn: 2, tool_result: unknown}}
  reply: {{text: I see.}}
",
        call(WAITS)
    );
    let server = ModelServer::start(&script);
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let _daemon = world.start("");
    let run = start(&world, "t/work");
    rye_tests::until("the call to run", || {
        (world.project().join("ran").exists()).then_some(())
    });
    let _killed = world.ryectl("kill --grace 0").arg(&run).ok();
    let next = resume(&world, "", &run);
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(world.read("ran").lines().count(), 1);
    let id = next["run_id"].as_str().unwrap();
    let told = payloads(&world, id, "tool_call_result");
    assert_eq!(told[0]["code"], "interrupted", "{told:?}");
    let _whole = world.ryectl("transcript --verify --tail 0").arg(id).ok();
}

#[test]
fn thread_ended_at_limit_continues_only_with_higher_limit() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo worked}}}]}
- when: {turn: 2, tool_result: worked}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let policy = "version: \"1.0.0\"\ncategory: agent\nname: resilience\nlimits: {enforcement: {on_exceed: fail}}\n";
    world.write(".ai/config/agent/resilience.yaml", policy);
    let _signed = world.ryectl("sign config:agent/resilience").ok();
    let _daemon = world.start("");
    let started = world.ryectl("run --detach directive:t/work --limit turns=1");
    let run = started.ok().line();
    assert_eq!(world.settled(&run)["error"]["code"], "turns_exceeded");
    for words in ["resume", "resume --raise turns=1"] {
        let refused = world.ryectl(words).arg(&run).run().code(5);
        let _refused = refused.stderr_contains(&["more than 1"]);
    }
    let next = resume(&world, "--raise turns=2", &run);
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn node_retry_continues_failed_thread() {
    let server = ModelServer::start(FAILS);
    let world = World::with_models(&server);
    world.directive("t/work", BASH, "", "Work.");
    let graph = "start: ask\nnodes:\n  ask:\n    action: {item_type: directive, item_id: t/work}\n    retry: {max: 1}\n    \
                 assign: {said: \"${result.result}\"}\n    next: out\n  out: {type: return, output: \"${state.said}\"}";
    world.graph_with(
        "t/asks",
        "permissions: [rye.execute.directive.t.work, rye.execute.tool.rye.bash]",
        graph,
    );
    let _daemon = world.start("");
    let done = world.ryectl("run t/asks --json").ok().json();
    assert_eq!(done["output"], "Done.", "{done}");
    assert_eq!(
        server.requests().len(),
        3,
        "the first turn is not paid twice"
    );
    assert_eq!(world.read("ran").lines().count(), 1);
}
