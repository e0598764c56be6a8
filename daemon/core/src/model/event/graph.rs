//! Facts about the walk of a graph.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::RunId;
use crate::model::attempt::Effect;
use crate::model::failure::Failure;
use crate::model::graph::{StepStatus, Waits};
use crate::model::life::{Outcome, Status};

/// The walk begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphStarted {
    /// Id of the graph.
    pub graph_id: String,
    /// The run.
    pub graph_run_id: RunId,
    /// The first node.
    pub start_node: String,
    /// `config.state` of the graph.
    pub state: Vars,
}

/// An attempt of a node failed. What follows is decided by the node's `retry`, by hooks and by its error mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFailed {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How often the node was entered before.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    /// Why.
    pub error: Failure,
    /// What the action gave back all the same.
    pub result: Arc<Value>,
    /// What kind of failure: `{category, code, retryable, retry_policy}`.
    pub classification: Value,
    /// Whether another try does no harm and may help.
    pub repeatable: bool,
    /// Whether it is at-most-once, and its outcome unknown.
    #[serde(default, rename = "spent", skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// The failed node is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryScheduled {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Number of the coming try.
    pub attempt: u32,
    /// Retries of this node since it was entered by an edge, this one included.
    pub retries: u32,
    /// Not before.
    pub due: Timestamp,
    /// Who asked for it: `node`, or the id of a hook.
    pub by: String,
}

/// An item of a foreach node is attempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemStarted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Position in `over`, from 0.
    pub item: u32,
    /// Try of this item, from 1.
    pub attempt: u32,
    /// What is called.
    pub action_id: String,
    /// What a second run of it would mean.
    pub effect: Effect,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries the item out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters: what is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of all that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Hash over graph, node, `call`, `chain` and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

/// An item of a foreach node is done.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes all others"
)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemCompleted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Position in `over`, from 0.
    pub item: u32,
    /// `ok`, `error` or `cached`.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// What it gave back.
    pub result: Arc<Value>,
    /// What is collected, if it is not the result: the id of its thread, or its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collected: Option<Arc<Value>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What the item is, of one that failed: the beginning of its value, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Whether it never started.
    #[serde(
        default,
        rename = "never_began",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub never_started: bool,
    /// Whether the child run that carried it out left at-most-once attempts of unknown outcome.
    #[serde(
        default,
        rename = "cut_off",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub unknown_below: bool,
    /// Whether its action had done its work, and only what is collected of it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncollected: bool,
    /// Whether the node continues although it failed (`on_item_error: collect`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

/// All items of a foreach node that were to run are done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeachCompleted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How many items there are.
    pub items: u32,
    /// How many of them failed.
    pub failed: u32,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
}

/// All branches of a parallel node that were to run are done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelCompleted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How many branches there are.
    pub branches: u32,
    /// How many of them failed.
    pub failed: u32,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
}

/// A node waits: for a time, or for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepWaiting {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How often the node was entered before.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    /// For what.
    pub waits: Waits,
}

/// The run may take more steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitExtended {
    /// The new absolute limit.
    pub max_steps: u32,
    /// Who asked for it: the id of a hook.
    pub by: String,
}

/// A node is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCompleted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How it ended.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
    /// New values of state keys.
    pub assigned: Vars,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Whether the graph continues although it failed (`on_error: continue`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// What a return node returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// What was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_id: Option<String>,
    /// What the action gave back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
    /// Whether the result is one of an earlier run of the same inputs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache_hit: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

/// The walk is over and hooks are asked about it; the terminal event follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphEnding {
    /// What the run comes to.
    pub outcome: Arc<Outcome>,
}

/// The graph came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphCompleted {
    /// `completed` or `completed_with_errors`.
    pub status: Status,
    /// Steps taken.
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
    /// What the return node returned; `{}` without one.
    pub output: Arc<Value>,
}

/// The graph failed, or could not begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphError {
    /// Why.
    pub error: Failure,
    /// Steps taken.
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
}

/// The graph stopped on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphCancelled {
    /// Who or what asked.
    pub cause: String,
    /// Steps taken.
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
}
