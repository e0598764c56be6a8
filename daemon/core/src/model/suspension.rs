//! The reason for which a run is suspended, and what it waits for.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::id::RunId;
use crate::ledger::AccountId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    /// The run reached a limit that may be raised.
    Limit,
    /// The budget of the run is used up.
    Budget,
    /// A node failed, and a person should look at it.
    Error,
    /// A person must approve the next step.
    Approval,
    /// The daemon restarted, and the run is declared not to resume by itself.
    Restart,
    /// An at-most-once step was in flight when the daemon went down, or its answer never came.
    Uncertain,
    /// The disk that holds the log is full.
    Storage,
    /// The child run that the run waits for is suspended.
    Child,
    /// Resuming it brought the daemon down three times.
    CrashLoop,
    /// A user requested it.
    User,
}

impl SuspendReason {
    pub const ALL: [Self; 10] = [
        Self::Limit,
        Self::Budget,
        Self::Error,
        Self::Approval,
        Self::Restart,
        Self::Uncertain,
        Self::Storage,
        Self::Child,
        Self::CrashLoop,
        Self::User,
    ];

    /// The name used on the wire and in `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Budget => "budget",
            Self::Error => "error",
            Self::Approval => "approval",
            Self::Restart => "restart",
            Self::Uncertain => "uncertain",
            Self::Storage => "storage",
            Self::Child => "child",
            Self::CrashLoop => "crash_loop",
            Self::User => "user",
        }
    }

    /// Reads the reason that a hook names. The error lists the reasons that hooks may name.
    pub(super) fn parse_requested(word: &str) -> Result<Self, String> {
        const OPEN: [SuspendReason; 5] = [
            SuspendReason::Limit,
            SuspendReason::Budget,
            SuspendReason::Error,
            SuspendReason::Approval,
            SuspendReason::User,
        ];
        let found = OPEN.into_iter().find(|reason| reason.as_str() == word);
        found.ok_or_else(|| {
            let words: Vec<_> = OPEN.iter().map(|reason| reason.as_str()).collect();
            format!(
                "`suspend_reason` is one of {}, not {word:?}",
                words.join(", ")
            )
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub reason: SuspendReason,
    /// Code for programs, for a reason with several causes.
    pub code: Option<String>,
    /// The node before which the run was suspended.
    pub node: Option<String>,
    /// The amount used of the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The account that has too little, for the reason `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
    /// The suspended child run that the run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// At-most-once attempts that may have executed: node names, with the position of an item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<String>,
    /// The failure after which the run was suspended, for the person who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<Failure>>,
}

impl Suspension {
    pub const fn new(reason: SuspendReason) -> Self {
        Self {
            reason,
            code: None,
            node: None,
            current: None,
            max: None,
            account: None,
            child: None,
            uncertain: Vec::new(),
            failure: None,
        }
    }

    /// Makes the suspension of a run that waits for the suspended run `child`.
    pub fn for_child(child: RunId) -> Self {
        Self {
            child: Some(child),
            ..Self::new(SuspendReason::Child)
        }
    }

    /// Adds the node before which the run is suspended.
    #[must_use]
    pub fn at(mut self, node: Option<&str>) -> Self {
        self.node = node.map(str::to_owned);
        self
    }
}
