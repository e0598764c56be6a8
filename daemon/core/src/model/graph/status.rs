//! End states of steps, and the errors after which a graph continues.

use serde::{Deserialize, Serialize};

/// An error of a node after which the graph continued, as the node declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressedError {
    pub step: u32,
    pub node: String,
    pub error: String,
}

/// End state of a step, as `steps --json` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Ok,
    Error,
    /// A return node ended the graph.
    Return,
    /// A gate assigned state and chose an edge.
    Gate,
    /// The items of a foreach node are done.
    Foreach,
    /// The branches of a parallel node are done.
    Parallel,
    /// A wait is over.
    Wait,
    /// A person approved.
    Approval,
    /// A service is ready.
    Service,
    /// The result of an earlier run was used.
    Cached,
    /// The outcome of its action was unknown, and a person declared it done.
    Declared,
}

impl StepStatus {
    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Return => "return",
            Self::Gate => "gate",
            Self::Foreach => "foreach",
            Self::Parallel => "parallel",
            Self::Wait => "wait",
            Self::Approval => "approval",
            Self::Service => "service",
            Self::Cached => "cached",
            Self::Declared => "declared",
        }
    }
}
