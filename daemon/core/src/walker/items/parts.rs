//! The items of a foreach or parallel node: the differences between the two kinds of node, and how items end.
//!
//! **Tries.** A failed item is tried again as `retry` of its node grants. It pauses, and others use its place meanwhile;
//! only a sequential foreach keeps its order. Pauses are measured by the clock for delays; after a restart the wall clock
//! gives their rest. An item whose pause has ended starts before new ones. If the node gives up, items that pause end with
//! their last failure.
//!
//! **Siblings.** Items in flight are of no use any more once another one of their node failed for good and the node does
//! not collect failures. They are stopped immediately. At-most-once ones end by themselves, because their outcome would be
//! unknown. The next try of the node repeats those that were stopped.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{ITEM_FAILED, Walker};
use crate::bounds::{Excess, MOST_BYTES};
use crate::clock::{Timestamp, Uptime};
use crate::definition::roots::{COUNTS, RESULTS};
use crate::definition::{Action, Foreach, ItemOrder, Node, OnItemError, Parallel, Work};
use crate::error::beginning;
use crate::expr::Vars;
use crate::id::{Name, RunId};
use crate::machine::Certainty;
use crate::model::event::{ForeachCompleted, ParallelCompleted, RetryScheduled};
use crate::model::graph::{At, Items, RESULTS_TOO_LARGE, SIBLING_FAILED, Step};
use crate::model::{Attempt, Effect, Event, Failure, Object, Slot, StepStatus};
use crate::walker::evaluate::memory_exceeded;
use crate::walker::failure::{BY_NODE, Repeat};
use crate::walker::jitter;
use crate::walker::step::Done;

/// Default limit of the concurrent items of a parallel node.
const AT_ONCE: u32 = 10;

/// The items of a node.
#[derive(Clone, Copy)]
pub(in crate::walker) enum Parts<'g> {
    /// Values of a list, with one action.
    Items(&'g Foreach),
    /// Actions with names.
    Branches(&'g Parallel),
}

impl<'g> Parts<'g> {
    pub(in crate::walker) const fn of(work: &'g Work) -> Option<Self> {
        match work {
            Work::Foreach(foreach) => Some(Self::Items(foreach)),
            Work::Parallel(parallel) => Some(Self::Branches(parallel)),
            Work::Action(_)
            | Work::Gate
            | Work::Return { .. }
            | Work::Fail(_)
            | Work::Wait(_)
            | Work::Approval(_)
            | Work::Service(_)
            | Work::ProcessWait(_) => None,
        }
    }

    pub(super) const fn on_item_error(self) -> OnItemError {
        match self {
            Self::Items(foreach) => foreach.on_item_error,
            Self::Branches(parallel) => parallel.on_item_error,
        }
    }

    /// Returns the limit of concurrent items; `usual` is that of the graph.
    pub(super) fn max_concurrent(self, usual: Option<NonZeroU32>) -> u32 {
        let said = match self {
            Self::Items(foreach) => match foreach.order {
                ItemOrder::Sequential => return 1,
                ItemOrder::Parallel { at_once } => at_once,
            },
            Self::Branches(parallel) => parallel.at_once,
        };
        said.or(usual).map_or(AT_ONCE, NonZeroU32::get)
    }

    /// True if each item starts only after the previous one has ended.
    pub(super) fn keeps_order(self) -> bool {
        matches!(self, Self::Items(foreach) if foreach.order == ItemOrder::Sequential)
    }

    pub(in crate::walker) fn action(self, item: u32) -> Option<&'g Action> {
        match self {
            Self::Items(foreach) => Some(&foreach.action),
            Self::Branches(parallel) => Some(&branch(parallel, item)?.1),
        }
    }

    /// Returns the identity of an item over crashes and continuations: its index in the list. The branches of a
    /// continuation may have other indexes, so theirs is their name.
    pub(super) fn identity(self, item: u32) -> Value {
        match self {
            Self::Items(_) => json!(item),
            Self::Branches(parallel) => json!(branch(parallel, item).map(|(name, _)| &**name)),
        }
    }

    /// Returns the action id of the step.
    pub(super) fn action_id(self) -> String {
        match self {
            Self::Items(foreach) => foreach.action.id.clone(),
            Self::Branches(_) => StepStatus::Parallel.as_str().to_owned(),
        }
    }

    pub(super) fn names(self) -> Vec<Name> {
        match self {
            Self::Items(_) => Vec::new(),
            Self::Branches(parallel) => {
                let branches = parallel.branches.iter();
                branches.map(|(name, _)| Name::clone(name)).collect()
            }
        }
    }

    /// Returns the result of the node: the results of its items, and their numbers: all, failed and succeeded. A branch
    /// with the name of a number replaces it.
    pub(super) fn result(self, collected: Vec<Value>, counts: &Counts) -> Value {
        let mut result: Object = match self {
            Self::Items(_) => Object::from_iter([(RESULTS.to_owned(), Value::Array(collected))]),
            Self::Branches(_) => {
                let names = self.names().into_iter().map(|name| name.to_string());
                names.zip(collected).collect()
            }
        };
        for (key, number) in COUNTS.into_iter().zip(counts.in_order()) {
            result.entry(key).or_insert_with(|| number.into());
        }
        Value::Object(result)
    }
}

pub(super) struct Counts {
    pub(super) count: u32,
    pub(super) failed: u32,
    pub(super) succeeded: u32,
}

impl Counts {
    pub(super) fn of(items: &Items) -> Self {
        let ended = items.results().flatten().count();
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        Self {
            count: items.count(),
            failed: items.failed,
            succeeded: ended.saturating_sub(items.failed),
        }
    }

    /// Returns them in the order of [`COUNTS`].
    const fn in_order(&self) -> [u32; 3] {
        [self.count, self.failed, self.succeeded]
    }
}

fn branch(parallel: &Parallel, item: u32) -> Option<&(Name, Action)> {
    parallel.branches.get(usize::try_from(item).ok()?)
}

/// Limit of the items that pause; beyond it no new item starts, because each turn looks at all of them.
const MOST_PAUSED: usize = 1000;

/// Ends of the pauses of items: the coming try of each, and its time.
pub(super) type Pauses = Arc<BTreeMap<u32, (u32, Uptime)>>;

impl Walker {
    /// Schedules another try of an item whose try failed and may be repeated. Returns false if its node grants none.
    pub(super) fn retry_item(
        &mut self,
        now: Timestamp,
        (node, parts): (&Node, Parts<'_>),
        step: &Step,
        item: u32,
        failure: &Failure,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some((retry, items)) = node.retry.zip(self.items_in_hand()) else {
            return false;
        };
        let (used, attempt) = (items.retries(item), items.next_attempt(item));
        if used >= retry.max || self.gives_up(parts) {
            return false;
        }
        let place = json!([parts.identity(item), attempt]);
        let key = self.key(&step.node, step.visit, Some(&place), Some("retry"));
        let event = Event::from(RetryScheduled {
            step: step.number,
            node: step.node.to_string(),
            item: Some(item),
            attempt,
            retries: used + 1,
            due: now.plus(retry.backoff.delay(used, jitter(&key))),
            by: BY_NODE.to_owned(),
            error: Some(failure.clone()),
        });
        self.record(now, event, events);
        true
    }

    /// Returns the item whose pause ends first, and that time.
    pub(super) fn next_retry(&mut self, now: Timestamp) -> Option<(u32, Uptime)> {
        let up = self.up;
        let items = self.run.graph()?.at.items()?;
        let pauses = &mut self.items.as_mut()?.pauses;
        let ends = items.retrying.iter().map(|(item, retrying)| {
            let attempt = items.next_attempt(*item);
            match pauses.get(item).copied() {
                Some((known, until)) if known == attempt => (*item, until),
                Some(_) | None => {
                    let until = retrying.due.end(now, up);
                    Arc::make_mut(pauses).insert(*item, (attempt, until));
                    (*item, until)
                }
            }
        });
        ends.min_by_key(|(item, until)| (*until, *item))
    }

    /// True if an item may start that has not been tried yet.
    pub(super) fn may_start_new(&self, parts: Parts<'_>) -> bool {
        let paused = self.items_in_hand().map_or(0, |items| items.retrying.len());
        let most = if parts.keeps_order() { 1 } else { MOST_PAUSED };
        paused < most
    }

    /// Ends an item that pauses, with its last failure; returns false if none does.
    pub(super) fn end_paused(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> bool {
        let items = self.items_in_hand();
        let paused = items.and_then(|items| items.retrying.first_key_value());
        let Some((item, error)) = paused.map(|(item, paused)| (*item, paused.error.clone())) else {
            return false;
        };
        self.fail_item(now, (node, step), item, error, 0, events);
        true
    }
}

impl Walker {
    /// True if the node fails because of an item.
    pub(super) fn is_failing(&self, parts: Parts<'_>) -> bool {
        let failed = self.items_in_hand().map_or(0, |items| items.failed);
        parts.on_item_error() == OnItemError::Fail && failed > 0
    }

    /// Returns the items in flight that are of no use any more.
    pub(in crate::walker) fn useless_items(&self) -> Vec<Slot> {
        let At::Step(step) = &self.walk().at else {
            return Vec::new();
        };
        let node = self.graph.nodes.get(&step.node);
        let parts = node.and_then(|node| Parts::of(&node.work));
        let running = step.items().map(|items| items.running.iter());
        let (Some(_), Some(running)) = (parts.filter(|parts| self.is_failing(*parts)), running)
        else {
            return Vec::new();
        };
        let useless = running.filter(|(item, attempt)| {
            may_stop(attempt) && self.running.contains_key(&Slot::Part(**item))
        });
        useless.map(|(item, _)| Slot::Part(*item)).collect()
    }

    /// Removes an item whose suspended child run is of no use any more; it has to be attached to again and stopped.
    pub(super) fn take_useless_suspended(&mut self, parts: Parts<'_>) -> Option<(u32, RunId)> {
        if !self.is_failing(parts) {
            return None;
        }
        let running = &self.items_in_hand()?.running;
        let found = self.suspended.keys().find_map(|slot| {
            let Slot::Part(item) = slot else { return None };
            let attempt = running.get(item).filter(|attempt| may_stop(attempt))?;
            Some((*item, attempt.child.clone()?))
        });
        let (item, child) = found?;
        self.suspended.remove(&Slot::Part(item));
        Some((item, child))
    }

    /// Records that an item was stopped because another one of its node failed.
    pub(in crate::walker) fn stop_item(
        &mut self,
        now: Timestamp,
        item: u32,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.at_hand(&graph, now) else {
            return;
        };
        let cause = step
            .items()
            .and_then(|items| first_failed(items, &step.node));
        let Some(cause) = cause else { return };
        let text = format!("stopped because {cause} failed");
        let failure = Failure::permanent(SIBLING_FAILED, text).decided();
        self.fail_item(now, (node, &step), item, failure, elapsed_ms, events);
    }
}

fn may_stop(attempt: &Attempt) -> bool {
    attempt.effect != Effect::AtMostOnce && attempt.verdict.is_none()
}

/// Returns the name of the first item that failed by itself.
fn first_failed(items: &Items, node: &str) -> Option<String> {
    let (item, _, _) = items.own_failures().next()?;
    Some(items.name(node, Slot::Part(item)))
}

/// Limit of the further failed items that the failure of a node names.
const MOST_NAMED: usize = 9;
/// Limit of the characters of the error of each.
const NAMED_CHARS: usize = 200;

impl Walker {
    /// Returns a copy of each item's result, charged before it is made; nothing if the results are too large together.
    fn take_results(&mut self) -> Result<Vec<Value>, Failure> {
        let Some(items) = self
            .items_in_hand()
            .filter(|items| items.bytes <= MOST_BYTES)
        else {
            return Ok(Vec::new());
        };
        let charge = self.memory.take(items.bytes);
        let charge = charge.ok_or_else(|| memory_exceeded(&self.memory))?;
        let results = items.results();
        let results =
            results.map(|done| done.map_or(Value::Null, |done| Value::clone(&done.value)));
        let results = results.collect();
        self.charges.push(Arc::new(charge));
        Ok(results)
    }

    /// Closes a node whose items have ended: it fails, or assigns and chooses its edge.
    pub(super) fn close_items(
        &mut self,
        now: Timestamp,
        node: &Node,
        parts: Parts<'_>,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        let Some(items) = self.items_in_hand() else {
            return;
        };
        let (counts, cache_hit) = (Counts::of(items), items.are_cached());
        let uncollected = items.own_failures().any(|(_, item, _)| item.uncollected);
        let effect = if items.failures().any(|(_, done, _)| done.unknown) {
            Effect::AtMostOnce
        } else {
            node.effect
        };
        let failure = if self.gives_up(parts) {
            Some(item_failure(items, step, effect))
        } else if self.next_item().is_some() {
            Some((memory_exceeded(&self.memory), Certainty::Known))
        } else {
            None
        };
        let (results, failure) = match self.take_results() {
            Ok(results) => (results, failure),
            Err(full) => (Vec::new(), failure.or(Some((full, Certainty::Known)))),
        };
        let mut collect = Vars::default();
        if let Parts::Items(foreach) = parts
            && let Some(key) = foreach.collect.as_ref().filter(|_| failure.is_none())
        {
            collect.set(key, Value::Array(results.clone()));
        }
        let result = Arc::new(parts.result(results, &counts));
        let Counts { count, failed, .. } = counts;
        if let Some((failure, certainty)) = failure {
            let repeat = if uncollected {
                Repeat::of_done(effect)
            } else {
                Repeat::of(effect, &failure, certainty)
            };
            return self.fail(now, step, failure, &result, repeat, events);
        }
        let assigned = match self.assign(node, Some(&result), step.now, collect) {
            Ok(assigned) => assigned,
            Err(failure) => {
                return self.fail(now, step, failure, &result, Repeat::Useless, events);
            }
        };
        let next_node = self.edge(node, &assigned.vars, Some(&result), step.now);
        let (number, name, next) = (step.number, step.node.to_string(), next_node.clone());
        let (status, summary): (_, Event) = match parts {
            Parts::Items(_) => {
                let completed = ForeachCompleted {
                    step: number,
                    node: name,
                    items: count,
                    failed,
                    next_node: next,
                };
                (StepStatus::Foreach, completed.into())
            }
            Parts::Branches(_) => {
                let completed = ParallelCompleted {
                    step: number,
                    node: name,
                    branches: count,
                    failed,
                    next_node: next,
                };
                (StepStatus::Parallel, completed.into())
            }
        };
        self.record(now, summary, events);
        let done = Done {
            action_id: Some(parts.action_id()),
            cache_hit,
            ..Done::new(status, assigned.delta, next_node)
        };
        self.step_done(now, step, done, Some(&result), events);
    }
}

/// Makes the failure of an item whose result does not fit, and of its node.
pub(super) fn too_large() -> Failure {
    let text = format!(
        "the results of the items are {}; let them write to files, or go over fewer at a time",
        Excess::Bytes
    );
    Failure::permanent(RESULTS_TOO_LARGE, text)
}

/// Returns the failure of a node whose items failed: that of the first of them, whatever began concurrently. An
/// at-most-once node never started only if none of the failed items did.
fn item_failure(items: &Items, step: &Step, effect: Effect) -> (Failure, Certainty) {
    if items.bytes > MOST_BYTES {
        return (too_large(), Certainty::Known);
    }
    let mut failed = items.own_failures();
    let mut failure = Failure::permanent(ITEM_FAILED, "an item failed");
    let Some((item, first, error)) = failed.next() else {
        return (failure, Certainty::Known);
    };
    failure.message = failed_text(items, step, item, error);
    failure.retryable = error.retryable;
    failure.printed.clone_from(&error.printed);
    let (mut unknown_below, mut none_started) = (first.unknown_below, first.never_started);
    for (_, done, _) in failed {
        unknown_below |= done.unknown_below;
        none_started &= done.never_started;
    }
    let never_started = match effect {
        Effect::AtMostOnce => none_started,
        Effect::Idempotent | Effect::Pure => first.never_started,
    };
    let certainty = match (unknown_below, never_started) {
        (true, _) => Certainty::UnknownBelow,
        (false, true) => Certainty::NeverStarted,
        (false, false) => Certainty::Known,
    };
    (failure, certainty)
}

/// Returns the failed items for people: one with its whole error, the others each with the first line.
fn failed_text(items: &Items, step: &Step, first: u32, error: &Failure) -> String {
    let text = |item: u32, message: &str, code: &str| {
        let name = items.name(&step.node, Slot::Part(item));
        format!("{name} failed: {message} ({code})")
    };
    let others = items.own_failures().skip(1);
    let shown = others.take(MOST_NAMED).map(|(item, _, error)| {
        let line = error.message.lines().next().unwrap_or_default();
        text(item, &beginning(line, NAMED_CHARS), &error.code)
    });
    let mut told = vec![text(first, &error.message, &error.code)];
    told.extend(shown);
    let more = items.own_failures().count().saturating_sub(1 + MOST_NAMED);
    if more > 0 {
        told.push(format!("{more} more failed"));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_concurrent_items() {
        let limits = rye_pages::Table::read("docs/reference.md", "limits");
        limits.assert_cell("items or branches at once", "is", AT_ONCE);
    }
}
