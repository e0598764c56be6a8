//! A disk that is full: nothing new is taken on, nothing is lost, and it continues when there is space again.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use rye_tests::command::in_clean_environment;
use rye_tests::model_server::ModelServer;
use rye_tests::{Ryectl, World, binaries, processes, skipped, until};
use serde_json::{Value, json};

/// Room for the segments that the log prepares, and for some more once the ballast is gone.
const SIZE: &str = "size=160m";

/// A daemon whose state directory is a small file system that only it can see.
struct SmallDisk {
    world: World,
    daemon: Child,
}

impl SmallDisk {
    /// `None` where this user may not mount.
    fn new() -> Option<Self> {
        Self::with(World::new(), Vec::new())
    }

    /// As [`SmallDisk::new`], with a daemon that calls `server` when it calls a model.
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
        let mut daemon = match daemon {
            Ok(daemon) => daemon,
            Err(error) => {
                skipped(&format!("`unshare` does not start here: {error}"));
                return None;
            }
        };
        let serves = until("the daemon to serve or to end", || {
            let socket = world.root().join("ryed.sock");
            let ended = daemon.try_wait().unwrap().is_some();
            (ended || std::os::unix::net::UnixStream::connect(socket).is_ok()).then_some(!ended)
        });
        if !serves {
            skipped("a small file system cannot be mounted here");
            return None;
        }
        Some(Self { world, daemon })
    }

    fn ryectl(&self, words: &str) -> Ryectl {
        self.world
            .ryectl(words)
            .arg("--no-autostart")
            .arg("--socket")
            .arg(self.world.root().join("ryed.sock"))
    }

    fn storage(&self) -> String {
        let info = self.ryectl("daemon info --json").ok().json();
        info["storage"].as_str().unwrap().to_owned()
    }

    /// A file on the small file system, as seen from outside.
    fn ballast(&self) -> PathBuf {
        let state = self.world.state();
        let inside = state.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.daemon.id()))
            .join(inside)
            .join("ballast")
    }

    /// Writes until nothing more goes in.
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

/// Puts the input into the state, over and over, until the step limit of the run is reached.
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

    // 20 KiB twice in each step, as result and as state: what is prepared of the log is used up on the way.
    let suspended = fill(900).run().code(75).tells(&["storage"]).json();
    assert_eq!(suspended["status"], "suspended");
    assert_eq!(suspended["suspend"]["reason"], "storage");
    assert_eq!(disk.storage(), "full");
    let _refused = fill(1)
        .run()
        .code(5)
        .prints(&["\"reason\":\"exhausted\""])
        .tells(&["disk", "full"]);
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

/// Says more than the log keeps for the end of what is in flight.
fn speaks_at_length() -> String {
    let text = "word ".repeat(80 << 10);
    format!(
        "- when: {{turn: 1}}\n  reply: {{content: [{{text: Begun.}}, {{hold: middle}}, {{text: {text:?}}}], usage: {{input: 1000, output: 100}}}}\n"
    )
}

#[test]
fn what_a_model_says_while_the_disk_is_full_is_kept_and_paid_for_once() {
    let server = ModelServer::start(&speaks_at_length());
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
