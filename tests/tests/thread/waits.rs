//! Threads that wait for their provider say so.

use std::fs;

use rye_core::clock::Timestamp;
use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};
use serde_json::Value;

use super::children::completed;
use super::{BASH, payloads, start};

fn waiting(world: &World, run: &str) -> Option<Value> {
    let record = world.ryectl("get --json").arg(run).ok().json();
    record.get("waiting").cloned()
}

#[test]
fn pause_of_provider_is_shown_by_thread_in_backoff_and_by_thread_in_queue() {
    let server = ModelServer::start(
        "
- when: {directive: first, turn: 1}
  times: 1
  reply: {status: 429, retry_after: 3, error: {type: rate_limit_error, message: Slow down.}}
- when: {turn: 1}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive("t/first", BASH, "", "Say something.");
    world.directive("t/second", BASH, "", "Say something.");
    let _daemon = world.start("");
    let first = start(&world, "t/first");
    let wait = until("the backoff", || waiting(&world, &first));
    let due = &payloads(&world, &first, "turn_retry_scheduled")[0]["due"];
    assert_eq!(wait["waits"], "provider", "{wait}");
    let until_due = Timestamp::parse(wait["until"].as_str().unwrap()).map(Timestamp::ms);
    assert_eq!(until_due, due.as_i64());

    let second = world.ryectl("thread run t/second").spawn();
    let runs = until("the second thread to wait", || {
        let runs = world.ryectl("ps --json").ok().json();
        let runs = runs.as_array().unwrap().clone();
        let waits = runs.iter().filter(|run| !run["waiting"].is_null()).count();
        (waits == 2).then_some(runs)
    });
    let id = runs
        .iter()
        .find(|run| run["item_id"] == "t/second")
        .unwrap()["run_id"]
        .clone();
    let id = id.as_str().unwrap();
    let told = payloads(&world, id, "turn_waiting");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["waits"], "provider");
    let end = Timestamp::from_ms(told[0]["until"].as_i64().unwrap());
    let shown = format!("waiting: provider until {}", end.to_seconds_string());
    let rows = world.ryectl("ps").ok().stdout();
    assert!(rows.contains(&shown), "{shown}: {rows}");
    let fields = world.ryectl("get").arg(id).ok().stdout();
    let field = fields.lines().find(|line| line.starts_with("waiting"));
    let value = shown.split_once(": ").unwrap().1;
    assert!(field.is_some_and(|line| line.ends_with(value)), "{fields}");
    let output = second.wait_with_output().unwrap();
    let view = String::from_utf8(output.stderr).unwrap();
    let expected = format!("[thread:t/second] turn 1 {shown}");
    assert!(view.contains(&expected), "{expected}: {view}");
    for run in [&first, id] {
        completed(&world, run);
        assert_eq!(waiting(&world, run), None);
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn thread_that_waits_for_slot_shows_no_end() {
    let server = ModelServer::start(
        "
- when: {directive: first, turn: 1}
  reply: {content: [{hold: speaks}, {text: Done.}]}
- when: {turn: 1}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    let shipped = include_str!("../../../.ai/config/agent/providers/anthropic.yaml");
    let provider = world
        .home()
        .join(".ai/config/agent/providers/anthropic.yaml");
    fs::create_dir_all(provider.parent().unwrap()).unwrap();
    let one = shipped.replace("max_concurrent: 64", "max_concurrent: 1");
    assert_ne!(one, shipped);
    fs::write(&provider, one).unwrap();
    let _signed = world.ryectl("sign").arg(&provider).ok();
    world.directive("t/first", BASH, "", "Say something.");
    world.directive("t/second", BASH, "", "Say something.");
    let _daemon = world.start("");
    let first = start(&world, "t/first");
    server.wait_held("speaks");
    let second = start(&world, "t/second");
    let wait = until("the wait for a slot", || waiting(&world, &second));
    assert_eq!(
        (&wait["waits"], &wait["until"]),
        (&"provider".into(), &Value::Null)
    );
    server.release("speaks");
    for run in [&first, &second] {
        completed(&world, run);
        assert_eq!(waiting(&world, run), None);
    }
    assert_eq!(payloads(&world, &second, "turn_waiting").len(), 1);
}
