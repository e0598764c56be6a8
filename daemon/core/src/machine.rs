//! Machines: what decides what a run does next, by its kind.
//!
//! **Owns** the language between a driver and a machine: the [`Call`] that is to be carried out, what it came to
//! ([`CallOutcome`]), and the [`Move`]s. A machine holds the record, which it advances by the very events it hands out, and what it
//! knows of the attempts in flight. **Never** acts, waits or reads a clock: the driver commits the events, carries out each call
//! and reports its outcome.
//!
//! **Order.** After [`Move::Call`] the driver calls [`Machine::looked_up`] and [`Machine::start`], or [`Machine::conclude`] for a call that needs no effect,
//! before it asks for the next move. Events of one call of a method belong into one commit.
//!
//! **Copies.** The driver plans on a copy of the machine, which takes the place of the original when the plan is committed; a plan that
//! is refused has never been. So a copy has to be cheap. After each commit the machine gets the record that it led to
//! ([`Machine::rebase`]): with the times on record, and with what others have committed meanwhile.

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
use crate::model::{Effect, Event, Failure, Object, Run, Slot, Suspension};
use crate::seal::sha256_hex;
use crate::state::RefusalReason;

pub use self::params::{Params, wrong};

/// A pure machine that decides what a run of some kind does next.
pub trait Machine: Clone + Send + Sync + 'static {
    /// What an attempt in flight reports before it ends; [`std::convert::Infallible`] where nothing does.
    type Signal: Send + 'static;

    /// What it has to find out before its next move; asking has no effect. [`std::convert::Infallible`] where it asks nothing.
    type Query: Send + Sync + 'static;

    /// What it is answered.
    type Answer: Send + 'static;

    /// The record as this machine sees it.
    fn run(&self) -> &Arc<Run>;

    /// Takes in the record as it was committed. It holds every event that this machine has handed out; what is in flight stays
    /// in flight.
    fn rebase(&mut self, run: Arc<Run>);

    /// Suspends the run before its next attempt; what is in flight may end. Nothing happens to a kind that is never suspended.
    fn hold(&mut self, _why: Suspension) {}

    /// What is left of the run's time, if it is limited.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Whether asking for the next move, or taking in what a call came to, may take longer than a worker of the runtime should be held
    /// up.
    fn is_heavy(&self, _taken_in: Option<&CallOutcome>) -> bool {
        false
    }

    /// The next move.
    fn next(&mut self, now: Tick) -> Move<Self::Query>;

    /// Takes in what was found out about a call that it offered: what a second execution would mean. `false` if the call cannot start
    /// here after all; it is offered again when it can.
    fn looked_up(&mut self, _call: &Call) -> bool {
        true
    }

    /// Announces a call that is about to be carried out by the run `child`, or by no run, with what it does and runs on. The events are
    /// to be durable before it is.
    fn start(
        &mut self,
        now: Tick,
        call: &Call,
        child: Option<RunId>,
        hashes: InputHashes,
    ) -> Vec<Event>;

    /// Takes in what a call came to. The events belong into one commit with what follows.
    fn conclude(&mut self, now: Tick, slot: Slot, outcome: &CallOutcome) -> Vec<Event>;

    /// Takes in what the attempt `slot` reports before it ends.
    fn heard(&mut self, now: Tick, slot: Slot, signal: Self::Signal) -> Vec<Event>;

    /// Takes in the answer to what it asked last. The events are committed before it is asked for its next move.
    fn answered(&mut self, now: Tick, answer: Self::Answer) -> Vec<Event>;

    /// The run that was to carry out `call` could not be created, or what it may cost could not be held, so nothing of its start
    /// has happened. What else is in flight continues. A machine that does nothing about it offers the call again.
    fn refused(&mut self, _now: Tick, _call: &Call, _why: &RefusalReason) -> Vec<Event> {
        Vec::new()
    }

    /// A call was stopped because the run is to stop: it leaves no trace, as if it were still in flight. A hook of the end
    /// is not asked again.
    fn abandon(&mut self, slot: Slot);

    /// The child run that carries out the attempt is suspended, so the attempt is.
    fn suspend_for(&mut self, slot: Slot, child: RunId) {
        unreachable!(
            "the child run {child} carries out {slot:?}, and no call of this kind has one"
        );
    }
}

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
    /// Whether what its item says of itself counts, once it is looked up: nobody has said so, or not as strictly as that may.
    pub undeclared: bool,
    /// How a model reads its result, once it is looked up.
    pub result_text: ResultText,
    /// Whether a result of the same inputs may stand in for it.
    pub caching: Caching,
    /// Longest time it may take, if the node says.
    pub timeout: Option<Duration>,
    /// Whose grant it needs.
    pub authority: Authority,
    /// The child run that carries it out already: attach to it instead of starting anything.
    pub attached: Option<RunId>,
    /// The child run that carried out an earlier try of it: continue that one, if it can be.
    pub continues: Option<RunId>,
}

/// How a model reads the result of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultText {
    /// Which members of the result are read as text.
    pub form: TextForm,
    /// Most bytes of the text that are sent whole, if the tool says so.
    pub limit: Option<u32>,
}

/// The members of a result that are read as text. A result that has another shape is read as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextForm {
    /// None: it is read as JSON, unless it is a text itself.
    #[default]
    Data,
    /// `stdout`, `stderr` and `exit_code`, as `rye/bash` has them.
    Shell,
    /// `stdout`, `stderr` and `return_code`, as any other process has them that prints no JSON.
    Process,
    /// The lines in `output`, as `rye/file-system/read` has them, numbered as by `cat -n`.
    Lines,
    /// `output`, as the other tools below `rye/file-system` have it.
    Output,
    /// The item, or the hits, of `rye/core/fetch`.
    Items,
    /// The blocks in `content`, as tools of the Model Context Protocol have them.
    Blocks,
}

impl Call {
    /// The event by which it starts as the one action of its step, carried out by the run `child` or by no run.
    pub(crate) fn step_started(&self, child: Option<RunId>, hashes: InputHashes) -> StepStarted {
        StepStarted {
            step: self.step,
            node: self.node.clone(),
            visit: self.visit,
            attempt: self.attempt,
            action_id: self.item.to_string(),
            effect: self.effect,
            key: self.key.clone(),
            now: self.now,
            child,
            call: hashes.call,
            chain: hashes.chain,
            node_input_hash: hashes.node_input,
            ..StepStarted::default()
        }
    }

    /// The first try of an action on `item`, in the first step: not at most once, not cached, with the authority of the run.
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
            result_text: ResultText::default(),
            caching: Caching::Off,
            timeout: None,
            authority: Authority::Run,
            attached: None,
            continues: None,
        }
    }
}

/// What an action came to: the one type for it from the door to effects to the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// What it gave back.
    pub result: Arc<Value>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// How sure it is that this was the whole effect.
    pub certainty: Certainty,
    /// Whether the result is that of an earlier run.
    pub cached: bool,
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    pub node_input_hash: Option<String>,
    /// What is charged for the memory of its result, until that is on record.
    pub charge: Held,
}

/// A charge that comes with a value and says nothing about it: two values are equal whatever is charged for them.
#[derive(Debug, Clone, Default)]
pub struct Held(Option<Arc<Charge>>);

impl Held {
    /// Whether anything is charged.
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
    /// It ended by itself, and gave back `result`.
    pub fn known(result: impl Into<Arc<Value>>) -> Self {
        Self {
            result: result.into(),
            failure: None,
            certainty: Certainty::Known,
            cached: false,
            node_input_hash: None,
            charge: Held::default(),
        }
    }

    /// It never started, because of `failure`.
    pub fn never_started(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            certainty: Certainty::NeverStarted,
            ..Self::known(Value::Null)
        }
    }
}

/// What a call gave back, as an object to which more can be added: itself, or one that has it as `result`; empty for nothing.
pub fn as_object(result: &Value) -> Object {
    match result {
        Value::Object(result) => result.clone(),
        Value::Null => Object::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Object::from_iter([("result".to_owned(), other.clone())])
        }
    }
}

/// What is known about the outcome of an attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It never started.
    NeverStarted,
    /// It ended by itself and said what it came to.
    Known,
    /// It was ended, or vanished: it may have happened, wholly or in part.
    Unknown,
    /// The child run that carried it out is over, and left at-most-once attempts of unknown outcome, in it or below it: no
    /// further try without an answer about those.
    UnknownBelow,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Move<Q = Infallible> {
    /// Write these down and ask again.
    Note(Vec<Event>),
    /// Write these down, look the call up, and [`Machine::start`] or [`Machine::conclude`] it; then ask again.
    Call(Vec<Event>, Box<Call>),
    /// Write these down, and find this out; then [`Machine::answered`].
    Query(Vec<Event>, Box<Q>),
    /// Write these down; continue when a call in flight has ended, somebody asks the run to stop, or at that time.
    Wait(Vec<Event>, Option<Uptime>),
    /// Write these down; the run is suspended.
    Suspended(Vec<Event>),
    /// Write these down; the run is over.
    End(Vec<Event>),
}

/// `RYE_IDEMPOTENCY_KEY`: the same for every try of one visit of a node, of one item of it (by its position, or the name of a branch) or one
/// hook at it, over crashes and continuations (`daemon/docs/formats.md`). `scope` is the root of the chain of continuations, or the key of the step that
/// started the run.
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

/// Events of others, as they reach a machine by its record.
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
