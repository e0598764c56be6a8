//! Managed processes: their start and restart, for runs and for people.
//!
//! **Order.** The run of a process is created in the commit that counts it among the child runs of its owner. Starts
//! pass one at a time from the search for a process of the same name to that commit. **Races.** A start that finds a
//! process of its name being stopped waits for its end. A restart that finds one in progress waits for its result.

use std::sync::Arc;
use std::time::Duration;

use rye_core::capability::Layer;
use rye_core::id::RunId;
use rye_core::model::event::{ChildStarted, ProcessRestartRequested, ProcessWatchChanged};
use rye_core::model::{
    Event, Limits, LogCursor, MOST_WATCH_RULES, ProcessSpec, ProcessStage, ProcessState,
    RequestedRestart, Run, RunKind, Spec, Status, WatchRule,
};

use super::admission::process_tool;
use super::error::Error;
use super::handle::Supervisor;
use super::lineage::ALWAYS;
use super::request::{Lineage, Start};
use crate::port::{ProcessOwner, ProcessStart};
use rye_journal::{Change, Filter, RefusalReason, Refused};

/// Runs per page of a listing.
const PAGE: usize = 1000;
/// Time that a start may take in addition to its time limit, until it is recorded that the process is not ready.
const START_TIME: Duration = Duration::from_secs(5);
/// Time for which a killed process may take to end.
const KILL_TIME: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Starts a managed process; returns its run, and true if a live one of the same name and owner existed.
    pub async fn start_process(&self, request: ProcessStart) -> Result<(Arc<Run>, bool), Error> {
        let this = self.clone();
        self.run_to_end(async move { this.start_or_find(request).await })
            .await
    }

    async fn start_or_find(&self, request: ProcessStart) -> Result<(Arc<Run>, bool), Error> {
        let ProcessStart { process, owner } = request;
        let (start, layers, parent) = match owner {
            ProcessOwner::Run { record, layers } => {
                (start_below(&record, layers), None, Some(record.id.clone()))
            }
            ProcessOwner::Person { layers, directory } => {
                let person = layers.first().cloned().unwrap_or(Layer {
                    source: String::new(),
                    patterns: Vec::new(),
                });
                let start = Start::of(process_tool(), directory, person);
                (start, Some(layers), None)
            }
        };
        let journal = self.journal();
        let (now, random) = (journal.now().seconds(), journal.random());
        let id = RunId::with_stem(&process.name, now, random);
        let name = process.name.clone();
        let spec = self.admit_process(&id, start, process, layers).await?;
        let spec = Arc::new(spec);
        if spec.process().is_some_and(|process| process.mcp.is_some()) {
            // Each session has a server of its own.
            let run = self
                .create_process(&id, &name, &spec, parent.as_ref())
                .await?;
            self.launch_created(Arc::clone(&run)).await?;
            return Ok((run, false));
        }
        loop {
            let turn = self.shared.process_starts.lock().await;
            match self.namesake(&name, &spec).await? {
                Some(run) if run.cancel.is_none() => return Ok((run, true)),
                Some(stopping) => {
                    drop(turn);
                    journal.ended(&stopping.id).await?;
                }
                None => {
                    let run = self.create_process(&id, &name, &spec, parent.as_ref());
                    let run = run.await?;
                    drop(turn);
                    self.launch_created(Arc::clone(&run)).await?;
                    return Ok((run, false));
                }
            }
        }
    }

    /// Returns the live process of that name with the owner in `spec`, if there is one.
    async fn namesake(&self, name: &str, spec: &Spec) -> Result<Option<Arc<Run>>, Error> {
        let filter = Filter {
            statuses: vec![Status::Created, Status::Running, Status::Suspended],
            kind: Some(RunKind::Process),
            parent: spec.parent.clone(),
            project: Some(spec.project.clone()),
            principal: Some(spec.principal.clone()),
            ..Filter::default()
        };
        let live = self.journal().list_all(&filter, PAGE).await?;
        let of_owner = live.into_iter().filter(|run| run.parent == spec.parent);
        let mut records = of_owner.filter_map(|run| self.journal().snapshot(&run.id));
        Ok(records.find(|run| {
            let process = run.spec.process();
            let is_live = !run.status().is_terminal();
            is_live && process.is_some_and(|process| process.name == name && process.mcp.is_none())
        }))
    }

    async fn create_process(
        &self,
        id: &RunId,
        name: &str,
        spec: &Arc<Spec>,
        owner: Option<&RunId>,
    ) -> Result<Arc<Run>, Error> {
        let counted = owner.map(|owner| {
            let started = ChildStarted {
                child: id.clone(),
                name: name.to_owned(),
                is_server: spec.process().is_some_and(|process| process.mcp.is_some()),
            };
            Change::event(owner, started.into())
        });
        let created = [
            Change::create(id, Arc::clone(spec)),
            Change::event(id, self.first_event(None)),
        ];
        let changes = counted.into_iter().chain(created).collect();
        let committed = self.journal().commit(changes).await?;
        self.journal().published(committed.ticket).await?;
        let run = committed.run(id).map(Arc::clone);
        run.ok_or_else(|| Error::UnknownRun { run: id.clone() })
    }

    /// Stops the attempt in flight of the process `id`, and starts another one. Returns when it is ready, has ended or
    /// failed, or at the time limit of its start.
    pub async fn restart_process(&self, id: &RunId, by: &str) -> Result<Arc<Run>, Error> {
        let run = self.live_run(id, "restarted").await?;
        self.require_process(&run)?;
        let Some((spec, state)) = run.spec.process().zip(run.process()) else {
            return Ok(run);
        };
        if spec.mcp.is_some() {
            return Err(Error::Unfit {
                run: id.clone(),
                problem: "it is an MCP server: stop it, and the next call of a tool of it starts another one".to_owned(),
            });
        }
        if state.requested == RequestedRestart::None {
            let by = by.to_owned();
            let asked = Event::from(ProcessRestartRequested { by });
            if let Err(error) = self.journal().note(id, asked) {
                let run = self.live_run(id, "restarted").await?;
                return Err(match &run.cancel {
                    Some(cause) => Error::Unfit {
                        run: id.clone(),
                        problem: format!("it is being stopped by {cause}; start it again"),
                    },
                    None => error.into(),
                });
            }
        }
        let is_over = |run: &Run| {
            run.process().is_none_or(|state| {
                let is_settled = state.ready_since().is_some()
                    || state.unready.is_some()
                    || state.is_frozen
                    || matches!(state.stage, ProcessStage::Paused { .. });
                state.requested == RequestedRestart::None && is_settled
            })
        };
        let most = spec.grace() + KILL_TIME + spec.ready_timeout() + START_TIME;
        self.process_until(id, most, is_over).await
    }

    /// Fails unless `run` is a managed process.
    pub fn require_process(&self, run: &Run) -> Result<(), Error> {
        if run.spec.kind() == RunKind::Process {
            return Ok(());
        }
        let problem = "it is no managed process; `ryectl proc ls` lists those".to_owned();
        let run = run.id.clone();
        Err(Error::Unfit { run, problem })
    }

    /// Returns the managed processes that pass `filter`, newest first.
    pub async fn processes(&self, filter: &Filter) -> Result<Vec<Arc<Run>>, Error> {
        let mut processes = Vec::new();
        for run in self.journal().list_all(filter, PAGE).await? {
            // One that was removed meanwhile is left out.
            processes.extend(self.journal().run(&run.id).await?);
        }
        Ok(processes)
    }

    /// Returns the record of the process `id` when it is ready, has ended, was not ready in time, or is frozen.
    pub async fn process_started(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        let is_decided = |run: &Run| {
            let is_decided = |state: &ProcessState| {
                state.ready_since().is_some() || state.unready.is_some() || state.is_frozen
            };
            run.process().is_none_or(is_decided)
        };
        let run = self.run_of(id).await?;
        let most = run.spec.process().map(ProcessSpec::ready_timeout);
        self.process_until(id, most.unwrap_or_default(), is_decided)
            .await?;
        // The reason is recorded at the same time.
        let is_settled = |run: &Run| {
            let is_paused =
                |state: &ProcessState| matches!(state.stage, ProcessStage::Paused { .. });
            is_decided(run) || run.process().is_some_and(is_paused)
        };
        self.process_until(id, START_TIME, is_settled).await
    }

    /// Returns the record of the process `id` when it is ready or has ended, or after `most`.
    pub async fn process_ready(&self, id: &RunId, most: Duration) -> Result<Arc<Run>, Error> {
        let is_ready = |run: &Run| {
            run.process()
                .is_none_or(|state| state.ready_since().is_some())
        };
        self.process_until(id, most, is_ready).await
    }

    /// Adds `rules` to the process `id`, or begins those with the same ids anew, for the lines after `from`.
    pub async fn watch_process(
        &self,
        id: &RunId,
        rules: Vec<WatchRule>,
        from: LogCursor,
    ) -> Result<Arc<Run>, Error> {
        let run = self.live_run(id, "watched").await?;
        self.require_process(&run)?;
        let changed = Event::from(ProcessWatchChanged { rules, from });
        match self
            .journal()
            .commit(vec![Change::event(id, changed)])
            .await
        {
            Ok(committed) => self.journal().published(committed.ticket).await?,
            Err(rye_journal::Error::Refused(Refused {
                why: RefusalReason::Illegal(_) | RefusalReason::NotLive,
                ..
            })) => {
                let run = self.live_run(id, "watched").await?;
                let problem = match &run.cancel {
                    Some(cause) => format!("it is being stopped by {cause}"),
                    None => format!(
                        "it has at most {MOST_WATCH_RULES} rules; those with the ids of earlier ones take their places"
                    ),
                };
                return Err(Error::Unfit {
                    run: id.clone(),
                    problem,
                });
            }
            Err(error) => return Err(error.into()),
        }
        self.run_of(id).await
    }

    /// Resolves when a message about lines of the process `id` waits for the thread that owns it; never if none does
    /// before the process has ended.
    pub async fn lines_queued(&self, id: &RunId) -> Result<(), Error> {
        loop {
            // A commit after this record shows in the queue, which is read later.
            let run = self.run_of(id).await?;
            if let Some(owner) = &run.spec.parent {
                let owner = self.run_of(owner).await?;
                let queue = owner.thread().map(|thread| &thread.queue);
                if queue.is_some_and(|queue| queue.about_lines().any(|of| of.process == *id)) {
                    return Ok(());
                }
            }
            if run.status().is_terminal() {
                std::future::pending::<()>().await;
            }
            self.moved_on(&run).await?;
        }
    }

    async fn process_until(
        &self,
        id: &RunId,
        most: Duration,
        is_so: impl Fn(&Run) -> bool + Send,
    ) -> Result<Arc<Run>, Error> {
        let waited = async {
            loop {
                let run = self.run_of(id).await?;
                if run.status().is_terminal() || is_so(&run) {
                    return Ok(run);
                }
                self.moved_on(&run).await?;
            }
        };
        match tokio::time::timeout(most, waited).await {
            Ok(run) => run,
            Err(_elapsed) => self.run_of(id).await,
        }
    }
}

/// A start of a process that ends with `owner` and has the authority `layers`.
fn start_below(owner: &Run, layers: Vec<Layer>) -> Start {
    let caller = Layer {
        source: owner.spec.principal.clone(),
        patterns: Vec::new(),
    };
    let spec = Spec {
        layers,
        ..Spec::clone(&owner.spec)
    };
    let lineage = Lineage {
        callback: None,
        parent: owner.id.clone(),
        spec: Arc::new(spec),
        limits: Limits::default(),
        key: owner.spec.effect_scope().to_owned(),
        attempt: None,
        parent_end: ALWAYS,
    };
    let directory = owner.spec.project.clone().into();
    Start {
        lineage: Some(lineage),
        ..Start::of(process_tool(), directory, caller)
    }
}
