//! The walker: the pure machine that decides the next step of a graph run.
//!
//! **Owns** a copy of the run's record, which it advances by the very events it emits. **Never** acts, waits or reads a
//! clock: the driver (`ryed::drive`) commits the events, carries out each [`Call`] and reports the outcome.
//!
//! ```text
//!            next(now)                                start(call)   conclude(slot, outcome)
//! driver ─────────────► Move::Call ─look it up─► announced ─effect─► ─────────────────────► events ─┐
//!    ▲      ├─────────► Move::Wait  (nothing more can start now)                                     │ commit with
//!    │      ├─────────► Move::Note  (pure steps; then next)                                          │ the events of
//!    │      └─────────► Move::Suspended, Move::End  (that event is among the events)                 │ the next moves
//!    └───────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Attempts.** Everything with an effect is an attempt in a [`Slot`]: the action of a node, an item of a foreach
//! node, the action of a hook. Each has its own events, its own effect and its own idempotency key. After
//! [`Move::Call`] the driver calls [`Machine::start`] or, for a call that needs no effect, [`Machine::conclude`] before
//! it requests the next move.
//!
//! **Order.** Every attempted node costs a step, a repeated attempt does not. Stop requests and limits are checked
//! before each node and before each item. A walker made from a record with attempts in flight repeats those first, with
//! the same `_now` and the same keys. An at-most-once attempt suspends the run as `uncertain`; an attempt by a child
//! run is attached again. **Failure.** A template that cannot be evaluated is the failure of its node. The consequence
//! of a failure is decided in this order: the node's `retry` (with one, no hook retries the node), the hooks of the
//! `error` event, the node's `on_error` edge, the graph's `on_error`.

mod ending;
mod evaluate;
mod failure;
mod hooks;
mod items;
mod services;
mod step;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::evaluate::in_doubt;
pub use self::hooks::CostSource;
use self::items::ItemScope;
use self::services::ServiceProgress;
pub use self::services::{ServiceAnswer, ServiceFacts, ServiceQuery, ServiceSource};
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
use crate::model::{Event, Failure, Life, Outcome, Run, RunEvent, Slot, Suspension};
use crate::policy::Policy;

/// Limit of the steps without an effect between two checks for requests by the driver.
const NOTE_STEPS: usize = 64;
/// Limit of the bytes that such steps assign. A run with a larger state is walked on a thread that may block.
const NOTE_BYTES: usize = 1 << 20;
/// Limit of the time that they take.
const NOTE_TIME: Duration = Duration::from_millis(2);
/// Limit of the bytes that conditions visit to choose one step. A run in which they may be more is walked on a thread
/// that may block.
const LOOKED_BYTES: usize = 16 << 20;
/// Limit of the warnings that a run records in one life of the daemon.
const MOST_WARNINGS: usize = 1000;
/// Limit of the characters of a warning.
const WARNING_CHARS: usize = 500;

/// The result of one turn of the machine.
enum Turn {
    /// Look at the record again.
    Again,
    Call(Box<Call>),
    Query(Box<ServiceQuery>),
    Wait(Option<Uptime>),
}

#[derive(Debug, Clone)]
pub struct Walker {
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    run: Arc<Run>,
    cost: CostSource,
    /// Measures the time of pure steps; without it they are only counted.
    clock: Option<Arc<dyn Clock>>,
    /// Highest cost of choosing the successor of a step, in visited values.
    looks: usize,
    /// The memory that all runs share.
    memory: Arc<Memory>,
    /// Charges to it that are not in the record yet.
    charges: Vec<Arc<Charge>>,
    /// Bytes assigned since the last move.
    assigned: usize,
    /// Warnings for the author of the graph, not yet recorded.
    notes: Vec<String>,
    /// Warnings recorded in this life, by node: a loop reports each one once.
    warned: Arc<HashSet<(Option<String>, String)>>,
    /// Attempts emitted in this life that have not been concluded, with their start.
    running: BTreeMap<Slot, Uptime>,
    /// The monotonic clock for delays, as last read.
    up: Uptime,
    /// End of the run's time, once it has been computed in this life.
    deadline: Option<Uptime>,
    /// Time of the pending retry of that step and attempt.
    retry: Option<(u32, u32, Uptime)>,
    /// Attempts whose child run is suspended.
    suspended: BTreeMap<Slot, RunId>,
    /// Hooks of the end that were stopped: they are not called again.
    stopped: BTreeSet<u32>,
    /// `_now` of the step for the next node.
    ahead: Option<Timestamp>,
    /// Reason to suspend the run before its next attempt.
    held: Option<Suspension>,
    /// Scope of the items of the current foreach node.
    items: Option<ItemScope>,
    service_source: ServiceSource,
    service_progress: ServiceProgress,
}

impl Walker {
    /// Makes a walker for `run`, which may be fresh or recovered after a restart.
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
            service_source: ServiceSource::default(),
            service_progress: ServiceProgress::default(),
        }
    }

    /// Sets the source of the state of services; without it they have only a handle.
    #[must_use]
    pub fn with_services(self, service_source: ServiceSource) -> Self {
        Self {
            service_source,
            ..self
        }
    }

    /// Sets the source of the cost that hooks read; without it they read zero.
    #[must_use]
    pub fn with_cost(self, cost: CostSource) -> Self {
        Self { cost, ..self }
    }

    /// Sets the shared memory; without it there is only the limit of the run itself.
    #[must_use]
    pub fn with_memory(self, memory: Arc<Memory>) -> Self {
        Self { memory, ..self }
    }

    /// Sets the clock by which the walker emits its pure steps after a while.
    #[must_use]
    pub fn paced(self, clock: Arc<dyn Clock>) -> Self {
        let clock = Some(clock);
        Self { clock, ..self }
    }

    /// True if visiting that many bytes may block other work.
    fn is_large(&self, bytes: usize) -> bool {
        bytes > NOTE_BYTES || bytes.saturating_mul(self.looks) > LOOKED_BYTES
    }

    /// Records the time. The wall clock gives the time for which the run was active before this life of the daemon, and
    /// it may have been set. From then on only the clock for delays counts.
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
        if let Some(turn) = self.restore_services() {
            return turn;
        }
        match self.walk().at.clone() {
            At::New => self.begin(now, events),
            At::Between {
                next: Some(node), ..
            } => self
                .ask_hooks(now, events)
                .or_else(|| self.handle_denial(now, events))
                .or_else(|| self.stop_if_requested(now, events))
                .unwrap_or_else(|| self.begin_node(now, &node, events)),
            At::Between { next: None, .. } => self
                .ask_hooks(now, events)
                .or_else(|| self.handle_denial(now, events))
                .unwrap_or_else(|| {
                    let outcome = self.completed();
                    self.finish(now, outcome, events)
                }),
            At::Step(step) => self.in_step(now, &step, events),
            At::Failed { step, .. } => self
                .ask_hooks(now, events)
                .or_else(|| self.handle_denial(now, events))
                .or_else(|| self.stop_if_requested(now, events))
                .unwrap_or_else(|| self.retry_as_requested(now, &step, events)),
            At::Backoff { step, due } => self
                .stop_if_requested(now, events)
                .unwrap_or_else(|| self.wait_or_retry(now, &step, &due, events)),
            At::Ending { outcome, .. } => self
                .ask_hooks(now, events)
                .unwrap_or_else(|| self.end(now, Outcome::clone(&outcome), events)),
        }
    }

    /// Returns the walk of the run in the walker's own record.
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

    /// Takes a call out of those in flight; returns the milliseconds that it took.
    fn end_call(&mut self, now: Tick, slot: Slot) -> u64 {
        let since = self.running.remove(&slot);
        let elapsed = since.map(|since| now.up.since(since)).unwrap_or_default();
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    /// Nothing more can start now: waits for calls in flight until the run's time is over.
    fn rest(&self) -> Turn {
        Turn::Wait(self.deadline.filter(|deadline| self.up < *deadline))
    }

    fn key(&self, node: &str, visit: u32, item: Option<&Value>, hook: Option<&str>) -> String {
        idempotency_key(self.run.spec.effect_scope(), node, visit, item, hook)
    }

    /// Advances the walker's own record by `event` and emits it, after the notes made before it.
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

    /// Returns the node about which hooks are being called, else the current one.
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
    type Query = ServiceQuery;
    type Answer = ServiceAnswer;

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
        let Ok(result) = bounds::size_within(&outcome.result, usize::MAX, NOTE_BYTES) else {
            return true;
        };
        // The end of an item is only recorded; nothing reads the state for it.
        let state = if self.is_among_items() { 0 } else { state };
        self.is_large(state + result)
    }

    fn hold(&mut self, why: Suspension) {
        self.held.get_or_insert(why);
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(self.up))
    }

    fn next(&mut self, now: Tick) -> Move<ServiceQuery> {
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
                Turn::Call(call) if self.run.approvals.awaits(call.step, call.slot) => {
                    if let Turn::Wait(until) = self.wait_for_answer(now, &mut events) {
                        return Move::Wait(events, until);
                    }
                }
                Turn::Call(call) => return Move::Call(events, call),
                Turn::Query(query) => return Move::Query(events, query),
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

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        let mut events = Vec::new();
        self.record(now.at, event.into(), &mut events);
        events
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
        let elapsed_ms = self.end_call(now, slot);
        let now = now.at;
        let mut events = Vec::new();
        match slot {
            Slot::Main => self.conclude_action(now, answer, &mut events),
            Slot::Part(item) => self.conclude_item(now, item, answer, elapsed_ms, &mut events),
            Slot::Hook(index) => self.conclude_hook(now, index, answer, elapsed_ms, &mut events),
        }
        events
    }

    fn on_signal(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn answered(&mut self, now: Tick, answer: ServiceAnswer) -> Vec<Event> {
        let mut events = Vec::new();
        self.take_answer(now.at, answer, &mut events);
        events
    }

    fn useless(&self) -> Vec<Slot> {
        self.useless_items()
    }

    fn stopped(&mut self, now: Tick, slot: Slot) -> Vec<Event> {
        let elapsed_ms = self.end_call(now, slot);
        let mut events = Vec::new();
        if let Slot::Part(item) = slot {
            self.stop_item(now.at, item, elapsed_ms, &mut events);
        }
        events
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

/// Returns a number from 0 to 1, derived from the key: spreads retries deterministically.
fn jitter(key: &str) -> f64 {
    let head = key
        .get(..8)
        .and_then(|head| u32::from_str_radix(head, 16).ok());
    f64::from(head.unwrap_or(0)) / f64::from(u32::MAX)
}

/// Makes the failure of a node from an error of an expression.
fn interpolation_failure(error: &crate::expr::Error) -> Failure {
    Failure::permanent("interpolation_failed", with_sources(error))
}

#[cfg(test)]
mod tests;
