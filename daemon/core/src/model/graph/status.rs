//! How steps end, and the errors after which a graph continues.

use serde::{Deserialize, Serialize};

/// A node's error after which the graph continued, as it declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressedError {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Its message.
    pub error: String,
}

/// How a step ended, as `steps --json` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// An action succeeded.
    Ok,
    /// An action failed.
    Error,
    /// A return node ended the graph.
    Return,
    /// A gate assigned and chose an edge.
    Gate,
    /// The items of a foreach node are done.
    Foreach,
    /// The branches of a parallel node are done.
    Parallel,
    /// A time is over.
    Wait,
    /// A person approved.
    Approval,
    /// The result of an earlier run was used.
    Cached,
    /// Nobody knew what became of its action, and somebody declared it done.
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
            Self::Cached => "cached",
            Self::Declared => "declared",
        }
    }
}
