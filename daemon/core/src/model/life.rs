//! The life of a run, the same for every kind.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;
use super::kill::KillReceipt;
use super::suspension::Suspension;
use crate::error::{ErrorKind, Kinded};

/// Where a run is in its life. What it does meanwhile is its [`Work`](super::Work).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// Accepted and durable, not started.
    Created,
    /// Owned by a task of this daemon.
    Running,
    /// Suspended; it resumes under the same id.
    Suspended(Arc<Suspension>),
    /// Over. An ended run is never relabelled.
    Ended(Arc<Outcome>),
}

impl Life {
    /// The status users see.
    pub fn status(&self) -> Status {
        match self {
            Self::Created => Status::Created,
            Self::Running => Status::Running,
            Self::Suspended(_) => Status::Suspended,
            Self::Ended(outcome) => outcome.status(),
        }
    }
}

/// The name of a part of a life, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, not started.
    Created,
    /// Owned by a task.
    Running,
    /// Suspended.
    Suspended,
    /// Ended well.
    Completed,
    /// Ended well, errors were suppressed.
    CompletedWithErrors,
    /// Failed.
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

    /// The name used on the wire, in files and in `--json`.
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

    /// Whether nothing can follow.
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

    /// Whether it has ended as it should, errors that the graph went past included.
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

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was to do. `output` is the return node's template, or a tool's result.
    Completed {
        /// What it returned.
        output: Arc<Value>,
    },
    /// It got to its end, with errors suppressed on the way.
    CompletedWithErrors {
        /// What it returned.
        output: Arc<Value>,
    },
    /// It failed.
    Error {
        /// Why.
        error: Failure,
    },
    /// It was asked to stop, and did.
    Cancelled {
        /// Who or what asked.
        cause: String,
    },
    /// It was ended by force.
    Killed {
        /// Who or what asked; empty in old records.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
        /// What was ended.
        receipt: KillReceipt,
    },
}

impl Outcome {
    /// Its name, as users see it.
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

/// An event that a run cannot take where it stands: a bug in the code that committed it, or a task that lost its run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {phase} cannot take the event `{event}`")]
pub struct Illegal {
    /// Its status, and where it stands.
    pub phase: String,
    /// The event's type.
    pub event: &'static str,
}

impl Kinded for Illegal {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}
