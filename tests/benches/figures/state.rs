//! Rates of runs while `.ai/state` of their project is deleted, read-only or hangs.
//!
//! For read-only and hanging state, the directory is a file system of its own, so that open files are affected as well.
//! It is an ext4 image in a loop device, mounted in a mount namespace of this process, and goes away with the process.
//! `fsfreeze` makes it hang: reads return, and writes do not. The shell that froze it thaws it when this process ends
//! in any way; otherwise threads of the daemon could not be killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rye_client::Client;
use rye_proto::v1;
use rye_tests::World;
use rye_tests::command::program;

use crate::{Figure, figure};

/// Time of the undisturbed measurement, and of the one after it.
const BEFORE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(20);
/// Time for which the runs are active before the measurement.
const WARM: Duration = Duration::from_secs(2);
/// Length of the image in bytes; the file is sparse.
const IMAGE_BYTES: u64 = 16 << 30;

/// Ways in which the state of a project becomes unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Deleted,
    ReadOnly,
    Hung,
}

/// The runs whose rate is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    item: &'static str,
    runs: u32,
}

const NATIVE: Load = Load {
    item: "bench/echo",
    runs: 8,
};
/// Each step prints a line, which goes to a file of the project.
const BASH: Load = Load {
    item: "bench/prints",
    runs: 2,
};

/// One figure: the ratio of the rate with unusable state to the rate before.
#[derive(Debug)]
pub(crate) struct Trial {
    harm: Harm,
    load: Load,
    disk: Option<StateDisk>,
    /// The process that removes the files.
    remover: Option<Child>,
}

impl Trial {
    /// Returns the parameters of the figure `name`, or `None` if that is another figure.
    fn named(name: &str) -> Option<(Harm, Load)> {
        Some(match name {
            "state_deleted_native" => (Harm::Deleted, NATIVE),
            "state_deleted_bash" => (Harm::Deleted, BASH),
            "state_read_only_native" => (Harm::ReadOnly, NATIVE),
            "state_read_only_bash" => (Harm::ReadOnly, BASH),
            "state_hung_native" => (Harm::Hung, NATIVE),
            "state_hung_bash" => (Harm::Hung, BASH),
            _ => return None,
        })
    }

    /// True if the figure `name` needs [`enter_mount_namespace`].
    pub(crate) fn needs_mount(name: &str) -> bool {
        Self::named(name).is_some_and(|(harm, _)| harm != Harm::Deleted)
    }

    /// Prepares the project of `world` for the figure `name`, before its daemon starts. Returns `None` for another
    /// figure.
    pub(crate) fn prepare(name: &str, world: &World) -> Option<Self> {
        let (harm, load) = Self::named(name)?;
        let disk = Self::needs_mount(name).then(|| StateDisk::mount(world));
        Some(Self {
            harm,
            load,
            disk,
            remover: None,
        })
    }

    fn begin(&mut self, world: &World) {
        match (self.harm, &mut self.disk) {
            (Harm::Deleted, _) => self.remover = Some(delete(world)),
            (Harm::ReadOnly, Some(disk)) => disk.make_read_only(),
            (Harm::Hung, Some(disk)) => disk.freeze(),
            (Harm::ReadOnly | Harm::Hung, None) => unreachable!("these have a disk"),
        }
    }

    /// Lets hanging threads return, and waits until the files are removed.
    pub(crate) fn end(&mut self) {
        if let Some(remover) = &mut self.remover {
            drop(remover.wait());
        }
        if let Some(disk) = &mut self.disk {
            disk.thaw();
        }
    }
}

impl Figure {
    /// Measures the ratio of the rates after and before the state becomes unusable. The runs are live at that time.
    pub(crate) async fn harmed(&self, client: &Client, name: &str, trial: &mut Trial) {
        for _ in 0..trial.load.runs {
            let request = self.request(trial.load.item, Some(1_000_000), "{}");
            let _run = self.start(client, request).await;
        }
        tokio::time::sleep(WARM).await;
        let before = steps_per_second(client, BEFORE).await;
        trial.begin(&self.world);
        let after = steps_per_second(client, AFTER).await;
        println!("{name}: {before:.0} steps/s before, {after:.0} after");
        figure(name, after / before, "ratio");
    }
}

async fn steps_per_second(client: &Client, time: Duration) -> f64 {
    let (began, first) = (Instant::now(), steps_taken(client).await);
    tokio::time::sleep(time).await;
    let last = steps_taken(client).await;
    f64::from(last - first) / began.elapsed().as_secs_f64()
}

/// Returns the number of steps of all runs so far.
async fn steps_taken(client: &Client) -> u32 {
    let listed = client.list(v1::ListRequest::default()).await;
    let runs = listed.expect("runs can be listed").runs;
    runs.iter().map(|run| run.steps).sum()
}

fn state_of(world: &World) -> PathBuf {
    world.project().join(".ai/state")
}

/// Moves the directory away and removes its files at the lowest CPU priority.
fn delete(world: &World) -> Child {
    let removed = world.root().join("removed");
    fs::rename(state_of(world), &removed).expect("the state of the project is there");
    program("nice")
        .args(["-n", "19", "rm", "-rf"])
        .arg(removed)
        .spawn()
        .expect("nice starts")
}

/// Moves this process to a mount namespace of its own. Returns false without permission. It must be called before other
/// threads start.
pub(crate) fn enter_mount_namespace() -> bool {
    unshare(CloneFlags::CLONE_NEWNS).is_ok() && succeeds("mount", &["--make-rprivate", "/"])
}

/// A file system at `.ai/state` of a project.
#[derive(Debug)]
struct StateDisk {
    directory: PathBuf,
    /// The shell that froze the file system. It thaws it at the end of its input.
    frozen: Option<Child>,
}

impl StateDisk {
    fn mount(world: &World) -> Self {
        let (image, directory) = (world.root().join("state.img"), state_of(world));
        let file = File::create(&image).expect("the world is ours");
        file.set_len(IMAGE_BYTES).expect("a file may be sparse");
        fs::create_dir_all(&directory).expect("the world is ours");
        run("mkfs.ext4", &["-q", "-F", text(&image)]);
        let options = ["-o", "loop,errors=remount-ro"];
        run(
            "mount",
            &[options[0], options[1], text(&image), text(&directory)],
        );
        Self {
            directory,
            frozen: None,
        }
    }

    /// Makes the kernel treat the file system as damaged: it becomes read-only even for open files.
    fn make_read_only(&self) {
        let device = program("findmnt")
            .args(["-n", "-o", "SOURCE", text(&self.directory)])
            .output()
            .expect("findmnt starts");
        let device = String::from_utf8_lossy(&device.stdout);
        let name = device.trim().trim_start_matches("/dev/");
        let trigger = format!("/sys/fs/ext4/{name}/trigger_fs_error");
        fs::write(trigger, "figures").expect("ext4 has this file");
    }

    fn freeze(&mut self) {
        let script = r#"trap "" INT TERM HUP; fsfreeze -f "$0" && echo frozen; read -r end; fsfreeze -u "$0""#;
        let mut shell = program("sh")
            .args(["-c", script])
            .arg(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let answer = shell.stdout.as_mut().expect("it was piped");
        let mut line = String::new();
        let read = BufReader::new(answer).read_line(&mut line);
        assert!(read.is_ok() && line == "frozen\n", "fsfreeze failed");
        self.frozen = Some(shell);
    }

    fn thaw(&mut self) {
        if let Some(mut shell) = self.frozen.take() {
            drop(shell.stdin.take());
            drop(shell.wait());
        }
    }
}

impl Drop for StateDisk {
    fn drop(&mut self) {
        self.thaw();
        let _unmounted = succeeds("umount", &["--lazy", text(&self.directory)]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of a world are text")
}

fn run(command: &str, arguments: &[&str]) {
    assert!(
        succeeds(command, arguments),
        "{command} {arguments:?} failed"
    );
}

fn succeeds(command: &str, arguments: &[&str]) -> bool {
    let status = program(command).args(arguments).status();
    status.is_ok_and(|status| status.success())
}
