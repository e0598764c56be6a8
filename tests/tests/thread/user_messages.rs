//! Threads with raised limits, and messages to threads.

use rye_tests::World;
use rye_tests::model_server::{ModelServer, Request};
use serde_json::Value;

use super::{BASH, payloads, start};

/// Takes two turns.
const LOOKS: &str = "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo one}}}]}
- when: {turn: 2}
  reply: {text: Done.}
";

/// Makes a thread that is suspended at its limit of one turn.
fn at_its_limit(world: &World) -> String {
    world.directive(
        "t/look",
        &format!("<limits turns=\"1\"/>{BASH}"),
        "",
        "Look.",
    );
    let out = world.ryectl("thread run t/look --json").run().code(75);
    let run = out.json();
    assert_eq!(run["suspend"]["code"], "turns_exceeded", "{run}");
    run["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_thread_at_its_limit_of_turns_is_raised_and_completed() {
    let server = ModelServer::start(LOOKS);
    let world = World::with_models(&server);
    let daemon = world.start("");
    let run = at_its_limit(&world);
    let _shown = world
        .ryectl("get")
        .arg(&run)
        .ok()
        .stderr_contains(&["--raise turns=N"]);
    let before = world.ryectl("events").arg(&run).ok().stdout();
    let refused = |words: &str, told: &[&str]| {
        let _out = world
            .ryectl(words)
            .arg(&run)
            .run()
            .code(5)
            .stderr_contains(told);
    };
    refused("resume", &["it has taken 1 turns", "more than 1"]);
    refused("resume --raise turns=1", &["more than 1"]);
    refused("resume --raise spend=0.50", &["more than 1"]);
    refused("resume --raise steps=9", &["no limit of `steps`", "turns"]);
    let after = world.ryectl("events").arg(&run).ok().stdout();
    assert_eq!(after, before, "what is refused leaves nothing behind");
    daemon.kill();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let _resumed = world.ryectl("resume --raise turns=2").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "completed");
    assert_eq!(server.requests().len(), 2);
}

/// True if a message of the request contains `text`.
fn contains_text(request: &Request, text: &str) -> bool {
    request.body["messages"].to_string().contains(text)
}

#[test]
fn message_during_answer_is_in_next_request_and_continues_thread() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {text: I am done., hold: {name: story, before: 3}}
- when: {turn: 2}
  reply: {text: And now really.}
",
    );
    let world = World::with_models(&server);
    world.directive("t/story", BASH, "", "Tell a story.");
    let _daemon = world.start("");
    let run = start(&world, "t/story");
    server.wait_held("story");
    for text in ["Make it short.", "And kind."] {
        let say = world.ryectl("thread say").arg(&run).arg(text);
        let _said = say.ok().prints(&["before its model is called again"]);
    }
    server.release("story");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["result"], "And now really.", "{record}");
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "the last word was not the last");
    assert!(!contains_text(&requests[0], "Make it short."));
    assert!(
        contains_text(&requests[1], "Make it short.") && contains_text(&requests[1], "And kind.")
    );
    let told: Vec<Value> = payloads(&world, &run, "cognition_in");
    let told = told.iter().filter(|told| told["source"] == "message");
    let texts: Vec<&str> = told.filter_map(|told| told["text"].as_str()).collect();
    assert_eq!(texts, ["Make it short.", "And kind."]);
    let _refused = world
        .ryectl("thread say")
        .arg(&run)
        .arg("Once more.")
        .run()
        .code(5)
        .stderr_contains(&["has ended (completed)", "--message TEXT"]);
}

#[test]
fn message_after_results_survives_crash() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo one}}}], hold: {name: gate, before: 3}}
- when: {turn: 2}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive(
        "t/look",
        &format!("<limits turns=\"1\"/>{BASH}"),
        "",
        "Look.",
    );
    let daemon = world.start("");
    let run = start(&world, "t/look");
    server.wait_held("gate");
    let _said = world.ryectl("thread say").arg(&run).arg("Hear me.").ok();
    server.release("gate");
    assert_eq!(world.settled(&run)["status"], "suspended");
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let _resumed = world.ryectl("resume --raise turns=2").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "completed");
    let requests = server.requests();
    assert!(
        contains_text(&requests[1], "Hear me."),
        "{:?}",
        requests[1].body
    );
    assert_eq!(payloads(&world, &run, "message_queued").len(), 1);
}

#[test]
fn suspended_thread_queues_messages_until_resume() {
    let server = ModelServer::start(LOOKS);
    let world = World::with_models(&server);
    let _daemon = world.start("");
    let run = at_its_limit(&world);
    let say = world.ryectl("thread say").arg(&run).arg("Look again.");
    let _said = say
        .ok()
        .prints(&["gets the message when it is resumed"])
        .stderr_contains(&["--raise turns=N"]);
    assert_eq!(server.requests().len(), 1);
    // If the resume is refused, the message is not delivered.
    let resume = |words: &str| {
        let resume = world.ryectl(words).arg(&run);
        resume.arg("--message").arg("And once more.")
    };
    let _refused = resume("resume").run().code(5);
    assert_eq!(payloads(&world, &run, "message_queued").len(), 1);
    let _resumed = resume("resume --raise turns=2").ok();
    assert_eq!(world.settled(&run)["status"], "completed");
    let last = server.requests().pop().unwrap();
    let body = last.body["messages"].to_string();
    let (first, second) = (body.find("Look again."), body.find("And once more."));
    assert!(first.is_some() && first < second, "{body}");
}

#[test]
fn say_requires_thread_and_bounded_message() {
    let server = ModelServer::start(LOOKS);
    let world = World::with_models(&server);
    let _daemon = world.start("");
    let run = at_its_limit(&world);
    let say = |run: &str, text: &str| world.ryectl("thread say").arg(run).arg(text).run();
    let _empty = say(&run, " ").code(2).stderr_contains(&["empty"]);
    let long = "x".repeat(64 * 1024 + 1);
    let _long = say(&run, &long).code(2).stderr_contains(&["65537 bytes"]);
    for _ in 0..64 {
        let _said = say(&run, "Listen.").code(0);
    }
    let _full = say(&run, "Listen.")
        .code(5)
        .stderr_contains(&["64 messages wait"]);
    let _unknown = say("t-look-1-abcdefghij", "Listen.").code(3);
    world.graph("t/idle", "start: a\nnodes:\n  a: {type: return}");
    let graph = world.start_run("t/idle");
    let _graph = say(&graph, "Listen.")
        .code(5)
        .stderr_contains(&["only a thread"]);
}
