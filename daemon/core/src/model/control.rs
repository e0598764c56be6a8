//! Answers of hooks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::suspension::SuspendReason;

/// Retries of a node that a hook grants if it names no number.
pub const DEFAULT_RETRIES: u32 = 3;
/// Steps by which a hook extends a run if it names no number.
pub const DEFAULT_EXTENSION: u32 = 50;

pub(super) const ACTIONS: [&str; 7] = [
    "retry", "fail", "abort", "suspend", "escalate", "continue", "skip",
];

/// The answer of a hook to the event about which it was called, as the tool `rye/agent/threads/internal/control` states
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Control {
    /// Run the failed node again.
    Retry {
        /// Most retries of the node, counted from its entry by an edge.
        max_retries: u32,
    },
    /// End the run with an error.
    Fail {
        /// The cause, if the hook gives one.
        error: Option<String>,
    },
    /// End the run with an error at the request of the hook.
    Abort,
    Suspend {
        /// The cause, if the hook gives one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<SuspendReason>,
        /// The question, if a person must approve.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Suspend the run at its limit or after its failure, so that a person can decide.
    Escalate,
    /// Continue: past the failed node, or beyond the limit.
    Continue {
        /// Steps by which a limit is raised.
        additional_steps: u32,
    },
    /// Continue past the failed node as if it did not exist.
    Skip,
}

impl Control {
    /// Reads `{action: …}` with the parameters of `internal/control`. Returns `None` if the value is no control answer
    /// at all, and an error that describes an invalid one.
    pub fn parse(value: &Value) -> Result<Option<Self>, String> {
        let Some(action) = value.get("action") else {
            return Ok(None);
        };
        let number = |key: &str, default: u32| match value.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(given) => given
                .as_u64()
                .and_then(|given| u32::try_from(given).ok())
                .ok_or_else(|| format!("`{key}` is a whole number from 0, not {given}")),
        };
        let word = |key: &str| value.get(key).and_then(Value::as_str);
        let control = match action.as_str() {
            Some("retry") => Self::Retry {
                max_retries: number("max_retries", DEFAULT_RETRIES)?,
            },
            Some("fail") => Self::Fail {
                error: word("error").map(str::to_owned),
            },
            Some("abort") => Self::Abort,
            Some("suspend") => Self::Suspend {
                reason: word("suspend_reason")
                    .map(SuspendReason::parse_requested)
                    .transpose()?,
                message: word("message").map(str::to_owned),
            },
            Some("escalate") => Self::Escalate,
            Some("continue") => Self::Continue {
                additional_steps: number("additional_steps", DEFAULT_EXTENSION)?,
            },
            Some("skip") => Self::Skip,
            Some(_) | None => {
                return Err(format!(
                    "{action} is no control action; there are {}",
                    ACTIONS.join(", ")
                ));
            }
        };
        Ok(Some(control))
    }

    /// Returns the reason for which this answer to `event` suspends a run, if it does.
    pub fn suspends(&self, event: &str) -> Option<SuspendReason> {
        let of_failure = (event == "error").then_some(SuspendReason::Error);
        match self {
            Self::Suspend { reason, .. } => reason.or(of_failure).or(Some(SuspendReason::User)),
            Self::Escalate => of_failure.or(Some(SuspendReason::Limit)),
            Self::Retry { .. }
            | Self::Fail { .. }
            | Self::Abort
            | Self::Continue { .. }
            | Self::Skip => None,
        }
    }

    /// Returns its question to a person, if it has one.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Suspend { message, .. } => message.clone(),
            Self::Retry { .. }
            | Self::Fail { .. }
            | Self::Abort
            | Self::Escalate
            | Self::Continue { .. }
            | Self::Skip => None,
        }
    }

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Fail { .. } => "fail",
            Self::Abort => "abort",
            Self::Suspend { .. } => "suspend",
            Self::Escalate => "escalate",
            Self::Continue { .. } => "continue",
            Self::Skip => "skip",
        }
    }
}
