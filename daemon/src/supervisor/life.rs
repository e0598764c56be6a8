//! The task of one run.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use rye_core::error::with_sources;
use rye_core::model::{
    Event, Failure, KillReceipt, Run, RunEvent, SuspendReason, Suspension, Task,
};

use super::handle::{Begin, Beginner, EnvelopeRequest, Supervisor};
use crate::drive::{self, RunContext};
use crate::exhausted::Exhausted;
use crate::projects::Project;
use crate::stop::{CancelMode, DriverExit, Stop, Urgency};
use crate::storage_backoff::Pauses;
use crate::{graph, managed, thread, tool};
use rye_host::task;
use rye_journal::Change;

/// Result of opening the project of a run.
enum Opened {
    Project(Arc<Project>),
    /// The run ended or was interrupted before its project was available.
    Exited(DriverExit),
}

impl Supervisor {
    /// The task of one run. A run is created by its own task, so a caller that disconnects meanwhile leaves no run
    /// without a task.
    pub(super) async fn run(self, launch: Beginner) {
        let Beginner {
            begin,
            envelope_request: asker,
        } = launch;
        let run = match begin {
            Begin::Existing(run) => run,
            Begin::Create {
                run,
                admitted,
                reply,
            } => {
                let created = self.create(run, *admitted).await;
                let (answer, run) = match created {
                    Ok((started, run)) => (Ok(started), run),
                    Err(error) => (Err(error), None),
                };
                let stop = run.as_ref().map(|run| self.enter(run));
                task::reply(reply, answer);
                match (run, stop) {
                    (Some(run), Some(stop)) => return self.own_run(run, stop, asker).await,
                    (None | Some(_), _) => return,
                }
            }
        };
        let stop = self.enter(&run);
        self.own_run(run, stop, asker).await;
    }

    /// Registers the task. From here on it receives stop signals.
    fn enter(&self, run: &Run) -> Stop {
        let stop = Stop::new();
        self.live().insert(run.id.clone(), stop.clone());
        if self.is_to_suspend(run) {
            stop.hold();
        }
        if self.shared.stopping.is_cancelled() {
            stop.shut_down(self.shared.config.shutdown_grace);
        }
        stop
    }

    async fn own_run(&self, run: Arc<Run>, stop: Stop, asker: Option<EnvelopeRequest>) {
        // A stop may have been requested before it had a task.
        if let Ok(Some(record)) = self.journal().run(&run.id).await {
            if let Some(cause) = &record.cancel {
                stop.cancel(cause, CancelMode::Graceful);
            }
            if let Some(fence) = self.journal().fence(&run.id)
                && let Some(kill) = &fence.kill
            {
                stop.kill(&kill.by, kill.grace());
            }
            if record.status().is_terminal() {
                return self.finish_task(&run.id, &stop, DriverExit::Ended).await;
            }
        }
        // If the run crashes the daemon, it is among the suspects.
        let actor = self.services().suspects.handle(&run.id);
        let driven = actor.entered(self.drive(&run, &stop, asker));
        let driven = AssertUnwindSafe(driven).catch_unwind();
        let left = match driven.await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                self.give_up(&run, &stop, &error).await;
                DriverExit::Ended
            }
            Err(_panic) => {
                // The panic has dropped the work in flight. The record is complete, because commits are atomic.
                let text = "the daemon broke one of its own rules while it drove this run; please report it";
                self.fail(&run, Failure::permanent("panicked", text)).await;
                DriverExit::Ended
            }
        };
        let left = self.without_survivor(&run, &stop, left).await;
        self.finish_task(&run.id, &stop, left).await;
    }

    /// Ends the shim that may be left of a run that is over, because its attempt could not be followed. Adds to `left`
    /// what was killed.
    async fn without_survivor(&self, run: &Run, stop: &Stop, mut left: DriverExit) -> DriverExit {
        let Some(process) = run.spec.process().filter(|process| process.survive) else {
            return left;
        };
        let record = self.journal().snapshot(&run.id);
        let is_over = record.is_none_or(|run| run.status().is_terminal());
        let survivors = &self.services().survivors;
        match &mut left {
            DriverExit::Ended if is_over => {
                survivors.stop(&run.id, process.grace()).await;
            }
            DriverExit::Interrupted(receipt) if stop.urgency() == Urgency::Kill => {
                let grace = stop.grace().unwrap_or_default();
                receipt.merge(survivors.stop(&run.id, grace).await);
            }
            DriverExit::Ended | DriverExit::Interrupted(_) => {}
        }
        left
    }

    /// Handles a driver that failed with `error`. If the run has ended or has another task, or is about to be killed or
    /// recovered, it is left. Otherwise it ends here, so no run is left without a driver.
    async fn give_up(&self, run: &Run, stop: &Stop, error: &rye_journal::Error) {
        let record = self.journal().run(&run.id).await.ok().flatten();
        let run = record.as_deref().unwrap_or(run);
        let is_over = run.status().is_terminal();
        let is_ours = self
            .live()
            .get(&run.id)
            .is_some_and(|now| now.is_same(stop));
        if is_over || !is_ours || stop.is_shutdown() {
            tracing::info!(run = %run.id, error = %with_sources(error), "the run was left");
            return;
        }
        tracing::error!(run = %run.id, error = %with_sources(error), "the run cannot continue");
        if !error.is_final() {
            let text = format!("the run cannot continue: {}", with_sources(error));
            self.fail(run, Failure::permanent("internal", text)).await;
        }
    }

    async fn fail(&self, run: &Run, error: Failure) {
        let event = run.end_by_failure(self.journal().now(), error);
        self.end(run, event).await;
    }

    /// Commits a terminal event. The run may have ended in another way meanwhile, which is no error.
    pub(super) async fn end(&self, run: &Run, event: Event) {
        let record = self.journal().snapshot(&run.id);
        let events = record.as_deref().unwrap_or(run).with_settlement(event);
        let changes = events
            .into_iter()
            .map(|event| Change::event(&run.id, event));
        if let Err(error) = self.journal().commit(changes.collect()).await {
            tracing::warn!(run = %run.id, error = %with_sources(&error), "the run was not ended this way");
        }
    }

    /// Handles a stop of a run that waits for the files of its project.
    async fn stop_unopened(
        &self,
        run: &Run,
        stop: &Stop,
    ) -> Result<DriverExit, rye_journal::Error> {
        match stop.cancel_cause() {
            Some(cause) if !stop.is_shutdown() => {
                if let Some(process) = run.spec.process().filter(|process| process.survive) {
                    let survivors = &self.services().survivors;
                    survivors.stop(&run.id, process.grace()).await;
                }
                let record = self.journal().run(&run.id).await?;
                let run = record.as_deref().unwrap_or(run);
                self.end(run, run.end_by_cancel(self.journal().now(), &cause))
                    .await;
                Ok(DriverExit::Ended)
            }
            Some(_) | None => Ok(DriverExit::Interrupted(KillReceipt::default())),
        }
    }

    /// Opens the project of `run`. While its directory is missing or was replaced, the run is suspended, as on a full
    /// disk.
    async fn open(&self, run: &Arc<Run>, stop: &Stop) -> Result<Opened, rye_journal::Error> {
        let services = &self.shared.services;
        let mut pauses = Pauses::default();
        loop {
            let opened = tokio::select! {
                opened = services.projects.open(&*run.spec) => opened,
                () = stop.at_least(Urgency::Cancel) => {
                    return self.stop_unopened(run, stop).await.map(Opened::Exited);
                }
            };
            let gone = match opened {
                Ok(project) => return Ok(Opened::Project(project)),
                Err(error) if error.is_gone() => with_sources(&error),
                Err(error) => {
                    let error = Failure::permanent(Exhausted::Project.code(), with_sources(&error));
                    let left = drive::fail(self.journal(), run, error).await;
                    return left.map(Opened::Exited);
                }
            };
            tracing::warn!(run = %run.id, gone, "the project of a run is not there: the run is suspended");
            self.suspend_without_project(run).await?;
            let timer = &*services.clock;
            if let Some(left) = pauses.pass(self.journal(), timer, stop).await? {
                return Ok(Opened::Exited(left));
            }
        }
    }

    async fn suspend_without_project(&self, run: &Run) -> Result<(), rye_journal::Error> {
        let record = self.journal().snapshot(&run.id);
        if record.is_some_and(|record| record.suspension().is_some()) {
            return Ok(());
        }
        let mut why = Suspension::new(SuspendReason::Storage).at(run.current_node());
        why.code = Some(Exhausted::Project.code().to_owned());
        let suspended = Change::event(&run.id, RunEvent::RunSuspended(why).into());
        let suspended = self.journal().commit(vec![suspended]).await?;
        self.journal().durable(suspended.ticket).await
    }

    async fn drive(
        &self,
        run: &Arc<Run>,
        stop: &Stop,
        asker: Option<EnvelopeRequest>,
    ) -> Result<DriverExit, rye_journal::Error> {
        let services = &self.shared.services;
        let projects = &services.projects;
        let project = match self.open(run, stop).await? {
            Opened::Project(project) => project,
            Opened::Exited(left) => return Ok(left),
        };
        // It may have been suspended until its project was available.
        let record = self.journal().snapshot(&run.id);
        let run = record.as_ref().unwrap_or(run);
        let at = RunContext::new(services, project, run);
        match &run.spec.task {
            Task::Graph(task) => match projects.policy(&task.source.policy).await {
                Ok(policy) => graph::drive(at, &task.source, policy, run, stop).await,
                Err(error) => {
                    let failure = Failure::permanent("configuration_invalid", with_sources(&error));
                    drive::fail(self.journal(), run, failure).await
                }
            },
            Task::Unreadable => {
                let failure = Failure::permanent("graph_missing", "the run holds no graph");
                drive::fail(self.journal(), run, failure).await
            }
            Task::Thread(source) => thread::drive(at, source, run, stop).await,
            Task::Process(spec) => managed::drive(at, spec, run, stop).await,
            Task::Tool => {
                let trace = asker.as_ref().map(|asker| asker.trace).unwrap_or_default();
                let (left, answer) = tool::drive(at, run, stop, trace).await?;
                if let (Some(asker), Some(answer)) = (asker, answer) {
                    task::reply(asker.envelope, answer);
                }
                Ok(left)
            }
        }
    }
}
