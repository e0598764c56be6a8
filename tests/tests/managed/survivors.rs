//! Processes that survive the daemon.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use rye_tests::user::{Subtree, User};
use rye_tests::{Daemon, World, processes, skipped, until};
use serde_json::{Value, json};

use super::{call, events, handle, named, printed, start, status, status_when, stop, until_named};

/// Prints numbered lines to both streams until it is ended.
const COUNTER: &str = "i=0; while :; do i=$((i+1)); echo out $i; echo err $i >&2; sleep 0.02; done";
/// Number of kills; a long run sets `RYE_SURVIVOR_KILLS`.
const KILLS: usize = 4;

fn kills() -> usize {
    let wanted = std::env::var_os("RYE_SURVIVOR_KILLS");
    let wanted = wanted.and_then(|kills| kills.to_str()?.parse().ok());
    wanted.unwrap_or(KILLS)
}

/// What the shim of a process says about itself.
fn shim(world: &World, handle: &str) -> Value {
    let path = world.state().join("procs").join(handle).join("shim.json");
    serde_json::from_slice(&fs::read(path).expect("a shim has a record")).expect("it is JSON")
}

fn shim_pid(world: &World, handle: &str) -> i32 {
    i32::try_from(shim(world, handle)["pid"].as_i64().unwrap()).unwrap()
}

/// Every line that the process has printed to a stream, from the first to the last.
fn all_lines(world: &World, handle: &str, stream: &str) -> Vec<String> {
    let lines = world.ryectl("proc logs --json").arg(handle);
    let lines = lines.ok().json_lines().into_iter();
    let of_stream = lines.filter(|line| line["stream"] == stream);
    of_stream
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect()
}

fn assert_counted(lines: &[String], word: &str) {
    assert!(lines.len() > 10, "{lines:?}");
    for (number, line) in (1..).zip(lines) {
        assert_eq!(line, &format!("{word} {number}"));
    }
}

/// The ways in which a daemon ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Daemon,
    Parent,
    Both,
    Stop,
}

const ENDS: [End; 4] = [End::Daemon, End::Parent, End::Both, End::Stop];

pub(super) fn end(world: &World, daemon: Daemon, how: End) {
    match how {
        End::Daemon => daemon.kill(),
        End::Parent => processes::send(daemon.parent_pid(), Signal::SIGKILL),
        End::Both => daemon.kill_both(),
        End::Stop => {
            let _stopped = world.ryectl("daemon stop").ok();
        }
    }
    let _ended = daemon.ended();
}

fn outlives(config: &str) {
    let world = World::new();
    let mut daemon = world.start(config);
    let counter = start(
        &world,
        json!({"command": COUNTER, "name": "counter", "survive": true}),
    );
    let first = status(&world, &counter);
    assert_eq!(first["survive"], true);
    for (number, how) in (0..kills()).zip(ENDS.into_iter().cycle()) {
        end(&world, daemon, how);
        let pid = i32::try_from(first["pid"].as_i64().unwrap()).unwrap();
        assert!(processes::lives(pid), "{number} {how:?}");
        daemon = world.start(config);
        let now = status_when(&world, &counter, "the process", |now| {
            now["running"] == true
        });
        assert_eq!(
            (&now["pid"], &now["restarts"], &now["ready"]),
            (&first["pid"], &json!(0), &json!(true)),
            "{number} {how:?}: {now}"
        );
    }
    let seen = printed(&world, &counter).len();
    until("more lines", || {
        (printed(&world, &counter).len() > seen || seen == 1000).then_some(())
    });
    let stopped = stop(&world, &counter);
    assert_eq!(
        (&stopped["stopped"], &stopped["signal"]),
        (&json!(true), &json!(15))
    );
    until("its shim to end", || {
        (!processes::lives(shim_pid(&world, &counter))).then_some(())
    });
    assert_eq!(named(&world, "bash"), []);
    assert_counted(&all_lines(&world, &counter, "stdout"), "out");
    assert_counted(&all_lines(&world, &counter, "stderr"), "err");
    let launched = events(&world, &counter);
    let launched = launched.iter().filter(|name| *name == "process_launched");
    assert_eq!(launched.count(), 1);
}

#[test]
fn process_outlives_every_end_of_the_daemon_with_exact_lines() {
    outlives("");
}

#[test]
fn process_outlives_the_daemon_on_a_host_without_cgroups() {
    outlives("containment: {cgroup: off}");
}

#[test]
fn end_while_the_daemon_is_away_has_its_code_and_last_lines() {
    for restart in ["no", "on-failure"] {
        let world = World::new();
        let daemon = world.start("");
        let command = "if [ -e go ]; then exec sleep 60; fi; until [ -e go ]; do sleep 0.02; done; echo bye >&2; exit 7";
        let server = start(
            &world,
            json!({"command": command, "name": "server", "survive": true, "restart": restart}),
        );
        let shim = shim_pid(&world, &server);
        end(&world, daemon, End::Both);
        world.write("go", "");
        until("its shim to end", || {
            (!processes::lives(shim)).then_some(())
        });
        let _daemon = world.start("");
        if restart == "no" {
            let record = world.settled(&server);
            assert_eq!(record["error"]["code"], "process_exited", "{record}");
            assert_eq!(record["error"]["exit_code"], 7);
            assert_eq!(record["error"]["stderr_tail"], "bye");
        } else {
            let now = status_when(&world, &server, "the next attempt", |now| {
                now["restarts"] == 1 && now["pid"].is_i64()
            });
            assert_eq!(now["running"], true);
            let _stopped = stop(&world, &server);
        }
    }
}

#[test]
fn killed_shim_takes_its_process_along_and_is_lost() {
    for (config, is_away) in [
        ("", false),
        ("", true),
        ("containment: {cgroup: off}", false),
        ("containment: {cgroup: off}", true),
    ] {
        let world = World::new();
        let mut daemon = world.start(config);
        let server = start(
            &world,
            json!({"command": "setsid sleep 61 & exec sleep 60", "name": "server", "survive": true}),
        );
        until_named(&world, "sleep", 2);
        let shim = shim_pid(&world, &server);
        if is_away {
            end(&world, daemon, End::Both);
            processes::send(shim, Signal::SIGKILL);
            daemon = world.start(config);
        } else {
            processes::send(shim, Signal::SIGKILL);
        }
        let record = world.settled(&server);
        assert_eq!(record["error"]["code"], "lost", "{config} {is_away}");
        assert_eq!(status(&world, &server)["status"], "stale");
        until_named(&world, "sleep", 0);
        drop(daemon);
    }
}

#[test]
fn stop_that_a_crash_interrupts_is_done_after_it() {
    let world = World::new();
    let daemon = world.start("");
    let stubborn = start(
        &world,
        json!({"command": "trap '' TERM; while :; do sleep 0.05; done", "name": "stubborn", "survive": true, "grace": 30}),
    );
    let pid = i32::try_from(status(&world, &stubborn)["pid"].as_i64().unwrap()).unwrap();
    thread::scope(|scope| {
        let stopping = scope.spawn(|| {
            let asked = world.ryectl("proc stop --no-autostart").arg(&stubborn);
            asked.run()
        });
        until("the request to stop", || {
            let events = events(&world, &stubborn);
            events
                .contains(&"cancel_requested".to_owned())
                .then_some(())
        });
        daemon.kill_both();
        let _interrupted = stopping.join().expect("the verb ends");
    });
    let _ended = daemon.ended();
    assert!(processes::lives(pid), "its grace is not over");
    let _daemon = world.start("");
    let killed = world.ryectl("kill --json --grace 0").arg(&stubborn).ok();
    assert_eq!(killed.json()["survivors"], json!([]));
    until("its end", || (!processes::lives(pid)).then_some(()));
    let record = world.settled(&stubborn);
    assert!(
        ["cancelled", "killed"].contains(&record["status"].as_str().unwrap()),
        "{record}"
    );
}

#[test]
fn survivor_ends_with_the_run_that_started_it() {
    let world = World::new();
    let daemon = world.start("");
    world.graph_with(
        "t/g",
        "permissions: [rye.execute.*]\n",
        "start: serve\nnodes:\n  serve: {action: {item_id: rye/agent/threads/managed_subprocess, params: {action: start, name: server, command: exec sleep 60, survive: true}}, next: wait}\n  wait: {action: {item_id: rye/bash, params: {command: 'until [ -e go ]; do sleep 0.05; done'}}, effect: idempotent, next: done}\n  done: {type: return}",
    );
    let run = world.start_run("t/g");
    until_named(&world, "sleep", 1);
    end(&world, daemon, End::Both);
    let server = until("the server", || named(&world, "sleep").pop());
    world.write("go", "");
    let _daemon = world.start("");
    assert_eq!(world.settled(&run)["status"], "completed");
    until("its end", || (!processes::lives(server.pid)).then_some(()));
}

#[test]
fn restart_of_a_survivor_starts_a_new_shim() {
    let world = World::new();
    let daemon = world.start("");
    let server = start(
        &world,
        json!({"command": "exec sleep 60", "name": "server", "survive": true}),
    );
    let first = shim(&world, &server);
    end(&world, daemon, End::Both);
    let _daemon = world.start("");
    let again = call(&world, &json!({"action": "restart", "handle_id": server}));
    assert_eq!(
        (handle(&again), &again["restarts"], &again["ready"]),
        (server.clone(), &json!(1), &json!(true))
    );
    let second = shim(&world, &server);
    assert_ne!(first["pid"], second["pid"]);
    assert_eq!(second["attempt"], 2);
    until_named(&world, "sleep", 1);
    let _stopped = stop(&world, &server);
    until_named(&world, "sleep", 0);
}

#[test]
fn shim_of_an_earlier_build_is_followed_and_stopped() {
    for is_stopped in [true, false] {
        let world = World::new();
        let daemon = world.start("");
        let server = start(
            &world,
            json!({"command": "exec sleep 60", "name": "server", "survive": true, "grace": 2}),
        );
        let record = shim(&world, &server);
        end(&world, daemon, End::Both);
        processes::send(shim_pid(&world, &server), Signal::SIGKILL);
        until_named(&world, "sleep", 0);
        let directory = world.state().join("procs").join(&server);
        let command = "echo frozen; until [ -e go ]; do sleep 0.02; done; echo bye; exit 9";
        let mut earlier = rye_tests::command::program(env!("CARGO_BIN_EXE_shim-v1"))
            .arg(&directory)
            .arg("1")
            .arg(record["tag"].as_str().unwrap())
            .arg(format!("cd {}; {command}", world.project().display()))
            .spawn()
            .expect("it starts");
        let kept = until("its record", || {
            let kept = shim(&world, &server);
            (kept["child"].is_object() && kept["pid"] == earlier.id()).then_some(kept)
        });
        let _daemon = world.start("");
        let now = status_when(&world, &server, "the process", |now| now["running"] == true);
        assert_eq!((&now["ready"], &now["restarts"]), (&json!(true), &json!(0)));
        until("its line", || {
            printed(&world, &server)
                .contains(&"frozen".to_owned())
                .then_some(())
        });
        if is_stopped {
            let stopped = stop(&world, &server);
            assert_eq!(
                (&stopped["stopped"], &stopped["signal"]),
                (&json!(true), &json!(15)),
                "{kept}"
            );
        } else {
            world.write("go", "");
            let record = world.settled(&server);
            assert_eq!(record["error"]["exit_code"], 9, "{record}");
            assert_eq!(record["error"]["stdout_tail"], "frozen\nbye");
        }
        assert!(earlier.wait().expect("it is our child").success());
    }
}

#[test]
fn daemon_stop_names_survivors_and_ends_them_on_request() {
    let world = World::new();
    let daemon = world.start("");
    let server = start(
        &world,
        json!({"command": "exec sleep 60", "name": "server", "survive": true}),
    );
    let stopped = world.ryectl("daemon stop --json").ok().json();
    assert_eq!(stopped["survivors"], json!([server]));
    let _ended = daemon.ended();
    until_named(&world, "sleep", 1);
    let daemon = world.start("");
    let text = world.ryectl("daemon stop").ok();
    let _text = text.stderr_contains(&[&server, "daemon stop --all"]);
    let _ended = daemon.ended();
    let daemon = world.start("");
    let stopped = world.ryectl("daemon stop --all --json").ok().json();
    assert_eq!(stopped["survivors"], json!([]));
    let _ended = daemon.ended();
    until_named(&world, "sleep", 0);
}

#[test]
fn program_that_cannot_be_started_fails_as_without_a_shim() {
    let world = World::new();
    let daemon = world.start("");
    let missing = super::envelope(
        &world,
        &json!({"action": "start", "command": "no-such-program", "args": [], "survive": true}),
    );
    assert_eq!(
        missing["metadata"]["code"], "executor_not_found",
        "{missing}"
    );
    let daemons = [daemon.pid()];
    assert_eq!(processes::zombies_of(&daemons), 0, "its shim is reaped");
}

#[test]
fn ordinary_user_has_survivors_with_and_without_a_cgroup() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can act as another user");
        return;
    }
    let Some(subtree) = Subtree::new() else {
        skipped("this host takes no cgroups");
        return;
    };
    for cgroup in [Some(&subtree), None] {
        let world = World::new();
        let user = User::of(&world);
        let start = "ryectl proc start --survive --name nap -- sleep 60";
        let nap = user.run(cgroup, start).trim().to_owned();
        let shown = |words: &str| -> Value {
            let shown = user.run(cgroup, &format!("ryectl {words} --json || true"));
            serde_json::from_str(&shown).expect("it is JSON")
        };
        let pid = |shown: Value| i32::try_from(shown["pid"].as_i64().unwrap_or_default()).unwrap();
        let first = pid(shown(&format!("proc status {nap}")));
        let daemon = pid(shown("daemon info"));
        // Its parent ends what it left, and starts another one.
        processes::send(daemon, Signal::SIGKILL);
        until("the next daemon", || {
            // None answers before it serves.
            let next = pid(shown("daemon info"));
            (next != 0 && next != daemon).then_some(())
        });
        let status = shown(&format!("proc status {nap}"));
        assert_eq!(status["restarts"], 0, "{status}");
        assert_eq!(pid(status), first);
        let _stopped = user.run(cgroup, &format!("ryectl proc stop {nap}"));
        assert!(!processes::lives(first));
        let _stopped = user.run(cgroup, "ryectl daemon stop");
    }
}
