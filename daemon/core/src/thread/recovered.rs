//! A thread whose task began anew: after a crash, or after a suspension.

use crate::clock::{Tick, Timestamp};
use crate::expr::text_of;
use crate::machine::{self, InDoubt, Move};
use crate::model::thread::{CallAt, Class, ThreadState, Turn};
use crate::model::{Because, Effect, Event, Failure, Run, Slot, Verdict};
use crate::provider::Received;
use crate::provider::failure::Charge;

use super::contract::{Contract, Target};
use super::live::ThreadMachine;
use super::model_stream::CallFailure;
use super::query::ThreadQuery;

impl ThreadMachine {
    /// Recovers a model call without a receiver. The model is called again, unless tool calls started from its answer.
    pub(super) fn take_up(&mut self, now: Timestamp, turn: &Turn) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(settled) = self.run.settlement(Because::Crash) {
            self.record(now, &mut events, settled);
        }
        if turn.calls.is_empty() {
            let text = "the daemon went down while the model was called";
            let failed = CallFailure {
                failure: Failure {
                    retryable: true,
                    ..Failure::permanent("interrupted", text)
                },
                class: Class::Interrupted,
                charge: Charge::Hold,
                received: Received::default(),
                pause_ms: 0,
            };
            self.classified(now, &mut events, turn, &failed);
        } else {
            self.record_partial(now, &mut events, turn);
        }
        events
    }

    /// Recovers tool calls that were in flight when the daemon went down: returns the next move for the first of them
    /// that needs one.
    pub(super) fn take_up_calls(&mut self, now: Tick, turn: &Turn) -> Option<Move<ThreadQuery>> {
        let mut events = Vec::new();
        for call in &turn.calls {
            let CallAt::Running {
                attempt,
                undeclared,
            } = &call.at
            else {
                continue;
            };
            let is_parked = self.live.parked.contains(&call.position);
            if is_parked || self.live.running.contains_key(&call.position) {
                continue;
            }
            let again = |child| self.call_again(now, turn, call, attempt, child);
            match (&attempt.child, attempt.verdict) {
                // Its result is that of the run.
                (Some(_), _) if self.live.waits_for.is_some() => {}
                (Some(child), _) => {
                    let Some(call) = again(Some(child.clone())) else {
                        continue;
                    };
                    return Some(Move::Call(events, Box::new(call)));
                }
                (None, Some(Verdict::Done)) => {
                    let known = attempt.declared.as_deref().map(text_of);
                    let text = known.unwrap_or_else(|| r#"{"status":"done"}"#.to_owned());
                    self.answer(now.at, &mut events, &call.id, text, None);
                }
                (None, Some(Verdict::Fail)) => {
                    let text = "somebody looked, and said that it failed";
                    self.refuse(now.at, &mut events, &call.id, "uncertain_failed", text);
                }
                (None, None) if *undeclared => {
                    let text = "the daemon went down during the call; whether it took effect is unknown: check before you repeat it";
                    self.refuse(now.at, &mut events, &call.id, "interrupted", text);
                }
                // A person must state its outcome.
                (None, None) if attempt.effect == Effect::AtMostOnce => {}
                (None, None | Some(Verdict::Retry)) => {
                    let Some(call) = again(None) else {
                        continue;
                    };
                    return Some(Move::Call(events, Box::new(call)));
                }
            }
        }
        (!events.is_empty()).then_some(Move::Note(events))
    }
}

/// Returns the calls of unknown outcome of the thread `run`; `contract` is its contract, if that can be read.
pub fn in_doubt(contract: Option<&Contract>, run: &Run) -> Vec<InDoubt> {
    let turn = run.thread().and_then(ThreadState::turn);
    machine::in_doubt(run, |slot| {
        let Slot::Part(position) = slot else {
            return None;
        };
        let call = turn?.call(position)?;
        match contract?.target(&call.name, &call.input) {
            Target::Execute { item, params, .. } => Some((item, params)),
            Target::Return | Target::Read(_) | Target::Refused { .. } => None,
        }
    })
}
