//! Facts about a managed process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::model::failure::Failure;
use crate::model::limits::is_zero;
use crate::model::log_cursor::LogCursor;
use crate::model::process::{ReadySign, RestartReason};
use crate::model::process_end::ProcessEnd;
use crate::model::process_probe::{Ports, Unready};
use crate::model::process_watch::{WatchMinute, WatchRule};

/// An attempt is about to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLaunched {
    /// Number of the attempt, from 1. It is the `step` of `process_started` and `process_exited`.
    pub attempt: u32,
    /// The idempotency key handed to the process.
    pub key: String,
    #[serde(default, skip_serializing_if = "Ports::is_empty")]
    pub ports: Ports,
}

/// The attempt in flight is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReady {
    pub attempt: u32,
    pub by: ReadySign,
    /// Time since its start in milliseconds.
    pub after_ms: u64,
}

/// The attempt in flight was not ready in time. It keeps running, and may become ready later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUnready {
    pub attempt: u32,
    pub why: Unready,
}

/// A person or a run requested the attempt in flight to be stopped and another one to follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRestartRequested {
    /// The requester, for people.
    pub by: String,
}

/// The processes of the attempt in flight stand still until they are thawed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFrozen {
    pub attempt: u32,
    /// The requester, for people.
    pub by: String,
}

/// The processes of the attempt in flight go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessThawed {
    pub attempt: u32,
    /// The requester, for people.
    pub by: String,
}

/// Another attempt follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRestartScheduled {
    /// Number of that attempt.
    pub attempt: u32,
    pub because: RestartReason,
    /// Failures in a row so far.
    pub failures: u32,
    pub due: Timestamp,
    /// The failure of the attempt before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// Lines matched a rule: they are part of a message to the thread that owns the process, in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessWatched {
    pub rule: String,
    /// Position up to which matches of the rule were on record.
    pub from: LogCursor,
    /// Position up to which they are now.
    pub to: LogCursor,
    /// Number of lines in the message.
    pub lines: u64,
    /// Number of lines that matched, without those that were suppressed.
    pub matched: u64,
    /// Number of lines that matched after the rule had its matches of a minute. With any it rests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
    /// The minute in which the last match is counted.
    pub minute: WatchMinute,
}

/// The owner of the process added rules, or rules with the same ids begin anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessWatchChanged {
    pub rules: Vec<WatchRule>,
    /// Position after which their lines begin.
    pub from: LogCursor,
}

/// No attempt follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnded {
    /// Number of attempts after the first one.
    pub restarts: u32,
    /// The end of the last attempt, if one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessEnd>,
    /// Absent on success and after a stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The user or component that requested the stop, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<String>,
    /// Wall time since the process was accepted, in milliseconds.
    pub elapsed_ms: u64,
}

impl ProcessEnded {
    /// Returns the output of the run.
    pub(super) fn output(&self) -> Arc<Value> {
        let code = self.end.as_ref().and_then(|end| end.exit_code);
        Arc::new(json!({"exit_code": code, "restarts": self.restarts}))
    }
}
