//! Lifetime of `ryed`: start, configuration, one daemon per state directory, draining, signals.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use rye_tests::command::in_clean_environment;
use rye_tests::until::within;
use rye_tests::{Daemon, Outcome, World, binaries, until};
use serde_json::Value;

/// A graph whose step records the request to stop and continues until the file `go` exists.
pub(crate) const STUBBORN: &str = "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"trap 'touch asked' TERM; touch in; until [ -e go ]; do sleep 0.01; done\"}}\n    next: done\n  done: {type: return}";

pub(crate) fn ryed(world: &World) -> std::process::Command {
    let mut command = in_clean_environment(binaries::ryed(), &world.home(), world.root());
    command.stdin(Stdio::null());
    command
}

/// Returns the error of a daemon that may not start. It ends immediately.
fn refused(world: &World, state: &Path, socket: &Path) -> String {
    let mut second = ryed(world);
    second.arg("--state-dir").arg(state);
    let out = second.arg("--socket").arg(socket).output().unwrap();
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_second_daemon_on_the_same_state_directory_ends_at_once_and_harms_nothing() {
    let world = World::new();
    let first = world.start("");
    let out = ryed(&world)
        .arg("--state-dir")
        .arg(world.state())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(5), "{out:?}");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(stderr.contains(world.state().to_str().unwrap()), "{stderr}");
    assert_eq!(world.info()["pid"], first.pid());
}

#[test]
fn nothing_in_the_state_directory_can_be_removed_to_let_a_second_daemon_in() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let first = world.start("");
    let run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    for name in ["served-at", "node.json"] {
        std::fs::remove_file(world.state().join(name)).unwrap();
    }
    for socket in [world.socket(), world.root().join("other.sock")] {
        let _told = refused(&world, &world.state(), &socket);
    }
    assert_eq!(world.info()["pid"], first.pid());
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn start_waits_for_dying_daemon() {
    let world = World::new();
    let state = world.state();
    std::fs::create_dir_all(&state).unwrap();
    let directory = std::fs::File::open(&state).unwrap();
    let lock = Flock::lock(directory, FlockArg::LockExclusive).unwrap();
    let socket = world.root().join("dying.sock");
    let dying = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = serde_json::json!({
        "v": 1,
        "socket": socket,
        "phase": "serving",
        "daemon": {"pid": 1, "started": 1},
        "parent": null,
        "boot_id": boot.trim(),
        "pid_namespace": 1,
        "version": "0",
    });
    std::fs::write(state.join("served-at"), record.to_string()).unwrap();
    let mut child = Daemon::spawn(&world, "");
    // Imitates a process that was killed: the kernel accepts connections for it until it is gone.
    let (_taken, _) = dying.accept().unwrap();
    drop(dying);
    drop(lock);
    until("the next one to serve", || {
        assert_eq!(child.try_wait().unwrap(), None, "{}", world.log());
        let out = world.ryectl("daemon info --json --no-autostart").run();
        out.stdout().contains("epoch").then_some(())
    });
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = child.wait().unwrap();
}

#[test]
fn state_directory_keeps_identity_over_reboot() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let daemon = world.start("");
    let run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    let path = world.state().join("node.json");
    let text = std::fs::read(&path).unwrap();
    let mut record: Value = serde_json::from_slice(&text).unwrap();
    let before = record.clone();
    record["boot_id"] = "00000000-0000-4000-8000-000000000000".into();
    for number in ["device", "inode"] {
        record[number] = (record[number].as_u64().unwrap() + 1).into();
    }
    std::fs::write(&path, record.to_string()).unwrap();
    let _daemon = world.start("");
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
    let text = std::fs::read(&path).unwrap();
    let after: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(after, before, "it is described as it is now");
}

#[test]
fn stopping_daemon_refuses_calls_and_blocks_autostart() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let daemon = world.start("shutdown_grace_seconds: 60\n");
    let run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.signal(Signal::SIGTERM);
    until("the step to be asked to stop", || {
        world.project().join("asked").exists().then_some(())
    });
    let told = world.ryectl("ps --json").run().code(69);
    assert_eq!(told.json()["error"]["reason"], "stopping");
    // A second client with the same request waits for the result.
    let stopping = world.ryectl("daemon stop").spawn();
    world.write("go", "");
    let _stopped = Outcome::of(stopping).code(0);
    assert!(daemon.ended().success());
    let _daemon = world.start("");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn missing_or_foreign_node_key_is_refused_and_not_replaced() {
    let world = World::new();
    drop(world.start(""));
    let _stopped = world.ryectl("daemon stop").ok();
    let key = world.state().join("keys/private_key.pem");
    let kept = std::fs::read(&key).unwrap();
    let refused = |told: &str| {
        let mut child = Daemon::spawn(&world, "");
        let status = until("ryed to end", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(70), "{}", world.log());
        let log = world.log();
        let last = log.lines().last().unwrap();
        assert!(
            last.contains(told) && last.contains(key.to_str().unwrap()),
            "{last}"
        );
    };
    std::fs::remove_file(&key).unwrap();
    refused("is gone");
    let other = world.home().join(".ai/config/keys/signing/private_key.pem");
    std::fs::copy(other, &key).unwrap();
    refused("is another one");
    let mut flipped = kept.clone();
    // A byte after the line of dashes and the prefix with the type of the key.
    flipped[60] ^= 1;
    std::fs::write(&key, flipped).unwrap();
    refused("what is next to it is signed with");
    std::fs::write(&key, kept).unwrap();
    let record = world.state().join("node.json");
    let text = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    let mut child = Daemon::spawn(&world, "");
    let status = until("ryed to end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(70), "{}", world.log());
    assert!(world.log().contains("node.json"), "{}", world.log());
    std::fs::write(&record, text).unwrap();
    let _serves = world.start("");
}

#[test]
fn a_damaged_public_key_is_noticed_at_the_start_and_made_again() {
    let world = World::new();
    drop(world.start(""));
    let _stopped = world.ryectl("daemon stop").ok();
    let path = world.state().join("keys/public_key.pem");
    let sound = std::fs::read(&path).unwrap();
    let mut flipped = sound.clone();
    flipped[40] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let _serves = world.start("");
    assert_eq!(std::fs::read(&path).unwrap(), sound);
    let log = world.log();
    assert!(
        log.contains(path.to_str().unwrap()) && log.contains("written anew"),
        "{log}"
    );
}

#[test]
fn a_second_daemon_with_another_socket_is_refused_too() {
    let world = World::new();
    let first = world.start("");
    let other = world.root().join("other.sock");
    let _told = refused(&world, &world.state(), &other);
    assert!(!other.exists());
    assert_eq!(world.info()["pid"], first.pid());
}

#[test]
fn a_daemon_whose_socket_another_one_serves_ends_before_it_writes_a_log() {
    let world = World::new();
    let first = world.start("");
    let other = world.root().join("other");
    let told = refused(&world, &other, &world.socket());
    assert!(told.contains(world.socket().to_str().unwrap()), "{told}");
    assert!(!other.join("log").exists());
    assert_eq!(world.info()["pid"], first.pid());
}

#[test]
fn a_socket_left_by_a_killed_daemon_is_taken_over() {
    let world = World::new();
    let first = world.start("");
    first.kill_both();
    let _status = first.ended();
    assert!(world.socket().exists());
    let second = world.start("");
    assert_eq!(world.info()["pid"], second.pid());
    assert_eq!(world.info()["epoch"], 2);
}

#[test]
fn sigterm_drains_and_the_run_is_recovered_at_the_next_start() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let daemon = world.start("");
    let run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.signal(Signal::SIGTERM);
    until("the step to be asked to stop", || {
        world.project().join("asked").exists().then_some(())
    });
    let status = daemon.ended();
    assert_eq!(status.code(), Some(0));
    assert!(!world.socket().exists());
    assert!(world.processes().is_empty(), "{:?}", world.processes());
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
}

#[test]
fn a_second_signal_skips_the_grace() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let daemon = world.start("shutdown_grace_seconds: 60\n");
    let _run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    let began = Instant::now();
    daemon.signal(Signal::SIGTERM);
    until("the step to be asked to stop", || {
        world.project().join("asked").exists().then_some(())
    });
    // Longer than the default grace of a process.
    let ended = within(Duration::from_secs(6), || {
        (!shell_runs(&world)).then_some(())
    });
    assert!(ended.is_none(), "the grace is not what was configured");
    daemon.signal(Signal::SIGTERM);
    let status = daemon.ended();
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "the grace was waited for"
    );
    assert!(status.code().is_some() || status.signal().is_some());
    until("all processes to be gone", || {
        world.processes().is_empty().then_some(())
    });
}

fn shell_runs(world: &World) -> bool {
    let processes = world.processes();
    processes.iter().any(|process| process.name == "bash")
}

#[test]
fn sigint_stops_it_as_sigterm_does() {
    let world = World::new();
    let daemon = world.start("");
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.ended().code(), Some(0));
}

#[test]
fn start_ends_processes_of_previous_daemon() {
    let world = World::new();
    world.graph(
        "t/brood",
        "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"[ -e in ] && exit 0; sleep 1000 & touch in; wait\"}}\n    next: done\n  done: {type: return}",
    );
    let daemon = world.start("");
    let run = world.start_run("t/brood");
    // The background process is a copy of the shell until it executes its own program.
    let sleeps = || {
        let processes = world.processes();
        processes.iter().any(|process| process.name == "sleep")
    };
    until("the step to run", || {
        (world.project().join("in").exists() && sleeps()).then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    assert!(sleeps(), "the kernel ends the leader only");
    let _next = world.start("");
    assert_eq!(world.settled(&run)["status"], "completed");
    assert!(
        world
            .processes()
            .iter()
            .all(|process| process.name == "ryed"),
        "{:?}",
        world.processes()
    );
}

/// A step that creates a file and waits for the file `go`.
const WAITS: &str = r#"start: a
nodes:
  a:
    action: {item_id: rye/bash, params: {command: "touch in; until [ -e go ]; do sleep 0.01; done; echo over"}}
    assign: {said: "${result.stdout | trim}"}
    next: done
  done: {type: return, output: "${state.said}"}"#;

#[test]
fn a_daemon_that_dies_is_started_again_and_an_attached_client_sees_the_end() {
    let mut world = World::new();
    world.let_daemons_come_back();
    world.graph("t/waits", WAITS);
    let daemon = world.start("");
    let client = world.ryectl("run --json t/waits --no-autostart").spawn();
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill();
    world.write("go", "");
    let out = Outcome::of(client).code(0);
    assert_eq!(out.json()["output"], "over");
    let info = world.info();
    assert_ne!(info["pid"], daemon.pid(), "{info}");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().success());
}

#[test]
fn waiting_client_restarts_dead_daemon() {
    let world = World::new();
    world.graph("t/waits", WAITS);
    let daemon = world.start("");
    let client = world.ryectl("run --json t/waits").spawn();
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill_both();
    world.write("go", "");
    let out = Outcome::of(client).code(0);
    assert_eq!(out.json()["output"], "over");
}

#[test]
fn parent_ends_processes_of_dead_daemon() {
    let world = World::new();
    world.graph(
        "t/tree",
        "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"sleep 1000 & (setsid sh -c 'touch up; exec sleep 1000' &); until [ -e up ]; do sleep 0.01; done; touch in; sleep 1000\"}}\n    next: done\n  done: {type: return}",
    );
    let daemon = world.start("");
    let _run = world.start_run("t/tree");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill();
    let status = daemon.ended();
    assert!(!status.success(), "{status}");
    // The parent exits after the others, and not earlier.
    let left = rye_tests::processes::below(world.root());
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn orphaned_daemon_ends_detached_processes_before_exit() {
    let world = World::new();
    world.graph(
        "t/tree",
        "start: a\nnodes:\n  a:\n    action: {item_id: rye/bash, params: {command: \"(setsid sh -c '(sleep 1000 &); touch up; exec sleep 1000' &); until [ -e up ]; do sleep 0.01; done; touch in; sleep 1000\"}}\n    next: done\n  done: {type: return}",
    );
    let daemon = world.start("");
    let _run = world.start_run("t/tree");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    rye_tests::processes::send(daemon.parent_pid(), Signal::SIGKILL);
    let left = rye_tests::processes::left(world.root());
    assert!(left.is_empty(), "{left:#?}");
    let _status = daemon.ended();
}

#[test]
fn print_config_shows_every_setting_and_the_flag_wins_over_the_environment_over_the_file() {
    let world = World::new();
    let file = world.root().join("ryed.yaml");
    let print = |text: &str, variable: Option<&str>, flag: Option<&str>| {
        std::fs::write(&file, text).unwrap();
        let mut command = ryed(&world);
        command.arg("--print-config").arg("--config").arg(&file);
        if let Some(dir) = variable {
            command.env("RYE_STATE_DIR", dir);
        }
        if let Some(dir) = flag {
            command.arg("--state-dir").arg(dir);
        }
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let has =
        |text: &str, dir: &str| assert!(text.contains(&format!("state_dir: \"{dir}\"")), "{text}");
    has(&print("state_dir: /from/file\n", None, None), "/from/file");
    has(
        &print("state_dir: /from/file\n", Some("/from/environment"), None),
        "/from/environment",
    );
    has(
        &print(
            "state_dir: /from/file\n",
            Some("/from/environment"),
            Some("/from/flag"),
        ),
        "/from/flag",
    );
    let printed = print("durability: relaxed\n", None, None);
    let values = |text: &str| {
        text.lines()
            .map(|line| line.split("  # ").next().unwrap_or(line).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        values(&print(&printed, None, None)),
        values(&printed),
        "what is printed is a settings file"
    );
    assert!(!Path::new("/from").exists());
}

#[test]
fn a_configuration_with_a_mistake_is_refused_by_name_before_anything_is_made() {
    let world = World::new();
    for (text, told) in [
        ("statedir: /x\n", "statedir"),
        ("durability: sometimes\n", "sometimes"),
        ("{", "ryed.yaml"),
    ] {
        let mut child = Daemon::spawn(&world, text);
        let status = until("ryed to end", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(2), "{text}");
        assert!(world.log().contains(told), "{text}: {}", world.log());
    }
    assert!(!world.state().join("log").exists());
}

#[test]
fn a_configuration_file_that_is_not_there_is_an_error() {
    let world = World::new();
    let out = ryed(&world)
        .arg("--config")
        .arg(world.root().join("nowhere.yaml"))
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("nowhere.yaml"));
}

#[test]
fn log_is_json_off_terminal() {
    let world = World::new();
    let _daemon = world.start("");
    let log = world.log();
    assert!(!log.is_empty());
    for line in log.lines() {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "{line}");
    }
}

#[test]
fn a_suspended_run_ends_a_wait_with_75_and_can_be_cancelled() {
    let world = World::new();
    world.graph("t/stubborn", STUBBORN);
    let daemon = world.start("recovery: suspend\n");
    let run = world.start_run("t/stubborn");
    until("the step to run", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill();
    let _status = daemon.ended();
    let _daemon = world.start("recovery: suspend\n");
    let out = world.ryectl("wait --json").arg(&run).run().code(75);
    let suspended = out.json()[0].clone();
    assert_eq!(suspended["status"], "suspended");
    assert_eq!(suspended["suspend"]["reason"], "restart");
    assert_eq!(suspended["suspend"]["node"], "a");
    let _cancelled = world.ryectl("cancel").arg(&run).ok();
    assert_eq!(world.settled(&run)["status"], "cancelled");
}

#[test]
fn a_run_that_was_asked_to_stop_before_a_crash_ends_and_is_not_suspended() {
    let world = World::new();
    world.graph(
        "t/waits",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: 'touch in; sleep 600'}}}",
    );
    let daemon = world.start("recovery: suspend\n");
    let run = world.start_run("t/waits");
    until("the step to begin", || {
        world.project().join("in").exists().then_some(())
    });
    // The step has some seconds to end by itself.
    let _asked = world.ryectl("cancel").arg(&run).ok();
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("recovery: suspend\n");
    until("the run to be cancelled", || {
        (world.record(&run)["status"] == "cancelled").then_some(())
    });
}

#[test]
fn stop_right_after_the_death_of_a_daemon_ends_its_parent() {
    let world = World::new();
    let daemon = world.start("");
    daemon.kill();
    // Its parent starts the next one about now.
    let _stopped = world.ryectl("daemon stop --no-autostart").ok();
    let left: Vec<_> = world.processes();
    assert!(
        !left.iter().any(|process| process.name == "ryed"),
        "{left:?}"
    );
}
