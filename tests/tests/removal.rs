//! `rm`, `prune` and retention by the programs: records, events, files and bytes of runs are gone, and nothing else is.

use rye_tests::{World, until};
use serde_json::Value;

const SHORT: &str = r#"start: a
nodes:
  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: "${result}"}}"#;

const PARENT: &str = "start: a
nodes:
  a: {action: {item_id: t/short}}";

const WAITS: &str = r#"start: a
nodes:
  a: {action: {item_id: rye/bash, params: {command: "while [ ! -e stop ]; do sleep 0.02; done"}}}"#;

fn world() -> World {
    let world = World::new();
    world.graph("t/short", SHORT);
    world.graph("t/parent", PARENT);
    world.graph("t/waits", WAITS);
    world
}

fn run(world: &World, item: &str) -> String {
    let run = world.start_run(item);
    assert_eq!(world.settled(&run)["status"], "completed");
    run
}

/// Returns the ids that `ps` lists.
fn listed(world: &World) -> Vec<String> {
    let runs = world.ryectl("ps --all --json").ok().json();
    let runs = runs.as_array().unwrap().iter();
    runs.map(|run| run["run_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the run that `run` started.
fn child_of(world: &World, run: &str) -> String {
    let tree = world.ryectl("tree --json").arg(run).ok().json();
    let text = tree.to_string();
    let ids = listed(world);
    let child = ids.into_iter().find(|id| id != run && text.contains(id));
    child.expect("it started a run")
}

fn has_files(world: &World, run: &str) -> bool {
    let named = format!("find .ai -name '*{run}*' | grep -q .");
    world.shell(&[], &named).status().unwrap().success()
}

#[test]
fn removed_run_is_gone_with_the_runs_below_it_and_its_files() {
    let world = world();
    let _daemon = world.start("");
    let (kept, gone) = (run(&world, "t/short"), run(&world, "t/parent"));
    let child = child_of(&world, &gone);
    for run in [&kept, &gone, &child] {
        world.thread_file(run, "completed");
    }
    let removed = world.ryectl("rm").arg(&gone).ok().stdout();
    assert_eq!(removed, format!("{child}\n{gone}\n"));
    assert_eq!(listed(&world), std::slice::from_ref(&kept));
    for run in [&gone, &child] {
        let _refused = world.ryectl("get").arg(run).run().code(3);
        let _refused = world.ryectl("events").arg(run).run().code(3);
        assert!(!has_files(&world, run), "{run}");
    }
    assert!(has_files(&world, &kept));
    let _refused = world.ryectl("rm").arg(&gone).run().code(3);
    let rebuilt = world.shell(&[], "ryed rebuild --project .").output();
    assert!(rebuilt.unwrap().status.success());
    assert!(!has_files(&world, &gone));
}

#[test]
fn live_run_is_not_removed_and_error_names_command() {
    let world = world();
    let _daemon = world.start("");
    let live = world.start_run("t/waits");
    let refused = world.ryectl("rm").arg(&live).run().code(5);
    let _told = refused.stderr_contains(&[&live, "has not ended", "ryectl kill"]);
    world.write("stop", "");
    assert_eq!(world.settled(&live)["status"], "completed");
    let _removed = world.ryectl("rm --purge").arg(&live).ok();
    assert_eq!(listed(&world), [""; 0]);
}

#[test]
fn prune_selects_whole_trees_by_age_number_and_status() {
    let world = world();
    let _daemon = world.start("");
    let first = run(&world, "t/parent");
    let child = child_of(&world, &first);
    let (second, third) = (run(&world, "t/short"), run(&world, "t/short"));
    let prune = |arguments: &str| -> Vec<String> {
        let printed = world.ryectl(&format!("prune {arguments}")).ok().stdout();
        printed.lines().map(str::to_owned).collect()
    };
    assert_eq!(prune("--older-than 1h"), [""; 0]);
    assert_eq!(prune("--status error"), [""; 0]);
    assert_eq!(
        prune("--keep 1 --dry-run"),
        [second.clone(), child.clone(), first.clone()]
    );
    assert_eq!(listed(&world).len(), 4);
    assert_eq!(prune("--keep 2"), [child, first]);
    assert_eq!(prune("--older-than 0 --status completed").len(), 2);
    assert_eq!(listed(&world), [""; 0]);
    let _refused = world
        .ryectl("prune")
        .run()
        .code(2)
        .stderr_contains(&["--older-than"]);
    drop((second, third));
}

#[test]
fn key_of_a_removed_run_starts_nothing() {
    let world = world();
    let _daemon = world.start("");
    let keyed = || world.ryectl("run --json --detach --idempotency-key order-7 t/short");
    let first = keyed().ok().json();
    let run = first["run_id"].as_str().unwrap();
    assert_eq!(world.settled(run)["status"], "completed");
    let _removed = world.ryectl("rm").arg(run).ok();
    let refused: Value = keyed().run().code(5).json();
    assert_eq!(refused["error"]["reason"], "run_removed");
    assert_eq!(listed(&world), [""; 0]);
}

#[test]
fn daemon_that_dies_right_after_a_removal_finishes_it() {
    for death in ["at:removed", "at:export_removal"] {
        let world = world();
        let daemon = world.start_until(death, "");
        let run = run(&world, "t/short");
        world.thread_file(&run, "completed");
        let _removed = world.ryectl("rm --no-autostart").arg(&run).run();
        let _status = daemon.ended();
        let _daemon = world.start("");
        assert_eq!(listed(&world), [""; 0], "{death}");
        until("the files of the run are gone", || {
            (!has_files(&world, &run)).then_some(())
        });
    }
}

#[test]
fn long_payloads_of_removed_runs_are_deleted_by_a_later_start_even_if_that_dies_meanwhile() {
    let world = world();
    // Returns true if an object has an output that repeats this letter.
    let has = |letter: &str| {
        let text = letter.repeat(1000);
        let found = format!("grep -qr {text} \"$RYE_STATE_DIR/objects\"");
        world.shell(&[], &found).status().unwrap().success()
    };
    let daemon = world.start("");
    let long = |letter: &str| {
        let command = format!("head -c 100000 /dev/zero | tr '\\\\0' {letter}");
        let node =
            format!(r#"{{action: {{item_id: rye/bash, params: {{command: "{command}"}}}}}}"#);
        let item = format!("t/long-{letter}");
        world.graph(&item, &format!("start: a\nnodes:\n  a: {node}"));
        let run = run(&world, &item);
        assert!(has(letter), "{letter}");
        run
    };
    let (kept, gone) = (long("a"), long("b"));
    let _removed = world.ryectl("rm").arg(&gone).ok();
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    for death in ["at:sweep", "at:sweep:2"] {
        world.live_until(death, "");
    }
    let _daemon = world.start("");
    until("the objects of the removed run are gone", || {
        let is_due = world.state().join("unswept").exists();
        (!is_due).then_some(())
    });
    assert_eq!([has("a"), has("b")], [true, false]);
    let _events = world.ryectl("events --json").arg(&kept).ok();
}
