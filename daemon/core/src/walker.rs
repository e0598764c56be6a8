//! The walker: the pure machine that decides what a graph run does next.
//!
//! **Owns** a copy of the run's record, which it advances by the very events it hands out. **Never** acts, waits or
//! reads a clock: the driver (`ryed::graph`) commits the events, carries out each [`Call`] and tells the outcome.
//!
//! ```text
//!            next(now)                                start(call)   conclude(slot, answer)
//! driver ─────────────► Move::Call ─look it up─► announced ─effect─► ─────────────────────► events ─┐
//!    ▲      ├─────────► Move::Wait  (nothing more can start now)                                     │ committed with
//!    │      ├─────────► Move::Note  (pure steps; ask again)                                          │ what the next
//!    │      └─────────► Move::Park, Move::End  (that event is among the events)                      │ moves bring
//!    └───────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Attempts.** Everything with an effect is an attempt in a [`Slot`]: the action of a node, an item of a foreach node,
//! the action of a hook. Each has its own events, its own effect and its own idempotency key. After [`Move::Call`] the
//! driver calls [`Walker::start`] or, for a call that needs no effect, [`Walker::conclude`] before it asks for the next move.
//!
//! **Order.** Every attempted node costs a step, a repeated attempt does not. Requests to stop and limits are looked at
//! before each node and before each item. A walker made from a record with attempts in flight repeats those first,
//! with the same `_now` and the same keys; one that must not happen twice parks the run as `uncertain`, one that is a
//! run of its own is attached to again. **Failure.** A template that cannot be evaluated is the failure of its node. What
//! follows a failure is decided in this order: the node's `retry`, the hooks of the `error` event, the node's
//! `on_error` edge, the graph's `on_error`.

mod evaluate;
mod failure;
mod hooks;
mod items;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::items::ItemScope;
use crate::capability::Primary;
use crate::clock::Timestamp;
use crate::definition::{Authority, Caching, DEFAULT_MAX_STEPS, Graph, HookEvent, Node, Work};
use crate::error::chain;
use crate::id::{ItemRef, RunId};
use crate::model::{
    Activity, Effect, Event, Failure, InFlight, Object, Outcome, Phase, Run, Slot, StepInFlight,
    StepStatus, SuspendReason, Suspension, Verdict,
};
use crate::policy::Policy;
use crate::seal::sha256_hex;

/// Steps without an effect that are walked before the driver is asked whether to go on.
const NOTE_STEPS: usize = 64;

/// An action to carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which attempt of the step it is.
    pub slot: Slot,
    /// Number of the step.
    pub step: u32,
    /// The node; empty for hooks that belong to no node.
    pub node: String,
    /// How often the node was entered before.
    pub visit: u32,
    /// Try, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    /// What is done.
    pub primary: Primary,
    /// To what.
    pub item: ItemRef,
    /// With which parameters; keys whose value is null are gone.
    pub params: Object,
    /// The same over crashes and repeats of this attempt.
    pub key: String,
    /// What running it a second time would mean.
    pub effect: Effect,
    /// Whether a result of the same inputs may stand in for it.
    pub caching: Caching,
    /// Longest time it may take, if the node says.
    pub timeout: Option<Duration>,
    /// Whose grant it needs.
    pub authority: Authority,
    /// The run that carries it out already: attach to it instead of starting anything.
    pub attached: Option<RunId>,
}

/// What an action came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The unwrapped result: what `${result…}` sees.
    pub result: Value,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// How sure it is that this was the whole effect.
    pub certainty: Certainty,
    /// Whether the result is that of an earlier run.
    pub cached: bool,
    /// Hash of everything the result depends on.
    pub node_input_hash: Option<String>,
}

/// What is known about the effect of an attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It never began.
    NeverBegan,
    /// It ended by itself and said what it came to.
    Answered,
    /// It was ended, or vanished: it may have happened, wholly or in part.
    Unknown,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Move {
    /// Write these down and ask again.
    Note(Vec<Event>),
    /// Write these down, look the call up, and [`Walker::start`] or [`Walker::conclude`] it; then ask again.
    Call(Vec<Event>, Box<Call>),
    /// Write these down; go on when a call in flight has ended, somebody asks the run to stop, or at that time.
    Wait(Vec<Event>, Option<Timestamp>),
    /// Write these down; the run is parked.
    Park(Vec<Event>),
    /// Write these down; the run is over.
    End(Vec<Event>),
}

/// One turn of the machine.
enum Turn {
    /// Look at the record again.
    Again,
    Call(Box<Call>),
    Wait(Option<Timestamp>),
}

/// One graph run being walked.
#[derive(Debug)]
pub struct Walker {
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    run: Run,
    notes: Vec<String>,
    /// Attempts handed out in this life that have not been concluded.
    running: BTreeSet<Slot>,
    /// Attempts whose run is parked.
    parked: BTreeMap<Slot, RunId>,
    /// The run is to park before its next attempt.
    held: Option<Suspension>,
    /// What the items of the foreach node at hand see.
    items: Option<ItemScope>,
}

impl Walker {
    /// A walker for `run`, which may be fresh or taken up after a restart.
    pub fn new(graph: Arc<Graph>, policy: Arc<Policy>, run: Run) -> Self {
        Self {
            graph,
            policy,
            run,
            notes: Vec::new(),
            running: BTreeSet::new(),
            parked: BTreeMap::new(),
            held: None,
            items: None,
        }
    }

    /// The record as this walker sees it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Things the author of the graph should know (values resolved to null and the like), since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes in an event that was committed by somebody else: the start of the run, a request to cancel it.
    pub fn observe(&mut self, at: Timestamp, event: &Event) -> Result<(), crate::model::Illegal> {
        self.run.apply(at, event)
    }

    /// Parks the run before its next attempt; what is in flight may end.
    pub fn hold(&mut self, why: Suspension) {
        self.held.get_or_insert(why);
    }

    /// When the run's time is over, if it is limited: `config.timeout` after it began to run, or to run again.
    pub fn deadline(&self) -> Option<Timestamp> {
        let since = self.run.active_since?;
        self.graph.timeout.map(|timeout| since.plus(timeout))
    }

    /// The next move.
    pub fn next(&mut self, now: Timestamp) -> Move {
        let mut events = Vec::new();
        loop {
            let at = match &self.run.phase {
                Phase::Running { at } => at.clone(),
                Phase::Suspended { .. } => return Move::Park(events),
                Phase::Created | Phase::Ended { .. } => return Move::End(events),
            };
            match self.turn(now, at, &mut events) {
                Turn::Call(call) => return Move::Call(events, call),
                Turn::Wait(until) => return Move::Wait(events, until),
                Turn::Again if events.len() >= NOTE_STEPS => return Move::Note(events),
                Turn::Again => {}
            }
        }
    }

    fn turn(&mut self, now: Timestamp, at: Activity, events: &mut Vec<Event>) -> Turn {
        match at {
            Activity::Idle => self.begin(now, events),
            Activity::Before { node } => self
                .ask_hooks(now, events)
                .or_else(|| self.stand_still(now, events))
                .unwrap_or_else(|| self.before(now, &node, events)),
            Activity::InStep(step) => self.in_step(now, &step, events),
            Activity::Failed(step) => self
                .ask_hooks(now, events)
                .or_else(|| self.stand_still(now, events))
                .unwrap_or_else(|| self.try_again_as_asked(now, &step, events)),
            Activity::Waiting { step, due } => self
                .stand_still(now, events)
                .unwrap_or_else(|| self.wait_or_retry(now, &step, due, events)),
            Activity::Leaving => self.ask_hooks(now, events).unwrap_or_else(|| {
                let outcome = self.completed();
                self.finish(now, outcome, events)
            }),
            Activity::Ending { outcome } => self
                .ask_hooks(now, events)
                .unwrap_or_else(|| self.end(now, *outcome, events)),
        }
    }

    /// Announces a call that is about to be carried out by the run `child`, or by no run. The events are to be durable
    /// before it is.
    pub fn start(
        &mut self,
        now: Timestamp,
        call: &Call,
        child: Option<RunId>,
        node_input_hash: Option<String>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if call.attached.is_none() {
            let event = self.announcement(call, child, node_input_hash);
            self.record(now, event, &mut events);
        }
        self.running.insert(call.slot);
        events
    }

    fn announcement(
        &self,
        call: &Call,
        child: Option<RunId>,
        node_input_hash: Option<String>,
    ) -> Event {
        let action_id = call.item.to_string();
        match call.slot {
            Slot::Action => Event::StepStarted {
                step: call.step,
                node: call.node.clone(),
                visit: call.visit,
                attempt: call.attempt,
                action_id,
                effect: call.effect,
                key: call.key.clone(),
                now: call.now,
                items: None,
                child,
                node_input_hash,
            },
            Slot::Item(item) => Event::ItemStarted {
                step: call.step,
                node: call.node.clone(),
                item,
                attempt: call.attempt,
                action_id,
                effect: call.effect,
                key: call.key.clone(),
                child,
                node_input_hash,
            },
            Slot::Hook(index) => Event::HookStarted {
                step: call.step,
                event: self.hook_event(),
                hook: self
                    .hook(index)
                    .map(|hook| hook.id.clone())
                    .unwrap_or_default(),
                index,
                attempt: call.attempt,
                action_id,
                key: call.key.clone(),
                child,
            },
        }
    }

    /// Takes in what a call came to. The events belong into one commit with what follows.
    pub fn conclude(&mut self, now: Timestamp, slot: Slot, answer: &Answer) -> Vec<Event> {
        self.running.remove(&slot);
        let mut events = Vec::new();
        match slot {
            Slot::Action => self.conclude_action(now, answer, &mut events),
            Slot::Item(item) => self.conclude_item(now, item, answer, &mut events),
            Slot::Hook(index) => self.conclude_hook(now, index, answer, &mut events),
        }
        events
    }

    /// A call was stopped because the run is to stop: it leaves no trace, as if it were still in flight.
    pub fn abandon(&mut self, slot: Slot) {
        self.running.remove(&slot);
    }

    /// The run that carries out the attempt is parked, so the attempt is.
    pub fn park(&mut self, slot: Slot, child: RunId) {
        self.running.remove(&slot);
        self.parked.insert(slot, child);
    }

    fn begin(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Turn {
        let (start_node, state) = match &self.run.birth.seed {
            None => (self.graph.start.clone(), self.graph.state.clone()),
            Some(seed) => {
                let state = seed.progress.state.as_object().cloned();
                (seed.node.clone(), state.unwrap_or_default())
            }
        };
        let event = Event::GraphStarted {
            graph_id: self.run.birth.item.id.to_string(),
            graph_run_id: self.run.id.clone(),
            start_node,
            state,
        };
        self.record(now, event, events);
        if self.run.birth.seed.is_none() {
            let context = self.context([("graph_id", json!(self.run.birth.item.id))]);
            self.open_round(now, HookEvent::GraphStarted, context, events);
        }
        Turn::Again
    }

    /// What stands before any further attempt: an end, or a rest. `None` if the walk goes on.
    fn stand_still(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Option<Turn> {
        let stops = self.run.cancel.is_some() || self.is_overdue(now) || self.held.is_some();
        if !stops {
            return None;
        }
        if !self.running.is_empty() {
            return Some(Turn::Wait(None));
        }
        if let Some(cause) = self.run.cancel.clone() {
            return Some(self.finish(now, Outcome::Cancelled { cause }, events));
        }
        if self.is_overdue(now) {
            let seconds = self.graph.timeout.unwrap_or_default().as_secs_f64();
            let text = format!("the run took longer than `config.timeout` allows ({seconds} s)");
            let error = Failure::permanent("duration_exceeded", text);
            let error = self.at_node(error);
            return Some(self.finish(now, Outcome::Error { error }, events));
        }
        let why = self.held.take()?;
        Some(self.suspend(now, why, events))
    }

    fn is_overdue(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Attempts the node ahead, unless the run is at its end or its limit.
    fn before(&mut self, now: Timestamp, name: &str, events: &mut Vec<Event>) -> Turn {
        let single = self.run.birth.is_single_step();
        if single && self.run.progress.last_step.is_some() {
            let outcome = self.completed();
            return self.finish(now, outcome, events);
        }
        if self.run.progress.steps >= self.max_steps() && !single {
            return self.at_limit(now, name, events);
        }
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(name) else {
            let error =
                Failure::permanent("node_not_found", format!("the graph has no node `{name}`"));
            let error = error.at(name);
            return self.finish(now, Outcome::Error { error }, events);
        };
        let step = self.fresh_step(node, now);
        match &node.work {
            Work::Action(action) => return self.call_action(now, node, action, &step, events),
            Work::Foreach(foreach) => self.begin_items(now, node, foreach, &step, events),
            Work::Gate => self.pass(now, node, &step, events),
            Work::Return { output } => self.leave(now, output.as_ref(), &step, events),
        }
        Turn::Again
    }

    /// The most steps the run may have taken in all.
    fn max_steps(&self) -> u32 {
        let limit = self.run.progress.max_steps.or(self.run.birth.limits.steps);
        limit.or(self.graph.max_steps).unwrap_or(DEFAULT_MAX_STEPS)
    }

    fn at_limit(&mut self, now: Timestamp, node: &str, events: &mut Vec<Event>) -> Turn {
        let (steps, max) = (self.run.progress.steps, self.max_steps());
        let context = self.context([
            ("limit_code", json!("max_steps_exceeded")),
            ("current_value", json!(steps)),
            ("current_max", json!(max)),
        ]);
        if self.open_round(now, HookEvent::Limit, context, events) {
            return Turn::Again;
        }
        let error = self.limit_failure().at(node);
        self.finish(now, Outcome::Error { error }, events)
    }

    fn limit_failure(&self) -> Failure {
        let (steps, max) = (self.run.progress.steps, self.max_steps());
        let text = format!(
            "the graph took {steps} steps, its limit (max_steps {max}); raise it in the graph or by `--limit steps=N`"
        );
        Failure::permanent("max_steps_exceeded", text)
    }

    fn call_action(
        &mut self,
        now: Timestamp,
        node: &Node,
        action: &crate::definition::Action,
        step: &StepInFlight,
        events: &mut Vec<Event>,
    ) -> Turn {
        match self.resolve(action, step.now) {
            Ok((item, params)) => Turn::Call(Box::new(Call {
                slot: Slot::Action,
                step: step.step,
                node: step.node.clone(),
                visit: step.visit,
                attempt: step.work.attempt,
                now: step.now,
                primary: action.primary,
                item,
                params,
                key: self.key(&step.node, step.visit, None, None),
                effect: node.effect,
                caching: node.caching,
                timeout: node.timeout,
                authority: Authority::Run,
                attached: None,
            })),
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Value::Null,
                    Certainty::NeverBegan,
                    events,
                );
                Turn::Again
            }
        }
    }

    /// A step is in flight: wait for it, or take it up again after a restart.
    fn in_step(&mut self, now: Timestamp, step: &StepInFlight, events: &mut Vec<Event>) -> Turn {
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(&step.node) else {
            let error = Failure::permanent("node_not_found", "the graph lost the node of its step");
            let error = error.at(&step.node);
            return self.finish(now, Outcome::Error { error }, events);
        };
        let action = match &node.work {
            Work::Foreach(foreach) => return self.items_turn(now, node, foreach, step, events),
            Work::Action(action) => action,
            Work::Gate | Work::Return { .. } => {
                unreachable!("gates and returns are walked in one turn")
            }
        };
        if self.running.contains(&Slot::Action) {
            return Turn::Wait(None);
        }
        if let Some(turn) = self.stand_still(now, events) {
            return turn;
        }
        if let Some(child) = self.parked.remove(&Slot::Action) {
            return self.suspend_for_child(now, child, events);
        }
        match Revival::of(&step.work) {
            Revival::Uncertain => {
                let what = vec![step.node.clone()];
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
                }
                turn
            }
            Revival::Repeat => {
                let again = StepInFlight {
                    work: InFlight::new(step.work.attempt + 1, node.effect),
                    ..step.clone()
                };
                self.call_action(now, node, action, &again, events)
            }
        }
    }

    fn wait_or_retry(
        &mut self,
        now: Timestamp,
        step: &StepInFlight,
        due: Timestamp,
        events: &mut Vec<Event>,
    ) -> Turn {
        if now < due {
            let deadline = self.deadline();
            return Turn::Wait(Some(deadline.map_or(due, |deadline| due.min(deadline))));
        }
        let graph = Arc::clone(&self.graph);
        let Some(node) = graph.nodes.get(&step.node) else {
            let error = Failure::permanent("node_not_found", "the graph lost the node of its step");
            return self.finish(now, Outcome::Error { error }, events);
        };
        let again = StepInFlight {
            work: InFlight::new(step.work.attempt + 1, node.effect),
            ..step.clone()
        };
        match &node.work {
            Work::Foreach(foreach) => {
                self.begin_items(now, node, foreach, &again, events);
                Turn::Again
            }
            Work::Action(action) => self.call_action(now, node, action, &again, events),
            Work::Gate | Work::Return { .. } => {
                unreachable!("gates and returns are never tried again")
            }
        }
    }

    fn conclude_action(&mut self, now: Timestamp, answer: &Answer, events: &mut Vec<Event>) {
        let graph = Arc::clone(&self.graph);
        let Some((step, node)) = self.at_hand(&graph, now) else {
            return;
        };
        if step.work.effect == Effect::AtMostOnce && answer.certainty == Certainty::Unknown {
            // It stays in flight; the next turn parks the run.
            return;
        }
        if let Some(failure) = &answer.failure {
            let (failure, certainty) = (failure.clone(), answer.certainty);
            return self.fail(now, &step, failure, &answer.result, certainty, events);
        }
        let evaluated = self
            .assign(node, Some(&answer.result), step.now, Object::new())
            .map(|assigned| (assigned, self.edge(node, Some(&answer.result), step.now)));
        match evaluated {
            Ok((assigned, next_node)) => {
                let status = if answer.cached {
                    StepStatus::Cached
                } else {
                    StepStatus::Ok
                };
                let done = Done {
                    action_id: node.work.action().map(|action| action.id.clone()),
                    result: Some(answer.result.clone()),
                    cache_hit: answer.cached,
                    node_input_hash: answer.node_input_hash.clone(),
                    ..Done::new(status, assigned, next_node)
                };
                self.step_done(now, &step, done, Some(&answer.result), events);
            }
            Err(failure) => {
                self.fail(
                    now,
                    &step,
                    failure,
                    &answer.result,
                    Certainty::Answered,
                    events,
                );
            }
        }
    }

    /// A gate: assign, then choose an edge.
    fn pass(&mut self, now: Timestamp, node: &Node, step: &StepInFlight, events: &mut Vec<Event>) {
        match self.assign(node, None, now, Object::new()) {
            Ok(assigned) => {
                let next_node = self.edge(node, None, now);
                let done = Done::new(StepStatus::Gate, assigned, next_node);
                self.step_done(now, step, done, None, events);
            }
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Value::Null,
                    Certainty::Answered,
                    events,
                );
            }
        }
    }

    fn leave(
        &mut self,
        now: Timestamp,
        template: Option<&Value>,
        step: &StepInFlight,
        events: &mut Vec<Event>,
    ) {
        match self.output(template, now) {
            Ok(output) => {
                let done = Done {
                    output: Some(output),
                    ..Done::new(StepStatus::Return, Object::new(), None)
                };
                self.step_done(now, step, done, None, events);
            }
            Err(failure) => {
                self.fail(
                    now,
                    step,
                    failure,
                    &Value::Null,
                    Certainty::Answered,
                    events,
                );
            }
        }
    }

    /// Records a node that did not fail, and asks the hooks of `after_step`.
    fn step_done(
        &mut self,
        now: Timestamp,
        step: &StepInFlight,
        done: Done,
        result: Option<&Value>,
        events: &mut Vec<Event>,
    ) {
        self.items = None;
        self.record(now, done.event(now, step), events);
        let Some(last) = self.run.progress.last_step.clone() else {
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

    fn completed(&self) -> Outcome {
        let progress = &self.run.progress;
        let output = progress.output.clone().unwrap_or_else(|| json!({}));
        if progress.suppressed.is_empty() {
            Outcome::Completed { output }
        } else {
            Outcome::CompletedWithErrors { output }
        }
    }

    /// The walk is over: asks the hooks of `graph_completed`, or ends the run at once.
    fn finish(&mut self, now: Timestamp, outcome: Outcome, events: &mut Vec<Event>) -> Turn {
        if self.has_hooks(HookEvent::GraphCompleted) && !self.run.birth.is_single_step() {
            let error = match &outcome {
                Outcome::Error { error } => json!(error.message),
                Outcome::Completed { .. }
                | Outcome::CompletedWithErrors { .. }
                | Outcome::Cancelled { .. }
                | Outcome::Killed { .. } => Value::Null,
            };
            let context = self.context([
                ("graph_id", json!(self.run.birth.item.id)),
                ("steps", json!(self.run.progress.steps)),
                ("status", json!(outcome.status())),
                ("error", error),
            ]);
            self.record(
                now,
                Event::GraphEnding {
                    outcome: outcome.clone(),
                },
                events,
            );
            if self.open_round(now, HookEvent::GraphCompleted, context, events) {
                return Turn::Again;
            }
        }
        self.end(now, outcome, events)
    }

    fn end(&mut self, now: Timestamp, outcome: Outcome, events: &mut Vec<Event>) -> Turn {
        let steps = self.run.progress.steps;
        let elapsed_ms = now.ms_since(self.run.created_at);
        let status = outcome.status();
        let event = match outcome {
            Outcome::Completed { output } | Outcome::CompletedWithErrors { output } => {
                Event::GraphCompleted {
                    status,
                    steps,
                    elapsed_ms,
                    output,
                }
            }
            Outcome::Error { error } => Event::GraphError {
                error,
                steps,
                elapsed_ms,
            },
            Outcome::Cancelled { cause } => Event::GraphCancelled {
                cause,
                steps,
                elapsed_ms,
            },
            Outcome::Killed { receipt } => Event::RunKilled {
                cause: String::new(),
                receipt,
            },
        };
        self.record(now, event, events);
        Turn::Again
    }

    fn suspend(&mut self, now: Timestamp, why: Suspension, events: &mut Vec<Event>) -> Turn {
        let node = self.run.phase.activity().and_then(Activity::node);
        let why = why.at(node);
        self.record(now, Event::RunSuspended(why), events);
        Turn::Again
    }

    fn suspend_for_child(&mut self, now: Timestamp, child: RunId, events: &mut Vec<Event>) -> Turn {
        let why = Suspension {
            child: Some(child),
            ..Suspension::new(SuspendReason::Child)
        };
        self.suspend(now, why, events)
    }

    fn suspend_uncertain(
        &mut self,
        now: Timestamp,
        uncertain: Vec<String>,
        events: &mut Vec<Event>,
    ) -> Turn {
        let why = Suspension {
            uncertain,
            ..Suspension::new(SuspendReason::Uncertain)
        };
        self.suspend(now, why, events)
    }

    fn fresh_step(&self, node: &Node, now: Timestamp) -> StepInFlight {
        let visits = &self.run.progress.visits;
        StepInFlight {
            step: self.run.progress.steps + 1,
            node: node.name.clone(),
            visit: visits.get(&node.name).copied().unwrap_or(0),
            now,
            work: InFlight::new(1, node.effect),
        }
    }

    /// The step in flight or failed, or the one that the node ahead would be.
    fn at_hand<'g>(&self, graph: &'g Graph, now: Timestamp) -> Option<(StepInFlight, &'g Node)> {
        let at = self.run.phase.activity()?;
        let node = graph.nodes.get(at.node()?)?;
        let step = at.step().cloned();
        Some((step.unwrap_or_else(|| self.fresh_step(node, now)), node))
    }

    /// `failure`, at the node where the walk stands.
    fn at_node(&self, failure: Failure) -> Failure {
        match self.run.phase.activity().and_then(Activity::node) {
            Some(node) => failure.at(node),
            None => failure,
        }
    }

    fn key(&self, node: &str, visit: u32, item: Option<u32>, hook: Option<&str>) -> String {
        idempotency_key(self.run.birth.effect_scope(), node, visit, item, hook)
    }

    /// Advances the walker's own record by `event` and hands it out.
    fn record(&mut self, now: Timestamp, event: Event, events: &mut Vec<Event>) {
        self.run
            .apply(now, &event)
            .expect("the walker only emits events its own phase allows");
        events.push(event);
    }
}

/// What becomes of an attempt that was in flight when the daemon went down.
enum Revival {
    /// It is carried out again.
    Repeat,
    /// The run that carries it out is waited for again.
    Attach(RunId),
    /// Nobody knows whether it happened, and it must not happen twice.
    Uncertain,
    /// Somebody said what became of it.
    Settled(Answer),
}

impl Revival {
    fn of(work: &InFlight) -> Self {
        let settled = |failure| {
            Self::Settled(Answer {
                result: Value::Null,
                failure,
                certainty: Certainty::Answered,
                cached: false,
                node_input_hash: None,
            })
        };
        match (work.verdict, &work.child, work.effect) {
            (Some(Verdict::Retry), _, _) => Self::Repeat,
            (Some(Verdict::Done), _, _) => settled(None),
            (Some(Verdict::Fail), _, _) => settled(Some(Failure::permanent(
                "uncertain_failed",
                "nobody knew what became of the call, and it was declared failed",
            ))),
            (None, Some(child), _) => Self::Attach(child.clone()),
            (None, None, Effect::AtMostOnce) => Self::Uncertain,
            (None, None, Effect::Idempotent | Effect::Pure) => Self::Repeat,
        }
    }
}

/// How a node was done: what every kind of node has, and what only some have.
struct Done {
    status: StepStatus,
    assigned: Object,
    next_node: Option<String>,
    error: Option<Failure>,
    suppressed: bool,
    output: Option<Value>,
    action_id: Option<String>,
    result: Option<Value>,
    cache_hit: bool,
    node_input_hash: Option<String>,
}

impl Done {
    const fn new(status: StepStatus, assigned: Object, next_node: Option<String>) -> Self {
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

    fn event(self, now: Timestamp, step: &StepInFlight) -> Event {
        Event::StepCompleted {
            step: step.step,
            node: step.node.clone(),
            status: self.status,
            elapsed_ms: now.ms_since(step.now),
            next_node: self.next_node,
            assigned: self.assigned,
            error: self.error,
            suppressed: self.suppressed,
            output: self.output,
            action_id: self.action_id,
            result: self.result,
            cache_hit: self.cache_hit,
            node_input_hash: self.node_input_hash,
        }
    }
}

/// `RYE_IDEMPOTENCY_KEY`: the same for every try of one visit of a node, of one item of it or one hook at it, over crashes
/// and continuations (design §5). `scope` is the root of the chain of continuations, or the key of the step that
/// started the run.
pub fn idempotency_key(
    scope: &str,
    node: &str,
    visit: u32,
    item: Option<u32>,
    hook: Option<&str>,
) -> String {
    let text = json!(["rye-idempotency-key/1", scope, node, visit, item, hook]).to_string();
    sha256_hex(text.as_bytes())
}

/// A number from 0 to 1 that is the same for the same key and different for others: spreads retries without chance.
fn spread(key: &str) -> f64 {
    let head = key
        .get(..8)
        .and_then(|head| u32::from_str_radix(head, 16).ok());
    f64::from(head.unwrap_or(0)) / f64::from(u32::MAX)
}

/// An error of an expression, as the failure of its node.
fn broken(error: &crate::expr::Error) -> Failure {
    Failure::permanent("interpolation_failed", chain(error))
}

#[cfg(test)]
mod tests;
