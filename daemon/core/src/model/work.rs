//! What a run does, by its kind: the one place that names all kinds, and what each of them is asked.

mod call;
mod hooks;
mod items;
mod turns;
mod walk;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::{Attempt, Slot};
use super::event::{Event, StepStarted};
use super::life::Outcome;
use super::limits::Raised;
use super::round::Round;
use super::spec::Spec;
use super::suspension::Suspension;
use super::task::RunKind;
use super::{graph, thread, tool};
use crate::clock::Timestamp;
use crate::id::RunId;

/// What a run does, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It walks a graph.
    Graph(graph::GraphState),
    /// It talks with a model.
    Thread(thread::ThreadState),
    /// It makes one call.
    Tool(tool::ToolState),
}

/// What the life of a run asks of the state of its work.
pub(super) trait WorkState {
    /// Attempts in flight.
    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_>;

    /// The attempt in flight in `slot`.
    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt>;

    /// The child run that carries out what is in `slot`, or last carried it out.
    fn child(&self, _slot: Slot) -> Option<&RunId> {
        None
    }

    /// What stands for the place where the work is, if there is a name for it.
    fn place<'a>(&'a self, spec: &'a Spec) -> Option<&'a str>;

    /// The same, of work that has come to its end: where it was before.
    fn place_before_the_end<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
        self.place(spec)
    }

    /// The step that is in flight or failed.
    fn step(&self) -> Option<u32>;

    /// The event by which it ends with `outcome`, `elapsed_ms` after the run was accepted; `None` for a kill, which is the same
    /// for every kind.
    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event>;

    /// What it gave back, if it failed.
    fn result(&self) -> Option<&Arc<Value>> {
        None
    }

    /// The memory that its values take, in bytes, roughly.
    fn held(&self) -> usize {
        0
    }

    /// The round of hooks that may be asked here; `None` where no hooks are asked.
    fn round_mut(&mut self) -> Option<&mut Option<Round>> {
        None
    }

    /// A step starts, or is tried again; `false` if it cannot here, and then nothing has changed.
    fn start_step(&mut self, _at: Timestamp, _started: &StepStarted) -> bool {
        false
    }

    /// The run is suspended.
    fn suspend(&mut self, _at: Timestamp, _why: &Suspension) {}

    /// The run is resumed, perhaps with other limits.
    fn resume(&mut self, _at: Timestamp, _raised: &Raised) {}

    /// The run has ended where it stands.
    fn end(&mut self) {}
}

impl Work {
    pub(super) fn create(spec: &Spec) -> Self {
        match spec.kind() {
            RunKind::Graph => Self::Graph(graph::GraphState::create(spec)),
            RunKind::Thread => Self::Thread(thread::ThreadState::create(spec)),
            RunKind::Tool => Self::Tool(tool::ToolState::default()),
        }
    }

    pub(super) fn state(&self) -> &dyn WorkState {
        match self {
            Self::Graph(state) => state,
            Self::Thread(state) => state,
            Self::Tool(state) => state,
        }
    }

    pub(super) fn state_mut(&mut self) -> &mut dyn WorkState {
        match self {
            Self::Graph(state) => state,
            Self::Thread(state) => state,
            Self::Tool(state) => state,
        }
    }

    /// Takes in an event of its own kind; `false` if it cannot here, or is of another kind, and then nothing has changed.
    pub(super) fn apply(&mut self, at: Timestamp, spec: &Spec, event: &Event) -> bool {
        match (self, event) {
            (Self::Graph(state), Event::Graph(event)) => state.apply(at, spec, event),
            (Self::Thread(state), Event::Thread(event)) => state.apply(at, spec, event),
            (Self::Tool(state), Event::Tool(event)) => {
                state.apply(event);
                true
            }
            (Self::Graph(_) | Self::Thread(_) | Self::Tool(_), _) => false,
        }
    }
}
