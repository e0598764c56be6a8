//! The end of a foreach or parallel node: the node fails, or assigns and chooses its edge.

use std::sync::Arc;

use serde_json::Value;

use super::parts::{Counts, Parts};
use super::{ITEM_FAILED, Walker};
use crate::bounds::{Excess, MOST_BYTES};
use crate::clock::Timestamp;
use crate::definition::Node;
use crate::error::beginning;
use crate::expr::Vars;
use crate::machine::Certainty;
use crate::model::event::{ForeachCompleted, ParallelCompleted};
use crate::model::graph::{Items, RESULTS_TOO_LARGE, Step};
use crate::model::{Effect, Event, Failure, Slot, StepStatus};
use crate::walker::evaluate::memory_exceeded;
use crate::walker::failure::Repeat;
use crate::walker::step::Done;

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
