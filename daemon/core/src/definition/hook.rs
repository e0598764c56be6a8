//! Hooks of a graph.

use serde_json::Value;

use super::work::Action;
use crate::expr::Condition;

/// The layer of the hooks of a graph file.
pub(super) const GRAPH_LAYER: u8 = 1;

/// The tool whose parameters are the answer of a hook.
pub(super) const CONTROL: &str = "rye/agent/threads/internal/control";

/// An action at an event, if a condition holds.
#[derive(Debug, Clone)]
pub struct Hook {
    /// Its name in logs and journals.
    pub id: String,
    pub event: HookEvent,
    /// The condition under which it acts; `None` holds always.
    pub condition: Option<Condition>,
    pub action: HookAction,
    /// 1 the graph's own, 2 built in, 3 infrastructure; lower layers come first.
    pub layer: u8,
    /// The grant that its action needs.
    pub authority: Authority,
}

/// Events at which hooks are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookEvent {
    GraphStarted,
    /// A node has been left.
    AfterStep,
    Error,
    /// The run reached a limit.
    Limit,
    /// The run ends, with any outcome.
    GraphCompleted,
}

impl HookEvent {
    pub const ALL: [Self; 5] = [
        Self::GraphStarted,
        Self::AfterStep,
        Self::Error,
        Self::Limit,
        Self::GraphCompleted,
    ];

    /// The name used in graph files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GraphStarted => "graph_started",
            Self::AfterStep => "after_step",
            Self::Error => "error",
            Self::Limit => "limit",
            Self::GraphCompleted => "graph_completed",
        }
    }

    /// Returns the names that a hook of this event can read, besides those that exist everywhere.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::GraphStarted => &["graph_id", "step_count", "cost"],
            Self::AfterStep => &["node", "next_node", "result", "step_count", "cost"],
            Self::Error => &["error", "classification", "node", "step_count", "cost"],
            Self::Limit => &[
                "limit_code",
                "current_value",
                "current_max",
                "step_count",
                "cost",
            ],
            Self::GraphCompleted => &["graph_id", "steps", "status", "error", "step_count", "cost"],
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

/// The action of a hook.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAction {
    /// An answer: the template of `{action: retry, …}`, which [`Control::parse`](crate::model::Control::parse) reads
    /// once it is evaluated.
    Control(Value),
    Call(Action),
}

impl HookAction {
    /// Returns the use of an item, if it is one.
    pub const fn call(&self) -> Option<&Action> {
        match self {
            Self::Control(_) => None,
            Self::Call(action) => Some(action),
        }
    }
}

/// The grant that the action of a hook needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The run's capabilities.
    Run,
    /// The grant of the node, which only hooks of the system have.
    Node,
}
