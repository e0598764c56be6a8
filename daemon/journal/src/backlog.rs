//! How many commits may wait for the publisher: back-pressure, taken before the sequencer's lock.
//!
//! **Owns** the permits. A commit takes one and the publisher gives it back when it handles the commit, so a disk that
//! stands still holds up the committing task, which waits, and no worker and no lock. **Never** blocks. Facts that come
//! from where nothing can wait have a reserve of their own; **failure** of a disk that takes none for so long that
//! this is used up as well is [`Error::Behind`].

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Commits that may wait: far more than there are runs that wait for one each.
pub(crate) const COMMITS: usize = 4096;
/// Notes that may wait beside them: a process identity or a request to cancel for each of some hundred runs.
pub(crate) const NOTES: usize = 512;

/// The place of one commit in the publisher's queue.
#[derive(Debug)]
pub(crate) struct Permit {
    _given_back_on_drop: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) struct Backlog {
    commits: Arc<Semaphore>,
    notes: Arc<Semaphore>,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            commits: Arc::new(Semaphore::new(COMMITS)),
            notes: Arc::new(Semaphore::new(NOTES)),
        }
    }
}

impl Backlog {
    /// Waits for a place. Cancel safe.
    pub(crate) async fn place(&self) -> Result<Permit, Error> {
        let permit = Arc::clone(&self.commits).acquire_owned().await;
        permit.map(Permit::of).map_err(|_closed| Error::Closed)
    }

    /// A place for what cannot wait.
    pub(crate) fn place_now(&self) -> Result<Permit, Error> {
        let permit = Arc::clone(&self.commits)
            .try_acquire_owned()
            .or_else(|_| Arc::clone(&self.notes).try_acquire_owned());
        permit.map(Permit::of).map_err(|_none| Error::Behind)
    }
}

impl Permit {
    const fn of(permit: OwnedSemaphorePermit) -> Self {
        Self {
            _given_back_on_drop: permit,
        }
    }
}
