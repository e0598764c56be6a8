//! The work of a run, by its kind: the one module that names all kinds, and the interface of each kind.

mod graph_transitions;
mod hooks;
mod items;
mod process_transitions;
mod thread_transitions;
mod tool_transitions;
mod watch_transitions;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::{Attempt, Slot};
use super::event::{Event, StepStarted};
use super::life::Outcome;
use super::limits::Raised;
use super::process_end::ProcessEnd;
use super::round::Round;
use super::spec::Spec;
use super::suspension::Suspension;
use super::task::RunKind;
use super::{graph, process, thread, tool};
use crate::clock::Timestamp;
use crate::id::RunId;

/// The work of a run, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Graph(graph::GraphState),
    Thread(thread::ThreadState),
    Tool(tool::ToolState),
    Process(process::ProcessState),
}

/// The operations that the life of a run needs on the state of its work.
pub(super) trait WorkState {
    /// Returns the attempts in flight.
    fn attempts(&self) -> Box<dyn Iterator<Item = &Attempt> + '_>;

    /// Returns the attempt in flight in `slot`.
    fn attempt_mut(&mut self, step: u32, slot: Slot) -> Option<&mut Attempt>;

    /// Returns the child run that carries out `slot`, or last carried it out.
    fn child(&self, _slot: Slot) -> Option<&RunId> {
        None
    }

    /// Returns the name of the current position, if it has one.
    fn location<'a>(&'a self, spec: &'a Spec) -> Option<&'a str>;

    /// Returns the name of the position before the end, for work that has ended.
    fn last_location<'a>(&'a self, spec: &'a Spec) -> Option<&'a str> {
        self.location(spec)
    }

    /// Returns the step that is in flight or failed.
    fn step(&self) -> Option<u32>;

    /// Returns the event by which the work ends with `outcome`, `elapsed_ms` after the run was accepted; `None` for a
    /// kill, which is the same for every kind.
    fn ending(&self, outcome: Outcome, elapsed_ms: u64) -> Option<Event>;

    /// Returns the result of failed work.
    fn result(&self) -> Option<&Arc<Value>> {
        None
    }

    /// Returns the approximate memory use of its values in bytes.
    fn held(&self) -> usize {
        0
    }

    /// Returns the round of hooks that may run here; `None` where no hooks are called.
    fn round_mut(&mut self) -> Option<&mut Option<Round>> {
        None
    }

    /// Starts a step, or tries it again. Returns `false` and changes nothing if that is impossible in this state.
    fn start_step(&mut self, _at: Timestamp, _started: &StepStarted) -> bool {
        false
    }

    fn suspend(&mut self, _at: Timestamp, _why: &Suspension) {}

    fn resume(&mut self, _at: Timestamp, _raised: &Raised) {}

    /// Records the end of the process of an attempt in flight.
    fn exited(&mut self, _end: &ProcessEnd) {}

    fn end(&mut self) {}
}

impl Work {
    pub(super) fn create(spec: &Spec) -> Self {
        match spec.kind() {
            RunKind::Graph => Self::Graph(graph::GraphState::create(spec)),
            RunKind::Thread => Self::Thread(thread::ThreadState::create(spec)),
            RunKind::Tool => Self::Tool(tool::ToolState::default()),
            RunKind::Process => Self::Process(process::ProcessState::create(spec)),
        }
    }

    pub(super) fn state(&self) -> &dyn WorkState {
        match self {
            Self::Graph(state) => state,
            Self::Thread(state) => state,
            Self::Tool(state) => state,
            Self::Process(state) => state,
        }
    }

    pub(super) fn state_mut(&mut self) -> &mut dyn WorkState {
        match self {
            Self::Graph(state) => state,
            Self::Thread(state) => state,
            Self::Tool(state) => state,
            Self::Process(state) => state,
        }
    }

    /// Applies an event of its own kind. Returns `false` and changes nothing if that is impossible in this state or the
    /// event is of another kind.
    pub(super) fn apply(&mut self, at: Timestamp, spec: &Spec, event: &Event) -> bool {
        match (self, event) {
            (Self::Graph(state), Event::Graph(event)) => state.apply(at, spec, event),
            (Self::Thread(state), Event::Thread(event)) => state.apply(at, spec, event),
            (Self::Tool(state), Event::Tool(event)) => {
                state.apply(event);
                true
            }
            (Self::Process(state), Event::Process(event)) => state.apply(at, event),
            (Self::Graph(_) | Self::Thread(_) | Self::Tool(_) | Self::Process(_), _) => false,
        }
    }
}
