//! Removal of ended runs.
//!
//! **Owns** the order. First ended runs are sealed, so that a run that may be removed has left memory. Then one frame
//! of the log removes up to [`TOGETHER`] runs. Then the runs are deleted from the index, and the next section of
//! history records the removal. **Never** rewrites history: the compactor does. **Races.** From the frame on, a run
//! that names a removed one is refused, even if its caller read the record before. **Failure.** The frame is the
//! removal: the next start repeats the steps after it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::history::{Removal, RemovedRun};
use rye_core::id::RunId;
use rye_host::task;
use serde_json::value::to_raw_value;
use tokio::sync::oneshot;

use super::handle::Journal;
use crate::error::Error;
use crate::index::{Entry, KeptAccount};
use crate::sequencer::Ticket;

/// Runs that one frame removes.
const TOGETHER: usize = 1000;

impl Journal {
    /// Seals everything that was committed so far. Returns true if history has it and all ended runs have left memory.
    pub async fn seal(&self) -> bool {
        let lsn = self.sequencer.lock().last;
        if self.published(Ticket { lsn }).await.is_err() {
            return false;
        }
        let (asker, sealed) = oneshot::channel();
        self.sealer.post(|inbox| inbox.waiting.push(asker));
        sealed.await.unwrap_or(false)
    }

    /// Removes the ended `runs` in this order, on behalf of the principal `by`. On return the removal is durable, and
    /// readers do not find the runs. The result omits runs that were removed before. Not atomic: after an error, runs
    /// before the failed one may be removed.
    pub async fn remove(&self, runs: &[RunId], by: &str) -> Result<Vec<RemovedRun>, Error> {
        self.seal().await;
        let all: HashSet<&RunId> = runs.iter().collect();
        let mut removed = Vec::with_capacity(runs.len());
        let mut last = None;
        let mut new = all.clone();
        let runs: Vec<&RunId> = runs.iter().filter(|run| new.remove(run)).collect();
        for runs in runs.chunks(TOGETHER) {
            let removal = self.removal(runs, &all, by).await?;
            if removal.runs.is_empty() {
                continue;
            }
            let sweeper = Arc::clone(&self.sweeper);
            task::blocking("record a removal", move || sweeper.before_removal()).await;
            removed.extend(removal.runs.iter().cloned());
            let permit = self.sequencer.backlog.place().await?;
            last = Some(self.sequencer.append_removal(removal, permit)?);
        }
        if let Some(ticket) = last {
            self.published(ticket).await?;
            // The sealer removes them from the index before it replies.
            self.seal().await;
            self.compactor.notify();
        }
        Ok(removed)
    }

    /// Returns the removal of `runs`; `all` are the runs that are removed together.
    async fn removal(
        &self,
        runs: &[&RunId],
        all: &HashSet<&RunId>,
        by: &str,
    ) -> Result<Removal, Error> {
        let mut removal = Removal {
            runs: Vec::with_capacity(runs.len()),
            kept: Vec::new(),
            at: self.now(),
            by: by.into(),
        };
        for &run in runs {
            if let Some(live) = self.sequencer.stream(run) {
                // The commit refuses a live run with the reason.
                removal.runs.push(RemovedRun {
                    run: live.id.clone(),
                    files: live.spec.files.as_str().into(),
                    item: live.spec.item.id.as_str().into(),
                    start_key: None,
                });
            } else if let Some(entry) = self.runs.indexed(run).await? {
                removal.runs.push(entry.removed());
                if entry.holds_others(all) {
                    self.keep_accounts(&entry, all, &mut removal).await?;
                }
            }
        }
        Ok(removal)
    }

    /// Adds the accounts in the record of a run that belong to runs outside `all`.
    async fn keep_accounts(
        &self,
        entry: &Entry,
        all: &HashSet<&RunId>,
        removal: &mut Removal,
    ) -> Result<(), Error> {
        let by = &entry.summary.id;
        let Some(stored) = self.runs.ended(by).await? else {
            return Ok(());
        };
        for (id, account) in stored.closed {
            if !all.contains(&id.0) {
                let kept = KeptAccount {
                    id,
                    by: by.clone(),
                    account: Box::new(account),
                };
                let kept = to_raw_value(&kept).expect("an account is plain data");
                removal.kept.push(kept);
            }
        }
        Ok(())
    }

    /// Rewrites history without the runs that were removed; resolves when that is done. The last segments of the log
    /// may still hold their events.
    pub async fn purge(&self) -> Result<(), Error> {
        self.seal().await;
        self.compactor.purge().await
    }
}
