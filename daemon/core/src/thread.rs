//! The machine of a thread: a model works on a directive, turn by turn.
//!
//! **Owns** what is fixed about a thread ([`Contract`]), and every decision of its loop: what is sent when, which calls of tools
//! start, what a failed call of the model leads to, what follows from a message. **Never** speaks to a provider, and knows no api:
//! it receives what was said in parts ([`ModelSignal`]).
//!
//! ```text
//! compose ─► money and a place at the provider ─► call the model ─┬─ parts, calls ─► tools start while it speaks
//!              ▲                                                  └─ the message ─► the rest of its calls
//!              └────────────── keep the entry of the turn ◄─ all calls have ended ◄───┘
//! ```
//!
//! **Order.** What a call may cost at most is held in the commit that begins the turn, before anything is sent; it is settled in
//! the commit that holds the message. Nothing follows from a call of a tool before its result is on record. Calls run side by side,
//! those of one item one after the other, in the order of the message; their results are sent in that order.
//!
//! What somebody says to the thread is sent before the next call of the model, and no call begins, nor does the thread come to its
//! end by its last message, while something waits: a plan that did not know of it is refused by the record, and drawn up again.
//!
//! **After a crash** the turn in hand continues where its record ends. A call of the model that was in flight is made again, unless
//! calls of tools came from it: then what those had brought along is the message. A call of a tool in flight is repeated only if
//! somebody declared that this does no harm; otherwise the model learns that nobody knows what became of it.
//!
//! **Failure.** A limit that is reached suspends the thread; so does a failure of the provider that may pass, after as many tries as
//! the contract names. Any other ends it.

mod artifact;
mod funds;
mod heard;
mod offered;
mod order;
mod result_text;

mod exceeded;
mod offer;
mod query;
mod results;

mod contract;

mod live;

mod before;
mod calls;
mod recovered;
mod speaking;

mod after;

use std::sync::Arc;
use std::time::Duration;

use crate::cas::InputHashes;
use crate::clock::{Tick, Timestamp};
use crate::conversation::Source;
use crate::id::{ItemRef, RunId};
use crate::machine::{Call, CallOutcome, Machine, Move};
use crate::model::event::{CognitionIn, PromptComposed, SystemPrompt, ThreadStarted, Warning};
use crate::model::thread::{At, ThreadState};
use crate::model::{Effect, Event, Failure, Life, Run, RunEvent, Slot, SuspendReason, Suspension};
use crate::state::RefusalReason;

pub use self::artifact::ArtifactRange;
pub use self::contract::{Contract, Target, Terms};
pub use self::funds::{Funds, RemainingFunds};
pub use self::heard::{CallFailure, ModelSignal};
pub use self::live::ThreadMachine;
pub use self::offer::{ItemTool, ItemTools, ToolOffer, Wanted, may_be_offered, offer, ungranted};
pub use self::offered::{Does, OfferedTool};
pub use self::order::{ThreadOrder, ThreadTool, limits_of};
pub use self::query::{Composed, Reseeded, ThreadAnswer, ThreadQuery};
pub use self::results::Shown;

use self::before::{because_of, unpaid};
use self::live::Live;

impl ThreadMachine {
    /// A machine for `run`, which may be fresh or recovered after a restart.
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

    /// What a second execution of `item` would mean, as far as that is known.
    fn effect(&self, item: &ItemRef) -> Option<Effect> {
        let found = self.live.effects.get(item).copied();
        self.contract().effect(item).or(found)
    }

    fn contract(&self) -> &Contract {
        &self.terms.contract
    }

    /// Looks how much time is left. Only the time of turns counts, so ahead of a turn it is always the same.
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
            // The clock of the record may be slower than the one that waits, and what is cut must be over for both.
            Duration::from_millis(left.saturating_add(left.div_ceil(1000)))
        });
        self.live.deadline = left.map(|left| (since, now.up.plus(left)));
    }

    /// Whether the time of the thread is over, in the middle of a turn.
    fn is_late(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    fn is_busy(&self) -> bool {
        self.live.speaking.is_some() || !self.live.running.is_empty()
    }

    /// Adds `event` to the record and to `events`.
    fn record(&mut self, now: Timestamp, events: &mut Vec<Event>, event: impl Into<Event>) {
        let event = event.into();
        Arc::make_mut(&mut self.run)
            .apply(now, &event)
            .expect("the machine only emits events its own place allows");
        events.push(event);
    }

    /// Ends or suspends the run by `event`, behind the settlement of its open call.
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

    /// The next move of a run that nobody has asked to stop.
    fn advance(&mut self, now: Tick) -> Move<ThreadQuery> {
        match self.state().at.clone() {
            At::Composing if self.continues() => Move::Note(self.go_on(now.at)),
            At::Composing => Move::Query(Vec::new(), Box::new(ThreadQuery::Compose)),
            At::Before(before) => self.before(now, &before),
            At::Calling(turn) => self.calling(now, &turn),
            At::Acting(turn) => self.acting(now, &turn),
            At::Failed(failed) => self.failed(now.at, &failed),
        }
    }

    /// Whether there is a conversation to continue.
    fn continues(&self) -> bool {
        let carried = self.run.spec.carried();
        carried.is_some_and(ThreadState::has_begun)
    }

    /// The conversation of the thread that this one continues. A model that spoke last is asked to continue.
    fn go_on(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        self.started(now, &mut events);
        let state = self.state();
        if let (true, At::Before(before)) = (state.stands_behind_a_turn(), &state.at) {
            let told = CognitionIn {
                turn: before.turn,
                source: Source::Continuation,
                text: "Your work was ended here, and somebody has asked you to continue it."
                    .to_owned(),
            };
            self.record(now, &mut events, told);
        }
        events
    }

    fn started(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let model = &self.contract().model;
        let started = ThreadStarted {
            directive: self.run.spec.item.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            api: model.api.as_str().to_owned(),
            limits: self.state().limits,
            continuation_of: self.run.spec.continuation_of.clone(),
        };
        self.record(now, events, started);
    }

    /// The first message is on disk: the conversation begins.
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

    /// A call that must not be made twice waits until the message is complete.
    fn looked_up(&mut self, call: &Call) -> bool {
        let is_tool = matches!(call.slot, Slot::Part(_));
        if is_tool && !call.undeclared {
            self.live.effects.insert(call.item.clone(), call.effect);
        }
        let speaks = matches!(self.state().at, At::Calling(_));
        !(is_tool && speaks && call.effect == Effect::AtMostOnce)
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

    fn heard(&mut self, now: Tick, _slot: Slot, signal: ModelSignal) -> Vec<Event> {
        self.hear(now.at, signal)
    }

    fn answered(&mut self, now: Tick, answer: ThreadAnswer) -> Vec<Event> {
        match answer {
            ThreadAnswer::Composed(composed) => self.composed(now.at, *composed),
            ThreadAnswer::Funds(funds) => {
                self.live.funds = Some(funds);
                Vec::new()
            }
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

    /// The call of the model was not paid for after all: what may be spent is asked again, and if that is too little, it shows there.
    fn refused(&mut self, _now: Tick, _call: &Call, why: &RefusalReason) -> Vec<Event> {
        self.live.funds = None;
        if let RefusalReason::Budget(denied) = why {
            self.live.unpaid = Some(unpaid(denied));
        }
        Vec::new()
    }

    fn abandon(&mut self, slot: Slot) {
        match slot {
            Slot::Part(position) => drop(self.live.running.remove(&position)),
            Slot::Main | Slot::Hook(_) => self.live.speaking = None,
        }
    }

    fn suspend_for(&mut self, slot: Slot, child: RunId) {
        self.abandon(slot);
        self.live.waits_for.get_or_insert(child);
    }
}

#[cfg(test)]
mod tests;
