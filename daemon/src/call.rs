//! Drives one tool run: one call, written down before and after.
//!
//! **Order.** The call starts when its announcement is durable. **Failure.** A commit that finds no room parks the run, and
//! what the call came to waits in memory. A tool run that was in flight when the daemon went down is not repeated: nobody can
//! tell whether its effect happened, and nobody asked for a second one. It ends as `error` with the code `interrupted`; a
//! graph node, which declares its `effect`, is repeated (see [`crate::graph`]).

use std::sync::Arc;

use rye_core::capability::Primary;
use rye_core::definition::Authority;
use rye_core::error::with_sources;
use rye_core::id::ItemRef;
use rye_core::model::{
    Effect, Event, Failure, KillReceipt, Run, RunEvent, Slot, SuspendReason, Suspension, ToolEvent,
};
use rye_core::walker::idempotency_key;

use crate::async_log;
use crate::chain::Origin;
use crate::journal::{self, Change};
use crate::projects::Project;
use crate::services::{AttemptCtx, Envelope, Order, Services, TraceMode};
use crate::stop::{DriverExit, Stop};
use crate::storage_backoff;

/// Carries out `run`; the envelope is there if the tool was called in this life of the daemon.
pub async fn drive(
    services: &Arc<Services>,
    project: Arc<Project>,
    run: &Run,
    stop: &Stop,
    trace: TraceMode,
) -> Result<(DriverExit, Option<Envelope>), journal::Error> {
    let mut record = Record {
        services,
        run,
        stop,
        parked: run.suspension().is_some(),
        pauses: storage_backoff::Pauses::default(),
    };
    if run.step().is_some() {
        let end = run.end_by_failure(services.journal.now(), interrupted());
        let left = record.keep(Begins::Now, end).await?;
        return Ok((left.unwrap_or(DriverExit::Ended), None));
    }
    let item = run.spec.item.clone();
    let key = idempotency_key(run.spec.effect_scope(), item.id.as_str(), 0, None, None);
    let started = announcement(services, &item, &key);
    if let Some(left) = record.keep(Begins::Now, started).await? {
        return Ok((left, None));
    }

    let order = Order {
        origin: Origin {
            run: run.id.clone(),
            spec: Arc::clone(&run.spec),
            attempt: 1,
            key: key.clone(),
        },
        project: Arc::clone(&project),
        primary: Primary::Execute,
        item,
        params: run.spec.inputs.clone(),
        trace,
        authority: Authority::Run,
        timeout: None,
    };
    let cx = AttemptCtx {
        run: run.id.clone(),
        spec: Arc::clone(&run.spec),
        step: 1,
        slot: Slot::Main,
        key,
        stop: stop.clone(),
        span: tracing::Span::current(),
        services: Arc::clone(services),
    };
    let prepared = tokio::select! {
        mut prepared = services.dispatch.prepare(vec![order]) => prepared.pop(),
        () = stop.due() => None,
    };
    let Some(prepared) = prepared else {
        return Ok((record.end_unprepared().await?, None));
    };
    let reply = services.dispatch.carry_out(prepared, &cx).await;
    let (now, caller) = (services.journal.now(), run.spec.item.to_string());
    async_log::keep(
        project.gate(),
        &run.id,
        &run.spec,
        now,
        &caller,
        &reply.stderr,
    )
    .await;
    if reply.stopped && stop.is_shutdown() {
        return Ok((DriverExit::Interrupted(reply.receipt), Some(reply.envelope)));
    }
    let end = match stop.cancel_cause() {
        Some(cause) if reply.stopped => Event::Tool(ToolEvent::ToolCancelled { cause }),
        Some(_) | None => Event::Tool(ToolEvent::ToolCompleted {
            result: Arc::new(reply.envelope.data.clone()),
            error: reply.envelope.failure.clone(),
            elapsed_ms: u64::try_from(reply.envelope.elapsed.as_millis()).unwrap_or(u64::MAX),
        }),
    };
    let left = record.keep(Begins::Before, end).await?;
    // What is not on record did not happen, to whoever asks.
    let answer = left.is_none().then_some(reply.envelope);
    Ok((left.unwrap_or(DriverExit::Ended), answer))
}

/// Whether this life of the daemon takes the run up with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// It did so before.
    Before,
    /// It does.
    Now,
}

/// Writes the run down.
struct Record<'a> {
    services: &'a Services,
    run: &'a Run,
    stop: &'a Stop,
    parked: bool,
    pauses: storage_backoff::Pauses,
}

impl Record<'_> {
    /// Commits `event` and waits until it is durable; with how the run was left, if it was stopped before there was room.
    async fn keep(
        &mut self,
        begins: Begins,
        event: Event,
    ) -> Result<Option<DriverExit>, journal::Error> {
        loop {
            let taken_up = (begins == Begins::Now).then(|| self.taken_up());
            let events = taken_up.into_iter().chain([event.clone()]);
            match self.commit(events).await {
                Err(error) if error.is_out_of_space() => {
                    if !self.parked {
                        tracing::warn!(error = %with_sources(&error), "there is no room to write: the run parks");
                        let why = Suspension::new(SuspendReason::Storage);
                        self.commit([Event::Run(RunEvent::RunSuspended(why))])
                            .await?;
                        self.parked = true;
                    }
                }
                committed => {
                    committed?;
                    self.parked &= begins == Begins::Before;
                    return Ok(None);
                }
            }
            let left = self.pauses.pass(&self.services.journal, self.stop).await?;
            if left.is_some() {
                return Ok(left);
            }
        }
    }

    /// The call was to stop while it waited for the files of its project: nothing of it has happened.
    async fn end_unprepared(&mut self) -> Result<DriverExit, journal::Error> {
        match self.stop.cancel_cause() {
            Some(cause) if !self.stop.is_shutdown() => {
                let left = self.keep(
                    Begins::Before,
                    Event::Tool(ToolEvent::ToolCancelled { cause }),
                );
                Ok(left.await?.unwrap_or(DriverExit::Ended))
            }
            Some(_) | None => Ok(DriverExit::Interrupted(KillReceipt::default())),
        }
    }

    fn taken_up(&self) -> Event {
        let epoch = self.services.epoch;
        if self.parked {
            let max_steps = None;
            Event::Run(RunEvent::RunResumed { epoch, max_steps })
        } else {
            Event::Run(RunEvent::RunStarted { epoch })
        }
    }

    async fn commit(&self, events: impl IntoIterator<Item = Event>) -> Result<(), journal::Error> {
        let changes = events
            .into_iter()
            .map(|event| Change::event(&self.run.id, event))
            .collect();
        let ticket = self.services.journal.commit(changes).await?;
        self.services.journal.durable(ticket).await
    }
}

fn announcement(services: &Services, item: &ItemRef, key: &str) -> Event {
    Event::Run(RunEvent::StepStarted {
        step: 1,
        node: item.id.to_string(),
        visit: 0,
        attempt: 1,
        action_id: item.to_string(),
        effect: Effect::Idempotent,
        key: key.to_owned(),
        now: services.journal.now(),
        items: None,
        child: None,
        node_input_hash: None,
    })
}

/// Why a call failed that was in flight when the daemon went down.
fn interrupted() -> Failure {
    let text = "the daemon went down during the call; whether its effect happened is unknown, so it is not repeated";
    Failure {
        retryable: true,
        ..Failure::permanent("interrupted", text)
    }
}
