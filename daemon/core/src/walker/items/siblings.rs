//! Items that are of no use any more, because another one of their node failed and the node does not collect failures.
//!
//! They are stopped immediately. At-most-once ones end by themselves, because their outcome would be unknown. The next
//! try of the node repeats those that were stopped.

use std::sync::Arc;

use super::Walker;
use super::parts::Parts;
use crate::clock::Timestamp;
use crate::definition::OnItemError;
use crate::id::RunId;
use crate::model::graph::{At, Items, SIBLING_FAILED};
use crate::model::{Attempt, Effect, Event, Failure, Slot};

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
