//! The transitions of the call of a tool run.

use std::sync::Arc;

use serde_json::Value;

use super::WorkState;
use crate::clock::Timestamp;
use crate::model::attempt::{Attempt, Slot};
use crate::model::event::{Event, StepStarted, ToolCancelled, ToolCompleted, ToolEvent};
use crate::model::life::Outcome;
use crate::model::spec::Spec;
use crate::model::tool::ToolState;

impl ToolState {
    /// The only transition of the call; it may end in any state.
    pub(super) fn apply(&mut self, event: &ToolEvent) {
        match event {
            // The call stays in flight, like that of a cancelled or killed run.
            ToolEvent::ToolCompleted(completed) if completed.unknown => {}
            ToolEvent::ToolCompleted(completed) => {
                let failed = completed.error.is_some();
                let result = failed.then(|| Arc::clone(&completed.result));
                *self = Self::Over(result.unwrap_or_default());
            }
            ToolEvent::ToolCancelled(_) => {}
        }
    }
}

impl ToolState {
    /// True if its call is at-most-once and may have taken effect, although its run has ended.
    pub fn is_unknown(&self) -> bool {
        self.attempt().is_some_and(Attempt::is_unknown)
    }
}

impl WorkState for ToolState {
    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_> {
        Box::new(self.attempt().into_iter())
    }

    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt> {
        match self {
            Self::Calling(attempt) if (attempt.id.step, attempt.id.slot) == (step, slot) => {
                Some(attempt)
            }
            Self::Calling(_) | Self::New | Self::Over(_) => None,
        }
    }

    fn start_step(&mut self, at: Timestamp, started: &StepStarted) -> bool {
        let before = match self {
            Self::New => None,
            Self::Calling(attempt) if attempt.replays => Some(&*attempt),
            Self::Calling(_) | Self::Over(_) => return false,
        };
        let attempt = started.attempt(at).repeating(before);
        *self = Self::Calling(Attempt {
            child: None,
            ..attempt
        });
        true
    }

    fn location<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
        self.attempt().map(|_| spec.item.id.as_str())
    }

    fn step(&self) -> Option<u32> {
        self.attempt().map(|attempt| attempt.id.step)
    }

    fn result(&self) -> Option<&Arc<Value>> {
        match self {
            Self::Over(result) => Some(result),
            Self::New | Self::Calling(_) => None,
        }
    }

    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event> {
        let (result, error) = match outcome {
            Outcome::Completed { output } | Outcome::CompletedWithErrors { output } => {
                (output, None)
            }
            Outcome::Error { error } => (Arc::new(Value::Null), Some(error)),
            Outcome::Cancelled { cause } => {
                return Some(ToolCancelled { cause }.into());
            }
            Outcome::Killed { .. } => return None,
        };
        let attempt = self.attempt();
        let completed = ToolCompleted {
            result,
            unknown: error.is_some() && attempt.is_some_and(Attempt::is_unknown),
            error,
            elapsed_ms,
        };
        Some(completed.into())
    }
}
