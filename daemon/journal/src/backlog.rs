//! Back-pressure: a bound on the commits that wait for the publisher, taken before the sequencer's lock.
//!
//! **Owns** the permits. A commit takes one, and the publisher returns it when it handles the commit. So a disk that
//! does not answer makes the committing task wait, and blocks no worker and no lock. **Never** blocks. Facts from
//! callers that cannot wait have a reserve of their own. **Failure**: a disk that hangs until the reserve is used up as
//! well is [`Error::Behind`].

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Most commits in the queue: far more than the runs that wait for one each.
pub(crate) const COMMITS: usize = 4096;
/// Most notes in addition: one process identity or cancel request for each of some hundred runs.
pub(crate) const NOTES: usize = 512;

/// The permit of one commit in the publisher's queue.
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
    /// Waits for a permit. Cancel safe.
    pub(crate) async fn place(&self) -> Result<Permit, Error> {
        let permit = Arc::clone(&self.commits).acquire_owned().await;
        permit.map(Permit::of).map_err(|_closed| Error::Closed)
    }

    /// Returns a permit without waiting, from the reserve if necessary.
    pub(crate) fn place_now(&self) -> Result<Permit, Error> {
        let permit = Arc::clone(&self.commits)
            .try_acquire_owned()
            .or_else(|_| Arc::clone(&self.notes).try_acquire_owned());
        permit
            .map(Permit::of)
            .map_err(|_none| Error::DiskOverloaded)
    }
}

impl Permit {
    const fn of(permit: OwnedSemaphorePermit) -> Self {
        Self {
            _given_back_on_drop: permit,
        }
    }
}
