//! A run that meets ENOSPC: suspended until there is space again.

use std::sync::Arc;

use rye_core::error::with_sources;
use rye_core::machine::Machine as _;
use rye_core::model::{Event, RunEvent, SuspendReason, Suspension};

use super::{Drive, Kind};
use crate::journal;
use crate::stop::DriverExit;

impl<K: Kind> Drive<'_, K> {
    /// What is in flight ends, the run is suspended, and it resumes when there is space again. What its calls came to is
    /// written down before, as far as there is space for that (the log keeps some); what is
    /// too long waits here, and is lost only if the run is stopped meanwhile: then its attempt is still in flight in the
    /// record, and is recovered like one that the daemon's end cut off.
    pub(super) async fn wait_for_space(
        &mut self,
        error: &journal::Error,
    ) -> Result<Option<DriverExit>, journal::Error> {
        tracing::warn!(error = %with_sources(error), "there is no space to write: the run is suspended");
        while let Some((call, ended)) = self.next_end().await {
            self.take(&call, ended);
        }
        self.suspend().await?;
        loop {
            let clock = Arc::clone(&self.services.clock);
            let passed = self.pauses.pass(&self.services.journal, &*clock, self.stop);
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
    async fn suspend(&mut self) -> Result<(), journal::Error> {
        let record = self.services.journal.snapshot(&self.id);
        if record
            .as_ref()
            .is_some_and(|record| record.suspension().is_some())
        {
            return Ok(());
        }
        let suspended: Event =
            RunEvent::RunSuspended(Suspension::new(SuspendReason::Storage)).into();
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
    async fn resume(&mut self) -> Result<(), journal::Error> {
        let resumes = RunEvent::resumed(self.services.epoch);
        let facts = self.facts.iter().cloned();
        let changes = self.changes([resumes.into()].into_iter().chain(facts));
        let committed = self.services.journal.commit(changes).await?;
        self.facts.clear();
        self.begin_anew(committed.run(&self.id));
        Ok(())
    }
}
