//! Providers that reject the reasoning that they sent.

use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::json;

use super::{BASH, account, names, payloads, start};

/// Scripts a model that reasons and calls a tool. The provider then rejects its own reasoning, as often as `times`
/// says.
fn rejecting(times: &str, anew: &str) -> String {
    format!(
        "
- when: {{contains: said and done so far}}
  reply: {anew}
- when: {{turn: 1}}
  reply:
    thinking: A shell can do that.
    text: I look.
    calls: [{{name: rye_execute, input: {{item_id: rye/bash, parameters: {{command: echo found}}}}}}]
    usage: {{input: 100, output: 10}}
- when: {{turn: 2}}
{times}  reply: {{status: 400, error: {{type: invalid_request_error, message: 'messages.1: invalid `signature` in `thinking` block'}}}}
"
    )
}

fn world(server: &ModelServer) -> World {
    let world = World::with_models(server);
    world.directive("t/look", BASH, "", "Look.");
    world
}

#[test]
fn rejected_reasoning_is_dropped_and_thread_continues() {
    let done = "{text: Done., usage: {input: 100, output: 10}}";
    let server = ModelServer::start(&rejecting("", done));
    let world = world(&server);
    let daemon = world.start("");
    let run = start(&world, "t/look");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["result"], "Done.");
    let told = payloads(&world, &run, "context_reseeded");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["reason"], &told[0]["turn"], &told[0]["kept_turns"]),
        (&json!("reasoning_rejected"), &json!(2), &json!(1)),
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let body = requests[2].body.to_string();
    for part in ["Look.", "I look.", "echo found", "found"] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert!(!body.contains("A shell can do that."), "{body}");
    assert_eq!(requests[2].body["system"], requests[0].body["system"]);
    assert_eq!(requests[2].body["tools"], requests[0].body["tools"]);
    // Two calls were paid: a refusal costs nothing.
    assert_eq!(account(&world, &run)["held"], "0.000000000");
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    assert_eq!(names(&world, &run).last().unwrap(), "thread_completed");
}

#[test]
fn second_reasoning_rejection_fails_thread_with_cause() {
    let again = "{status: 400, error: {type: invalid_request_error, message: 'invalid `signature` in `thinking` block'}}";
    let server = ModelServer::start(&rejecting("", again));
    let world = world(&server);
    let _daemon = world.start("");
    let run = start(&world, "t/look");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    assert_eq!(server.requests().len(), 3, "it is told anew once");
    assert_eq!(payloads(&world, &run, "context_reseeded").len(), 1);
}
