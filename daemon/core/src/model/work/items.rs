//! The transitions of the items of a step.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::Name;
use crate::model::attempt::{Attempt, AttemptId, Effect, Slot};
use crate::model::event::{ItemCompleted, ItemStarted, RetryScheduled};
use crate::model::failure::Failure;
use crate::model::graph::{
    At, Due, GraphState, ItemResult, Items, Retrying, StepStatus, StepWork, SuppressedError,
};

impl GraphState {
    /// Returns the items of the step that starts: those that an earlier attempt left, if their number and the names of
    /// branches are equal, with the failed ones open again.
    pub(super) fn open_items(&mut self, step: u32, count: u32, branches: &[Name]) -> Items {
        let earlier = self.at.items();
        let earlier = earlier.filter(|items| items.count() == count && items.are_called(branches));
        let Some(items) = earlier.cloned() else {
            return Items::new(count).called(branches);
        };
        // Items that are tried again are no longer errors after which the graph continued.
        self.suppressed = self.suppressed_but(|error| error.step != step);
        items.reopened()
    }

    /// Returns the items of the step in flight, if it is step `number`.
    fn items_of(&mut self, number: u32, node: &str) -> Option<&mut Items> {
        let At::Step(step) = &mut self.at else {
            return None;
        };
        match &mut step.work {
            StepWork::Items(items) if (step.number, &*step.node) == (number, node) => Some(items),
            StepWork::Items(_)
            | StepWork::Action(_)
            | StepWork::NeverStarted(_)
            | StepWork::Waits(_) => None,
        }
    }

    pub(super) fn start_item(&mut self, at: Timestamp, started: &ItemStarted) -> bool {
        let Some(items) = self.items_of(started.step, &started.node) else {
            return false;
        };
        let id = AttemptId {
            step: started.step,
            slot: Slot::Part(started.item),
            number: started.attempt,
        };
        let attempt = Attempt {
            key: started.key.as_str().into(),
            child: started.child.clone(),
            ..Attempt::new(id, started.effect, at)
        };
        items.start(started.item, attempt);
        if started.effect == Effect::AtMostOnce {
            self.note_once(&started.node);
        }
        true
    }

    pub(super) fn retry_item(
        &mut self,
        at: Timestamp,
        item: u32,
        scheduled: &RetryScheduled,
    ) -> bool {
        let (Some(items), Some(error)) = (
            self.items_of(scheduled.step, &scheduled.node),
            scheduled.error.clone(),
        ) else {
            return false;
        };
        let due = Due::of(at, scheduled.due);
        items.retry(item, scheduled.retries, Retrying { due, error })
    }

    pub(super) fn complete_item(&mut self, completed: &ItemCompleted) -> bool {
        let (step, node, item) = (completed.step, &completed.node, completed.item);
        let Some(items) = self.items_of(step, node) else {
            return false;
        };
        let value = completed.collected.as_ref().unwrap_or(&completed.result);
        let done = ItemResult {
            value: Arc::clone(value),
            error: completed.error.clone(),
            never_started: completed.never_started,
            unknown_below: completed.unknown_below,
            uncollected: completed.uncollected,
            unknown: false,
            attempt: 0,
            cached: completed.status == StepStatus::Cached,
        };
        items.end(item, done);
        let name = items.name(node, Slot::Part(item));
        if let (true, Some(error)) = (completed.suppressed, &completed.error) {
            self.suppressed.push(item_error(step, node, &name, error));
        }
        true
    }

    /// Completes the items of a step. Errors of items are recorded as they occur, and reported in the order of the
    /// items.
    pub(super) fn complete_items(&mut self, step: u32, node: &str) -> bool {
        let Some(items) = self.items_of(step, node) else {
            return false;
        };
        let failed = items.failures();
        let failed = failed.map(|(item, _, error)| {
            item_error(step, node, &items.name(node, Slot::Part(item)), error)
        });
        let failed: Vec<_> = failed.collect();
        if !failed.is_empty() {
            self.suppressed = self.suppressed_but(|error| error.step != step);
            for error in failed {
                self.suppressed.push(error);
            }
        }
        true
    }
}

fn item_error(step: u32, node: &str, name: &str, error: &Failure) -> SuppressedError {
    SuppressedError {
        step,
        node: node.to_owned(),
        error: format!("{name}: {}", error.message),
    }
}
