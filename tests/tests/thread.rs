//! Threads: a model runs a directive; a scripted server plays the model.

mod approvals;
mod children;
mod classed;
mod continued;
mod crash;
mod directives;
mod fail_points;
mod files;
mod foreign;
mod limits;
mod live;
mod offered;
mod reseeded;
mod results;
mod shown;
mod story;
mod tight;
mod tree;
mod user_messages;
mod waits;

use nix::sys::signal::Signal;
use rye_tests::binaries::clone_root;
use rye_tests::model_server::{ModelServer, SECRET};
use rye_tests::{World, transcript};
use serde_json::{Value, json};

/// Permits `rye/bash`.
const BASH: &str =
    "<model tier=\"general\"/><permissions><execute><tool>rye/bash</tool></execute></permissions>";
/// Returns a number of words.
const WORDS: &str = "<outputs><output name=\"words\" type=\"integer\" required=\"true\">How many</output></outputs>";

/// Counts the words of a file, in two turns.
const COUNTS: &str = "
- when: {directive: count, turn: 1}
  reply:
    thinking: A shell can do that.
    text: I count the words.
    calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: 'wc -w < words.txt'}}}]
    usage: {input: 900, output: 60}
- when: {directive: count, turn: 2, tool_result: '4'}
  reply:
    calls: [{name: directive_return, input: {words: 4}}]
    usage: {input: 150, output: 40, cache_read: 900}
";

fn counting(server: &ModelServer) -> World {
    let world = World::with_models(server);
    world.directive("t/count", BASH, WORDS, "Count the words of words.txt.");
    world.write("words.txt", "one two three four\n");
    world
}

/// Returns the names of the events of a run, in order.
fn names(world: &World, run: &str) -> Vec<String> {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let name = |event: &Value| event["event_type"].as_str().unwrap_or_default().to_owned();
    events.iter().map(name).collect()
}

/// Returns the payloads of the events with one name.
fn payloads(world: &World, run: &str, name: &str) -> Vec<Value> {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let of = events
        .into_iter()
        .filter(|event| event["event_type"] == name);
    of.map(|event| event["payload"].clone()).collect()
}

fn account(world: &World, run: &str) -> Value {
    let shown = world.ryectl("budget show --json").arg(run).ok().json();
    shown["path"][0].clone()
}

fn start(world: &World, directive: &str) -> String {
    let run = world.ryectl("run --detach");
    run.arg(format!("directive:{directive}")).ok().line()
}

#[test]
fn a_directive_is_run_by_a_model_that_calls_a_tool_and_returns_outputs() {
    let server = ModelServer::start(COUNTS);
    let world = counting(&server);
    let _daemon = world.start("");
    let out = world.ryectl("thread run t/count").ok();
    let printed: Value = serde_json::from_str(&out.stdout()).unwrap();
    assert_eq!(printed, json!({"words": 4}));
    assert!(
        out.stderr().contains("I count the words."),
        "{}",
        out.stderr()
    );
    assert!(out.stderr().contains("rye/bash"), "{}", out.stderr());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn the_example_of_the_readme_counts_and_summarizes() {
    let script = clone_root().join("tests/data/models/summarize_file.yaml");
    let server = ModelServer::start(&std::fs::read_to_string(script).unwrap());
    let world = World::with_models(&server);
    let license = std::fs::read_to_string(clone_root().join("LICENSE")).unwrap();
    world.write("LICENSE", license);
    let _daemon = world.start("");
    let out = world
        .ryectl("thread run rye/examples/summarize_file -i path=LICENSE")
        .ok();
    let printed: Value = serde_json::from_str(&out.stdout()).unwrap();
    assert_eq!(printed["words"], 170);
    assert!(out.stderr().contains("cost:"), "{}", out.stderr());
}

#[test]
fn each_turn_records_its_cost_and_releases_its_hold() {
    let server = ModelServer::start(COUNTS);
    let world = counting(&server);
    let _daemon = world.start("");
    let run = start(&world, "t/count");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let expected = [
        "step_start",
        "budget_held",
        "tool_call_start",
        "cognition_reasoning",
        "cognition_out",
        "budget_settled",
        "tool_call_result",
        "step_finish",
        "step_start",
        "budget_held",
        "cognition_out",
        "budget_settled",
        "directive_return",
        "tool_call_result",
        "step_finish",
        "thread_completed",
    ];
    let names = names(&world, &run);
    let begun = names
        .iter()
        .position(|name| name == "prompt_composed")
        .unwrap();
    let mut turns: Vec<&str> = names[begun + 1..].iter().map(String::as_str).collect();
    turns.retain(|name| !["process_started", "process_exited", "budget_warning"].contains(name));
    // The tool starts while the model streams, before or after the end of the message. So the comparison ignores the
    // order.
    let mut expected = expected.to_vec();
    turns.sort_unstable();
    expected.sort_unstable();
    assert_eq!(turns, expected, "{names:?}");
    assert_eq!(account(&world, &run)["held"], "0.000000000");
    assert_eq!(account(&world, &run)["actual"], "0.003190000");
    let text = world.ryectl("transcript --json").arg(&run).ok().stdout();
    transcript::check(&text, &run, &world.node_key()).unwrap();
}

#[test]
fn provider_key_is_in_no_record_or_log() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply:
    calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: 'env; cat /proc/self/environ'}}}]
- when: {turn: 2}
  reply: {status: 401, error: {type: authentication_error, message: 'bad key sk-key-of-the-scripted-model-server'}}
",
    );
    let world = World::with_models(&server);
    world.directive("t/leaky", BASH, "", "Show the environment.");
    let daemon = world.start("");
    let run = start(&world, "t/leaky");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    assert!(!record.to_string().contains(SECRET));
    let log = world.ryectl("events --json").arg(&run).ok().stdout();
    assert!(!log.contains(SECRET));
    // The drop of the world checks that no file contains the secret.
    daemon.kill();
}

#[test]
fn busy_provider_is_retried_at_no_cost() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  times: 1
  reply: {status: 529, retry_after: 0, error: {type: overloaded_error, message: Busy.}}
- when: {turn: 1}
  reply: {text: Here I am., usage: {input: 100, output: 10}}
",
    );
    let world = World::with_models(&server);
    world.directive("t/patient", BASH, "", "Say something.");
    let _daemon = world.start("");
    let run = start(&world, "t/patient");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let settled = payloads(&world, &run, "budget_settled");
    let free = settled
        .iter()
        .filter(|settled| settled["usage"]["usd"].is_null());
    assert_eq!((settled.len(), free.count()), (2, 1), "{settled:?}");
    assert_eq!(payloads(&world, &run, "retry_succeeded").len(), 1);
}

#[test]
fn thread_without_money_is_suspended_and_resumes_after_raise() {
    let server = ModelServer::start("[{when: {turn: 1}, reply: {text: Done.}}]");
    let world = World::with_models(&server);
    world.directive("t/poor", BASH, "", "Say something.");
    let _daemon = world.start("");
    let out = world
        .ryectl("thread run t/poor --limit spend=0.000001 --json")
        .run()
        .code(75);
    let run = out.json();
    assert_eq!(run["suspend"]["reason"], "limit", "{run}");
    assert_eq!(run["suspend"]["code"], "spend_exceeded", "{run}");
    assert!(server.requests().is_empty(), "nothing is sent");
    let id = run["run_id"].as_str().unwrap();
    let _resumed = world.ryectl("resume --raise spend=0.50").arg(id).ok();
    assert_eq!(world.settled(id)["status"], "completed");
    let names = [
        "thread_suspended",
        "thread_resumed",
        "run_suspended",
        "run_resumed",
    ];
    let counts = names.map(|name| payloads(&world, id, name).len());
    assert_eq!(counts, [1, 1, 0, 0]);
    let text = world.ryectl("transcript --json").arg(id).ok().stdout();
    transcript::check(&text, id, &world.node_key()).unwrap();
}

#[test]
fn unstartable_thread_is_refused_with_reason_and_no_run() {
    let server = ModelServer::start("[{when: {turn: 1}, reply: {text: Done.}}]");
    let mut world = World::with_models(&server);
    world.directive("t/ok", BASH, "", "Say something.");
    world.directive(
        "t/odd",
        "<model id=\"no-such-model\"/>",
        "",
        "Say something.",
    );
    world.directive(
        "t/wants",
        BASH,
        "<inputs><input name=\"dir\" required=\"true\">Where</input></inputs>",
        "Go.",
    );
    let unsigned = world.write(".ai/directives/t/bad.md", "no directive at all");
    let daemon = world.start("");
    let refused = |words: &str, code: i32, tells: &[&str]| {
        let _out = world.ryectl(words).run().code(code).stderr_contains(tells);
    };
    refused("thread run t/nothing", 3, &["t/nothing"]);
    refused("thread run t/odd", 3, &["no-such-model"]);
    refused("thread run t/wants", 2, &["dir"]);
    refused("thread run t/ok --model nope", 3, &["nope"]);
    refused("thread run t/ok --provider nope", 3, &["nope"]);
    refused("thread run t/bad", 4, &["t/bad"]);
    world.directive("t/all", "<permissions>*</permissions>", "", "Do it.");
    refused("thread run t/all", 4, &["t/all", "unrestricted"]);
    assert!(unsigned.exists());
    daemon.signal(Signal::SIGTERM);
    let _status = daemon.ended();
    world.forget_models();
    let _daemon = world.start("");
    let _out = world
        .ryectl("thread run t/ok")
        .run()
        .code(5)
        .stderr_contains(&["ANTHROPIC_API_KEY"]);
    assert!(server.requests().is_empty());
}

#[test]
fn a_cancel_cuts_the_stream_and_settles_the_call() {
    let server = ModelServer::start(
        "[{when: {turn: 1}, reply: {text: A long story., hold: {name: story, before: 3}}}]",
    );
    let world = World::with_models(&server);
    world.directive("t/story", BASH, "", "Tell a story.");
    let _daemon = world.start("");
    let run = start(&world, "t/story");
    server.wait_held("story");
    let _asked = world.ryectl("kill").arg(&run).ok();
    let record = world.settled(&run);
    assert_eq!(record["status"], "killed", "{record}");
    server.wait_abandoned(1);
    assert_eq!(account(&world, &run)["held"], "0.000000000");
}
