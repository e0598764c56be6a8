//! Further tries of failed items, as `retry` of their node grants them.
//!
//! A failed item pauses, and others use its place meanwhile; only a sequential foreach keeps its order. Pauses are
//! measured by the clock for delays; after a restart the wall clock gives their rest. An item whose pause has ended
//! starts before new ones. If the node gives up, items that pause end with their last failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::Walker;
use super::parts::Parts;
use crate::clock::{Timestamp, Uptime};
use crate::definition::Node;
use crate::model::event::RetryScheduled;
use crate::model::graph::Step;
use crate::model::{Event, Failure};
use crate::walker::failure::BY_NODE;
use crate::walker::jitter;

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
