//! The items of a foreach node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounds::{self, MOST_BYTES};
use crate::id::{Name, RunId};
use crate::model::attempt::{Attempt, Effect, Slot, attempt_name};
use crate::model::chunks::Chunks;
use crate::model::failure::Failure;
use crate::model::limits::is_zero;

use super::Due;

/// The code of an item whose result does not fit next to those of the other items.
pub const RESULTS_TOO_LARGE: &str = "results_too_large";
/// The code of an item that was stopped because another one of its node failed.
pub const SIBLING_FAILED: &str = "sibling_failed";

/// The items of the current foreach node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// Indexed by position.
    list: Chunks<Item>,
    pub running: Arc<BTreeMap<u32, Attempt>>,
    /// Failed items that are tried again after a pause.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub retrying: Arc<BTreeMap<u32, Retrying>>,
    /// Every item before this position has been started.
    pub next: u32,
    /// Number of failed items.
    pub failed: u32,
    /// Approximate bytes of the results of ended items; more than [`MOST_BYTES`] once a result did not fit.
    pub bytes: usize,
    /// Names of the branches, for a parallel node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Arc<[Name]>>,
}

/// A failed try of an item that another one follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retrying {
    /// Time of the next try.
    pub due: Due,
    pub error: Failure,
}

fn is_empty(retrying: &BTreeMap<u32, Retrying>) -> bool {
    retrying.is_empty()
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Item {
    /// Set once the item has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Arc<ItemResult>>,
    /// The child run that carries it out, or last did; a further try continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<RunId>,
    /// Tries so far, if another follows.
    #[serde(default, skip_serializing_if = "is_zero")]
    tries: u32,
    /// Tries that its node granted after failures.
    #[serde(default, skip_serializing_if = "is_zero")]
    retries: u32,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes all others"
)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemResult {
    /// The collected value.
    pub value: Arc<Value>,
    pub error: Option<Failure>,
    /// True if the item never started.
    pub never_started: bool,
    /// True if the child run that carried it out left at-most-once attempts of unknown outcome.
    pub unknown_below: bool,
    /// True if its action succeeded, and only the collection of its value failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncollected: bool,
    /// True if it failed, is at-most-once, and its outcome is unknown.
    pub unknown: bool,
    /// Number of the try it ended with; 0 if it was never announced.
    pub attempt: u32,
    /// True if it is the result of an earlier run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

impl ItemResult {
    /// Returns the approximate memory use in bytes.
    fn bytes(&self) -> usize {
        bounds::size(&self.value)
    }

    /// True if its action succeeded and its result does not fit next to those of the other items.
    fn does_not_fit(&self) -> bool {
        let error = self.error.as_ref().filter(|_| self.uncollected);
        error.is_some_and(|error| error.code == RESULTS_TOO_LARGE)
    }
}

impl Items {
    /// Makes `count` items of which none has started.
    pub fn new(count: u32) -> Self {
        Self {
            list: (0..count).map(|_| Item::default()).collect(),
            ..Self::default()
        }
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX)
    }

    /// Sets the names of the branches.
    pub(crate) fn called(self, names: &[Name]) -> Self {
        Self {
            names: (!names.is_empty()).then(|| names.into()),
            ..self
        }
    }

    /// True if the branches have these names.
    pub(crate) fn are_called(&self, names: &[Name]) -> bool {
        self.names.as_deref().unwrap_or_default() == names
    }

    /// Returns the name of an item, or of another attempt of its node, for people: `fan[3]`, `checks[lint]`.
    pub fn name(&self, node: &str, slot: Slot) -> String {
        let place = |item: u32| self.names.as_ref()?.get(usize::try_from(item).ok()?);
        match slot {
            Slot::Part(item) => match place(item) {
                Some(name) => format!("{node}[{name}]"),
                None => attempt_name(node, slot),
            },
            Slot::Main | Slot::Hook(_) => attempt_name(node, slot),
        }
    }

    fn item(&self, item: u32) -> Option<&Item> {
        self.list.get(usize::try_from(item).ok()?)
    }

    fn item_mut(&mut self, item: u32) -> Option<&mut Item> {
        self.list.get_mut(usize::try_from(item).ok()?)
    }

    pub fn result(&self, item: u32) -> Option<&ItemResult> {
        self.item(item)?.result.as_deref()
    }

    /// Returns the result of each item, in order; `None` for one that has not ended.
    pub fn results(&self) -> impl Iterator<Item = Option<&ItemResult>> {
        self.list.iter().map(|item| item.result.as_deref())
    }

    /// True if there are items, and each is the result of an earlier run.
    pub fn are_cached(&self) -> bool {
        let mut results = self.results().peekable();
        results.peek().is_some() && results.all(|done| done.is_some_and(|done| done.cached))
    }

    pub fn is_done(&self, item: u32) -> bool {
        self.result(item).is_some()
    }

    /// Returns the child run that carries out, or last carried out, an item.
    pub fn child(&self, item: u32) -> Option<&RunId> {
        self.item(item)?.child.as_ref()
    }

    /// Returns the items that have not succeeded: position, true if the outcome is unknown, and the child run that last
    /// carried it out.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (u32, bool, Option<&RunId>)> {
        let items = (0_u32..).zip(self.list.iter());
        items.filter_map(|(place, item)| {
            let unknown = match &item.result {
                Some(result) if result.error.is_none() => return None,
                Some(result) => result.unknown,
                None => self.running.get(&place).is_some_and(Attempt::is_unknown),
            };
            Some((place, unknown, item.child.as_ref()))
        })
    }

    /// Returns the items that failed, in order: position, result and failure.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &ItemResult, &Failure)> {
        (0_u32..).zip(self.results()).filter_map(|(item, result)| {
            let result = result?;
            Some((item, result, result.error.as_ref()?))
        })
    }

    /// Returns the items that failed by themselves, in order; not those that were stopped because of them.
    pub fn own_failures(&self) -> impl Iterator<Item = (u32, &ItemResult, &Failure)> {
        let failures = self.failures();
        failures.filter(|(_, _, error)| error.code != SIBLING_FAILED)
    }

    /// Returns the number of tries that the node has granted an item after failures.
    pub fn retries(&self, item: u32) -> u32 {
        self.item(item).map_or(0, |item| item.retries)
    }

    pub fn next_attempt(&self, item: u32) -> u32 {
        let running = self.running.get(&item).map(|attempt| attempt.id.number);
        let tries = || self.item(item).map_or(0, |item| item.tries);
        running.unwrap_or_else(tries) + 1
    }

    /// Prepares the items for another try of the node, which repeats only those that failed or were in flight.
    pub(crate) fn reopened(mut self) -> Self {
        let failed = self
            .failures()
            .map(|(item, result, _)| (item, result.attempt));
        let running = self.running.iter();
        let running = running.map(|(item, attempt)| (*item, attempt.id.number));
        let paused = self.retrying.keys();
        let paused = paused.map(|item| (*item, self.next_attempt(*item) - 1));
        let again: Vec<(u32, u32)> = failed.chain(running).chain(paused).collect();
        for (item, tries) in again {
            if let Some(item) = self.item_mut(item) {
                (item.result, item.tries, item.retries) = (None, tries, 0);
            }
        }
        self.running = Arc::default();
        self.retrying = Arc::default();
        self.next = 0;
        self.failed = 0;
        let kept = self.results().flatten().map(ItemResult::bytes);
        self.bytes = kept.sum();
        self
    }

    pub(crate) fn start(&mut self, item: u32, attempt: Attempt) {
        self.next = self.next.max(item + 1);
        if let (Some(child), Some(item)) = (&attempt.child, self.item_mut(item)) {
            item.child = Some(child.clone());
        }
        let attempt = attempt.repeating(self.running.get(&item));
        Arc::make_mut(&mut self.running).insert(item, attempt);
        self.end_pause(item);
    }

    fn end_pause(&mut self, item: u32) {
        if self.retrying.contains_key(&item) {
            Arc::make_mut(&mut self.retrying).remove(&item);
        }
    }

    /// Ends a failed try of an item that is tried again. Returns false if the item has ended.
    pub(crate) fn retry(&mut self, item: u32, retries: u32, retrying: Retrying) -> bool {
        if self.is_done(item) {
            return false;
        }
        let tries = self.next_attempt(item) - 1;
        let Some(entry) = self.item_mut(item) else {
            return false;
        };
        (entry.tries, entry.retries) = (tries, retries);
        self.next = self.next.max(item + 1);
        Arc::make_mut(&mut self.running).remove(&item);
        Arc::make_mut(&mut self.retrying).insert(item, retrying);
        true
    }

    pub(crate) fn end(&mut self, item: u32, mut result: ItemResult) {
        self.next = self.next.max(item + 1);
        result.attempt = self.next_attempt(item) - 1;
        let attempt = Arc::make_mut(&mut self.running).remove(&item);
        self.end_pause(item);
        let once = attempt.is_some_and(|attempt| attempt.effect == Effect::AtMostOnce);
        result.unknown = once && result.error.is_some() && !result.never_started;
        self.failed += u32::from(result.error.is_some());
        self.bytes += result.bytes();
        if result.does_not_fit() {
            self.bytes = self.bytes.max(MOST_BYTES + 1);
        }
        if let Some(item) = self.item_mut(item) {
            item.result = Some(Arc::new(result));
        }
    }
}
