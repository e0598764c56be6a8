//! The items of a foreach node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounds;
use crate::id::RunId;
use crate::model::chunks::Chunks;
use crate::model::{Attempt, Effect, Failure};

/// The items of the foreach node in hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// By position.
    list: Chunks<Item>,
    /// Items in flight.
    pub running: Arc<BTreeMap<u32, Attempt>>,
    /// Before this position everything has been started.
    pub next: u32,
    /// How many failed.
    pub failed: u32,
    /// Bytes of what the ended ones came to, roughly.
    pub bytes: usize,
}

/// One item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Item {
    /// What it came to, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Arc<ItemResult>>,
    /// The child run that carries it out, or last did; a further try continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<RunId>,
    /// Tries so far, if it is to be tried again.
    #[serde(default, skip_serializing_if = "is_zero")]
    tries: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for this form"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What an item came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemResult {
    /// What is collected.
    pub value: Arc<Value>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Whether its effect provably never started.
    pub never_started: bool,
    /// Whether the child run that carried it out has at-most-once attempts of unknown outcome.
    pub child_unknown: bool,
    /// Whether it failed, and is an at-most-once attempt that may have executed.
    pub may_have_executed: bool,
    /// The try it ended with; 0 if it was never announced.
    pub attempt: u32,
}

impl Items {
    /// Items of which none has started.
    pub fn new(count: u32) -> Self {
        Self {
            list: (0..count).map(|_| Item::default()).collect(),
            ..Self::default()
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX)
    }

    fn item(&self, item: u32) -> Option<&Item> {
        self.list.get(usize::try_from(item).ok()?)
    }

    fn item_mut(&mut self, item: u32) -> Option<&mut Item> {
        self.list.get_mut(usize::try_from(item).ok()?)
    }

    /// What the item at this position came to.
    pub fn result(&self, item: u32) -> Option<&ItemResult> {
        self.item(item)?.result.as_deref()
    }

    /// What each item came to, in order.
    pub fn results(&self) -> impl Iterator<Item = Option<&ItemResult>> {
        self.list.iter().map(|item| item.result.as_deref())
    }

    /// Whether the item at this position has ended.
    pub fn is_done(&self, item: u32) -> bool {
        self.result(item).is_some()
    }

    /// The child run that carries out, or last carried out, an item.
    pub fn child(&self, item: u32) -> Option<&RunId> {
        self.item(item)?.child.as_ref()
    }

    /// Items that have not succeeded, with the child runs that last carried them out.
    pub fn unfinished_children(&self) -> impl Iterator<Item = (u32, &RunId)> {
        let items = (0_u32..).zip(self.list.iter());
        items.filter_map(|(place, item)| {
            let result = item.result.as_ref();
            let succeeded = result.is_some_and(|result| result.error.is_none());
            let child = item.child.as_ref().filter(|_| !succeeded)?;
            Some((place, child))
        })
    }

    /// The items that failed, in order: position, what each came to, and why it failed.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &ItemResult, &Failure)> {
        (0_u32..).zip(self.results()).filter_map(|(item, result)| {
            let result = result?;
            Some((item, result, result.error.as_ref()?))
        })
    }

    /// The failed items that are at-most-once attempts and may have executed.
    pub fn may_have_executed(&self) -> impl Iterator<Item = u32> {
        let failed = self.failures();
        failed.filter_map(|(item, result, _)| result.may_have_executed.then_some(item))
    }

    /// The number of the next try of an item.
    pub fn next_attempt(&self, item: u32) -> u32 {
        let running = self.running.get(&item).map(|attempt| attempt.id.number);
        let tries = || self.item(item).map_or(0, |item| item.tries);
        running.unwrap_or_else(tries) + 1
    }

    /// Forgets failures, so that a retry of the node repeats only those.
    pub(super) fn reopen(&mut self) {
        let failed: Vec<u32> = self.failures().map(|(item, ..)| item).collect();
        for item in failed {
            if let Some(item) = self.item_mut(item)
                && let Some(result) = item.result.take()
            {
                item.tries = result.attempt;
            }
        }
        self.next = 0;
        self.failed = 0;
    }

    /// What is left for another run: what was in flight starts anew.
    pub(super) fn left(mut self) -> Self {
        for (item, attempt) in std::mem::take(&mut self.running).iter() {
            if let Some(item) = self.item_mut(*item) {
                item.tries = attempt.id.number;
            }
        }
        self
    }

    pub(super) fn start(&mut self, item: u32, attempt: Attempt) {
        self.next = self.next.max(item + 1);
        if let (Some(child), Some(item)) = (&attempt.child, self.item_mut(item)) {
            item.child = Some(child.clone());
        }
        Arc::make_mut(&mut self.running).insert(item, attempt);
    }

    pub(super) fn end(&mut self, item: u32, mut result: ItemResult) {
        self.next = self.next.max(item + 1);
        result.attempt = self.next_attempt(item) - 1;
        let attempt = Arc::make_mut(&mut self.running).remove(&item);
        let once = attempt.is_some_and(|attempt| attempt.effect == Effect::AtMostOnce);
        result.may_have_executed = once && result.error.is_some() && !result.never_started;
        self.failed += u32::from(result.error.is_some());
        self.bytes += bounds::size(&result.value);
        if let Some(item) = self.item_mut(item) {
            item.result = Some(Arc::new(result));
        }
    }
}
