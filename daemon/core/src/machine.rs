//! Machines: each decides the next step of a run, by its kind.
//!
//! **Owns** the language between a driver and a machine: the [`Call`] to carry out, its outcome ([`CallOutcome`]), and
//! the [`Move`]s. A machine holds the record, which it advances by the very events it emits, and its knowledge of the
//! attempts in flight. **Never** acts, waits or reads a clock: the driver commits the events, carries out each call and
//! reports its outcome.
//!
//! **Order.** After [`Move::Call`] the driver calls [`Machine::looked_up`], checks the call by [`gate`], and calls
//! [`Machine::start`], or [`Machine::conclude`] for a call that needs no effect, before it requests the next move. Events of one call of a
//! method belong into one commit.
//!
//! **Copies.** The driver plans on a copy of the machine, which replaces the original when the plan is committed; a
//! refused plan leaves no trace. So a copy must be cheap. After each commit the machine gets the resulting record
//! ([`Machine::rebase`]), with the recorded times and with the events that others have committed meanwhile.

mod approval;
mod in_doubt;
mod params;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::capability::Primary;
use crate::cas::InputHashes;
use crate::clock::{Tick, Timestamp, Uptime};
use crate::definition::{Authority, Caching};
use crate::id::{ItemRef, RunId};
use crate::memory::Charge;
use crate::model::event::StepStarted;
use crate::model::{Effect, Event, Failure, Object, ProcessEnd, Run, RunEvent, Slot, Suspension};
use crate::seal::sha256_hex;
use crate::state::RefusalReason;

pub(crate) use self::approval::expired;
pub use self::approval::{APPROVAL_EXPIRED, ASK, Gate, asks, gate};
pub use self::in_doubt::InDoubt;
pub(crate) use self::in_doubt::in_doubt;
pub use self::params::{Params, wrong};

/// A pure machine that decides the next step of runs of one kind.
pub trait Machine: Clone + Send + Sync + 'static {
    /// Report of an attempt in flight before it ends; [`std::convert::Infallible`] if there is none.
    type Signal: Send + 'static;

    /// Query that it needs answered before its next move; a query has no effect. [`std::convert::Infallible`] if there
    /// is none.
    type Query: Send + Sync + 'static;

    type Answer: Send + 'static;

    /// Returns the record as this machine sees it.
    fn run(&self) -> &Arc<Run>;

    /// Replaces the record by the committed one. That one holds every event that this machine has emitted; calls in
    /// flight stay in flight.
    fn rebase(&mut self, run: Arc<Run>);

    /// Suspends the run before its next attempt; calls in flight may end. It has no effect for a kind that is never
    /// suspended.
    fn hold(&mut self, _why: Suspension) {}

    /// Returns the remaining time of the run, if it is limited.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// True if the next move, or the handling of this outcome, may block longer than a runtime worker should be
    /// occupied.
    fn is_heavy(&self, _taken_in: Option<&CallOutcome>) -> bool {
        false
    }

    fn next(&mut self, now: Tick) -> Move<Self::Query>;

    /// Records the lookup of a call that it emitted: the meaning of a second execution. Returns `false` if the call
    /// cannot start here after all; it is emitted again when it can.
    fn looked_up(&mut self, _call: &Call) -> bool {
        true
    }

    /// Records an event that the driver adds to the run. A call that it asks a person about is not emitted again before the
    /// answer.
    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event>;

    /// Announces a call that is about to be carried out by the run `child`, or by no run, with its hashes. The events
    /// must be durable before it starts.
    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        child: Option<RunId>,
        hashes: InputHashes,
    ) -> Vec<Event>;

    /// Records the outcome of a call. The events belong into one commit with the events that follow.
    fn conclude(&mut self, now: Tick, slot: Slot, outcome: &CallOutcome) -> Vec<Event>;

    /// Records a report of the attempt `slot` before it ends.
    fn on_signal(&mut self, now: Tick, slot: Slot, signal: Self::Signal) -> Vec<Event>;

    /// Records the answer to its last query. The events are committed before its next move is requested.
    fn answered(&mut self, now: Tick, answer: Self::Answer) -> Vec<Event>;

    /// The run for `call` could not be created, or its highest cost could not be held, so nothing of its start has
    /// happened. Other calls in flight continue. A machine that does not react emits the call again.
    fn refused(&mut self, _now: Tick, _call: &Call, _why: &RefusalReason) -> Vec<Event> {
        Vec::new()
    }

    /// The call waits for budget that other calls hold, for so long that it is recorded.
    fn delayed(&mut self, _now: Tick, _call: &Call) -> Vec<Event> {
        Vec::new()
    }

    /// Returns the calls in flight whose outcome is of no use any more. The driver stops them.
    fn useless(&self) -> Vec<Slot> {
        Vec::new()
    }

    /// Records that a useless call was stopped.
    fn stopped(&mut self, _now: Tick, slot: Slot) -> Vec<Event> {
        self.abandon(slot);
        Vec::new()
    }

    /// A call was stopped because the run is to stop. It leaves no trace, as if it were still in flight. A hook of the
    /// end is not called again.
    fn abandon(&mut self, slot: Slot);

    /// Suspends the attempt, because the child run that carries it out is suspended.
    fn suspend_for(&mut self, slot: Slot, child: RunId) {
        unreachable!(
            "the child run {child} carries out {slot:?}, and no call of this kind has one"
        );
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub slot: Slot,
    pub step: u32,
    /// The node; empty for hooks that belong to no node.
    pub node: String,
    /// Number of earlier visits of the node.
    pub visit: u32,
    /// Number of the try, from 1.
    pub attempt: u32,
    /// `_now` of the step.
    pub now: Timestamp,
    pub primary: Primary,
    pub item: ItemRef,
    /// The parameters, without keys whose value is null.
    pub params: Object,
    /// Idempotency key, which crashes and repeats of this attempt do not change.
    pub key: String,
    pub effect: Effect,
    /// True if the lookup decides the effect: it is not declared, or less strictly than the item may declare it.
    pub undeclared: bool,
    /// True if its program repeats its calls in order, once it is looked up.
    pub replays: bool,
    /// The text form of its result, once it is looked up.
    pub result_text: ResultText,
    pub caching: Caching,
    /// Time limit, if the node sets one.
    pub timeout: Option<Duration>,
    pub authority: Authority,
    /// The child run that carries it out already: the driver attaches to it instead of starting one.
    pub attached: Option<RunId>,
    /// The child run that carried out an earlier try of it: the driver continues it, if possible.
    pub continues: Option<RunId>,
}

/// The form in which a model reads the result of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultText {
    pub form: TextForm,
    /// Limit of the bytes of the text that are sent whole, if the tool sets one.
    pub limit: Option<u32>,
}

/// The members of a result that are read as text. A result of another shape is read as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextForm {
    /// No members: it is read as JSON, unless it is a text itself.
    #[default]
    Data,
    /// `stdout`, `stderr` and `exit_code` of `rye/bash`.
    Shell,
    /// `stdout`, `stderr` and `return_code` of any other process that prints no JSON.
    Process,
    /// The lines in `output` of `rye/file-system/read`, numbered as by `cat -n`.
    Lines,
    /// `output` of the other tools below `rye/file-system`.
    Output,
    /// The item, or the hits, of `rye/core/fetch`.
    Items,
    /// The blocks in `content` of tools of the Model Context Protocol.
    Blocks,
}

impl Call {
    /// Returns the event by which it starts as the one action of its step, carried out by the run `child` or by no run.
    pub(crate) fn step_started(&self, child: Option<RunId>, hashes: InputHashes) -> StepStarted {
        StepStarted {
            step: self.step,
            node: self.node.clone(),
            visit: self.visit,
            attempt: self.attempt,
            action_id: self.item.to_string(),
            effect: self.effect,
            key: self.key.clone(),
            replays: self.replays,
            now: self.now,
            child,
            call: hashes.call,
            chain: hashes.chain,
            node_input_hash: hashes.node_input,
            ..StepStarted::default()
        }
    }

    /// Makes the first try of an action on `item`, in the first step: not at most once, not cached, with the authority
    /// of the run.
    pub fn new(slot: Slot, item: ItemRef, params: Object, now: Timestamp) -> Self {
        Self {
            slot,
            step: 1,
            node: String::new(),
            visit: 0,
            attempt: 1,
            now,
            primary: Primary::Execute,
            item,
            params,
            key: String::new(),
            effect: Effect::Idempotent,
            undeclared: false,
            replays: false,
            result_text: ResultText::default(),
            caching: Caching::Off,
            timeout: None,
            authority: Authority::Run,
            attached: None,
            continues: None,
        }
    }
}

/// The outcome of an action: the one type for it from the effects to the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    pub result: Arc<Value>,
    pub failure: Option<Failure>,
    /// Certainty that this was the whole effect.
    pub certainty: Certainty,
    /// True if the result is that of an earlier run.
    pub cached: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    pub node_input_hash: Option<String>,
    /// The memory charge of its result, until it is recorded.
    pub charge: Held,
    /// The end of its process, if it had one.
    pub process: Option<Box<ProcessEnd>>,
}

/// A charge that accompanies a value and is not part of it: two values are equal whatever is charged for them.
#[derive(Debug, Clone, Default)]
pub struct Held(Option<Arc<Charge>>);

impl Held {
    /// True if anything is charged.
    pub const fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

impl From<Charge> for Held {
    fn from(charge: Charge) -> Self {
        Self(Some(Arc::new(charge)))
    }
}

impl PartialEq for Held {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl CallOutcome {
    /// Makes the outcome of an action that ended by itself with `result`.
    pub fn known(result: impl Into<Arc<Value>>) -> Self {
        Self {
            result: result.into(),
            failure: None,
            certainty: Certainty::Known,
            cached: false,
            node_input_hash: None,
            charge: Held::default(),
            process: None,
        }
    }

    /// Makes the outcome of an action that never started, because of `failure`.
    pub fn never_started(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            certainty: Certainty::NeverStarted,
            ..Self::known(Value::Null)
        }
    }
}

/// Returns the result of a call as an object that can be extended: itself, or an object with it as `result`; empty for
/// null.
pub fn as_object(result: &Value) -> Object {
    match result {
        Value::Object(result) => result.clone(),
        Value::Null => Object::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Object::from_iter([("result".to_owned(), other.clone())])
        }
    }
}

/// The certainty about the outcome of an attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    NeverStarted,
    /// It ended by itself and reported its outcome.
    Known,
    /// It was ended, or vanished: it may have happened, wholly or in part.
    Unknown,
    /// The child run that carried it out is over, and left at-most-once attempts of unknown outcome, in it or below it.
    /// There is no further try until these are answered.
    UnknownBelow,
}

/// The next step for the driver. In every move the events are committed first.
#[derive(Debug, Clone, PartialEq)]
pub enum Move<Q = Infallible> {
    /// Request the next move again.
    Note(Vec<Event>),
    /// Look the call up, and [`Machine::start`] or [`Machine::conclude`] it; then request the next move.
    Call(Vec<Event>, Box<Call>),
    /// Answer the query by [`Machine::answered`].
    Query(Vec<Event>, Box<Q>),
    /// Continue when a call in flight has ended, a stop is requested, or at that time.
    Wait(Vec<Event>, Option<Uptime>),
    /// The run is suspended.
    Suspended(Vec<Event>),
    /// The run is over.
    End(Vec<Event>),
}

/// Returns `RYE_IDEMPOTENCY_KEY`. It is the same for every try of one visit of a node, of one item of it (by its
/// position, or the name of a branch) or one hook at it. Crashes and continuations do not change it
/// (`daemon/docs/formats.md`). `scope` is the root of the chain of continuations, or the key of the step that started
/// the run.
pub fn idempotency_key(
    scope: &str,
    node: &str,
    visit: u32,
    item: Option<&Value>,
    hook: Option<&str>,
) -> String {
    let text = json!(["rye-idempotency-key/1", scope, node, visit, item, hook]).to_string();
    sha256_hex(text.as_bytes())
}

/// Applies events of others, as they reach a machine by its record.
#[cfg(test)]
pub(crate) trait Observe: Machine {
    fn observe(&mut self, at: Timestamp, event: &Event) -> Result<(), crate::model::Illegal> {
        let mut run = Run::clone(self.run());
        run.apply(at, event)?;
        self.rebase(Arc::new(run));
        Ok(())
    }
}

#[cfg(test)]
impl<M: Machine> Observe for M {}
