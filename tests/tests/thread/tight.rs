//! Calls that wait: for money that their own thread holds, and over the death of the daemon.

use std::time::{Duration, Instant};

use rye_tests::model_server::ModelServer;
use rye_tests::{World, until};

use super::children::completed;
use super::tree::nanos;
use super::{account, payloads, start};

const ASKS: &str = "<permissions><execute><directive>t/below</directive>\
    <tool>rye/agent/threads/*</tool></execute></permissions>";

/// The limit of the thread, and the share that it reserves for its child.
const LIMIT: &str = "0.100000000";
const SHARE: &str = "0.050000000";

#[test]
fn share_blocked_by_own_hold_is_reserved_after_call_ends() {
    let server = ModelServer::start(&format!(
        "
- when: {{directive: asks, turn: 1}}
  reply:
    content:
      - call: {{name: rye_execute, input: {{item_type: directive, item_id: t/below, limit_overrides: {{spend: {SHARE}}}}}}}
      - hold: speaks
      - text: I wait.
    usage: {{input: 100, output: 10}}
- when: {{directive: asks, turn: 2, tool_result: Below.}}
  reply: {{text: Done., usage: {{input: 100, output: 10}}}}
- when: {{directive: below}}
  reply: {{text: Below., usage: {{input: 100, output: 10}}}}
"
    ));
    let world = World::with_models(&server);
    world.directive("t/asks", ASKS, "", "Ask.");
    world.directive("t/below", "", "", "Work.");
    let _daemon = world.start("");
    let run = world.ryectl(&format!(
        "run --detach directive:t/asks --limit spend={LIMIT}"
    ));
    let run = run.ok().line();
    // The call is complete, and the amount held for its message leaves too little.
    server.wait_held("speaks");
    let held = nanos(&payloads(&world, &run, "budget_held")[0]["amount"]);
    assert!(held + nanos(&SHARE.into()) > nanos(&LIMIT.into()), "{held}");
    server.release("speaks");
    completed(&world, &run);
    let said = payloads(&world, &run, "cognition_out");
    assert_ne!(said[0]["message"]["partial"], true, "{said:?}");
    let started = payloads(&world, &run, "tool_call_start");
    assert_eq!(started.len(), 1, "it started once: {started:?}");
    let below = started[0]["child"].as_str().unwrap();
    let paid = account(&world, below);
    assert_eq!(paid["max"], SHARE, "{paid}");
    let paid = account(&world, &run);
    let amounts = ["held", "reserved"].map(|name| nanos(&paid[name]));
    assert_eq!(amounts, [0, 0], "{paid}");
    assert_eq!(server.requests().len(), 3);
}

/// Longest time of the wait.
const PATIENCE: Duration = Duration::from_secs(3);

#[test]
fn interrupted_wait_counts_time_from_first_start() {
    let server = ModelServer::start(&format!(
        "
- when: {{directive: asks, turn: 1}}
  reply: {{calls: [{{name: rye_execute, input: {{item_id: rye/agent/threads/thread_tool, parameters: {{directive_name: t/below, directive_inputs: {{}}}}}}}}]}}
- when: {{directive: asks, turn: 2}}
  reply: {{calls: [{{name: rye_execute, input: {{item_id: rye/agent/threads/wait_threads, parameters: {{thread_ids: $threads, timeout: {}}}}}}}]}}
- when: {{directive: asks, turn: 3}}
  reply: {{text: Done.}}
- when: {{directive: below}}
  reply: {{slow_headers: never, text: Below.}}
",
        PATIENCE.as_secs()
    ));
    let world = World::with_models(&server);
    world.directive("t/asks", ASKS, "", "Ask.");
    world.directive("t/below", "", "", "Work.");
    let daemon = world.start_until("at:waiting", "");
    let run = start(&world, "t/asks");
    let _status = daemon.ended();
    let died = Instant::now();
    until("the time of the wait to be over", || {
        (died.elapsed() > PATIENCE).then_some(())
    });
    let _daemon = world.start("");
    completed(&world, &run);
    let waited = payloads(&world, &run, "tool_call_result").pop().unwrap();
    assert!(waited["output"].to_string().contains("timeout"), "{waited}");
    let took = waited["duration_ms"].as_u64().unwrap();
    assert!(
        u128::from(took) < PATIENCE.as_millis(),
        "it waited anew: {waited}"
    );
    server.release("never");
}
