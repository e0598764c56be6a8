//! Facts about the walk of a graph.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use super::Facets;
use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::RunId;
use crate::model::attempt::Effect;
use crate::model::failure::Failure;
use crate::model::graph::{StepStatus, Waits};
use crate::model::life::{Outcome, Status};

/// A fact about the walk of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GraphEvent {
    /// The walk begins.
    GraphStarted {
        /// Id of the graph.
        graph_id: String,
        /// The run.
        graph_run_id: RunId,
        /// The first node.
        start_node: String,
        /// `config.state` of the graph.
        state: Vars,
    },
    /// An attempt of a node failed. What follows is decided by the node's `retry`, by hooks and by its error mode.
    StepFailed {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How often the node was entered before.
        visit: u32,
        /// Try of this step, from 1.
        attempt: u32,
        /// `_now` of the step.
        now: Timestamp,
        /// Why.
        error: Failure,
        /// What the action gave back all the same.
        result: Arc<Value>,
        /// What kind of failure: `{category, code, retryable, retry_policy}`.
        classification: Value,
        /// Whether another try does no harm and may help.
        repeatable: bool,
        /// Whether it is at-most-once, and its outcome unknown.
        #[serde(default, rename = "spent", skip_serializing_if = "std::ops::Not::not")]
        unknown: bool,
    },
    /// The failed node is tried again.
    RetryScheduled {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// Number of the coming try.
        attempt: u32,
        /// Retries of this node since it was entered by an edge, this one included.
        retries: u32,
        /// Not before.
        due: Timestamp,
        /// Who asked for it: `node`, or the id of a hook.
        by: String,
    },
    /// An item of a foreach node is attempted.
    ItemStarted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// Position in `over`, from 0.
        item: u32,
        /// Try of this item, from 1.
        attempt: u32,
        /// What is called.
        action_id: String,
        /// What a second run of it would mean.
        effect: Effect,
        /// The idempotency key handed to the tool.
        key: String,
        /// The run that carries the item out; created in the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<RunId>,
        /// Hash over primary, item and parameters: what is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// Hash over the verified contents of all that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
        /// Hash over graph, node, `call`, `chain` and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
    },
    /// An item of a foreach node is done.
    ItemCompleted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// Position in `over`, from 0.
        item: u32,
        /// `ok`, `error` or `cached`.
        status: StepStatus,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// What it gave back.
        result: Arc<Value>,
        /// What is collected, if it is not the result: the id of its thread, or its error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        collected: Option<Arc<Value>>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// What the item is, of one that failed: the beginning of its value, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        about: Option<String>,
        /// Whether it never started.
        #[serde(
            default,
            rename = "never_began",
            skip_serializing_if = "std::ops::Not::not"
        )]
        never_started: bool,
        /// Whether the child run that carried it out left at-most-once attempts of unknown outcome.
        #[serde(
            default,
            rename = "cut_off",
            skip_serializing_if = "std::ops::Not::not"
        )]
        unknown_below: bool,
        /// Whether its action had done its work, and only what is collected of it failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        uncollected: bool,
        /// Whether the node continues although it failed (`on_item_error: collect`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        suppressed: bool,
        /// Hash over graph, node, action, chain and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
    },
    /// All items of a foreach node that were to run are done.
    ForeachCompleted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How many items there are.
        items: u32,
        /// How many of them failed.
        failed: u32,
        /// The node that follows; none ends the graph.
        next_node: Option<String>,
    },
    /// All branches of a parallel node that were to run are done.
    ParallelCompleted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How many branches there are.
        branches: u32,
        /// How many of them failed.
        failed: u32,
        /// The node that follows; none ends the graph.
        next_node: Option<String>,
    },
    /// A node waits: for a time, or for an answer.
    StepWaiting {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How often the node was entered before.
        visit: u32,
        /// Try of this step, from 1.
        attempt: u32,
        /// `_now` of the step.
        now: Timestamp,
        /// For what.
        waits: Waits,
    },
    /// The run may take more steps.
    LimitExtended {
        /// The new absolute limit.
        max_steps: u32,
        /// Who asked for it: the id of a hook.
        by: String,
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
        assigned: Vars,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// Whether the graph continues although it failed (`on_error: continue`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        suppressed: bool,
        /// What a return node returns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Arc<Value>>,
        /// What was called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action_id: Option<String>,
        /// What the action gave back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Value>>,
        /// Whether the result is one of an earlier run of the same inputs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache_hit: bool,
        /// Hash over graph, node, action, chain and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
    },
    /// The walk is over and hooks are asked about it; the terminal event follows.
    GraphEnding {
        /// What the run comes to.
        outcome: Arc<Outcome>,
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
        output: Arc<Value>,
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
}

impl GraphEvent {
    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::GraphStarted { .. } => Facets::BEGINS,
            Self::ItemStarted { .. } | Self::StepWaiting { .. } => Facets::ATTEMPT,
            Self::StepFailed { .. } | Self::ItemCompleted { .. } => Facets::PROGRESS,
            Self::StepCompleted { .. } => Facets {
                boundary: true,
                ..Facets::PROGRESS
            },
            Self::RetryScheduled { .. }
            | Self::ForeachCompleted { .. }
            | Self::ParallelCompleted { .. }
            | Self::LimitExtended { .. }
            | Self::GraphEnding { .. } => Facets::PLAIN,
            Self::GraphCompleted { .. } | Self::GraphError { .. } | Self::GraphCancelled { .. } => {
                Facets::ENDS
            }
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::GraphCompleted { status, output, .. } => {
                let output = Arc::clone(output);
                Some(if *status == Status::CompletedWithErrors {
                    Outcome::CompletedWithErrors { output }
                } else {
                    Outcome::Completed { output }
                })
            }
            Self::GraphError { error, .. } => Some(Outcome::Error {
                error: error.clone(),
            }),
            Self::GraphCancelled { cause, .. } => Some(Outcome::Cancelled {
                cause: cause.clone(),
            }),
            Self::GraphStarted { .. }
            | Self::StepFailed { .. }
            | Self::RetryScheduled { .. }
            | Self::ItemStarted { .. }
            | Self::ItemCompleted { .. }
            | Self::ForeachCompleted { .. }
            | Self::ParallelCompleted { .. }
            | Self::StepWaiting { .. }
            | Self::LimitExtended { .. }
            | Self::StepCompleted { .. }
            | Self::GraphEnding { .. } => None,
        }
    }
}
