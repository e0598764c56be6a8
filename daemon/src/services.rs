//! Services shared by the tasks of runs, and the port to everything that has an effect.
//!
//! **Owns** only handles: the journal as the only way to state, [`Dispatch`] as the only way to effects, the projects
//! and their graphs, the clock. The tasks of a run share them, so each task can outlive the call that spawned it.
//! **Never** keeps the owner of all runs alive, because that owner holds these services.
//!
//! **Order.** All calls of one turn are prepared together before any of them is announced. An announced call is carried
//! out from its plan without another lookup. **Failure.** A failure of an action is part of its
//! [`CallOutcome`](rye_core::machine::CallOutcome).

mod action;

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use rye_core::error::with_sources;
use rye_core::id::{Epoch, RunId};
use rye_core::ledger::Caps;
use rye_core::model::ProcessEnd;
use rye_core::model::event::{ProcessExited, ProcessStarted, Warning};
use rye_core::model::{Effect, Event, Isolation, ProcessIdentity, Resources, Slot, Spec};
use tokio::sync::Notify;

pub use self::action::{Ended, Envelope, Order, Prepared, TraceMode, memory_exceeded, timed_out};
use crate::async_log::{Logs, OutputWriter};
use crate::callbacks::Callbacks;
use crate::contracts::Contracts;
use crate::graphs::Graphs;
use crate::live_processes::LiveProcesses;
use crate::port::Runs;
use crate::ports::PortTable;
use crate::process_log::ProcessLogs;
use crate::projects::Projects;
use crate::provider::Providers;
use crate::stop::Stop;
use crate::survivor::Survivors;
use rye_host::clock::Timer;
use rye_host::crash_suspects::Suspects;
use rye_journal::Journal;

/// Services of the tasks of all runs.
#[derive(Debug)]
pub struct Services {
    pub journal: Arc<Journal>,
    pub dispatch: Arc<dyn Dispatch>,
    pub projects: Arc<Projects>,
    pub graphs: Graphs,
    pub contracts: Contracts,
    /// The owner of all runs. It holds these services, so this reference is weak.
    pub runs: Weak<dyn Runs>,
    /// Output of the tools of runs.
    pub logs: Logs,
    /// Output of managed processes.
    pub process_logs: ProcessLogs,
    pub survivors: Survivors,
    /// Managed processes in flight.
    pub live_processes: LiveProcesses,
    /// Ports of managed processes.
    pub ports: Arc<PortTable>,
    pub clock: Arc<dyn Timer>,
    pub providers: Providers,
    /// Programs of attempts that may call the daemon.
    pub callbacks: Callbacks,
    /// Spending limits of all runs together. Each new hold uses the meters in force from here.
    pub caps: Caps,
    /// Runs that may have crashed the daemon.
    pub suspects: Arc<Suspects>,
    /// Number of this life of the daemon.
    pub epoch: Epoch,
}

impl Services {
    /// The owner of all runs.
    pub fn runs(&self) -> Arc<dyn Runs> {
        let runs = self.runs.upgrade();
        runs.expect("the tasks of runs end before the owner of all runs does")
    }
}

/// Prepares and carries out actions.
pub trait Dispatch: fmt::Debug + Send + Sync {
    /// Looks up, checks and plans the calls of one turn of one run: alias, capability, chain, parameters, plan. Nothing
    /// has begun when this resolves. Returns one answer for each order, in their order. Cancel safe.
    fn prepare(&self, orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>>;

    /// Carries out a prepared call. It ends by itself, or on the stop signal of `cx`.
    fn carry_out<'a>(&'a self, prepared: Prepared, cx: &'a AttemptCtx) -> BoxFuture<'a, Ended>;

    /// Fails if limits are required, and the host does not enforce all of `requested`.
    fn check_limits(&self, requested: Resources) -> Result<(), String>;
}

/// Context of one attempt of a call.
#[derive(Debug)]
pub struct AttemptCtx {
    pub run: RunId,
    /// Authority and project of the run.
    pub spec: Arc<Spec>,
    pub step: u32,
    /// Attempt of the step.
    pub slot: Slot,
    /// Name of the node; empty for a call that belongs to none.
    pub node: String,
    /// Number of the try, from 1.
    pub attempt: u32,
    /// Idempotency key.
    pub key: String,
    /// Meaning of a second execution.
    pub effect: Effect,
    /// Log writer for the output of its process.
    pub output: Arc<OutputWriter>,
    /// Notified when a managed process is ready.
    pub ready: Notify,
    pub stop: Stop,
    pub span: tracing::Span,
    pub services: Arc<Services>,
}

impl AttemptCtx {
    /// Records the process of the call, so that the next daemon recognises it as one of its own.
    pub fn note_process(
        &self,
        process: ProcessIdentity,
        isolation: Isolation,
        resources: Resources,
    ) {
        let event = Event::from(ProcessStarted {
            step: self.step,
            slot: self.slot,
            process,
            isolation: Some(isolation),
            resources,
        });
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "a process identity was not recorded");
        }
    }

    /// Records the end of the process of the call.
    pub fn note_process_end(&self, end: ProcessEnd) {
        self.note(Event::from(ProcessExited {
            step: self.step,
            slot: self.slot,
            end,
        }));
    }

    /// Records an event of the run. A failure to do so is only logged.
    pub fn note(&self, event: Event) {
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "an event was not recorded");
        }
    }

    /// Records a warning for the people of the run, with the node of the call.
    pub fn warn(&self, message: String) {
        let node = Some(self.node.clone()).filter(|node| !node.is_empty());
        let event = Event::from(Warning { node, message });
        if let Err(error) = self.services.journal.note(&self.run, event) {
            tracing::warn!(error = %with_sources(&error), "a warning was not recorded");
        }
    }
}
