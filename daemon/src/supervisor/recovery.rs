//! What happens to live runs when the daemon starts again.
//!
//! A running run is recovered, or suspended if it asked for that; a suspended one stays suspended, unless it waited for disk space
//! or for a run that is over. One whose parent is gone ends, and one that brought the daemon down again and again is suspended.
//! **Order.** Before anything resumes, paid calls that were cut off are settled at what was held for them, and runs that were being
//! killed end. Then parents before their child runs, older ones before younger ones.

use std::sync::Arc;
use std::time::Duration;

use rye_core::error::with_sources;
use rye_core::model::{
    Because, Event, KillReceipt, Raised, Recovery, Run, RunEvent, SuspendReason, Suspension,
};

use super::error::Error;
use super::handle::Supervisor;
use rye_journal::{Change, Journal, Ticket};

/// Pause between two runs recovered after a restart, so that a thousand of them do not start at once.
const RESUME_PAUSE: Duration = Duration::from_millis(2);

impl Supervisor {
    /// Recovers what was live when the daemon went down.
    pub async fn recover(&self, mut live: Vec<Arc<Run>>) {
        // A run may be as old as its parent, to the millisecond; whether it is an orphan shows when its parent is settled.
        live.sort_by_key(|run| run.spec.depth);
        let stopping = &self.shared.stopping;
        if let Err(error) = settle_open_calls(self.journal(), &live).await {
            tracing::error!(error = %with_sources(&error), "paid calls that were cut off are not settled");
        }
        self.finish_kills(&live).await;
        for run in live {
            if stopping.is_cancelled() {
                return;
            }
            // It may have been among those that were being killed.
            let now = self.journal().snapshot(&run.id);
            if now.is_none_or(|now| now.status().is_terminal()) {
                continue;
            }
            if let Err(error) = self.recover_run(&run).await {
                tracing::error!(run = %run.id, error = %with_sources(&error), "a run was not recovered");
            }
            if run.suspension().is_some() {
                // Few suspended runs start again, and nothing computes for one.
                self.services().suspects.settle(&run.id);
                continue;
            }
            let pause = tokio::time::sleep(RESUME_PAUSE);
            if stopping.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// Suspends what was live in the directory that this daemon's records were copied from: a daemon that works there may continue the very
    /// same runs, so that nothing here resumes by itself. Whether all of that is on record.
    pub async fn suspend_all(&self, live: Vec<Arc<Run>>) -> bool {
        let settled = settle_open_calls(self.journal(), &live).await;
        if let Err(error) = &settled {
            tracing::error!(error = %with_sources(error), "paid calls that were under way are not settled");
        }
        let (mut are_all, mut last) = (settled.is_ok(), None);
        for run in live.iter().filter(|run| goes_on_by_itself(run)) {
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

    /// Suspends `run`, which no task of this daemon has resumed, for `reason` and no other.
    async fn suspend_found(&self, run: &Arc<Run>, reason: SuspendReason) -> Result<Ticket, Error> {
        let why = Suspension::new(reason).at(run.current_node());
        let resumed = run.suspension().map(|_| RunEvent::RunResumed {
            epoch: self.shared.services.epoch,
            raised: Raised::default(),
        });
        let events = resumed.into_iter().chain([RunEvent::RunSuspended(why)]);
        let changes = events.map(|event| Change::event(&run.id, event.into()));
        let ticket = self.journal().commit(changes.collect()).await?.ticket;
        // It may have been asked to stop, before the daemon went down or just now.
        self.end_suspended(&run.id).await?;
        Ok(ticket)
    }

    /// Recovers `run` as the daemon found it: only one that is suspended there may have got a task from somebody else since.
    async fn recover_run(&self, run: &Arc<Run>) -> Result<(), Error> {
        if run.status().is_terminal() {
            return Ok(());
        }
        let mut run = Arc::clone(run);
        let suspended = run.suspension().map(|why| why.reason);
        let is_orphan = self.is_orphan(&run).await;
        if is_orphan && !run.spec.parent_end.waits() {
            self.note_cancel(&run.id, "its parent has ended")?;
            run = self.run_of(&run.id).await?;
        } else if is_orphan {
            let cause = "its parent has ended".to_owned();
            let receipt = KillReceipt::default();
            self.end(&run, Event::Run(RunEvent::RunKilled { cause, receipt }))
                .await;
            return Ok(());
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

/// Settles the paid calls of `live` that the end of an earlier life cut off, at what was held for them: nobody knows what they cost.
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

/// Whether `run` would continue without a request: it is not suspended, or for something that passes.
fn goes_on_by_itself(run: &Run) -> bool {
    match run.suspension().map(|why| why.reason) {
        None | Some(SuspendReason::Storage) => true,
        Some(SuspendReason::Approval) => run.asks().any(|asked| asked.expires_at.is_some()),
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
