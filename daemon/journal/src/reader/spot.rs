//! Positions among the events of all runs.

use rye_core::id::{Lsn, RunId};

use crate::record::Line;

/// A position among the events of all runs: after a commit and the first events of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The last commit before the position.
    pub commit: Lsn,
    /// Number of events of the next commit that are before the position too.
    pub more: usize,
}

impl Spot {
    pub(crate) const fn after_commit(lsn: Lsn) -> Self {
        Self {
            commit: lsn,
            more: 0,
        }
    }

    /// Returns the position after event `place` of commit `lsn`, which has `count` events.
    pub(crate) fn after(lsn: Lsn, place: usize, count: usize) -> Self {
        Self::after_event(lsn, place, place + 1 == count)
    }

    /// Returns the position after event `place` of commit `lsn`; `is_last` if the commit has no further event.
    pub(crate) fn after_event(lsn: Lsn, place: usize, is_last: bool) -> Self {
        if is_last {
            return Self::after_commit(lsn);
        }
        Self {
            commit: Lsn(lsn.0.saturating_sub(1)),
            more: place + 1,
        }
    }
}

/// An event in the order of the log.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) run: RunId,
    pub(crate) spot: Spot,
    pub(crate) line: Line,
}
