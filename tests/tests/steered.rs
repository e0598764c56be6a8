//! Concurrent requests to the runs of one tree leave no run without a driver.

use std::thread;
use std::time::Duration;

use rye_tests::{Outcome, World, until};
use serde_json::Value;

use super::crash::Random;

/// Takes short steps until the file `stop` exists, and is suspended at its limit.
const LEAF: &str = r#"start: tick
max_steps: 3
hooks:
  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}
nodes:
  tick:
    action: {item_id: rye/bash, params: {command: "[ -e stop ] && echo false || { sleep 0.02; echo true; }"}}
    assign: {more: "${result.stdout | from_json}"}
    next: [{to: tick, when: {path: state.more, op: eq, value: true}}, {to: out}]
  out: {type: return}"#;

const FAMILY: &str = "start: each\nnodes:\n  each:\n    type: foreach\n    over: [0, 1, 2]\n    parallel: true\n    \
    action: {item_id: t/leaf}\n    next: out\n  out: {type: return}";

const TOP: &str =
    "start: call\nnodes:\n  call: {action: {item_id: t/family}, next: out}\n  out: {type: return}";

/// Lets a leaf run for long.
const RAISE_STEPS: &str = "resume --detach --raise steps=1000";

/// Requests to a run.
const VERBS: [&str; 6] = [
    RAISE_STEPS,
    "suspend",
    "resume --detach",
    RAISE_STEPS,
    "cancel",
    "kill --grace 0",
];

/// Returns the runs from `top` down that have not ended.
fn live(world: &World, top: &str) -> Vec<String> {
    fn gather(trees: &Value, found: &mut Vec<String>) {
        for run in trees.as_array().into_iter().flatten() {
            gather(&run["children"], found);
            if let Some("created" | "running" | "suspended") = run["status"].as_str() {
                found.push(run["run_id"].as_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    gather(
        &world.ryectl("tree --json").arg(top).ok().json(),
        &mut found,
    );
    found
}

/// Resumes every suspended run, except those that resume by themselves.
fn resume_suspended(world: &World, runs: &[String]) {
    for run in runs {
        let suspend = &world.record(run)["suspend"];
        if !suspend.is_null() && suspend["reason"] != "child" {
            // Another request may have been faster.
            let _tried = world.ryectl(RAISE_STEPS).arg(run).run();
        }
    }
}

#[test]
fn concurrent_requests_leave_no_undriven_run() {
    let world = World::new();
    for (id, config) in [("t/leaf", LEAF), ("t/family", FAMILY), ("t/top", TOP)] {
        world.graph(id, config);
    }
    let _daemon = world.start("");
    let mut random = Random(0x9E37_79B9);
    let mut pick = |limit: usize| {
        let limit = u64::try_from(limit).unwrap();
        usize::try_from(random.below(limit)).unwrap()
    };
    // At first no request ends a run.
    for verbs in [&VERBS[..4], &VERBS[..]] {
        let top = world.start_run("t/top");
        let family = until("the whole family", || {
            Some(live(&world, &top)).filter(|runs| runs.len() == 5)
        });
        let mut asked = Vec::new();
        for _ in 0..12 {
            let (verb, run) = (verbs[pick(verbs.len())], &family[pick(family.len())]);
            asked.push(world.ryectl(verb).arg(run).spawn());
            // The time is random as well.
            thread::sleep(Duration::from_millis(20 * u64::try_from(pick(3)).unwrap()));
        }
        world.write("stop", "");
        until("the whole family to end", || {
            let left = live(&world, &top);
            resume_suspended(&world, &left);
            left.is_empty().then_some(())
        });
        for asked in asked {
            // Most requests are too late or too early.
            let _answered = Outcome::of(asked);
        }
        std::fs::remove_file(world.project().join("stop")).unwrap();
    }
}
