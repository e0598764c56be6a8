//! Files of a thread in its project, for people and tools.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rye_core::seal::{PublicKey, verify_json};
use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{BASH, COUNTS, counting, payloads, start};

/// Returns the signed object in a file about a run, once it satisfies `enough`.
fn signed(world: &World, run: &str, name: &str, enough: impl Fn(&Value) -> bool) -> Value {
    let path = format!(".ai/state/threads/{run}/{name}");
    let value = until(&path, || {
        let value: Value = serde_json::from_str(&world.read(&path)).ok()?;
        enough(&value).then_some(value)
    });
    let token = verify_json(value.as_object().unwrap()).unwrap();
    token
        .verify(&PublicKey::from_pem(&world.node_key()).unwrap())
        .unwrap();
    value
}

fn page(world: &World, directive: &str, run: &str, part: &str) -> String {
    let path = format!(".ai/knowledge/agent/threads/{directive}/{run}.md");
    until(&path, || {
        let text = world.read(&path);
        text.contains(part).then_some(text)
    })
}

/// Asserts that only the user may read the file.
fn assert_private(world: &World, path: &str) {
    let mode = fs::metadata(world.project().join(path))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "{path}: {mode:o}");
}

/// A turn with a call, and one without.
const TWO_TURNS: &str = "
- when: {turn: 1}
  reply: {text: One., calls: [{name: rye_execute, input: {item_id: rye/bash, parameters: {command: echo one}}}]}
- when: {turn: 2}
  reply: {text: Done.}
";

#[test]
fn thread_state_and_page_describe_its_work() {
    let server = ModelServer::start(COUNTS);
    let world = counting(&server);
    let _daemon = world.start("");
    let run = start(&world, "t/count");
    let _record = world.settled(&run);
    let state = signed(&world, &run, "state.json", |state| {
        state["status"] == "completed"
    });
    assert_eq!(state["directive"], "t/count");
    assert_eq!(state["required_caps"], json!(["rye.execute.tool.rye.bash"]));
    assert_eq!(
        (&state["cost"]["turns"], &state["limits"]["turns"]),
        (&json!(2), &json!(25))
    );
    assert_eq!(state["cost"]["spend"], "0.003190000");
    assert_eq!(state["limits"]["spend"], "1.000000000");
    assert_eq!(
        (&state["suspend"], &state["hooks"]),
        (&json!(null), &json!([]))
    );
    let summary = signed(&world, &run, "thread.json", |summary| {
        summary["status"] == "completed"
    });
    assert_eq!(summary["limits"]["spend"], "1.000000000");
    let begun = &payloads(&world, &run, "thread_started")[0];
    assert_eq!(begun["limits"]["spend"], "1.000000000", "{begun}");
    let text = page(&world, "t/count", &run, "**completed**");
    let files = format!(".ai/state/threads/{run}");
    let page = format!(".ai/knowledge/agent/threads/t/count/{run}.md");
    for file in ["transcript.jsonl", "thread.json", "state.json"] {
        assert_private(&world, &format!("{files}/{file}"));
    }
    assert_private(&world, &page);
    for part in [
        "> *Reasoning*",
        "> I count the words.",
        "### Tool: tool:rye/bash",
        "### Outputs",
        "Turns: 2 | Tokens: 1150 | 0.003190000 USD",
    ] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    assert!(
        !world
            .project()
            .join(format!(".ai/state/threads/{run}/escalation.json"))
            .exists()
    );
}

#[test]
fn thread_at_limit_keeps_escalation_file_until_raise() {
    let server = ModelServer::start(TWO_TURNS);
    let world = World::with_models(&server);
    world.directive(
        "t/look",
        &format!("<limits turns=\"1\"/>{BASH}"),
        "",
        "Look.",
    );
    let daemon = world.start("");
    let run = start(&world, "t/look");
    let _record = world.settled(&run);
    let asked = signed(&world, &run, "escalation.json", |_| true);
    assert_eq!(asked["type"], "limit_escalation");
    assert_eq!(asked["limit_code"], "turns_exceeded");
    let values = [
        &asked["current_value"],
        &asked["current_max"],
        &asked["proposed_max"],
    ];
    assert_eq!(values, [&json!(1), &json!(1), &json!(2)]);
    let message = asked["message"].as_str().unwrap();
    assert!(message.contains("--raise turns=2"), "{message}");
    let page_text = page(&world, "t/look", &run, "**suspended (limit)**");
    let files = [
        format!(".ai/state/threads/{run}/state.json"),
        format!(".ai/state/threads/{run}/escalation.json"),
        format!(".ai/knowledge/agent/threads/t/look/{run}.md"),
    ];
    let before: Vec<String> = files.iter().map(|file| world.read(file)).collect();
    assert_eq!(before[2], page_text);
    daemon.kill_both();
    let _status = daemon.ended();
    for file in &files {
        fs::remove_file(world.project().join(file)).unwrap();
    }
    let _daemon = world.start("");
    for (file, before) in files.iter().zip(&before) {
        let again = until(file, || {
            Some(world.read(file)).filter(|text| !text.is_empty())
        });
        assert_eq!(again, *before, "{file}");
    }
    let _resumed = world.ryectl("resume --raise turns=2").arg(&run).ok();
    let _state = signed(&world, &run, "state.json", |state| {
        state["status"] == "completed"
    });
    assert!(!world.project().join(&files[1]).exists());
}

#[test]
fn suspend_policy_writes_no_escalation_and_state_has_limits() {
    let server = ModelServer::start(TWO_TURNS);
    let world = World::with_models(&server);
    let limits = format!("<limits turns=\"1\" spend=\"0.50\"/>{BASH}");
    world.directive("t/look", &limits, "", "Look.");
    let policy = "version: \"1.0.0\"\ncategory: agent\nname: resilience\nlimits: {enforcement: {on_exceed: suspend}}\n";
    world.write(".ai/config/agent/resilience.yaml", policy);
    let _signed = world.ryectl("sign config:agent/resilience").ok();
    let _daemon = world.start("");
    let run = start(&world, "t/look");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["code"], "turns_exceeded", "{record}");
    let is_suspended = |state: &Value| state["status"] == "suspended";
    let state = signed(&world, &run, "state.json", is_suspended);
    assert_eq!(state["limits"]["spend"], "0.500000000", "{state}");
    let asked = format!(".ai/state/threads/{run}/escalation.json");
    assert!(!world.project().join(asked).exists());
    let _resumed = world
        .ryectl("resume --raise turns=2 --raise spend=0.75")
        .arg(&run)
        .ok();
    let is_over = |state: &Value| state["status"] == "completed";
    let state = signed(&world, &run, "state.json", is_over);
    assert_eq!(state["limits"]["spend"], "0.750000000", "{state}");
}
