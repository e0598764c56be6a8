//! An ordinary user, who has no rights here.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::in_clean_environment;
use crate::{Ryectl, World, binaries};

/// The user, and the group.
const NOBODY: u32 = 65534;

/// Number of the next [`Subtree`].
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A cgroup that belongs to `NOBODY`.
#[derive(Debug)]
pub struct Subtree(PathBuf);

impl Subtree {
    /// Makes it. `None` if this host takes no cgroups.
    pub fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let mount = mounts.find_map(|mut fields| {
            let point = fields.nth(1)?;
            (fields.next()? == "cgroup2").then(|| point.to_owned())
        })?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rye-test-{}-{number}", std::process::id());
        let path = Path::new(&mount).join(name);
        fs::create_dir(&path).ok()?;
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            chown(path.join(file), Some(NOBODY), Some(NOBODY)).expect("root may give it away");
        }
        Some(Self(path))
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        // It stays if a process is left, which the test has reported.
        drop(fs::remove_dir(&self.0));
    }
}

/// `NOBODY`, with a world of its own.
#[derive(Debug)]
pub struct User<'w> {
    world: &'w World,
}

impl<'w> User<'w> {
    /// Copies the programs to a place where the user may execute them.
    pub fn of(world: &'w World) -> Self {
        for program in [binaries::ryectl(), binaries::ryed()] {
            let copy = world
                .root()
                .join(program.file_name().expect("a program has a name"));
            binaries::copy(&program, &copy);
        }
        give(world.root());
        Self { world }
    }

    /// Makes a call of `ryectl` in the project, as [`World::ryectl`] does.
    pub fn ryectl(&self, words: &str) -> Ryectl {
        let world = self.world;
        let program = world.root().join("ryectl");
        Ryectl::at(&program, &world.home(), &world.project())
            .env("RYE_STATE_DIR", world.state())
            .as_user(NOBODY)
            .words(words)
    }

    /// Runs a script in the project, in `cgroup`. Returns its output.
    pub fn run(&self, cgroup: Option<&Subtree>, script: &str) -> String {
        let world = self.world;
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", world.root().display());
        let script = format!("read -r go; {script}");
        let mut shell = in_clean_environment("/bin/bash", &world.home(), &world.project());
        let mut shell = shell
            .args(["-c", &script])
            .env("PATH", path)
            .env("RYE_STATE_DIR", world.state())
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash starts");
        if let Some(Subtree(path)) = cgroup {
            fs::write(path.join("cgroup.procs"), shell.id().to_string())
                .expect("root may move a process");
        }
        let mut stdin = shell.stdin.take().expect("it was piped");
        stdin.write_all(b"go\n").expect("the shell reads");
        drop(stdin);
        let output = shell.wait_with_output().expect("its output can be read");
        assert!(output.status.success(), "{script}: {}", output.status);
        String::from_utf8(output.stdout).expect("the output is text")
    }
}

/// Gives a directory and all in it to [`NOBODY`].
fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("the world is ours");
    if path.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("the world is ours");
        for entry in fs::read_dir(path).expect("the world is ours") {
            give(&entry.expect("the world is ours").path());
        }
    }
}
