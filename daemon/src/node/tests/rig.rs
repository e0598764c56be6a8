//! The daemon in the test process: its real journal, supervisor, drivers and projects, with a clock chosen by the test,
//! and with effects executed by the test if it has a [`ScriptedEffects`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::capability::Layer;
use rye_core::clock::{Clock, Timestamp};
use rye_core::id::{ItemId, ItemKind, ItemRef, RunId};
use rye_core::memory::Memory;
use rye_core::model::{Death, Run, Status};
use rye_core::seal::{SecretKey, sign_text};
use rye_item::keys::KeyDir;
use rye_process::{self as process, Spawner};
use tempfile::TempDir;

use super::scripted_effects::ScriptedEffects;
use crate::config::{Args, Config, Environment, load};
use crate::dispatch::Dispatcher;
use crate::exports::{self, Exports};
use crate::node::directory::RecordsOrigin;
use crate::node::identity::{self, NodeKey};
use crate::projects::Projects;
use crate::services::Dispatch;
use crate::supervisor::{Start, Supervisor};
use rye_host::clock::manual::ManualClock;
use rye_host::clock::{HostClock, Timer};
use rye_host::crash_suspects::Suspects;
use rye_host::task::{self, Scope};
use rye_journal::{Faults, Journal};

/// Time limit of any operation on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const HEAD: &str = "version: \"1.0.0\"\ncategory: t\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\npermissions: [\"rye.*\"]\n";

/// Environment of daemons that run one after the other.
pub(crate) struct Rig {
    root: TempDir,
    config: Arc<Config>,
    key: SecretKey,
    signer: Arc<NodeKey>,
    pub(crate) clock: Arc<ManualClock>,
    /// Executor of effects; `None` is the daemon itself.
    pub(crate) effects: Option<Arc<ScriptedEffects>>,
    /// End of the previous daemon.
    pub(crate) last_death: Death,
}

/// One daemon, from start to end.
pub(crate) struct Daemon {
    pub(crate) supervisor: Supervisor,
    pub(crate) projects: Arc<Projects>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) faults: Faults,
    state: PathBuf,
    tasks: Scope,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_variables(&[])
    }

    /// A rig whose daemons also have `variables` in their environment.
    pub(crate) fn with_variables(variables: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let variable = |name: &str, path: &Path| (name.into(), path.as_os_str().to_owned());
        let own = [
            variable("HOME", &home),
            variable("USER_SPACE", &home),
            variable("RYE_STATE_DIR", &root.path().join("state")),
        ];
        let more = variables.iter();
        let more = more.map(|(name, value)| variable(name, Path::new(value)));
        let environment = Environment::of(own.into_iter().chain(more));
        let config = Arc::new(load(&Args::default(), &environment).unwrap().config);
        let signers = identity::signers(&config.state_dir, &RecordsOrigin::New, HostClock.now());
        let signer = NodeKey::open(&config, &signers.unwrap(), &HostClock).unwrap();
        let signer = Arc::new(signer);
        let key = KeyDir::new(config.state_dir.join("keys")).load().unwrap();
        Self {
            root,
            config,
            key,
            signer,
            clock: Arc::default(),
            effects: None,
            last_death: Death::Unknown,
        }
    }

    /// A rig with a manual clock, with effects executed by `stage`.
    pub(crate) fn staged(stage: Arc<ScriptedEffects>) -> Self {
        Self {
            effects: Some(stage),
            ..Self::new()
        }
    }

    /// Starts a daemon on the existing state, and recovers its runs.
    pub(crate) async fn start(&self) -> Daemon {
        let wall: Arc<dyn Clock> = Arc::new(HostClock);
        let staged = self.effects.is_some();
        let (clock, timer): (Arc<dyn Clock>, Arc<dyn Timer>) = if staged {
            (
                Arc::<ManualClock>::clone(&self.clock),
                Arc::<ManualClock>::clone(&self.clock),
            )
        } else {
            (Arc::clone(&wall), Arc::new(HostClock))
        };
        let signer = Arc::<NodeKey>::clone(&self.signer);
        let options = rye_journal::Options {
            segment_bytes: 1 << 16,
            memory: Arc::new(Memory::new(1 << 40)),
            ..rye_journal::Options::new(self.config.state_dir.clone(), clock, signer)
        };
        let faults = Faults::default();
        let opened = Journal::open_with(options, faults.clone()).await;
        let (journal, recovered) = opened.unwrap();
        let journal = Arc::new(journal);
        let live = recovered.live.iter().map(|run| &run.id);
        let suspects = Suspects::open(&self.config.state_dir, live, self.last_death);
        let projects = Arc::new(Projects::new(Arc::clone(&self.config), wall));
        let spawner = Spawner::new(None, process::harden(), None, None);
        let real: Arc<dyn Dispatch> = Arc::new(Dispatcher::new(Arc::clone(&self.config), spawner));
        let dispatch = match &self.effects {
            Some(stage) => stage.wrap(real),
            None => real,
        };
        let (supervisor, launches) = Supervisor::new(
            Arc::clone(&journal),
            dispatch,
            Arc::clone(&projects),
            timer,
            Arc::clone(&self.config),
            Arc::new(suspects),
            recovered.epoch,
        );
        let mut tasks = Scope::new();
        let owner = supervisor.clone();
        tasks.spawn("supervisor", |_| owner.own(launches));
        let recovery = supervisor.clone();
        tasks.spawn("recovery", |_| async move {
            recovery.recover(recovered.live).await;
        });
        Daemon {
            supervisor,
            projects,
            journal,
            faults,
            state: self.config.state_dir.clone(),
            tasks,
        }
    }

    /// A project with graphs `t/<name>`, each given as its `config`.
    pub(crate) fn project(&self, name: &str, graphs: &[(&str, &str)]) -> PathBuf {
        let directory = self.root.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(directory.join(".ai/tools/t")).unwrap();
        for (name, body) in graphs {
            let text = format!("{HEAD}name: {name}\n{body}");
            self.item(&directory, ItemKind::Tool, &format!("t/{name}.yaml"), &text);
        }
        directory
    }

    /// Signs `text` and writes it into the space of `directory`, as the file `name` of that type.
    pub(crate) fn item(&self, directory: &Path, kind: ItemKind, name: &str, text: &str) -> PathBuf {
        let path = directory.join(".ai").join(kind.folder()).join(name);
        let (_, extension) = name.rsplit_once('.').unwrap();
        let signed = sign_text(kind, extension, text, &self.key, Timestamp::default()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, signed).unwrap();
        path
    }

    /// Settings of its daemons.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn home(&self) -> &Path {
        &self.config.user_space
    }

    /// Ends `daemon` as a kill would, with the state of the disk at this moment, and starts the next one.
    pub(crate) async fn crash(&self, daemon: Daemon) -> Daemon {
        let (state, kept) = (&self.config.state_dir, self.root.path().join("kept"));
        copy(self.root.path(), &kept);
        if let Some(stage) = &self.effects {
            stage.next_life();
        }
        let Daemon {
            supervisor,
            projects,
            journal,
            faults,
            state: _,
            tasks,
        } = daemon;
        drop(tasks);
        faults.inner.hold(None);
        faults.inner.sync(rye_journal::Syncs::Works);
        drop((supervisor, projects));
        let mut journal = journal;
        // Aborted tasks release it when the runtime polls them.
        let journal = loop {
            match Arc::try_unwrap(journal) {
                Ok(journal) => break journal,
                Err(shared) => journal = shared,
            }
            tokio::task::yield_now().await;
        };
        task::blocking("drop a journal", || drop(journal)).await;
        // A project keeps the identity of its directory.
        for directory in std::fs::read_dir(&kept).unwrap() {
            let directory = directory.unwrap();
            let place = self.root.path().join(directory.file_name());
            for entry in std::fs::read_dir(&place).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    std::fs::remove_dir_all(path).unwrap();
                } else {
                    std::fs::remove_file(path).unwrap();
                }
            }
            for entry in std::fs::read_dir(directory.path()).unwrap() {
                let entry = entry.unwrap();
                std::fs::rename(entry.path(), place.join(entry.file_name())).unwrap();
            }
        }
        assert!(state.is_dir());
        std::fs::remove_dir_all(&kept).unwrap();
        self.start().await
    }
}

/// Copies everything in `from` to `to`, a new directory in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path() == to {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            match std::fs::copy(entry.path(), target) {
                // A temporary file that was renamed meanwhile: it did not exist under that name.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// Start request for a run of `item` in `directory` with defaults; the caller may do anything.
pub(crate) fn request(item: ItemRef, directory: &Path) -> Start {
    Start::of(item, directory.to_owned(), caller())
}

/// A user who may do everything.
pub(crate) fn caller() -> Layer {
    Layer {
        source: "a test".to_owned(),
        patterns: vec!["rye.*".to_owned()],
    }
}

impl Daemon {
    /// Exports that write nothing without a request.
    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::new(Exports::start(exports::Options {
            source: self.journal.export_source(),
            signer: self.journal.signer(),
            clock: Arc::new(HostClock),
            dir: self.state.clone(),
            adopted: None,
        }))
    }

    pub(crate) async fn run(&self, directory: &Path, item: &str) -> RunId {
        let item = ItemRef::tool(ItemId::new(item).unwrap());
        let start = request(item, directory);
        self.supervisor.start(start).await.unwrap().run
    }

    pub(crate) async fn settled(&self, run: &RunId) -> Status {
        self.supervisor.settled(run).await.unwrap();
        self.record(run).await.status()
    }

    /// Record of a run once it has ended.
    pub(crate) async fn ended(&self, run: &RunId) -> Arc<Run> {
        let ended = tokio::time::timeout(PATIENCE, self.journal.ended(run));
        ended.await.expect("it ends").unwrap();
        self.record(run).await
    }

    pub(crate) async fn record(&self, run: &RunId) -> Arc<Run> {
        self.supervisor.run_of(run).await.unwrap()
    }

    pub(crate) async fn stop(self) {
        self.supervisor.stop_now();
        self.tasks.close(PATIENCE).await;
        self.journal.close().await.unwrap();
    }
}
