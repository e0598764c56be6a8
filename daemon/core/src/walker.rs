//! The walker: the pure machine that decides what a graph run does next.
//!
//! **Owns** a copy of the run's record, which it advances by the very events it hands out. **Never** acts, waits or
//! reads a clock: the driver (`ryed::drive`) commits the events, carries out each [`Call`] and reports the outcome.
//!
//! ```text
//!            next(now)                                start(call)   conclude(slot, outcome)
//! driver ─────────────► Move::Call ─look it up─► announced ─effect─► ─────────────────────► events ─┐
//!    ▲      ├─────────► Move::Wait  (nothing more can start now)                                     │ committed with
//!    │      ├─────────► Move::Note  (pure steps; ask again)                                          │ what the next
//!    │      └─────────► Move::Suspended, Move::End  (that event is among the events)                 │ moves bring
//!    └───────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Attempts.** Everything with an effect is an attempt in a [`Slot`]: the action of a node, an item of a foreach node,
//! the action of a hook. Each has its own events, its own effect and its own idempotency key. After [`Move::Call`] the
//! driver calls [`Machine::start`] or, for a call that needs no effect, [`Machine::conclude`] before it asks for the next move.
//!
//! **Order.** Every attempted node costs a step, a repeated attempt does not. Requests to stop and limits are looked at
//! before each node and before each item. A walker made from a record with attempts in flight repeats those first,
//! with the same `_now` and the same keys; an at-most-once one suspends the run as `uncertain`, one that is a
//! child run is attached to again. **Failure.** A template that cannot be evaluated is the failure of its node. What
//! follows a failure is decided in this order: the node's `retry`, beyond which nobody tries it again, the hooks of the `error` event, the node's
//! `on_error` edge, the graph's `on_error`.

mod doubt;
mod ending;
mod evaluate;
mod failure;
mod hooks;
mod items;
mod step;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::doubt::{InDoubt, in_doubt};
pub use self::hooks::CostSource;
use self::items::ItemScope;
use crate::bounds;
use crate::cas::InputHashes;
use crate::clock::{Clock, Tick, Timestamp, Uptime};
use crate::definition::{Graph, HookEvent};
use crate::error::with_sources;
use crate::expr::Condition;
use crate::id::RunId;
use crate::machine::{Call, CallOutcome, Machine, Move, idempotency_key};
use crate::memory::{Charge, Memory};
use crate::model::event::{GraphStarted, HookStarted, ItemStarted, Warning};
use crate::model::graph::{At, GraphState};
use crate::model::{Event, Failure, Life, Outcome, Run, Slot, Suspension};
use crate::policy::Policy;

/// Steps without an effect that are walked before the driver looks for requests again.
const NOTE_STEPS: usize = 64;
/// Bytes that such steps assign before it does; a run whose state is larger is walked where it holds nobody up.
const NOTE_BYTES: usize = 1 << 20;
/// Time that they take before it does.
const NOTE_TIME: Duration = Duration::from_millis(2);
/// Bytes that conditions look at where one step is chosen; a run in which they may be more is walked where it holds nobody up.
const LOOKED_BYTES: usize = 16 << 20;
/// Warnings that a run records in one life of the daemon.
const MOST_WARNINGS: usize = 1000;
/// Characters of a warning.
const WARNING_CHARS: usize = 500;

/// One turn of the machine.
enum Turn {
    /// Look at the record again.
    Again,
    Call(Box<Call>),
    Wait(Option<Uptime>),
}

/// One graph run being walked.
#[derive(Debug, Clone)]
pub struct Walker {
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    run: Arc<Run>,
    cost: CostSource,
    /// Asked how long pure steps have taken by now; without one, they are counted only.
    clock: Option<Arc<dyn Clock>>,
    /// What choosing what follows a step takes at most, in looks at a value.
    looks: usize,
    /// The memory that all runs share.
    memory: Arc<Memory>,
    /// What was taken of it, and is not in the record yet.
    charges: Vec<Arc<Charge>>,
    /// Bytes assigned since the machine was last asked.
    assigned: usize,
    /// Things the author of the graph should know, not yet recorded.
    notes: Vec<String>,
    /// What was recorded of them in this life, by node: a loop says each thing once.
    warned: Arc<HashSet<(Option<String>, String)>>,
    /// Attempts handed out in this life that have not been concluded, and when that was.
    running: BTreeMap<Slot, Uptime>,
    /// The clock that delays are measured with, as last read.
    up: Uptime,
    /// When the run's time is over, once it has been looked at in this life.
    deadline: Option<Uptime>,
    /// When the retry that is due, of that step and attempt, is made.
    retry: Option<(u32, u32, Uptime)>,
    /// Attempts whose child run is suspended.
    suspended: BTreeMap<Slot, RunId>,
    /// Hooks of the end that were stopped: they are not asked again.
    stopped: BTreeSet<u32>,
    /// `_now` of the step that the node ahead becomes.
    ahead: Option<Timestamp>,
    /// The run is to be suspended before its next attempt.
    held: Option<Suspension>,
    /// What the items of the foreach node at hand see.
    items: Option<ItemScope>,
}

impl Walker {
    /// A walker for `run`, which may be fresh or recovered after a restart.
    pub fn new(graph: Arc<Graph>, policy: Arc<Policy>, run: Arc<Run>) -> Self {
        let asked = policy
            .hooks()
            .iter()
            .filter_map(|hook| hook.condition.as_ref());
        Self {
            looks: asked
                .map(Condition::cost)
                .fold(graph.cost, usize::saturating_add),
            graph,
            policy,
            run,
            cost: CostSource::default(),
            clock: None,
            memory: Arc::default(),
            charges: Vec::new(),
            assigned: 0,
            notes: Vec::new(),
            warned: Arc::default(),
            running: BTreeMap::new(),
            up: Uptime::default(),
            deadline: None,
            retry: None,
            suspended: BTreeMap::new(),
            stopped: BTreeSet::new(),
            ahead: None,
            held: None,
            items: None,
        }
    }

    /// The walker, whose hooks read what `cost` says; without it they read zero.
    #[must_use]
    pub fn with_cost(self, cost: CostSource) -> Self {
        Self { cost, ..self }
    }

    /// The walker, which takes no more of `memory` than there is; without it there is no limit but its own.
    #[must_use]
    pub fn within(self, memory: Arc<Memory>) -> Self {
        Self { memory, ..self }
    }

    /// The walker, which hands out its pure steps when they have taken a while by this clock.
    #[must_use]
    pub fn paced(self, clock: Arc<dyn Clock>) -> Self {
        let clock = Some(clock);
        Self { clock, ..self }
    }

    /// Whether looking at so many bytes may hold up others.
    fn is_large(&self, bytes: usize) -> bool {
        bytes > NOTE_BYTES || bytes.saturating_mul(self.looks) > LOOKED_BYTES
    }

    /// Takes note of the time. How long the run was active before this life of the daemon, the wall clock tells, and no step of it
    /// gives the run more or less than its time; from then on only the clock for delays counts.
    fn look(&mut self, now: Tick) {
        self.up = now.up;
        if let (None, Some(timeout), Some(since)) =
            (self.deadline, self.graph.timeout, self.run.active_since)
        {
            let active = Duration::from_millis(now.at.ms_since(since));
            self.deadline = Some(now.up.plus(timeout.saturating_sub(active)));
        }
    }

    fn turn(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Turn {
        match self.walk().at.clone() {
            At::New => self.begin(now, events),
            At::Between {
                next: Some(node), ..
            } => self
                .ask_hooks(now, events)
                .or_else(|| self.heed_denial(now, events))
                .or_else(|| self.stop_if_requested(now, events))
                .unwrap_or_else(|| self.before(now, &node, events)),
            At::Between { next: None, .. } => self
                .ask_hooks(now, events)
                .or_else(|| self.heed_denial(now, events))
                .unwrap_or_else(|| {
                    let outcome = self.completed();
                    self.finish(now, outcome, events)
                }),
            At::Step(step) => self.in_step(now, &step, events),
            At::Failed { step, .. } => self
                .ask_hooks(now, events)
                .or_else(|| self.heed_denial(now, events))
                .or_else(|| self.stop_if_requested(now, events))
                .unwrap_or_else(|| self.try_again_as_asked(now, &step, events)),
            At::Backoff { step, due } => self
                .stop_if_requested(now, events)
                .unwrap_or_else(|| self.wait_or_retry(now, &step, &due, events)),
            At::Ending { outcome, .. } => self
                .ask_hooks(now, events)
                .unwrap_or_else(|| self.end(now, Outcome::clone(&outcome), events)),
        }
    }

    /// The walk of the run, as far as it is on record here.
    fn walk(&self) -> &GraphState {
        self.run
            .graph()
            .expect("a walker is made for graph runs only")
    }

    fn announcement(&self, call: &Call, child: Option<RunId>, hashes: InputHashes) -> Event {
        let action_id = call.item.to_string();
        match call.slot {
            Slot::Main => call.step_started(child, hashes).into(),
            Slot::Part(item) => Event::from(ItemStarted {
                step: call.step,
                node: call.node.clone(),
                item,
                attempt: call.attempt,
                action_id,
                effect: call.effect,
                key: call.key.clone(),
                child,
                call: hashes.call,
                chain: hashes.chain,
                node_input_hash: hashes.node_input,
            }),
            Slot::Hook(index) => Event::from(HookStarted {
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
                call: hashes.call,
                chain: hashes.chain,
            }),
        }
    }

    fn begin(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Turn {
        let (start_node, state) = match self.run.spec.start_from() {
            None => (self.graph.start.clone(), self.graph.state.clone().into()),
            Some(start) => (start.node.clone(), start.state.vars.clone()),
        };
        let event = Event::from(GraphStarted {
            graph_id: self.run.spec.item.id.to_string(),
            graph_run_id: self.run.id.clone(),
            start_node,
            state,
        });
        self.record(now, event, events);
        let spec = &self.run.spec;
        if spec.continuation_of.is_none() && !spec.is_single_step() {
            let context = self.context([("graph_id", json!(self.run.spec.item.id))]);
            self.open_round(now, HookEvent::GraphStarted, context, events);
        }
        Turn::Again
    }

    /// Nothing more can start now. Calls in flight are waited for until the run's time is over.
    fn rest(&self) -> Turn {
        Turn::Wait(self.deadline.filter(|deadline| self.up < *deadline))
    }

    fn key(&self, node: &str, visit: u32, item: Option<&Value>, hook: Option<&str>) -> String {
        idempotency_key(self.run.spec.effect_scope(), node, visit, item, hook)
    }

    /// Advances the walker's own record by `event` and hands it out, behind the notes that were made on the way to it.
    fn record(&mut self, now: Timestamp, event: Event, events: &mut Vec<Event>) {
        let node = self.node_of_notes().map(str::to_owned);
        for note in std::mem::take(&mut self.notes) {
            let message: String = note.chars().take(WARNING_CHARS).collect();
            let warning = (node.clone(), message.clone());
            if self.warned.len() < MOST_WARNINGS && !self.warned.contains(&warning) {
                Arc::make_mut(&mut self.warned).insert(warning);
                let node = node.clone();
                self.apply(now, Event::from(Warning { node, message }), events);
            }
        }
        self.apply(now, event, events);
    }

    /// The node that hooks are being asked about, else the one at hand.
    fn node_of_notes(&self) -> Option<&str> {
        let round = self.walk().at.round();
        let asked = round.and_then(|round| round.context.get("node")?.as_str());
        asked.or_else(|| self.run.current_node())
    }

    fn apply(&mut self, now: Timestamp, event: Event, events: &mut Vec<Event>) {
        Arc::make_mut(&mut self.run)
            .apply(now, &event)
            .expect("the walker only emits events its own phase allows");
        events.push(event);
    }
}

impl Machine for Walker {
    type Signal = Infallible;
    type Query = Infallible;
    type Answer = Infallible;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
        self.charges.clear();
    }

    fn is_heavy(&self, taken_in: Option<&CallOutcome>) -> bool {
        let state = self.walk().vars.bytes();
        let Some(outcome) = taken_in else {
            return !self.item_takes_no_time() && self.is_large(state);
        };
        let Ok(result) = bounds::within(&outcome.result, usize::MAX, NOTE_BYTES) else {
            return true;
        };
        // The end of an item is put on record; nothing looks at the state for it.
        let state = if self.is_among_items() { 0 } else { state };
        self.is_large(state + result)
    }

    fn hold(&mut self, why: Suspension) {
        self.held.get_or_insert(why);
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.up))
    }

    fn next(&mut self, now: Tick) -> Move {
        self.look(now);
        let now = now.at;
        let mut events = Vec::new();
        self.assigned = 0;
        let begun = self.clock.as_ref().map(|clock| clock.up());
        loop {
            match &self.run.life {
                Life::Running => {}
                Life::Suspended(_) => return Move::Suspended(events),
                Life::Created | Life::Ended(_) => return Move::End(events),
            }
            match self.turn(now, &mut events) {
                Turn::Call(call) => return Move::Call(events, call),
                Turn::Wait(until) => return Move::Wait(events, until),
                Turn::Again if events.len() >= NOTE_STEPS || self.assigned >= NOTE_BYTES => {
                    return Move::Note(events);
                }
                Turn::Again => {
                    if let (Some(clock), Some(begun)) = (&self.clock, begun)
                        && clock.up().since(begun) >= NOTE_TIME
                    {
                        return Move::Note(events);
                    }
                }
            }
        }
    }

    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        child: Option<RunId>,
        hashes: InputHashes,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if call.attached.is_none() {
            let event = self.announcement(call, child, hashes);
            self.record(now.at, event, &mut events);
        }
        self.running.insert(call.slot, now.up);
        events
    }

    fn conclude(&mut self, now: Tick, slot: Slot, answer: &CallOutcome) -> Vec<Event> {
        let since = self.running.remove(&slot);
        let elapsed = since.map(|since| now.up.since(since)).unwrap_or_default();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let now = now.at;
        let mut events = Vec::new();
        match slot {
            Slot::Main => self.conclude_action(now, answer, &mut events),
            Slot::Part(item) => self.conclude_item(now, item, answer, elapsed_ms, &mut events),
            Slot::Hook(index) => self.conclude_hook(now, index, answer, elapsed_ms, &mut events),
        }
        events
    }

    fn heard(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn answered(&mut self, _now: Tick, answer: Infallible) -> Vec<Event> {
        match answer {}
    }

    fn abandon(&mut self, slot: Slot) {
        self.running.remove(&slot);
        if let (Slot::Hook(index), At::Ending { .. }) = (slot, &self.walk().at) {
            self.stopped.insert(index);
        }
    }

    fn suspend_for(&mut self, slot: Slot, child: RunId) {
        self.running.remove(&slot);
        self.suspended.insert(slot, child);
    }
}

/// A number from 0 to 1 that is the same for the same key and different for others: spreads retries without chance.
fn jitter(key: &str) -> f64 {
    let head = key
        .get(..8)
        .and_then(|head| u32::from_str_radix(head, 16).ok());
    f64::from(head.unwrap_or(0)) / f64::from(u32::MAX)
}

/// An error of an expression, as the failure of its node.
fn interpolation_failure(error: &crate::expr::Error) -> Failure {
    Failure::permanent("interpolation_failed", with_sources(error))
}

#[cfg(test)]
mod tests;
