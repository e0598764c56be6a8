//! What a step in flight consists of: the attempts of its action, its items and its hooks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Control, Effect, Failure, Object, ProcessIdentity, Suspension};
use crate::bounds;
use crate::clock::Timestamp;
use crate::id::RunId;

/// Which attempt of a step is meant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// The node's own action.
    #[default]
    Action,
    /// An item of a foreach node, by its position from 0.
    Item(u32),
    /// The action of a hook, by its place in the list of hooks.
    Hook(u32),
}

impl Slot {
    /// Whether it is the node's own action.
    pub const fn is_action(&self) -> bool {
        matches!(self, Self::Action)
    }
}

impl fmt::Display for Slot {
    /// `action`, `3` for the item at position 3, `hook:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action => f.write_str("action"),
            Self::Item(item) => write!(f, "{item}"),
            Self::Hook(hook) => write!(f, "hook:{hook}"),
        }
    }
}

/// An attempt that has started and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Number of this try, from 1.
    pub attempt: u32,
    /// What a second try would mean.
    #[serde(default)]
    pub effect: Effect,
    /// Its idempotency key.
    #[serde(default)]
    pub key: String,
    /// The process that carries it out, once there is one.
    pub process: Option<ProcessIdentity>,
    /// The run that carries it out, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// What somebody said became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl InFlight {
    /// Try `attempt` of something whose second run means `effect`.
    pub const fn new(attempt: u32, effect: Effect) -> Self {
        Self {
            attempt,
            effect,
            key: String::new(),
            process: None,
            child: None,
            verdict: None,
        }
    }
}

impl InFlight {
    /// The same, announced under `key` and carried out by the run `child` if there is one.
    #[must_use]
    pub(super) fn announced(mut self, key: &str, child: Option<&RunId>) -> Self {
        key.clone_into(&mut self.key);
        self.child = child.cloned();
        self
    }
}

/// What became of an attempt whose outcome nobody knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did not happen: do it again.
    Retry,
    /// It happened: go on.
    Done,
    /// It failed.
    Fail,
}

impl Verdict {
    /// The word used on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Done => "done",
            Self::Fail => "fail",
        }
    }

    /// The verdict of that word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Retry, Self::Done, Self::Fail]
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}

/// The items of the foreach node in hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// By position; `None` for an item that has not ended.
    pub done: Vec<Option<ItemResult>>,
    /// Items in flight.
    pub running: BTreeMap<u32, InFlight>,
    /// Before this position everything has been started.
    pub next: u32,
    /// How many of `done` failed.
    pub failed: u32,
    /// Bytes of what the done ones came to, roughly.
    #[serde(default)]
    pub bytes: usize,
    /// Tries of items that are to be tried again, where there were any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tries: BTreeMap<u32, u32>,
    /// The runs that carry out, or last carried out, items; a further try of an item goes on with its run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub below: BTreeMap<u32, RunId>,
}

/// What an item came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemResult {
    /// What is collected.
    pub value: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Whether its effect provably did not begin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
    /// Whether something that must not happen twice was cut off in the run that carried it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// Whether it failed, and its effect must not happen twice and may have happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spent: bool,
    /// The try it ended with; 0 if it was never announced.
    pub attempt: u32,
}

impl Items {
    /// Items of which none has started.
    pub fn new(count: u32) -> Self {
        Self {
            done: vec![None; usize::try_from(count).unwrap_or(usize::MAX)],
            ..Self::default()
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.done.len()).unwrap_or(u32::MAX)
    }

    /// Whether the item at this position has ended.
    pub fn is_done(&self, item: u32) -> bool {
        usize::try_from(item)
            .ok()
            .and_then(|item| self.done.get(item))
            .is_some_and(Option::is_some)
    }

    /// Items that have not succeeded, with the runs that last carried them out.
    pub fn unfinished_below(&self) -> impl Iterator<Item = (u32, &RunId)> {
        let below = self.below.iter().map(|(item, run)| (*item, run));
        below.filter(|(item, _)| {
            let done = usize::try_from(*item).ok().and_then(|at| self.done.get(at));
            !matches!(done, Some(Some(done)) if done.error.is_none())
        })
    }

    /// The items that failed, in order: position, what each came to, and why it failed.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &ItemResult, &Failure)> {
        (0_u32..).zip(&self.done).filter_map(|(item, done)| {
            let done = done.as_ref()?;
            Some((item, done, done.error.as_ref()?))
        })
    }

    /// The items whose effect must not happen twice and may have happened although they failed.
    pub fn spent(&self) -> impl Iterator<Item = u32> {
        let failed = self.failures().filter(|(_, done, _)| done.spent);
        failed.map(|(item, _, _)| item)
    }

    /// The number of the next try of an item.
    pub fn next_attempt(&self, item: u32) -> u32 {
        let running = self.running.get(&item).map(|work| work.attempt);
        running.unwrap_or_else(|| self.tries.get(&item).copied().unwrap_or(0)) + 1
    }

    /// Forgets failures, so that a retry of the node repeats only those.
    pub(super) fn reopen(&mut self) {
        for (item, done) in (0_u32..).zip(&mut self.done) {
            if let Some(failed) = done.take_if(|done| done.error.is_some()) {
                self.tries.insert(item, failed.attempt);
            }
        }
        self.next = 0;
        self.failed = 0;
    }

    /// What is left for another run: what was in flight begins anew.
    pub(super) fn left(mut self) -> Self {
        for (item, work) in std::mem::take(&mut self.running) {
            self.tries.insert(item, work.attempt);
        }
        self
    }

    pub(super) fn end(&mut self, item: u32, mut result: ItemResult) {
        result.attempt = self.next_attempt(item) - 1;
        let work = self.running.remove(&item);
        let once = work.is_some_and(|work| work.effect == Effect::AtMostOnce);
        result.spent = once && result.error.is_some() && !result.never_began;
        self.failed += u32::from(result.error.is_some());
        self.bytes += bounds::size(&result.value);
        if let Some(place) = usize::try_from(item)
            .ok()
            .and_then(|item| self.done.get_mut(item))
        {
            *place = Some(result);
        }
    }
}

/// What people call an attempt: its node, with the position where it is an item (`fan[3]`).
pub(super) fn attempt_name(node: &str, slot: Slot) -> String {
    match slot {
        Slot::Item(item) => format!("{node}[{item}]"),
        Slot::Action | Slot::Hook(_) => node.to_owned(),
    }
}

/// An attempt that failed, while it is decided what follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Why.
    pub error: Failure,
    /// What the action gave back all the same.
    pub result: Value,
    /// `{category, code, retryable, retry_policy}`.
    pub classification: Value,
    /// Whether another try does no harm and may help.
    pub repeatable: bool,
    /// Whether its effect must not happen twice and may have happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spent: bool,
}

/// Hooks that are being asked about an event of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookRound {
    /// The event.
    pub event: String,
    /// Hooks that have not answered, by their place in the list.
    pub waiting: VecDeque<u32>,
    /// What they are told, without the state.
    pub context: Object,
    /// `_now` of their templates.
    pub now: Timestamp,
    /// The first answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Control>,
    /// Who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The attempt of the first waiting one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<InFlight>,
}

impl HookRound {
    /// Whether every hook has answered.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the run parks for `why` because the answer of this round says so.
    pub(super) fn asked(&self, why: &Suspension) -> bool {
        let wanted = self.answer.as_ref();
        let wanted = wanted.and_then(|answer| answer.parks(&self.event));
        self.is_over() && wanted == Some(why.reason)
    }
}
