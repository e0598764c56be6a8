//! Attempts: everything a run does that has an effect, in one form for every kind of run.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::id::{Name, RunId};

/// The meaning of a second execution of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A repeat with the same idempotency key does no harm: the step in flight at a crash runs again.
    #[default]
    Idempotent,
    /// The step has no effect at all.
    Pure,
    /// The step is repeated only if it provably did not begin.
    AtMostOnce,
}

/// Identity of a process. It is never mistaken for another process with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id, also its group and session.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks between boot and start.
    pub start_time: u64,
    /// `/proc/sys/kernel/random/boot_id` of the boot it belongs to.
    pub boot_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    pub step: u32,
    pub slot: Slot,
    /// Number of this try, from 1.
    pub number: u32,
}

/// The part of a step that an attempt carries out.
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
    /// The action of a hook, by its index in the list of hooks.
    Hook(u32),
}

impl Slot {
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
    pub id: AttemptId,
    /// The meaning of a second try.
    pub effect: Effect,
    /// The start time. An attempt that repeats one cut off by a crash keeps the start time of that one.
    pub since: Timestamp,
    pub key: Name,
    /// The process that carries it out, once there is one.
    pub process: Option<ProcessIdentity>,
    /// The child run that carries it out, if there is one.
    pub child: Option<RunId>,
    /// The outcome that a person stated.
    pub verdict: Option<Verdict>,
    /// True if its program repeats its calls in order, so that another try continues it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replays: bool,
    /// The result that a person stated together with the verdict "done".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Arc<Value>>,
}

impl Attempt {
    /// True if the attempt is at-most-once and no verdict says that it did not happen.
    pub(super) fn is_unknown(&self) -> bool {
        self.effect == Effect::AtMostOnce && self.verdict != Some(Verdict::Retry)
    }

    /// Returns its idempotency key and start time, which identify it outside the run.
    pub(super) fn identity(&self) -> (Name, Timestamp) {
        (Name::clone(&self.key), self.since)
    }

    /// Begins an attempt at `since`; a second execution means `effect`.
    pub fn new(id: AttemptId, effect: Effect, since: Timestamp) -> Self {
        Self {
            id,
            effect,
            since,
            key: Name::default(),
            process: None,
            child: None,
            verdict: None,
            replays: false,
            declared: None,
        }
    }

    /// Takes over the start time of `before` if `before` is still in flight in the same slot: what was cut off
    /// continues.
    pub(super) fn repeating(self, before: Option<&Self>) -> Self {
        let since = before.map_or(self.since, |before| before.since);
        Self { since, ..self }
    }
}

/// Returns the name of an attempt for people: its node, with the position of an item (`fan[3]`).
pub(crate) fn attempt_name(node: &str, slot: Slot) -> String {
    match slot {
        Slot::Part(part) => format!("{node}[{part}]"),
        Slot::Main | Slot::Hook(_) => node.to_owned(),
    }
}

/// An attempt whose outcome the record of its run does not know, and that another try of its step would repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The name for people.
    pub name: String,
    /// True if it is at-most-once, and was cut off or failed after it had started.
    pub once: bool,
    /// The child run that carried it out: all that is unknown about that run is unknown about this attempt.
    pub child: Option<RunId>,
    /// Its idempotency key and start time, if it was cut off.
    pub cut_off: Option<(Name, Timestamp)>,
}

/// The outcome that a person states for an attempt of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did not happen: do it again.
    Retry,
    /// It executed: continue after it.
    Done,
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

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Retry, Self::Done, Self::Fail]
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}
