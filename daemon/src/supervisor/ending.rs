//! How runs are stopped, and with them their child runs.
//!
//! **Order.** A cancel is on record before anyone is notified, goes down the line of runs that wait for each other, and ends those
//! that are suspended. A kill is on record before anyone is notified, too: from then on nothing begins in the run and below it.
//! Then all tasks there are notified at once, and the runs end the deepest first. Once begun, either is carried to its end by a
//! task of the supervisor, even if the caller goes away; a kill by the next start, even if the daemon goes down.
//!
//! **Races.** A run may get its task, lose it, be suspended or end while it is being stopped. The supervisor writes the request
//! down and then looks whether there is a task to
//! notify; a task enters itself and then reads the record, and when it is over it leaves the list and then looks at its signal
//! and the record once more. So one of the two always sees the other. What an ended run waited for is stopped by the task
//! of the ended run, or, if the daemon went down in between, by the next start ([`Supervisor::is_orphan`]).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::{Event, Kill, KillReceipt, Killed, Run, RunEvent, RunKind};

use super::error::Error;
use super::handle::Supervisor;
use crate::stop::{DriverExit, Stop, Urgency};
use rye_journal::Ticket;

impl Supervisor {
    /// Asks a run and its child runs to stop before their next step; answers when the requests are durable.
    pub async fn cancel(&self, id: &RunId, cause: &str) -> Result<Arc<Run>, Error> {
        let (this, id, cause) = (self.clone(), id.clone(), cause.to_owned());
        let work = async move { this.cancel_line(&id, &cause).await };
        self.run_to_end(work).await
    }

    /// Ends a run and its child runs by force, as `asked`; answers when they are over, with what had to be ended in each of them.
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
            let line = this.covered_line(&id);
            this.tell(&id, |stop| stop.kill(&cause, grace));
            for below in &line {
                this.tell(&below.id, |stop| stop.kill(&of_parent(below), grace));
            }
            match this.kill_line(&id, &cause, grace).await {
                // Its own task was faster.
                Ok(_) | Err(Error::Over { .. }) => this.journal().ended(&id).await?,
                Err(error) => return Err(error),
            }
            let run = this.run_of(&id).await?;
            let mut below = Vec::with_capacity(line.len());
            // The child runs of one that was over before we came to it are ended by its own task.
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

    fn cancel_line<'a>(
        &'a self,
        id: &'a RunId,
        cause: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Run>, Error>> {
        let work = async move {
            self.not_over(id, "cancelled").await?;
            match self.note_cancel(id, cause) {
                Ok(None) => {}
                Ok(Some(ticket)) => self.journal().published(ticket).await?,
                Err(error) => {
                    self.live_run(id, "cancelled").await?;
                    return Err(error.into());
                }
            }
            self.end_suspended(id).await?;
            self.cancel_below(id).await?;
            self.run_of(id).await
        };
        work.boxed()
    }

    /// Refuses what is `wanted` of a run that is over. Whether it is, is known before that is durable: a stop
    /// waits for no sync before the task is notified.
    async fn not_over(&self, id: &RunId, wanted: &'static str) -> Result<(), Error> {
        let run = self.journal().snapshot(id);
        if run.is_some_and(|run| !run.status().is_terminal()) {
            return Ok(());
        }
        self.live_run(id, wanted).await.map(drop)
    }

    /// Puts the request on record and notifies the task of the run, if it has one. Of several requests the first one counts;
    /// `None` for the others.
    pub(super) fn note_cancel(
        &self,
        id: &RunId,
        cause: &str,
    ) -> Result<Option<Ticket>, rye_journal::Error> {
        // Under the lock of the tasks: nobody else asks between the look and the note.
        let tasks = self.live();
        let run = self.journal().snapshot(id);
        if !run.is_some_and(|run| !run.status().is_terminal() && run.cancel.is_none()) {
            return Ok(None);
        }
        let event = Event::Run(RunEvent::CancelRequested {
            cause: cause.to_owned(),
        });
        let ticket = self.journal().note(id, event)?.ticket;
        if let Some(stop) = tasks.get(id) {
            stop.cancel(cause);
        }
        Ok(Some(ticket))
    }

    fn kill_line<'a>(
        &'a self,
        id: &'a RunId,
        cause: &'a str,
        grace: Duration,
    ) -> BoxFuture<'a, Result<Arc<Run>, Error>> {
        let work = async move {
            self.not_over(id, "killed").await?;
            if !self.tell(id, |stop| stop.kill(cause, grace)) {
                self.kill_below(id, grace).await?;
                let run = self.live_run(id, "killed").await?;
                let events = run.with_settlement(killed(cause, KillReceipt::default()));
                let ticket = self.commit_unless_over(id, events, "killed").await?;
                self.tell(id, |stop| stop.kill(cause, grace));
                self.journal().published(ticket).await?;
                self.release_parent(id).await?;
            }
            self.journal().ended(id).await?;
            self.kill_below(id, grace).await?;
            self.run_of(id).await
        };
        work.boxed()
    }

    /// Asks the runs that `id` waits for to stop.
    async fn cancel_below(&self, id: &RunId) -> Result<(), Error> {
        self.cancel_all(id, self.attached(id)).await
    }

    /// Asks the runs to stop that `ended` started and that its end stops.
    async fn cancel_followers(&self, ended: &Run) -> Result<(), Error> {
        let children = self.journal().children(&ended.id).into_iter();
        let stop = |run: &Arc<Run>| run.spec.parent_end.stops_at(ended.status());
        let children = children.filter(stop).map(|run| run.id.clone());
        self.cancel_all(&ended.id, children.collect()).await
    }

    async fn cancel_all(&self, parent: &RunId, children: Vec<RunId>) -> Result<(), Error> {
        let cause = format!("its parent {parent}");
        for child in children {
            match self.cancel_line(&child, &cause).await {
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the runs directly below `id` that a kill of it covers.
    async fn kill_below(&self, id: &RunId, grace: Duration) -> Result<(), Error> {
        for child in self.covered(id) {
            match self.kill_line(&child.id, &of_parent(&child), grace).await {
                Ok(_) | Err(Error::Over { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notifies the task of a run, if it has one.
    fn tell(&self, id: &RunId, message: impl FnOnce(&Stop)) -> bool {
        // Under the lock: a task that leaves the list has seen what it was asked before.
        self.live().get(id).map(message).is_some()
    }

    /// Runs that `id` started and waits for, and that have not ended.
    fn attached(&self, id: &RunId) -> Vec<RunId> {
        let children = self.journal().children(id);
        let attached = children.iter().filter(|run| run.spec.parent_end.waits());
        attached.map(|run| run.id.clone()).collect()
    }

    /// Runs that `id` started, that a kill of it covers, and that have not ended.
    fn covered(&self, id: &RunId) -> Vec<Arc<Run>> {
        let fence = self.journal().fence(id);
        let all = fence.is_some_and(|run| run.kill.as_ref().is_some_and(|kill| kill.tree));
        let children = self.journal().children(id).into_iter();
        children
            .filter(|run| all || !run.spec.parent_end.is_detached())
            .collect()
    }

    /// The same at any depth.
    fn covered_line(&self, id: &RunId) -> Vec<Arc<Run>> {
        let mut line = self.covered(id);
        let mut next = 0;
        while let Some(run) = line.get(next) {
            let below = self.covered(&run.id);
            line.extend(below);
            next += 1;
        }
        line
    }

    /// A suspended run that was asked to stop has nothing more to wait for.
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

    /// The last acts of a run's task: nothing is asked of it any more, and what was asked last is done.
    pub(super) async fn leave(&self, id: &RunId, stop: &Stop, left: DriverExit) {
        {
            let mut live = self.live();
            // A run that was suspended may run in another task already.
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
            // It may have been suspended before it was asked: then it may have got another task since, and others may be suspended for it.
            self.tell(id, |stop| stop.kill(&cause, grace));
            self.release_parent(id).await?;
        } else {
            self.end_suspended(id).await?;
        }
        let run = self.run_of(id).await?;
        if !run.status().is_terminal() {
            return self.release(id).await;
        }
        if run.spec.kind() == RunKind::Tool {
            return Ok(());
        }
        if is_killed {
            return self.kill_below(id, grace).await;
        }
        self.cancel_followers(&run).await
    }

    /// Ends the runs that were being killed when the daemon went down, the deepest first.
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

    /// Whether the parent of `run` has ended in a way that stops it, and the daemon with it before that reached `run`.
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

/// What was ended in `run` alone.
fn killed_of(run: &Run) -> Killed {
    Killed {
        run_id: run.id.clone(),
        receipt: run.receipt().cloned().unwrap_or_default(),
        below: Vec::new(),
    }
}

/// The event by which a run is ended by force.
fn killed(cause: &str, receipt: KillReceipt) -> Event {
    let cause = cause.to_owned();
    RunEvent::RunKilled { cause, receipt }.into()
}

/// Why `run` ends if the run that started it does.
fn of_parent(run: &Run) -> String {
    let parent = run.spec.parent.as_ref();
    parent.map_or_else(String::new, |parent| format!("its parent {parent}"))
}
