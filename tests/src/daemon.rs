//! A daemon that a test starts by hand.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{in_clean_environment, signal_number};
use crate::until::until;
use crate::{World, binaries, processes};

/// The two processes of one start of `ryed`.
#[derive(Debug)]
pub struct Daemon {
    parent: Child,
    pid: i32,
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(world: &World, config: &str) -> Self {
        Self::start_until(world, config, None)
    }

    pub(crate) fn start_until(world: &World, config: &str, fail_point: Option<&str>) -> Self {
        let mut parent = Self::spawn_until(world, config, fail_point);
        let info = until("the daemon to serve", || {
            assert!(
                parent.try_wait().is_ok_and(|status| status.is_none()),
                "ryed ended instead of serving: {}",
                world.log()
            );
            let out = world.ryectl("daemon info --json --no-autostart").run();
            let told = serde_json::from_str::<Value>(&out.stdout()).ok();
            // Before the daemon serves, the output is an error.
            told.filter(|told| told["pid"].is_i64())
        });
        let pid = info["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        Self {
            parent,
            pid: pid.expect("a daemon tells its pid"),
            socket: world.socket(),
        }
    }

    /// Starts `ryed` without waiting for it. Its log is written to the file that `ryectl` would use.
    pub fn spawn(world: &World, config: &str) -> Child {
        Self::spawn_until(world, config, None)
    }

    pub(crate) fn live_until(world: &World, config: &str, fail_point: &str) {
        let mut parent = Self::spawn_until(world, config, Some(fail_point));
        let status = until("the parent to die with its daemon", || {
            parent.try_wait().expect("it is our child")
        });
        assert_eq!(
            status.signal(),
            Some(signal_number(Signal::SIGKILL)),
            "ryed ended by itself: {}",
            world.log()
        );
        wait_until_unserved(&world.socket());
    }

    /// Starts `ryed` as [`Daemon::spawn`] does, with a fail point.
    pub fn spawn_until(world: &World, config: &str, fail_point: Option<&str>) -> Child {
        fs::create_dir_all(world.state()).expect("the world is ours");
        let file = world.root().join("ryed.yaml");
        fs::write(&file, config).expect("the world is ours");
        let log = File::options()
            .create(true)
            .append(true)
            .open(world.state().join("ryed.log"))
            .expect("the world is ours");
        let ryed = binaries::ryed().into_os_string();
        let mut words = world.limits().into_iter().map(OsString::from).chain([ryed]);
        let program = words.next().expect("there is a program");
        in_clean_environment(program, &world.home(), world.root())
            .args(words)
            .envs(world.settings())
            .envs(world.faults())
            .envs(fail_point.map(|point| ("RYE_FAIL_POINT", point)))
            .arg("--state-dir")
            .arg(world.state())
            .arg("--config")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ryed starts")
    }

    /// Returns the pid of the process that serves.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the pid of the supervising parent.
    pub fn parent_pid(&self) -> i32 {
        i32::try_from(self.parent.id()).expect("a pid fits")
    }

    /// Sends `signal` to the parent, as a service manager would.
    pub fn signal(&self, signal: Signal) {
        processes::send(self.parent_pid(), signal);
    }

    pub fn kill(&self) {
        processes::send(self.pid, Signal::SIGKILL);
    }

    pub fn kill_both(&self) {
        // A dead parent would ask the daemon to stop, and one that runs would end what the daemon left.
        processes::send(self.parent_pid(), Signal::SIGSTOP);
        processes::send(self.pid, Signal::SIGKILL);
        processes::send(self.parent_pid(), Signal::SIGKILL);
    }

    /// Waits for the end of both processes. Returns the exit status of the parent.
    pub fn ended(mut self) -> ExitStatus {
        wait_until_unserved(&self.socket);
        until("its parent to end", || {
            self.parent.try_wait().expect("it is our child")
        })
    }
}

/// Waits until no process listens: a killed process is a zombie before its last thread has closed its files.
fn wait_until_unserved(socket: &Path) {
    until("the daemon to let go of its socket", || {
        UnixStream::connect(socket).is_err().then_some(())
    });
}
