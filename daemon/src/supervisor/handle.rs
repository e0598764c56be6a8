//! The handle on all runs, and the queue to the owner of their tasks.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::id::{Epoch, ItemRef, RunId};
use rye_core::memory::Memory;
use rye_core::model::event::Warning;
use rye_core::model::{Event, Failure, Life, Run, RunEvent};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::error::Error;
use super::request::{Admitted, Deadlines, Hold, Start, StartAt, Started};
use crate::async_log::Logs;
use crate::callbacks::Callbacks;
use crate::config::Config;
use crate::contracts::Contracts;
use crate::graphs::Graphs;
use crate::inspect::Inspector;
use crate::live_processes::LiveProcesses;
use crate::port::Runs;
use crate::ports::PortTable;
use crate::process_log::ProcessLogs;
use crate::projects::Projects;
use crate::provider::Providers;
use crate::services::{Dispatch, Envelope, Services, TraceMode};
use crate::stop::Stop;
use crate::survivor::Survivors;
use rye_host::clock::Timer;
use rye_host::crash_suspects::Suspects;
use rye_host::task::{self, Scope};
use rye_journal::{Change, Journal, KeyOwner, Of, RefusalReason, Refused, Since, Until};

/// Length of the launch queue; a start waits while it is full.
pub(super) const LAUNCH_QUEUE: usize = 256;
/// Time after the grace to end the remaining calls in flight.
pub(super) const SWEEP_TIME: Duration = Duration::from_secs(2);
/// Most bytes of a caller's idempotency key.
pub(super) const KEY_BYTES: usize = 255;
/// Prefix of the start keys of runs that continue another one.
pub(super) const CONTINUES: &str = "continues:";

/// Prefix of the start keys of runs that programs of other runs started.
pub(super) const CALLBACK_KEY: &str = "callback:";

/// The owner of all runs. Clones share it; the [`Weak`] references that tasks hold do not keep it alive.
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    /// A reference to this value, for tasks.
    pub(super) this: Weak<Self>,
    pub(super) services: Arc<Services>,
    /// Memory of the texts of all answers.
    pub(super) answer_memory: Arc<Memory>,
    pub(super) config: Arc<Config>,
    pub(super) live: Mutex<HashMap<RunId, Stop>>,
    pub(super) holds: Mutex<Vec<Hold>>,
    pub(super) deadlines: Mutex<Deadlines>,
    /// Held from the search for a managed process to the creation of one.
    pub(super) process_starts: tokio::sync::Mutex<()>,
    pub(super) launches: mpsc::Sender<Launch>,
    pub(super) stopping: CancellationToken,
}

/// An entry of the launch queue.
pub(super) enum Launch {
    Run(Beginner),
    /// Work that continues if its caller is gone, and ends with the daemon.
    Errand(BoxFuture<'static, ()>),
}

pub(super) struct Beginner {
    pub(super) begin: Begin,
    pub(super) envelope_request: Option<EnvelopeRequest>,
}

pub(super) enum Begin {
    /// The task creates the run first.
    Create {
        run: RunId,
        admitted: Box<Admitted>,
        reply: oneshot::Sender<Result<Started, Error>>,
    },
    /// The run exists already.
    Existing(Arc<Run>),
}

impl Begin {
    pub(super) fn run(&self) -> &RunId {
        match self {
            Self::Create { run, .. } => run,
            Self::Existing(run) => &run.id,
        }
    }
}

/// The caller that waits for the envelope of a tool run.
#[derive(Debug)]
pub(super) struct EnvelopeRequest {
    pub(super) trace: TraceMode,
    pub(super) envelope: oneshot::Sender<Envelope>,
}

/// The receiving end of the launch queue.
#[derive(Debug)]
pub struct Launches(mpsc::Receiver<Launch>);

impl Supervisor {
    /// Makes a supervisor without runs. [`Supervisor::own`] must be polled with the launches.
    pub fn new(
        journal: Arc<Journal>,
        dispatch: Arc<dyn Dispatch>,
        projects: Arc<Projects>,
        clock: Arc<dyn Timer>,
        config: Arc<Config>,
        suspects: Arc<Suspects>,
        epoch: Epoch,
    ) -> (Self, Launches) {
        let (launches, receiver) = mpsc::channel(LAUNCH_QUEUE);
        let shared = Arc::new_cyclic(|this: &Weak<Shared>| {
            let runs: Weak<dyn Runs> = Weak::<Shared>::clone(this);
            let services = Services {
                journal,
                dispatch,
                projects,
                graphs: Graphs::default(),
                contracts: Contracts::default(),
                logs: Logs::default(),
                process_logs: ProcessLogs::new(&config.state_dir, Arc::clone(&clock)),
                survivors: Survivors::new(&config.state_dir),
                live_processes: LiveProcesses::default(),
                ports: Arc::new(PortTable::new(config.port_range.clone())),
                runs,
                providers: Providers::new(
                    &config.environment,
                    &config.env.secrets,
                    config.networks,
                    Arc::clone(&clock),
                ),
                callbacks: Callbacks::new(config.socket.clone(), client_program()),
                clock,
                caps: config.budget,
                suspects,
                epoch,
            };
            Shared {
                this: Weak::clone(this),
                answer_memory: Arc::new(services.journal.memory().of_answers()),
                services: Arc::new(services),
                config,
                live: Mutex::default(),
                holds: Mutex::default(),
                deadlines: Mutex::default(),
                process_starts: tokio::sync::Mutex::default(),
                launches,
                stopping: CancellationToken::new(),
            }
        });
        (Self { shared }, Launches(receiver))
    }

    /// Owns the tasks of all runs until the daemon stops; returns when all have ended.
    pub async fn own(self, mut launches: Launches) {
        let mut tasks = Scope::new();
        let watcher = self.clone();
        tasks.spawn("cancel files", |_| async move {
            watcher.watch_cancel_files().await;
        });
        loop {
            tokio::select! {
                Some(launch) = launches.0.recv() => self.begin(launch, &mut tasks),
                Some(_) = tasks.next_ended() => {}
                () = self.shared.stopping.cancelled() => break,
            }
        }
        // Wakes tasks that wait for a queued launch. Some of them must end now.
        drop(launches);
        let grace = self.shared.config.shutdown_grace;
        for stop in self.live().values() {
            stop.shut_down(grace);
        }
        tasks.close(grace + SWEEP_TIME).await;
    }

    pub(super) fn begin(&self, launch: Launch, tasks: &mut Scope) {
        match launch {
            Launch::Run(launch) => {
                let span = tracing::info_span!("run", run = %launch.begin.run());
                let supervisor = self.clone();
                tasks.spawn("run", |_| supervisor.run(launch).instrument(span));
            }
            Launch::Errand(errand) => tasks.spawn("errand", |stopping| async move {
                tokio::select! {
                    () = errand => {}
                    () = stopping.cancelled() => {}
                }
            }),
        }
    }

    /// Completes `work` even if the caller is dropped meanwhile.
    pub(super) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let errand = async move { task::reply(reply, work.await) };
        self.launch(Launch::Errand(errand.boxed())).await?;
        answer.await.unwrap_or(Err(Error::Stopping))
    }

    /// Stops: nothing new starts, calls in flight are ended, and live runs are recovered at the next start.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
    }

    /// Stops without grace for processes.
    pub fn stop_now(&self) {
        self.stop();
        for stop in self.live().values() {
            stop.kill("the daemon stops", Duration::ZERO);
        }
    }

    /// Returns the token that is cancelled by [`Supervisor::stop`].
    pub fn stopping(&self) -> CancellationToken {
        self.shared.stopping.clone()
    }

    /// Resolves once the daemon is to stop.
    pub async fn stopped(&self) {
        self.shared.stopping.cancelled().await;
    }

    pub fn projects(&self) -> &Arc<Projects> {
        &self.shared.services.projects
    }

    /// Returns the services that tasks of runs use.
    pub fn services(&self) -> &Arc<Services> {
        &self.shared.services
    }

    /// Returns the checker of graphs.
    pub fn inspector(&self) -> Inspector {
        let services = &self.shared.services;
        Inspector {
            projects: Arc::clone(&services.projects),
            graphs: services.graphs.clone(),
            memory: services.journal.memory(),
            clock: Arc::clone(&services.clock),
        }
    }

    /// Memory of the texts of all answers to clients.
    pub fn answer_memory(&self) -> Arc<Memory> {
        Arc::clone(&self.shared.answer_memory)
    }

    /// Returns the journal, for reading.
    pub fn journal(&self) -> &Journal {
        &self.shared.services.journal
    }

    /// Returns the interface for drivers and native tools.
    pub fn runs(&self) -> Arc<dyn Runs> {
        Arc::<Shared>::clone(&self.shared)
    }

    /// Number of runs that run or wait for their task, including recovery after a restart. Suspended ones do not count.
    pub fn live_count(&self) -> usize {
        self.journal().active()
    }

    /// Accepts a run; returns when it is durable.
    pub async fn start(&self, request: Start) -> Result<Started, Error> {
        if let Some(key) = &request.start_key {
            check_key(key)?;
        }
        match request.start_at {
            // Its inputs were checked when the run it continues was started.
            StartAt::Continue { .. } => {}
            StartAt::Start | StartAt::Injected(_) | StartAt::Node { .. } => {
                self.refuse_control_inputs(&request).await?;
            }
        }
        self.admit_and_launch(request, None).await
    }

    /// Accepts a run. Unlike [`Supervisor::start`] it allows keys that begin with [`CONTINUES`].
    pub(super) async fn admit_and_launch(
        &self,
        request: Start,
        asker: Option<EnvelopeRequest>,
    ) -> Result<Started, Error> {
        let journal = self.journal();
        if self.shared.stopping.is_cancelled() {
            return Err(Error::Stopping);
        }
        if let Some(key) = &request.start_key
            && let Some(owner) = journal.by_start_key(request.principal(), key).await?
        {
            let run = match owner {
                KeyOwner::Run(run) => run,
                KeyOwner::Removed(run, _) => return Err(Error::Removed { run }),
            };
            let project = self.projects().open(&request.directory).await?;
            let project = project.directory.to_string_lossy();
            let item = request.item.canonical();
            return self
                .existing_start(run, &item, &project, &request.digest())
                .await;
        }
        let id = RunId::generate(&request.item.id, journal.now().seconds(), journal.random());
        let id = match request.start_at {
            StartAt::Node { .. } => id.single_step(),
            StartAt::Start | StartAt::Injected(_) | StartAt::Continue { .. } => id,
        };
        let mut admitted = self.admit(&id, request).await?;
        if let Some(failure) = admitted.fault.take() {
            let failure = Box::new(failure);
            return Err(Error::Faulty { failure });
        }
        let (reply, created) = oneshot::channel();
        let begin = Begin::Create {
            run: id,
            admitted: Box::new(admitted),
            reply,
        };
        self.launch(Launch::Run(Beginner {
            begin,
            envelope_request: asker,
        }))
        .await?;
        created.await.unwrap_or(Err(Error::Stopping))
    }

    /// Returns `run`, which was started with the same key. Fails unless item, project and digest of inputs and options
    /// are the same.
    pub(super) async fn existing_start(
        &self,
        run: RunId,
        item: &ItemRef,
        project: &str,
        digest: &str,
    ) -> Result<Started, Error> {
        let record = self.run_of(&run).await?;
        let spec = &record.spec;
        let what = if spec.item != *item {
            Some(format!("another item, `{}`", spec.item))
        } else if spec.project != project {
            Some(format!("another project, `{}`", spec.project))
        } else if spec
            .start_digest
            .as_deref()
            .is_some_and(|old| old != digest)
        {
            Some("other inputs or options".to_owned())
        } else {
            None
        };
        match what {
            Some(what) => Err(Error::KeyReused { run, what }),
            None => Ok(Started {
                run,
                warnings: Vec::new(),
                existed: true,
            }),
        }
    }

    /// Starts the task of a run that exists.
    pub(super) async fn launch_created(&self, run: Arc<Run>) -> Result<(), Error> {
        let begin = Begin::Existing(run);
        let asker = None;
        self.launch(Launch::Run(Beginner {
            begin,
            envelope_request: asker,
        }))
        .await
    }

    pub(super) async fn launch(&self, launch: Launch) -> Result<(), Error> {
        let sent = self.shared.launches.send(launch).await;
        sent.map_err(|_closed| Error::Stopping)
    }

    /// Creates a run. The record is `None` if the run ended at once, or if another start with the same key came first.
    pub(super) async fn create(
        &self,
        id: RunId,
        admitted: Admitted,
    ) -> Result<(Started, Option<Arc<Run>>), Error> {
        let journal = self.journal();
        let spec = Arc::new(admitted.spec);
        let mut changes = vec![Change::create(&id, Arc::clone(&spec))];
        let fails = admitted.fault.is_some();
        changes.push(Change::event(&id, self.first_event(admitted.fault)));
        let notes = admitted.notes.into_iter().filter(|_| !fails);
        changes.extend(notes.map(|message| {
            let warning = Warning {
                node: None,
                message,
            };
            Change::event(&id, warning.into())
        }));
        let committed = match journal.commit(changes).await {
            Err(rye_journal::Error::Refused(Refused {
                why: RefusalReason::KeyTaken(run),
                ..
            })) => {
                // The key was taken after it was looked up.
                let digest = spec.start_digest.as_deref().unwrap_or_default();
                let started = self.existing_start(run, &spec.item, &spec.project, digest);
                return Ok((started.await?, None));
            }
            committed => committed?,
        };
        journal.published(committed.ticket).await?;
        let run = committed.run(&id).map(Arc::clone);
        let started = Started {
            run: id,
            warnings: admitted.warnings,
            existed: false,
        };
        Ok((started, run.filter(|_| !fails)))
    }

    /// The event in the commit that creates a run. Either this life of the daemon owns the run, so that a life is on
    /// record before it acts; or `fault`, if the run cannot begin.
    pub(super) fn first_event(&self, fault: Option<Failure>) -> Event {
        let epoch = self.shared.services.epoch;
        fault.map_or(RunEvent::started(epoch).into(), Event::never_started)
    }

    /// Resolves when the run has ended or is suspended and this is durable.
    pub async fn settled(&self, id: &RunId) -> Result<(), Error> {
        let run = self.run_of(id).await?;
        match run.life {
            Life::Suspended(_) | Life::Ended(_) => Ok(()),
            Life::Created | Life::Running => Ok(self.journal().rested(id, run.seq).await?),
        }
    }

    /// Resolves at the next event after the state in `run`.
    pub(super) async fn moved_on(&self, run: &Run) -> Result<(), Error> {
        let (of, since) = (Of::Run(run.id.clone()), Since::Seq(run.seq));
        let mut events = self.journal().read(of, since, Until::Ended).await?;
        match events.next().await {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Fails if the run does not exist.
    pub async fn run_of(&self, id: &RunId) -> Result<Arc<Run>, Error> {
        self.journal()
            .run(id)
            .await?
            .ok_or_else(|| Error::UnknownRun { run: id.clone() })
    }

    pub(super) async fn live_run(
        &self,
        id: &RunId,
        wanted: &'static str,
    ) -> Result<Arc<Run>, Error> {
        let run = self.run_of(id).await?;
        if run.status().is_terminal() {
            return Err(Error::Over {
                run: id.clone(),
                status: run.status(),
                wanted,
            });
        }
        Ok(run)
    }

    pub(super) async fn commit_unless_over(
        &self,
        id: &RunId,
        events: Vec<Event>,
        wanted: &'static str,
    ) -> Result<rye_journal::Ticket, Error> {
        let changes = events
            .into_iter()
            .map(|event| Change::event(id, event))
            .collect();
        match self.journal().commit(changes).await {
            Ok(committed) => Ok(committed.ticket),
            Err(error) => {
                self.live_run(id, wanted).await?;
                Err(error.into())
            }
        }
    }

    pub(super) fn live(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Stop>> {
        // Every use is one insert, remove or read, so a panic elsewhere leaves the map valid.
        self.shared
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all earlier holders of the lock on the tasks have released it.
    #[cfg(test)]
    pub(crate) fn pass_tasks(&self) {
        drop(self.live());
    }
}

/// Refuses keys that are too long or begin with [`CONTINUES`].
/// Path of `ryectl`, if it is next to this program.
fn client_program() -> Option<PathBuf> {
    let client = std::env::current_exe().ok()?.with_file_name("ryectl");
    client.exists().then_some(client)
}

fn check_key(key: &str) -> Result<(), Error> {
    let problem = if key.len() > KEY_BYTES {
        format!("it is longer than {KEY_BYTES} bytes")
    } else if let Some(own) = [CONTINUES, CALLBACK_KEY]
        .iter()
        .find(|own| key.starts_with(**own))
    {
        format!("keys that begin with `{own}` are the daemon's own")
    } else {
        return Ok(());
    };
    let message = format!("`idempotency_key`: {problem}");
    Err(Error::Params { message })
}
