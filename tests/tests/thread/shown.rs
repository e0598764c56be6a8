//! Views of models, of the beginning of a thread, and of its results.

use rye_tests::World;
use rye_tests::model_server::{ModelServer, SECRET};
use serde_json::{Value, json};

use super::{BASH, COUNTS, counting, start};

#[test]
fn the_models_of_a_project_are_listed_with_prices_and_keys() {
    let server = ModelServer::start("[{when: {turn: 1}, reply: {text: Done.}}]");
    let mut world = World::with_models(&server);
    let daemon = world.start("");
    let models = world.ryectl("models --json").ok().json();
    let providers = models["providers"].as_array().unwrap();
    let of = |name: &str| providers.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(of("anthropic")["usable"], true);
    let sonnet = &of("anthropic")["models"][1];
    assert_eq!(sonnet["id"], "claude-sonnet-5-5");
    assert_eq!(sonnet["prices"][0]["output"], "10.000000000");
    assert_eq!(
        models["tiers"]["high"],
        json!(["anthropic/claude-opus-5-5"])
    );
    assert!(!models.to_string().contains(SECRET));
    daemon.kill_both();
    let _status = daemon.ended();
    world.forget_models();
    let _daemon = world.start("");
    let shown = world
        .ryectl("models")
        .ok()
        .stderr_contains(&["anthropic needs the secret ANTHROPIC_API_KEY"]);
    assert!(shown.stdout().contains("no key"), "{}", shown.stdout());
    assert!(server.requests().is_empty());
}

#[test]
fn preview_equals_first_request_and_runs_nothing() {
    let server = ModelServer::start("[{when: {turn: 1}, reply: {text: Done.}}]");
    let world = World::with_models(&server);
    let inputs = "<inputs><input name=\"dir\" required=\"true\">Where</input></inputs>";
    world.directive(
        "t/look",
        &format!("<limits turns=\"3\"/>{BASH}"),
        inputs,
        "Look at {input:dir}.",
    );
    let _daemon = world.start("");
    let shown = world
        .ryectl("thread show t/look -i dir=src --limit spend=0.50 --json")
        .ok()
        .json();
    assert!(shown["message"].as_str().unwrap().contains("Look at src."));
    assert_eq!(shown["limits"]["turns"], 3);
    assert_eq!(shown["limits"]["spend"], "0.500000000");
    let tools = shown["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["read_artifact", "rye_bash", "rye_execute"]);
    assert_eq!(shown["provider"], "anthropic");
    let shell = json!({"permission": "rye.execute.tool.rye.bash", "class": "elevated", "policy": "acknowledge_required"});
    assert_eq!(shown["risks"], json!([shell]));
    let told = world.ryectl("thread show t/look -i dir=src").ok();
    let told = told.stdout();
    assert!(
        told.contains("rye.execute.tool.rye.bash elevated (acknowledge_required)"),
        "{told}"
    );
    let _refused = world
        .ryectl("thread show t/look")
        .run()
        .code(2)
        .stderr_contains(&["dir"]);
    let _graph = world.ryectl("thread show tool:rye/bash").run().code(2);
    assert!(server.requests().is_empty());
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
    let run = world
        .ryectl("run --detach directive:t/look -i dir=src --limit spend=0.50")
        .ok()
        .line();
    let _record = world.settled(&run);
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let of = |name: &str| {
        events
            .iter()
            .find(|event| event["event_type"] == name)
            .unwrap()["payload"]
            .clone()
    };
    assert_eq!(of("cognition_in")["text"], shown["message"]);
    let first = of("step_start");
    let call = &shown["first_call"];
    assert_eq!(
        (&first["input_tokens"], &first["max_output"]),
        (&call["input_tokens"], &call["max_output"])
    );
    assert_eq!(of("budget_held")["amount"], call["hold"]);
}

#[test]
fn a_new_directive_is_signed_shown_and_run() {
    let server = ModelServer::start(
        "[{when: {turn: 1}, reply: {calls: [{name: directive_return, input: {answer: A license.}}]}}]",
    );
    let world = World::with_models(&server);
    let _daemon = world.start("");
    let _made = world
        .ryectl("new directive team/ask")
        .ok()
        .stderr_contains(&["ryectl sign directive:team/ask"]);
    let _checked = world.ryectl("thread validate team/ask").ok();
    let _again = world
        .ryectl("new directive team/ask")
        .run()
        .code(5)
        .stderr_contains(&["is there already"]);
    let _signed = world.ryectl("sign directive:team/ask").ok();
    let out = world.ryectl("thread run team/ask -i path=LICENSE").ok();
    let printed: Value = serde_json::from_str(&out.stdout()).unwrap();
    assert_eq!(printed, json!({"answer": "A license."}));
    for (form, id, inputs, key) in [
        ("graph", "team/count", "-i folder=.", "files"),
        ("tool", "team/greet", "-i name=Ada", "greeting"),
    ] {
        let _made = world.ryectl(&format!("new {form} {id}")).ok();
        let _signed = world.ryectl(&format!("sign tool:{id}")).ok();
        let out = world.ryectl(&format!("run {id} {inputs}")).ok();
        assert!(out.stdout().contains(key), "{}", out.stdout());
    }
}

#[test]
fn thread_views_show_turns_calls_and_model() {
    let server = ModelServer::start(COUNTS);
    let world = counting(&server);
    let _daemon = world.start("");
    let run = start(&world, "t/count");
    let _record = world.settled(&run);
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    let rows: Vec<_> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (
                step["step"].clone(),
                step["node"].clone(),
                step["status"].clone(),
            )
        })
        .collect();
    let row = |turn: u32, node: &str| (json!(turn), json!(node), json!("ok"));
    assert_eq!(
        rows,
        [row(1, "tool:rye/bash"), row(1, "turn"), row(2, "turn")]
    );
    let shown = world.ryectl("get").arg(&run).ok().stdout();
    for part in [
        "anthropic/claude-sonnet-5-5",
        "0.00319 USD, turns 2, tokens 1050 in, 100 out",
        "\"words\": 4",
    ] {
        assert!(shown.contains(part), "`{part}`: {shown}");
    }
    let events = world.ryectl("events").arg(&run).ok().stdout();
    assert!(events.contains("turn 1: I count the words."), "{events}");
}

#[test]
fn steps_of_a_thread_show_its_commands_and_the_end_of_their_output() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: 'seq 5; exit 3'}}}]}
- when: {turn: 2}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive("t/counts", BASH, "", "Count.");
    let _daemon = world.start("");
    let run = start(&world, "t/counts");
    let _record = world.settled(&run);
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    let command = json!({"line": "seq 5; exit 3", "last": ["3", "4", "5"], "more": 2});
    assert_eq!(steps[0]["command"], command, "{steps}");
    assert!(steps[1].get("command").is_none(), "{steps}");
    let text = world.ryectl("steps").arg(&run).ok().stdout();
    let shown = "\n  $ seq 5; exit 3\n    … 2 lines\n    3\n    4\n    5\n";
    assert!(text.contains(shown), "{text}");
    assert!(text.contains("exit code 3\n"), "{text}");
}
