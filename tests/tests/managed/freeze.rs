//! Processes that stand still for a while.

use rye_tests::{World, skipped};
use serde_json::{Value, json};

use super::{events, start, status, status_when};

/// Appends to a file until it is ended.
const COUNTER: &str = "while :; do echo x >> count; sleep 0.01; done";

/// True if attempts have cgroups here.
fn has_cgroups(world: &World) -> bool {
    let has = world.info()["containment"][0] == "cgroup of the attempt";
    if !has {
        skipped("attempts have no cgroups");
    }
    has
}

fn count(world: &World) -> usize {
    std::fs::read(world.project().join("count")).map_or(0, |text| text.len())
}

fn proc(world: &World, verb: &str, handle: &str) -> Value {
    let verb = world.ryectl(&format!("proc {verb} --json"));
    verb.arg(handle).ok().json()
}

/// The counter goes on.
fn counts(world: &World) {
    let before = count(world);
    rye_tests::until("the counter to go on", || {
        (count(world) > before).then_some(())
    });
}

/// The counter does not go on while several commands run.
fn stands_still(world: &World, handle: &str) {
    let before = count(world);
    for _ in 0..3 {
        let now = proc(world, "status", handle);
        assert_eq!(
            (&now["status"], &now["running"]),
            (&json!("frozen"), &json!(true))
        );
    }
    assert_eq!(count(world), before);
}

#[test]
fn frozen_process_stands_still_and_goes_on() {
    let world = World::new();
    let _daemon = world.start("");
    if !has_cgroups(&world) {
        return;
    }
    let counter = start(&world, json!({"command": COUNTER, "name": "counter"}));
    counts(&world);
    assert_eq!(proc(&world, "freeze", &counter)["status"], "frozen");
    assert_eq!(proc(&world, "freeze", &counter)["status"], "frozen");
    stands_still(&world, &counter);
    let listed = world.ryectl("proc ls").ok().stdout();
    assert!(listed.contains("frozen"), "{listed}");
    assert_eq!(proc(&world, "thaw", &counter)["status"], "running");
    assert_eq!(proc(&world, "thaw", &counter)["status"], "running");
    counts(&world);
    let mut names = events(&world, &counter);
    names.retain(|name| name == "process_frozen" || name == "process_thawed");
    assert_eq!(names, ["process_frozen", "process_thawed"]);
    // A stop thaws: the process handles TERM.
    let _frozen = proc(&world, "freeze", &counter);
    let stopped = proc(&world, "stop", &counter);
    assert_eq!(
        (&stopped["status"], &stopped["signal"]),
        (&json!("stopped"), &json!(15))
    );
    for verb in ["proc freeze", "proc thaw"] {
        let over = world.ryectl(verb).arg(&counter).run().code(5);
        let _over = over.stderr_contains(&["cancelled"]);
    }
}

#[test]
fn restart_and_kill_end_a_frozen_process() {
    let world = World::new();
    let _daemon = world.start("");
    if !has_cgroups(&world) {
        return;
    }
    let counter = start(&world, json!({"command": COUNTER, "name": "counter"}));
    let first = proc(&world, "freeze", &counter);
    let again = proc(&world, "restart", &counter);
    assert_eq!(
        (&again["status"], &again["restarts"]),
        (&json!("running"), &json!(1))
    );
    assert_ne!(again["pid"], first["pid"]);
    counts(&world);
    let _frozen = proc(&world, "freeze", &counter);
    let _killed = world.ryectl("kill").arg(&counter).ok();
    let ended = status(&world, &counter);
    assert_eq!(ended["status"], "stopped");
}

#[test]
fn time_to_be_ready_pauses_while_a_process_is_frozen() {
    let world = World::new();
    let _daemon = world.start("");
    if !has_cgroups(&world) {
        return;
    }
    let command = "sleep 1; echo ready; sleep 1000";
    let start = std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            let start =
                "proc start --name slow --ready-pattern ready --ready-timeout 3s --json -- bash -c";
            world.ryectl(start).arg(command).ok().json()
        });
        let handle = rye_tests::until("the process to start", || {
            let listed = world.ryectl("proc ls --json").ok().json();
            let slow = listed.as_array()?.first()?.clone();
            slow["pid"]
                .is_number()
                .then(|| slow["handle"].as_str().map(str::to_owned))?
        });
        let _frozen = proc(&world, "freeze", &handle);
        started.join().unwrap()
    });
    // The start answers, because it would have to wait for the thaw.
    assert_eq!(
        (&start["status"], &start["ready"]),
        (&json!("frozen"), &json!(false))
    );
    let handle = start["handle"].as_str().unwrap();
    let _thawed = proc(&world, "thaw", handle);
    let ready = world
        .ryectl("proc wait --for ready --json")
        .arg(handle)
        .ok()
        .json();
    assert_eq!(ready["ready"], true);
    let names = events(&world, handle);
    assert!(
        !names.iter().any(|name| name == "process_unready"),
        "{names:?}"
    );
}

#[test]
fn frozen_survivor_stays_frozen_over_a_kill_of_the_daemon() {
    let world = World::new();
    let daemon = world.start("");
    if !has_cgroups(&world) {
        return;
    }
    let counter = start(
        &world,
        json!({"command": COUNTER, "name": "counter", "survive": true}),
    );
    counts(&world);
    let _frozen = proc(&world, "freeze", &counter);
    let before = count(&world);
    daemon.kill_both();
    let _ended = daemon.ended();
    let _daemon = world.start("");
    let _now = status_when(&world, &counter, "the process", |now| {
        now["running"] == true
    });
    stands_still(&world, &counter);
    assert_eq!(count(&world), before);
    rye_tests::until("a thaw", || {
        let thawed = world.ryectl("proc thaw").arg(&counter).run();
        (thawed.exit() == "0").then_some(())
    });
    counts(&world);
    let _frozen = proc(&world, "freeze", &counter);
    let stopped = proc(&world, "stop", &counter);
    assert_eq!(
        (&stopped["status"], &stopped["signal"]),
        (&json!("stopped"), &json!(15))
    );
}

#[test]
fn process_without_a_cgroup_cannot_be_frozen() {
    let world = World::new();
    let _daemon = world.start("containment: {cgroup: off}");
    let handle = world.ryectl("proc start -- sleep 1000").ok().line();
    let refused = world.ryectl("proc freeze").arg(&handle).run().code(5);
    let _refused = refused.stderr_contains(&["cannot be frozen", "no cgroup"]);
    let _stopped = world.ryectl("proc stop").arg(&handle).ok();
    let graph = world.ryectl("proc freeze").arg("no-such-run-1-a").run();
    assert_ne!(graph.exit(), "0");
}
