//! Treatment of live runs when the daemon starts.
//!
//! A running run is recovered, or suspended if it is configured so. A suspended run stays suspended, unless it waited
//! for disk space or for a run that has ended. A run without its parent ends. A run that repeatedly crashed the daemon
//! is suspended. **Order.** First, interrupted paid calls are settled at the amount on hold, and runs that were being
//! killed end. Then parents are recovered before their child runs, and older runs before younger ones.

use std::sync::Arc;
use std::time::Duration;

use rye_core::error::with_sources;
use rye_core::model::event::RunKilled;
use rye_core::model::{
    Because, Callback, Event, KillReceipt, Recovery, Run, RunEvent, SuspendReason, Suspension,
};

use super::error::Error;
use super::handle::Supervisor;
use crate::stop::CancelMode;
use rye_journal::{Change, Journal, Ticket};

/// Pause between two recovered runs, so that a thousand of them do not start at the same time.
const RESUME_PAUSE: Duration = Duration::from_millis(2);

impl Supervisor {
    /// Recovers the runs that were live when the daemon stopped.
    pub async fn recover(&self, mut live: Vec<Arc<Run>>) {
        // Parents go first, because a run is an orphan depending on the state of its parent. Start times can be equal
        // to the millisecond, so the order is by depth.
        live.sort_by_key(|run| run.spec.depth);
        let stopping = &self.shared.stopping;
        if let Err(error) = settle_open_calls(self.journal(), &live).await {
            tracing::error!(error = %with_sources(&error), "paid calls that were cut off are not settled");
        }
        self.finish_kills(&live).await;
        if let Err(error) = self.sweep_output().await {
            tracing::warn!(error = %with_sources(&error), "the output of removed processes is still there");
        }
        for run in live {
            if stopping.is_cancelled() {
                return;
            }
            // It may have ended as one of those that were being killed.
            let now = self.journal().snapshot(&run.id);
            if now.is_none_or(|now| now.status().is_terminal()) {
                continue;
            }
            if let Err(error) = self.recover_run(&run).await {
                tracing::error!(run = %run.id, error = %with_sources(&error), "a run was not recovered");
            }
            if run.suspension().is_some() {
                // Few suspended runs start again, and none is computed while it is suspended.
                self.services().suspects.settle(&run.id);
                continue;
            }
            let pause = tokio::time::sleep(RESUME_PAUSE);
            if stopping.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Suspends the live runs of a copied state directory. The daemon of the original directory may continue the same
    /// runs, so none may resume by itself here. Returns true if all suspensions are durable.
    pub async fn suspend_all(&self, live: Vec<Arc<Run>>) -> bool {
        let settled = settle_open_calls(self.journal(), &live).await;
        if let Err(error) = &settled {
            tracing::error!(error = %with_sources(error), "paid calls that were under way are not settled");
        }
        let (mut are_all, mut last) = (settled.is_ok(), None);
        for run in live.iter().filter(|run| resumes_by_itself(run)) {
            match self.suspend_found(run, SuspendReason::Restart).await {
                Ok(ticket) => last = Some(ticket),
                Err(error) => {
                    tracing::error!(run = %run.id, error = %with_sources(&error), "a run of a copy was not suspended");
                    are_all = false;
                }
            }
        }
        if let Some(last) = last {
            are_all &= self.journal().published(last).await.is_ok();
        }
        are_all
    }

    /// Suspends `run`, which no task has resumed, for `reason` only.
    async fn suspend_found(&self, run: &Arc<Run>, reason: SuspendReason) -> Result<Ticket, Error> {
        let why = Suspension::new(reason).at(run.current_node());
        let epoch = self.shared.services.epoch;
        let resumed = run.suspension().map(|_| RunEvent::resumed(epoch));
        let events = resumed.into_iter().chain([RunEvent::RunSuspended(why)]);
        let changes = events.map(|event| Change::event(&run.id, event.into()));
        let ticket = self.journal().commit(changes.collect()).await?.ticket;
        // A stop may have been requested, before the start or just now.
        self.end_suspended(&run.id).await?;
        Ok(ticket)
    }

    /// Recovers `run`, which is in the state that the daemon found. A task may have been started since only for a
    /// suspended run.
    async fn recover_run(&self, run: &Arc<Run>) -> Result<(), Error> {
        if run.status().is_terminal() {
            return Ok(());
        }
        let mut run = Arc::clone(run);
        let suspended = run.suspension().map(|why| why.reason);
        let is_orphan = self.is_orphan(&run).await;
        if is_orphan && !run.spec.parent_end.waits() {
            self.note_cancel(&run.id, "its parent has ended", CancelMode::Graceful)?;
            run = self.run_of(&run.id).await?;
        } else if is_orphan {
            let cause = "its parent has ended".to_owned();
            let receipt = KillReceipt::default();
            self.end(&run, Event::from(RunKilled { cause, receipt }))
                .await;
            return Ok(());
        }
        let is_unkeyed = |callback: &Callback| !callback.keyed;
        if run.spec.callback.as_ref().is_some_and(is_unkeyed) {
            // Its program died with the earlier daemon, and no other try can ask for this run.
            let cause = "the program that started it has ended";
            self.note_cancel(&run.id, cause, CancelMode::Graceful)?;
            run = self.run_of(&run.id).await?;
        }
        if suspended.is_some() && run.cancel.is_some() {
            return self.end_suspended(&run.id).await;
        }
        if suspended.is_some_and(|reason| reason != SuspendReason::Storage) {
            return self.release(&run.id).await;
        }
        let suspects = &self.services().suspects;
        let death = suspects.death_in(&run.id);
        let now = self.journal().now();
        let reason = if death.is_some_and(|death| run.is_in_crash_loop(death, now)) {
            SuspendReason::CrashLoop
        } else if suspended.is_none() && run.spec.recovery == Recovery::Suspend {
            SuspendReason::Restart
        } else {
            return self.launch_created(run).await;
        };
        let _ticket = self.suspend_found(&run, reason).await?;
        suspects.settle(&run.id);
        Ok(())
    }
}

/// Settles the paid calls of `live` that the previous life of the daemon left open. Their costs are unknown, so each is
/// settled at the amount on hold.
pub async fn settle_open_calls(
    journal: &Journal,
    live: &[Arc<Run>],
) -> Result<(), rye_journal::Error> {
    let settled = live.iter().filter_map(|run| {
        let event = run.settlement(Because::Crash)?;
        Some(Change::event(&run.id, event))
    });
    let settled: Vec<Change> = settled.collect();
    if settled.is_empty() {
        return Ok(());
    }
    let settled = journal.commit(settled).await?;
    journal.published(settled.ticket).await
}

/// True if `run` would continue without a request, because it is not suspended or its suspension ends by itself.
fn resumes_by_itself(run: &Run) -> bool {
    match run.suspension().map(|why| why.reason) {
        None | Some(SuspendReason::Storage) => true,
        Some(SuspendReason::Approval) => {
            run.open_approvals().any(|asked| asked.expires_at.is_some())
        }
        Some(
            SuspendReason::Limit
            | SuspendReason::Budget
            | SuspendReason::Error
            | SuspendReason::Restart
            | SuspendReason::Uncertain
            | SuspendReason::Child
            | SuspendReason::CrashLoop
            | SuspendReason::User,
        ) => false,
    }
}

#[cfg(test)]
mod tests;
