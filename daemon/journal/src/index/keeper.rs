//! Keeps a working index: on disk, or in memory while the one on disk fails.
//!
//! **Owns** the choice which of the two readers use, and the retries of the one on disk: after [`REOPEN`], then after
//! twice the previous pause, up to [`LONGEST`]. **Failure.** An index that fails is opened again and completed from
//! history, so no change that it missed is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::history::{Removal, Store};
use rye_core::error::with_sources;
use rye_core::id::Lsn;
use rye_core::memory::Memory;
use tokio::sync::watch;

use super::{Entry, Index, IndexError, IndexState};
use crate::faults::Faults;

const REOPEN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// The index of the sealer.
#[derive(Debug)]
pub(crate) struct Keeper {
    dir: PathBuf,
    history: Arc<Store>,
    memory: Arc<Memory>,
    state: Arc<watch::Sender<IndexState>>,
    faults: Faults,
    index: Option<Index>,
    is_in_memory: bool,
    reopen_at: Instant,
    pause: Duration,
}

impl Keeper {
    /// `dir` is the state directory; readers find the index in `state`.
    pub(crate) fn new(
        dir: PathBuf,
        history: Arc<Store>,
        memory: Arc<Memory>,
        state: Arc<watch::Sender<IndexState>>,
        faults: Faults,
    ) -> Self {
        Self {
            dir,
            history,
            memory,
            state,
            faults,
            index: None,
            is_in_memory: false,
            reopen_at: Instant::now(),
            pause: REOPEN,
        }
    }

    /// True if there is an index, on disk or in memory. It holds all of history.
    pub(crate) const fn is_open(&self) -> bool {
        self.index.is_some()
    }

    /// True if the index on disk works.
    pub(crate) const fn is_on_disk(&self) -> bool {
        self.index.is_some() && !self.is_in_memory
    }

    /// Opens the index on disk if it is not open and its next attempt is due. Returns true if an index was opened,
    /// which then holds all of history.
    pub(crate) fn open_if_due(&mut self) -> bool {
        let is_due = !self.is_on_disk() && Instant::now() >= self.reopen_at;
        is_due && self.open()
    }

    fn open(&mut self) -> bool {
        if self.index.is_none() {
            self.state.send_replace(IndexState::Opening);
        }
        let opened = self.faults.before_index();
        let opened = opened.map_err(IndexError::from);
        match opened.and_then(|()| Index::open(&self.dir, &self.history)) {
            Ok(index) => {
                self.publish(index);
                self.is_in_memory = false;
                self.pause = REOPEN;
                true
            }
            Err(error) => {
                self.reopen_at = Instant::now() + self.pause;
                self.pause = LONGEST.min(self.pause * 2);
                tracing::warn!(error = %with_sources(&error), "the index cannot be opened");
                self.index.is_none() && self.open_in_memory(error)
            }
        }
    }

    fn open_in_memory(&mut self, broken: IndexError) -> bool {
        match Index::in_memory(&self.history, &self.memory) {
            Ok(index) => {
                self.publish(index);
                self.is_in_memory = true;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "ended runs cannot be found");
                let is_large = matches!(error, IndexError::TooLarge);
                let reported = if is_large { error } else { broken };
                self.close(reported);
                false
            }
        }
    }

    fn publish(&mut self, index: Index) {
        self.index = Some(index.clone());
        self.state.send_replace(IndexState::Ready(index));
    }

    /// Adds the runs that ended in history up to `last`. Returns true if that succeeded.
    pub(crate) fn apply(&mut self, entries: &[Entry], removed: &[Removal], last: Lsn) -> bool {
        self.with(|index| index.apply(entries, removed, last))
    }

    /// Removes the runs that were removed. A failed removal is repeated when the section that records it is added.
    pub(crate) fn remove(&mut self, removals: &[Removal]) {
        self.with(|index| {
            let mut removals = removals.iter();
            removals.try_for_each(|removal| index.remove(removal))
        });
    }

    /// Runs `work` if there is an index. Returns true if it succeeded.
    fn with(&mut self, work: impl FnOnce(&Index) -> Result<(), IndexError>) -> bool {
        let Some(index) = &self.index else {
            return false;
        };
        match work(index) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "the index failed");
                self.distrust();
                false
            }
        }
    }

    /// Discards the index, so that it is opened again at the next opportunity.
    pub(crate) fn distrust(&mut self) {
        self.index = None;
        self.is_in_memory = false;
        self.reopen_at = Instant::now();
    }

    /// Makes readers fail with `why` from now on.
    pub(crate) fn close(&mut self, why: IndexError) {
        let why = Arc::new(why);
        self.state.send_replace(IndexState::Broken(why));
    }
}
