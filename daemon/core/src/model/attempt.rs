//! Attempts: everything a run does that has an effect, in one form for every kind of run.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::id::{Name, RunId};

/// What running a step a second time would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A repeat with the same idempotency key does no harm: the step in flight at a crash runs again.
    #[default]
    Idempotent,
    /// No effect at all.
    Pure,
    /// At most once: it is repeated only if it provably did not begin.
    AtMostOnce,
}

/// A process, so named that another one with the same pid is never mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id, also its group and session.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks between boot and start.
    pub start_time: u64,
    /// `/proc/sys/kernel/random/boot_id` of the boot it belongs to.
    pub boot_id: String,
}

/// Which attempt of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// Number of the step.
    pub step: u32,
    /// Which part of the step.
    pub slot: Slot,
    /// Number of this try, from 1.
    pub number: u32,
}

/// Which part of a step an attempt carries out.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// The step's own action.
    #[default]
    #[serde(rename = "action")]
    Main,
    /// One of several parts, by its position from 0: an item of a foreach node.
    #[serde(rename = "item")]
    Part(u32),
    /// The action of a hook, by its place in the list of hooks.
    Hook(u32),
}

impl Slot {
    /// Whether it is the step's own action.
    pub const fn is_main(&self) -> bool {
        matches!(self, Self::Main)
    }
}

impl fmt::Display for Slot {
    /// `action`, `3` for the part at position 3, `hook:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("action"),
            Self::Part(part) => write!(f, "{part}"),
            Self::Hook(hook) => write!(f, "hook:{hook}"),
        }
    }
}

/// An attempt that has started and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which one.
    pub id: AttemptId,
    /// What a second try would mean.
    pub effect: Effect,
    /// When it began. One that repeats what a crash has cut off began with that.
    pub since: Timestamp,
    /// Its idempotency key.
    pub key: Name,
    /// The process that carries it out, once there is one.
    pub process: Option<ProcessIdentity>,
    /// The child run that carries it out, if one does.
    pub child: Option<RunId>,
    /// What somebody said became of it.
    pub verdict: Option<Verdict>,
    /// Its result, if somebody who said that it is done knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Arc<Value>>,
}

impl Attempt {
    /// Whether it is at-most-once, and nobody has said that it did not happen.
    pub(super) fn is_unknown(&self) -> bool {
        self.effect == Effect::AtMostOnce && self.verdict != Some(Verdict::Retry)
    }

    /// What tells it from others, outside: its idempotency key, and when it began.
    pub(super) fn mark(&self) -> (Name, Timestamp) {
        (Name::clone(&self.key), self.since)
    }

    /// An attempt that begins at `since`, of something whose second run means `effect`.
    pub fn new(id: AttemptId, effect: Effect, since: Timestamp) -> Self {
        Self {
            id,
            effect,
            since,
            key: Name::default(),
            process: None,
            child: None,
            verdict: None,
            declared: None,
        }
    }

    /// The same, if it repeats `before`, which is still in flight in its place: what was cut off continues, and so does its time.
    pub(super) fn repeating(self, before: Option<&Self>) -> Self {
        let since = before.map_or(self.since, |before| before.since);
        Self { since, ..self }
    }
}

/// What people call an attempt: its node, with the position where it is an item (`fan[3]`).
pub(crate) fn attempt_name(node: &str, slot: Slot) -> String {
    match slot {
        Slot::Part(part) => format!("{node}[{part}]"),
        Slot::Main | Slot::Hook(_) => node.to_owned(),
    }
}

/// An attempt whose outcome the record of its run does not know, and that another try of its step would repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// What people call it.
    pub name: String,
    /// Whether it is at-most-once, and was cut off, or failed after it had started.
    pub once: bool,
    /// The child run that carried it out: what is unknown about that one is unknown about this attempt.
    pub child: Option<RunId>,
    /// Its idempotency key, and when it began, if it was cut off.
    pub cut_off: Option<(Name, Timestamp)>,
}

/// What became of an attempt whose outcome nobody knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did not happen: do it again.
    Retry,
    /// It executed: continue behind it.
    Done,
    /// It failed.
    Fail,
}

impl Verdict {
    /// The name used on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Done => "done",
            Self::Fail => "fail",
        }
    }

    /// The verdict of that name.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Retry, Self::Done, Self::Fail]
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}
