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
            ToolEvent::ToolCompleted(completed) => {
                let failed = completed.error.is_some();
                let result = failed.then(|| Arc::clone(&completed.result));
                *self = Self::Over(result.unwrap_or_default());
            }
            ToolEvent::ToolCancelled(_) => {}
        }
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
        let is_new = *self == Self::New;
        if is_new {
            *self = Self::Calling(Attempt {
                child: None,
                ..started.attempt(at)
            });
        }
        is_new
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
        let completed = ToolCompleted {
            result,
            error,
            elapsed_ms,
        };
        Some(completed.into())
    }
}
