//! Copies of a state directory: refused while the original may be in use, and a separate node after adoption.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rye_tests::{Daemon, Ryectl, World, until};
use serde_json::Value;

use crate::daemon::{STUBBORN, ryed};

/// Copies everything below `from`, as `cp -r` would.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A copy of the state directory of a world whose daemon has completed one run and has another one at a step.
struct Copied {
    world: World,
    first: Daemon,
    state: PathBuf,
    done: String,
    run: String,
}

impl Copied {
    fn new() -> Self {
        let world = World::new();
        world.graph("t/stubborn", STUBBORN);
        world.graph("t/quick", "start: a\nnodes:\n  a: {type: return}");
        let first = world.start("");
        let done = world.ryectl("run --detach t/quick").ok().line();
        assert_eq!(world.settled(&done)["status"], "completed");
        let run = world.start_run("t/stubborn");
        until("the step to run", || {
            world.project().join("in").exists().then_some(())
        });
        let state = world.root().join("copy");
        copy(&world.state(), &state);
        Self {
            world,
            first,
            state,
            done,
            run,
        }
    }

    /// Starts a daemon on the copy, which ends at `fail_point`.
    fn start(&self, adopt: bool, fail_point: Option<&str>) -> Child {
        let mut command = ryed(&self.world);
        command.arg("--state-dir").arg(&self.state);
        command.args(adopt.then_some("--adopt-copy"));
        command.envs(fail_point.map(|point| ("RYE_FAIL_POINT", point)));
        command.env("RYE_RESTARTS", "0");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn refuses(&self) {
        let out = self.start(false, None).wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(5), "{told}");
        assert!(told.contains("--adopt-copy"), "{told}");
        let autostart = self.world.ryectl("ps").env("RYE_SOCKET", "");
        let _refused = autostart
            .arg("--state-dir")
            .arg(&self.state)
            .run()
            .code(69)
            .stderr_contains(&[
                "it refused to start; it said: the state directory",
                "is a copy",
            ]);
    }

    fn ask(&self, words: &str) -> Ryectl {
        let command = self.world.ryectl(words).arg("--no-autostart");
        command.arg("--socket").arg(self.state.join("ryed.sock"))
    }

    fn holds_still(&self, adopted: Child) -> Value {
        self.holds_still_while(adopted, || {})
    }

    /// Asserts that the daemon of the copy suspends the runs it found, and that the process of the original stays
    /// untouched during `more`. The daemon is then stopped.
    fn holds_still_while(&self, mut adopted: Child, more: impl FnOnce()) -> Value {
        let suspended = until("the copy of the run to be suspended", || {
            let out = self.ask("get --json").arg(&self.run).run();
            let got: Value = serde_json::from_str(&out.stdout()).ok()?;
            (got["status"] == "suspended").then_some(got)
        });
        assert_eq!(suspended["suspend"]["reason"], "restart", "{suspended}");
        let info = self.ask("daemon info --json").ok().json();
        more();
        let _stopped = self.ask("daemon stop").ok();
        let _status = adopted.wait().unwrap();
        let record = self.world.record(&self.run);
        assert_eq!(record["status"], "running", "its process was ended");
        assert!(
            !self.world.project().join("asked").exists(),
            "its process was signalled"
        );
        info
    }

    /// Returns the transcripts of the completed run and the files next to them.
    fn transcripts(&self) -> Vec<(String, String)> {
        let folder = format!(".ai/state/threads/{}", self.done);
        let entries = std::fs::read_dir(self.world.project().join(&folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut texts: Vec<_> = names
            .filter(|name| name.starts_with("transcript"))
            .map(|name| {
                let text = self.world.read(&format!("{folder}/{name}"));
                (name, text)
            })
            .collect();
        texts.sort();
        texts
    }

    fn key_in(&self, folder: &str) -> String {
        let path = self.state.join(folder).join("public_key.pem");
        let text = std::fs::read_to_string(path).unwrap();
        let key = rye_core::seal::PublicKey::from_pem(&text).unwrap();
        key.fingerprint().to_string()
    }
}

#[test]
fn copied_state_is_refused_while_in_use_and_adopted_as_new_node() {
    let copied = Copied::new();
    let world = &copied.world;
    copied.refuses();
    let before = world.info()["node_fingerprint"].clone();
    let transcripts = until("the transcript to be whole", || {
        let texts = copied.transcripts();
        let whole = texts.iter().any(|(_, text)| text.contains("completed"));
        whole.then_some(texts)
    });

    // After its second start the copy is a directory of its own, and knows the process only by its name.
    let mut identities = Vec::new();
    for adopt in [true, false] {
        let daemon = copied.start(adopt, None);
        identities.push(copied.holds_still(daemon)["node_fingerprint"].clone());
    }
    let [one, other] = &identities[..] else {
        unreachable!("there were two lives")
    };
    assert_eq!(one, other, "it is adopted once");
    assert_ne!(*one, before, "another node has another key");
    assert_eq!(copied.key_in("keys"), *one);
    let former = format!("former-keys/{}", before.as_str().unwrap());
    assert_eq!(copied.key_in(&former), before);

    // Signatures of the original verify. The files that both nodes know are unchanged.
    let third = copied.start(false, None);
    let _info = copied.holds_still_while(third, || {
        let checked = copied.ask("transcript --verify").arg(&copied.done);
        let _intact = checked.ok();
        let own = copied.ask("run --detach t/quick").ok().line();
        let _intact = until("a run of the copy to end", || {
            let checked = copied.ask("transcript --verify").arg(&own).run();
            (checked.exit() == "0").then_some(checked)
        });
    });
    assert_eq!(copied.transcripts(), transcripts);
    let checked = world.ryectl("transcript --verify").arg(&copied.done);
    let _intact = checked.ok();
    world.write("go", "");
    assert_eq!(world.settled(&copied.run)["status"], "completed");
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = copied.first.ended();
}

#[test]
fn interrupted_adoption_leaves_refused_or_suspended_copy() {
    // Before the record is written, the copy is unchanged. After it, the copy is adopted with or without the option.
    for (fail_point, adopted) in [
        ("at:adopting", false),
        ("at:adopting:2", false),
        ("at:adopting:3", true),
        ("at:adopting:4", true),
        ("before:run_suspended", true),
    ] {
        let copied = Copied::new();
        let before = copied.world.info()["node_fingerprint"].clone();
        let died = copied.start(true, Some(fail_point));
        let died = died.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&died.stderr);
        assert_eq!(died.status.signal(), Some(9), "{fail_point}: {told}");
        if !adopted {
            copied.refuses();
        }
        let daemon = copied.start(!adopted, None);
        let info = copied.holds_still(daemon);
        assert_ne!(info["node_fingerprint"], before, "{fail_point}");
        assert_eq!(copied.key_in("keys"), info["node_fingerprint"]);
        assert!(!copied.state.join("keys.next").exists(), "{fail_point}");
        copied.world.write("go", "");
        let record = copied.world.settled(&copied.run);
        assert_eq!(record["status"], "completed", "{fail_point}");
    }
}
