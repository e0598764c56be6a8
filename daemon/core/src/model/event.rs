//! The closed vocabulary of facts about a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Birth, Effect, Failure, KillReceipt, Object, Outcome, ProcessIdentity, Status, StepStatus,
    Suspension,
};
use crate::clock::Timestamp;
use crate::id::{Epoch, RunId};

/// A fact about a run. Its serialised form is the `event_type` and `payload` of the log, the transcript and the
/// event stream alike; it grows by new variants and new optional fields only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
pub enum Event {
    /// The run was accepted. Always the first event.
    RunCreated(Arc<Birth>),
    /// A task of this daemon owns the run now: its first start, or its return after a restart.
    RunStarted {
        /// The daemon's life it runs in.
        epoch: Epoch,
    },
    /// The walk begins.
    GraphStarted {
        /// Id of the graph.
        graph_id: String,
        /// The run.
        graph_run_id: RunId,
        /// The first node.
        start_node: String,
        /// `config.state` of the graph.
        state: Object,
    },
    /// A node with an effect is attempted, or a tool run's one call.
    StepStarted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How often the node was entered before.
        visit: u32,
        /// Try of this step, from 1.
        attempt: u32,
        /// What is called, as `tool:rye/bash`.
        action_id: String,
        /// What a second run of it would mean.
        effect: Effect,
        /// The idempotency key handed to the tool.
        key: String,
        /// `_now` of the step: the same in every try.
        now: Timestamp,
    },
    /// The step in flight has a process. Written, not waited for: it matters within one boot only.
    ProcessStarted {
        /// Number of the step.
        step: u32,
        /// The process.
        process: ProcessIdentity,
    },
    /// A node is done.
    StepCompleted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How it ended.
        status: StepStatus,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// The node that follows; none ends the graph.
        next_node: Option<String>,
        /// New values of state keys.
        assigned: Object,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// Whether the graph goes on although it failed (`on_error: continue`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        suppressed: bool,
        /// What a return node returns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    /// Somebody asked the run to stop.
    CancelRequested {
        /// Who or what, for people.
        cause: String,
    },
    /// The run is parked.
    RunSuspended(Suspension),
    /// A parked run goes on.
    RunResumed {
        /// The daemon's life it goes on in.
        epoch: Epoch,
    },
    /// The graph came to its end.
    GraphCompleted {
        /// `completed` or `completed_with_errors`.
        status: Status,
        /// Steps taken.
        steps: u32,
        /// Wall time since the run was created, in milliseconds.
        elapsed_ms: u64,
        /// What the return node returned; `{}` without one.
        output: Value,
    },
    /// The graph failed, or could not begin.
    GraphError {
        /// Why.
        error: Failure,
        /// Steps taken.
        steps: u32,
        /// Wall time since the run was created, in milliseconds.
        elapsed_ms: u64,
    },
    /// The graph stopped on request.
    GraphCancelled {
        /// Who or what asked.
        cause: String,
        /// Steps taken.
        steps: u32,
        /// Wall time since the run was created, in milliseconds.
        elapsed_ms: u64,
    },
    /// A tool run came to an end by itself.
    ToolCompleted {
        /// Its result (present on failure too, where the tool gave one).
        result: Value,
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
    /// The run was ended by force.
    RunKilled {
        /// Who or what asked.
        cause: String,
        /// What was ended.
        receipt: KillReceipt,
    },
}

impl Event {
    /// Whether the head of the run is signed at this event: at the end of each step and whenever a run parks or ends.
    pub const fn is_boundary(&self) -> bool {
        match self {
            Self::StepCompleted { .. }
            | Self::RunSuspended(_)
            | Self::GraphCompleted { .. }
            | Self::GraphError { .. }
            | Self::GraphCancelled { .. }
            | Self::ToolCompleted { .. }
            | Self::ToolCancelled { .. }
            | Self::RunKilled { .. } => true,
            Self::RunCreated(_)
            | Self::RunStarted { .. }
            | Self::GraphStarted { .. }
            | Self::StepStarted { .. }
            | Self::ProcessStarted { .. }
            | Self::CancelRequested { .. }
            | Self::RunResumed { .. } => false,
        }
    }
}

impl Event {
    /// The word for this event in logs, transcripts and streams.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RunCreated(_) => "run_created",
            Self::RunStarted { .. } => "run_started",
            Self::GraphStarted { .. } => "graph_started",
            Self::StepStarted { .. } => "step_started",
            Self::ProcessStarted { .. } => "process_started",
            Self::StepCompleted { .. } => "step_completed",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::RunSuspended(_) => "run_suspended",
            Self::RunResumed { .. } => "run_resumed",
            Self::GraphCompleted { .. } => "graph_completed",
            Self::GraphError { .. } => "graph_error",
            Self::GraphCancelled { .. } => "graph_cancelled",
            Self::ToolCompleted { .. } => "tool_completed",
            Self::ToolCancelled { .. } => "tool_cancelled",
            Self::RunKilled { .. } => "run_killed",
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::GraphCompleted { status, output, .. } => {
                Some(if *status == Status::CompletedWithErrors {
                    Outcome::CompletedWithErrors {
                        output: output.clone(),
                    }
                } else {
                    Outcome::Completed {
                        output: output.clone(),
                    }
                })
            }
            Self::GraphError { error, .. }
            | Self::ToolCompleted {
                error: Some(error), ..
            } => Some(Outcome::Error {
                error: error.clone(),
            }),
            Self::GraphCancelled { cause, .. } | Self::ToolCancelled { cause } => {
                Some(Outcome::Cancelled {
                    cause: cause.clone(),
                })
            }
            Self::ToolCompleted {
                result,
                error: None,
                ..
            } => Some(Outcome::Completed {
                output: result.clone(),
            }),
            Self::RunKilled { receipt, .. } => Some(Outcome::Killed {
                receipt: receipt.clone(),
            }),
            Self::RunCreated(_)
            | Self::RunStarted { .. }
            | Self::GraphStarted { .. }
            | Self::StepStarted { .. }
            | Self::ProcessStarted { .. }
            | Self::StepCompleted { .. }
            | Self::CancelRequested { .. }
            | Self::RunSuspended(_)
            | Self::RunResumed { .. } => None,
        }
    }
}
