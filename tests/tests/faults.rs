//! Faults of the system that `tests/faults` injects into the real daemon: no acknowledged result is lost, and work that
//! can wait waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rye_tests::command::program;
use rye_tests::until::within;
use rye_tests::{Daemon, World, until};
use serde_json::Value;

const ECHO: &str = "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: \"${inputs.n}\"}}, assign: {n: \"${result.n}\"}, next: done}\n  done: {type: return, output: \"${state.n}\"}";

/// Waits until a rule that contains `part` has fired.
fn await_fault(world: &World, part: &str) {
    until("a fault to fire", || {
        world.fired().contains(part).then_some(())
    });
}

/// Starts run number `n` of [`ECHO`], and records its acknowledged result.
fn echo(world: &World, n: u32, answered: &mut BTreeMap<String, Value>) {
    let command = world.ryectl("run t/echo --quiet --json --no-autostart -i");
    let out = command.arg(format!("n:={n}")).run();
    if let Ok(run) = serde_json::from_str::<Value>(&out.stdout())
        && run["status"] == "completed"
    {
        let id = run["run_id"].as_str().unwrap().to_owned();
        answered.insert(id, run["output"].clone());
    }
}

/// Waits for the end of the daemon. Returns its exit code.
fn end_of(daemon: Daemon) -> i32 {
    daemon.ended().code().unwrap()
}

#[test]
fn a_sync_of_the_log_that_fails_ends_the_daemon_with_exit_code_70_and_loses_nothing() {
    let world = World::with_faults();
    let daemon = world.start("");
    world.graph("t/echo", ECHO);
    let mut answered = BTreeMap::new();
    echo(&world, 1, &mut answered);
    assert_eq!(answered.len(), 1);
    world.let_fail("fdatasync /log/ EIO 1");
    echo(&world, 2, &mut answered);
    await_fault(&world, "fdatasync /log/ EIO");
    assert_eq!(end_of(daemon), 70);
    assert_eq!(answered.len(), 1, "what is not on disk is not answered");
    world.let_fail("");
    let _again = world.start("");
    for (run, output) in &answered {
        assert_eq!(world.record(run)["output"], *output);
    }
}

#[test]
fn faults_of_each_file_of_the_state_lose_nothing_that_was_answered() {
    for (rule, many) in [
        ("pwrite64 /log/ short 20", 20),
        ("pwrite64 /log/ ENOSPC 2", 20),
        ("write /log/ ENOSPC 20", 300),
        ("pwrite64 /history/ EIO 2", 20),
        ("fdatasync /history/ EIO 2", 20),
        ("pwrite64 /index/ EIO 5", 60),
        ("sync_file_range /index/ EIO 5", 60),
    ] {
        let world = World::with_faults();
        let daemon = world.start("");
        world.graph("t/echo", ECHO);
        let mut answered = BTreeMap::new();
        echo(&world, 0, &mut answered);
        world.let_fail(rule);
        let fires = (1..many).any(|n| {
            echo(&world, n, &mut answered);
            !world.fired().is_empty()
        });
        let fires = fires
            || within(Duration::from_secs(20), || {
                (!world.fired().is_empty()).then_some(())
            })
            .is_some();
        assert!(fires, "{rule} did not fire");
        for n in 0..3 {
            echo(&world, n, &mut answered);
        }
        world.let_fail("");
        let told = world.ryectl("daemon info --json --no-autostart").run();
        let lives = serde_json::from_str::<Value>(&told.stdout())
            .is_ok_and(|told| told["pid"] == daemon.pid());
        if rule.contains("/index/") {
            assert!(
                lives,
                "{rule}: the index is never the only copy\n{}",
                world.log()
            );
        }
        let again = if lives {
            daemon
        } else {
            assert_eq!(end_of(daemon), 70, "{rule}");
            world.start("")
        };
        for (run, output) in &answered {
            let found = within(Duration::from_secs(30), || {
                let record = world.ryectl("get --json").arg(run).run();
                serde_json::from_str::<Value>(&record.stdout())
                    .ok()
                    .filter(|record| record["output"] == *output)
            });
            assert!(
                found.is_some(),
                "{rule}: {run} is not what it was answered to be"
            );
        }
        drop(again);
    }
}

/// Fails once, retries after a pause, and has 60 s for everything.
const RETRIES: &str = "start: a\ntimeout: 60\nnodes:\n  \
    a: {action: {item_id: t/once, params: {}}, retry: {max: 3, backoff: fixed, delay: 3}, next: end}\n  \
    end: {type: return, output: {}}";

#[test]
fn a_step_of_the_wall_clock_neither_fires_nor_stalls_a_retry_or_a_timeout() {
    const HOUR: i64 = 3_600;
    const YEAR: i64 = 365 * 24 * HOUR;
    let world = World::with_faults();
    let _daemon = world.start("");
    world.python(
        "t/once",
        "import os\nfrom pathlib import Path\nat = Path(project_path) / ('tried-' + os.environ['RYE_IDEMPOTENCY_KEY'])\nif at.exists():\n    return {}\nat.write_text('')\nraise RuntimeError('not yet')",
    );
    world.graph("t/retries", RETRIES);
    // Also to the beginning of the epoch and far beyond its usual end.
    for seconds in [HOUR, -HOUR, YEAR, -YEAR, -56 * YEAR, 274 * YEAR] {
        world.let_fail("");
        let run = world.start_run("t/retries");
        until("the first try to fail", || {
            let events = world.ryectl("events --json").arg(&run).ok();
            events.stdout().contains("not yet").then_some(())
        });
        world.let_fail(&format!("clock * {seconds}"));
        let begun = Instant::now();
        await_fault(&world, &format!("clock * {seconds}"));
        let record = world.settled(&run);
        assert_eq!(record["status"], "completed", "{seconds}: {record}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(45), "{seconds}: {took:?}");
    }
}

/// A step that must not be repeated, and one that may be.
const PRINTS: &str = "start: a\nnodes:\n  \
    a: {effect: at_most_once, action: {item_id: rye/bash, params: {command: \"echo a >> made\"}}, next: b}\n  \
    b: {action: {item_id: rye/bash, params: {command: \"echo b >> made\"}}, next: end}\n  \
    end: {type: return, output: {}}";

#[test]
fn process_start_waits_out_descriptor_or_memory_shortage() {
    let world = World::with_faults();
    let daemon = world.start("");
    world.graph("t/prints", PRINTS);
    for (rule, code) in [
        ("pipe2 * EMFILE 3", "too_many_files"),
        ("pipe2 * ENOMEM 3", "out_of_memory"),
    ] {
        world.write("made", "");
        world.let_fail(rule);
        let run = world.start_run("t/prints");
        await_fault(&world, rule);
        let ended = until("the run to resume by itself and to end", || {
            let now = world.record(&run);
            (!matches!(
                now["status"].as_str(),
                Some("created" | "running" | "suspended")
            ))
            .then_some(now)
        });
        assert_eq!(ended["status"], "completed", "{rule}: {ended}");
        assert_eq!(world.read("made"), "a\nb\n", "{rule}");
        let events = world.ryectl("events --json").arg(&run).ok().json_lines();
        let suspended = events
            .iter()
            .find(|event| event["event_type"] == "run_suspended");
        let why = &suspended.unwrap()["payload"];
        assert_eq!(
            (&why["reason"], &why["code"]),
            (&"storage".into(), &code.into()),
            "{why}"
        );
        let failed = |event: &&Value| event["event_type"] == "step_failed";
        assert_eq!(events.iter().find(failed), None, "{rule}");
    }
    let tool = world
        .ryectl("execute tool rye/bash --json --params -")
        .stdin(r#"{"command": "true"}"#)
        .run();
    let _done = tool.code(0);
    assert_eq!(world.info()["pid"], daemon.pid());
}

/// Waits for a file, and then calls a tool for the first time.
const LATER: &str = "start: a\nnodes:\n  \
    a: {action: {item_id: rye/bash, params: {command: \"touch begun; until [ -e go ]; do sleep 0.05; done\"}}, next: b}\n  \
    b: {action: {item_id: t/tool, params: {}}, next: end}\n  \
    end: {type: return, output: {}}";

#[test]
fn item_open_waits_out_descriptor_shortage() {
    let world = World::new();
    let daemon = world.start("");
    world.python("t/tool", "return {}");
    world.graph("t/later", LATER);
    let run = world.start_run("t/later");
    until("the first step to begin", || {
        world.project().join("begun").exists().then_some(())
    });
    // Open files stay open; no more can be opened.
    let limit = |soft: &str| {
        let pid = daemon.pid().to_string();
        let nofile = format!("--nofile={soft}:");
        let set = program("prlimit").args(["--pid", &pid, &nofile]).status();
        assert!(set.is_ok_and(|status| status.success()), "prlimit");
    };
    limit("3");
    world.write("go", "");
    until("the run to be suspended", || {
        world
            .log()
            .contains("nothing can begin on this host")
            .then_some(())
    });
    limit("1024");
    let ended = until("the run to resume by itself and to end", || {
        let now = world.record(&run);
        (!matches!(
            now["status"].as_str(),
            Some("created" | "running" | "suspended")
        ))
        .then_some(now)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(world.info()["pid"], daemon.pid());
}

#[test]
fn connections_are_accepted_after_accept_failures() {
    let world = World::with_faults();
    let daemon = world.start("");
    world.let_fail("accept4 * EMFILE 5");
    let told = until("the daemon to accept again", || {
        let told = world.ryectl("daemon info --json --no-autostart").run();
        serde_json::from_str::<Value>(&told.stdout())
            .ok()
            .filter(|told| told["pid"].is_i64())
    });
    assert_eq!(told["pid"], daemon.pid());
    await_fault(&world, "accept4");
}

/// Makes a daemon whose write of an ended run's transcript hangs until the rules change.
fn with_hanging_transcript(config: &str) -> (World, Daemon, String) {
    let world = World::with_faults();
    let daemon = world.start(config);
    world.graph("t/echo", ECHO);
    world.let_fail("pwrite64 /transcript hang");
    let run = world.ryectl("run --detach t/echo -i n:=1").ok().line();
    assert_eq!(world.settled(&run)["status"], "completed");
    await_fault(&world, "hang");
    (world, daemon, run)
}

/// Waits until the transcript of `run` is complete and verifies.
fn await_transcript(world: &World, run: &str) {
    until("the transcript to be whole", || {
        let file = format!(".ai/state/threads/{run}/transcript.jsonl");
        let checked = world.ryectl("transcript --verify").arg(file).run();
        (checked.exit() == "0").then_some(())
    });
}

#[test]
fn a_stop_does_not_wait_for_the_files_of_a_project_that_hangs_and_the_next_start_writes_them() {
    let (world, daemon, run) = with_hanging_transcript("shutdown_grace_seconds: 1\n");
    // The project hangs all the time, so a stop that waited for it would not end.
    let _stopped = world.ryectl("daemon stop").ok();
    assert_eq!(end_of(daemon), 0);
    let log = world.log();
    assert!(
        log.contains("are not written: the next start writes them"),
        "{log}"
    );
    world.let_fail("");
    let _again = world.start("");
    await_transcript(&world, &run);
}

#[test]
fn call_on_closed_journal_reports_stopping_daemon() {
    let (world, daemon, run) = with_hanging_transcript("shutdown_grace_seconds: 300\n");
    daemon.signal(Signal::SIGTERM);
    until("all calls to have ended", || {
        world.log().contains("the journal is closed").then_some(())
    });
    for _ in 0..3 {
        let told = world.ryectl("ps --json --no-autostart").run().code(69);
        assert_eq!(told.json()["error"]["reason"], "stopping");
    }
    world.let_fail("");
    assert_eq!(end_of(daemon), 0);
    let _again = world.start("");
    await_transcript(&world, &run);
}
