//! Programs that repeat their calls in order (`replay: ordered`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::{below, node, python};

/// Number of calls of the program in the crash test.
const CALLS: usize = 50;

/// Writes and signs a program that repeats its calls.
fn ordered(world: &World, id: &str, code: &str) {
    python(world, id, &format!("__replay__ = \"ordered\"\n{code}"));
}

fn events(world: &World, run: &str, name: &str) -> Vec<Value> {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let events = events.into_iter();
    events
        .filter(|event| event["event_type"] == name)
        .map(|event| event["payload"].clone())
        .collect()
}

fn ordinals(world: &World, run: &str, name: &str) -> Vec<u64> {
    let events = events(world, run, name);
    let ordinals = events.iter().map(|event| event["ordinal"].as_u64());
    ordinals.map(Option::unwrap).collect()
}

/// Events at which the daemon dies, before and after.
const DEATHS: [&str; 4] = [
    "before:callback_started",
    "after:callback_started",
    "before:tool_completed",
    "after:tool_completed",
];

#[test]
fn fifty_effects_happen_once_whenever_the_daemon_dies() {
    let several = [3, 1].map(|count| DEATHS.map(|event| format!("{event}:{count}")));
    fifty_effects_happen_once(&several.concat());
    // With `RYE_REPLAY=all` the daemon also dies once at each side of each call.
    if std::env::var_os("RYE_REPLAY").is_some_and(|which| which == "all") {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let (count, event) = (number / DEATHS.len(), number % DEATHS.len());
                        if count == CALLS {
                            return;
                        }
                        fifty_effects_happen_once(&[format!("{}:{}", DEATHS[event], count + 1)]);
                    }
                });
            }
        });
    }
}

/// Checks a program with 50 calls while the daemon dies at these fail points, one after the other.
fn fifty_effects_happen_once(deaths: &[String]) {
    let world = World::new();
    python(
        &world,
        "t/line",
        "__effect__ = \"at_most_once\"\ndef execute(params, project_path):\n    with open(\"done\", \"a\") as file:\n        file.write(f\"{params['n']}\\n\")\n    return {\"n\": params[\"n\"]}\n",
    );
    ordered(
        &world,
        "t/fifty",
        "def execute(params, project_path):\n    import rye_client\n    found = []\n    for n in range(50):\n        try:\n            \
         found.append(rye_client.execute(\"t/line\", n=n)[\"n\"])\n        except rye_client.CallError as error:\n            found.append(error.code)\n    \
         return {\"found\": found}\n",
    );
    node(&world, "t/fifty", &json!({}), "");
    let mut run = None;
    for death in deaths {
        let daemon = world.start_until(death, "");
        run.get_or_insert_with(|| world.start_run("t/g"));
        let _status = daemon.ended();
    }
    let run = run.unwrap();
    let _daemon = world.start("");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let lines: Vec<usize> = world
        .read("done")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(
        lines,
        (0..CALLS).collect::<Vec<_>>(),
        "each effect happened once, in order"
    );
    let found = record["output"]["out"]["found"].as_array().unwrap();
    // What took effect without a record is not done again; the program reads that its outcome is unknown.
    for (n, found) in found.iter().enumerate() {
        assert!(*found == n || found == "interrupted", "{n}: {found}");
    }
    let ordinals = ordinals(&world, &run, "callback_started");
    let all: Vec<u64> = (0..).take(CALLS).collect();
    assert_eq!(ordinals, all);
    assert_eq!(below(&world, &run).len(), CALLS);
}

/// A program that calls `rye/core/echo` with the content of a file, and then waits for the file `go`.
const WAITS: &str = "def execute(params, project_path):\n    import os, time, rye_client\n    first = rye_client.execute(\"rye/core/echo\", text=open(\"which\").read())[\"text\"]\n    \
                     second = rye_client.execute(\"rye/core/echo\", text=\"second\")[\"text\"]\n    open(\"waits\", \"w\").close()\n    while not os.path.exists(\"go\"):\n        \
                     time.sleep(0.02)\n    return {\"first\": first, \"second\": second}\n";

fn waits(world: &World) {
    until("the program to wait", || {
        world.project().join("waits").exists().then_some(())
    });
}

#[test]
fn program_that_makes_another_call_than_before_fails_for_good() {
    let world = World::new();
    ordered(&world, "t/waits", WAITS);
    world.write("which", "one");
    node(&world, "t/waits", &json!({}), ", retry: 3");
    let daemon = world.start("");
    let run = world.start_run("t/g");
    waits(&world);
    daemon.kill_both();
    drop(daemon);
    world.write("which", "other");
    let _daemon = world.start("");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    assert_eq!(record["error"]["code"], "diverged", "{record}");
    assert_eq!(record["error"]["class"], "permanent", "{record}");
    assert_eq!(events(&world, &run, "step_started").len(), 2);
    let result = &events(&world, &run, "step_failed")[0]["result"]["diverged"];
    assert_eq!(result["ordinal"], 0);
    assert_eq!(result["recorded"]["item"], "tool:rye/core/echo");
    assert_ne!(
        result["recorded"]["params_hash"],
        result["now"]["params_hash"]
    );
    let below = below(&world, &run);
    assert_eq!(below.len(), 2, "the recorded calls stay");
    assert!(below.iter().all(|run| run["status"] == "completed"));
}

#[test]
fn tool_run_of_a_person_goes_on_after_the_daemon_died() {
    let world = World::new();
    ordered(&world, "t/waits", WAITS);
    world.write("which", "one");
    let daemon = world.start("");
    let run = world.ryectl("run t/waits --detach").ok().line();
    waits(&world);
    daemon.kill_both();
    drop(daemon);
    let _daemon = world.start("");
    world.write("go", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(
        record["output"],
        json!({"first": "one", "second": "second"}),
        "{record}"
    );
    assert_eq!(ordinals(&world, &run, "callback_started"), [0, 1]);
}

#[test]
fn only_calls_with_a_run_have_ordinals_and_one_is_made_at_a_time() {
    let world = World::new();
    ordered(
        &world,
        "t/caller",
        r#"
def execute(params, project_path):
    import threading, time, rye_client
    found = {"codes": []}
    rye_client.progress(0.5, "half")
    rye_client.fetch("t/caller")
    def call(item, params, **options):
        try:
            found["codes"].append(rye_client.call(item, params, **options).get("metadata", {}).get("code"))
        except rye_client.CallError as error:
            found["codes"].append(error.code)
    call("t/missing", {})
    slow = threading.Thread(target=call, args=("rye/bash", {"command": "touch begun; until [ -e told ]; do sleep 0.02; done"}))
    slow.start()
    import os
    while not os.path.exists("begun"):
        time.sleep(0.02)
    call("rye/core/echo", {"text": "too early"})
    open("told", "w").close()
    slow.join()
    call("rye/core/echo", {"text": "x"}, idempotency_key="k")
    call("rye/core/echo", {"text": "x"}, idempotency_key="k")
    return found
"#,
    );
    node(&world, "t/caller", &json!({}), "");
    let _daemon = world.start("");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(
        record["output"]["out"]["codes"],
        json!(["item_not_found", "concurrent_call", null, null, null]),
        "{record}"
    );
    assert_eq!(ordinals(&world, &run, "callback_started"), [0, 1, 2]);
    assert_eq!(ordinals(&world, &run, "callback_ended"), [0, 1, 2]);
    let warnings = events(&world, &run, "warning");
    let of_keys = warnings.iter().filter(|warning| {
        warning["message"]
            .as_str()
            .is_some_and(|text| text.contains("idempotency keys"))
    });
    assert_eq!(of_keys.count(), 1, "{warnings:?}");
}

/// A program that calls a graph which asks a person, between two other calls.
fn asks(world: &World) {
    world.graph(
        "t/asks",
        "start: a\nnodes:\n  a: {type: approval, message: go, next: done}\n  done: {type: return, output: {said: yes}}",
    );
    ordered(
        world,
        "t/caller",
        "def execute(params, project_path):\n    import rye_client\n    first = rye_client.execute(\"rye/core/echo\", text=\"one\")[\"text\"]\n    asked = \
         rye_client.call(\"t/asks\", {})\n    last = rye_client.execute(\"rye/core/echo\", text=\"two\")[\"text\"]\n    return {\"first\": first, \"said\": \
         asked[\"status\"], \"code\": asked.get(\"metadata\", {}).get(\"code\"), \"last\": last}\n",
    );
}

fn restarted(world: &World, daemon: rye_tests::Daemon) -> rye_tests::Daemon {
    daemon.kill_both();
    drop(daemon);
    world.start("")
}

#[test]
fn program_is_parked_while_a_person_is_asked_and_goes_on_after_the_answer() {
    for (verb, status, code) in [
        ("approve", "success", Value::Null),
        ("deny", "error", json!("denied")),
    ] {
        let world = World::new();
        asks(&world);
        node(&world, "t/caller", &json!({}), "");
        let daemon = world.start("");
        let run = world.start_run("t/g");
        let record = world.settled(&run);
        assert_eq!(record["suspend"]["reason"], "child", "{record}");
        let ended = &events(&world, &run, "process_exited")[0]["end"];
        assert_eq!(ended["cause"], "parked", "{ended}");
        let child = record["suspend"]["child"].as_str().unwrap().to_owned();
        let asked = world.ryectl("approvals --json").ok().json();
        assert_eq!(asked[0]["run_id"], child, "{asked}");
        let daemon = restarted(&world, daemon);
        let _daemon = restarted(&world, daemon);
        assert_eq!(world.record(&run)["status"], "suspended");
        let _answered = world.ryectl(verb).arg(&child).run().code_among(&[0, 1]);
        let record = until("the run to end", || {
            let record = world.record(&run);
            record["ended_at"].is_string().then_some(record)
        });
        assert_eq!(
            record["output"]["out"],
            json!({"first": "one", "said": status, "code": code, "last": "two"}),
            "{record}"
        );
        assert_eq!(ordinals(&world, &run, "callback_started"), [0, 1, 2]);
        assert!(
            events(&world, &run, "step_failed").is_empty(),
            "a parked program has not failed"
        );
        assert_eq!(below(&world, &run).len(), 3);
    }
}

#[test]
fn parked_tool_run_of_a_person_is_cancelled_with_the_run_it_waits_for() {
    let world = World::new();
    asks(&world);
    let _daemon = world.start("");
    let run = world.ryectl("run t/caller --detach").ok().line();
    let record = world.settled(&run);
    assert_eq!(record["suspend"]["reason"], "child", "{record}");
    let child = record["suspend"]["child"].as_str().unwrap();
    let _cancelled = world.ryectl("cancel").arg(&run).ok();
    until("both to end", || {
        let ended = [&*run, child].map(|run| world.record(run)["status"] == "cancelled");
        (ended == [true, true]).then_some(())
    });
}
