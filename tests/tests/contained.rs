//! No process outlives the attempt that started it, and a receipt says what it knows.

use std::fs;

use rye_tests::user::{Subtree, User};
use rye_tests::{World, processes, skipped, until};
use serde_json::{Value, json};

/// Starts a process that leaves the group, the session and the environment of its attempt, and writes its pid.
const ESCAPE: &str = "(setsid env -i sh -c 'echo $$ >away; exec sleep 1000' </dev/null >/dev/null 2>&1 &); until [ -s away ]; do sleep 0.01; done";

fn graph(world: &World, command: &str) {
    let command = json!(format!("{ESCAPE}; {command}"));
    world.graph(
        "t/away",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: rye/bash, params: {{command: {command}}}}}, next: done}}\n  done: {{type: return}}"
        ),
    );
}

fn away(world: &World) -> i32 {
    until("the process to get away", || {
        let pid = fs::read_to_string(world.project().join("away")).ok()?;
        pid.trim().parse().ok()
    })
}

/// Starts a daemon with cgroups for attempts; `None` on a host without them.
fn with_cgroups(world: &World) -> Option<rye_tests::Daemon> {
    let daemon = world.start("");
    let info = world.info();
    if info["containment"][0] == "cgroup of the attempt" {
        return Some(daemon);
    }
    let missing = &info["containment_missing"];
    skipped(&format!("no cgroups for attempts: {missing}"));
    None
}

#[test]
fn kill_ends_process_that_cleared_its_environment() {
    let world = World::new();
    graph(&world, "exec sleep 1000");
    let Some(_daemon) = with_cgroups(&world) else {
        return;
    };
    assert_eq!(world.info()["containment"][0], "cgroup of the attempt");
    let run = world.start_run("t/away");
    let away = away(&world);
    let receipt = world.ryectl("kill --json").arg(&run).ok().json();
    let pids = receipt["processes"].as_array().unwrap().iter();
    assert!(
        pids.map(|ended| &ended["pid"]).any(|pid| *pid == away),
        "{receipt}"
    );
    assert_eq!(
        (&receipt["complete"], &receipt["survivors"]),
        (&json!(true), &json!([]))
    );
    assert!(!processes::lives(away));
}

#[test]
fn end_of_a_step_and_its_timeout_end_what_got_away() {
    let world = World::new();
    let Some(_daemon) = with_cgroups(&world) else {
        return;
    };
    for (rest, timeout, code) in [("true", 100, 0), ("exec sleep 1000", 1, 1)] {
        let params = json!({"command": format!("{ESCAPE}; {rest}"), "timeout": timeout});
        let call = world
            .ryectl("execute tool rye/bash --params")
            .arg(params.to_string());
        let _ended = call.run().code(code);
        assert!(!processes::lives(away(&world)), "{rest}");
        fs::remove_file(world.project().join("away")).unwrap();
    }
}

#[test]
fn without_cgroups_receipt_does_not_claim_that_nothing_is_left() {
    let world = World::new();
    graph(&world, "exec sleep 1000");
    let daemon = world.start("containment: {cgroup: off}");
    let info = world.info();
    assert_eq!(info["containment"][0], "pidfd and start time");
    let missing = info["containment_missing"].as_str().unwrap();
    assert!(
        missing.contains("`containment.cgroup` is `off`"),
        "{missing}"
    );
    let run = world.start_run("t/away");
    let away = away(&world);
    let told = world.ryectl("kill").arg(&run).ok().stdout();
    let expected = format!("cannot tell whether more is left; these may be: {away} (sleep)");
    assert!(told.contains(&expected), "{told}");
    assert!(processes::lives(away));
    // Nothing outlives the daemon.
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    assert!(!processes::lives(away));
}

#[test]
fn processes_that_got_away_end_with_the_daemon_or_at_its_next_start() {
    let world = World::new();
    graph(&world, "exec sleep 1000");
    let Some(daemon) = with_cgroups(&world) else {
        return;
    };
    let run = world.start_run("t/away");
    let first = away(&world);
    daemon.kill();
    let _status = daemon.ended();
    assert!(!processes::lives(first));
    // The step is repeated.
    fs::remove_file(world.project().join("away")).unwrap();
    let daemon = world.start("");
    let second = away(&world);
    daemon.kill_both();
    let _status = daemon.ended();
    assert!(processes::lives(second));
    let _daemon = world.start("");
    assert!(!processes::lives(second));
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let warnings = events
        .iter()
        .filter(|event| event["event_type"] == "warning");
    let told: Vec<&Value> = warnings.map(|event| &event["payload"]["message"]).collect();
    let expected = format!("{second} (sleep)");
    let names = |message: &&&Value| {
        let message = message.as_str().unwrap_or_default();
        message.starts_with("ended what an earlier daemon left: ") && message.contains(&expected)
    };
    assert_eq!(told.iter().filter(names).count(), 1, "{told:?}");
    let _killed = world.ryectl("kill").arg(&run).ok();
}

#[test]
fn ordinary_user_has_cgroups_in_a_subtree_of_its_own() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can act as another user");
        return;
    }
    let Some(subtree) = Subtree::new() else {
        skipped("this host takes no cgroups");
        return;
    };
    for (cgroup, missing) in [(Some(&subtree), ""), (None, "Delegate=yes")] {
        let world = World::new();
        world.write("escape", ESCAPE);
        let user = User::of(&world);
        let _started = user.run(cgroup, "ryectl daemon start");
        let info: Value =
            serde_json::from_str(&user.run(cgroup, "ryectl daemon info --json")).unwrap();
        let why = info["containment_missing"].as_str().unwrap();
        let is_there = info["containment"][0] == "cgroup of the attempt";
        assert_eq!(
            (is_there, why.contains(missing)),
            (cgroup.is_some(), true),
            "{why}"
        );
        let ran = "ryectl run rye/bash -i command='. ./escape' --quiet >out; cat away";
        let pid = user.run(cgroup, ran).trim().parse().unwrap();
        assert_eq!(processes::lives(pid), cgroup.is_none());
        let _stopped = user.run(cgroup, "ryectl daemon stop");
        until("the parent to end the rest", || {
            (!processes::lives(pid)).then_some(())
        });
    }
}
