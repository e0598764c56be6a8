//! The thread that takes removed runs out of history.
//!
//! **Owns** when history is compacted: after a removal files that are mostly removed runs are written again, and on request all that have
//! something of one. **Never** holds up the sealer or a reader. **Failure.** What cannot be written again stays as it is until the next
//! removal; a request gets the error.

use std::collections::HashSet;
use std::sync::Arc;

use rye_core::id::RunId;
use rye_journal::history::{self, Compacted, Scope};
use tokio::sync::oneshot;

use super::{Error, Journal, Shared};
use rye_host::task;

/// What is requested of the compactor.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Runs were removed.
    pub(super) removal: bool,
    /// Callers that wait until history has nothing of a removed run.
    pub(super) purges: Vec<oneshot::Sender<Result<Compacted, history::Error>>>,
}

/// Works until its mailbox is closed. The body of the compacting thread.
pub(super) fn run(shared: &Arc<Shared>) {
    loop {
        let taken = shared.compacting.take(None);
        let Requests { removal, purges } = taken.value;
        let is_purged = !purges.is_empty();
        for caller in purges {
            task::reply(caller, compact(shared, Scope::All));
        }
        if taken.closed {
            return;
        }
        if removal && !is_purged {
            match compact(shared, Scope::Sparse) {
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

fn compact(shared: &Shared, scope: Scope) -> Result<Compacted, history::Error> {
    let mut dead: HashSet<RunId> = HashSet::new();
    for removal in shared.history.removals() {
        match removal {
            Ok((_, removal)) => dead.extend(removal.runs.into_iter().map(|removed| removed.run)),
            Err(error) => tracing::error!(%error, "runs that were removed may stay in history"),
        }
    }
    if dead.is_empty() {
        return Ok(Compacted::default());
    }
    let compacted = shared
        .history
        .compact(&dead, scope, shared.keys_kept_since())?;
    for note in &compacted.notes {
        tracing::error!(%note, "something of a removed run may stay in history");
    }
    Ok(compacted)
}

impl Journal {
    /// Writes history again without the runs that were removed. It is done when this resolves. The last segments of the log are left.
    pub async fn purge(&self) -> Result<(), Error> {
        self.seal().await;
        let (caller, purged) = oneshot::channel();
        self.shared
            .compacting
            .post(|requests| requests.purges.push(caller));
        match purged.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::History(error)),
            Err(_) => Err(Error::Closed),
        }
    }
}
