//! A process from its start to its end.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rye_core::memory::Memory;
use rye_core::model::{EndedProcess, KillReceipt, ProcessIdentity};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use super::cgroup::AttemptCgroup;
use super::ending::{Exit, Exited, Stop, StopReason, Usage, number};
use super::error::Error;
use super::ladder::{Ladder, Step};
use super::members::Members;
use super::oom::Shortages;
use super::output::{Pipes, Streams};
use super::pidfd::ProcessHandle;
use super::plan::Tap;
use super::procfs::{self, Stat};
use super::reap;
use super::sweep::{self, Orphans};
use crate::masking::Masker;
use rye_host::task;

/// Time for which output may stay open after all known processes are gone.
const LEAK_PATIENCE: Duration = Duration::from_secs(1);

/// Reaps leaders that are no longer followed. It lives as long as its leaders.
pub(super) trait Reaper: fmt::Debug + Send + Sync {
    /// Takes over a killed leader, and its cgroup, which is removed after the leader is reaped.
    fn abandon(&self, leader: OwnedFd, cgroup: Option<Arc<AttemptCgroup>>);
}

/// A child process that leads a session and a group. If it is dropped before it was reaped, it is killed with its
/// group, and the spawner reaps it later.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) pid: Pid,
    pub(super) started: Instant,
    /// `None` once it is reaped.
    pidfd: Option<OwnedFd>,
    /// `None` on a host without cgroups for attempts.
    cgroup: Option<Arc<AttemptCgroup>>,
    /// The thread that started it must outlive it, because PDEATHSIG is bound to that thread.
    spawner: Arc<dyn Reaper>,
}

impl Leader {
    pub(super) fn new(
        (pid, pidfd, started): (Pid, OwnedFd, Instant),
        cgroup: Option<AttemptCgroup>,
        spawner: Arc<dyn Reaper>,
    ) -> Self {
        Self {
            pid,
            started,
            pidfd: Some(pidfd),
            cgroup: cgroup.map(Arc::new),
            spawner,
        }
    }

    pub(super) fn cgroup(&self) -> Option<&Arc<AttemptCgroup>> {
        self.cgroup.as_ref()
    }

    /// Signals the whole group. The leader is not reaped, so the group id is its own.
    fn signal_group(&self, signal: Signal) {
        match killpg(self.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => tracing::warn!(pid = %self.pid, %error, "a group could not be signalled"),
        }
    }

    /// Registers its pidfd with the runtime.
    #[expect(unsafe_code, reason = "the runtime trusts that the descriptor stays")]
    fn watched(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the leader owns its pidfd. `reap`, which closes it, takes it out of the `AsyncFd` before.
        let watched = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        Ok(watched?)
    }

    /// Name of its command.
    fn comm(&self) -> String {
        Stat::read(self.pid.as_raw()).map_or_else(String::new, |stat| stat.comm)
    }

    /// Reaps the leader, which must have ended, and returns its exit, and the resources that it used.
    fn reap(mut self) -> Result<(Exit, Usage), Error> {
        let pid = self.pid.as_raw();
        let reaped =
            reap::child(self.as_fd(), reap::Wait::UntilEnd).map_err(|errno| Error::Follow {
                step: "read the exit status",
                pid,
                source: errno.into(),
            })?;
        self.pidfd = None;
        Ok(reaped.expect("we waited for the end"))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            match &self.cgroup {
                Some(cgroup) => cgroup.kill(),
                None => self.signal_group(Signal::SIGKILL),
            }
            self.spawner.abandon(pidfd, self.cgroup.take());
        }
    }
}

/// The runtime watches this descriptor.
impl AsRawFd for Leader {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Leader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_ref().expect("only `reap` takes it").as_fd()
    }
}

/// A started process. It must be finished; dropping it kills it with its group.
#[derive(Debug)]
#[must_use = "a process that is not finished is killed"]
pub struct Running {
    pub(super) leader: Leader,
    pub(super) identity: ProcessIdentity,
    pub(super) pipes: Pipes,
    pub(super) orphans: Orphans,
    pub(super) timeout: Duration,
    pub(super) grace: Duration,
    pub(super) output_limit: usize,
    pub(super) tap: Option<Tap>,
    pub(super) memory: Arc<Memory>,
    pub(super) masker: Arc<Masker>,
    pub(super) shortages: Arc<Shortages>,
}

/// A stopped process: the reason, its descendants at that time, and the last signal they got.
#[derive(Debug)]
struct Stopped {
    reason: StopReason,
    descendants: Vec<ProcessHandle>,
    signal: Signal,
    fate: Fate,
}

/// Result of stopping a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ended,
    /// It hangs in the kernel, and ends when the kernel releases it.
    Survives,
}

impl Running {
    /// Identity of the process, unique over time.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Processes of the attempt.
    pub fn members(&self) -> Members {
        self.orphans.members()
    }

    /// Adds an observer of its output.
    pub fn with_tap(self, tap: Tap) -> Self {
        Self {
            tap: Some(tap),
            ..self
        }
    }

    /// Sets the account to which kept output is charged.
    pub fn with_memory(self, memory: Arc<Memory>) -> Self {
        Self { memory, ..self }
    }

    /// Masks the secrets of `masker` in its output, before the tap sees it.
    pub fn with_masker(self, masker: Arc<Masker>) -> Self {
        Self { masker, ..self }
    }

    /// Takes the pipes of its standard input and output, for use while [`finish`](Self::finish) follows it. Its plan
    /// must have [`Input::Pipe`](super::Input::Pipe). Must be called in a runtime.
    pub fn take_pipes(&mut self) -> Result<(pipe::Sender, pipe::Receiver), Error> {
        let taken = self.pipes.stdin.take().zip(self.pipes.stdout.take());
        let opened = taken
            .ok_or_else(|| io::Error::other("the pipes are taken"))
            .and_then(|((stdin, _), stdout)| {
                let stdin = pipe::Sender::from_owned_fd(stdin)?;
                Ok((stdin, pipe::Receiver::from_owned_fd(stdout)?))
            });
        opened.map_err(|source| Error::Follow {
            step: "open the pipes",
            pid: self.identity.pid,
            source,
        })
    }

    /// Writes its input, reads its output, stops it on request of `stop` or at its timeout, and ends the processes it
    /// leaves.
    ///
    /// Returns when its leader and all its known descendants are gone, or do not die of KILL. Dropping the future kills
    /// the group.
    pub async fn finish(self, stop: Stop) -> Result<Exited, Error> {
        let pid = self.identity.pid;
        let failed = |step| move |source| Error::Follow { step, pid, source };
        let ladder = Ladder::new(self.leader.started, self.timeout, self.grace);
        let leader = self.leader.watched().map_err(failed("watch the end"))?;
        let (limit, memory) = (self.output_limit, &self.memory);
        let mut streams = Streams::open(self.pipes, limit, memory, &self.masker, self.tap)
            .map_err(failed("open the pipes"))?;

        let (ended_by, fate, elapsed, mut receipt) = {
            let mut pump = pin!(streams.pump());
            let mut pumped = false;
            let stopped = {
                let mut end = pin!(follow(&leader, ladder, stop));
                loop {
                    tokio::select! {
                        stopped = &mut end => break stopped?,
                        moved = &mut pump, if !pumped => {
                            moved.map_err(failed("move the output"))?;
                            pumped = true;
                        }
                    }
                }
            };
            let elapsed = leader.get_ref().started.elapsed();
            let reason = stopped.as_ref().map(|stopped| stopped.reason);
            let fate = stopped.as_ref().map_or(Fate::Ended, |stopped| stopped.fate);
            let receipt = end_rest(leader.get_ref(), self.orphans, stopped).await;
            if !pumped && let Ok(moved) = tokio::time::timeout(LEAK_PATIENCE, pump).await {
                moved.map_err(failed("move the output"))?;
            }
            (reason, fate, elapsed, receipt)
        };
        let cgroup = leader.get_ref().cgroup.clone();
        let (exit, mut usage) = match fate {
            Fate::Ended => {
                let leader = leader.into_inner();
                let comm = ended_by.map(|_| leader.comm());
                let (exit, usage) = leader.reap()?;
                if let Some(comm) = comm {
                    receipt.processes.insert(0, ended(pid, comm, exit));
                }
                (exit, usage)
            }
            Fate::Survives => {
                tracing::error!(pid, "a process does not end although it was killed");
                receipt.survivors.insert(0, pid);
                (Exit::Signal(number(Signal::SIGKILL)), Usage::default())
            }
        };
        let has_failed = ended_by.is_none() && exit != Exit::Code(0);
        let mut limit = None;
        if let Some(cgroup) = cgroup {
            cgroup.raise(&mut usage);
            limit = has_failed.then(|| cgroup.limit_reached()).flatten();
        }
        let is_killed = has_failed && exit == Exit::Signal(number(Signal::SIGKILL));
        let pipe_leak = !streams.have_ended();
        let (stdout, stderr, charge) = streams.into_captured();
        Ok(Exited {
            exit,
            stdout,
            stderr,
            charge,
            elapsed,
            usage,
            limit,
            was_memory_short: is_killed && self.shortages.have_increased(),
            ended_by,
            receipt,
            pipe_leak,
        })
    }
}

/// Waits for the leader to end, and stops it when required. Gives up on one that does not die of KILL. An ended leader
/// stays a zombie.
async fn follow(
    leader: &AsyncFd<Leader>,
    mut ladder: Ladder,
    mut stop: Stop,
) -> Result<Option<Stopped>, Error> {
    let pid = leader.get_ref().pid.as_raw();
    let mut descendants = Vec::new();
    let mut sent = None;
    let stopped = |ladder: Ladder, sent, descendants, fate| {
        let (reason, signal) = ladder.reason().zip(sent)?;
        Some(Stopped {
            reason,
            descendants,
            signal,
            fate,
        })
    };
    loop {
        let next = tokio::select! {
            // Cancel safe: readiness stays with the descriptor.
            ended = leader.readable() => {
                drop(ended.map_err(|source| Error::Follow { step: "wait for the end", pid, source })?);
                return Ok(stopped(ladder, sent, descendants, Fate::Ended));
            }
            // Cancel safe: it reads a value, which stays.
            reason = stronger(&mut stop, ladder.reason()) => ladder.request(reason, Instant::now()),
            () = task::sleep(ladder.remaining(Instant::now())) => ladder.due(Instant::now()),
        };
        let signal = match next {
            Step::Nothing => continue,
            Step::Terminate => Signal::SIGTERM,
            Step::Kill => Signal::SIGKILL,
            Step::GiveUp => return Ok(stopped(ladder, sent, descendants, Fate::Survives)),
        };
        // Taken before the signal: it includes a process that leaves the group and outlives its parent.
        let cgroup = leader.get_ref().cgroup.clone();
        let held = move || held_below(pid, cgroup.as_deref());
        descendants.extend(task::blocking("process tree", held).await);
        leader.get_ref().signal_group(signal);
        if signal == Signal::SIGTERM {
            // A stopped process does not handle TERM.
            leader.get_ref().signal_group(Signal::SIGCONT);
            // Nor does a frozen one. KILL ends it as it is.
            if let Some(cgroup) = &leader.get_ref().cgroup {
                cgroup.thaw();
            }
        }
        sent = Some(signal);
    }
}

/// The next reason that is stronger than `than`; never resolves if none can come any more.
async fn stronger(stop: &mut Stop, than: Option<StopReason>) -> StopReason {
    let asked = stop.wait_for(|asked| *asked > than).await;
    match asked.map(|asked| *asked) {
        Ok(Some(reason)) => reason,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Handles on all descendants of `pid`, and on all processes of `cgroup` but `pid`.
fn held_below(pid: i32, cgroup: Option<&AttemptCgroup>) -> Vec<ProcessHandle> {
    let mut found = procfs::tree(pid);
    let is_known = |stat: &Stat, found: &[Stat]| {
        let mut known = found.iter();
        known.any(|known| (known.pid, known.start_time) == (stat.pid, stat.start_time))
    };
    for member in cgroup.map_or_else(Vec::new, AttemptCgroup::members) {
        if !is_known(&member, &found) {
            found.push(member);
        }
    }
    let others = found.into_iter().filter(|stat| stat.pid != pid);
    others.filter_map(ProcessHandle::take).collect()
}

/// Ends the rest when the leader is a zombie, or was given up: its cgroup, its group, and its descendants in any group.
async fn end_rest(leader: &Leader, mut orphans: Orphans, stopped: Option<Stopped>) -> KillReceipt {
    // The adopter already has all children of the leader: the kernel moves them before a pidfd reports the end.
    let look = orphans.look();
    if look.is_clear() && stopped.is_none() {
        return KillReceipt {
            complete: orphans.are_complete(),
            ..KillReceipt::default()
        };
    }
    let left = look.found.into_iter().filter_map(ProcessHandle::take);
    let mut held: Vec<_> = left.map(|held| (held, Signal::SIGKILL)).collect();
    if let Some(Stopped {
        descendants,
        signal,
        ..
    }) = stopped
    {
        held.extend(descendants.into_iter().map(|held| (held, signal)));
    }
    leader.signal_group(Signal::SIGKILL);
    if let Some(cgroup) = leader.cgroup() {
        cgroup.kill();
    }
    task::blocking("sweep", move || {
        let receipt = sweep::end(held, || orphans.look());
        orphans.completed(receipt)
    })
    .await
}

fn ended(pid: i32, comm: String, exit: Exit) -> EndedProcess {
    let (exit, signal) = exit.code_or_signal();
    EndedProcess {
        pid,
        comm,
        signal,
        exit,
    }
}
