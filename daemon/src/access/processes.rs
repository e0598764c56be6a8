//! Managed processes of callers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_core::access::Caller;
use rye_core::capability::Layer;
use rye_core::model::{ProcessSpec, Run, RunKind, Status};

use super::{Access, Actionable, Visible};
use crate::live_processes::Figures;
use crate::port::{ProcessOwner, ProcessStart};
use crate::process_log::ProcessLog;
use crate::supervisor::Error;
use rye_journal::Filter;

impl Access {
    /// Starts a managed process of `caller` in the project that `directory` belongs to; returns true if a live one of its
    /// name existed.
    pub async fn start_process(
        &self,
        caller: Layer,
        directory: PathBuf,
        process: ProcessSpec,
    ) -> Result<(Visible, bool), Error> {
        let layers = vec![caller];
        let owner = ProcessOwner::Person { layers, directory };
        let started = self
            .supervisor
            .start_process(ProcessStart { process, owner });
        let (run, exists) = started.await?;
        Ok((self.as_visible(run), exists))
    }

    /// Returns the managed processes that `caller` sees, of `project` or of all, newest first; with `all` those that
    /// have ended, too.
    pub async fn processes(
        &self,
        caller: &Layer,
        project: Option<String>,
        all: bool,
    ) -> Result<Vec<Arc<Run>>, Error> {
        let live = vec![Status::Created, Status::Running, Status::Suspended];
        let filter = Filter {
            statuses: if all { Vec::new() } else { live },
            kind: Some(RunKind::Process),
            project,
            ..Filter::default()
        };
        let filter = filter.visible_to(Caller::User(caller));
        self.supervisor.processes(&filter).await
    }

    /// Figures of the process `run`; `None` if no attempt is in flight.
    pub async fn process_figures(&self, run: &Run) -> Option<Figures> {
        let live = &self.supervisor.services().live_processes;
        live.figures(&run.id).await
    }
}

impl Visible {
    /// Fails unless the run is a managed process.
    pub fn require_process(&self) -> Result<(), Error> {
        self.supervisor.require_process(&self.run)
    }

    /// Returns the process when it is ready, has ended, or was not ready in time.
    pub async fn process_started(&self) -> Result<Self, Error> {
        let run = self.supervisor.process_started(&self.id).await?;
        Ok(self.at(run))
    }

    /// Returns the process when it is ready or has ended, or after `most`.
    pub async fn process_ready(&self, most: Duration) -> Result<Self, Error> {
        let run = self.supervisor.process_ready(&self.id, most).await?;
        Ok(self.at(run))
    }

    /// Resolves when the run has ended.
    pub async fn ended(&self) -> Result<(), Error> {
        Ok(self.journal().ended(&self.id).await?)
    }

    /// Output of the process.
    pub fn process_log(&self) -> Arc<ProcessLog> {
        self.supervisor.services().process_logs.of(&self.id)
    }
}

impl Actionable {
    /// Freezes the attempt in flight of the process, or thaws it.
    pub async fn freeze_process(&self, by: &str, frozen: bool) -> Result<Visible, Error> {
        let run = self.supervisor.freeze_process(&self.id, by, frozen).await?;
        Ok(self.at(run))
    }

    /// Stops the attempt in flight of the process, and starts another one.
    pub async fn restart_process(&self, by: &str) -> Result<Visible, Error> {
        let run = self.supervisor.restart_process(&self.id, by).await?;
        Ok(self.at(run))
    }
}
