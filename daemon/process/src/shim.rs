//! Shims: processes that keep a managed process while the daemon is away.
//!
//! **Owns** the record `shim.json` of each shim, its lock, its start and its forced end. What a shim does is the matter
//! of the program that it executes. **Never** speaks to a shim.
//!
//! A shim has a directory for the process it keeps. It holds the lock there from before its first instruction until its
//! end, so the lock tells whether one is alive, whatever became of its pid. Its record names the attempt, and is written
//! before the process is started. A shim has a session of its own, adopts the orphans of its process, and is not bound
//! to the daemon. **Races.** The lock is taken by the daemon and inherited: there is no moment at which a shim runs
//! without it. The parent of a daemon spares a process that a record names, by pid, start time and boot; a shim that has
//! not written its record yet is ended as any other process, before it has started anything.
#![expect(unsafe_code, reason = "steps between fork and exec")]

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setsid};
use rye_core::model::{KillReceipt, ProcessIdentity};
use rye_host::safe_path::{Dir, Draft};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::cgroup::{self, AttemptCgroups};
use super::ending::number;
use super::image;
use super::members::Members;
use super::pidfd::ProcessHandle;
use super::procfs::{self, Stat};
use super::sweep::{self, Leftover};

/// Version of the record, of the messages, and of the other files of a shim.
pub const PROTOCOL: u32 = 1;
/// Directory of all managed processes, in the state directory.
pub const DIRECTORY: &str = "procs";
const RECORD: &str = "shim.json";
const LOCK: &str = "lock";
/// Time limit for the end of a killed shim.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at a directory.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a shim says about itself. Fields that a reader does not know are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    pub v: u32,
    /// The attempt that it keeps, and its tag.
    pub attempt: u32,
    pub tag: String,
    pub pid: i32,
    pub start_time: u64,
    pub boot_id: String,
    /// Cgroup of the shim and its process, on a host with cgroups for attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Its process, once that is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ProcessIdentity>,
}

impl ShimRecord {
    /// Returns the record of this process, which keeps the attempt `attempt` with the tag `tag`.
    pub fn of_this_process(attempt: u32, tag: String, cgroup: Option<PathBuf>) -> Self {
        let pid = nix::unistd::getpid().as_raw();
        Self {
            v: PROTOCOL,
            attempt,
            tag,
            pid,
            start_time: procfs::start_time(pid).unwrap_or_default(),
            boot_id: procfs::boot_id(),
            cgroup,
            child: None,
        }
    }

    /// Returns the processes of its attempt; `None` before it has started its own.
    pub fn members(&self) -> Option<Members> {
        let child = self.child.as_ref()?;
        let cgroup = self.cgroup.as_ref();
        let cgroup = cgroup.map(|kept| kept.join(cgroup::cgroup_name(&self.tag)));
        let adopter = Some(self.pid);
        Some(Members::new(child.pid, adopter, self.tag.clone(), cgroup))
    }

    /// Reads the record in `directory`; `None` if there is none.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(directory.join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Writes the record durably.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        replace(directory, RECORD, &serde_json::to_vec(self)?)
    }

    /// Removes the record in `directory`: no process was started.
    pub fn remove(directory: &Path) -> io::Result<()> {
        fs::remove_file(directory.join(RECORD))
    }

    /// The shim, if it is alive.
    fn process(&self) -> Option<Stat> {
        let stat = Stat::read(self.pid).filter(Stat::is_alive)?;
        (stat.start_time == self.start_time && self.boot_id == procfs::boot_id()).then_some(stat)
    }
}

/// Replaces the file `name` in `directory` durably.
pub fn replace(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let mut draft = Draft::with_mode(Dir::follow(directory)?, format!("{name}.tmp"), 0o600)?;
    draft.file.write_all(content)?;
    draft.commit(name)
}

/// The lock of a directory: held by a shim, or by a daemon that is about to start or end one.
#[derive(Debug)]
pub struct ShimLock(File);

impl ShimLock {
    /// Takes the lock of `directory`, which is made if it is missing; `None` if a shim is alive there.
    pub fn take(directory: &Path) -> io::Result<Option<Self>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Works like [`ShimLock::take`], but does not make the directory: one without a lock file has no shim.
    pub fn is_held(directory: &Path) -> io::Result<bool> {
        if !directory.join(LOCK).exists() {
            return Ok(false);
        }
        Ok(Self::take(directory)?.is_none())
    }
}

/// Takes over a descriptor that a shim has inherited, and keeps it from its children.
pub fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller of this program has opened it for this use; nothing else here knows its number.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(descriptor)
}

/// Executes this program as a shim, with the arguments `shim PLAN READY LOCK`: descriptors of sealed memory with `plan`,
/// of `ready`, and of `lock`. With `cgroups` it is in the cgroup of the process `handle`, of which `plan` receives
/// the path.
///
/// Its standard streams are closed, and it inherits no variable. Blocks.
pub fn start(
    handle: &str,
    lock: ShimLock,
    ready: OwnedFd,
    cgroups: Option<&AttemptCgroups>,
    plan: impl FnOnce(Option<PathBuf>) -> Vec<u8>,
) -> io::Result<Child> {
    let kept = cgroups.map(|cgroups| cgroups.keep(handle)).transpose()?;
    let (kept, own) = kept.unzip();
    let join = |cgroup: PathBuf| {
        File::options()
            .write(true)
            .open(cgroup.join("cgroup.procs"))
    };
    let join = own.map(join).transpose()?;
    let plan = image::sealed(&plan(kept))?;
    let handed = [plan.as_raw_fd(), ready.as_raw_fd(), lock.0.as_raw_fd()];
    #[expect(
        clippy::disallowed_methods,
        reason = "the process module starts processes"
    )]
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("ryed")
        .arg("shim")
        .args(handed.iter().map(ToString::to_string))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: the closure makes a few system calls and allocates nothing. It keeps the descriptors open.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if let Some(join) = &join {
                nix::unistd::write(join, b"0")?;
            }
            for open in [plan.as_fd(), ready.as_fd(), lock.0.as_fd()] {
                fcntl(open, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        })
    };
    command.spawn()
}

/// The living shims of the state directory `state`, by pid and start time. A record that cannot be read names none.
pub(super) fn living(state: &Path) -> Vec<(i32, u64)> {
    let directories = fs::read_dir(state.join(DIRECTORY)).into_iter().flatten();
    let records = directories
        .filter_map(|entry| ShimRecord::read(&entry.ok()?.path()).ok().flatten())
        .filter_map(|record| record.process());
    records.map(|stat| (stat.pid, stat.start_time)).collect()
}

/// Reads the record in `directory`. Waits for that of a shim which has just been started.
fn awaited_record(directory: &Path) -> io::Result<Option<ShimRecord>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // In this order: a shim that has ended writes no record any more.
        let is_alive = ShimLock::is_held(directory)?;
        let record = ShimRecord::read(directory)?;
        if record.is_some() || !is_alive || Instant::now() >= deadline {
            return Ok(record);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Kills the shim of the process `handle` of the state directory `state`, if one is alive, and all that is left of its
/// process. Blocks.
pub fn end(state: &Path, handle: &str) -> io::Result<KillReceipt> {
    let directory = state.join(DIRECTORY).join(handle);
    let Some(record) = awaited_record(&directory)? else {
        return Ok(KillReceipt::default());
    };
    let shim = record.process().and_then(ProcessHandle::take);
    if let Some(shim) = shim {
        shim.signal(Signal::SIGKILL);
        if !shim.has_ended_by(Instant::now() + PATIENCE) {
            tracing::error!(pid = record.pid, "a shim does not end");
        }
    }
    let mut receipt = record
        .cgroup
        .as_deref()
        .map(|kept| cgroup::end_kept(state, handle, kept))
        .unwrap_or_default();
    receipt.merge(sweep::end_leftovers(&[Leftover {
        leader: record.child,
        tag: record.tag,
    }]));
    receipt
        .processes
        .retain(|process| process.pid != record.pid);
    Ok(receipt)
}

/// Signals of a shim: it reaps the orphans that it has adopted, and a TERM is a request to stop.
#[derive(Debug)]
pub struct ShimSignals(AsyncFd<SignalFd>);

impl ShimSignals {
    /// Blocks the signals, and makes this process adopt orphans. Must be called in a runtime, on the first thread and
    /// before there is another one.
    pub fn listen() -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        let mut mask = SigSet::empty();
        for signal in [
            Signal::SIGCHLD,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
        ] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags)?;
        // SAFETY: the signals own their descriptor, and are never taken out.
        let signals = unsafe { AsyncFd::register(signals) };
        Ok(Self(signals?))
    }

    /// Reaps all children but `leader` as they end. Resolves at a request to stop.
    pub async fn stop_requested(&self, leader: i32) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            while let Some(info) = self.0.get_ref().read_signal()? {
                if i32::try_from(info.ssi_signo) != Ok(number(Signal::SIGCHLD)) {
                    return Ok(());
                }
            }
            ready.clear_ready();
            let own = nix::unistd::getpid().as_raw();
            let children = procfs::children_of_single_thread(own).into_iter();
            for child in children.filter(|child| *child != leader) {
                // One that is alive stays.
                let _alive_or_reaped = waitpid(Pid::from_raw(child), Some(WaitPidFlag::WNOHANG));
            }
        }
    }
}

#[cfg(test)]
mod tests;
