//! The parent process: it ends the processes that a dead daemon left, and restarts the daemon.
//!
//! **Owns** the daemon, its only direct child, and every orphan below it. **Never** runs a thread, opens the store or
//! reads a key, so that it cannot fail together with the daemon.
//!
//! ```text
//! start ─► watch ─ended─► clean up ─┬─ it died, and no stop was requested ─► pause ─► start
//!                                   └─ otherwise, or too often ─► end with its code
//! ```
//!
//! **Order.** While the daemon lives, signals are passed on and adopted zombies reaped. When it ends, the parent adopts
//! its children. Each is killed, which makes its own children adopted, until there are none. Only then is the daemon
//! restarted, or the parent ends with its exit code. A shim and what it keeps are spared ([`shim`]).
//! **Failure.** The daemon died if a signal or a panic ended it. Any
//! other exit code is its own decision: it was requested to stop, it cannot start here, or its data is damaged, which a
//! restart does not improve. A passed-on signal is a stop request, however the daemon ends then. The next daemon
//! receives the cause of death, as far as the parent knows it, and uses it to find the run that caused the crash.
//!
//! The daemon has a process group of its own. Ctrl-C at a terminal therefore reaches it once, through the parent, and a
//! second Ctrl-C is a second signal.
#![expect(unsafe_code, reason = "steps between fork and exec")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, killpg, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid, getppid, setpgid};
use rye_core::model::Death;

use super::ending::Exit;
use super::error::Error;
use super::procfs::{self, Stat};
use super::{cgroup, oom, reap, shim};

/// Signals that are passed on to the daemon.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals that request the daemon to stop.
const STOPS: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Time limit for ending the processes of a dead daemon. Only a process that hangs in the kernel takes this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval in milliseconds of checks for orphans without a signal.
const LOOK_AGAIN_MS: u8 = 10;

/// Period over which restarts are counted.
const MINUTE: Duration = Duration::from_mins(1);

/// Pause before the first restart of a minute; each further one takes twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Exit code of a process that ended in a panic.
const PANICKED: i32 = 101;

/// Variable in which the parent process passes its pid to the daemon. Not a setting.
pub const PARENT_VARIABLE: &str = "RYE_PARENT_PID";

/// Variable in which the parent process passes the end of the previous daemon. Not a setting.
pub const DEATH_VARIABLE: &str = "RYE_LAST_DEATH";

/// Variable in which the parent process passes the descriptor of hidden variables. Not a setting.
pub const HIDDEN_VARIABLE: &str = "RYE_HIDDEN_VARIABLES";

/// Argument that adopts a copied state directory. Its effect is permanent, so a restarted daemon does not get it.
const ADOPT_COPY: &str = "--adopt-copy";

/// Position of a daemon in the sequence of restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    First,
    /// Restarted after an earlier one died.
    Later(Death),
}

/// Command that starts this program as the daemon with the same arguments; a restarted one does not get `--adopt-copy`.
/// The daemon inherits `hidden`, sealed memory with the variables that [`HIDDEN_VARIABLE`] describes.
pub fn daemon_command(life: Life, hidden: OwnedFd) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the process module starts processes"
    )]
    let mut command = Command::new("/proc/self/exe");
    let mut args = std::env::args_os();
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args.filter(|arg| life == Life::First || arg != ADOPT_COPY));
    command.env(PARENT_VARIABLE, getpid().to_string());
    match life {
        Life::First => command.env_remove(DEATH_VARIABLE),
        Life::Later(death) => command.env(DEATH_VARIABLE, death.as_str()),
    };
    command.env(HIDDEN_VARIABLE, hidden.as_raw_fd().to_string());
    // SAFETY: the closure makes no system call. It keeps the descriptor open as long as the command.
    unsafe {
        command.pre_exec(move || {
            let _open = &hidden;
            Ok(())
        })
    };
    command
}

/// Parent process of this daemon, if it is `claimed` (the value of [`PARENT_VARIABLE`]). A variable that was merely
/// inherited names another process.
pub fn of_this_process(claimed: Option<i32>) -> Option<Pid> {
    let parent = getppid();
    (claimed == Some(parent.as_raw())).then_some(parent)
}

/// Starts the command of `daemon`, and restarts it if it dies, at most `restarts` times a minute. Returns the exit of
/// the last one, when no process that it started is left.
///
/// Must be called before any thread is started: it waits for all children, and blocks signals.
///
/// `state` is the state directory of the daemon.
pub fn run(
    daemon: impl Fn(Life) -> io::Result<Command>,
    state: &Path,
    restarts: u32,
) -> Result<Exit, Error> {
    let failed = |step| move |source| Error::Parent { step, source };
    // A caller with the parent's pid does not count as part of a run, so no process of a run may inspect or control it.
    prctl::set_dumpable(false)
        .map_err(io::Error::from)
        .map_err(failed("keep others from looking into this process"))?;
    let signals = listen().map_err(failed("listen to signals"))?;
    prctl::set_child_subreaper(true)
        .map_err(io::Error::from)
        .map_err(failed("become the one who adopts orphans"))?;
    let mut recent: Vec<Instant> = Vec::new();
    let mut life = Life::First;
    loop {
        let kills = oom::kills();
        let child = daemon(life).and_then(start);
        let child = child.map_err(failed("start the daemon"))?;
        let (exit, asked) = watch(&signals, child).map_err(failed("watch the daemon"))?;
        let death = cause(exit, kills, oom::kills());
        // Processes that root moved out of their cgroup, and all on a host without cgroups, are found as orphans.
        cgroup::kill_recorded(state);
        let sweep = || end_orphans(&signals, state).map_err(failed("end what the daemon left"));
        let mut swept = sweep()?;
        cgroup::remove_recorded(state);
        if asked || swept.stop_requested || !died(exit) {
            return Ok(exit);
        }
        // The next daemon repeats interrupted work, which must not run concurrently with a process that may still be
        // doing it.
        while swept.has_survivors {
            swept = sweep()?;
            if swept.stop_requested {
                return Ok(exit);
            }
        }
        recent.retain(|restart| restart.elapsed() < MINUTE);
        let count = u32::try_from(recent.len()).unwrap_or(u32::MAX);
        if count >= restarts {
            tracing::error!(%exit, restarts, "the daemon died, and is not started again: that happened too often in a minute");
            return Ok(exit);
        }
        tracing::error!(%exit, "the daemon died, and is started again");
        let pause = FIRST_PAUSE.saturating_mul(1 << count.min(8));
        if rest(&signals, pause).map_err(failed("wait before the daemon is started again"))? {
            return Ok(exit);
        }
        recent.push(Instant::now());
        life = Life::Later(death);
    }
}

/// True if it did not end by itself.
const fn died(exit: Exit) -> bool {
    matches!(exit, Exit::Signal(_) | Exit::Code(PANICKED))
}

/// Cause of death of a daemon that ended with `exit`. `before` and `by_then` count the processes of its cgroup that the
/// kernel had ended for lack of memory before its start and at its end; `None` if unknown.
fn cause(exit: Exit, before: Option<u64>, by_then: Option<u64>) -> Death {
    const OWN: [Signal; 7] = [
        Signal::SIGABRT,
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGFPE,
        Signal::SIGTRAP,
        Signal::SIGSYS,
    ];
    let signal = match exit {
        Exit::Code(_) => return Death::Fault,
        Exit::Signal(number) => Signal::try_from(number).ok(),
    };
    match (signal, before.zip(by_then)) {
        (Some(signal), _) if OWN.contains(&signal) => Death::Fault,
        (Some(Signal::SIGKILL), None) => Death::Unknown,
        (Some(Signal::SIGKILL), Some((before, by_then))) if by_then > before => Death::Fault,
        (Some(_) | None, _) => Death::Outside,
    }
}

/// Starts the daemon and returns its pid.
fn start(mut daemon: Command) -> io::Result<i32> {
    let parent = getpid();
    // SAFETY: `bind` makes a few system calls and allocates nothing.
    unsafe { daemon.pre_exec(move || bind(parent)) };
    let child = daemon.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Waits for `pause`; returns true if this process was requested to stop meanwhile.
fn rest(signals: &SignalFd, pause: Duration) -> io::Result<bool> {
    let until = Instant::now() + pause;
    loop {
        if is_stop_requested(signals)? {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = PollTimeout::try_from(left).map_err(io::Error::other)?;
        wait(signals, left)?;
    }
}

/// Reads pending signals while there is no daemon to pass them on to. Returns true if one of them is a stop request.
fn is_stop_requested(signals: &SignalFd) -> io::Result<bool> {
    let mut asked = false;
    while let Some(info) = signals.read_signal()? {
        asked |= STOPS.contains(&received(info.ssi_signo)?);
    }
    Ok(asked)
}

fn received(number: u32) -> io::Result<Signal> {
    let number = i32::try_from(number).map_err(io::Error::other)?;
    Ok(Signal::try_from(number)?)
}

/// Blocks the signals, so that they stay pending until they are read.
fn listen() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for passed_on in PASSED_ON {
        mask.add(passed_on);
    }
    mask.add(Signal::SIGCHLD);
    // SAFETY: the default action runs no code of this program. An ignored SIGCHLD would make the kernel reap children
    // itself.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    mask.thread_block()?;
    Ok(SignalFd::with_flags(
        &mask,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Runs in the daemon before its exec: sets its own group, TERM at the parent's death, and no blocked signals.
fn bind(parent: Pid) -> io::Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Passes signals on and reaps until the daemon ends. Returns its exit, and true if a stop was requested.
fn watch(signals: &SignalFd, daemon: i32) -> io::Result<(Exit, bool)> {
    let mut asked = false;
    loop {
        while let Some(info) = signals.read_signal()? {
            let received = received(info.ssi_signo)?;
            if received != Signal::SIGCHLD {
                // The daemon is not reaped, so the pid is its own.
                kill(Pid::from_raw(daemon), received)?;
                asked |= STOPS.contains(&received);
            }
        }
        while let Some((pid, exit)) = reap::any()? {
            if pid == daemon {
                return Ok((exit, asked));
            }
        }
        wait(signals, PollTimeout::NONE)?;
    }
}

/// Result of a sweep.
struct Swept {
    /// True if a stop was requested meanwhile.
    stop_requested: bool,
    /// True if a killed process has not ended.
    has_survivors: bool,
}

/// Kills all children but shims until there are none, or `PATIENCE` ends. The children of a killed process are adopted
/// in turn; those of a shim are adopted by it.
fn end_orphans(signals: &SignalFd, state: &Path) -> io::Result<Swept> {
    let mut asked = false;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shims = shim::living(state);
        let orphans: Vec<Stat> = procfs::children_of_single_thread(getpid().as_raw())
            .into_iter()
            .filter_map(Stat::read)
            .filter(|stat| stat.is_alive() && !shims.contains(&(stat.pid, stat.start_time)))
            .collect();
        for orphan in &orphans {
            end_orphan(orphan);
        }
        // A child that has died since they were listed may have passed on its own.
        let mut has_reaped = false;
        let is_childless = loop {
            match reap::any() {
                Ok(Some(_)) => has_reaped = true,
                Ok(None) => break false,
                Err(Errno::ECHILD) => break true,
                Err(errno) => return Err(errno.into()),
            }
        };
        asked |= is_stop_requested(signals)?;
        let is_late = Instant::now() >= deadline;
        if is_childless || is_late || (orphans.is_empty() && !has_reaped) {
            for orphan in &orphans {
                if is_late && !is_childless {
                    tracing::error!(
                        pid = orphan.pid,
                        comm = orphan.comm,
                        "a process does not end although it was killed"
                    );
                }
            }
            return Ok(Swept {
                stop_requested: asked,
                has_survivors: is_late && !is_childless && !orphans.is_empty(),
            });
        }
        wait(signals, PollTimeout::from(LOOK_AGAIN_MS))?;
    }
}

/// Kills a child, and its group if it leads one.
fn end_orphan(orphan: &Stat) {
    let pid = Pid::from_raw(orphan.pid);
    // An unreaped child keeps its pid; the same holds for the group of a group leader.
    let killed = if orphan.group == orphan.pid {
        killpg(pid, Signal::SIGKILL)
    } else {
        kill(pid, Signal::SIGKILL)
    };
    if let Err(error) = killed {
        tracing::warn!(%pid, comm = orphan.comm, %error, "a process could not be killed");
    }
}

fn wait(signals: &SignalFd, timeout: PollTimeout) -> io::Result<()> {
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ending::number;
    use super::*;

    #[test]
    fn daemon_fault_covers_crash_and_oom_not_external_kill() {
        let signal = |signal: Signal| Exit::Signal(number(signal));
        for (exit, before, by_then, death) in [
            (Exit::Code(PANICKED), None, None, Death::Fault),
            (signal(Signal::SIGABRT), Some(1), Some(1), Death::Fault),
            (signal(Signal::SIGSEGV), None, None, Death::Fault),
            (signal(Signal::SIGBUS), None, None, Death::Fault),
            (signal(Signal::SIGKILL), Some(1), Some(2), Death::Fault),
            (signal(Signal::SIGKILL), Some(2), Some(2), Death::Outside),
            (signal(Signal::SIGKILL), Some(2), None, Death::Unknown),
            (signal(Signal::SIGKILL), None, Some(2), Death::Unknown),
            (signal(Signal::SIGUSR1), Some(0), Some(1), Death::Outside),
        ] {
            assert_eq!(
                cause(exit, before, by_then),
                death,
                "{exit} {before:?} {by_then:?}"
            );
        }
    }
}
