//! A run that meets ENOSPC, or a host that has too little of something, is suspended until there is more again.

use std::sync::Arc;

use rye_core::error::with_sources;
use rye_core::machine::{Call, Machine as _};
use rye_core::model::{Event, RunEvent, SuspendReason, Suspension};

use super::plan::{Plan, Planned};
use super::{Drive, Job, Kind};
use crate::exhausted::Exhausted;
use crate::services::Ended;
use crate::stop::DriverExit;

/// What there is too little of.
pub(super) enum Lack {
    /// Space on the disk.
    Space(rye_journal::Error),
    /// Something without which nothing begins.
    Host(Exhausted),
}

/// Why the driver does not continue.
pub(super) enum Live {
    /// The run has ended, or was left.
    Left(DriverExit),
    /// Something cannot begin on this host now.
    Lacking(Exhausted),
}

impl<K: Kind> Drive<'_, K> {
    /// `false` if the call cannot begin on this host now, and is offered again.
    pub(super) async fn admit_job(
        &mut self,
        plan: &mut Plan<K>,
        call: Box<Call>,
        job: Job<K::Plan>,
    ) -> bool {
        if let Job::Exhausted(lack) = job {
            self.lack = Some(lack);
            return false;
        }
        plan.admit(self.services.clock.tick(), call, job).await;
        true
    }

    /// What is in flight ends, the run is suspended, and it resumes when there is space again. What its calls came to is
    /// written down before, as far as there is space for that (the log keeps some); what is
    /// too long waits here, and is lost only if the run is stopped meanwhile: then its attempt is still in flight in the
    /// record, and is recovered like one that the daemon's end cut off.
    pub(super) async fn wait_for(
        &mut self,
        lack: &Lack,
    ) -> Result<Option<DriverExit>, rye_journal::Error> {
        let code = match lack {
            Lack::Space(error) => {
                tracing::warn!(error = %with_sources(error), "there is no space to write: the run is suspended");
                None
            }
            Lack::Host(lack) => {
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
        self.lack = None;
        self.suspend(code).await?;
        loop {
            let clock = Arc::clone(&self.services.clock);
            let pauses = match lack {
                Lack::Space(_) => &mut self.pauses,
                Lack::Host(_) => &mut self.tries,
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

    /// Suspends the run with the facts, or, if there is no space for those, without them. One that the daemon found suspended
    /// when it started stays so.
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
        // Facts that end the run cannot stand before its suspension.
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
            // What it really came to may be among the facts, and comes too late.
            let is_other =
                |fact: &Event| !matches!(fact, Event::Run(RunEvent::BudgetSettled { .. }));
            self.facts.retain(is_other);
        }
        let changes = self.changes(record.with_settlement(suspended));
        self.services.journal.commit(changes).await.map(drop)
    }

    /// Resumes the run from its record and the facts that it does not hold yet, if there is space for these.
    async fn resume(&mut self) -> Result<(), rye_journal::Error> {
        let resumes = RunEvent::resumed(self.services.epoch);
        let facts = self.facts.iter().cloned();
        let changes = self.changes([resumes.into()].into_iter().chain(facts));
        let committed = self.services.journal.commit(changes).await?;
        self.forget_facts();
        if self.unstarted.is_empty() {
            self.begin_anew(committed.run(&self.id));
        } else {
            // What could not begin is in flight to the machine, and begins now.
            self.rebase(committed.run(&self.id));
        }
        Ok(())
    }

    /// Looks up again what was announced and could not begin, and begins it, if it can be now.
    pub(super) async fn begin_unstarted(&mut self) {
        let calls = std::mem::take(&mut self.unstarted);
        if calls.is_empty() {
            return;
        }
        let looked_up: Vec<&Call> = calls.iter().collect();
        let jobs = tokio::select! {
            jobs = self.kind.look_up(self.machine.run(), &looked_up) => jobs,
            // Its project may hang; in the record they are in flight.
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
