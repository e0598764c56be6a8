//! Limits of threads: their sources, their effects, and the end of the time.

use rye_core::id::ItemKind;
use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::Value;

use super::{BASH, account, payloads, start};

/// Calls the same tool in each turn.
const ROUND: &str = "
- when: {}
  reply: {calls: [{name: rye_bash, input: {command: 'echo x >> ran'}}], usage: {input: 100, output: 10}}
";

const RESILIENCE: &str = ".ai/config/agent/resilience.yaml";

/// Writes a configuration of the project.
fn resilience(world: &World, body: &str) {
    let text = format!("version: \"1.0.0\"\ncategory: agent\nname: resilience\n{body}\n");
    world.write(RESILIENCE, text);
    let _signed = world.ryectl("sign config:agent/resilience").ok();
}

fn suspended(world: &World, run: &str, code: &str) {
    let record = world.settled(run);
    let why = &record["suspend"];
    assert_eq!(
        (&why["reason"], &why["code"]),
        (&"limit".into(), &code.into()),
        "{record}"
    );
    assert_eq!(account(world, run)["held"], "0.000000000");
}

#[test]
fn project_config_lowers_thread_limits_and_sets_enforcement() {
    let server = ModelServer::start(ROUND);
    let world = World::with_models(&server);
    world.directive("t/goes", BASH, "", "Go.");
    resilience(
        &world,
        "limits: {defaults: {turns: 2, tokens: 300000}, enforcement: {on_exceed: fail, check_before_turn: true}}",
    );
    let _daemon = world.start("");
    let out = world.ryectl("thread run t/goes").run();
    let told = out.stderr();
    assert!(told.contains("turns_exceeded"), "{told}");
    assert!(
        told.contains("`limits.defaults.tokens: 300000` is ignored"),
        "{told}"
    );
    assert!(told.contains("check_before_turn` has no effect"), "{told}");
    assert_eq!(server.requests().len(), 2);
    let text = world.read(RESILIENCE).replace("turns: 2", "turn: 2");
    let path = world.write(RESILIENCE, text);
    world.sign_unchecked(ItemKind::Config, &path);
    let _refused = world
        .ryectl("thread run t/goes")
        .run()
        .code(2)
        .stderr_contains(&["did you mean `turns`?"]);
}

#[test]
fn limit_suspension_names_value_to_raise_to() {
    let server = ModelServer::start(ROUND);
    let world = World::with_models(&server);
    world.directive("t/goes", BASH, "", "Go.");
    let _daemon = world.start("");
    let run = world
        .ryectl("run --detach directive:t/goes --limit turns=2")
        .ok()
        .line();
    suspended(&world, &run, "turns_exceeded");
    let asked = payloads(&world, &run, "limit_escalation_requested");
    assert_eq!(asked.len(), 1);
    let told = ["limit_code", "current_value", "current_max", "proposed_max"];
    let told = told.map(|key| asked[0][key].as_str().unwrap_or_default());
    assert_eq!(told, ["turns_exceeded", "2", "2", "4"]);
    let _resumed = world
        .ryectl("resume --detach --raise turns=4")
        .arg(&run)
        .ok();
    suspended(&world, &run, "turns_exceeded");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn repeated_identical_calls_are_warned_and_then_stopped() {
    let server = ModelServer::start(ROUND);
    let world = World::with_models(&server);
    world.directive("t/goes", BASH, "", "Go.");
    let _daemon = world.start("");
    let run = start(&world, "t/goes");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    assert_eq!(record["error"]["code"], "repeated_calls", "{record}");
    assert_eq!(world.read("ran").lines().count(), 5);
    assert_eq!(server.requests().len(), 12);
    let told = payloads(&world, &run, "tool_call_result");
    let refused: Vec<&Value> = told
        .iter()
        .filter(|told| told["code"] == "repeated_calls")
        .collect();
    assert_eq!((told.len(), refused.len()), (12, 7));
}

#[test]
fn thread_timeout_cuts_and_charges_model_and_suspends() {
    let server = ModelServer::start(
        "[{when: {turn: 1}, times: 1, reply: {text: A long story., hold: {name: story, before: 3}}}, {when: {turn: 1}, reply: {text: Short.}}]",
    );
    let world = World::with_models(&server);
    world.directive("t/story", BASH, "", "Tell a story.");
    let _daemon = world.start("");
    let run = world
        .ryectl("run --detach directive:t/story --limit duration=1s")
        .ok()
        .line();
    suspended(&world, &run, "duration_exceeded");
    server.wait_abandoned(1);
    let settled = payloads(&world, &run, "budget_settled");
    assert_eq!(settled.len(), 1, "it is not called again");
    assert_eq!(settled[0]["estimated"], true);
    let _resumed = world
        .ryectl("resume --detach --raise duration=60s")
        .arg(&run)
        .ok();
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn thread_timeout_stops_tool_and_informs_model_on_resume() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: rye_bash, input: {command: 'until [ -e go ]; do sleep 0.01; done'}}]}
- when: {turn: 2, tool_result: timed out}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    world.directive("t/waits", BASH, "", "Wait.");
    let _daemon = world.start("");
    let run = world
        .ryectl("run --detach directive:t/waits --limit duration=1s")
        .ok()
        .line();
    suspended(&world, &run, "duration_exceeded");
    let told = payloads(&world, &run, "tool_call_result");
    assert_eq!(told[0]["code"], "timeout", "{told:?}");
    let _resumed = world
        .ryectl("resume --detach --raise duration=60s")
        .arg(&run)
        .ok();
    assert_eq!(world.settled(&run)["status"], "completed");
}
