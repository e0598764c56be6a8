//! The model of tool runs: one call, written down before and after.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use std::sync::Arc;

use super::event::Facets;
use super::work::WorkState;
use super::{Attempt, AttemptId, Event, Failure, Outcome, RunEvent, Slot, Spec};
use crate::clock::Timestamp;

/// A fact about the call of a tool run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ToolEvent {
    /// A tool run came to an end by itself.
    ToolCompleted {
        /// Its result (present on failure too, where the tool gave one).
        result: Arc<Value>,
        /// Why it failed; absent on success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// Wall time of the call in milliseconds.
        elapsed_ms: u64,
    },
    /// A tool run stopped on request.
    ToolCancelled {
        /// Who or what asked.
        cause: String,
    },
}

impl ToolEvent {
    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::ToolCompleted { .. } | Self::ToolCancelled { .. } => Facets::ENDS,
        }
    }

    /// What the run came to.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            Self::ToolCompleted {
                error: Some(error), ..
            } => Outcome::Error {
                error: error.clone(),
            },
            Self::ToolCompleted {
                result,
                error: None,
                ..
            } => Outcome::Completed {
                output: Arc::clone(result),
            },
            Self::ToolCancelled { cause } => Outcome::Cancelled {
                cause: cause.clone(),
            },
        })
    }
}

/// Where a tool run stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing was called yet.
    #[default]
    New,
    /// Its one call is in flight.
    Calling(Attempt),
    /// The call ended; if it failed, with this result. What one came to that did not is the outcome of the run.
    Over(Arc<Value>),
}

impl State {
    /// The call in flight.
    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Calling(attempt) => Some(attempt),
            Self::New | Self::Over(_) => None,
        }
    }

    /// The only transition of the call; it may end wherever it stands.
    pub(super) fn apply(&mut self, event: &ToolEvent) {
        match event {
            ToolEvent::ToolCompleted {
                result,
                error: Some(_),
                ..
            } => *self = Self::Over(Arc::clone(result)),
            ToolEvent::ToolCompleted { error: None, .. } => *self = Self::Over(Arc::default()),
            ToolEvent::ToolCancelled { .. } => {}
        }
    }
}

impl WorkState for State {
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

    fn start_step(&mut self, at: Timestamp, event: &RunEvent) -> bool {
        let (
            Self::New,
            RunEvent::StepStarted {
                step,
                attempt,
                effect,
                key,
                ..
            },
        ) = (&*self, event)
        else {
            return false;
        };
        let id = AttemptId {
            step: *step,
            slot: Slot::Main,
            number: *attempt,
        };
        *self = Self::Calling(Attempt {
            key: key.as_str().into(),
            ..Attempt::new(id, *effect, at)
        });
        true
    }

    fn place<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
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
                return Some(ToolEvent::ToolCancelled { cause }.into());
            }
            Outcome::Killed { .. } => return None,
        };
        let completed = ToolEvent::ToolCompleted {
            result,
            error,
            elapsed_ms,
        };
        Some(completed.into())
    }
}
