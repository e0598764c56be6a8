//! The machine of a thread: a model works on a directive, turn by turn.
//!
//! **Owns** the fixed terms of a thread ([`Contract`]), and every decision of its loop: sends, starts of tool calls,
//! and the consequences of a message and of a failed model call. **Never** contacts a provider, and knows no API: it
//! receives the model's answer in parts ([`ModelSignal`]).
//!
//! ```text
//! compose ─► money and a slot at the provider  ─► call the model ─┬─ parts, calls ─► tools start while it streams
//!              ▲                                                  └─ the message ─► the rest of its calls
//!              └────────────── keep the entry of the turn ◄─ all calls have ended ◄───┘
//! ```
//!
//! **Order.** The highest cost of a model call is held in the commit that begins the turn, before anything is sent; it
//! is settled in the commit that holds the message. A tool call has no consequence before its result is recorded. Calls
//! run concurrently, those of one item one after the other, in the order of the message; their results are sent in that
//! order.
//!
//! A message to the thread is sent before the next call of the model. While a message waits, no model call begins, and
//! the last message of the model does not end the thread. The record refuses a plan that did not know of the message,
//! and the thread plans again.
//!
//! **After a crash** the current turn continues at the end of its record. A model call that was in flight is made
//! again, unless tool calls started from it: then the recorded parts up to these calls are the message. A tool call in
//! flight is repeated only if its declared effect makes that harmless; otherwise the model is informed that its outcome
//! is unknown.
//!
//! **Failure.** A limit that is reached suspends the thread; so does a transient failure of the provider, after as many
//! tries as the contract sets. Any other failure ends it.

mod artifact;
mod funds;
mod model_stream;
mod offered_tool;
mod order;
mod result_text;
mod shell_command;

mod exceeded;
mod query;
mod results;
mod tool_offer;

mod contract;

mod live;

mod before_turn;
mod calls;
mod recovered;
mod streaming;

mod after;

use std::sync::Arc;
use std::time::Duration;

use crate::cas::InputHashes;
use crate::clock::{Tick, Timestamp};
use crate::conversation::Source;
use crate::id::{ItemRef, RunId};
use crate::machine::{Call, CallOutcome, Machine, Move, asks};
use crate::model::event::{CognitionIn, PromptComposed, SystemPrompt, ThreadStarted, Warning};
use crate::model::thread::{At, ThreadLimits, ThreadState, TurnWait, WaitsFor};
use crate::model::{
    Effect, Event, Failure, Life, Limits, Run, RunEvent, Slot, SuspendReason, Suspension,
};
use crate::state::RefusalReason;

pub use self::artifact::ArtifactRange;
pub use self::contract::{Contract, Target, Terms};
pub use self::funds::{Funds, RemainingFunds};
pub use self::live::ThreadMachine;
pub use self::model_stream::{CallFailure, ModelSignal};
pub use self::offered_tool::{Does, OfferedTool};
pub use self::order::{ThreadOrder, ThreadTool, limits_of};
pub use self::query::{Composed, Reseeded, ThreadAnswer, ThreadQuery};
pub use self::recovered::in_doubt;
pub use self::results::Shown;
pub use self::shell_command::ShellCommand;
pub use self::tool_offer::{
    ItemTool, ItemTools, NamedTools, ToolOffer, may_be_offered, offer, ungranted,
};

use self::before_turn::because_of;
use self::live::Live;

impl ThreadMachine {
    /// Makes a machine for `run`, which may be fresh or recovered after a restart.
    pub fn new(terms: Arc<Terms>, run: Arc<Run>) -> Self {
        Self {
            terms,
            run,
            live: Live::default(),
            held: None,
        }
    }

    fn state(&self) -> &ThreadState {
        self.run
            .thread()
            .expect("the run of this machine is a thread")
    }

    /// Returns the effect of a second execution of `item`, as far as it is known.
    fn effect(&self, item: &ItemRef) -> Option<Effect> {
        let found = self.live.effects.get(item).copied();
        self.contract().effect(item).or(found)
    }

    fn contract(&self) -> &Contract {
        &self.terms.contract
    }

    /// Computes the time left. Only the time of turns counts, so it does not change before a turn.
    fn look(&mut self, now: Tick) {
        self.live.up = now.up;
        let state = self.state();
        let since = state.turn().map_or(now.at, |turn| turn.since);
        if self.live.deadline.is_some_and(|(known, _)| known == since) && state.turn().is_some() {
            return;
        }
        let left = state.limits.duration_ms.map(|most| {
            let used = state.used.active_ms.saturating_add(now.at.ms_since(since));
            let left = most.saturating_sub(used);
            // The clock of the record may be slower than the monotonic one, and the time must be over by both.
            Duration::from_millis(left.saturating_add(left.div_ceil(1000)))
        });
        self.live.deadline = left.map(|left| (since, now.up.plus(left)));
    }

    /// True if the time of the thread ended during a turn.
    fn is_late(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    fn is_busy(&self) -> bool {
        self.live.partial.is_some() || !self.live.running.is_empty()
    }

    /// Adds `event` to the record and to `events`.
    fn record(&mut self, now: Timestamp, events: &mut Vec<Event>, event: impl Into<Event>) {
        let event = event.into();
        Arc::make_mut(&mut self.run)
            .apply(now, &event)
            .expect("the machine only emits events its own place allows");
        events.push(event);
    }

    /// Ends or suspends the run by `event`, after the settlement of its open call.
    fn rest(&mut self, now: Timestamp, events: &mut Vec<Event>, event: Event) {
        self.settle_stopped(now, events);
        for event in self.run.with_settlement(event) {
            self.record(now, events, event);
        }
    }

    fn suspend(&mut self, now: Timestamp, why: Suspension) -> Move<ThreadQuery> {
        let mut events = Vec::new();
        self.held = None;
        self.rest(now, &mut events, RunEvent::RunSuspended(why).into());
        Move::Suspended(events)
    }

    fn fail(&mut self, now: Timestamp, failure: Failure) -> Vec<Event> {
        let mut events = Vec::new();
        let end = self.run.end_by_failure(now, failure);
        self.rest(now, &mut events, end);
        events
    }

    /// Returns the next move of a run without a stop request.
    fn advance(&mut self, now: Tick) -> Move<ThreadQuery> {
        match self.state().at.clone() {
            At::Composing if self.continues() => Move::Note(self.resume_conversation(now.at)),
            At::Composing => Move::Query(Vec::new(), Box::new(ThreadQuery::Compose)),
            At::Before(before) => self.begin_turn(now, &before),
            At::Calling(turn) => self.calling(now, &turn),
            At::Acting(turn) => self.run_calls(now, &turn),
            At::Failed(failed) => self.failed(now.at, &failed),
        }
    }

    /// True if there is a conversation to continue.
    fn continues(&self) -> bool {
        let carried = self.run.spec.carried();
        carried.is_some_and(ThreadState::has_begun)
    }

    /// Starts with the conversation of the thread that this one continues. A model that answered last is requested to
    /// continue.
    fn resume_conversation(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        self.started(now, &mut events);
        let state = self.state();
        if let (true, At::Before(before)) = (state.follows_finished_turn(), &state.at) {
            let told = CognitionIn {
                turn: before.turn,
                source: Source::Continuation,
                text: "Your work was ended here. You are asked to continue it.".to_owned(),
            };
            self.record(now, &mut events, told);
        }
        events
    }

    fn started(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let model = &self.contract().model;
        let ThreadLimits {
            turns,
            tokens,
            duration_ms,
        } = self.state().limits;
        let started = ThreadStarted {
            directive: self.run.spec.item.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            api: model.api.as_str().to_owned(),
            limits: Limits {
                turns,
                tokens,
                duration_ms,
                spend: self.run.spec.budget.limit(),
                ..Limits::default()
            },
            continuation_of: self.run.spec.continuation_of.clone(),
        };
        self.record(now, events, started);
    }

    /// Begins the conversation: its first message is on disk.
    fn composed(&mut self, now: Timestamp, composed: Composed) -> Vec<Event> {
        let mut events = Vec::new();
        self.started(now, &mut events);
        for message in composed.warnings {
            let node = None;
            self.record(now, &mut events, Warning { node, message });
        }
        if let Some(text) = composed.system {
            self.record(now, &mut events, SystemPrompt { text });
        }
        let told = CognitionIn {
            turn: 1,
            source: Source::Directive,
            text: composed.message,
        };
        self.record(now, &mut events, told);
        let tools = self.contract().offered.iter();
        let begun = PromptComposed {
            head: composed.head,
            tools: tools.map(|offered| offered.tool.name.clone()).collect(),
            bytes: u64::try_from(composed.bytes).unwrap_or(u64::MAX),
        };
        self.record(now, &mut events, begun);
        events
    }
}

impl Machine for ThreadMachine {
    type Signal = ModelSignal;
    type Query = ThreadQuery;
    type Answer = ThreadAnswer;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
    }

    fn hold(&mut self, why: Suspension) {
        self.held.get_or_insert(why);
    }

    fn time_left(&self) -> Option<Duration> {
        self.live.deadline.map(|(_, at)| at.since(self.live.up))
    }

    fn next(&mut self, now: Tick) -> Move<ThreadQuery> {
        self.look(now);
        match &self.run.life {
            Life::Running => {}
            Life::Suspended(_) => return Move::Suspended(Vec::new()),
            Life::Created | Life::Ended(_) => return Move::End(Vec::new()),
        }
        let Some(cause) = self.run.cancel.clone() else {
            return self.advance(now);
        };
        if self.is_busy() {
            return Move::Wait(Vec::new(), None);
        }
        let mut events = Vec::new();
        let end = self.run.end_by_cancel(now.at, &cause);
        self.rest(now.at, &mut events, end);
        Move::End(events)
    }

    /// An at-most-once call waits until the message is complete, and so does one that a person must approve.
    fn looked_up(&mut self, call: &Call) -> bool {
        let is_tool = matches!(call.slot, Slot::Part(_));
        if is_tool && !call.undeclared {
            self.live.effects.insert(call.item.clone(), call.effect);
        }
        let speaks = matches!(self.state().at, At::Calling(_));
        !(is_tool
            && speaks
            && (call.effect == Effect::AtMostOnce
                || asks(&self.run.spec, call.primary, &call.item)))
    }

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        let mut events = Vec::new();
        self.record(now.at, &mut events, event);
        events
    }

    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        child: Option<RunId>,
        _hashes: InputHashes,
    ) -> Vec<Event> {
        match call.slot {
            Slot::Part(position) => self.start_tool(now, call, position, child),
            Slot::Main | Slot::Hook(_) => self.start_turn(now, call),
        }
    }

    fn conclude(&mut self, now: Tick, slot: Slot, outcome: &CallOutcome) -> Vec<Event> {
        match slot {
            Slot::Part(position) => self.conclude_tool(now, position, outcome),
            Slot::Main | Slot::Hook(_) => self.conclude_turn(now.at, outcome),
        }
    }

    fn on_signal(&mut self, now: Tick, _slot: Slot, signal: ModelSignal) -> Vec<Event> {
        self.apply_signal(now.at, signal)
    }

    fn answered(&mut self, now: Tick, answer: ThreadAnswer) -> Vec<Event> {
        match answer {
            ThreadAnswer::Composed(composed) => self.composed(now.at, *composed),
            ThreadAnswer::Funds(funds) => {
                self.live.funds = Some(funds);
                Vec::new()
            }
            ThreadAnswer::Waits(waiting) => self.waits(now.at, waiting),
            ThreadAnswer::Kept(head) => self.kept(now.at, head),
            ThreadAnswer::Reseeded(reseeded) => self.reseeded(now.at, &reseeded),
            ThreadAnswer::Read(position, found) => self.have_read(now.at, position, found),
            ThreadAnswer::Unusable(failure) => {
                let mut events = Vec::new();
                let why = because_of(SuspendReason::Error, failure);
                self.rest(now.at, &mut events, RunEvent::RunSuspended(why).into());
                events
            }
            ThreadAnswer::Failed(failure) => self.fail(now.at, failure),
        }
    }

    fn delayed(&mut self, now: Tick, _call: &Call) -> Vec<Event> {
        self.waits(
            now.at,
            TurnWait {
                waits: WaitsFor::Budget,
                until: None,
            },
        )
    }

    /// The model call was not paid for after all. It may be smaller, or a shortage is detected then.
    fn refused(&mut self, _now: Tick, _call: &Call, why: &RefusalReason) -> Vec<Event> {
        if let RefusalReason::Budget(denied) = why {
            self.unpaid(denied);
        }
        self.live.funds = None;
        Vec::new()
    }

    fn abandon(&mut self, slot: Slot) {
        match slot {
            Slot::Part(position) => drop(self.live.running.remove(&position)),
            Slot::Main | Slot::Hook(_) => self.live.partial = None,
        }
    }

    fn suspend_for(&mut self, slot: Slot, child: RunId) {
        self.abandon(slot);
        if let Slot::Part(position) = slot {
            self.live.parked.insert(position);
        }
        self.live.waits_for.get_or_insert(child);
    }
}

#[cfg(test)]
mod tests;
