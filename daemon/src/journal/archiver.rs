//! The thread that frees memory and log: it archives ended runs, indexes them, and writes the base at checkpoints.
//!
//! **Never** touches a file of a project, and waits for none: lanes notify it of what is on disk there. **Order** of what must be on disk
//! before what: archive before index and base, transcripts and base before a segment of the log is removed; archive, index and
//! transcript before an ended run leaves memory. **Failure**: what cannot be written is tried again; until then memory and log keep
//! it. A lane is waited for while it moves, up to [`LONGEST`] segments of the log; one that does not move, up to [`RETAINED`]. Then it is
//! given up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::model::Run;
use rye_core::state::Closed;
use rye_core::transcript::Head;

use super::archive::{ArchiveOffset, Base, BaseHead, Stored};
use super::index::{Entry, Index, IndexError};
use super::projector::RETAINED;
use super::publisher::CheckpointJob;
use super::run_stream::RunStream;
use super::{IndexState, Shared};

/// Pause after a failure to archive.
const RETRY: Duration = Duration::from_secs(1);
/// How long the last checkpoint waits for projects.
const LAST: Duration = Duration::from_secs(2);
/// First pause after an index that could not even be built anew; each further one is twice as long, up to [`LONGEST_REOPEN`].
const REOPEN: Duration = Duration::from_secs(1);
const LONGEST_REOPEN: Duration = Duration::from_mins(1);
/// Segments of the log kept for projects that are slower than their runs: these wait long before (see [`super::lag`]), unless others
/// fill the log.
const LONGEST: usize = 8 * RETAINED;

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) run: Arc<Run>,
    pub(super) stream: Arc<RunStream>,
    pub(super) head: Head,
    /// Position of its last event.
    pub(super) lsn: Lsn,
    /// The accounts that its end closed.
    pub(super) closed: Closed,
}

/// What a lane says at a checkpoint.
#[derive(Debug)]
pub(super) struct Report {
    /// Its project.
    pub(super) files: String,
    /// The checkpoint.
    pub(super) lsn: Lsn,
    pub(super) covered: Covered,
}

/// A checkpoint that waits for lanes.
#[derive(Debug)]
struct Waiting {
    job: CheckpointJob,
    lanes: HashSet<String>,
    /// Whether a lane has said that not everything is on disk.
    failed: bool,
    since: Instant,
}

/// Whether every file is on disk up to a checkpoint, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covered {
    All,
    NotAll,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) ended: Vec<Ended>,
    /// Runs that ended and whose transcript is written, or given up.
    pub(super) written: Vec<RunId>,
    /// A checkpoint, and the lanes that have something to do for it.
    pub(super) checkpoint: Option<(CheckpointJob, HashSet<String>)>,
    pub(super) reports: Vec<Report>,
    /// A reader found the index broken.
    pub(super) suspect: bool,
}

#[derive(Debug)]
pub(super) struct Archiver {
    shared: Arc<Shared>,
    /// Records the archive held beyond the base at open: they come once more from the log.
    known: HashMap<RunId, ArchiveOffset>,
    index: Option<Index>,
    /// Whether that is in memory, because the one on disk does not work.
    stands_in: bool,
    reopen_at: Instant,
    reopen_pause: Duration,
    unarchived: Vec<Ended>,
    /// Archived, and not in the index.
    unindexed: Vec<(Ended, Entry)>,
    /// In the index, and its transcript not written.
    indexed: HashMap<RunId, Ended>,
    /// Runs whose transcript is written, and that are not in the index.
    written: HashSet<RunId>,
    waiting: Option<Waiting>,
    /// The newest checkpoint behind that.
    next: Option<(CheckpointJob, HashSet<String>)>,
    reports: HashMap<String, Report>,
}

impl Archiver {
    pub(super) fn new(shared: Arc<Shared>, known: HashMap<RunId, ArchiveOffset>) -> Self {
        Self {
            shared,
            known,
            index: None,
            stands_in: false,
            reopen_at: Instant::now(),
            reopen_pause: REOPEN,
            unarchived: Vec::new(),
            unindexed: Vec::new(),
            indexed: HashMap::new(),
            written: HashSet::new(),
            waiting: None,
            next: None,
            reports: HashMap::new(),
        }
    }

    /// Works until the mailbox is closed. The body of the keeping thread.
    pub(super) fn run(mut self) {
        self.open_index();
        loop {
            let taken = self.shared.keeping.take(self.pause());
            let inbox = taken.value;
            self.unarchived.extend(inbox.ended);
            self.written.extend(inbox.written);
            self.archive();
            if inbox.suspect {
                self.distrust_index();
            }
            if !self.has_index() && Instant::now() >= self.reopen_at {
                self.open_index();
            }
            self.apply();
            for report in inbox.reports {
                self.reports.insert(report.files.clone(), report);
            }
            if let Some((job, lanes)) = inbox.checkpoint {
                self.begin_checkpoint(job, lanes);
            }
            self.checkpoint();
            if taken.closed {
                let closed = Arc::new(IndexError::Closed);
                self.shared.index.send_replace(IndexState::Broken(closed));
                return;
            }
        }
    }

    fn pause(&self) -> Option<Duration> {
        let settled = self.unarchived.is_empty() && self.has_index();
        let last = |waiting: &Waiting| waiting.job.reply.is_some();
        let closing = self.waiting.as_ref().is_some_and(last);
        (!settled || closing).then_some(RETRY)
    }

    fn archive(&mut self) {
        let mut fresh = Vec::new();
        for ended in std::mem::take(&mut self.unarchived) {
            match self.known.remove(&ended.run.id) {
                Some(offset) => self.archived(ended, offset),
                None => fresh.push(ended),
            }
        }
        if fresh.is_empty() {
            return;
        }
        let records: Vec<(Lsn, Stored)> = fresh
            .iter()
            .map(|ended| {
                let stored = Stored {
                    run: Arc::clone(&ended.run),
                    head: ended.head,
                    closed: ended.closed.clone(),
                };
                (ended.lsn, stored)
            })
            .collect();
        match self.shared.archive.append(&records, &self.shared.objects) {
            Ok(spots) => {
                for (ended, offset) in fresh.into_iter().zip(spots) {
                    self.archived(ended, offset);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "ended runs cannot be archived; they stay in memory");
                self.unarchived = fresh;
            }
        }
    }

    fn archived(&mut self, ended: Ended, offset: ArchiveOffset) {
        let entry = Entry::new(&ended.run, &ended.closed, offset);
        self.unindexed.push((ended, entry));
    }

    /// Whether the index on disk works.
    const fn has_index(&self) -> bool {
        self.index.is_some() && !self.stands_in
    }

    fn distrust_index(&mut self) {
        self.index = None;
        self.stands_in = false;
        self.reopen_at = Instant::now();
    }

    /// Opens the index; while it does not work, ended runs are found by one in memory.
    fn open_index(&mut self) {
        if self.index.is_none() {
            self.shared.index.send_replace(IndexState::Opening);
        }
        let (dir, archive) = (&self.shared.dir, &self.shared.archive);
        let opened = self.shared.faults.before_index();
        let opened = opened.map_err(IndexError::from);
        match opened.and_then(|()| Index::open(dir, archive)) {
            Ok(index) => {
                self.use_index(index);
                self.stands_in = false;
                self.reopen_pause = REOPEN;
            }
            Err(error) => {
                self.reopen_at = Instant::now() + self.reopen_pause;
                self.reopen_pause = LONGEST_REOPEN.min(self.reopen_pause * 2);
                tracing::warn!(error = %rye_core::error::with_sources(&error), "the index cannot be opened");
                if self.index.is_none() {
                    self.stand_in(error);
                }
            }
        }
    }

    fn stand_in(&mut self, broken: IndexError) {
        match Index::in_memory(&self.shared.archive, &self.shared.memory) {
            Ok(index) => {
                self.use_index(index);
                self.stands_in = true;
            }
            Err(error) => {
                tracing::warn!(%error, "ended runs cannot be found");
                let is_large = matches!(error, IndexError::TooLarge);
                let told = if is_large { error } else { broken };
                let broken = IndexState::Broken(Arc::new(told));
                self.shared.index.send_replace(broken);
            }
        }
    }

    fn use_index(&mut self, index: Index) {
        self.index = Some(index.clone());
        self.shared.index.send_replace(IndexState::Ready(index));
    }

    /// Puts what is archived into the index; after that it need not stay in memory.
    fn apply(&mut self) {
        let Some(index) = &self.index else { return };
        let entries: Vec<Entry> = self
            .unindexed
            .iter()
            .map(|(_, entry)| entry.clone())
            .collect();
        match index.apply(&entries) {
            Ok(()) => {
                let indexed = std::mem::take(&mut self.unindexed).into_iter();
                let by_id = indexed.map(|(ended, _)| (ended.run.id.clone(), ended));
                self.indexed.extend(by_id);
                self.evict();
            }
            Err(error) => {
                tracing::warn!(%error, "the index failed");
                self.distrust_index();
            }
        }
    }

    /// Lets go of the runs that are indexed and written.
    fn evict(&mut self) {
        let (written, indexed) = (&mut self.written, &mut self.indexed);
        let gone: Vec<_> = written
            .extract_if(|id| indexed.remove(id).is_some())
            .collect();
        self.shared.evict(gone.iter());
        if self.unarchived.is_empty() && self.unindexed.is_empty() {
            // They have left memory before, when the log was not kept for them any more.
            self.written.clear();
        }
    }

    /// One waits at a time, so that lanes which are behind all the time come to its end; the last one waits for none.
    fn begin_checkpoint(&mut self, job: CheckpointJob, lanes: HashSet<String>) {
        let is_last = job.reply.is_some();
        if self.waiting.is_some() && !is_last {
            self.next = Some((job, lanes));
            return;
        }
        self.next = None;
        let earlier = self.waiting.replace(Waiting {
            job,
            lanes,
            failed: false,
            since: Instant::now(),
        });
        // The later one covers it.
        if let Some(reply) = earlier.and_then(|earlier| earlier.job.reply) {
            crate::task::reply(reply, ());
        }
    }

    /// Finishes the checkpoint that waits, if no lane keeps it, and begins the next.
    fn checkpoint(&mut self) {
        while let Some(mut waiting) = self.waiting.take() {
            self.take_reports(&mut waiting);
            let last = waiting.job.reply.is_some() && waiting.since.elapsed() >= LAST;
            if !waiting.lanes.is_empty() {
                let stuck = self.stuck(&waiting.lanes);
                self.give_up(&stuck);
                waiting.lanes.retain(|files| !stuck.contains(files));
            }
            if !waiting.lanes.is_empty() && !last {
                self.waiting = Some(waiting);
                return;
            }
            waiting.failed |= !waiting.lanes.is_empty();
            self.end_checkpoint(waiting);
            if let Some((job, lanes)) = self.next.take() {
                self.begin_checkpoint(job, lanes);
            }
        }
    }

    /// What lanes have said of it: one that is done with a later checkpoint is done with this.
    fn take_reports(&mut self, waiting: &mut Waiting) {
        let lsn = waiting.job.lsn;
        self.reports.retain(|files, report| {
            report.lsn >= lsn && {
                if waiting.lanes.remove(files) {
                    waiting.failed |= report.covered == Covered::NotAll;
                }
                true
            }
        });
    }

    /// Those of `lanes` that the log is kept for no longer.
    fn stuck(&self, lanes: &HashSet<String>) -> HashSet<String> {
        let segments = self.shared.log.segments();
        let is_stuck = |files: &&String| {
            segments >= LONGEST || segments >= RETAINED && !self.shared.lanes.lag(files).is_moving()
        };
        lanes.iter().filter(is_stuck).cloned().collect()
    }

    fn end_checkpoint(&mut self, waiting: Waiting) {
        let lsn = waiting.job.lsn;
        let written = if waiting.failed || !self.unarchived.is_empty() {
            tracing::info!(%lsn, "the log is kept: not everything in it is elsewhere yet");
            Ok(())
        } else {
            self.write_base(&waiting.job)
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the checkpoint failed; the log is kept");
        }
        if let Some(asker) = waiting.job.reply {
            crate::task::reply(asker, ());
        }
    }

    fn give_up(&mut self, lanes: &HashSet<String>) {
        for files in lanes {
            tracing::warn!(
                files,
                "a project has not taken its files for too long: the log is not kept for its sake"
            );
        }
        let theirs = |ended: &Ended| lanes.contains(&ended.stream.spec.files);
        let ended = self.indexed.values().filter(|ended| theirs(ended));
        let unindexed = self.unindexed.iter().map(|(ended, _)| ended);
        let ended = ended.chain(unindexed.filter(|ended| theirs(ended)));
        let written: Vec<_> = ended.map(|ended| ended.run.id.clone()).collect();
        self.written.extend(written);
        self.evict();
    }

    fn write_base(&self, job: &CheckpointJob) -> std::io::Result<()> {
        let runs = job.runs.iter().map(|live| Stored {
            run: Arc::clone(&live.run),
            head: live.head,
            closed: Closed::default(),
        });
        let head = BaseHead {
            lsn: job.lsn,
            epoch: job.epoch,
            archive: self.shared.archive.length()?,
            runs: job.runs.len(),
            ledger: job.ledger.clone(),
        };
        Base::write(&self.shared.dir, &head, runs)?;
        for live in &job.runs {
            live.stream.settle(live.head);
        }
        let unindexed = self.unindexed.iter().map(|(ended, _)| ended);
        for ended in unindexed.chain(self.indexed.values()) {
            if ended.lsn <= job.lsn {
                ended.stream.settle(ended.head);
            }
        }
        self.shared.log.drop_through(job.lsn)
    }
}
