//! Foreach and parallel nodes: their items or branches, sequential or concurrent. A branch is an item with its own
//! action.
//!
//! Each item is an attempt with its own key. Items see the state at the entry of the node, with the loop variable in
//! it; no item changes it. A failed item is tried again as `retry` of the node grants. After the first item that fails
//! for good, no new one starts and those in flight are stopped, unless the node collects failures.

mod parts;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub(super) use self::parts::Parts;
use self::parts::{Pauses, too_large};
use super::evaluate::{View, lost, resolve, value_of, values};
use super::failure::{Repeat, error_document};
use super::step::Revival;
use super::{Turn, Walker, interpolation_failure};
use crate::bounds::{self, MOST_BYTES};
use crate::capability::Primary;
use crate::clock::Timestamp;
use crate::definition::{Authority, Node, OnItemError};
use crate::error::beginning;
use crate::expr::{self, Vars};
use crate::id::{ItemRef, RunId};
use crate::machine::{Call, CallOutcome, Certainty, ResultText};
use crate::model::event::{ItemCompleted, StepStarted};
use crate::model::graph::{At, Items, Step};
use crate::model::{Effect, Event, Failure, Object, Slot, StartFrom, StepStatus, Verdict};
use crate::printable;

/// The code of a node that failed because one of its items did.
pub(super) const ITEM_FAILED: &str = "item_failed";
/// Resolving an action in less time does not block other work.
const NO_TIME: Duration = Duration::from_micros(200);
/// Characters of an item's value that identify it for people.
const ABOUT_CHARS: usize = 60;

/// Names that the items of a node see.
#[derive(Debug, Clone)]
pub(super) struct ItemScope {
    step: u32,
    list: Arc<[Value]>,
    /// The state, with the loop variable of the last item.
    vars: Vars,
    /// Time for resolving the action of that item, once there was one and a clock.
    took: Option<Duration>,
    pauses: Pauses,
}

impl Walker {
    /// Enters a foreach or parallel node, or tries it again.
    pub(super) fn begin_items(
        &mut self,
        now: Timestamp,
        node: &Node,
        parts: Parts<'_>,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        self.items = None;
        let count = match self.scope(parts, step) {
            Ok(scope) => u32::try_from(scope.list.len()).unwrap_or(u32::MAX),
            Err(failure) => {
                return self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            }
        };
        let earlier = step.items().map(Items::count);
        if let Some(earlier) = earlier.filter(|earlier| *earlier != count)
            && self.repeats_failed(step)
        {
            let text = format!(
                "it has {count} items now and had {earlier} when some failed: which these are is not known any more; start a new run"
            );
            let failure = Failure::permanent("items_changed", text);
            return self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
        }
        let event = Event::from(StepStarted {
            step: step.number,
            node: step.node.to_string(),
            visit: step.visit,
            attempt: step.attempt,
            action_id: parts.action_id(),
            effect: node.effect,
            key: self.key(&step.node, step.visit, None, None),
            now: step.now,
            items: Some(count),
            branches: parts.names(),
            ..StepStarted::default()
        });
        self.record(now, event, events);
    }

    /// True if the run repeats the failed items that another run left of this step.
    fn repeats_failed(&self, step: &Step) -> bool {
        let spec = &self.run.spec;
        let first = |start: &StartFrom| start.state.steps + 1 == step.number;
        spec.repairs().is_some() || spec.from_failed().is_some_and(first)
    }

    /// Returns the list and the state that its items see; evaluated once for each step, and again after a restart, with
    /// the same `_now`.
    fn scope(&mut self, parts: Parts<'_>, step: &Step) -> Result<&mut ItemScope, Failure> {
        if self
            .items
            .as_ref()
            .is_none_or(|scope| scope.step != step.number)
        {
            let vars = self.walk().vars.clone();
            let values = match parts {
                Parts::Items(foreach) => {
                    let services = self.services();
                    values(foreach, &vars, step, services, &mut self.notes)?
                }
                Parts::Branches(_) => {
                    let names = parts.names().into_iter();
                    names.map(|name| Value::from(&*name)).collect()
                }
            };
            self.items = Some(ItemScope {
                step: step.number,
                list: values.into(),
                vars,
                took: None,
                pauses: Pauses::default(),
            });
        }
        Ok(self.items.as_mut().expect("it was filled just now"))
    }

    /// Handles a foreach node in flight: starts items, waits for some, or closes the node.
    pub(super) fn items_turn(
        &mut self,
        now: Timestamp,
        node: &Node,
        parts: Parts<'_>,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        if let Err(failure) = self.scope(parts, step) {
            self.fail(now, step, failure, &Arc::default(), Repeat::Useless, events);
            return Turn::Again;
        }
        if let Some(turn) = self.stop_if_requested(now, events) {
            return turn;
        }
        if let Some(turn) = self.revive_item(now, node, parts, step, events) {
            return turn;
        }
        if self.may_start_item(parts) {
            let pause = self.next_retry(now);
            let retried = pause.filter(|(_, until)| *until <= self.up);
            let fresh = || self.next_item().filter(|_| self.may_start_new(parts));
            let item = retried.map(|(item, _)| item).or_else(fresh);
            if let Some(item) = item {
                return self.call_item(now, node, parts, step, item, None, events);
            }
            if let Some((_, until)) = pause {
                let deadline = self.deadline;
                return Turn::Wait(Some(deadline.map_or(until, |deadline| until.min(deadline))));
            }
        }
        if let Some((item, child)) = self.take_useless_suspended(parts) {
            return self.call_item(now, node, parts, step, item, Some(child), events);
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
        if self.run.approvals.await_in(step.number) && !self.gives_up(parts) {
            return self.wait_for_answer(now, events);
        }
        if !self.end_paused(now, node, step, events) {
            self.close_items(now, node, parts, step, events);
        }
        Turn::Again
    }

    /// True if the next move starts or ends an item, and does not end the node.
    pub(super) fn is_among_items(&self) -> bool {
        let At::Step(step) = &self.walk().at else {
            return false;
        };
        let starts = |items: &Items| {
            items.failed == 0 && items.bytes <= MOST_BYTES && self.next_item().is_some()
        };
        step.items()
            .is_some_and(|items| !self.running.is_empty() || starts(items))
    }

    /// True if the next move starts or ends an item, and the last item was resolved in less than [`NO_TIME`], whatever
    /// the size of the state: all items have one action.
    pub(super) fn item_takes_no_time(&self) -> bool {
        let took = self.items.as_ref().and_then(|scope| scope.took);
        took.is_some_and(|took| took < NO_TIME) && self.is_among_items()
    }

    fn items_in_hand(&self) -> Option<&Items> {
        self.walk().at.items()
    }

    /// True if a failed item, or results that fill the memory, prevent others from starting.
    fn gives_up(&self, parts: Parts<'_>) -> bool {
        let items = self.items_in_hand();
        items.is_some_and(|items| items.bytes > MOST_BYTES) || self.is_failing(parts)
    }

    /// True if another item may start in addition to those in flight; a suspended one, or one of unknown outcome, is in
    /// flight too.
    fn may_start_item(&self, parts: Parts<'_>) -> bool {
        let at_once = parts.max_concurrent(self.graph.max_concurrency);
        let busy = self.items_in_hand().map_or(0, |items| items.running.len());
        !self.gives_up(parts)
            && self.memory.fits(1)
            && u32::try_from(busy).is_ok_and(|busy| busy < at_once)
    }

    /// Returns the next item that has neither ended nor started.
    fn next_item(&self) -> Option<u32> {
        let items = self.items_in_hand()?;
        let step = self.run.graph()?.at.step()?.number;
        (items.next..items.count()).find(|item| {
            let asks = self.run.approvals.awaits(step, Slot::Part(*item));
            !items.is_done(*item) && !items.running.contains_key(item) && !asks
        })
    }

    /// Continues an item that was in flight when the daemon went down. If another one failed, it is not called again.
    fn revive_item(
        &mut self,
        now: Timestamp,
        node: &Node,
        parts: Parts<'_>,
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
                Some(self.call_item(now, node, parts, step, item, Some(child), events))
            }
            Revival::Repeat if self.is_failing(parts) => {
                self.stop_item(now, item, 0, events);
                Some(Turn::Again)
            }
            Revival::Repeat => Some(self.call_item(now, node, parts, step, item, None, events)),
        }
    }

    fn uncertain_items(&self, step: &Step) -> Vec<String> {
        let items = self.items_in_hand();
        let running = items.into_iter().flat_map(|items| items.running.iter());
        running
            .filter(|(_, work)| matches!(Revival::of(work), Revival::Uncertain))
            .filter_map(|(item, _)| Some(items?.name(&step.node, Slot::Part(*item))))
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
        parts: Parts<'_>,
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
        let resolved = self.resolve_item(parts, step, item);
        match resolved {
            Ok((primary, target, params)) => Turn::Call(Box::new(Call {
                slot: Slot::Part(item),
                step: step.number,
                node: step.node.to_string(),
                visit: step.visit,
                attempt,
                now: step.now,
                primary,
                item: target,
                params,
                key: self.key(&step.node, step.visit, Some(&parts.identity(item)), None),
                effect: node.effect,
                undeclared: node.effect != Effect::AtMostOnce,
                replays: false,
                result_text: ResultText::default(),
                caching: node.caching,
                timeout: node.timeout,
                authority: Authority::Run,
                attached,
                continues,
            })),
            Err(failure) => {
                let answer = CallOutcome::never_started(failure);
                self.conclude_item(now, item, &answer, 0, events);
                Turn::Again
            }
        }
    }

    fn resolve_item(
        &mut self,
        parts: Parts<'_>,
        step: &Step,
        item: u32,
    ) -> Result<(Primary, ItemRef, Object), Failure> {
        let begun = self.clock.as_ref().map(|clock| clock.up());
        let services = self.services();
        let scope = self.items.as_mut().ok_or_else(lost)?;
        let list = Arc::clone(&scope.list);
        let value = value_of(&list, item)?;
        let action = parts.action(item).ok_or_else(lost)?;
        let view = match parts {
            Parts::Items(foreach) => {
                scope.vars.set(&foreach.variable, value.clone());
                View::item(&scope.vars, &foreach.variable, value, step.now)
            }
            Parts::Branches(_) => View::new(&scope.vars, None, step.now),
        };
        let view = view.with_services(services);
        let (target, params) = resolve(action, &view.names(), &mut self.notes)?;
        if let (Parts::Items(_), Some(clock), Some(begun)) = (parts, &self.clock, begun) {
            scope.took = Some(clock.up().since(begun));
        }
        Ok((action.primary, target, params))
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
        let attempt = step.items().and_then(|items| items.running.get(&item));
        let effect = attempt.map_or(node.effect, |attempt| attempt.effect);
        if effect == Effect::AtMostOnce && answer.certainty == Certainty::Unknown {
            return;
        }
        let kept = self.keep(node, &step, item, answer);
        if let (Some(failure), Some(parts)) = (&kept.failure, Parts::of(&node.work)) {
            let repeat = if kept.uncollected {
                Repeat::of_done(effect)
            } else {
                Repeat::of(effect, failure, answer.certainty)
            };
            if repeat == Repeat::Possible
                && self.retry_item(now, (node, parts), &step, item, failure, events)
            {
                return;
            }
        }
        self.record_item(now, (node, &step), item, answer, kept, elapsed_ms, events);
    }

    /// Records the end of an item with a failure that is not one of its try.
    fn fail_item(
        &mut self,
        now: Timestamp,
        (node, step): (&Node, &Step),
        item: u32,
        failure: Failure,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let answer = CallOutcome {
            failure: Some(failure),
            ..CallOutcome::known(Value::Null)
        };
        let kept = self.keep(node, step, item, &answer);
        self.record_item(now, (node, step), item, &answer, kept, elapsed_ms, events);
    }

    /// Returns the part of an outcome that the node keeps.
    fn keep(&mut self, node: &Node, step: &Step, item: u32, answer: &CallOutcome) -> Kept {
        let collected = self.collected(Parts::of(&node.work), step, item, answer);
        let kept = match collected {
            Ok(collected) => Kept {
                collected,
                failure: answer.failure.clone(),
                uncollected: false,
                fits: true,
            },
            Err(failure) => Kept {
                collected: Some(error_document(&failure, &answer.result)),
                failure: Some(failure),
                uncollected: true,
                fits: true,
            },
        };
        if self.fits(answer, kept.collected.as_ref()) {
            kept
        } else {
            kept.without_value()
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "an item is named by all of them, and nothing else needs the bundle"
    )]
    fn record_item(
        &mut self,
        now: Timestamp,
        (node, step): (&Node, &Step),
        item: u32,
        answer: &CallOutcome,
        kept: Kept,
        elapsed_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let attempt = step.items().and_then(|items| items.running.get(&item));
        let is_declared = attempt.is_some_and(|attempt| attempt.verdict == Some(Verdict::Done));
        let parts = Parts::of(&node.work);
        let collects = parts.is_some_and(|parts| parts.on_item_error() == OnItemError::Collect);
        let status = match (&kept.failure, answer.cached) {
            (Some(_), _) => StepStatus::Error,
            (None, true) => StepStatus::Cached,
            (None, false) if is_declared => StepStatus::Declared,
            (None, false) => StepStatus::Ok,
        };
        let has_failed = kept.failure.is_some();
        let event = Event::from(ItemCompleted {
            step: step.number,
            node: step.node.to_string(),
            item,
            status,
            elapsed_ms,
            result: if kept.fits {
                Arc::clone(&answer.result)
            } else {
                Arc::default()
            },
            collected: kept.collected.map(Arc::new),
            suppressed: has_failed && collects,
            about: has_failed.then(|| self.about(parts, step, item)).flatten(),
            error: kept.failure,
            never_started: answer.certainty == Certainty::NeverStarted,
            unknown_below: answer.certainty == Certainty::UnknownBelow,
            uncollected: kept.uncollected,
            node_input_hash: answer.node_input_hash.clone(),
        });
        self.record(now, event, events);
    }

    /// True if the value of an item, `collected` or else its result, fits next to those of the other items.
    fn fits(&self, answer: &CallOutcome, collected: Option<&Value>) -> bool {
        let taken = self.items_in_hand().map_or(0, |items| items.bytes);
        let value = collected.unwrap_or(&answer.result);
        taken.saturating_add(bounds::size(value)) <= MOST_BYTES
    }

    /// Returns the beginning of an item's value, which identifies it for people. A branch is identified by its name.
    fn about(&mut self, parts: Option<Parts<'_>>, step: &Step, item: u32) -> Option<String> {
        let parts = parts.filter(|parts| matches!(parts, Parts::Items(_)))?;
        let scope = self.scope(parts, step).ok()?;
        let value = value_of(&scope.list, item).ok()?;
        let text = printable::in_line(&expr::text_of(value), ' ');
        Some(beginning(&text, ABOUT_CHARS).into_owned())
    }

    /// Returns the value in the list of results, if it is not the item's result.
    fn collected(
        &mut self,
        parts: Option<Parts<'_>>,
        step: &Step,
        item: u32,
        answer: &CallOutcome,
    ) -> Result<Option<Value>, Failure> {
        let template = match parts {
            Some(Parts::Items(foreach)) => foreach.collect_value.as_ref().zip(Some(foreach)),
            Some(Parts::Branches(_)) | None => None,
        };
        let thread = answer.result.get("thread_id").filter(|id| id.is_string());
        match (template, thread, &answer.failure) {
            (Some((template, foreach)), _, None) => {
                let scope = self.items.as_mut().ok_or_else(lost)?;
                let list = Arc::clone(&scope.list);
                let value = value_of(&list, item)?;
                scope.vars.set(&foreach.variable, value.clone());
                let view = View::item(&scope.vars, &foreach.variable, value, step.now);
                let view = view.with_result(&answer.result);
                let told = expr::interpolate(template, &view.names(), &mut self.notes);
                told.map(Some)
                    .map_err(|error| interpolation_failure(&error).decided())
            }
            (_, Some(id), _) => Ok(Some(id.clone())),
            (_, None, Some(error)) => Ok(Some(error_document(error, &answer.result))),
            (None, None, None) => Ok(None),
        }
    }
}

/// The part of the outcome of an item that its node keeps.
struct Kept {
    /// The collected value, if it is not the result.
    collected: Option<Value>,
    failure: Option<Failure>,
    /// True if the action succeeded, and only the collection of its value failed.
    uncollected: bool,
    /// True if the value fits next to those of the other items.
    fits: bool,
}

impl Kept {
    /// Replaces a value that does not fit by the failure.
    fn without_value(self) -> Self {
        let succeeded = self.failure.is_none();
        let failure = self.failure.unwrap_or_else(too_large);
        Self {
            collected: Some(error_document(&failure, &Value::Null)),
            failure: Some(failure),
            uncollected: self.uncollected || succeeded,
            fits: false,
        }
    }
}
