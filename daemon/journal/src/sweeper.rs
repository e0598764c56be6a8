//! The thread that deletes objects that only removed runs named.
//!
//! **Owns** the file `<state>/unswept`. It is created before the first removal of runs, and removed when a sweep has
//! deleted everything that these runs alone named. Without it a start does nothing. **Order.** Candidates are the
//! objects that the store has at the start. Everything that can name one is read before the first is deleted: the log,
//! the runs in memory, and in history all lines of runs that are not removed; then the objects that these name, and so
//! on. Objects that a run of this life stores or names are no candidates before its commit is queued. So runs that are
//! removed meanwhile keep their objects until the next start. **Races.** The sections of history are those of the start,
//! which stay readable when compaction replaces their files. The log of removed runs counts too, for the next start may
//! replay it; another sweep follows then. **Failure.** If something cannot be read, nothing is deleted, and the next
//! start tries again. A crash leaves objects that the next sweep deletes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rye_core::error::with_sources;
use rye_core::id::{Lsn, RunId};
use rye_core::model::Run;
use rye_host::blobs::{self, Deleted};
use rye_host::fail_point::{self, FailPlace};
use rye_host::safe_path::Dir;
use rye_host::task;

use crate::faults::Faults;
use crate::history::{self, SectionRef, Store};
use crate::jobs::Replayed;
use crate::record::stored;
use crate::watermark::lock;

const UNSWEPT: &str = "unswept";
/// Number of objects that are deleted before the thread looks whether the journal closes. Their directory is locked
/// meanwhile.
const TOGETHER: usize = 16;

/// Reason why nothing more is deleted.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("history cannot be read")]
    History(#[from] history::Error),
    #[error("history lacks positions before {before}")]
    Lost { before: Lsn },
    #[error("an object cannot be read")]
    Object(#[from] blobs::Error),
    #[error("the state directory cannot be used")]
    Files(#[from] io::Error),
    #[error("the daemon stops")]
    Closing,
}

impl SweepError {
    fn report(&self) {
        let why = with_sources(self);
        if matches!(self, Self::Closing) {
            tracing::info!(why, "the next start deletes long payloads of removed runs");
        } else {
            tracing::warn!(why, "long payloads of removed runs remain");
        }
    }
}

/// Input of a sweep, as of the start of the daemon.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// All sections of history.
    sections: Vec<SectionRef>,
    /// The runs in memory.
    runs: Vec<Arc<Run>>,
    removed: HashSet<RunId>,
    /// True if objects of removed runs remain, because the log names them.
    is_partial: bool,
}

impl Sweep {
    /// As [`Sweep::new`]; `None` if no sweep of the state directory `dir` is due, or none is possible.
    pub(crate) fn if_due(
        dir: &Path,
        objects: &blobs::Store,
        history: &Store,
        base: Lsn,
        replayed: &[Replayed],
        runs: Vec<Arc<Run>>,
    ) -> Option<Self> {
        if !dir.join(UNSWEPT).exists() {
            return None;
        }
        let sweep = Self::new(objects, history, base, replayed, runs);
        let sweep = sweep.inspect_err(|error| {
            error.report();
            objects.drop_candidates();
        });
        sweep.ok()
    }

    /// Prepares a sweep. `history` and `replayed`, the log after the position `base`, have everything that was
    /// committed; `runs` are in memory. All objects become candidates except those that the log names. Blocks.
    fn new(
        objects: &blobs::Store,
        history: &Store,
        base: Lsn,
        replayed: &[Replayed],
        runs: Vec<Arc<Run>>,
    ) -> Result<Self, SweepError> {
        let sections: Vec<SectionRef> = history.sections(Lsn(0)).collect();
        let mut end = Lsn(0);
        for section in &sections {
            if section.first() > end.next() {
                let before = section.first();
                return Err(SweepError::Lost { before });
            }
            end = section.last();
        }
        if end < base {
            let before = base.next();
            return Err(SweepError::Lost { before });
        }
        let mut removed = HashSet::new();
        for removal in history.removals() {
            removed.extend(removal?.1.runs.into_iter().map(|removed| removed.run));
        }
        for replayed in replayed {
            if let Replayed::Removal(_, removal) = replayed {
                removed.extend(removal.runs.iter().map(|removed| removed.run.clone()));
            }
        }
        objects.list_candidates()?;
        let mut is_partial = false;
        for replayed in replayed {
            if let Replayed::Commit(commit) = replayed {
                for entry in &commit.entries {
                    objects.keep_named(entry.text.payload.as_bytes());
                    is_partial |= removed.contains(&entry.stream.id);
                }
            }
        }
        Ok(Self {
            sections,
            runs,
            removed,
            is_partial,
        })
    }
}

/// The sweeper: its thread, and the evidence that a sweep is due.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// State directory.
    dir: PathBuf,
    objects: Arc<blobs::Store>,
    faults: Faults,
    /// True if the file exists because of a removal in this life.
    has_removals: Mutex<bool>,
    is_closing: AtomicBool,
}

impl Sweeper {
    pub(crate) fn new(dir: PathBuf, objects: Arc<blobs::Store>, faults: Faults) -> Self {
        Self {
            dir,
            objects,
            faults,
            has_removals: Mutex::default(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Puts on record that objects have to be swept, because runs are about to be removed. If that fails, the next
    /// removal tries it again. Blocks.
    pub(crate) fn before_removal(&self) {
        let mut has_removals = lock(&self.has_removals);
        if *has_removals {
            return;
        }
        let created = File::create(self.dir.join(UNSWEPT));
        match created.and_then(|_file| Dir::follow(&self.dir)?.sync()) {
            Ok(()) => *has_removals = true,
            Err(error) => {
                tracing::warn!(%error, "long payloads of removed runs may stay");
            }
        }
    }

    /// Makes [`Sweeper::run`] return.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Deletes the candidates that nothing names. The body of the sweeper thread.
    pub(crate) fn run(&self, sweep: Sweep) {
        task::lower_priority();
        match self.sweep(sweep) {
            Ok(Deleted { objects, bytes }) => {
                tracing::info!(objects, bytes, "long payloads of removed runs were deleted");
            }
            Err(error) => error.report(),
        }
        self.objects.drop_candidates();
    }

    fn sweep(&self, sweep: Sweep) -> Result<Deleted, SweepError> {
        let is_partial = sweep.is_partial;
        self.keep_named(sweep)?;
        let mut all = Deleted::default();
        loop {
            self.objects.keep_reachable(|| self.is_closing())?;
            self.check_open()?;
            self.faults.before_deletion()?;
            fail_point::reach(FailPlace::Sweep);
            let Some(Deleted { objects, bytes }) = self.objects.delete_candidates(TOGETHER)? else {
                break;
            };
            all.objects += objects;
            all.bytes += bytes;
        }
        if !is_partial {
            self.record_end()?;
        }
        Ok(all)
    }

    /// Keeps the objects that the runs in memory and in history name.
    fn keep_named(&self, sweep: Sweep) -> Result<(), SweepError> {
        for run in sweep.runs {
            self.check_open()?;
            self.objects
                .keep_all_in(|out| stored::write_to(&run, out))?;
        }
        let is_removed = |run: &RunId| sweep.removed.contains(run);
        for section in sweep.sections {
            let section = section.read()?;
            let runs = section.directory().runs.iter();
            let kept = runs.filter(|entry| !is_removed(&entry.run));
            let names = kept.flat_map(|entry| &entry.names);
            names.for_each(|name| self.objects.keep(name));
            for text in section.texts_without(is_removed) {
                self.check_open()?;
                self.objects.keep_named(&text?);
            }
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), SweepError> {
        if self.is_closing() {
            return Err(SweepError::Closing);
        }
        Ok(())
    }

    /// Removes the file, unless runs were removed in this life.
    fn record_end(&self) -> io::Result<()> {
        let has_removals = lock(&self.has_removals);
        if !*has_removals {
            fs::remove_file(self.dir.join(UNSWEPT))?;
            Dir::follow(&self.dir)?.sync()?;
        }
        Ok(())
    }
}
