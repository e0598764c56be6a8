//! Locating the daemon of a state directory, on any socket and whether or not it answers.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rye_tests::processes::{self, is_stopped};
use rye_tests::{Daemon, Outcome, Ryectl, World, until};

/// A user with a login session.
struct Session {
    world: World,
    runtime: PathBuf,
}

impl Session {
    fn new() -> Self {
        let world = World::new();
        let runtime = world.root().join("run");
        make(&runtime);
        Self { world, runtime }
    }

    /// Makes a command of the session.
    fn inside(&self, words: &str) -> Ryectl {
        self.outside(words).env("XDG_RUNTIME_DIR", &self.runtime)
    }

    /// Makes a command without the session, as of `cron`, `su -` or `docker exec`.
    fn outside(&self, words: &str) -> Ryectl {
        self.world.ryectl(words).without_env("RYE_STATE_DIR")
    }
}

/// Returns pid and socket of the daemon that `command` finds.
fn found(command: Ryectl) -> (i64, PathBuf) {
    let info = command.words("daemon info --json").ok().json();
    let socket = info["socket"].as_str().unwrap();
    (info["pid"].as_i64().unwrap(), socket.into())
}

fn make(directory: &Path) {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).create(directory).unwrap();
}

#[test]
fn a_session_and_cron_reach_the_same_daemon_whichever_starts_it() {
    for starts_inside in [true, false] {
        let session = Session::new();
        let start = if starts_inside {
            session.inside("daemon start")
        } else {
            session.outside("daemon start")
        };
        let _started = start.ok();
        let (pid, socket) = found(session.inside(""));
        assert_eq!(socket.starts_with(&session.runtime), starts_inside);
        assert_eq!(found(session.outside("")), (pid, socket));
        let stop = if starts_inside {
            session.outside("daemon stop")
        } else {
            session.inside("daemon stop")
        };
        assert_eq!(stop.ok().stdout(), "ryed has stopped\n");
        until("both processes to end", || {
            session.world.processes().is_empty().then_some(())
        });
    }
}

#[test]
fn a_daemon_that_outlives_the_session_is_reached_during_and_after_it() {
    let session = Session::new();
    let _started = session.inside("daemon start").ok();
    let (pid, socket) = found(session.inside(""));
    // After the log-out the daemon listens in the state directory. A client waits until it does.
    fs::remove_dir_all(&session.runtime).unwrap();
    let (same, beside) = found(session.outside(""));
    assert_eq!(same, pid);
    assert!(beside.starts_with(session.world.home()), "{beside:?}");
    // After the next log-in it listens again on the path that other programs know.
    make(&session.runtime);
    until("the daemon to bind its first socket again", || {
        socket.exists().then_some(())
    });
    assert_eq!(found(session.inside("")), (pid, socket));
    assert!(!beside.exists());
    let _stopped = session.outside("daemon stop").ok();
}

#[test]
fn a_socket_that_was_removed_or_replaced_is_bound_again_and_no_second_daemon_starts() {
    let world = World::new();
    let daemon = world.start("");
    for replaced in [false, true] {
        fs::remove_file(world.socket()).unwrap();
        if replaced {
            drop(std::os::unix::net::UnixListener::bind(world.socket()).unwrap());
        }
        let _listed = world.ryectl("ps").ok();
        assert_eq!(world.info()["pid"], daemon.pid());
    }
    fs::remove_file(world.state().join("served-at")).unwrap();
    until("the record to be written again", || {
        world.state().join("served-at").exists().then_some(())
    });
}

/// Stops both processes of `daemon`, as a frozen container or a debugger does.
fn freeze(daemon: &Daemon) {
    for pid in [daemon.parent_pid(), daemon.pid()] {
        processes::send(pid, Signal::SIGSTOP);
        until("the process to stand still", || {
            is_stopped(pid).then_some(())
        });
    }
}

/// Reads the first notice of a command that waits.
fn notice(command: &mut Child) -> String {
    let stderr = command.stderr.as_mut().unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    // It reads byte by byte up to the line feed; the rest is read at the end.
    while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn a_daemon_that_does_not_answer_is_named_by_its_pid_and_ended_by_stop_and_restart() {
    let (stopped, restarted) = (World::new(), World::new());
    let (first, other) = (stopped.start(""), restarted.start(""));
    freeze(&first);
    freeze(&other);
    let began = Instant::now();
    let mut ps = stopped.ryectl("ps --no-autostart").spawn();
    let stop = stopped.ryectl("daemon stop --json").spawn();
    let restart = restarted.ryectl("daemon restart").spawn();
    let named = format!("ryed (pid {})", first.pid());
    let notice = notice(&mut ps);
    assert!(notice.starts_with(&named), "{notice}");
    // The notice arrives long before the daemon would be ended by force, even on a slow machine.
    assert!(began.elapsed() < Duration::from_secs(8));
    let stop = Outcome::of(stop).code(0).stderr_contains(&[&named]);
    assert_eq!(stop.json()["forced"], true);
    assert!(
        stopped
            .processes()
            .iter()
            .all(|process| process.name != "ryed")
    );
    // It was continued before it was killed, and may have answered.
    let _gone = Outcome::of(ps).code_among(&[0, 69]);
    let _restarted = Outcome::of(restart).code(0);
    assert_ne!(restarted.info()["pid"], other.pid());
    let _status = first.ended();
}

#[test]
fn stop_waits_for_recovering_daemon() {
    let world = World::with_faults();
    // The daemon does not serve until the rules change.
    world.let_fail("fsync /state hang");
    let mut child = Daemon::spawn(&world, "");
    until("the daemon to take the state directory", || {
        world.state().join("served-at").exists().then_some(())
    });
    let mut stop = world.ryectl("daemon stop --json").spawn();
    let notice = notice(&mut stop);
    assert!(notice.contains("is still recovering its runs"), "{notice}");
    world.let_fail("");
    let stop = Outcome::of(stop).code(0).json();
    assert_eq!(
        (&stop["stopped"], &stop["forced"]),
        (&true.into(), &false.into())
    );
    assert!(child.wait().unwrap().success());
}

#[test]
fn removed_working_directory_is_named_and_nothing_is_written() {
    let world = World::new();
    let _daemon = world.start("");
    let gone = world.home().join("gone");
    let within_gone = |words: &str| {
        // The shell enters the directory before it is removed.
        let script = format!(
            "mkdir '{0}' && cd '{0}' && rmdir '{0}' && exec ryectl {words}",
            gone.display()
        );
        let out = world.shell(&[], &script).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), told)
    };
    for words in [
        "init",
        "run sample/hello",
        "ps",
        "ls",
        "sign tool:a/b",
        "--project rel ps",
        "--state-dir rel daemon status",
    ] {
        let (code, told) = within_gone(words);
        assert_eq!(code, Some(2), "{words}: {told}");
        assert!(told.contains("this directory is gone"), "{words}: {told}");
    }
    assert!(!Path::new("/.ai").exists());
    let project = format!("--project '{}' ps", world.project().display());
    for words in [project.as_str(), "daemon status", "completions bash"] {
        let (code, told) = within_gone(words);
        assert_eq!(code, Some(0), "{words}: {told}");
    }
}
