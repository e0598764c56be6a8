//! What the task of a run works with, and the port to everything that has an effect.
//!
//! **Owns** nothing but handles: on the journal, the only door to state; on [`Dispatch`], the only door to effects; on the
//! projects and their graphs; on the clock. The tasks of a run share them, so that each can outlive the call that spawned it. **Never** keeps the
//! owner of all runs alive, which holds these services itself.
//!
//! **Order.** All calls of one turn are prepared together, before any of them is announced; an announced call is carried out
//! from its plan and looks nothing up again. **Failure.** What goes wrong with an action is part of its [`CallOutcome`](rye_core::machine::CallOutcome).

mod action;

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use rye_core::error::with_sources;
use rye_core::id::{Epoch, RunId};
use rye_core::ledger::Caps;
use rye_core::model::{Effect, Event, ProcessIdentity, RunEvent, Slot, Spec};

pub use self::action::{Ended, Envelope, Order, Prepared, TraceMode, memory_exceeded, timed_out};
use crate::async_log::{Logs, Voice};
use crate::contracts::Contracts;
use crate::graphs::Graphs;
use crate::port::Runs;
use crate::projects::Projects;
use crate::provider::Providers;
use crate::stop::Stop;
use rye_host::clock::Timer;
use rye_host::crash_suspects::Suspects;
use rye_journal::Journal;

/// What the tasks of all runs work with.
#[derive(Debug)]
pub struct Services {
    /// The only door to state.
    pub journal: Arc<Journal>,
    /// The only door to effects.
    pub dispatch: Arc<dyn Dispatch>,
    /// The projects in use.
    pub projects: Arc<Projects>,
    /// Their graphs.
    pub graphs: Graphs,
    /// What their threads go by.
    pub contracts: Contracts,
    /// The owner of all runs; it holds these services, and they must not hold it.
    pub runs: Weak<dyn Runs>,
    /// What the tools of runs print.
    pub logs: Logs,
    /// The time, and waiting for it.
    pub clock: Arc<dyn Timer>,
    /// The providers of models.
    pub providers: Providers,
    /// What all runs together may spend: whoever makes a hold asks it for the meters in force.
    pub caps: Caps,
    /// The runs that may have brought an earlier life of the daemon down.
    pub suspects: Arc<Suspects>,
    /// This life of the daemon.
    pub epoch: Epoch,
}

impl Services {
    /// The owner of all runs.
    pub fn runs(&self) -> Arc<dyn Runs> {
        let runs = self.runs.upgrade();
        runs.expect("the tasks of runs end before the owner of all runs does")
    }
}

/// The only door to effects.
pub trait Dispatch: fmt::Debug + Send + Sync {
    /// Looks up, checks and plans the calls of one turn of one run: alias, capability, chain, parameters, plan. Nothing has begun
    /// when this resolves, and there is one answer for each order, in their order. Cancel safe.
    fn prepare(&self, orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>>;

    /// Carries out what was prepared; it ends by itself, or as the stop signal of `cx` says.
    fn carry_out<'a>(&'a self, prepared: Prepared, cx: &'a AttemptCtx) -> BoxFuture<'a, Ended>;
}

/// What a call needs of its attempt.
#[derive(Debug)]
pub struct AttemptCtx {
    /// The run.
    pub run: RunId,
    /// Its authority and its project.
    pub spec: Arc<Spec>,
    /// The step.
    pub step: u32,
    /// Which attempt of the step it is.
    pub slot: Slot,
    /// The node; empty for calls that belong to none.
    pub node: String,
    /// The idempotency key.
    pub key: String,
    /// What doing it a second time would mean.
    pub effect: Effect,
    /// Where what its process prints goes.
    pub voice: Arc<Voice>,
    /// How urgently the run is to stop.
    pub stop: Stop,
    /// What is logged on the way belongs to this.
    pub span: tracing::Span,
    /// What the run works with.
    pub services: Arc<Services>,
}

impl AttemptCtx {
    /// Puts the process of the call on record, so that the next daemon knows it as one of ours.
    pub fn note_process(&self, process: ProcessIdentity) {
        let event = Event::Run(RunEvent::ProcessStarted {
            step: self.step,
            slot: self.slot,
            process,
        });
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "a process identity was not recorded");
        }
    }

    /// Puts on record what has happened on behalf of the run.
    pub fn note(&self, event: Event) {
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "an event was not recorded");
        }
    }

    /// Puts on record what the people of the run should know of the call.
    pub fn warn(&self, message: String) {
        let node = Some(self.node.clone()).filter(|node| !node.is_empty());
        let event = Event::Run(RunEvent::Warning { node, message });
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "a warning was not recorded");
        }
    }
}
