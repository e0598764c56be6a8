//! The machine of a tool run: one call.
//!
//! **Order.** The call is made once. **Failure.** A call that was in flight when the daemon went down is not repeated:
//! its effect is unknown, and no one requested a second one. The run ends as `error` with the code `interrupted`. A
//! graph node, which declares its `effect`, is repeated (see [`crate::walker`]). So is the call of a program that
//! repeats its own calls in order, also after the run was suspended for one of these.

use std::convert::Infallible;
use std::sync::Arc;

use serde_json::Value;

use crate::cas::InputHashes;
use crate::clock::{Tick, Timestamp, Uptime};
use crate::id::RunId;
use crate::machine::{Call, CallOutcome, Certainty, Machine, Move, idempotency_key};
use crate::model::event::ToolCompleted;
use crate::model::tool::ToolState;
use crate::model::{
    Attempt, Effect, Event, Failure, Life, Run, RunEvent, Slot, SuspendReason, Suspension, Work,
};

/// Number of the one step.
const STEP: u32 = 1;

#[derive(Debug, Clone)]
pub struct ToolMachine {
    run: Arc<Run>,
    /// Start of the call in this life of the daemon; `None` unless it is in flight.
    running: Option<Uptime>,
    /// Reason to suspend the run before its call.
    held: Option<Suspension>,
    /// Suspended run for which the program of the call was ended.
    waits_for: Option<RunId>,
}

impl ToolMachine {
    /// Makes a machine for `run`, which may be fresh or recovered after a restart.
    pub const fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            running: None,
            held: None,
            waits_for: None,
        }
    }

    fn state(&self) -> ToolState {
        if let Work::Tool(state) = &self.run.work {
            state.clone()
        } else {
            ToolState::Over(Arc::new(Value::Null))
        }
    }

    fn call(&self, now: Timestamp, before: Option<&Attempt>) -> Call {
        let spec = &self.run.spec;
        let name = spec.item.id.as_str();
        Call {
            node: name.to_owned(),
            key: idempotency_key(spec.effect_scope(), name, 0, None, None),
            attempt: before.map_or(1, |before| before.id.number + 1),
            undeclared: true,
            step: STEP,
            ..Call::new(Slot::Main, spec.item.clone(), spec.inputs.clone(), now)
        }
    }

    /// Returns the next event, if the run must stop or its call must not be repeated.
    fn stop(&mut self, now: Tick, state: &ToolState) -> Option<Event> {
        if let Some(cause) = &self.run.cancel {
            return Some(self.run.end_by_cancel(now.at, cause));
        }
        match state {
            ToolState::Calling(attempt) if !repeats(attempt) => {
                Some(self.run.end_by_failure(now.at, interrupted()))
            }
            ToolState::New | ToolState::Calling(_) => {
                let held = self.held.take();
                let waits = self.waits_for.take().map(Suspension::for_child);
                let is_asking = self.run.approvals.awaits(STEP, Slot::Main);
                let asks = is_asking.then(|| Suspension::new(SuspendReason::Approval));
                let why = waits.or(asks).or(held);
                why.map(|why| RunEvent::RunSuspended(why).into())
            }
            ToolState::Over(_) => None,
        }
    }

    fn record(&mut self, now: Timestamp, event: Event) -> Event {
        Arc::make_mut(&mut self.run)
            .apply(now, &event)
            .expect("the machine only emits events its own place allows");
        event
    }
}

/// True if the attempt, which was cut off, is carried out again.
fn repeats(attempt: &Attempt) -> bool {
    attempt.replays && attempt.effect != Effect::AtMostOnce
}

fn interrupted() -> Failure {
    let text = "the daemon went down during the call; whether its effect happened is unknown, so it is not repeated";
    Failure {
        retryable: true,
        ..Failure::permanent("interrupted", text)
    }
}

impl Machine for ToolMachine {
    type Signal = Infallible;
    type Query = Infallible;
    type Answer = Infallible;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
    }

    fn hold(&mut self, why: Suspension) {
        self.held.get_or_insert(why);
    }

    fn next(&mut self, now: Tick) -> Move {
        match &self.run.life {
            Life::Running => {}
            Life::Suspended(_) => return Move::Suspended(Vec::new()),
            Life::Created | Life::Ended(_) => return Move::End(Vec::new()),
        }
        if self.running.is_some() {
            return Move::Wait(Vec::new(), None);
        }
        let state = self.state();
        match self.stop(now, &state) {
            Some(event) => {
                let event = self.record(now.at, event);
                match &self.run.life {
                    Life::Suspended(_) => Move::Suspended(vec![event]),
                    Life::Created | Life::Running | Life::Ended(_) => Move::End(vec![event]),
                }
            }
            None => Move::Call(Vec::new(), Box::new(self.call(now.at, state.attempt()))),
        }
    }

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        vec![self.record(now.at, event.into())]
    }

    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        child: Option<RunId>,
        hashes: InputHashes,
    ) -> Vec<Event> {
        let started = call.step_started(child, hashes);
        self.running = Some(now.up);
        vec![self.record(now.at, started.into())]
    }

    fn conclude(&mut self, now: Tick, _slot: Slot, outcome: &CallOutcome) -> Vec<Event> {
        let since = self.running.take();
        let elapsed = since.map(|since| now.up.since(since)).unwrap_or_default();
        let is_open = outcome.certainty == Certainty::Unknown && outcome.failure.is_some();
        let is_once = |attempt: &Attempt| attempt.effect == Effect::AtMostOnce;
        let completed = ToolCompleted {
            result: Arc::clone(&outcome.result),
            error: outcome.failure.clone(),
            unknown: is_open && self.state().attempt().is_some_and(is_once),
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        };
        vec![self.record(now.at, completed.into())]
    }

    fn on_signal(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn answered(&mut self, _now: Tick, answer: Infallible) -> Vec<Event> {
        match answer {}
    }

    fn abandon(&mut self, _slot: Slot) {
        self.running = None;
    }

    fn suspend_for(&mut self, _slot: Slot, child: RunId) {
        self.running = None;
        self.waits_for = Some(child);
    }
}

#[cfg(test)]
mod tests;
