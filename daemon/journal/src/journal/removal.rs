//! Removing ended runs.
//!
//! **Owns** the order: what has ended is sealed first, so that a run that may be removed has left memory; then one frame of the log says
//! that up to [`TOGETHER`] runs are removed; then the index forgets them, and the section that history gets next says so too. **Never**
//! rewrites history: that is the compactor's. **Races.** A run that names a removed one is refused from the frame on, so a caller that
//! read its record before loses. **Failure.** The frame is the removal: what comes after it is done again by the next start.

use std::collections::HashSet;

use crate::history::{Removal, RemovedRun};
use rye_core::id::RunId;
use serde_json::value::to_raw_value;
use tokio::sync::oneshot;

use super::handle::Journal;
use crate::error::Error;
use crate::index::{Entry, KeptAccount};
use crate::sequencer::Ticket;

/// Runs that one frame removes.
const TOGETHER: usize = 1000;

impl Journal {
    /// Seals everything that was committed until now. Returns true if history has it and all runs that ended have left memory.
    pub async fn seal(&self) -> bool {
        let lsn = self.sequencer.lock().last;
        if self.published(Ticket { lsn }).await.is_err() {
            return false;
        }
        let (asker, sealed) = oneshot::channel();
        self.sealer.post(|inbox| inbox.waiting.push(asker));
        sealed.await.unwrap_or(false)
    }

    /// Removes `runs`, which have ended, in this order, on behalf of `by`. On return that is durable, and readers do not find them. One that
    /// was removed before is left out of the answer. Not all or nothing: an error leaves those removed that come before its run.
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
            removed.extend(removal.runs.iter().cloned());
            let permit = self.sequencer.backlog.place().await?;
            last = Some(self.sequencer.append_removal(removal, permit)?);
        }
        if let Some(ticket) = last {
            self.published(ticket).await?;
            // The sealer takes them out of the index before it answers.
            self.seal().await;
            self.compactor.notify();
        }
        Ok(removed)
    }

    /// The removal of `runs`; `all` are removed together.
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
                // The commit says why it cannot be.
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

    /// Adds the accounts of other runs than `all` that are in the record of a run.
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

    /// Writes history again without the runs that were removed. It is done when this resolves. The last segments of the log are left.
    pub async fn purge(&self) -> Result<(), Error> {
        self.seal().await;
        self.compactor.purge().await
    }
}
