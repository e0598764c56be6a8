//! Items and branches of one node: retried by themselves, stopped by the failure of another one, and repeated alone.

use std::time::{Duration, Instant};

use rye_tests::{World, until};
use serde_json::{Value, json};

const ALL: &str = "permissions: [\"rye.execute.tool.*\"]";

fn lines(world: &World, file: &str) -> Vec<String> {
    let mut lines: Vec<String> = world.read(file).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Two checks, of which one fails until the file `mended` exists; then a way that depends on them.
const CHECKS: &str = r#"start: checks
nodes:
  checks:
    type: parallel
    on_item_error: collect
    branches:
      lint: {item_id: rye/bash, params: {command: "echo lint >>ran"}}
      tests: {item_id: rye/bash, params: {command: "echo tests >>ran; [ -e mended ]"}}
    assign: {red: "${result.failed}"}
    next: judge
  judge:
    next: [{to: AFTER, when: {path: state.red, op: gt, value: 0}}, {to: ship}]
  red: {type: fail, message: "${state.red} failed"}
  reported: {type: return, output: {red: "${state.red}"}}
  ship: {action: {item_id: rye/bash, params: {command: "echo ship >>ran"}}, next: done}
  done: {type: return, output: {red: "${state.red}"}}"#;

#[test]
fn run_that_failed_after_failures_repeats_them_and_walks_on() {
    let world = World::new();
    world.graph_with("t/checks", ALL, &CHECKS.replace("AFTER", "red"));
    let first = world.ryectl("run t/checks").run().code(1);
    let _told = first.stderr_contains(&[
        "1 failed",
        "repeats the failed item of `checks` and walks on from there",
    ]);
    let again = world.ryectl("resume @last").run().code(1);
    let _told = again.stderr_contains(&["1 failed"]);
    world.write("mended", "");
    let third = world.ryectl("resume @last --json").ok().json();
    assert_eq!(third["output"], json!({"red": 0}), "{third}");
    assert_eq!(third["status"], "completed");
    assert_eq!(
        lines(&world, "ran"),
        ["lint", "ship", "tests", "tests", "tests"]
    );
}

#[test]
fn resume_failed_walks_on_after_a_run_that_completed_with_errors() {
    let world = World::new();
    world.graph_with("t/checks", ALL, &CHECKS.replace("AFTER", "reported"));
    let first = world.ryectl("run t/checks").run().code(1);
    let _told = first.stderr_contains(&["repeats only what failed", "--failed"]);
    world.write("mended", "");
    let steps = world.ryectl("steps @last").ok().stdout();
    assert!(steps.contains("2/2 · 1 failed"), "{steps}");
    let drawn = world
        .ryectl("graph show t/checks --run @last")
        .ok()
        .stdout();
    assert!(
        drawn.contains("  ! ") && drawn.contains("(1 failed)"),
        "{drawn}"
    );
    let second = world.ryectl("resume @last --failed --json").ok().json();
    assert_eq!(second["output"], json!({"red": 0}), "{second}");
    assert_eq!(lines(&world, "ran"), ["lint", "ship", "tests", "tests"]);
    let over = world.ryectl("resume @last --failed").run().code(5);
    let _told = over.stderr_contains(&["completed"]);
}

#[test]
fn resume_failed_is_refused_after_an_at_most_once_node() {
    let world = World::new();
    let graph = CHECKS.replace("next: judge", "next: charge");
    let graph = graph.replace("AFTER", "red").replace(
        "  judge:",
        "  charge: {effect: at_most_once, action: {item_id: rye/bash, params: {command: \"echo charge >>ran\"}}, next: judge}\n  judge:",
    );
    world.graph_with("t/checks", ALL, &graph);
    let _failed = world.ryectl("run t/checks").run().code(1);
    let refused = world.ryectl("resume @last --failed").run().code(5);
    let _told = refused.stderr_contains(&["`charge` is at-most-once", "start a new run"]);
    assert_eq!(lines(&world, "ran"), ["charge", "lint", "tests"]);
}

/// Three branches: one fails once the others are at work.
const STOPS: &str = r#"start: work
nodes:
  work:
    type: parallel
    branches:
      bad: {item_id: rye/bash, params: {command: "until [ -e below -a -e slow -a -e once ]; do sleep 0.01; done; exit 3"}}
      below: {item_id: t/below}
      slow: {item_id: rye/bash, params: {command: "touch slow; sleep 60; echo slow >>done"}}
      once: {item_id: t/once}
    next: done
  done: {type: return}"#;

#[test]
fn failed_branch_stops_processes_and_child_runs_but_not_at_most_once_ones() {
    let world = World::new();
    world.graph_with(
        "t/below",
        ALL,
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"touch below; sleep 60; echo below >>done\"}}, next: b}\n  b: {type: return}",
    );
    world.graph_with(
        "t/once",
        ALL,
        "start: a\nnodes:\n  a: {effect: at_most_once, action: {item_id: rye/bash, params: {command: \"touch once; until [ -e go ]; do sleep 0.01; done; echo once >>done\"}}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"echo more >>done\"}}}",
    );
    world.graph_with("t/work", ALL, STOPS);
    let begun = Instant::now();
    let run = world.start_run("t/work");
    let child = |item: &str| -> Option<Value> {
        let tree = world.ryectl("ps --all --json --item").arg(item).ok().json();
        let id = tree[0]["run_id"].as_str()?;
        Some(world.record(id))
    };
    let below = until("the child run to be cancelled", || {
        child("t/below").filter(|run| run["status"] == "cancelled")
    });
    assert_eq!(below["cancel"]["by"], "sibling_failure", "{below}");
    assert_eq!(below["parent_attempt"], "work[below]", "{below}");
    let tree = world.ryectl("tree").arg(&run).ok().stdout();
    assert!(tree.contains("t/below  work[below]"), "{tree}");
    // The at-most-once call ends by itself, and nothing follows it.
    let once = child("t/once").unwrap();
    assert_eq!(once["status"], "running", "{once}");
    world.write("go", "");
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "error", "{ended}");
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("work[bad] failed: "), "{message}");
    assert!(!message.contains("work[slow]"), "{message}");
    assert_eq!(lines(&world, "done"), ["once"]);
    assert!(begun.elapsed() < Duration::from_secs(50));
    let events = world.ryectl("events").arg(&run).ok();
    let told = events.stdout();
    let stopped = told.matches("stopped because work[bad] failed");
    assert_eq!(stopped.count(), 3, "{told}");
}

#[test]
fn failed_run_and_its_steps_name_every_failed_branch() {
    let world = World::new();
    let wait = "until [ -e a -a -e b ]; do sleep 0.01; done";
    let graph = format!(
        "start: work\nnodes:\n  work:\n    type: parallel\n    effect: at_most_once\n    branches:\n      a: {{item_id: rye/bash, params: {{command: \"touch a; {wait}; exit 3\"}}}}\n      b: {{item_id: rye/bash, params: {{command: \"touch b; {wait}; exit 4\"}}}}"
    );
    world.graph_with("t/work", ALL, &graph);
    let failed = world.ryectl("run t/work").run().code(1);
    let _told = failed.stderr_contains(&["work[a] failed", "work[b] failed"]);
    for verb in ["get @last", "steps @last"] {
        let shown = world.ryectl(verb).ok();
        for name in ["work[a] failed", "work[b] failed"] {
            assert!(shown.stdout().contains(name), "{verb}: {}", shown.stdout());
        }
    }
}

#[test]
fn open_questions_of_several_runs_have_different_ids() {
    let world = World::new();
    world.graph_with(
        "t/asks",
        ALL,
        "start: a\nnodes:\n  a: {type: approval, message: Now?, next: b}\n  b: {type: return}",
    );
    for _ in 0..3 {
        let _asked = world.ryectl("run t/asks").run().code(75);
    }
    let asked = world.ryectl("approvals --json").ok().json();
    let ids: std::collections::BTreeSet<&str> = asked
        .as_array()
        .unwrap()
        .iter()
        .map(|asked| asked["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 3, "{asked}");
}

#[test]
fn results_of_runs_have_their_id_under_one_word_and_their_cost() {
    let world = World::new();
    world.graph_with("t/leaf", ALL, "start: a\nnodes:\n  a: {type: return}");
    world.graph_with(
        "t/above",
        ALL,
        "start: a\nnodes:\n  a: {action: {item_id: t/leaf}, assign: {waited: \"${result}\"}, next: b}\n  b: {action: {item_id: t/leaf, params: {async: true}}, assign: {begun: \"${result}\"}, next: c}\n  c: {type: return, output: {waited: \"${state.waited}\", begun: \"${state.begun}\"}}",
    );
    let out = world.ryectl("run t/above --json").ok().json()["output"].clone();
    for result in [&out["waited"], &out["begun"]] {
        assert!(result["run_id"].is_string(), "{result}");
        assert_eq!(result["run_id"], result["graph_run_id"], "{result}");
    }
    assert_eq!(out["waited"]["cost"]["turns"], 0, "{out}");
    assert_eq!(out["waited"]["cost"]["spend"], 0.0, "{out}");
}
