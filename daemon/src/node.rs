//! Life of the daemon: from the lock on its state directory to the removal of its socket.
//!
//! **Owns** the order of start and stop, the node key, and the socket file. **Never** knows what a run is.
//!
//! ```text
//! directory locked → node key, system items → socket bound → log opened and replayed (epoch) → leftover processes ended
//!      → socket serves → live runs recovered … signal → calls refused, runs notified → calls ended → journal closed → socket removed
//! ```
//!
//! A stop takes at most the grace period of its runs plus two seconds. The next start writes the exports that are not
//! finished by then. Calls during the stop fail with the message that the daemon stops.
//!
//! **Failure.** A state directory in use, a copy of one, an unreadable log or a socket that cannot be bound stops the
//! start with an error that names it; nothing is overwritten. A journal that fails later ends the processes and the
//! daemon at once, with exit code 70.

mod directory;
mod identity;
mod leftovers;
mod rebuild;
mod socket;

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rye_core::clock::{Clock, Timestamp};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::memory::Memory;
use rye_core::model::{KillReceipt, Run};
use rye_process::{self as process, AttemptCgroups, SignalScope, Spawner};
use tokio::signal::unix::{SignalKind, signal};

use self::directory::{Directory, RecordsOrigin, Signers};
use self::identity::NodeKey;
use self::leftovers::{clear_up, sweep_copies};
pub use self::rebuild::rebuild;
use self::socket::Socket;
use crate::access::Access;
use crate::config::{Config, Containment, Retention};
use crate::dispatch::{self, Dispatcher};
use crate::exit::ExitStatus;
use crate::exports::{self, Exports};
use crate::projects::{self, Projects};
use crate::rpc;
use crate::supervisor::{self, Prune, PruneToken, Supervisor};
use crate::survivor;
use rye_host::clock::HostClock;
use rye_host::crash_suspects::Suspects;
use rye_host::fail_point;
use rye_host::task::{self, Scope};
use rye_journal::{Journal, Signer};
use tokio_util::sync::CancellationToken;

/// Reason why the daemon did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the state directory `{path}` is in use by another ryed{}; stop it (`ryectl daemon stop`) or choose another `--state-dir`",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        path: PathBuf,
        /// Pid of the other daemon, if it is known.
        pid: Option<i32>,
    },
    /// Another user owns the state directory.
    #[error(
        "the state directory `{path}` belongs to uid {owner}, not to uid {us}; choose another `--state-dir`"
    )]
    Foreign { path: PathBuf, owner: u32, us: u32 },
    #[error(
        "the state directory `{path}` is a copy of one that was in use since this machine booted, and a daemon may still work there; \
         if this copy is to be used beside it, or instead of it, start it once with `ryed --state-dir {path} --adopt-copy`"
    )]
    Copy { path: PathBuf },
    /// The record is missing that names the directory and the key of the stored data.
    #[error(
        "`{path}` is missing, which says what the records next to it belong to; put it back, or start once with `--adopt-copy`"
    )]
    Unnamed { path: PathBuf },
    #[error("another ryed answers on `{path}`; choose another `--socket`")]
    SocketInUse { path: PathBuf },
    #[error("failed to {operation} `{path}`")]
    Io {
        /// The failed operation.
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The node key or the system items cannot be prepared.
    #[error("failed to prepare the node's identity")]
    Identity(#[source] identity::Error),
    #[error("failed to keep the journal")]
    Journal(#[from] rye_journal::Error),
    /// A test names an unknown fail point.
    #[error(transparent)]
    FailPoint(#[from] fail_point::InvalidFailPoint),
    /// The runtime or the signal handlers cannot be set up.
    #[error("failed to set up the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("failed to serve")]
    Serve(#[source] tonic::transport::Error),
    /// The daemon that has the state directory does not answer.
    #[error("failed to reach the daemon on `{path}`", path = socket.display())]
    Reach {
        socket: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
    /// The daemon that has the state directory refuses the request.
    #[error("the daemon that runs refuses: {}", .0.message())]
    Refused(Box<tonic::Status>),
    #[error(transparent)]
    Project(#[from] projects::Error),
    /// The daemon stopped during the rebuild.
    #[error("the daemon stopped before all runs were compared")]
    Stopped,
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::InUse { .. } | Self::Copy { .. } | Self::SocketInUse { .. } => {
                ErrorKind::Precondition
            }
            Self::Unnamed { .. } => ErrorKind::DataLoss,
            Self::FailPoint(_) => ErrorKind::Invalid,
            Self::Foreign { .. } => ErrorKind::Denied,
            Self::Io { .. }
            | Self::Runtime(_)
            | Self::Serve(_)
            | Self::Reach { .. }
            | Self::Refused(_)
            | Self::Stopped => ErrorKind::Unavailable,
            Self::Project(source) => source.kind(),
            Self::Identity(source) => source.kind(),
            Self::Journal(source) => source.kind(),
        }
    }
}

impl Error {
    /// Exit status for this error. A failed log does not recover by a retry, so its status must not cause an automatic
    /// restart.
    fn exit(&self) -> ExitStatus {
        if matches!(self, Self::Journal(rye_journal::Error::Failed(_))) {
            return ExitStatus::Internal;
        }
        self.kind().into()
    }
}

/// Maximum time of a stop in addition to the grace period of its runs.
const STOPS_WITHIN: Duration = Duration::from_secs(2);
/// Part of it that is reserved for closing the journal.
const CLOSES_WITHIN: Duration = Duration::from_millis(500);

/// Runs this program as a shim, with the descriptors that the daemon has opened for it.
pub fn keep(descriptors: [RawFd; 3]) -> ExitStatus {
    // It has no standard streams. The daemon takes its end without a word as a failure.
    match survivor::keep(descriptors, dispatch::unstarted) {
        Ok(()) => ExitStatus::Done,
        Err(_error) => ExitStatus::Internal,
    }
}

/// Runs the daemon until it is stopped. `parent` is the process that adopts orphans. With `adopt_copy` a copied state
/// directory is adopted.
pub fn serve(config: Config, parent: Pid, adopt_copy: bool) -> ExitStatus {
    match run(config, parent, adopt_copy) {
        Ok(()) => ExitStatus::Done,
        Err(error) => {
            tracing::error!("{}", with_sources(&error));
            error.exit()
        }
    }
}

fn run(config: Config, parent: Pid, adopt_copy: bool) -> Result<(), Error> {
    fail_point::arm(config.environment.get(fail_point::VARIABLE), parent)?;
    let open_files = process::harden();
    let directory = Arc::new(Directory::claim(&config.state_dir, &config.socket, parent)?);
    let origin = directory.check(adopt_copy)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    // Before anything else: what an earlier daemon left may still work on the same files.
    let swept = process::end_recorded(&config.state_dir);
    let cgroups = attempt_cgroups(&config, parent);
    let (scope, no_scope) = match signal_scope(&config) {
        Ok(scope) => (Some(scope), None),
        Err(why) => (None, Some(why)),
    };
    let attempts = cgroups.as_ref().ok().cloned();
    let spawner = Spawner::new(Some(parent), open_files, attempts, scope);
    let contained = Contained {
        spawner,
        cgroups,
        no_scope,
        swept,
    };
    let served = runtime.block_on(live(
        Arc::new(config),
        parent,
        contained,
        &directory,
        &origin,
    ));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Containment of the processes of this daemon.
struct Contained {
    spawner: Spawner,
    cgroups: Result<Arc<AttemptCgroups>, String>,
    /// Reason why attempts have no signal scope.
    no_scope: Option<String>,
    /// Receipts of processes that an earlier daemon left in cgroups, by the names of these.
    swept: Vec<(String, KillReceipt)>,
}

/// Makes the cgroups of attempts, or returns the reason why there are none.
fn attempt_cgroups(config: &Config, parent: Pid) -> Result<Arc<AttemptCgroups>, String> {
    let made = match config.cgroups {
        Containment::Auto => AttemptCgroups::prepare(&config.state_dir, parent),
        Containment::Off => Err(process::Unavailable::Off),
    };
    made.map_err(|why| {
        tracing::info!(%why, "attempts have no cgroups");
        why.to_string()
    })
}

/// Makes the signal scope of attempts, or returns the reason why there is none.
fn signal_scope(config: &Config) -> Result<SignalScope, String> {
    let made = match config.signals {
        Containment::Auto => SignalScope::prepare(),
        Containment::Off => Err(process::NoScope::Off),
    };
    made.map_err(|why| {
        tracing::info!(%why, "attempts have no signal scope");
        why.to_string()
    })
}

async fn live(
    config: Arc<Config>,
    parent: Pid,
    contained: Contained,
    directory: &Arc<Directory>,
    origin: &RecordsOrigin,
) -> Result<(), Error> {
    let mut signals = Signals::listen().map_err(Error::Runtime)?;
    if let RecordsOrigin::Copied(before) = origin {
        seal_copy(&config, before.as_ref()).await?;
    }
    let signers = identity::signers(&config.state_dir, origin, HostClock.now());
    let signers = signers.map_err(Error::Identity)?;
    directory.record(&signers, origin.is_copy())?;
    if origin.is_copy() {
        fail_point::reach(fail_point::FailPlace::Adopting);
    }
    let key = NodeKey::open(&config, &signers, &HostClock).map_err(Error::Identity)?;
    let socket = Arc::new(Socket::bind(&config.socket, Arc::clone(directory)).await?);
    let node = Node {
        config,
        parent,
        socket: Arc::clone(&socket),
        contained,
        key,
        adopted: signers.adopted(),
        adoption: origin.is_copy().then(|| Adoption {
            directory: Arc::clone(directory),
            signers,
        }),
    };
    let ended = node.live(&mut signals).await;
    // Last: `ryectl` takes the removal as the end of the daemon.
    socket.remove();
    tracing::info!("stopped");
    ended
}

/// Moves the whole log of a copied state directory into history, signed with the copied key, which signs nothing
/// afterwards.
async fn seal_copy(config: &Config, before: Option<&Signers>) -> Result<(), Error> {
    let key = identity::of_copy(&config.state_dir, before).map_err(Error::Identity)?;
    let Some(key) = key else {
        return Ok(());
    };
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let (journal, _live) = Journal::open(journal_of(config, key, &clock)).await?;
    journal.close().await?;
    fail_point::reach(fail_point::FailPlace::Adopting);
    Ok(())
}

/// Parts of a daemon that may serve.
struct Node {
    config: Arc<Config>,
    parent: Pid,
    contained: Contained,
    socket: Arc<Socket>,
    key: NodeKey,
    /// Time of the adoption of its state directory, if it is a copy.
    adopted: Option<Timestamp>,
    /// Set if its records are copied from another directory, where a daemon may still work on the same runs.
    adoption: Option<Adoption>,
}

/// A state directory that is being adopted.
struct Adoption {
    directory: Arc<Directory>,
    signers: Signers,
}

impl Adoption {
    /// Suspends the runs that were live in the original directory. Later starts resume runs only after this is
    /// recorded.
    async fn finish(self, supervisor: Supervisor, live: Vec<Arc<Run>>) {
        if !supervisor.suspend_all(live).await {
            return;
        }
        let record = move || self.directory.record(&self.signers, false);
        if let Err(error) = task::blocking("adopt", record).await {
            tracing::error!(error = %with_sources(&error), "the adoption of the state directory is not on record");
        }
    }
}

/// A daemon that works but does not serve yet.
struct Begun {
    config: Arc<Config>,
    journal: Arc<Journal>,
    supervisor: Supervisor,
    exports: Arc<Exports>,
    facts: Arc<rpc::NodeFacts>,
    /// The supervisor and the background tasks.
    tasks: Scope,
}

impl Node {
    /// Opens the journal, and starts the tasks that work on it.
    async fn begin(self) -> Result<Begun, Error> {
        let Self {
            config,
            parent,
            contained,
            socket,
            key,
            adopted,
            adoption,
        } = self;
        let Contained {
            spawner,
            cgroups,
            no_scope,
            swept,
        } = contained;
        let tools = rpc::tool_environment(&config.env, spawner.inheritance());
        let clock = Arc::new(HostClock);
        let fingerprint = key.fingerprint().to_string();
        let wall: Arc<dyn Clock> = Arc::<HostClock>::clone(&clock);
        let options = journal_of(&config, key, &wall);
        let (journal, recovered) = Journal::open(options).await?;
        let journal = Arc::new(journal);
        let live = recovered.live.iter().map(|run| &run.id);
        let suspects = Suspects::open(&config.state_dir, live, config.environment.last_death());
        let exports = Arc::new(exports_of(&config, &journal, &wall, adopted));
        if adoption.is_none() {
            clear_up(&journal, &config.state_dir, &recovered.live, &swept).await?;
            sweep_copies(&config.state_dir, wall.now()).await;
        }
        let (supervisor, launches) = Supervisor::new(
            Arc::clone(&journal),
            Arc::new(Dispatcher::new(Arc::clone(&config), spawner)),
            Arc::new(Projects::new(Arc::clone(&config), wall)),
            clock,
            Arc::clone(&config),
            Arc::new(suspects),
            recovered.epoch,
        );
        let facts = Arc::new(rpc::NodeFacts {
            uid: nix::unistd::geteuid().as_raw(),
            parent,
            cgroups,
            no_scope,
            epoch: recovered.epoch,
            started_at: journal.now(),
            state_dir: config.state_dir.clone(),
            listener: socket.listeners(),
            node_fingerprint: fingerprint,
            stopping: supervisor.stopping(),
            exports: Arc::clone(&exports),
            tools,
        });
        let mut tasks = Scope::new();
        let owner = supervisor.clone();
        tasks.spawn("supervisor", |_| owner.own(launches));
        let taker = supervisor.clone();
        tasks.spawn("recovery", |_| async move {
            match adoption {
                Some(adoption) => adoption.finish(taker, recovered.live).await,
                None => taker.recover(recovered.live).await,
            }
        });
        let (pruner, retention) = (supervisor.clone(), config.retention);
        tasks.spawn("retention", move |stopping| {
            keep_to(retention, pruner, stopping)
        });
        socket.serves();
        tasks.spawn("socket", |stopping| socket.keep(stopping));
        tracing::info!(socket = %config.socket.display(), epoch = recovered.epoch.0, "ready");
        Ok(Begun {
            config,
            journal,
            supervisor,
            exports,
            facts,
            tasks,
        })
    }

    async fn live(self, signals: &mut Signals) -> Result<(), Error> {
        let Begun {
            config,
            journal,
            supervisor,
            exports,
            facts,
            tasks,
        } = self.begin().await?;
        let closing = CancellationToken::new();
        let mut server = Box::pin(rpc::serve(
            facts.listener.clone(),
            Access::new(supervisor.clone()),
            Arc::clone(&facts),
            config.limits.message_bytes.get(),
            closing.clone(),
            Duration::from_millis(500),
        ));
        let mut serving = true;
        let ended = tokio::select! {
            end = &mut server => { serving = false; end.map_err(Error::Serve) }
            failure = journal.failed() => Err(rye_journal::Error::Failed(failure).into()),
            () = signals.next() => { tracing::info!("stopping"); Ok(()) }
            () = supervisor.stopped() => Ok(()),
        };
        supervisor.stop();
        if ended.is_err() {
            supervisor.stop_now();
        }
        let end = Instant::now() + config.shutdown_grace + STOPS_WITHIN;
        let left = || end.saturating_duration_since(Instant::now());
        tokio::select! {
            _ends = tasks.close(left().saturating_sub(CLOSES_WITHIN)) => {}
            () = async { signals.next().await; supervisor.stop_now(); std::future::pending().await } => {}
            // Meanwhile new callers get the answer that the daemon stops: the server accepts only while it is polled.
            () = async {
                if serving {
                    let end = (&mut server).await;
                    serving = false;
                    if let Err(error) = end {
                        tracing::debug!(error = %with_sources(&error), "the server ended");
                    }
                }
                std::future::pending::<()>().await;
            } => {}
        }
        closing.cancel();
        if serving && let Err(error) = server.await {
            tracing::debug!(error = %with_sources(&error), "the server ended");
        }
        ended?;
        tracing::info!("all calls have ended; the journal is closed");
        let close = async {
            let patience = left().saturating_sub(CLOSES_WITHIN);
            task::blocking("stop exports", move || exports.stop(patience)).await;
            journal.close_within(left().max(CLOSES_WITHIN)).await
        };
        tokio::select! {
            closed = close => closed.map_err(Error::Journal),
            () = rpc::refuse_calls(facts) => unreachable!("it never tires"),
        }
    }
}

/// Interval of the removal of old trees of runs.
const PRUNE_PAUSE: Duration = Duration::from_hours(1);
/// Recorded as the originator of these removals.
const PRUNED_BY: &str = "retention";

/// Removes the trees of runs that are too old by `retention`, once an hour, until the daemon stops.
async fn keep_to(retention: Retention, supervisor: Supervisor, stopping: CancellationToken) {
    let Some(older_than) = retention.older_than else {
        return;
    };
    let prune = Prune {
        older_than,
        keep: retention.keep,
        ..Prune::default()
    };
    loop {
        let pruned = async {
            let mut token = Some(PruneToken::default());
            while let Some(next) = token {
                let pruned = supervisor.prune(&prune, next, PRUNED_BY).await?;
                if !pruned.runs.is_empty() {
                    tracing::info!(runs = pruned.runs.len(), "old runs were removed");
                }
                token = pruned.next;
            }
            Ok::<_, supervisor::Error>(())
        };
        tokio::select! {
            () = stopping.cancelled() => return,
            pruned = pruned => if let Err(error) = pruned {
                tracing::warn!(error = %with_sources(&error), "old runs cannot be removed; it is tried again in an hour");
            },
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = task::sleep(Some(PRUNE_PAUSE)) => {}
        }
    }
}

/// Options of the journal in the state directory.
fn journal_of(config: &Config, key: NodeKey, clock: &Arc<dyn Clock>) -> rye_journal::Options {
    let dir = config.state_dir.clone();
    let signer: Arc<dyn Signer> = Arc::new(key);
    let mut options = rye_journal::Options::new(dir, Arc::clone(clock), signer);
    options.segment_bytes = config.segment_bytes;
    options.tree_runs = config.limits.tree_runs;
    options.keys_kept = config.retention.keys;
    let most = config.limits.memory_mb.map_or_else(
        || process::memory_of_host() / 2,
        |most| most.get().saturating_mul(1 << 20),
    );
    options.memory = Arc::new(Memory::of_all_runs(most));
    options
}

/// Starts the exports.
fn exports_of(
    config: &Config,
    journal: &Journal,
    clock: &Arc<dyn Clock>,
    adopted: Option<Timestamp>,
) -> Exports {
    Exports::start(exports::Options {
        adopted,
        source: journal.export_source(),
        signer: journal.signer(),
        clock: Arc::clone(clock),
        dir: config.state_dir.clone(),
    })
}

/// Signals that stop the daemon.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next stop request. Cancel safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
