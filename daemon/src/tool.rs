//! Tool runs: one call, whose whole answer a caller may wait for.
//!
//! **Failure.** A call in flight when the daemon stopped is not repeated ([`rye_core::tool`]).

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rye_core::machine::Call;
use rye_core::model::{Effect, Run};
use rye_core::tool::ToolMachine;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::drive::{self, Job, Kind, Reports, RunContext};
use crate::services::{Ended, Envelope, Prepared, TraceMode};
use crate::stop::{DriverExit, Stop};

struct ToolRun {
    at: RunContext,
    trace: TraceMode,
    envelope: Mutex<Option<Envelope>>,
}

/// Drives `run`. The envelope is present if the tool answered since the daemon started, and the answer is recorded.
pub async fn drive(
    at: RunContext,
    run: &Arc<Run>,
    stop: &Stop,
    trace: TraceMode,
) -> Result<(DriverExit, Option<Envelope>), rye_journal::Error> {
    let services = Arc::clone(&at.services);
    let kind = Arc::new(ToolRun {
        at,
        trace,
        envelope: Mutex::default(),
    });
    let exit = drive::drive(&services, Arc::clone(&kind), run, stop).await?;
    let answered = kind.answered().take();
    // An answer that is not recorded must not be visible to callers.
    let envelope = answered.filter(|_| exit == DriverExit::Ended);
    Ok((exit, envelope))
}

impl ToolRun {
    fn answered(&self) -> std::sync::MutexGuard<'_, Option<Envelope>> {
        self.envelope.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind for ToolRun {
    type Machine = ToolMachine;
    type Plan = Prepared;

    fn machine(&self, run: Arc<Run>) -> ToolMachine {
        ToolMachine::new(run)
    }

    async fn look_up(&self, _run: &Run, calls: &[&Call]) -> Vec<Job<Prepared>> {
        let orders = calls.iter().copied();
        let prepared = self.at.prepare_all(orders, self.trace).await;
        let begin = |(plan, call): (Prepared, &&Call)| match plan.shortage() {
            Some(lack) => Job::Exhausted(lack),
            None => Job::Begin {
                hashes: plan.hashes(call, None),
                plan,
                child: None,
                creates: Vec::new(),
            },
        };
        prepared.into_iter().zip(calls).map(begin).collect()
    }

    fn effect(plan: &Prepared) -> Option<Effect> {
        plan.chain.as_ref().and_then(Chain::effect)
    }

    fn replays(plan: &Prepared) -> bool {
        plan.chain.as_ref().is_some_and(Chain::replays)
    }

    async fn answer(
        &self,
        _run: &Run,
        query: &Infallible,
    ) -> Result<Infallible, rye_journal::Error> {
        match *query {}
    }

    async fn carry_out(
        &self,
        call: &Call,
        mut prepared: Prepared,
        stop: &Stop,
        _reports: &Reports<Infallible>,
    ) -> Ended {
        let heading = call.item.id.to_string();
        let envelope = prepared.envelope();
        let (since, begun) = (prepared.since, Instant::now());
        let ended = self.at.carry_out(call, prepared, stop, &heading).await;
        if let Ended::Outcome(outcome) = &ended {
            *self.answered() = Some(Envelope {
                data: Value::clone(&outcome.result),
                failure: outcome.failure.clone(),
                process: outcome.process.clone(),
                trace: envelope.trace.map(|trace| timed(trace, begun)),
                elapsed: since.elapsed(),
                ..envelope
            });
        }
        ended
    }
}

/// Adds the duration of the call, which began at `begun`, to the trace; the last entry holds the times.
fn timed(mut trace: Vec<Value>, begun: Instant) -> Vec<Value> {
    if let Some(timing) = trace.last_mut() {
        let elapsed = u64::try_from(begun.elapsed().as_millis());
        timing["run_ms"] = json!(elapsed.unwrap_or(u64::MAX));
    }
    trace
}
