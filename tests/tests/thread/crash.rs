//! SIGKILL at each point of a turn: no finished call runs twice, no turn is lost, and held money is charged once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use rye_tests::model_server::ModelServer;
use rye_tests::{Daemon, World, transcript, until};
use serde_json::Value;

use super::{account, payloads, start};
use crate::crash::rounds;

/// Permits the shell, and declares the effect of a second execution.
pub(super) fn bash(effect: &str) -> String {
    format!("<permissions><execute{effect}><tool>rye/bash</tool></execute></permissions>")
}

/// Records that it ran, and then waits for the file `go`.
const WAITS: &str = "echo x >> ran; until [ -e go ]; do sleep 0.01; done; echo done";

fn world(server: &ModelServer, effect: &str) -> World {
    let world = World::with_models(server);
    world.directive("t/work", &bash(effect), "", "Work.");
    world
}

/// Kills both processes of the daemon, as a power failure would.
pub(super) fn die(daemon: Daemon) {
    daemon.kill_both();
    let _status = daemon.ended();
}

fn runs(world: &World) -> usize {
    world.read("ran").lines().count()
}

pub(super) fn call(command: &str) -> String {
    format!(
        "{{name: rye_execute, input: {{item_id: rye/bash, parameters: {{command: '{command}'}}}}}}"
    )
}

/// Returns the charges, call by call: true for an estimate, and the reason.
fn charges(world: &World, run: &str) -> Vec<(bool, String)> {
    let settled = payloads(world, run, "budget_settled");
    let told = |settled: &Value| {
        let because = settled["because"].as_str().unwrap_or_default().to_owned();
        (settled["estimated"] == true, because)
    };
    settled.iter().map(told).collect()
}

fn completed(world: &World, run: &str) {
    let record = world.settled(run);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(account(world, run)["held"], "0.000000000");
}

#[test]
fn death_before_first_text_restarts_turn_and_charges_hold() {
    let server =
        ModelServer::start("[{when: {turn: 1}, reply: {slow_headers: gate, text: Done.}}]");
    let world = world(&server, "");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    server.wait_for(|requests| requests.len() == 1);
    die(daemon);
    let _daemon = world.start("");
    server.wait_for(|requests| requests.len() == 2);
    server.release("gate");
    completed(&world, &run);
    assert_eq!(
        charges(&world, &run),
        [(true, "crash".into()), (false, "usage".into())]
    );
}

#[test]
fn death_in_stream_makes_started_calls_the_message() {
    let script = format!(
        "
- when: {{turn: 1}}
  reply:
    content: [{{text: I work.}}, {{call: {}}}, {{hold: rest}}, {{text: More.}}]
- when: {{turn: 2, tool_result: unknown}}
  reply: {{text: Done.}}
",
        call(WAITS)
    );
    let server = ModelServer::start(&script);
    let world = world(&server, "");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    until("the call to run", || (runs(&world) == 1).then_some(()));
    die(daemon);
    let _daemon = world.start("");
    completed(&world, &run);
    assert_eq!(runs(&world), 1, "nobody declared that it may be repeated");
    let said = payloads(&world, &run, "cognition_out");
    assert_eq!(said[0]["message"]["partial"], true, "{said:?}");
    assert_eq!(said[0]["text"], "I work.");
    assert_eq!(charges(&world, &run)[0], (true, "crash".into()));
}

#[test]
fn death_after_message_charges_exactly_and_repeats_idempotent_call() {
    let script = format!(
        "
- when: {{turn: 1}}
  reply: {{text: I work., calls: [{}], usage: {{input: 100, output: 10}}}}
- when: {{turn: 2, tool_result: done}}
  reply: {{text: Done., usage: {{input: 100, output: 10}}}}
",
        call(WAITS)
    );
    let server = ModelServer::start(&script);
    let world = world(&server, " effect=\"idempotent\"");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    until("the message to be on record", || {
        let said = payloads(&world, &run, "cognition_out");
        (said.len() == 1 && runs(&world) == 1).then_some(())
    });
    die(daemon);
    let _daemon = world.start("");
    until("the call to run again", || {
        (runs(&world) == 2).then_some(())
    });
    world.write("go", "");
    completed(&world, &run);
    assert_eq!(server.requests().len(), 2, "no turn is made twice");
    let exact = (false, "usage".to_owned());
    assert_eq!(charges(&world, &run), [exact.clone(), exact]);
    let keys = payloads(&world, &run, "tool_call_start");
    assert_eq!(keys[0]["key"], keys[1]["key"]);
}

#[test]
fn self_declared_idempotent_tool_runs_again_after_death() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  reply: {calls: [{name: t_again, input: {}}]}
- when: {turn: 2, tool_result: done}
  reply: {text: Done.}
",
    );
    let world = World::with_models(&server);
    let head =
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\n";
    let tool = format!("{head}effect: idempotent\nconfig: {{script: '{WAITS}'}}\n");
    world.tool("t/again.yaml", &tool);
    let permissions = "<permissions><execute><tool>t/again</tool></execute></permissions>";
    world.directive("t/work", permissions, "", "Work.");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    until("the call to run", || (runs(&world) == 1).then_some(()));
    die(daemon);
    let _daemon = world.start("");
    until("the call to run again", || {
        (runs(&world) == 2).then_some(())
    });
    world.write("go", "");
    completed(&world, &run);
    let started = payloads(&world, &run, "tool_call_start");
    assert_eq!(
        (started.len(), &started[0]["effect"]),
        (2, &"idempotent".into())
    );
    assert_eq!(started[0]["key"], started[1]["key"]);
}

#[test]
fn call_with_recorded_result_never_runs_again() {
    let script = format!(
        "
- when: {{turn: 1}}
  reply: {{calls: [{}]}}
- when: {{turn: 2, tool_result: done}}
  reply: {{slow_headers: gate, text: Done.}}
",
        call("echo x >> ran; echo done")
    );
    let server = ModelServer::start(&script);
    let world = world(&server, " effect=\"idempotent\"");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    server.wait_for(|requests| requests.len() == 2);
    die(daemon);
    let _daemon = world.start("");
    server.wait_for(|requests| requests.len() == 3);
    server.release("gate");
    completed(&world, &run);
    assert_eq!(runs(&world), 1);
}

#[test]
fn death_in_retry_pause_waits_for_rest_of_pause() {
    let server = ModelServer::start(
        "
- when: {turn: 1}
  times: 1
  reply: {status: 529, retry_after: 1, error: {type: overloaded_error, message: Busy.}}
- when: {turn: 1}
  reply: {text: Done.}
",
    );
    let world = world(&server, "");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    until("the pause", || {
        (payloads(&world, &run, "turn_retry_scheduled").len() == 1).then_some(())
    });
    die(daemon);
    let _daemon = world.start("");
    completed(&world, &run);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn at_most_once_call_of_thread_waits_for_verdict() {
    let script = format!(
        "
- when: {{turn: 1}}
  reply: {{calls: [{}]}}
- when: {{turn: 2, tool_result: done}}
  reply: {{text: Done.}}
",
        call(WAITS)
    );
    let server = ModelServer::start(&script);
    let world = world(&server, " effect=\"at_most_once\"");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    until("the call to run", || (runs(&world) == 1).then_some(()));
    die(daemon);
    let _daemon = world.start("");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "uncertain", "{record}");
    let started = &payloads(&world, &run, "tool_call_start")[0];
    let attempt = &record["suspend"]["attempts"][0];
    assert_eq!(attempt["name"], "t/work[0]", "{record}");
    assert_eq!(attempt["item"], "tool:rye/bash", "{record}");
    assert_eq!(attempt["key"], started["key"], "{record}");
    let parameters = &started["input"]["parameters"];
    assert!(parameters.is_object(), "{started}");
    assert_eq!(&attempt["params"], parameters, "{record}");
    assert!(attempt["started_at"].is_string(), "{record}");

    let _resumed = world
        .ryectl("resume --detach")
        .arg(&run)
        .arg("--uncertain")
        .arg("t/work[0]=done")
        .ok();
    completed(&world, &run);
    assert_eq!(runs(&world), 1);
}

#[test]
fn a_daemon_that_comes_back_without_the_key_suspends_its_threads() {
    let server =
        ModelServer::start("[{when: {turn: 1}, reply: {slow_headers: gate, text: Done.}}]");
    let mut world = world(&server, "");
    let daemon = world.start("");
    let run = start(&world, "t/work");
    server.wait_for(|requests| requests.len() == 1);
    die(daemon);
    world.forget_models();
    let daemon = world.start("");
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["code"], "model_unusable", "{record}");
    die(daemon);
    world.find_models(&server);
    let _daemon = world.start("");
    server.release("gate");
    let _resumed = world.ryectl("resume --detach").arg(&run).ok();
    completed(&world, &run);
}

/// Number of deaths. `RYE_CRASH_ROUNDS` overrides it.
const ROUNDS: usize = 8;
/// Most turns of a thread between two deaths, several times the usual number.
const TURNS_A_LIFE: usize = 15;

/// Scripts `most` turns. Each calls a tool that records its key, until the tool reports that it is enough.
fn script(most: usize) -> String {
    let mut script = String::new();
    let command =
        "echo $RYE_IDEMPOTENCY_KEY >> keys; sleep 0.01; [ -e stop ] && echo enough || echo more";
    let _written = write!(
        script,
        "- when: {{tool_result: enough}}\n  reply: {{text: Done., usage: {{input: 10, output: 1}}}}\n"
    );
    for turn in 1..=most {
        let _written = write!(
            script,
            "- when: {{turn: {turn}}}\n  reply: {{text: Turn {turn}., calls: [{}], usage: {{input: 10, output: 1}}}}\n",
            // Each call differs from the previous one, because a repeated call would be refused.
            call(&format!("true {turn}; {command}"))
        );
    }
    script
}

pub(super) fn keys(world: &World) -> HashMap<String, usize> {
    let mut keys = HashMap::new();
    for key in world.read("keys").lines() {
        *keys.entry(key.to_owned()).or_default() += 1;
    }
    keys
}

/// Returns the keys of the calls whose results are recorded.
pub(super) fn on_record(world: &World, run: &str) -> Vec<String> {
    let started = payloads(world, run, "tool_call_start");
    let ended = payloads(world, run, "tool_call_result");
    let has_ended = |id: &Value| ended.iter().any(|ended| ended["call_id"] == *id);
    let keys = started
        .iter()
        .filter(|started| has_ended(&started["call_id"]));
    keys.map(|started| started["key"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn thread_survives_random_deaths_without_losing_turn_or_money() {
    let rounds = rounds(ROUNDS);
    let turns = TURNS_A_LIFE * rounds;
    let server = ModelServer::start(&script(turns));
    let world = World::with_models(&server);
    let limits = format!("<limits turns=\"{turns}\" tokens=\"1000000000\" spend=\"1000\"/>");
    let metadata = format!("{limits}{}", bash(" effect=\"idempotent\""));
    world.directive("t/long", &metadata, "", "Work on and on.");
    let mut daemon = world.start("recovery: suspend");
    let run = start(&world, "t/long");
    let mut finished: HashMap<String, usize> = HashMap::new();
    let mut seed: u64 = 0x5eed_0042;
    for round in 0..rounds {
        let before = keys(&world).len();
        until("the thread to continue", || {
            (keys(&world).len() > before + 1).then_some(())
        });
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        thread::sleep(Duration::from_micros(seed % 60_000));
        die(daemon);
        daemon = world.start("recovery: suspend");
        let ran = keys(&world);
        for key in on_record(&world, &run) {
            let times = ran.get(&key).copied().unwrap_or_default();
            assert!(
                times > 0,
                "round {round}: {key} is on record and did not run"
            );
            let known = *finished.entry(key).or_insert(times);
            assert_eq!(known, times, "round {round}: a finished call ran again");
        }
        let _resumed = world.ryectl("resume --detach").arg(&run).ok();
    }
    world.write("stop", "");
    completed(&world, &run);
    let spoken = payloads(&world, &run, "cognition_out");
    let turns: Vec<u64> = spoken
        .iter()
        .filter_map(|said| said["turn"].as_u64())
        .collect();
    let expected: Vec<u64> = (1..).take(turns.len()).collect();
    assert_eq!(turns, expected, "each turn came to one message");
    let settled = payloads(&world, &run, "budget_settled");
    let calls: Vec<u64> = settled
        .iter()
        .filter_map(|settled| settled["call"].as_u64())
        .collect();
    let held = payloads(&world, &run, "budget_held").len();
    let numbers: Vec<u64> = (1..).take(held).collect();
    assert_eq!(calls, numbers, "each call of the model is settled once");
    let nanos = |value: &Value| {
        let text = value.as_str().unwrap_or("0.000000000").replace('.', "");
        text.parse::<u64>().unwrap()
    };
    let sum: u64 = settled
        .iter()
        .map(|settled| nanos(&settled["usage"]["usd"]))
        .sum();
    assert_eq!(
        nanos(&account(&world, &run)["actual"]),
        sum,
        "no cent is forgotten"
    );
    let text = world.ryectl("transcript --json").arg(&run).ok().stdout();
    transcript::check(&text, &run, &world.node_key()).unwrap();
    drop(daemon);
}
