//! Why a run is suspended, and what it waits for.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::id::RunId;
use crate::ledger::AccountId;

/// Why a run is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    /// It reached a limit that may be raised.
    Limit,
    /// Its budget is used up.
    Budget,
    /// A node failed, and somebody is to look at it.
    Error,
    /// Somebody is to approve what comes next.
    Approval,
    /// The daemon restarted and the run asked not to be resumed by itself.
    Restart,
    /// An at-most-once step was in flight when the daemon went down, or its answer never came.
    Uncertain,
    /// The disk that holds the log is full.
    Storage,
    /// The child run it waits for is suspended.
    Child,
    /// Resuming it brought the daemon down three times.
    CrashLoop,
    /// Somebody asked.
    User,
}

impl SuspendReason {
    /// Every reason.
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

    /// The reason a hook may name; the error lists those.
    pub(super) fn asked(word: &str) -> Result<Self, String> {
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

/// A suspended run: why, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// The reason.
    pub reason: SuspendReason,
    /// A code for programs, where the reason has several.
    pub code: Option<String>,
    /// The node before which it was suspended.
    pub node: Option<String>,
    /// How much is used of the limit it reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// That limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// The account that has too little, for the reason `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
    /// The suspended child run that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// At-most-once attempts that may have executed: node names, with the item's position where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<String>,
    /// The failure behind which it was suspended, for the person who is asked about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<Failure>>,
}

impl Suspension {
    /// Suspended for `reason`.
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

    /// The same, before `node`.
    #[must_use]
    pub fn at(mut self, node: Option<&str>) -> Self {
        self.node = node.map(str::to_owned);
        self
    }
}
