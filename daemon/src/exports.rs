//! Exports: files of runs in their projects, made from the journal.
//!
//! **Owns** below the `files` directory of a run: `state/threads/<run>/` with `transcript.jsonl`, `thread.json`, and
//! for a thread `state.json` and `escalation.json`; `state/objects/runs/<run>.jsonl` and its ref;
//! `knowledge/graphs/<graph>/<run>.md`; `knowledge/agent/threads/<item>/<run>.md`. In the state directory it owns
//! `exports`, the checkpoints. **Never** is waited for: no run, no answer and no segment of the log depends on a file
//! of a project. **Never** syncs, and never follows a link. [`Exports::rebuild`] can recreate all files. The bytes of a
//! transcript are then the same; other files show the time of the rebuild.
//!
//! ```text
//! journal ── touches ──► router ──► queue of a project ──► thread of the project ──► files
//!                           │                                    └── events, records ◄── journal
//!                           └──► checkpoints
//! ```
//!
//! **Order.** The journal reports only which runs changed. A project has a thread while there is work; at most two
//! threads work at once. A turn reads the new events of each run and writes them. The checkpoints record the written
//! position; the next start continues there. **Failure.** A project that is full, read-only or broken is retried. One
//! that hangs blocks only its own thread. One that is missing, or was replaced by another directory, is skipped.

mod cancel;
mod checkpoints;
mod receipts;
mod render;
mod slots;
mod thread_state;

mod common;
mod graph_page;

mod objects;
mod queue;
mod removal;
mod thread_page;
mod transcript;

mod made;

mod run;

mod project;

mod table;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rye_core::clock::{Clock, Timestamp};

use rye_core::id::{Lsn, Name};
use tokio::sync::{mpsc, oneshot};

pub use self::cancel::cancel_requests;
use self::checkpoints::{Checkpoint, Checkpoints};
pub use self::common::Rebuilt;
use self::common::Shared;
use self::slots::Slots;
use self::table::Table;
use rye_host::fail_point::{self, FailPlace};
use rye_host::task;
use rye_journal::{ExportSource, Faults, RemovedRun, Signer, TouchKind};

/// Maximum time that a stop waits for projects.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time between two checks of the checkpoints and of hanging projects.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Dependencies of the exports.
#[derive(Clone)]
pub struct Options {
    pub source: ExportSource,
    /// Signs records and pages.
    pub signer: Arc<dyn Signer>,
    pub clock: Arc<dyn Clock>,
    pub dir: PathBuf,
    /// Time at which the state directory was adopted, if it is a copy. The files of runs created before belong to the
    /// original; only a rebuild writes them.
    pub adopted: Option<Timestamp>,
}

/// Exports of all projects.
#[derive(Debug)]
pub struct Exports {
    shared: Arc<Shared>,
    table: Arc<Table>,
    router: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Exports {
    /// Starts the export of runs. The checkpoints identify the work that an earlier daemon left. Blocks briefly.
    pub fn start(options: Options) -> Self {
        Self::start_with(options, Faults::default())
    }

    pub(crate) fn start_with(options: Options, faults: Faults) -> Self {
        let Options {
            source,
            signer,
            clock,
            dir,
            adopted,
        } = options;
        let shared = Arc::new(Shared {
            source,
            signer,
            clock,
            adopted,
            slots: Slots::default(),
            open: AtomicUsize::new(0),
            end: Mutex::default(),
            faults,
        });
        let table = Arc::<Table>::default();
        let router = Router {
            checkpoints: Checkpoints::open(&dir),
            shared: Arc::clone(&shared),
            table: Arc::clone(&table),
            upto: Lsn(0),
            missed: None,
            sealed: Lsn(0),
        };
        let router = task::worker("exports", move || router.run());
        Self {
            shared,
            table,
            router: Mutex::new(Some(router)),
        }
    }

    /// Compares all files of the runs below `files`, writes missing files and replaces those that differ. `None` if
    /// exports stop meanwhile.
    pub async fn rebuild(&self, files: &Name) -> Option<Rebuilt> {
        let (reply, rebuilt) = oneshot::channel();
        self.table.rebuild(&self.shared, files, reply);
        rebuilt.await.ok()
    }

    /// Removes the files of removed `runs`. Returns true when all are removed, or false if some remain after
    /// `patience`.
    pub async fn remove(&self, runs: &[RemovedRun], patience: Duration) -> bool {
        let (waiting, mut done) = mpsc::channel(1);
        for run in runs {
            self.table.remove(&self.shared, run, waiting.clone());
        }
        drop(waiting);
        tokio::select! {
            _ = done.recv() => true,
            () = task::sleep(Some(patience)) => false,
        }
    }

    /// Writes pending changes, and stops. The next start writes what takes longer than `patience`. Blocks.
    pub fn stop(&self, patience: Duration) {
        let end = Instant::now() + patience.min(PATIENCE);
        *self
            .shared
            .end
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.shared.source.close();
        let router = self
            .router
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if router.is_some_and(|router| router.join().is_err()) {
            tracing::error!("the thread of exports panicked");
        }
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        self.shared.source.close();
    }
}

/// Distributes the reports of the journal to the projects, and writes the checkpoints.
struct Router {
    shared: Arc<Shared>,
    table: Arc<Table>,
    checkpoints: Checkpoints,
    /// Last position that was distributed.
    upto: Lsn,
    /// Range without reports, because the router fell too far behind.
    missed: Option<rye_journal::Missed>,
    /// End of history at the last write of the checkpoints.
    sealed: Lsn,
}

impl Router {
    fn run(mut self) {
        let published = self.shared.source.published();
        let mut mark = self.checkpoints.newest().clone();
        mark.lsn = if mark.is_last {
            published
        } else {
            mark.lsn.min(published)
        };
        self.upto = mark.lsn;
        self.scan(&mark);
        self.write_checkpoints(false);
        loop {
            let taken = self.shared.source.take(LOOK_EVERY);
            for touch in &taken.touches {
                self.table.enqueue(&self.shared, touch);
            }
            self.upto = self.upto.max(taken.upto);
            self.missed = taken.missed.or(self.missed);
            let sealed = self.shared.source.sealed();
            if let Some(missed) = self.missed.take_if(|missed| missed.upto <= sealed) {
                self.scan(&Checkpoint {
                    lsn: missed.after,
                    ..Checkpoint::default()
                });
            }
            if sealed > self.sealed {
                self.sealed = sealed;
                self.write_checkpoints(false);
            }
            self.table.report_hangs();
            if taken.is_closed {
                break;
            }
        }
        let end = *self
            .shared
            .end
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.table
            .close(end.unwrap_or_else(|| Instant::now() + PATIENCE));
        self.write_checkpoints(true);
    }

    /// Queues the runs that changed after `mark`, as far as they are in history.
    fn scan(&self, mark: &Checkpoint) {
        let source = &self.shared.source;
        for touch in source.touched(mark.lowest()) {
            let is_new = touch.lsn > mark.of(&touch.files);
            // A run that ended later appears again at that position.
            let is_last = || touch.kind >= TouchKind::Ended || source.is_live(&touch.run);
            if is_new && is_last() {
                self.table.enqueue(&self.shared, &touch);
            }
        }
    }

    fn write_checkpoints(&mut self, is_last: bool) {
        let missed = self.missed.map(|missed| missed.after);
        let mark = Checkpoint {
            lsn: missed.map_or(self.upto, |after| after.min(self.upto)),
            at: self.shared.clock.now(),
            is_last,
            behind: self.table.written_positions(),
        };
        fail_point::reach(FailPlace::ExportCheckpoints);
        if let Err(error) = self.checkpoints.write(mark) {
            tracing::warn!(%error, "the checkpoints of exports cannot be written: the next start compares more files");
        }
    }
}
