//! Starts processes on a dedicated thread.
//!
//! The kernel sends a child's PDEATHSIG when the *thread* that started it ends. So all children are started by one
//! thread that lives as long as any of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use rye_core::model::{ProcessIdentity, Resource, Resources};
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::cgroup::{AttemptCgroup, AttemptCgroups};
use super::ending::{Exit, Stopper};
use super::error::Error;
use super::host::{Inheritance, OpenFiles};
use super::image::{Image, STACK_BYTES};
use super::oom::Shortages;
use super::output::Pipes;
use super::plan::{Confinement, Input, Plan, SandboxView};
use super::procfs::{self, Stat};
use super::reap;
use super::running::{Leader, Reaper, Running};
use super::sandbox;
use super::signal_scope::SignalScope;
use super::sweep::Orphans;
use rye_host::task;

/// Capacity of the queue of starts; further ones wait in their tasks.
const QUEUE: usize = 64;

/// Starts processes. Clones share one thread, which lives until the last clone and the last process are gone.
#[derive(Debug, Clone)]
pub struct Spawner {
    shared: Arc<SpawnerShared>,
}

#[derive(Debug)]
struct SpawnerShared {
    requests: Option<mpsc::Sender<SpawnRequest>>,
    thread: Option<JoinHandle<()>>,
    abandoned: Arc<Abandoned>,
    adopter: Option<Pid>,
    /// `None` on a host without cgroups for attempts.
    cgroups: Option<Arc<AttemptCgroups>>,
    /// `None` on a host without signal scopes.
    scope: Option<SignalScope>,
    /// The tested `bwrap`.
    bwrap: OnceCell<PathBuf>,
    boot_id: String,
    shortages: Arc<Shortages>,
    open_files: OpenFiles,
}

/// Leaders that were killed because they are no longer followed, until they are reaped.
type Abandoned = Mutex<Vec<(OwnedFd, Option<Arc<AttemptCgroup>>)>>;

/// A process to start, and the channel for the answer.
#[derive(Debug)]
struct SpawnRequest {
    image: Image,
    tag: String,
    limits: Resources,
    spawner: Spawner,
    reply: oneshot::Sender<Result<Leader, Error>>,
}

impl Spawner {
    /// Starts the thread. `adopter` is the parent process, which adopts orphans of leaders; `open_files` is the limit
    /// that children get. With `cgroups` each attempt has a cgroup, and with `scope` it signals only its own processes.
    pub fn new(
        adopter: Option<Pid>,
        open_files: OpenFiles,
        cgroups: Option<Arc<AttemptCgroups>>,
        scope: Option<SignalScope>,
    ) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let abandoned = Arc::<Abandoned>::default();
        let left = Arc::clone(&abandoned);
        let thread = task::worker("spawner", move || serve(queue, &left, open_files));
        Self {
            shared: Arc::new(SpawnerShared {
                requests: Some(requests),
                thread: Some(thread),
                abandoned,
                adopter,
                cgroups,
                scope,
                bwrap: OnceCell::new(),
                boot_id: procfs::boot_id(),
                shortages: Arc::default(),
                open_files,
            }),
        }
    }

    /// Properties that the processes inherit.
    pub fn inheritance(&self) -> io::Result<Inheritance> {
        Inheritance::of_children(self.shared.open_files)
    }

    /// Limit on open files of the processes.
    pub fn open_files(&self) -> OpenFiles {
        self.shared.open_files
    }

    pub fn cgroups(&self) -> Option<&Arc<AttemptCgroups>> {
        self.shared.cgroups.as_ref()
    }

    /// Resources whose limits the host enforces.
    pub fn enforced(&self) -> Vec<Resource> {
        let cgroups = self.cgroups();
        cgroups.map_or_else(Vec::new, |cgroups| cgroups.enforced())
    }

    /// Describes the limits of `requested` that the host does not enforce; `None` if it enforces all.
    pub fn unenforced(&self, requested: Resources) -> Option<String> {
        let mut missing = requested.limited();
        if !missing.is_empty() {
            let enforced = self.enforced();
            missing.retain(|one| !enforced.contains(one));
        }
        if missing.is_empty() {
            return None;
        }
        let why = self.cgroups().and_then(|cgroups| cgroups.unenforced());
        let why = why.map_or_else(
            || "attempts have no cgroups, and `ryectl daemon info` has the reason".to_owned(),
            ToString::to_string,
        );
        Some(format!(
            "this host does not enforce the limits {}: {why}",
            Resource::list(&missing)
        ))
    }

    pub fn scope(&self) -> Option<&SignalScope> {
        self.shared.scope.as_ref()
    }

    /// Starts `plan`, whose limits the host must enforce. `tag` identifies the attempt in the environment of all its processes.
    ///
    /// An error means that the program was not executed. Dropping the future kills a process that has started.
    pub async fn start(&self, plan: Plan, tag: &str) -> Result<Running, Error> {
        let plan = match &plan.confinement {
            Confinement::None | Confinement::Scoped => plan,
            Confinement::Sandbox(view) => {
                let bwrap = self.bwrap(view, tag).await?;
                sandbox::wrap(&plan, view, bwrap)?
            }
        };
        self.start_plan(plan, tag).await
    }

    /// Returns the path of a `bwrap` that works. A successful test is made once.
    async fn bwrap(&self, view: &SandboxView, tag: &str) -> Result<&PathBuf, Error> {
        let test = async || {
            let bwrap = sandbox::find(&view.search)?;
            let running = self.start_plan(sandbox::probe(&bwrap), tag).await?;
            let exited = running.finish(Stopper::new().listen()).await?;
            match exited.exit {
                Exit::Code(0) => Ok(bwrap),
                Exit::Code(_) | Exit::Signal(_) => Err(sandbox::refused(&exited.stderr.bytes)),
            }
        };
        self.shared.bwrap.get_or_try_init(test).await
    }

    async fn start_plan(&self, plan: Plan, tag: &str) -> Result<Running, Error> {
        self.shared.shortages.look_if_due();
        let (image, pipes) = Image::prepare(&plan, tag)?;
        let (asker, answer) = oneshot::channel();
        let request = SpawnRequest {
            image,
            tag: tag.to_owned(),
            limits: plan.resources,
            spawner: self.clone(),
            reply: asker,
        };
        let requests = self.shared.requests.as_ref().ok_or(Error::SpawnerGone)?;
        if requests.send(request).await.is_err() {
            return Err(Error::SpawnerGone);
        }
        let leader = answer.await.unwrap_or(Err(Error::SpawnerGone))?;
        let pid = leader.pid.as_raw();
        // An ended child is a zombie until it is reaped, so its entry exists.
        let start_time = Stat::read(pid).map_or(0, |stat| stat.start_time);
        let adopter = self.shared.adopter.map(Pid::as_raw);
        let cgroup = leader.cgroup().cloned();
        Ok(Running {
            leader,
            identity: ProcessIdentity {
                pid,
                start_time,
                boot_id: self.shared.boot_id.clone(),
            },
            pipes: Pipes {
                stdin: pipes.stdin.map(|pipe| match plan.stdin {
                    Input::Bytes(bytes) => (pipe, bytes),
                    Input::Pipe => (pipe, Vec::new()),
                }),
                stdout: Some(pipes.stdout),
                stderr: pipes.stderr,
            },
            orphans: Orphans::new((pid, start_time), adopter, tag.to_owned(), cgroup),
            timeout: plan.timeout,
            grace: plan.grace,
            output_limit: plan.output_limit,
            tap: None,
            memory: Arc::default(),
            masker: Arc::default(),
            shortages: Arc::clone(&self.shared.shortages),
        })
    }
}

impl Reaper for Spawner {
    fn abandon(&self, leader: OwnedFd, cgroup: Option<Arc<AttemptCgroup>>) {
        let mut abandoned = self
            .shared
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        abandoned.push((leader, cgroup));
    }
}

impl Drop for SpawnerShared {
    fn drop(&mut self) {
        drop(self.requests.take());
        // The last clone may be in a leader whose caller is gone. Then this runs on that thread, which ends by itself.
        if let Some(worker) = self.thread.take()
            && worker.thread().id() != thread::current().id()
            && worker.join().is_err()
        {
            tracing::error!("the thread that starts processes panicked");
        }
    }
}

/// Body of the thread: starts one process after the other.
fn serve(mut queue: mpsc::Receiver<SpawnRequest>, abandoned: &Abandoned, open_files: OpenFiles) {
    // Handlers of the daemon must not run in a child that shares its memory.
    if let Err(error) = SigSet::all().thread_block() {
        tracing::error!(%error, "the spawner could not block signals; it does not start");
        return;
    }
    let mut stack = vec![0; STACK_BYTES];
    while let Some(request) = queue.blocking_recv() {
        abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(pidfd, _)| matches!(reap::child(pidfd.as_fd(), reap::Wait::No), Ok(None)));
        let SpawnRequest {
            image,
            tag,
            limits,
            spawner,
            reply: asker,
        } = request;
        let cgroup = spawner.cgroups();
        let cgroup = cgroup.map(|cgroups| cgroups.create(&tag, &limits));
        let leader = match cgroup.transpose() {
            Ok(cgroup) => image
                .start(&mut stack, (open_files, spawner.scope()), cgroup.as_ref())
                .map(|started| Leader::new(started, cgroup, Arc::new(spawner))),
            Err(source) => Err(image.refused("make a cgroup with the limits", source)),
        };
        task::reply(asker, leader);
    }
}
