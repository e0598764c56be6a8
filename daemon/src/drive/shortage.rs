//! Suspension of a run on ENOSPC or on a shortage of the host, until the shortage ends.

use std::sync::Arc;

use rye_core::error::with_sources;
use rye_core::machine::{Call, Machine as _};
use rye_core::model::{Event, RunEvent, SuspendReason, Suspension};

use super::plan::{Plan, Planned};
use super::{Drive, Job, Kind};
use crate::exhausted::Exhausted;
use crate::services::Ended;
use crate::stop::DriverExit;

/// Shortage that suspends a run.
pub(super) enum Shortage {
    /// Disk space.
    Space(rye_journal::Error),
    /// A resource without which nothing begins.
    Host(Exhausted),
}

/// Reason why the driver does not continue.
pub(super) enum LoopExit {
    /// The run has ended, was suspended, or was left in flight.
    Exited(DriverExit),
    /// An action cannot begin on this host now.
    Shortage(Exhausted),
}

impl<K: Kind> Drive<'_, K> {
    /// Adds the call to `plan`. Returns false if the call cannot begin on this host now; it is offered again.
    pub(super) async fn admit_job(
        &mut self,
        plan: &mut Plan<K>,
        call: Box<Call>,
        job: Job<K::Plan>,
    ) -> bool {
        if let Job::Exhausted(lack) = job {
            self.shortage = Some(lack);
            return false;
        }
        plan.admit(self.services.clock.tick(), call, job).await;
        true
    }

    /// Waits until nothing is in flight, suspends the run, and resumes it after the shortage.
    ///
    /// Outcomes of its calls are committed before the suspension as far as space permits; the log reserves some. The
    /// others stay in memory. They are lost only if the run is stopped meanwhile: then the attempt is still in flight
    /// in the record, and is recovered like one that a crash interrupted.
    pub(super) async fn wait_for(
        &mut self,
        lack: &Shortage,
    ) -> Result<Option<DriverExit>, rye_journal::Error> {
        let code = match lack {
            Shortage::Space(error) => {
                tracing::warn!(error = %with_sources(error), "there is no space to write: the run is suspended");
                None
            }
            Shortage::Host(lack) => {
                tracing::warn!(
                    lack = lack.code(),
                    "nothing can begin on this host: the run is suspended"
                );
                Some(lack.code())
            }
        };
        while let Some((call, ended)) = self.next_end().await {
            self.take(call, ended).await;
        }
        self.shortage = None;
        self.suspend(code).await?;
        loop {
            let clock = Arc::clone(&self.services.clock);
            let pauses = match lack {
                Shortage::Space(_) => &mut self.pauses,
                Shortage::Host(_) => &mut self.tries,
            };
            let passed = pauses.pass(&self.services.journal, &*clock, self.stop);
            let left = passed.await?;
            if left.is_some() {
                return Ok(left);
            }
            match self.resume().await {
                Ok(()) => return Ok(None),
                Err(error) if error.is_out_of_space() => {
                    tracing::debug!(error = %with_sources(&error), "there is still no space");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Suspends the run in one commit with the facts. If there is no space for them, suspends it without them. A run
    /// that the daemon found suspended when it started stays suspended.
    async fn suspend(&mut self, code: Option<&str>) -> Result<(), rye_journal::Error> {
        let record = self.services.journal.snapshot(&self.id);
        if record
            .as_ref()
            .is_some_and(|record| record.suspension().is_some())
        {
            return Ok(());
        }
        let suspended: Event = RunEvent::RunSuspended(Suspension {
            code: code.map(str::to_owned),
            ..Suspension::new(SuspendReason::Storage)
        })
        .into();
        // Facts that end the run must not precede its suspension.
        if !self.machine.run().status().is_terminal() {
            let events = self.machine.run().with_settlement(suspended.clone());
            let changes = self.changes(events);
            match self.commit(changes).await {
                Err(error) if error.is_out_of_space() => {}
                committed => return committed.map(drop),
            }
        }
        let record = record.unwrap_or_else(|| Arc::clone(self.machine.run()));
        if record.open_call.is_some() {
            // The settlement below closes the open call, so a settlement among the facts comes too late.
            let is_other = |fact: &Event| !matches!(fact, Event::Run(RunEvent::BudgetSettled(_)));
            self.facts.retain(is_other);
        }
        let changes = self.changes(record.with_settlement(suspended));
        self.services.journal.commit(changes).await.map(drop)
    }

    /// Resumes the run from its record, and commits the facts that the record lacks, if there is space for them.
    async fn resume(&mut self) -> Result<(), rye_journal::Error> {
        let resumes = RunEvent::resumed(self.services.epoch);
        let facts = self.facts.iter().cloned();
        let changes = self.changes([resumes.into()].into_iter().chain(facts));
        let committed = self.services.journal.commit(changes).await?;
        self.forget_facts();
        if self.unstarted.is_empty() {
            self.begin_anew(committed.run(&self.id));
        } else {
            // The machine has the calls that could not begin in flight. They begin now.
            self.rebase(committed.run(&self.id));
        }
        Ok(())
    }

    /// Looks up the announced calls that could not begin, and begins those that now can.
    pub(super) async fn begin_unstarted(&mut self) {
        let calls = std::mem::take(&mut self.unstarted);
        if calls.is_empty() {
            return;
        }
        let looked_up: Vec<&Call> = calls.iter().collect();
        let jobs = tokio::select! {
            jobs = self.kind.look_up(self.machine.run(), &looked_up) => jobs,
            // Its project may hang. In the record these calls are in flight.
            () = self.stop.due() => {
                for call in calls {
                    self.machine.abandon(call.slot);
                }
                return;
            }
        };
        let mut begun = Vec::new();
        for (call, job) in calls.into_iter().zip(jobs) {
            let call = Box::new(call);
            match job {
                Job::Exhausted(lack) => self.take(call, Ended::Exhausted(lack)).await,
                Job::Known(outcome, _) => self.take(call, Ended::Outcome(outcome)).await,
                Job::Begin { plan, .. } => begun.push(Planned::again(call, plan)),
            }
        }
        self.begin(begun, None);
    }
}
