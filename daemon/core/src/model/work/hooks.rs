//! The transitions of a round of hooks.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::attempt::{Attempt, AttemptId, Effect, Slot};
use crate::model::event::RunEvent;
use crate::model::round::Round;

impl Round {
    /// Takes in what happens to the round at `slot`; `false` if `event` is none of a round, or this one cannot take it.
    pub(crate) fn take(slot: &mut Option<Self>, at: Timestamp, event: &RunEvent) -> bool {
        if let RunEvent::HooksBegun {
            event,
            hooks,
            context,
            now,
        } = event
        {
            *slot = Some(Self {
                event: event.as_str().into(),
                waiting: hooks.iter().copied().collect(),
                context: Arc::clone(context),
                now: *now,
                answer: None,
                running: None,
            });
            return true;
        }
        let Some(round) = slot else { return false };
        if let RunEvent::HookStarted {
            step,
            index,
            attempt,
            key,
            child,
            ..
        } = event
        {
            let id = AttemptId {
                step: *step,
                slot: Slot::Hook(*index),
                number: *attempt,
            };
            let attempt = Attempt {
                key: key.as_str().into(),
                child: child.clone(),
                ..Attempt::new(id, Effect::Idempotent, at)
            };
            round.running = Some(attempt.repeating(round.running.as_ref()));
            return true;
        }
        if let RunEvent::HookCompleted { control, hook, .. } = event {
            round.waiting.pop_front();
            round.running = None;
            if let (None, Some(control)) = (&round.answer, control) {
                round.answer = Some((control.clone(), hook.as_str().into()));
            }
            return true;
        }
        false
    }
}
