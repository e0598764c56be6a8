//! The thread that removes runs from history.
//!
//! **Owns** the times at which history is compacted: after a removal, files that consist mostly of removed runs are
//! rewritten, and on request all files with a removed run. **Never** blocks the sealer or a reader. **Failure.** A file
//! that cannot be rewritten stays as it is until the next removal; a request gets the error.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rye_core::clock::{Clock, Timestamp};
use rye_core::id::RunId;
use rye_host::task;
use tokio::sync::oneshot;

use crate::coalescing_queue::CoalescingQueue;
use crate::error::Error;
use crate::history::{self, Compacted, Scope, Store};

/// Requests to the compactor.
#[derive(Debug, Default)]
struct Requests {
    /// True if runs were removed.
    removal: bool,
    /// Callers that wait until history has no data of a removed run.
    purges: Vec<oneshot::Sender<Result<Compacted, history::Error>>>,
}

/// The compactor: its thread, and the requests to it.
#[derive(Debug)]
pub(crate) struct Compactor {
    history: Arc<Store>,
    clock: Arc<dyn Clock>,
    /// Time for which the start key of a removed run starts no other run.
    keys_kept: Duration,
    requests: CoalescingQueue<Requests>,
}

impl Compactor {
    pub(crate) fn new(history: Arc<Store>, clock: Arc<dyn Clock>, keys_kept: Duration) -> Self {
        Self {
            history,
            clock,
            keys_kept,
            requests: CoalescingQueue::default(),
        }
    }

    /// Returns the time from which on removals block start keys. Keys of runs that were removed earlier are free again.
    pub(crate) fn keys_kept_since(&self) -> Timestamp {
        let kept = i64::try_from(self.keys_kept.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_ms(self.clock.now().ms().saturating_sub(kept))
    }

    /// Requests a compaction of sparse files, because runs were removed.
    pub(crate) fn notify(&self) {
        self.requests.post(|requests| requests.removal = true);
    }

    /// Makes [`Compactor::run`] return.
    pub(crate) fn close(&self) {
        self.requests.close();
    }

    /// Works until it is closed. The body of the compactor thread.
    pub(crate) fn run(&self) {
        loop {
            let taken = self.requests.take(None);
            let Requests { removal, purges } = taken.value;
            let is_purged = !purges.is_empty();
            for caller in purges {
                task::reply(caller, self.compact(Scope::All));
            }
            if taken.closed {
                return;
            }
            if removal && !is_purged {
                match self.compact(Scope::Sparse) {
                    Ok(compacted) if compacted == Compacted::default() => {}
                    Ok(Compacted {
                        files,
                        before,
                        after,
                        ..
                    }) => tracing::info!(files, before, after, "history was compacted"),
                    Err(error) => {
                        tracing::warn!(%error, "history cannot be compacted; it is tried again at the next removal");
                    }
                }
            }
        }
    }

    fn compact(&self, scope: Scope) -> Result<Compacted, history::Error> {
        let mut dead: HashSet<RunId> = HashSet::new();
        for removal in self.history.removals() {
            match removal {
                Ok((_, removal)) => {
                    dead.extend(removal.runs.into_iter().map(|removed| removed.run));
                }
                Err(error) => tracing::error!(%error, "runs that were removed may stay in history"),
            }
        }
        if dead.is_empty() {
            return Ok(Compacted::default());
        }
        let compacted = self.history.compact(&dead, scope, self.keys_kept_since())?;
        for note in &compacted.notes {
            tracing::error!(%note, "something of a removed run may stay in history");
        }
        Ok(compacted)
    }

    /// Rewrites history without the runs that were removed. Resolves when that is done.
    pub(crate) async fn purge(&self) -> Result<(), Error> {
        let (caller, purged) = oneshot::channel();
        self.requests.post(|requests| requests.purges.push(caller));
        match purged.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::History(error)),
            Err(_) => Err(Error::Closed),
        }
    }
}
