//! A disk that is full: nothing new is taken on, nothing is lost, and it goes on when there is room again.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use rye_tests::command::in_clean_environment;
use rye_tests::{Ryectl, World, binaries, processes, until};

/// Room for the segments that the log prepares, and not for much more.
const SIZE: &str = "size=64m";

/// A daemon whose state directory is a small file system that only it can see.
struct SmallDisk {
    world: World,
    daemon: Child,
}

impl SmallDisk {
    /// `None` where this user may not mount.
    fn new() -> Option<Self> {
        let world = World::new();
        fs::create_dir_all(world.state()).unwrap();
        let script = r#"mount -t tmpfs -o "$1,mode=700" tmpfs "$2" && exec "$3" --state-dir "$2" --socket "$4""#;
        let mut daemon = in_clean_environment("unshare", &world.home(), world.root())
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
            .stdin(Stdio::null())
            .stderr(fs::File::create(world.root().join("ryed.log")).unwrap())
            .spawn()
            .ok()?;
        let serves = until("the daemon to serve or to end", || {
            let socket = world.root().join("ryed.sock");
            let ended = daemon.try_wait().unwrap().is_some();
            (ended || std::os::unix::net::UnixStream::connect(socket).is_ok()).then_some(!ended)
        });
        if !serves {
            println!("skipped: a small file system cannot be mounted here");
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
        processes::send(i32::try_from(self.daemon.id()).unwrap(), Signal::SIGTERM);
        self.daemon.wait().unwrap();
    }
}

#[test]
fn a_full_disk_refuses_new_runs_loses_nothing_and_recovers() {
    let Some(disk) = SmallDisk::new() else { return };
    let world = &disk.world;
    world.graph("t/echo", "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {text: \"${inputs.text}\"}}, assign: {got: \"${result.text}\"}, next: done}\n  done: {type: return}");
    let first = disk.ryectl("run t/echo --json -i text=x").ok().json();
    let id = first["run_id"].as_str().unwrap();
    disk.fill();
    world.write(
        "in.json",
        serde_json::json!({"text": "y".repeat(256 << 10)}).to_string(),
    );
    let refused = until("a start to be refused", || {
        let out = disk
            .ryectl("run t/echo --quiet --json --input @in.json")
            .run();
        (out.json_or_null()["status"] != "completed").then_some(out)
    });
    let told = refused.stderr();
    assert!(
        ["disk", "storage", "space"]
            .iter()
            .any(|word| told.contains(word)),
        "{refused:?}"
    );
    assert_eq!(
        disk.ryectl("get --json").arg(id).ok().json(),
        first,
        "what is there can be read"
    );
    assert_ne!(disk.storage(), "ok");

    fs::remove_file(disk.ballast()).unwrap();
    until("new runs to be taken on again", || {
        (disk.storage() == "ok").then_some(())
    });
    let _ran = disk.ryectl("run t/echo --quiet --input @in.json").ok();
    assert_eq!(disk.ryectl("get --json").arg(id).ok().json(), first);
}
