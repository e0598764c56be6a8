//! The parent process: it outlives the daemon by the moment it takes to clear up.
//!
//! **Owns** the daemon as its only born child, and every orphan below it. **Never** runs a thread, opens the store or
//! reads a key: there is nothing in it that could fail with the daemon.
//!
//! **Order.** While the daemon lives, signals are passed on and adopted zombies reaped. When it dies, its children
//! fall to us; each is killed, which makes its children ours, until there are none. Only then the parent ends, with
//! the daemon's code.
//!
//! The daemon has a process group of its own, so that Ctrl-C at a terminal reaches it once, through us, and a second
//! Ctrl-C is a second signal.
#![expect(unsafe_code, reason = "steps between fork and exec")]

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, killpg, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid, getppid, setpgid};

use super::procfs::{self, Stat};
use super::{Error, Exit, reap};
use crate::config::PARENT_VARIABLE;

/// What is passed on to the daemon.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// How long the parent tries to end what the daemon left. Only a process that hangs in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the parent looks again for orphans if no signal does.
const LOOK_AGAIN_MS: u8 = 10;

/// The command that starts this program again as the daemon, with the same arguments.
pub fn daemon_command() -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the process module starts processes"
    )]
    let mut command = Command::new("/proc/self/exe");
    let mut args = std::env::args_os();
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args);
    command.env(PARENT_VARIABLE, getpid().to_string());
    command
}

/// The parent process of this daemon, if `claimed` (the value of [`PARENT_VARIABLE`]) is it: a variable that
/// was merely inherited names another process.
pub fn of_this_process(claimed: Option<i32>) -> Option<Pid> {
    let parent = getppid();
    (claimed == Some(parent.as_raw())).then_some(parent)
}

/// Starts `daemon`, stays until it is dead and nothing it started is left, and returns how it ended.
///
/// Must be called before any thread is started: it waits for every child there is, and blocks signals.
pub fn run(mut daemon: Command) -> Result<Exit, Error> {
    let failed = |step| move |source| Error::Parent { step, source };
    // A caller whose pid is the parent's counts as none of a run's, so no process of a run may look into it or steer it.
    prctl::set_dumpable(false)
        .map_err(io::Error::from)
        .map_err(failed("keep others from looking into this process"))?;
    let signals = listen().map_err(failed("listen to signals"))?;
    prctl::set_child_subreaper(true)
        .map_err(io::Error::from)
        .map_err(failed("become the one who adopts orphans"))?;
    let parent = getpid();
    // SAFETY: `bind` makes a few system calls and allocates nothing.
    unsafe { daemon.pre_exec(move || bind(parent)) };
    let child = daemon.spawn().map_err(failed("start the daemon"))?;
    let child = i32::try_from(child.id())
        .map_err(io::Error::other)
        .map_err(failed("start the daemon"))?;
    let exit = watch(&signals, child).map_err(failed("watch the daemon"))?;
    end_orphans(&signals).map_err(failed("end what the daemon left"))?;
    Ok(exit)
}

/// From now on signals wait until they are read.
fn listen() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for passed_on in PASSED_ON {
        mask.add(passed_on);
    }
    mask.add(Signal::SIGCHLD);
    // SAFETY: the default action runs no code of ours. An ignored SIGCHLD would reap children behind our back.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    mask.thread_block()?;
    Ok(SignalFd::with_flags(
        &mask,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// In the daemon, before it executes: a group of its own, TERM when the parent dies, no signal blocked.
fn bind(parent: Pid) -> io::Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Passes signals on and reaps, until the daemon ends.
fn watch(signals: &SignalFd, daemon: i32) -> io::Result<Exit> {
    loop {
        while let Some(info) = signals.read_signal()? {
            let received = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
            let received = Signal::try_from(received)?;
            if received != Signal::SIGCHLD {
                // It is not reaped: the pid is its own.
                kill(Pid::from_raw(daemon), received)?;
            }
        }
        while let Some((pid, exit)) = reap::any()? {
            if pid == daemon {
                return Ok(exit);
            }
        }
        wait(signals, PollTimeout::NONE)?;
    }
}

/// Kills our children until there are none: those of a killed process become ours in turn.
fn end_orphans(signals: &SignalFd) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let orphans: Vec<Stat> = procfs::children_of_single_thread(getpid().as_raw())
            .into_iter()
            .filter_map(Stat::read)
            .filter(Stat::is_alive)
            .collect();
        for orphan in &orphans {
            let pid = Pid::from_raw(orphan.pid);
            // It is ours to reap, so its pid is its own; and the group of a group's leader is, too.
            let killed = if orphan.group == orphan.pid {
                killpg(pid, Signal::SIGKILL)
            } else {
                kill(pid, Signal::SIGKILL)
            };
            if let Err(error) = killed {
                tracing::warn!(%pid, comm = orphan.comm, %error, "a process could not be killed");
            }
        }
        loop {
            match reap::any() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Errno::ECHILD) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if Instant::now() >= deadline {
            for orphan in &orphans {
                tracing::error!(
                    pid = orphan.pid,
                    comm = orphan.comm,
                    "a process does not end although it was killed"
                );
            }
            return Ok(());
        }
        while signals.read_signal()?.is_some() {}
        wait(signals, PollTimeout::from(LOOK_AGAIN_MS))?;
    }
}

fn wait(signals: &SignalFd, timeout: PollTimeout) -> io::Result<()> {
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
