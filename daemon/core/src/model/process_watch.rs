//! The model of watch rules: lines of a managed process that become messages to the thread that owns it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::log_cursor::LogCursor;
use crate::clock::Timestamp;

/// Limit of the rules of a process.
pub const MOST_WATCH_RULES: usize = 16;

/// A rule as it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRule {
    pub id: String,
    /// A regular expression over lines without their colours.
    #[serde(rename = "match")]
    pub pattern: String,
    /// True if its first message ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// Matches of a minute after which it rests.
    pub max_per_minute: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchStatus {
    #[default]
    Active,
    /// Too many lines matched in a minute: it ignores all lines until it is requested again.
    Resting,
    /// Its only message was sent.
    Over,
}

impl WatchStatus {
    /// The word in results of tools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Resting => "resting",
            Self::Over => "over",
        }
    }
}

/// The minute in which matches of a rule are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMinute {
    /// Time of its first match.
    pub from: Timestamp,
    pub matched: u32,
}

/// A rule and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedRule {
    pub rule: WatchRule,
    #[serde(default)]
    pub status: WatchStatus,
    /// Position up to which its matches are on record.
    #[serde(default)]
    pub to: LogCursor,
    /// Number of its matches.
    #[serde(default)]
    pub matched: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minute: Option<WatchMinute>,
}

impl WatchedRule {
    /// Makes a rule for the lines after `from`.
    pub const fn new(rule: WatchRule, from: LogCursor) -> Self {
        Self {
            rule,
            status: WatchStatus::Active,
            to: from,
            matched: 0,
            minute: None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.status == WatchStatus::Active
    }

    /// The form in results of tools.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.rule.id,
            "match": self.rule.pattern,
            "once": self.rule.once,
            "max_per_minute": self.rule.max_per_minute,
            "status": self.status.as_str(),
            "matched": self.matched,
        })
    }
}

/// The rules of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessWatch {
    pub rules: Vec<WatchedRule>,
}

impl ProcessWatch {
    /// Makes the state of a process that was started with `rules`.
    pub fn new(rules: &[WatchRule]) -> Self {
        let begun = |rule: &WatchRule| WatchedRule::new(rule.clone(), LogCursor::default());
        Self {
            rules: rules.iter().map(begun).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
