//! Nodes with an action, gates and returns: attempted, recovered, concluded.

use std::sync::Arc;

use serde_json::{Value, json};

use super::failure::Repeat;
use super::items::Parts;
use super::{Turn, Walker};
use crate::clock::{Timestamp, Uptime};
use crate::definition::{Action, Authority, Graph, HookEvent, Node, Work};
use crate::expr::Vars;
use crate::id::RunId;
use crate::machine::{Call, CallOutcome, Certainty, ResultText};
use crate::model::event::StepCompleted;
use crate::model::graph::{Due, Idle, Step, StepWork, Waits};
use crate::model::{Attempt, Effect, Event, Failure, Outcome, Slot, StepStatus, Verdict};

impl Walker {
    /// Attempts the next node, unless the run is at its end or its limit.
    pub(super) fn begin_node(
        &mut self,
        now: Timestamp,
        name: &str,
        events: &mut Vec<Event>,
    ) -> Turn {
        let single = self.run.spec.is_single_step();
        if single && self.walk().last.is_some() {
            let outcome = self.completed();
            return self.finish(now, outcome, events);
        }
        if self.walk().steps >= self.max_steps() && !single {
            return self.at_limit(now, name, events);
        }
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(name) else {
            let error =
                Failure::permanent("node_not_found", format!("the graph has no node `{name}`"));
            let error = error.at(name);
            return self.finish(now, Outcome::Error { error }, events);
        };
        // A step keeps its time, and so its parameters, while a person decides about it.
        let asked = (self.run.approvals).of_call(self.walk().steps + 1, Slot::Main);
        let since = asked.map_or(now, |asked| asked.approval.created_at);
        self.ahead = Some(since);
        let step = self.fresh_step(node, since);
        if self.fail_without_service(now, &step, events) {
            return Turn::Again;
        }
        self.attempt(now, node, &step, events)
    }

    /// Attempts a step: for the first time, or again after a failure.
    fn attempt(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        match &node.work {
            Work::Action(action) | Work::Service(action) | Work::ProcessWait(action) => {
                return self.call_action(now, node, action, step, events);
            }
            Work::Foreach(foreach) => {
                self.begin_items(now, node, Parts::Items(foreach), step, events);
            }
            Work::Parallel(parallel) => {
                self.begin_items(now, node, Parts::Branches(parallel), step, events);
            }
            Work::Fail(fail) => self.end_in_failure(now, fail, step, events),
            Work::Wait(pause) => self.begin_wait(now, pause, step, events),
            Work::Approval(ask) => self.ask_person(now, node, ask, step, events),
            Work::Gate => self.pass(now, node, step, events),
            Work::Return { output } => self.finish_return(now, output.as_ref(), step, events),
        }
        Turn::Again
    }

    pub(super) fn call_action(
        &mut self,
        now: Timestamp,
        node: &Node,
        action: &Action,
        step: &Step,
        events: &mut Vec<Event>,
    ) -> Turn {
        let resolved = self.resolve(action, step.now);
        let resolved = resolved.and_then(|(item, mut params)| {
            self.complete_params(node, &mut params)?;
            Ok((item, params))
        });
        match resolved {
            Ok((item, params)) => Turn::Call(Box::new(Call {
                slot: Slot::Main,
                step: step.number,
                node: step.node.to_string(),
                visit: step.visit,
                attempt: step.attempt,
                now: step.now,
                primary: action.primary,
                item,
                params,
                key: self.key(&step.node, step.visit, None, None),
                effect: node.effect,
                undeclared: node.effect != Effect::AtMostOnce,
                replays: false,
                result_text: ResultText::default(),
                caching: node.caching,
                timeout: node.timeout,
                authority: Authority::Run,
                attached: None,
                continues: self.walk().at.child().cloned(),
            })),
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Arc::new(Value::Null),
                    Repeat::Useless,
                    events,
                );
                Turn::Again
            }
        }
    }

    /// Handles a step in flight: waits for it, or recovers it after a restart.
    pub(super) fn in_step(&mut self, now: Timestamp, step: &Step, events: &mut Vec<Event>) -> Turn {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(&step.node) else {
            let error = Failure::permanent("node_not_found", "the graph lost the node of its step");
            let error = error.at(&step.node);
            return self.finish(now, Outcome::Error { error }, events);
        };
        if let StepWork::Waits(waits) = &step.work {
            if self.fail_without_service(now, step, events) {
                return Turn::Again;
            }
            return match waits {
                Waits::Until { at, delay_ms } => {
                    self.wait_on(now, node, step, (*at, *delay_ms), events)
                }
                Waits::Answer => self.await_answer(now, node, step, events),
            };
        }
        if let Some(parts) = Parts::of(&node.work) {
            if self.fail_without_service(now, step, events) {
                return Turn::Again;
            }
            return self.items_turn(now, node, parts, step, events);
        }
        let Some(action) = node.work.action() else {
            unreachable!("what carries nothing out is walked in one turn, or waits")
        };
        if self.running.contains_key(&Slot::Main) {
            return self.rest();
        }
        if let Some(turn) = self.stop_if_requested(now, events) {
            return turn;
        }
        if let Some(child) = self.suspended.remove(&Slot::Main) {
            return self.suspend_for_child(now, child, events);
        }
        let StepWork::Action(attempt) = &step.work else {
            unreachable!("the step of an action is an attempt of it")
        };
        match Revival::of(attempt) {
            Revival::Uncertain => {
                let what = vec![step.node.to_string()];
                self.suspend_uncertain(now, what, events)
            }
            Revival::Settled(answer) => {
                self.conclude_action(now, &answer, events);
                Turn::Again
            }
            Revival::Attach(child) => {
                let mut turn = self.call_action(now, node, action, step, events);
                if let Turn::Call(call) = &mut turn {
                    call.attached = Some(child);
                    call.continues = None;
                }
                turn
            }
            Revival::Repeat if self.fail_without_service(now, step, events) => Turn::Again,
            Revival::Repeat => self.call_action(now, node, action, &again(step), events),
        }
    }

    /// Returns the time of the next try of the failed step, by the clock for delays. After a restart the wall clock
    /// gives the rest of the delay, which is never longer than the delay.
    pub(super) fn retry_at(&mut self, now: Timestamp, step: &Step, due: &Due) -> Uptime {
        match self.retry {
            Some((number, attempt, until)) if (number, attempt) == (step.number, step.attempt) => {
                until
            }
            Some(_) | None => {
                let until = due.end(now, self.up);
                self.retry = Some((step.number, step.attempt, until));
                until
            }
        }
    }

    pub(super) fn wait_or_retry(
        &mut self,
        now: Timestamp,
        step: &Step,
        due: &Due,
        events: &mut Vec<Event>,
    ) -> Turn {
        let until = self.retry_at(now, step, due);
        if self.up < until {
            let deadline = self.deadline;
            return Turn::Wait(Some(deadline.map_or(until, |deadline| until.min(deadline))));
        }
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(&step.node) else {
            let error = Failure::permanent("node_not_found", "the graph lost the node of its step");
            return self.finish(now, Outcome::Error { error }, events);
        };
        self.attempt(now, node, &again(step), events)
    }

    pub(super) fn conclude_action(
        &mut self,
        now: Timestamp,
        answer: &CallOutcome,
        events: &mut Vec<Event>,
    ) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.at_hand(&graph, now) else {
            return;
        };
        let effect = step.effect().unwrap_or(node.effect);
        if effect == Effect::AtMostOnce && answer.certainty == Certainty::Unknown {
            // It stays in flight; the next turn suspends the run.
            return;
        }
        if let Some(failure) = &answer.failure {
            let repeat = Repeat::of(effect, failure, answer.certainty);
            return self.fail(now, &step, failure.clone(), &answer.result, repeat, events);
        }
        let of_process = self.conclude_process(now, node, &answer.result, events);
        let (result, own_status) = match of_process {
            Some((result, status)) => (result, status),
            None => (Arc::clone(&answer.result), StepStatus::Ok),
        };
        match self.assign(node, Some(&result), step.now, Vars::default()) {
            Ok(assigned) => {
                let next_node = self.edge(node, &assigned.vars, Some(&result), step.now);
                let status = match (answer.cached, step.is_declared()) {
                    (true, _) => StepStatus::Cached,
                    (false, true) => StepStatus::Declared,
                    (false, false) => own_status,
                };
                let done = Done {
                    action_id: node.work.action().map(|action| action.id.clone()),
                    result: Some(Arc::clone(&result)),
                    cache_hit: answer.cached,
                    node_input_hash: answer.node_input_hash.clone(),
                    ..Done::new(status, assigned.delta, next_node)
                };
                self.step_done(now, &step, done, Some(&result), events);
            }
            Err(failure) => {
                let repeat = Repeat::of_done(effect);
                self.fail(now, &step, failure, &result, repeat, events);
            }
        }
    }

    /// Passes a gate: assigns, then chooses an edge.
    pub(super) fn pass(
        &mut self,
        now: Timestamp,
        node: &Node,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        match self.assign(node, None, step.now, Vars::default()) {
            Ok(assigned) => {
                let next_node = self.edge(node, &assigned.vars, None, step.now);
                let done = Done::new(StepStatus::Gate, assigned.delta, next_node);
                self.step_done(now, step, done, None, events);
            }
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Arc::new(Value::Null),
                    Repeat::Useless,
                    events,
                );
            }
        }
    }

    pub(super) fn finish_return(
        &mut self,
        now: Timestamp,
        template: Option<&Value>,
        step: &Step,
        events: &mut Vec<Event>,
    ) {
        match self.output(template, step.now) {
            Ok(output) => {
                let done = Done {
                    output: Some(Arc::new(output)),
                    ..Done::new(StepStatus::Return, Vars::default(), None)
                };
                self.step_done(now, step, done, None, events);
            }
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Arc::new(Value::Null),
                    Repeat::Useless,
                    events,
                );
            }
        }
    }

    /// Records a node that did not fail, and calls the hooks of `after_step`.
    pub(super) fn step_done(
        &mut self,
        now: Timestamp,
        step: &Step,
        done: Done,
        result: Option<&Value>,
        events: &mut Vec<Event>,
    ) {
        self.items = None;
        self.record(now, done.event(now, step), events);
        let Some(last) = self.walk().last.clone() else {
            return;
        };
        if !self.has_hooks(HookEvent::AfterStep) {
            return;
        }
        let context = self.context([
            ("node", json!(last.node)),
            ("next_node", json!(last.next_node)),
            ("result", result.cloned().unwrap_or_else(|| json!({}))),
        ]);
        self.open_round(now, HookEvent::AfterStep, context, events);
    }

    pub(super) fn fresh_step(&self, node: &Node, now: Timestamp) -> Step {
        let walk = self.walk();
        Step {
            number: walk.steps + 1,
            node: node.name.as_str().into(),
            visit: walk.visits.get(node.name.as_str()).copied().unwrap_or(0),
            now,
            attempt: 1,
            child: walk.at.child().cloned(),
            work: StepWork::NeverStarted(walk.at.items().cloned()),
            idle: Idle::default(),
        }
    }

    /// Returns the step in flight or failed, or the one that the next node would be.
    pub(super) fn at_hand<'g>(&self, graph: &'g Graph, now: Timestamp) -> Option<(Step, &'g Node)> {
        let at = &self.walk().at;
        let node = graph.nodes.get(at.node()?)?;
        let step = at.step().cloned();
        let since = self.ahead.unwrap_or(now);
        Some((step.unwrap_or_else(|| self.fresh_step(node, since)), node))
    }
}

/// Returns the same step for another try.
fn again(step: &Step) -> Step {
    Step {
        attempt: step.attempt + 1,
        ..step.clone()
    }
}

/// The handling of an attempt that was in flight when the daemon went down.
pub(super) enum Revival {
    /// It is carried out again.
    Repeat,
    /// The run that carries it out is attached again.
    Attach(RunId),
    /// It is at-most-once, and may have executed.
    Uncertain,
    /// A person stated its outcome.
    Settled(CallOutcome),
}

impl Revival {
    pub(super) fn of(attempt: &Attempt) -> Self {
        let settled = |failure| {
            Self::Settled(CallOutcome {
                failure,
                ..CallOutcome::known(attempt.declared.clone().unwrap_or_default())
            })
        };
        match (attempt.verdict, &attempt.child, attempt.effect) {
            (Some(Verdict::Done), _, _) => settled(None),
            (Some(Verdict::Fail), _, _) => settled(Some(Failure::permanent(
                "uncertain_failed",
                "it was unknown what became of the call, and it was declared failed",
            ))),
            (None, Some(child), _) => Self::Attach(child.clone()),
            (None, None, Effect::AtMostOnce) => Self::Uncertain,
            (Some(Verdict::Retry), _, _) | (None, None, Effect::Idempotent | Effect::Pure) => {
                Self::Repeat
            }
        }
    }
}

/// The end of a node, for its event: fields of every kind of node, and of some.
pub(super) struct Done {
    pub(super) status: StepStatus,
    pub(super) assigned: Vars,
    pub(super) next_node: Option<String>,
    pub(super) error: Option<Failure>,
    pub(super) suppressed: bool,
    pub(super) output: Option<Arc<Value>>,
    pub(super) action_id: Option<String>,
    pub(super) result: Option<Arc<Value>>,
    pub(super) cache_hit: bool,
    pub(super) node_input_hash: Option<String>,
}

impl Done {
    pub(super) const fn new(status: StepStatus, assigned: Vars, next_node: Option<String>) -> Self {
        Self {
            status,
            assigned,
            next_node,
            error: None,
            suppressed: false,
            output: None,
            action_id: None,
            result: None,
            cache_hit: false,
            node_input_hash: None,
        }
    }

    pub(super) fn event(self, now: Timestamp, step: &Step) -> Event {
        Event::from(StepCompleted {
            step: step.number,
            node: step.node.to_string(),
            status: self.status,
            // The duration is unknown; the time of the question does not count.
            elapsed_ms: if self.status == StepStatus::Declared {
                0
            } else {
                step.elapsed_ms(now)
            },
            next_node: self.next_node,
            assigned: self.assigned,
            error: self.error,
            suppressed: self.suppressed,
            output: self.output,
            action_id: self.action_id,
            result: self.result,
            cache_hit: self.cache_hit,
            node_input_hash: self.node_input_hash,
        })
    }
}
