//! Refusal of a commit: the reason, its text for people, and its kind for programs.

use std::error::Error;
use std::fmt;

use crate::error::{ErrorKind, Kinded};
use crate::id::RunId;
use crate::ledger::{Denied, LimitId, Shortfall};
use crate::model::Illegal;

/// Refusal of a commit, because of one of its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Index of the change, from 0.
    pub change: usize,
    pub run: RunId,
    pub why: RefusalReason,
}

/// Reason why a change cannot happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalReason {
    /// The run does not allow the event now.
    Illegal(Illegal),
    /// The run does not exist, or has ended and was evicted.
    NotLive,
    Exists,
    /// This run used the start key already.
    KeyTaken(RunId),
    /// The disk is full: nothing new begins.
    Full,
    Budget(Denied),
    /// The parent has started as many child runs as it may.
    SpawnsUsedUp(u32),
    /// The tree has as many live runs as the daemon allows.
    TreeFull(usize),
    /// The tree has as many live runs as its parent allows for another thread.
    ThreadsFull(usize),
    /// The run would exceed the memory of all runs together, in bytes.
    MemoryFull(usize),
    /// The parent has as many live child runs as it may.
    TooManyChildren(u32),
    /// This run, the run itself or an ancestor, is being killed: nothing begins there any more.
    Stopping(RunId),
    /// The change names this run, which was removed.
    Gone(RunId),
    /// The run cannot be removed, because it has not ended.
    Live,
    /// The run cannot be removed yet: it has just ended, and its history is not written.
    Unsealed,
    /// The run cannot be removed, because this live run is its child or continues it.
    Named(RunId),
    /// The run changed after the draft was begun, so the draft is repeated. It never leaves the journal.
    Stale,
}

impl Refused {
    /// Returns the limit without enough money, if the request may be granted later.
    pub const fn awaited_limit(&self) -> Option<&LimitId> {
        if let RefusalReason::Budget(Denied::Short(Shortfall {
            at: lacking,
            wait: true,
            ..
        })) = &self.why
        {
            Some(lacking)
        } else {
            None
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.run;
        match &self.why {
            RefusalReason::Illegal(_) => write!(f, "run {run} refuses the event"),
            RefusalReason::NotLive => write!(f, "run {run} is not live"),
            RefusalReason::Exists => write!(f, "run {run} exists already"),
            RefusalReason::KeyTaken(taken) => write!(f, "the start key belongs to run {taken}"),
            RefusalReason::Full => write!(f, "the disk that holds the log is full"),
            RefusalReason::Budget(denied) => denied.fmt(f),
            RefusalReason::SpawnsUsedUp(most) => write!(
                f,
                "at most {most} child runs may be started here (`limits: {{spawns: …}}`, `--limit spawns=N`), and as many were"
            ),
            RefusalReason::TreeFull(most) => write!(
                f,
                "{most} runs of one tree, that of the same first run, are not over, and more are not allowed at once (`limits.tree_runs`)"
            ),
            RefusalReason::ThreadsFull(most) => write!(
                f,
                "{most} runs of one tree, that of the same first run, are not over, and no thread begins besides that many \
                 (`concurrency.max_total_threads` of `config:agent/resilience`)"
            ),
            RefusalReason::MemoryFull(most) => write!(
                f,
                "the values of all runs together may take {} MiB of memory (`limits.memory_mb`), and what this run begins with does not fit beside the others",
                most >> 20
            ),
            RefusalReason::TooManyChildren(most) => write!(
                f,
                "{most} child runs are not over, and more are not allowed at once (`concurrency.max_concurrent_children` of \
                 `config:agent/resilience`): wait for one of them"
            ),
            RefusalReason::Stopping(killed) => write!(f, "run {killed} is being killed"),
            RefusalReason::Gone(gone) => write!(f, "run {gone} was removed"),
            RefusalReason::Live => {
                write!(f, "run {run} has not ended; `ryectl kill {run}` ends it")
            }
            RefusalReason::Unsealed => write!(
                f,
                "run {run} has ended just now, and its history is not written yet; ask again"
            ),
            RefusalReason::Named(user) => {
                write!(f, "run {user}, which has not ended, needs run {run}")
            }
            RefusalReason::Stale => write!(f, "run {run} has changed meanwhile"),
        }
    }
}

impl Kinded for Refused {
    fn kind(&self) -> ErrorKind {
        match &self.why {
            RefusalReason::Illegal(source) => source.kind(),
            RefusalReason::NotLive
            | RefusalReason::SpawnsUsedUp(_)
            | RefusalReason::Stopping(_)
            | RefusalReason::Gone(_)
            | RefusalReason::Live
            | RefusalReason::Named(_) => ErrorKind::Precondition,
            RefusalReason::Unsealed => ErrorKind::Unavailable,
            RefusalReason::Exists | RefusalReason::KeyTaken(_) => ErrorKind::Exists,
            RefusalReason::Full
            | RefusalReason::TreeFull(_)
            | RefusalReason::ThreadsFull(_)
            | RefusalReason::MemoryFull(_)
            | RefusalReason::TooManyChildren(_) => ErrorKind::Exhausted,
            RefusalReason::Budget(denied) => denied.kind(),
            RefusalReason::Stale => ErrorKind::Bug,
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.why {
            RefusalReason::Illegal(source) => Some(source),
            RefusalReason::NotLive
            | RefusalReason::Exists
            | RefusalReason::KeyTaken(_)
            | RefusalReason::Full
            | RefusalReason::Budget(_)
            | RefusalReason::SpawnsUsedUp(_)
            | RefusalReason::TreeFull(_)
            | RefusalReason::ThreadsFull(_)
            | RefusalReason::MemoryFull(_)
            | RefusalReason::TooManyChildren(_)
            | RefusalReason::Stopping(_)
            | RefusalReason::Gone(_)
            | RefusalReason::Live
            | RefusalReason::Unsealed
            | RefusalReason::Named(_)
            | RefusalReason::Stale => None,
        }
    }
}
