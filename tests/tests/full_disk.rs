//! A full disk: new work is refused, nothing is lost, and runs continue when there is space again.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use rye_tests::command::in_clean_environment;
use rye_tests::model_server::ModelServer;
use rye_tests::{Ryectl, World, binaries, processes, skipped, until};
use serde_json::{Value, json};

/// Room for the prepared segments of the log, and for some more without the ballast.
const SIZE: &str = "size=160m";

/// A daemon whose state directory is a small file system in its own mount namespace.
struct SmallDisk {
    world: World,
    daemon: Child,
}

impl SmallDisk {
    /// Returns `None` if this user may not mount.
    fn new() -> Option<Self> {
        Self::with(World::new(), Vec::new())
    }

    /// Makes a small disk like [`SmallDisk::new`], with a daemon that calls `server` for models.
    fn with_models(server: &ModelServer) -> Option<Self> {
        Self::with(World::with_models(server), server.environment())
    }

    fn with(world: World, environment: Vec<(&'static str, String)>) -> Option<Self> {
        fs::create_dir_all(world.state()).unwrap();
        let script = r#"mount -t tmpfs -o "$1,mode=700" tmpfs "$2" && exec "$3" --state-dir "$2" --socket "$4""#;
        let daemon = in_clean_environment("unshare", &world.home(), world.root())
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                script,
                "sh",
                SIZE,
            ])
            .arg(world.state())
            .arg(binaries::ryed())
            .arg(world.root().join("ryed.sock"))
            .envs(environment)
            .stdin(Stdio::null())
            .stderr(fs::File::create(world.root().join("ryed.log")).unwrap())
            .spawn();
        let daemon = match daemon {
            Ok(daemon) => daemon,
            Err(error) => {
                skipped(&format!("`unshare` does not start here: {error}"));
                return None;
            }
        };
        let mut disk = Self { world, daemon };
        if !disk.serves() {
            skipped("a small file system cannot be mounted here");
            return None;
        }
        Some(disk)
    }

    /// True if the daemon begins to serve, false if it ends.
    fn serves(&mut self) -> bool {
        until("the daemon to serve or to end", || {
            let ended = self.daemon.try_wait().unwrap().is_some();
            (ended || UnixStream::connect(self.socket()).is_ok()).then_some(!ended)
        })
    }

    fn socket(&self) -> PathBuf {
        self.world.root().join("ryed.sock")
    }

    /// Kills both processes of the daemon, and starts it again on the same file system.
    fn start_again(&mut self) {
        // The open namespace keeps the mount of the first daemon.
        let namespace = fs::File::open(format!("/proc/{}/ns/mnt", self.daemon.id())).unwrap();
        let info = self.ryectl("daemon info --json").ok().json();
        for pid in ["parent_pid", "pid"] {
            let pid = i32::try_from(info[pid].as_i64().unwrap()).unwrap();
            processes::send(pid, Signal::SIGKILL);
        }
        self.daemon.wait().unwrap();
        until("the daemon to let go of its socket", || {
            UnixStream::connect(self.socket()).is_err().then_some(())
        });
        let entrance = format!(
            "--mount=/proc/{}/fd/{}",
            std::process::id(),
            namespace.as_raw_fd()
        );
        let log = self.world.root().join("ryed.log");
        let appended = fs::File::options().append(true).open(&log).unwrap();
        self.daemon = in_clean_environment("nsenter", &self.world.home(), self.world.root())
            .arg(entrance)
            .arg(binaries::ryed())
            .arg("--state-dir")
            .arg(self.world.state())
            .arg("--socket")
            .arg(self.socket())
            .stdin(Stdio::null())
            .stderr(appended)
            .spawn()
            .unwrap();
        assert!(self.serves(), "{:?}", fs::read_to_string(&log));
    }

    fn ryectl(&self, words: &str) -> Ryectl {
        self.world
            .ryectl(words)
            .arg("--no-autostart")
            .arg("--socket")
            .arg(self.socket())
    }

    fn storage(&self) -> String {
        let info = self.ryectl("daemon info --json").ok().json();
        info["storage"].as_str().unwrap().to_owned()
    }

    /// Returns the path of a file on the small file system from outside of its namespace.
    fn inside(&self, name: &str) -> PathBuf {
        let state = self.world.state();
        let inside = state.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.daemon.id()))
            .join(inside)
            .join(name)
    }

    fn ballast(&self) -> PathBuf {
        self.inside("ballast")
    }

    /// Fills the file system completely.
    fn fill(&self) {
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(fs::remove_file(self.ballast()));
        processes::send(i32::try_from(self.daemon.id()).unwrap(), Signal::SIGTERM);
        self.daemon.wait().unwrap();
    }
}

/// Stores the input in the state in each step, up to the step limit of the run.
const FILL: &str = "start: a\nmax_steps: 100000\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {text: \"${inputs.text}\"}}, assign: {got: \"${result.text}\"}, next: a}";

#[test]
fn on_a_full_disk_runs_are_suspended_new_ones_are_refused_and_all_resume_when_there_is_space() {
    let Some(disk) = SmallDisk::new() else { return };
    let world = &disk.world;
    world.graph("t/fill", FILL);
    world.write("in.json", json!({"text": "y".repeat(20 << 10)}).to_string());
    let fill = |steps: u32| {
        let words = format!("run t/fill --quiet --json --input @in.json --limit steps={steps}");
        disk.ryectl(&words)
    };
    let before = fill(10).run().code(1).json();
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    disk.fill();

    // Each step writes 20 KiB twice, as result and as state. That uses up the prepared part of the log.
    let suspended = fill(900)
        .run()
        .code(75)
        .stderr_contains(&["storage"])
        .json();
    assert_eq!(suspended["status"], "suspended");
    assert_eq!(suspended["suspend"]["reason"], "storage");
    assert_eq!(disk.storage(), "full");
    let _refused = fill(1)
        .run()
        .code(5)
        .prints(&["\"reason\":\"exhausted\""])
        .stderr_contains(&["disk", "full"]);
    let record = |run: &Value| disk.ryectl("get --json").arg(id(run)).ok().json();
    assert_eq!(record(&before), before, "what is there can be read");

    fs::remove_file(disk.ballast()).unwrap();
    let ended = until("the run to resume by itself and to end", || {
        let now = record(&suspended);
        (!matches!(now["status"].as_str(), Some("running" | "suspended"))).then_some(now)
    });
    assert_eq!(
        ended["error"]["code"], "max_steps_exceeded",
        "{}",
        ended["error"]
    );
    assert_eq!(ended["steps"], 900);
    let steps = disk.ryectl("steps --json").arg(id(&suspended)).ok().json();
    assert!(
        steps
            .as_array()
            .unwrap()
            .iter()
            .zip(1..)
            .all(|(step, number)| step["step"] == number)
    );
    assert_eq!(steps.as_array().map(Vec::len), Some(900));
    assert_eq!(disk.storage(), "ok");
    assert_eq!(record(&before), before);
    let _runs = fill(1).run().code(1);
}

#[test]
fn a_daemon_starts_on_a_full_disk_and_has_what_was_there() {
    let Some(mut disk) = SmallDisk::new() else {
        return;
    };
    let waits = "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"touch in; until [ -e go ]; do sleep 0.01; done\"}}, next: b}\n  b: {type: return, output: 7}";
    disk.world.graph("t/waits", waits);
    let run = disk.ryectl("run --detach t/waits").ok().line();
    until("the step to run", || {
        disk.world.project().join("in").exists().then_some(())
    });
    let before = disk.ryectl("daemon info --json").ok().json();
    // The record has another boot id, as after a reboot, so it must be written again. There is no space for it.
    let record = disk.inside("node.json");
    let text = fs::read(&record).unwrap();
    let mut described: Value = serde_json::from_slice(&text).unwrap();
    described["boot_id"] = "00000000-0000-4000-8000-000000000000".into();
    fs::write(&record, described.to_string()).unwrap();
    disk.fill();
    disk.start_again();
    let info = disk.ryectl("daemon info --json").ok().json();
    assert_eq!(info["node_fingerprint"], before["node_fingerprint"]);
    let there = disk.ryectl("get --json").arg(&run).ok().json();
    assert_eq!(there["run_id"], run.as_str());

    disk.world.write("go", "");
    fs::remove_file(disk.ballast()).unwrap();
    let ended = until("the run to end", || {
        let now = disk.ryectl("get --json").arg(&run).ok().json();
        (!matches!(now["status"].as_str(), Some("running" | "suspended"))).then_some(now)
    });
    assert_eq!(ended["output"], 7, "{ended}");
}

/// Scripts an answer that is longer than the space that the log reserves for work in flight.
fn long_answer_script() -> String {
    let text = "word ".repeat(80 << 10);
    format!(
        "- when: {{turn: 1}}\n  reply: {{content: [{{text: Begun.}}, {{hold: middle}}, {{text: {text:?}}}], usage: {{input: 1000, output: 100}}}}\n"
    )
}

#[test]
fn model_answer_on_full_disk_is_kept_and_charged_once() {
    let server = ModelServer::start(&long_answer_script());
    let Some(disk) = SmallDisk::with_models(&server) else {
        return;
    };
    let world = &disk.world;
    world.directive(
        "t/speak",
        "<model tier=\"general\"/>",
        "",
        "Speak at length.",
    );
    world.graph("t/fill", FILL);
    world.write("in.json", json!({"text": "y".repeat(20 << 10)}).to_string());
    let run = disk.ryectl("run --detach directive:t/speak").ok().line();
    server.wait_held("middle");
    disk.fill();
    let _full = disk
        .ryectl("run t/fill --quiet --json --input @in.json --limit steps=900")
        .run()
        .code(75);
    server.release("middle");
    let out = disk.ryectl("wait --timeout 60 --json").arg(&run).run();
    let suspended = out.code(75).json();
    assert_eq!(suspended[0]["suspend"]["reason"], "storage", "{suspended}");

    fs::remove_file(disk.ballast()).unwrap();
    let ended = until("the thread to resume by itself and to end", || {
        let now = disk.ryectl("get --json").arg(&run).ok().json();
        (!matches!(now["status"].as_str(), Some("running" | "suspended"))).then_some(now)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(server.requests().len(), 1, "the model is not asked again");
    let shown = disk.ryectl("budget show --json").arg(&run).ok().json();
    let account = &shown["path"][0];
    assert_eq!(account["held"], "0.000000000", "{account}");
    assert_ne!(account["actual"], "0.000000000", "{account}");
}
