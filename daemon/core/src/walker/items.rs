//! Foreach nodes: their items, sequential or at once.
//!
//! Each item is an attempt of its own, under its own key. Items see the state as it was when the node was entered, with the
//! loop variable in it; nothing an item does changes it. After the first failed item no new one starts, unless the node
//! collects failures.

use std::num::NonZeroU32;

use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluate::{View, resolve};
use super::failure::{Repeat, error_document};
use super::step::{Done, Revival};
use super::{Turn, Walker, interpolation_failure};
use crate::bounds::{Excess, MOST_BYTES};
use crate::clock::Timestamp;
use crate::definition::{Authority, Foreach, ItemOrder, Node, OnItemError, Work};
use crate::expr::{self, Vars, parse_json};
use crate::id::RunId;
use crate::machine::{Call, CallOutcome, Certainty};
use crate::model::graph::{Items, Step};
use crate::model::{
    Effect, Event, Failure, GraphEvent, Object, RunEvent, Slot, StepStatus, attempt_name,
};

/// The code of a node that failed because one of its items did.
pub(super) const ITEM_FAILED: &str = "item_failed";
/// Items of a parallel node that run at once if nobody says.
const AT_ONCE: u32 = 10;

/// What the items of a node see.
#[derive(Debug, Clone)]
pub(super) struct ItemScope {
    /// The step it belongs to.
    step: u32,
    /// The items.
    list: Arc<[Value]>,
    /// The state, with the loop variable of the last item looked at.
    vars: Vars,
}

impl Walker {
    /// Enters a foreach node, or tries it again.
    pub(super) fn begin_items(
        &mut self,
        now: Timestamp,
        node: &Node,
        foreach: &Foreach,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        self.items = None;
        let count = match self.scope(foreach, step) {
            Ok(scope) => u32::try_from(scope.list.len()).unwrap_or(u32::MAX),
            Err(failure) => {
                return self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            }
        };
        let event = Event::Run(RunEvent::StepStarted {
            step: step.number,
            node: step.node.to_string(),
            visit: step.visit,
            attempt: step.attempt,
            action_id: foreach.action.id.clone(),
            effect: node.effect,
            key: self.key(&step.node, step.visit, None, None),
            now: step.now,
            items: Some(count),
            child: None,
            node_input_hash: None,
        });
        self.record(now, event, events);
    }

    /// The list and the state its items see; evaluated once for each step, and again after a restart, with the same `_now`.
    fn scope(&mut self, foreach: &Foreach, step: &Step) -> Result<&mut ItemScope, Failure> {
        if self
            .items
            .as_ref()
            .is_none_or(|scope| scope.step != step.number)
        {
            let vars = self.walk().vars.clone();
            let over = {
                let view = View::new(&vars, None, step.now);
                expr::interpolate(&foreach.over, &view.names(), &mut self.notes)
                    .map_err(|error| interpolation_failure(&error))?
            };
            if over.is_null() {
                self.notes.push(format!(
                    "node `{}`: `over` is null, so there are no items",
                    step.node
                ));
            }
            self.items = Some(ItemScope {
                step: step.number,
                list: list(over)?.into(),
                vars,
            });
        }
        Ok(self.items.as_mut().expect("it was filled just now"))
    }

    /// A foreach node is in flight: start items, wait for some, or close the node.
    pub(super) fn items_turn(
        &mut self,
        now: Timestamp,
        node: &Node,
        foreach: &Foreach,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        if let Err(failure) = self.scope(foreach, step) {
            self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            return Turn::Again;
        }
        if let Some(turn) = self.stop_if_requested(now, events) {
            return turn;
        }
        if let Some(turn) = self.revive_item(now, node, foreach, step, events) {
            return turn;
        }
        if self.may_start_item(foreach)
            && let Some(item) = self.next_item()
        {
            return self.call_item(now, node, foreach, step, item, None, events);
        }
        if !self.running.is_empty() {
            return self.rest();
        }
        let uncertain = self.uncertain_items(step);
        if !uncertain.is_empty() {
            return self.suspend_uncertain(now, uncertain, events);
        }
        if let Some((_, child)) = self.suspended.pop_first() {
            self.suspended.clear();
            return self.suspend_for_child(now, child, events);
        }
        self.close_items(now, node, foreach, step, events);
        Turn::Again
    }

    fn items_in_hand(&self) -> Option<&Items> {
        self.walk().at.items()
    }

    /// Whether a failed item, or results that fill the memory, keep others from starting.
    fn gives_up(&self, foreach: &Foreach) -> bool {
        self.items_in_hand().is_some_and(|items| {
            items.bytes > MOST_BYTES
                || (foreach.on_item_error == OnItemError::Fail && items.failed > 0)
        })
    }

    /// Whether another item may start beside those in flight; one that is suspended, or whose outcome is unknown,
    /// is in flight too.
    fn may_start_item(&self, foreach: &Foreach) -> bool {
        let at_once = match foreach.order {
            ItemOrder::Sequential => 1,
            ItemOrder::Parallel { at_once } => at_once
                .or(self.graph.max_concurrency)
                .map_or(AT_ONCE, NonZeroU32::get),
        };
        let busy = self.items_in_hand().map_or(0, |items| items.running.len());
        !self.gives_up(foreach) && u32::try_from(busy).is_ok_and(|busy| busy < at_once)
    }

    /// The next item that has neither ended nor started.
    fn next_item(&self) -> Option<u32> {
        let items = self.items_in_hand()?;
        (items.next..items.count())
            .find(|item| !items.is_done(*item) && !items.running.contains_key(item))
    }

    /// Goes on with an item that was in flight when the daemon went down. A failed item elsewhere does not keep it from
    /// ending.
    fn revive_item(
        &mut self,
        now: Timestamp,
        node: &Node,
        foreach: &Foreach,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Option<Turn> {
        let lost = self.items_in_hand()?.running.iter().find(|(item, work)| {
            let slot = Slot::Part(**item);
            !self.running.contains_key(&slot)
                && !self.suspended.contains_key(&slot)
                && !matches!(Revival::of(work), Revival::Uncertain)
        });
        let (item, work) = lost.map(|(item, work)| (*item, work.clone()))?;
        match Revival::of(&work) {
            Revival::Uncertain => None,
            Revival::Settled(answer) => {
                self.conclude_item(now, item, &answer, 0, events);
                Some(Turn::Again)
            }
            Revival::Attach(child) => {
                Some(self.call_item(now, node, foreach, step, item, Some(child), events))
            }
            Revival::Repeat => Some(self.call_item(now, node, foreach, step, item, None, events)),
        }
    }

    fn uncertain_items(&self, step: &Step) -> Vec<String> {
        let items = self.items_in_hand();
        let running = items.into_iter().flat_map(|items| items.running.iter());
        running
            .filter(|(_, work)| matches!(Revival::of(work), Revival::Uncertain))
            .map(|(item, _)| attempt_name(&step.node, Slot::Part(*item)))
            .collect()
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "an item is named by all of them, and nothing else needs the bundle"
    )]
    fn call_item(
        &mut self,
        now: Timestamp,
        node: &Node,
        foreach: &Foreach,
        step: &Step,
        item: u32,
        attached: Option<RunId>,
        events: &mut Vec<Event>,
    ) -> Turn {
        let next = self
            .items_in_hand()
            .map_or(1, |items| items.next_attempt(item));
        let attempt = next - u32::from(attached.is_some());
        let continues = match attached {
            Some(_) => None,
            None => self
                .items_in_hand()
                .and_then(|items| items.child(item).cloned()),
        };
        let resolved = self.resolve_item(foreach, step, item);
        match resolved {
            Ok((target, params)) => Turn::Call(Box::new(Call {
                slot: Slot::Part(item),
                step: step.number,
                node: step.node.to_string(),
                visit: step.visit,
                attempt,
                now: step.now,
                primary: foreach.action.primary,
                item: target,
                params,
                key: self.key(&step.node, step.visit, Some(item), None),
                effect: node.effect,
                undeclared: false,
                caching: node.caching,
                timeout: node.timeout,
                authority: Authority::Run,
                attached,
                continues,
            })),
            Err(failure) => {
                let answer = CallOutcome {
                    result: Arc::default(),
                    failure: Some(failure),
                    certainty: Certainty::NeverStarted,
                    cached: false,
                    node_input_hash: None,
                };
                self.conclude_item(now, item, &answer, 0, events);
                Turn::Again
            }
        }
    }

    fn resolve_item(
        &mut self,
        foreach: &Foreach,
        step: &Step,
        item: u32,
    ) -> Result<(crate::id::ItemRef, Object), Failure> {
        let lost = || Failure::permanent("item_gone", "the list of the node changed under it");
        let scope = self.items.as_mut().ok_or_else(lost)?;
        let value = usize::try_from(item)
            .ok()
            .and_then(|item| scope.list.get(item))
            .ok_or_else(lost)?;
        scope.vars.set(&foreach.variable, value.clone());
        let view = View::item(&scope.vars, &foreach.variable, value, step.now);
        resolve(&foreach.action, &view.names(), &mut self.notes)
    }

    pub(super) fn conclude_item(
        &mut self,
        now: Timestamp,
        item: u32,
        answer: &CallOutcome,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.at_hand(&graph, now) else {
            return;
        };
        if node.effect == Effect::AtMostOnce && answer.certainty == Certainty::Unknown {
            return;
        }
        let collects = matches!(
            &node.work,
            Work::Foreach(foreach) if foreach.on_item_error == OnItemError::Collect
        );
        let status = match (&answer.failure, answer.cached) {
            (Some(_), _) => StepStatus::Error,
            (None, true) => StepStatus::Cached,
            (None, false) => StepStatus::Ok,
        };
        let event = Event::Graph(GraphEvent::ItemCompleted {
            step: step.number,
            node: step.node.to_string(),
            item,
            status,
            elapsed_ms,
            result: Arc::clone(&answer.result),
            collected: collected(answer).map(Arc::new),
            error: answer.failure.clone(),
            never_started: answer.certainty == Certainty::NeverStarted,
            unknown_below: answer.certainty == Certainty::UnknownBelow,
            suppressed: answer.failure.is_some() && collects,
            node_input_hash: answer.node_input_hash.clone(),
        });
        self.record(now, event, events);
    }

    /// All items that were to run have ended: the node fails, or assigns and chooses its edge.
    fn close_items(
        &mut self,
        now: Timestamp,
        node: &Node,
        foreach: &Foreach,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        let Some(items) = self.items_in_hand() else {
            return;
        };
        let (count, failed) = (items.count(), items.failed);
        let collected: Vec<Value> = items
            .results()
            .map(|done| done.map_or(Value::Null, |done| Value::clone(&done.value)))
            .collect();
        let failure = self
            .gives_up(foreach)
            .then(|| item_failure(items, step, node.effect));
        let result = Arc::new(json!({"results": collected, "count": count, "failed": failed}));
        if let Some((failure, certainty)) = failure {
            let repeat = Repeat::of(node.effect, &failure, certainty);
            return self.fail(now, step, failure, &result, repeat, events);
        }
        let mut collect = Vars::default();
        if let Some(key) = &foreach.collect {
            collect.set(key, Value::Array(collected));
        }
        let assigned = match self.assign(node, Some(&result), step.now, collect) {
            Ok(assigned) => assigned,
            Err(failure) => {
                return self.fail(now, step, failure, &result, Repeat::Useless, events);
            }
        };
        let next_node = self.edge(node, &assigned.vars, Some(&result), step.now);
        let summary = Event::Graph(GraphEvent::ForeachCompleted {
            step: step.number,
            node: step.node.to_string(),
            items: count,
            failed,
            next_node: next_node.clone(),
        });
        self.record(now, summary, events);
        let done = Done {
            action_id: Some(foreach.action.id.clone()),
            ..Done::new(StepStatus::Foreach, assigned.delta, next_node)
        };
        self.step_done(now, step, done, Some(&result), events);
    }
}

/// What stands for an item in the list of results, if it is not its result.
fn collected(answer: &CallOutcome) -> Option<Value> {
    let thread = answer.result.get("thread_id").filter(|id| id.is_string());
    match (thread, &answer.failure) {
        (Some(id), _) => Some(id.clone()),
        (None, Some(error)) => Some(error_document(error, &answer.result)),
        (None, None) => None,
    }
}

/// The failure of a node whose items failed: that of the first of them, whatever was begun beside it. What must not happen
/// twice never started only if none of the failed items did.
fn item_failure(items: &Items, step: &Step, effect: Effect) -> (Failure, Certainty) {
    if items.bytes > MOST_BYTES {
        let text = format!(
            "the results of the items are {}; let them write to files, or go over fewer at a time",
            Excess::Bytes
        );
        return (
            Failure::permanent("results_too_large", text),
            Certainty::Known,
        );
    }
    let mut failed = items.failures();
    let mut failure = Failure::permanent(ITEM_FAILED, "an item failed");
    let Some((item, first, error)) = failed.next() else {
        return (failure, Certainty::Known);
    };
    failure.message = format!(
        "{} failed: {} ({})",
        attempt_name(&step.node, Slot::Part(item)),
        error.message,
        error.code
    );
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

/// The items of `over`: a list, the text of a JSON list, or nothing.
fn list(over: Value) -> Result<Vec<Value>, Failure> {
    let not_a_list = |what: &str| {
        let text = format!("`over` is {what}; a foreach node goes over a list");
        Failure::permanent("over_not_a_list", text)
    };
    match over {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => Ok(list),
        Value::String(text) => match parse_json(&text) {
            Ok(Value::Array(list)) => Ok(list),
            Ok(_) | Err(_) => Err(not_a_list("a text that is not a JSON list")),
        },
        Value::Bool(_) => Err(not_a_list("a boolean")),
        Value::Number(_) => Err(not_a_list("a number")),
        Value::Object(_) => Err(not_a_list("a map")),
    }
}
