//! The closed vocabulary of facts about a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Control, Effect, Failure, KillReceipt, Object, Outcome, ProcessIdentity, Slot, Spec, Status,
    StepStatus, Suspension, Verdict,
};
use crate::clock::Timestamp;
use crate::id::{Epoch, RunId};

/// A fact about a run. Its serialised form is the `event_type` and `payload` of the log, the transcript and the
/// event stream alike; it grows by new variants and new optional fields only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
pub enum Event {
    /// The run was accepted. Always the first event.
    RunCreated(Arc<Spec>),
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
    /// A node with an effect is attempted, or a tool run's one call. For a foreach node its items follow, each with
    /// events of its own.
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
        /// Number of items, for a foreach node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        items: Option<u32>,
        /// The run that carries the step out; created in the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<RunId>,
        /// Hash over graph, node, action, chain and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
    },
    /// An attempt in flight has a process. Written, not waited for: it matters within one boot only.
    ProcessStarted {
        /// Number of the step.
        step: u32,
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Slot::is_action")]
        slot: Slot,
        /// The process.
        process: ProcessIdentity,
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
        result: Value,
        /// What kind of failure: `{category, code, retryable, retry_policy}`.
        classification: Value,
        /// Whether another try does no harm and may help.
        repeatable: bool,
        /// Whether its effect must not happen twice and may have happened.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        spent: bool,
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
        /// Hash over graph, node, action, chain and configuration: the key of its result.
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
        result: Value,
        /// What is collected, if it is not the result: the id of its thread, or its error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        collected: Option<Value>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// Whether its effect provably did not begin.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        never_began: bool,
        /// Whether something that must not happen twice was cut off in the run that carried it out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut_off: bool,
        /// Whether the node goes on although it failed (`on_item_error: collect`).
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
    /// Hooks whose actions have effects are asked about an event of the graph, one after the other.
    HooksBegun {
        /// The event: `graph_started`, `after_step`, `error`, `limit` or `graph_completed`.
        event: String,
        /// The hooks, by their place in the list of the graph's and the configured ones.
        hooks: Vec<u32>,
        /// What they are told, without the state.
        context: Object,
        /// `_now` of their templates: the same in every try.
        now: Timestamp,
    },
    /// The action of a hook is attempted.
    HookStarted {
        /// Steps taken.
        step: u32,
        /// The event it is asked about.
        event: String,
        /// Id of the hook.
        hook: String,
        /// Its place in the list of hooks.
        index: u32,
        /// Try of this action, from 1.
        attempt: u32,
        /// What is called.
        action_id: String,
        /// The idempotency key handed to the tool.
        key: String,
        /// The run that carries it out; created in the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<RunId>,
    },
    /// A hook has answered.
    HookCompleted {
        /// Steps taken.
        step: u32,
        /// The event it was asked about.
        event: String,
        /// Id of the hook.
        hook: String,
        /// Its place in the list of hooks.
        index: u32,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// Its answer, if it gave one that counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<Control>,
        /// Why its action failed: a warning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// The run may take more steps.
    LimitExtended {
        /// The new absolute limit.
        max_steps: u32,
        /// Who asked for it: the id of a hook.
        by: String,
    },
    /// Somebody said what became of an attempt whose outcome nobody knew.
    UncertainAnswered {
        /// Number of the step.
        step: u32,
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Slot::is_action")]
        slot: Slot,
        /// What became of it.
        verdict: Verdict,
        /// Who said so.
        by: String,
    },
    /// A tool of the run wrote an event of its own (`rye/agent/threads/internal/emitter`).
    Emitted {
        /// The event's own name.
        name: String,
        /// Its content.
        content: Value,
    },
    /// Something the author of the graph should know: a path that led nowhere, types that do not compare, a dead end.
    Warning {
        /// The node at hand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// What, for people.
        message: String,
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
        /// What was called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action_id: Option<String>,
        /// What the action gave back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Whether the result is one of an earlier run of the same inputs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache_hit: bool,
        /// Hash over graph, node, action, chain and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
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
        /// A new limit of steps that came with the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_steps: Option<u32>,
    },
    /// The walk is over and hooks are asked about it; the terminal event follows.
    GraphEnding {
        /// What the run comes to.
        outcome: Outcome,
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
    /// The end of a graph run that is accepted and cannot begin, in the commit that creates it.
    pub const fn never_began(error: Failure) -> Self {
        Self::GraphError {
            error,
            steps: 0,
            elapsed_ms: 0,
        }
    }

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
            | Self::RunResumed { .. }
            | Self::StepFailed { .. }
            | Self::RetryScheduled { .. }
            | Self::ItemStarted { .. }
            | Self::ItemCompleted { .. }
            | Self::ForeachCompleted { .. }
            | Self::HooksBegun { .. }
            | Self::HookStarted { .. }
            | Self::HookCompleted { .. }
            | Self::LimitExtended { .. }
            | Self::UncertainAnswered { .. }
            | Self::Emitted { .. }
            | Self::Warning { .. }
            | Self::GraphEnding { .. } => false,
        }
    }
}

impl Event {
    /// The word for every event, as [`Event::name`] gives it.
    pub const NAMES: [&str; 28] = [
        "run_created",
        "run_started",
        "graph_started",
        "step_started",
        "process_started",
        "step_completed",
        "cancel_requested",
        "step_failed",
        "retry_scheduled",
        "item_started",
        "item_completed",
        "foreach_completed",
        "hooks_begun",
        "hook_started",
        "hook_completed",
        "limit_extended",
        "uncertain_answered",
        "emitted",
        "warning",
        "graph_ending",
        "run_suspended",
        "run_resumed",
        "graph_completed",
        "graph_error",
        "graph_cancelled",
        "tool_completed",
        "tool_cancelled",
        "run_killed",
    ];

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
            Self::StepFailed { .. } => "step_failed",
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::ItemStarted { .. } => "item_started",
            Self::ItemCompleted { .. } => "item_completed",
            Self::ForeachCompleted { .. } => "foreach_completed",
            Self::HooksBegun { .. } => "hooks_begun",
            Self::HookStarted { .. } => "hook_started",
            Self::HookCompleted { .. } => "hook_completed",
            Self::LimitExtended { .. } => "limit_extended",
            Self::UncertainAnswered { .. } => "uncertain_answered",
            Self::Emitted { .. } => "emitted",
            Self::Warning { .. } => "warning",
            Self::GraphEnding { .. } => "graph_ending",
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
            Self::RunKilled { cause, receipt } => Some(Outcome::Killed {
                cause: cause.clone(),
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
            | Self::RunResumed { .. }
            | Self::StepFailed { .. }
            | Self::RetryScheduled { .. }
            | Self::ItemStarted { .. }
            | Self::ItemCompleted { .. }
            | Self::ForeachCompleted { .. }
            | Self::HooksBegun { .. }
            | Self::HookStarted { .. }
            | Self::HookCompleted { .. }
            | Self::LimitExtended { .. }
            | Self::UncertainAnswered { .. }
            | Self::Emitted { .. }
            | Self::Warning { .. }
            | Self::GraphEnding { .. } => None,
        }
    }
}
