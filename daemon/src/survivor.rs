//! Managed processes that survive the daemon: each attempt has a shim, which keeps it while the daemon is away.
//!
//! **Owns** `shim.json`, `status.json` and `ctl` in the directory of a managed process, the messages on `ctl`, and the
//! program of a shim ([`keep`]). **Never** decides whether an attempt follows.
//!
//! ```text
//! daemon ─plan in sealed memory, lock, pipe─► shim ─start─► process
//!    │                                        │  └──output──► out.log
//!    └─ctl: stop, kill, status, follow───────►│
//!       status.json ◄────────────at the end───┘ then the shim ends, which releases the lock
//! ```
//!
//! **Order.** The attempt is announced durably, then the lock is taken, then the shim is started, and only then its
//! process. The shim writes `shim.json` before the process starts, and `status.json` before it ends itself; it waits for
//! no one. So an attempt without `shim.json` was never started, one with a held lock is alive, and one with neither lock
//! nor `status.json` is lost. **Versions.** Each file and message has the number `v` of the protocol. A daemon speaks to
//! shims of its version and of the one before. Unknown fields are ignored; a missing one is an error.
//! **Failure.** A shim that does not answer, or does not end after a stop, is killed with all that it keeps.

mod follow;
mod messages;

mod keep;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::id::RunId;
use rye_core::model::{Failure, KillReceipt};
use rye_host::task;
use rye_process::masking::Masker;
use rye_process::shim::{self, PROTOCOL, ShimLock, ShimRecord};
use rye_process::{AttemptCgroups, OpenFiles, Plan, StopReason, Stopper};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

pub use self::follow::Survivor;
pub use self::keep::keep;
pub use self::messages::Status;
use self::messages::{ShimPlan, Start};

/// Time for which a shim may take to start its process, and to write its record.
const START_TIME: Duration = Duration::from_secs(20);

/// The surviving processes of a state directory.
#[derive(Debug)]
pub struct Survivors {
    state: PathBuf,
}

/// An attempt to start, and the containment of its process.
#[derive(Debug)]
pub struct NewSurvivor<'a> {
    pub attempt: u32,
    pub tag: &'a str,
    pub process: Plan,
    pub masker: &'a Masker,
    pub open_files: OpenFiles,
    pub cgroups: Option<&'a Arc<AttemptCgroups>>,
    /// True if the process signals only its own.
    pub is_scoped: bool,
}

/// Result of a search for an attempt.
#[derive(Debug)]
pub enum Found {
    Alive(Box<Survivor>),
    /// It ended while the daemon was away.
    Ended(Box<Status>),
    /// Its shim was killed, or the machine went down.
    Lost,
}

impl Survivors {
    pub fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
        }
    }

    fn directory(&self, run: &RunId) -> PathBuf {
        self.state.join(shim::DIRECTORY).join(run.as_str())
    }

    /// Number of the attempt of `run` that a shim keeps, or kept to its end.
    pub async fn kept(&self, run: &RunId) -> Option<u32> {
        let directory = self.directory(run);
        let read = move || ShimRecord::read(&directory);
        match task::blocking("read the record of a shim", read).await {
            Ok(record) => record.map(|record| record.attempt),
            Err(error) => {
                tracing::warn!(%run, %error, "the record of a shim cannot be read");
                None
            }
        }
    }

    /// Returns the runs whose shims are alive. Blocks.
    pub fn alive(&self) -> Vec<RunId> {
        let directories = std::fs::read_dir(self.state.join(shim::DIRECTORY));
        let entries = directories.into_iter().flatten().filter_map(Result::ok);
        let alive = entries.filter(|entry| ShimLock::is_held(&entry.path()).unwrap_or_default());
        let names = alive.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| RunId::new(&name).ok()).collect()
    }

    /// Starts an attempt of `run`. A failure means that no process was started.
    pub async fn start(
        &self,
        run: &RunId,
        new: NewSurvivor<'_>,
    ) -> Result<Box<Survivor>, Box<Failure>> {
        let directory = self.directory(run);
        // The shim of the attempt before may still be about to end itself.
        self.end(run).await;
        let failed = |error: io::Error| Box::new(unavailable(run, &error));
        let (ready, theirs) = pipe::pipe()
            .and_then(|(theirs, ours)| Ok((ours, theirs.into_blocking_fd()?)))
            .map_err(failed)?;
        let plan = ShimPlan::new(directory.clone(), &new);
        let (handle, cgroups) = (run.clone(), new.cgroups.cloned());
        let start = move || -> io::Result<_> {
            let lock = ShimLock::take(&directory)?;
            let lock = lock.ok_or_else(|| io::Error::other("another shim holds its lock"))?;
            for old in [messages::STATUS, messages::SOCKET] {
                match std::fs::remove_file(directory.join(old)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            let plan = |cgroup| plan.sealed(cgroup);
            shim::start(handle.as_str(), lock, theirs, cgroups.as_deref(), plan)
        };
        let mut child = task::blocking("start a shim", start)
            .await
            .map_err(failed)?;
        let failure = match tokio::time::timeout(START_TIME, first_message(ready)).await {
            Ok(Ok(Start::Running { .. })) => match Survivor::connect(self.directory(run)).await {
                Ok(found) => return Ok(Box::new(found.with_child(child))),
                Err(error) => failed(error),
            },
            Ok(Ok(Start::Failed { failure })) => failure,
            Ok(Err(error)) => failed(error),
            Err(_elapsed) => failed(io::Error::other("the shim does not answer")),
        };
        if let Err(error) = child.kill() {
            tracing::debug!(%run, %error, "a shim has ended");
        }
        self.end(run).await;
        follow::reap(child).await;
        Err(failure)
    }

    /// Searches for the attempt `number` of `run`, of which a shim has written the record.
    pub async fn find(&self, run: &RunId, number: u32) -> io::Result<Found> {
        let directory = self.directory(run);
        let read = move || -> io::Result<_> {
            // In this order: a shim that ends meanwhile has written its status before.
            let is_alive = ShimLock::is_held(&directory)?;
            let record = ShimRecord::read(&directory)?;
            Ok((is_alive, record, Status::read(&directory)?))
        };
        let read = task::blocking("look for a shim", read).await?;
        Ok(match read {
            (_, _, Some(status)) if status.attempt == number => Found::Ended(Box::new(status)),
            (true, Some(record), _) if record.attempt == number && speaks(record.v) => {
                match Survivor::connect(self.directory(run)).await {
                    Ok(found) => Found::Alive(Box::new(found)),
                    Err(error) => {
                        tracing::warn!(%run, %error, "a shim does not answer, and is killed");
                        Found::Lost
                    }
                }
            }
            _ => Found::Lost,
        })
    }

    /// Stops the process of `run`, if it is alive, and kills what is left of it.
    pub async fn stop(&self, run: &RunId, grace: Duration) -> KillReceipt {
        let mut receipt = KillReceipt::default();
        if let Some(number) = self.kept(run).await
            && let Ok(Found::Alive(survivor)) = self.find(run, number).await
        {
            let (stopper, output) = (Stopper::new(), Notify::new());
            stopper.stop(StopReason::Kill { grace });
            let ended = survivor.finish(stopper.listen(), grace, &output).await;
            receipt.merge(ended.map(|status| status.receipt).unwrap_or_default());
        }
        receipt.merge(self.end(run).await);
        receipt
    }

    /// Kills the shim of `run`, if one is alive, and all that it keeps.
    pub async fn end(&self, run: &RunId) -> KillReceipt {
        let (state, handle) = (self.state.clone(), run.clone());
        let end = move || shim::end(&state, handle.as_str());
        let ended: io::Result<_> = task::blocking("end a shim", end).await;
        ended.unwrap_or_else(|error| {
            tracing::error!(%run, %error, "a process that survives the daemon cannot be ended");
            KillReceipt::default()
        })
    }
}

/// True if this daemon speaks version `v` of the protocol.
const fn speaks(v: u32) -> bool {
    v == PROTOCOL || v + 1 == PROTOCOL
}

fn unavailable(run: &RunId, error: &io::Error) -> Failure {
    let text = format!("the shim of `{run}` cannot be started: {error}");
    Failure::permanent("unavailable", text)
}

async fn first_message(mut ready: pipe::Receiver) -> io::Result<Start> {
    let mut message = Vec::new();
    ready.read_to_end(&mut message).await?;
    if message.is_empty() {
        return Err(io::Error::other("the shim has ended"));
    }
    Ok(serde_json::from_slice(&message)?)
}

#[cfg(test)]
mod tests;
