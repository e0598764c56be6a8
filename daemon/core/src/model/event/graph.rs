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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphStarted {
    pub graph_id: String,
    pub graph_run_id: RunId,
    pub start_node: String,
    /// `config.state` of the graph.
    pub state: Vars,
}

/// An attempt of a node failed. The node's `retry`, hooks and its error mode decide what follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFailed {
    pub step: u32,
    pub node: String,
    /// Number of earlier visits of the node.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    pub error: Failure,
    /// The result that the action returned although it failed.
    pub result: Arc<Value>,
    /// `{category, code, retryable, retry_policy}`.
    pub classification: Value,
    /// True if another try does no harm and may help.
    pub repeatable: bool,
    /// True if the attempt is at-most-once and its outcome is unknown.
    #[serde(default, rename = "spent", skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// The failed node, or a failed item of it, is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryScheduled {
    pub step: u32,
    pub node: String,
    /// The item that is tried again, by its position from 0; without it the node is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// Number of the coming try.
    pub attempt: u32,
    /// Retries of this node since it was entered by an edge, or of the item in this step, this one included.
    pub retries: u32,
    /// Earliest time of the try.
    pub due: Timestamp,
    /// Requester: `node`, or the id of a hook.
    pub by: String,
    /// The failure of the try of an item; that of a node is in its `step_failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// An item of a foreach node is attempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemStarted {
    pub step: u32,
    pub node: String,
    /// Position in `over`, from 0.
    pub item: u32,
    /// Try of this item, from 1.
    pub attempt: u32,
    pub action_id: String,
    /// The meaning of a second execution.
    pub effect: Effect,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries the item out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of everything that runs.
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
    pub step: u32,
    pub node: String,
    /// Position in `over`, from 0.
    pub item: u32,
    /// `ok`, `error` or `cached`.
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    pub result: Arc<Value>,
    /// The collected value, if it is not the result: the id of its thread, or its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collected: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Beginning of the value of a failed item, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// True if the item never started.
    #[serde(
        default,
        rename = "never_began",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub never_started: bool,
    /// True if the child run that carried it out left at-most-once attempts of unknown outcome.
    #[serde(
        default,
        rename = "cut_off",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub unknown_below: bool,
    /// True if its action succeeded, and only the collection of its value failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncollected: bool,
    /// True if the node continues after the failure (`on_item_error: collect`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeachCompleted {
    pub step: u32,
    pub node: String,
    pub items: u32,
    pub failed: u32,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelCompleted {
    pub step: u32,
    pub node: String,
    pub branches: u32,
    pub failed: u32,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
}

/// A node waits for a time or for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepWaiting {
    pub step: u32,
    pub node: String,
    /// Number of earlier visits of the node.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    pub waits: Waits,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitExtended {
    /// The new absolute limit.
    pub max_steps: u32,
    /// Requester: the id of a hook.
    pub by: String,
}

/// A node is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCompleted {
    pub step: u32,
    pub node: String,
    pub status: StepStatus,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// The node that follows; none ends the graph.
    pub next_node: Option<String>,
    /// New values of state keys.
    pub assigned: Vars,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// True if the graph continues after the failure (`on_error: continue`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// The output of a return node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
    /// True if the result is one of an earlier run with the same inputs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache_hit: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphEnding {
    /// The outcome with which the run will end.
    pub outcome: Arc<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphCompleted {
    /// `completed` or `completed_with_errors`.
    pub status: Status,
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
    /// The output of the return node; `{}` without one.
    pub output: Arc<Value>,
}

/// The graph failed, or could not begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphError {
    pub error: Failure,
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
}

/// The graph stopped on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphCancelled {
    /// The user or component that requested it.
    pub cause: String,
    pub steps: u32,
    /// Wall time since the run was created, in milliseconds.
    pub elapsed_ms: u64,
}

/// A node has a managed process, which the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStarted {
    pub node: String,
    pub handle: RunId,
}

/// A node has waited for a line of a managed process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessWaited {
    pub handle: RunId,
    /// Position after that line.
    pub cursor: String,
}
