//! Deaths at writes of an export. Afterwards the files of the run are complete and equal to those of a rebuild.

use rye_tests::transcript::check;
use rye_tests::{World, until};
use serde_json::Value;

const STEPS: &str = r#"start: a
nodes:
  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: "${result}"}, next: b}
  b: {action: {item_id: rye/core/echo, params: {n: 2}}}"#;

/// Fail points of a run of these steps. A number is the occurrence at which the daemon dies.
const DEATHS: [&str; 7] = [
    "at:export_lines",
    "at:export_record",
    "at:export_page",
    "at:export_objects",
    "at:export_objects:4",
    "at:export_ref",
    "at:export_marks:2",
];

/// Returns the run of the world. Starts it if the daemon died before it was recorded.
fn run_in(world: &World) -> String {
    let runs = world.ryectl("ps --all --json").ok().json();
    let known = runs[0]["run_id"].as_str().map(str::to_owned);
    known.unwrap_or_else(|| world.start_run("t/steps"))
}

/// Asserts that a rebuild finds no difference between the files of the project and the record.
fn rebuilds_nothing(world: &World) {
    let rebuilt = world.shell(&[], "ryed rebuild --project .").output();
    let rebuilt = rebuilt.expect("a shell starts");
    let printed = String::from_utf8_lossy(&rebuilt.stdout);
    let expected = "1 runs: 1 as on record, 0 written, 0 replaced, 0 failed\n";
    assert_eq!(
        printed,
        expected,
        "{}",
        String::from_utf8_lossy(&rebuilt.stderr)
    );
    assert!(rebuilt.status.success());
}

fn has_whole_files(world: &World, run: &str) {
    world.thread_file(run, "completed");
    let page = format!(".ai/knowledge/agent/threads/t/steps/{run}.md");
    let is_written = || world.read(&page).contains("**Status:** completed");
    until("the page of the run", || is_written().then_some(()));
    let transcript = world.read(&format!(".ai/state/threads/{run}/transcript.jsonl"));
    check(&transcript, run, &world.node_key()).unwrap();
    let objects = world.read(&format!(".ai/state/objects/runs/{run}.jsonl"));
    let object = |name: &str| {
        let line = objects.lines().find(|line| line.starts_with(name));
        let (_, object) = line.expect("the object is there").split_once(' ').unwrap();
        serde_json::from_str::<Value>(object).unwrap()
    };
    let pointer = world.read(&format!(".ai/state/objects/refs/graphs/{run}.json"));
    let pointer: Value = serde_json::from_str(&pointer).unwrap();
    let snapshot = object(pointer["hash"].as_str().unwrap());
    let receipts = snapshot["node_receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), 2);
    for receipt in receipts {
        object(receipt.as_str().unwrap());
    }
}

#[test]
fn export_files_are_whole_after_death_at_any_write() {
    for death in DEATHS {
        let world = World::new();
        world.graph("t/steps", STEPS);
        let daemon = world.start_until(death, "");
        // The daemon may die before it answers.
        let _started = world.ryectl("run --detach --no-autostart t/steps").run();
        daemon.ended();
        let daemon = world.start("");
        let run = run_in(&world);
        assert_eq!(world.settled(&run)["status"], "completed", "{death}");
        has_whole_files(&world, &run);
        // First with the daemon, then without it.
        rebuilds_nothing(&world);
        super::die(daemon, super::Victims::DaemonAndParent);
        rebuilds_nothing(&world);
    }
}
