//! Exports: the files of runs in their projects, made of what the journal holds.
//!
//! **Owns** below the `files` directory of a run: `state/threads/<run>/` with `transcript.jsonl`, `thread.json`, and of a thread
//! `state.json` and `escalation.json`; `state/objects/runs/<run>.jsonl` and its ref; `knowledge/graphs/<graph>/<run>.md`;
//! `knowledge/agent/threads/<item>/<run>.md`. In the state directory: `exports`, the marks.
//! **Never** is waited for: no run, no answer and no segment of the log depends on a file of a project. **Never** syncs, and never
//! follows a link. All files can be made again by [`Exports::rebuild`]; the bytes of a transcript are the same then, other files show the
//! time at which they are written.
//!
//! ```text
//! journal ── touches ──► router ──► queue of a project ──► thread of the project ──► files
//!                           │                                    └── events, records ◄── journal
//!                           └──► marks
//! ```
//!
//! **Order.** The journal reports which runs moved, and no more. A project has a thread while there is work; two of them work at once.
//! A turn reads what is new of each run and writes it. What is written is on record in the marks, from which the next start
//! continues. **Failure.** A project that is full, read-only or broken is tried again; one that hangs keeps its own thread and
//! nothing else; one that is not there, or another one by now, is passed over.

mod cancel;
mod marks;
mod receipts;
mod render;
mod slots;
mod thread_state;

mod common;
mod page;

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
pub use self::common::Rebuilt;
use self::common::Shared;
use self::marks::{Mark, Marks};
use self::slots::Slots;
use self::table::Table;
use rye_host::fail_point::{self, Place};
use rye_host::task;
use rye_journal::{ExportSource, Faults, RemovedRun, Signer, TouchKind};

/// How long a stop waits for projects if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time between two looks at marks and at projects that hang.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What exports work with.
#[derive(Clone)]
pub struct Options {
    /// The journal, as exports see it.
    pub source: ExportSource,
    /// Signs records and pages.
    pub signer: Arc<dyn Signer>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// The state directory.
    pub dir: PathBuf,
    /// When the state directory was adopted, if it is a copy. Files of runs that were created before are those of the original: a rebuild
    /// alone writes them.
    pub adopted: Option<Timestamp>,
}

/// The exports of all projects.
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
    /// Starts to write the files of runs. What the last life left is found by the marks. Blocks for a moment.
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
            marks: Marks::open(&dir),
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

    /// Compares all files of the runs below `files`, writes what is missing and replaces what differs. `None` if exports stop meanwhile.
    pub async fn rebuild(&self, files: &Name) -> Option<Rebuilt> {
        let (reply, rebuilt) = oneshot::channel();
        self.table.rebuild(&self.shared, files, reply);
        rebuilt.await.ok()
    }

    /// Has the files of `runs`, which were removed, removed. Returns true if they are, and false if some remain after `patience`.
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

    /// Writes what is new, and stops. What is not written within `patience` is written by the next start. Blocks.
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

/// Hands what the journal reports to the projects, and keeps the marks.
struct Router {
    shared: Arc<Shared>,
    table: Arc<Table>,
    marks: Marks,
    /// Everything up to this position was handed on.
    upto: Lsn,
    /// The range in which the journal reported nothing, because nothing was taken for too long.
    missed: Option<rye_journal::Missed>,
    /// Where history ended when the marks were written.
    sealed: Lsn,
}

impl Router {
    fn run(mut self) {
        let published = self.shared.source.published();
        let mut mark = self.marks.newest().clone();
        mark.lsn = if mark.is_last {
            published
        } else {
            mark.lsn.min(published)
        };
        self.upto = mark.lsn;
        self.scan(&mark);
        self.write_marks(false);
        loop {
            let taken = self.shared.source.take(LOOK_EVERY);
            for touch in &taken.touches {
                self.table.mark(&self.shared, touch);
            }
            self.upto = self.upto.max(taken.upto);
            self.missed = taken.missed.or(self.missed);
            let sealed = self.shared.source.sealed();
            if let Some(missed) = self.missed.take_if(|missed| missed.upto <= sealed) {
                self.scan(&Mark {
                    lsn: missed.after,
                    ..Mark::default()
                });
            }
            if sealed > self.sealed {
                self.sealed = sealed;
                self.write_marks(false);
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
        self.write_marks(true);
    }

    /// Marks the runs that moved after `mark`, as far as history has them.
    fn scan(&self, mark: &Mark) {
        let source = &self.shared.source;
        for touch in source.touched(mark.lowest()) {
            let is_new = touch.lsn > mark.of(&touch.files);
            // One that ended later is met again where it did.
            let is_last = || touch.kind >= TouchKind::Ended || source.is_live(&touch.run);
            if is_new && is_last() {
                self.table.mark(&self.shared, &touch);
            }
        }
    }

    fn write_marks(&mut self, is_last: bool) {
        let missed = self.missed.map(|missed| missed.after);
        let mark = Mark {
            lsn: missed.map_or(self.upto, |after| after.min(self.upto)),
            at: self.shared.clock.now(),
            is_last,
            behind: self.table.behind(),
        };
        fail_point::reach(Place::ExportMarks);
        if let Err(error) = self.marks.write(mark) {
            tracing::warn!(%error, "the marks of exports cannot be written: the next start compares more files");
        }
    }
}
