//! The life of a run, the same for every kind.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;
use super::kill::KillReceipt;
use super::suspension::Suspension;
use crate::error::{ErrorKind, Kinded};

/// The position of a run in its life. Its activity meanwhile is its [`Work`](super::Work).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// Accepted and durable, not started.
    Created,
    /// Owned by a task of this daemon.
    Running,
    /// The run is suspended; it resumes under the same id.
    Suspended(Arc<Suspension>),
    /// The run has ended. An ended run is never relabelled.
    Ended(Arc<Outcome>),
}

impl Life {
    pub fn status(&self) -> Status {
        match self {
            Self::Created => Status::Created,
            Self::Running => Status::Running,
            Self::Suspended(_) => Status::Suspended,
            Self::Ended(outcome) => outcome.status(),
        }
    }
}

/// The status of a run, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, not started.
    Created,
    /// Owned by a task.
    Running,
    Suspended,
    /// The run completed without errors.
    Completed,
    /// The run completed; errors were suppressed.
    CompletedWithErrors,
    Error,
    /// Stopped on request.
    Cancelled,
    /// Ended by force.
    Killed,
}

impl Status {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Running,
        Self::Suspended,
        Self::Completed,
        Self::CompletedWithErrors,
        Self::Error,
        Self::Cancelled,
        Self::Killed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Completed => "completed",
            Self::CompletedWithErrors => "completed_with_errors",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
        }
    }

    /// True if no other status can follow.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Created | Self::Running | Self::Suspended => false,
            Self::Completed
            | Self::CompletedWithErrors
            | Self::Error
            | Self::Cancelled
            | Self::Killed => true,
        }
    }

    /// True if the run completed, with or without suppressed errors.
    pub const fn is_success(self) -> bool {
        match self {
            Self::Completed | Self::CompletedWithErrors => true,
            Self::Created
            | Self::Running
            | Self::Suspended
            | Self::Error
            | Self::Cancelled
            | Self::Killed => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The run completed. `output` is the return node's template, or a tool's result.
    Completed {
        output: Arc<Value>,
    },
    /// The run completed with suppressed errors.
    CompletedWithErrors {
        output: Arc<Value>,
    },
    Error {
        error: Failure,
    },
    /// The run stopped on request.
    Cancelled {
        /// The user or component that requested it.
        cause: String,
    },
    /// The run was ended by force.
    Killed {
        /// The user or component that requested it; empty in old records.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
        receipt: KillReceipt,
    },
}

impl Outcome {
    pub const fn status(&self) -> Status {
        match self {
            Self::Completed { .. } => Status::Completed,
            Self::CompletedWithErrors { .. } => Status::CompletedWithErrors,
            Self::Error { .. } => Status::Error,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::Killed { .. } => Status::Killed,
        }
    }
}

/// An event that a run cannot take in its state: a bug in the code that committed it, or a task that lost its run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {phase} cannot take the event `{event}`")]
pub struct Illegal {
    /// Status and position of the run.
    pub phase: String,
    pub event: &'static str,
}

impl Kinded for Illegal {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}
