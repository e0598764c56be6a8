//! Stopping of runs together with their child runs.
//!
//! **Order.** A cancel is recorded before a task is notified. It covers a run and those it waits for, and ends the
//! suspended ones. A kill is recorded before a task is notified, too. From then on nothing begins in the run or below
//! it. Then all tasks there are notified, and the runs end deepest first. A task of the supervisor completes either
//! request, even if the caller disconnects. If the daemon crashes, its next start completes a kill.
//!
//! **Races.** A run may get its task, lose it, be suspended or end while it is being stopped. The supervisor records
//! the request, then checks for a task to notify. A task registers itself, then reads the record. At its end it
//! unregisters, then checks its signal and the record again. So one of the two always sees the other. The runs that an
//! ended run waited for are stopped by its task or, after a crash, by the next start ([`Supervisor::is_orphan`]).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::event::{CancelRequested, RunKilled};
use rye_core::model::{Event, Kill, KillReceipt, Killed, Run, RunEvent};

use super::error::Error;
use super::handle::Supervisor;
use crate::stop::{CancelMode, DriverExit, Stop, Urgency};
use rye_journal::Ticket;

impl Supervisor {
    /// Cancels a run and its child runs before their next step. Returns when the requests are durable.
    pub async fn cancel(&self, id: &RunId, cause: &str) -> Result<Arc<Run>, Error> {
        self.cancel_as(id, cause, CancelMode::Graceful).await
    }

    /// The same, with the mode in which calls in flight end.
    pub(super) async fn cancel_as(
        &self,
        id: &RunId,
        cause: &str,
        mode: CancelMode,
    ) -> Result<Arc<Run>, Error> {
        let (this, id, cause) = (self.clone(), id.clone(), cause.to_owned());
        let work = async move { this.cancel_tree(&id, &cause, mode).await };
        self.run_to_end(work).await
    }

    /// Kills a run and its child runs. Returns when they have ended, with the ended processes of each.
    pub async fn kill(&self, id: &RunId, asked: Kill) -> Result<(Arc<Run>, Killed), Error> {
        let (this, id) = (self.clone(), id.clone());
        let work = async move {
            let (cause, grace) = (asked.by.clone(), asked.grace());
            this.not_over(&id, "killed").await?;
            let event = RunEvent::KillRequested(asked).into();
            if let Err(error) = this.journal().note(&id, event) {
                this.live_run(&id, "killed").await?;
                return Err(error.into());
            }
            let line = this.covered_tree(&id);
            this.notify(&id, |stop| stop.kill(&cause, grace));
            for below in &line {
                this.notify(&below.id, |stop| stop.kill(&of_parent(below), grace));
            }
            match this.kill_tree(&id, &cause, grace).await {
                // Its own task has ended it first.
                Ok(_) | Err(Error::Over { .. }) => this.journal().ended(&id).await?,
                Err(error) => return Err(error),
            }
            let run = this.run_of(&id).await?;
            let mut below = Vec::with_capacity(line.len());
            // If one had ended before, its own task ends its child runs.
            for child in &line {
                this.journal().ended(&child.id).await?;
                let ended = this.run_of(&child.id).await?;
                below.push((child.spec.parent.clone(), killed_of(&ended)));
            }
            let killed = Killed::with(killed_of(&run), below);
            Ok((run, killed))
        };
        self.run_to_end(work).await
    }

    fn cancel_tree<'a>(
        &'a self,
        id: &'a RunId,
        cause: &'a str,
        mode: CancelMode,
    ) -> BoxFuture<'a, Result<Arc<Run>, Error>> {
        let work = async move {
            self.not_over(id, "cancelled").await?;
            match self.note_cancel(id, cause, mode) {
                Ok(None) => {}
                Ok(Some(ticket)) => self.journal().published(ticket).await?,
                Err(error) => {
                    self.live_run(id, "cancelled").await?;
                    return Err(error.into());
                }
            }
            self.end_suspended(id).await?;
            self.cancel_all(id, self.attached(id), mode).await?;
            self.run_of(id).await
        };
        work.boxed()
    }

    /// Refuses a run that has ended; `wanted` is the requested action. The present record suffices even if it is not
    /// durable, so a task is notified without waiting for a sync.
    async fn not_over(&self, id: &RunId, wanted: &'static str) -> Result<(), Error> {
        let run = self.journal().snapshot(id);
        if run.is_some_and(|run| !run.status().is_terminal()) {
            return Ok(());
        }
        self.live_run(id, wanted).await.map(drop)
    }

    /// Records a cancel request and notifies the task of the run, if there is one. Returns `None` if the run was
    /// already cancelled or has ended; a cancelled one is only notified of the mode.
    pub(super) fn note_cancel(
        &self,
        id: &RunId,
        cause: &str,
        mode: CancelMode,
    ) -> Result<Option<Ticket>, rye_journal::Error> {
        // The lock of the tasks prevents another request between the check and the commit.
        let tasks = self.live();
        let run = self.journal().snapshot(id);
        let Some(run) = run.filter(|run| !run.status().is_terminal()) else {
            return Ok(None);
        };
        let notify = || {
            if let Some(stop) = tasks.get(id) {
                stop.cancel(cause, mode);
            }
        };
        if run.cancel.is_some() {
            notify();
            return Ok(None);
        }
        let event = Event::from(CancelRequested {
            cause: cause.to_owned(),
        });
        let ticket = self.journal().note(id, event)?.ticket;
        notify();
        Ok(Some(ticket))
    }

    fn kill_tree<'a>(
        &'a self,
        id: &'a RunId,
        cause: &'a str,
        grace: Duration,
    ) -> BoxFuture<'a, Result<Arc<Run>, Error>> {
        let work = async move {
            self.not_over(id, "killed").await?;
            if !self.notify(id, |stop| stop.kill(cause, grace)) {
                self.kill_below(id, grace).await?;
                let run = self.live_run(id, "killed").await?;
                let events = run.with_settlement(killed(cause, KillReceipt::default()));
                let ticket = self.commit_unless_over(id, events, "killed").await?;
                self.notify(id, |stop| stop.kill(cause, grace));
                self.journal().published(ticket).await?;
                self.release_parent(id).await?;
            }
            self.journal().ended(id).await?;
            self.kill_below(id, grace).await?;
            self.run_of(id).await
        };
        work.boxed()
    }

    /// Cancels the runs that `ended` started and that stop at its end.
    async fn cancel_followers(&self, ended: &Run) -> Result<(), Error> {
        let children = self.journal().children(&ended.id).into_iter();
        let stop = |run: &Arc<Run>| run.spec.parent_end.stops_at(ended.status());
        let children = children.filter(stop).map(|run| run.id.clone());
        let mode = CancelMode::Graceful;
        self.cancel_all(&ended.id, children.collect(), mode).await
    }

    async fn cancel_all(
        &self,
        parent: &RunId,
        children: Vec<RunId>,
        mode: CancelMode,
    ) -> Result<(), Error> {
        let cause = format!("its parent {parent}");
        for child in children {
            match self.cancel_tree(&child, &cause, mode).await {
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Kills the runs directly below `id` that a kill of it covers.
    async fn kill_below(&self, id: &RunId, grace: Duration) -> Result<(), Error> {
        for child in self.covered(id) {
            match self.kill_tree(&child.id, &of_parent(&child), grace).await {
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notifies the task of a run. Returns false if there is none.
    fn notify(&self, id: &RunId, message: impl FnOnce(&Stop)) -> bool {
        // Under the lock, a task that leaves the list has received all earlier signals.
        self.live().get(id).map(message).is_some()
    }

    /// Live runs that `id` started and waits for.
    fn attached(&self, id: &RunId) -> Vec<RunId> {
        let children = self.journal().children(id);
        let attached = children.iter().filter(|run| run.spec.parent_end.waits());
        attached.map(|run| run.id.clone()).collect()
    }

    /// Live runs that `id` started and that a kill of it covers.
    fn covered(&self, id: &RunId) -> Vec<Arc<Run>> {
        let fence = self.journal().fence(id);
        let all = fence.is_some_and(|run| run.kill.as_ref().is_some_and(|kill| kill.tree));
        let children = self.journal().children(id).into_iter();
        children
            .filter(|run| all || !run.spec.parent_end.is_detached())
            .collect()
    }

    /// Live runs below `id`, at any depth, that a kill of it covers.
    fn covered_tree(&self, id: &RunId) -> Vec<Arc<Run>> {
        let mut line = self.covered(id);
        let mut next = 0;
        while let Some(run) = line.get(next) {
            let below = self.covered(&run.id);
            line.extend(below);
            next += 1;
        }
        line
    }

    /// Ends a suspended run that was cancelled.
    pub(super) async fn end_suspended(&self, id: &RunId) -> Result<(), Error> {
        let run = self.run_of(id).await?;
        if let (Some(_), Some(cause)) = (run.suspension(), &run.cancel) {
            self.end(&run, run.end_by_cancel(self.journal().now(), cause))
                .await;
            self.release_parent(id).await?;
            self.cancel_followers(&*self.run_of(id).await?).await?;
        }
        Ok(())
    }

    /// Unregisters the task of a run, then completes the last requests to it.
    pub(super) async fn finish_task(&self, id: &RunId, stop: &Stop, left: DriverExit) {
        {
            let mut live = self.live();
            // A resumed run may already have another task.
            if live.get(id).is_some_and(|now| now.is_same(stop)) {
                live.remove(id);
            }
        }
        if self.shared.stopping.is_cancelled() {
            if let DriverExit::Interrupted(_) = left {
                tracing::info!(run = %id, "the run is recovered at the next start");
            }
            return;
        }
        if let Err(error) = self.finish(id, stop, left).await {
            tracing::error!(run = %id, error = %with_sources(&error), "a run that was stopped is not over");
        }
    }

    async fn finish(&self, id: &RunId, stop: &Stop, left: DriverExit) -> Result<(), Error> {
        let is_killed = stop.urgency() == Urgency::Kill;
        let grace = stop.grace().unwrap_or_default();
        let run = self.run_of(id).await?;
        if is_killed && !run.status().is_terminal() {
            let cause = stop.killer().unwrap_or_default();
            self.kill_below(id, grace).await?;
            self.end(&run, killed(&cause, left.into_receipt())).await;
            // It may have been suspended before the kill. Then it may have another task now, and other runs may be
            // suspended for it.
            self.notify(id, |stop| stop.kill(&cause, grace));
            self.release_parent(id).await?;
        } else {
            self.end_suspended(id).await?;
        }
        let run = self.run_of(id).await?;
        if !run.status().is_terminal() {
            return self.release(id).await;
        }
        if is_killed {
            return self.kill_below(id, grace).await;
        }
        self.cancel_followers(&run).await
    }

    /// Ends the runs that were being killed when the daemon stopped, deepest first.
    pub(super) async fn finish_kills(&self, live: &[Arc<Run>]) {
        let mut covered: Vec<_> = live
            .iter()
            .filter_map(|run| Some((run, self.journal().fence(&run.id)?)))
            .collect();
        covered.sort_by_key(|(run, _)| Reverse(run.spec.depth));
        for (run, fence) in covered {
            let cause = match fence.kill.as_ref().filter(|_| fence.id == run.id) {
                Some(kill) => kill.by.clone(),
                None => of_parent(run),
            };
            self.end(run, killed(&cause, KillReceipt::default())).await;
        }
    }

    /// True if the parent of `run` has ended in a way that stops `run`, but the daemon stopped before it did so.
    pub(super) async fn is_orphan(&self, run: &Run) -> bool {
        let Some(parent) = &run.spec.parent else {
            return false;
        };
        match self.run_of(parent).await {
            Ok(parent) => run.spec.parent_end.stops_at(parent.status()),
            Err(Error::UnknownRun { .. }) => run.spec.parent_end.waits(),
            Err(_) => false,
        }
    }
}

/// Processes ended in `run` itself.
fn killed_of(run: &Run) -> Killed {
    Killed {
        run_id: run.id.clone(),
        receipt: run.receipt().cloned().unwrap_or_default(),
        below: Vec::new(),
    }
}

/// Event that ends a run by force.
fn killed(cause: &str, receipt: KillReceipt) -> Event {
    let cause = cause.to_owned();
    RunKilled { cause, receipt }.into()
}

/// Cause of the end of `run` when its parent ends.
fn of_parent(run: &Run) -> String {
    let parent = run.spec.parent.as_ref();
    parent.map_or_else(String::new, |parent| format!("its parent {parent}"))
}
