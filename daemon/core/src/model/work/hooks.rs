//! The transitions of a round of hooks.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::model::attempt::{Attempt, AttemptId, Effect, Slot};
use crate::model::event::{HookCompleted, HookStarted, HooksBegun};
use crate::model::round::Round;

impl Round {
    /// Begins a round in which no hook was called yet.
    pub(crate) fn begin(begun: &HooksBegun) -> Self {
        Self {
            event: begun.event.as_str().into(),
            waiting: begun.hooks.iter().copied().collect(),
            context: Arc::clone(&begun.context),
            now: begun.now,
            answer: None,
            running: None,
        }
    }

    pub(crate) fn start(&mut self, at: Timestamp, started: &HookStarted) {
        let id = AttemptId {
            step: started.step,
            slot: Slot::Hook(started.index),
            number: started.attempt,
        };
        let attempt = Attempt {
            key: started.key.as_str().into(),
            child: started.child.clone(),
            ..Attempt::new(id, Effect::Idempotent, at)
        };
        self.running = Some(attempt.repeating(self.running.as_ref()));
    }

    pub(crate) fn complete(&mut self, completed: &HookCompleted) {
        self.waiting.pop_front();
        self.running = None;
        if let (None, Some(control)) = (&self.answer, &completed.control) {
            self.answer = Some((control.clone(), completed.hook.as_str().into()));
        }
    }
}
