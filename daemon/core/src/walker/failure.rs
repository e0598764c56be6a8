//! The consequences of a failure: the node's `retry`, the hooks of `error`, the error edge, the graph's policy.

use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluate::Assigned;
use super::items::{ITEM_FAILED, Parts};
use super::step::Done;
use super::{Turn, Walker, jitter};
use crate::bounds;
use crate::clock::Timestamp;
use crate::definition::{Backoff, HookEvent, Node, OnError, Work};
use crate::expr::Vars;
use crate::machine::{Certainty, as_object};
use crate::model::event::{RetryScheduled, StepFailed};
use crate::model::graph::{At, FailedAttempt, Step};
use crate::model::{
    ApprovalKind, Control, DIVERGED, Effect, Event, Failure, Outcome, StepStatus, SuspendReason,
    Suspension,
};
use crate::policy::Classification;

/// Requester of the tries that a node grants itself.
pub(super) const BY_NODE: &str = "node";

/// The state key of the last failure.
const LAST_ERROR: &str = "_last_error";

/// Limit of the bytes of a failed action's result that are kept with its error; a longer one is in the record of its
/// step.
const MOST_RESULT: usize = 64 * 1024;

/// The way of the walk after a failure that is not retried.
enum Onward {
    /// The node's error edge, else the graph's policy.
    AsDeclared,
    /// Along the node's edges, with the error counted.
    Suppressed,
    /// Along the node's edges, with no error counted.
    Skipped,
    /// To the end of the run.
    Fatal,
}

/// Permission to try a failed action again without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A repeat does no harm and may help.
    Possible,
    /// A repeat would fail again.
    Useless,
    /// It is at-most-once, and its outcome unknown.
    Unknown,
}

impl Repeat {
    pub(super) fn of(effect: Effect, failure: &Failure, certainty: Certainty) -> Self {
        let started = certainty != Certainty::NeverStarted;
        let refused = !started && !failure.retryable;
        // It would make the same calls again.
        let diverged = failure.is_decided && failure.code == DIVERGED;
        if started && effect == Effect::AtMostOnce {
            Self::Unknown
        } else if refused || diverged || certainty == Certainty::UnknownBelow {
            Self::Useless
        } else {
            Self::Possible
        }
    }

    /// Returns the permission for an action that succeeded before a later failure: another execution would not fix
    /// that.
    pub(super) fn of_done(effect: Effect) -> Self {
        match effect {
            Effect::AtMostOnce => Self::Unknown,
            Effect::Idempotent | Effect::Pure => Self::Useless,
        }
    }
}

impl Walker {
    /// Records that an attempt of the current node failed.
    pub(super) fn fail(
        &mut self,
        now: Timestamp,
        step: &Step,
        failure: Failure,
        result: &Arc<Value>,
        repeat: Repeat,
        events: &mut Vec<Event>,
    ) {
        let class = self.classify(&failure, result);
        let mut failure = failure.at(&step.node);
        let category = || class.category.as_str().into();
        failure.class.get_or_insert_with(category);
        let event = Event::from(StepFailed {
            step: step.number,
            node: step.node.to_string(),
            visit: step.visit,
            attempt: step.attempt,
            now: step.now,
            error: failure,
            result: Arc::clone(result),
            classification: class.to_json(),
            repeatable: repeat == Repeat::Possible,
            unknown: repeat == Repeat::Unknown,
        });
        self.record(now, event, events);
        let graph = Arc::clone(&self.graph);
        let node = graph.nodes.get(&step.node);
        // The items of a node are tried again one by one.
        let node = node.filter(|node| Parts::of(&node.work).is_none());
        if let Some(retry) = node.and_then(|node| node.retry)
            && self.may_retry(&step.node, retry.max)
        {
            self.retry(now, step, retry.backoff, BY_NODE, events);
        } else if !self.ask_about_failure(now, step, events) {
            self.give_up(now, step, None, Onward::AsDeclared, events);
        }
    }

    /// Classifies a failure; the class of a node with failed items is that of its first failed item.
    fn classify(&self, failure: &Failure, result: &Value) -> Classification {
        let items = self.walk().at.items();
        let items = items.filter(|_| failure.code == ITEM_FAILED);
        match items.and_then(|items| items.own_failures().next()) {
            Some((_, item, error)) => self.policy.classify(error, &item.value),
            None => self.policy.classify(failure, result),
        }
    }

    fn ask_about_failure(&mut self, now: Timestamp, step: &Step, events: &mut Vec<Event>) -> bool {
        let Some(failed) = self.failed().cloned() else {
            return false;
        };
        if !self.has_hooks(HookEvent::Error) {
            return false;
        }
        let document = self.document_for_hooks(&failed);
        let context = self.context([
            ("error", document),
            ("classification", failed.classification.clone()),
            ("node", json!(step.node)),
            ("step_count", json!(step.number)),
        ]);
        self.open_round(now, HookEvent::Error, context, events)
    }

    /// Returns the failure as hooks see it; without the result if there is no memory for a copy of it.
    fn document_for_hooks(&mut self, failed: &FailedAttempt) -> Value {
        if let Some(charge) = self.memory.take(bounds::size(&failed.result)) {
            self.charges.push(Arc::new(charge));
            error_document(&failed.error, &failed.result)
        } else {
            let note = "there is no memory to show hooks the result of what failed";
            self.notes.push(note.to_owned());
            error_document(&failed.error, &Value::Null)
        }
    }

    /// True if the node sets its own number of tries: then hooks do not retry it.
    pub(super) fn bounds_retries(&self, node: &str) -> bool {
        let node = self.graph.nodes.get(node);
        node.is_some_and(|node| node.retry.is_some())
    }

    fn may_retry(&self, node: &str, max: u32) -> bool {
        let used = self.walk().retries.get(node).copied().unwrap_or(0);
        self.failed().is_some_and(|failed| failed.repeatable) && used < max
    }

    fn retry(
        &mut self,
        now: Timestamp,
        step: &Step,
        backoff: Backoff,
        by: &str,
        events: &mut Vec<Event>,
    ) {
        let used = self.walk().retries.get(&step.node).copied().unwrap_or(0);
        let attempt = step.attempt + 1;
        let key = self.key(&step.node, step.visit, Some(&json!(attempt)), Some("retry"));
        let event = Event::from(RetryScheduled {
            step: step.number,
            node: step.node.to_string(),
            item: None,
            attempt,
            retries: used + 1,
            due: now.plus(backoff.delay(used, jitter(&key))),
            by: by.to_owned(),
            error: None,
        });
        self.record(now, event, events);
    }

    /// Acts on the answer of the hooks of `error`.
    pub(super) fn act_on_failure(
        &mut self,
        now: Timestamp,
        step: &Step,
        answer: Option<(Control, String)>,
        events: &mut Vec<Event>,
    ) -> Turn {
        let Some((control, by)) = answer else {
            self.give_up(now, step, None, Onward::AsDeclared, events);
            return Turn::Again;
        };
        match control {
            Control::Retry { max_retries }
                if !self.bounds_retries(&step.node) && self.may_retry(&step.node, max_retries) =>
            {
                let backoff = self.failed().map_or(Backoff::None, |failed| {
                    self.classify(&failed.error, &failed.result).backoff
                });
                self.retry(now, step, backoff, &by, events);
            }
            Control::Retry { .. } => self.give_up(now, step, None, Onward::AsDeclared, events),
            Control::Fail { error } => {
                self.give_up(now, step, error, Onward::Fatal, events);
            }
            Control::Abort => self.give_up(now, step, None, Onward::Fatal, events),
            Control::Suspend { .. } | Control::Escalate => {
                let reason = control.suspends(HookEvent::Error.as_str());
                let failure = self.failed().map(|failed| failed.error.clone());
                let unknown = self.run.unknown().into_iter();
                let once = unknown.filter(|unknown| unknown.once);
                let why = Suspension {
                    uncertain: once.map(|unknown| unknown.name).collect(),
                    code: failure.as_ref().map(|failure| failure.code.clone()),
                    failure: failure.map(Box::new),
                    ..Suspension::new(reason.unwrap_or(SuspendReason::Error))
                };
                let message = control.message();
                return self.suspend_by_hook(now, why, message, ApprovalKind::Node, events);
            }
            Control::Continue { .. } => self.give_up(now, step, None, Onward::Suppressed, events),
            Control::Skip => self.give_up(now, step, None, Onward::Skipped, events),
        }
        Turn::Again
    }

    /// Tries again: the run was suspended after a failure and is resumed.
    pub(super) fn retry_as_requested(
        &mut self,
        now: Timestamp,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        self.retry(now, step, Backoff::None, "resume", events);
        Turn::Again
    }

    fn failed(&self) -> Option<&Arc<FailedAttempt>> {
        match &self.walk().at {
            At::Failed { failure, .. } => Some(failure),
            At::New | At::Between { .. } | At::Step(_) | At::Backoff { .. } | At::Ending { .. } => {
                None
            }
        }
    }

    /// Makes the current failure final, if there is one.
    pub(super) fn keep_failure(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Option<Turn> {
        let At::Failed { step, .. } = self.walk().at.clone() else {
            return None;
        };
        self.give_up(now, &step, None, Onward::AsDeclared, events);
        Some(Turn::Again)
    }

    /// Makes the failure final, with `message` if a hook gave one: it ends the step, and its successor is chosen.
    fn give_up(
        &mut self,
        now: Timestamp,
        step: &Step,
        message: Option<String>,
        onward: Onward,
        events: &mut Vec<Event>,
    ) {
        let graph = Arc::clone(&self.graph);
        let (Some(failed), Some(node)) = (self.failed().cloned(), graph.nodes.get(&step.node))
        else {
            return;
        };
        let onward = match (onward, &node.on_error, graph.on_error) {
            (Onward::AsDeclared, None, OnError::Fail) => Onward::Fatal,
            (Onward::AsDeclared, None, OnError::Continue) => Onward::Suppressed,
            (other, _, _) => other,
        };
        let mut error = failed.error.clone();
        error.message = message.unwrap_or(error.message);
        let mut assigned = Assigned::nothing(&self.walk().vars);
        assigned.set(LAST_ERROR, last_error(node, &error, &failed.result));
        let next_node = match &onward {
            Onward::AsDeclared => node.on_error.clone(),
            Onward::Suppressed | Onward::Skipped => {
                self.edge_of_failed(node, &assigned.vars, &failed.result, step.now)
            }
            Onward::Fatal => None,
        };
        let done = Done {
            error: Some(error.clone()),
            suppressed: matches!(onward, Onward::Suppressed),
            action_id: node.work.action().map(|action| action.id.clone()),
            result: Some(Arc::clone(&failed.result)),
            ..Done::new(StepStatus::Error, assigned.delta, next_node)
        };
        self.items = None;
        self.record(now, done.event(now, step), events);
        if matches!(onward, Onward::Fatal) {
            self.finish(now, Outcome::Error { error }, events);
        }
    }

    fn edge_of_failed(
        &mut self,
        node: &Node,
        vars: &Vars,
        result: &Value,
        now: Timestamp,
    ) -> Option<String> {
        let result = match &node.work {
            Work::Action(_)
            | Work::Foreach(_)
            | Work::Parallel(_)
            | Work::Approval(_)
            | Work::Service(_)
            | Work::ProcessWait(_) => Some(result),
            Work::Gate | Work::Return { .. } | Work::Fail(_) | Work::Wait(_) => None,
        };
        self.edge(node, vars, result, now)
    }
}

/// Returns the failure as the state shows it. It has no item results: which items had ended before a failure is chance.
fn last_error(node: &Node, error: &Failure, result: &Value) -> Value {
    let mut told = error.in_state();
    let told_of = matches!(node.work, Work::Action(_));
    if told_of && !result.is_null() && bounds::size(result) <= MOST_RESULT {
        told["result"] = result.clone();
    }
    told
}

/// Returns `error` as hooks see it, and the collected value of a failed item: the result of the action, always with
/// `status`, `error` and `code`.
pub(super) fn error_document(error: &Failure, result: &Value) -> Value {
    let mut document = as_object(result);
    document.insert("status".into(), json!("error"));
    document
        .entry("error")
        .or_insert_with(|| json!(error.message));
    document.entry("code").or_insert_with(|| json!(error.code));
    Value::Object(document)
}
