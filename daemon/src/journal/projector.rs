//! What a lane does: it writes the files of the runs of one project.
//!
//! **Owns** `state/threads/<run>/transcript.jsonl` below the `files` directory, and has an [`ArtifactLane`] make the rest.
//! **Never** holds the publisher up: that leaves lines in the mailbox of the lane; what does not fit there, or could not be
//! written, is rendered again from the log. **Order**: lines of a run are appended in order, each at its own offset; objects and
//! page are made of lines that are written. An ended run leaves memory when it is archived and its transcript, which then is its
//! history, is written. **Failure**: a project that is gone, full or in our way is tried again every second; once the log has grown
//! to [`RETAINED`] segments for its sake, its files are given up with a warning. A transcript that somebody removed, moved or cut is
//! noticed before the next line is written and before a checkpoint counts on it, and is made again (see
//! [`super::transcript_file`]). A transcript that could not be synced is written once more before it counts as being on disk: what
//! the system could not write, it forgets.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::memory::{Charge, Memory};
use rye_core::model::{Pages, Run};
use rye_core::transcript::Head;

use super::artifacts::{ArtifactLane, Money, Note, Transcripts};
use super::checkpoints::{Covered, Report};
use super::lanes::Lane;
use super::run_stream::RunStream;
use super::transcript_file::{TranscriptFile, existing_transcript};
use super::{Shared, transcript_file};
use crate::beneath::Dir;

/// Transcripts that all lanes together keep open beside the one that each works on; each takes a descriptor for itself and one for its directory.
const OPEN: usize = 256;
/// Lines that a mailbox may hold whatever lies in others.
pub(super) const OWN_BYTES: usize = 4 << 20;
/// Lines that all mailboxes together hold beyond that; more are left to the log. To render and sign a line again costs more than all else
/// that is done for it.
pub(super) const SHARED_BYTES: usize = 16 << 20;
/// Transcripts that are synced one by one at most.
const FEW: usize = 8;
/// Shortest time between two renderings of a running run's pages.
pub(super) const RENDER_EVERY: Duration = Duration::from_millis(100);
/// Pause before a project that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Segments of log kept for projects that fail.
pub(super) const RETAINED: usize = 8;

/// What waits to be written about one run.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) stream: Arc<RunStream>,
    /// The transcript before `lines`.
    pub(super) start: Head,
    /// The transcript after them.
    pub(super) end: Head,
    /// `None`: render them again.
    pub(super) lines: Option<Vec<u8>>,
    pub(super) pages: Pages,
    /// The money of the run when its pages were last due.
    pub(super) money: Option<Money>,
    /// The record, once the run was suspended or ended: it changes no more under our eyes.
    pub(super) settled: Option<Arc<Run>>,
}

/// The point in the log before which a checkpoint needs nothing any more but base and archive.
#[derive(Debug)]
pub(super) struct Mark {
    lsn: Lsn,
    /// Live runs of the project, as far as their transcripts may not be on disk.
    pub(super) runs: Vec<(Arc<RunStream>, Head)>,
}

impl Mark {
    pub(super) const fn new(lsn: Lsn) -> Self {
        let runs = Vec::new();
        Self { lsn, runs }
    }
}

impl Pending {
    /// Bytes of lines that are not written.
    pub(super) const fn bytes(&self) -> u64 {
        self.end.bytes - self.start.bytes
    }

    fn merge(&mut self, later: Self) {
        self.end = later.end;
        self.lines = match (self.lines.take(), later.lines) {
            (Some(mut lines), Some(more)) => {
                lines.extend_from_slice(&more);
                Some(lines)
            }
            (None, _) | (_, None) => None,
        };
        self.pages = self.pages.max(later.pages);
        self.money = later.money.or(self.money);
        self.settled = later.settled;
    }
}

/// What the publisher leaves for the lane of a project.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) runs: HashMap<RunId, Pending>,
    bytes: usize,
    /// The part of `bytes` that it was lent.
    lent: Option<Charge>,
    pub(super) checkpoint: Option<Mark>,
}

impl Inbox {
    /// Answers whether nothing of the run waited before. `shared` is the room that all mailboxes share.
    pub(super) fn add(&mut self, mut pending: Pending, shared: &Arc<Memory>) -> bool {
        let bytes = pending.lines.as_ref().map_or(0, Vec::len);
        let mut borrow = || self.lent.get_or_insert_with(|| shared.open()).grow(bytes);
        if self.bytes + bytes <= OWN_BYTES || borrow() {
            self.bytes += bytes;
        } else {
            pending.lines = None;
        }
        if let Some(earlier) = self.runs.get_mut(&pending.stream.id) {
            earlier.merge(pending);
            return false;
        }
        self.runs.insert(pending.stream.id.clone(), pending);
        true
    }
}

pub(super) struct Projector {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    artifacts: Box<dyn ArtifactLane>,
    open: HashMap<RunId, TranscriptFile>,
    uses: u64,
    rendered: HashMap<RunId, Instant>,
    failing: HashMap<RunId, Pending>,
    /// Transcripts that were closed without a sync, and up to where they have to be written again.
    unsynced: HashMap<RunId, (Arc<RunStream>, Head)>,
    retry_at: Instant,
    /// Runs whose project did not take their files for too long: nothing is written for them any more.
    given_up: HashSet<RunId>,
}

impl Projector {
    pub(super) fn new(shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self {
            artifacts: shared
                .artifacts
                .lane(&lane.files, Transcripts::new(Arc::clone(&shared))),
            shared,
            lane,
            open: HashMap::new(),
            uses: 0,
            rendered: HashMap::new(),
            failing: HashMap::new(),
            unsynced: HashMap::new(),
            retry_at: Instant::now(),
            given_up: HashSet::new(),
        }
    }

    /// Writes until the mailbox is closed, or there was nothing to do for a while. Begins when everything before this life is
    /// published: only then can a file be known to be ahead of the log.
    pub(super) fn run(mut self) {
        if self
            .shared
            .published
            .reach_blocking(self.shared.lanes.begin)
            .is_err()
        {
            return;
        }
        loop {
            let taken = self.lane.mailbox.take(Some(self.patience()));
            let Inbox {
                runs,
                checkpoint,
                lent,
                ..
            } = taken.value;
            // It had nothing to do for all of its patience. Ending is expensive: the file system is synced, and the next lane reads the
            // transcripts of live runs from their beginning.
            let idle = runs.is_empty() && checkpoint.is_none() && self.is_done();
            for (id, pending) in runs {
                let bytes = pending.bytes();
                self.receive(id, pending);
                self.lane.lag.written(bytes);
            }
            drop(lent);
            if !self.failing.is_empty() && Instant::now() >= self.retry_at {
                self.retry();
            }
            if self.artifacts.pause().is_some() {
                self.shared.faults.before_files(&self.lane.files);
                self.artifacts.work();
                self.lane.lag.finishing(self.artifacts.unfinished());
            }
            if let Some(mark) = checkpoint {
                self.checkpoint(&mark);
            }
            if taken.closed {
                self.artifacts.finish(&|_| ());
                self.sync_file_system();
                return;
            }
            if idle && self.lane_ends() {
                return;
            }
        }
    }

    /// How long to wait for more.
    fn patience(&self) -> Duration {
        let retry = (!self.failing.is_empty()).then_some(RETRY);
        retry
            .into_iter()
            .chain(self.artifacts.pause())
            .min()
            .unwrap_or(self.shared.lanes.idle)
    }

    fn is_done(&self) -> bool {
        self.failing.is_empty() && self.artifacts.pause().is_none()
    }

    /// Closes everything; `false` if that does not work, or there is more to do.
    fn lane_ends(&mut self) -> bool {
        self.sync() && self.shared.lanes.retire(&self.lane)
    }

    fn give_up_failing(&mut self) {
        for (id, pending) in std::mem::take(&mut self.failing) {
            tracing::warn!(run = %id, files = pending.stream.spec.files,
                "the files of a run are given up: its project did not take them for too long");
            self.given_up.insert(id.clone());
            self.hand_on(&id, pending, false);
        }
    }

    fn receive(&mut self, id: RunId, pending: Pending) {
        if let Some(earlier) = self.failing.get_mut(&id) {
            earlier.merge(pending);
            earlier.lines = None;
            return;
        }
        self.attempt(id, pending, Complaint::Aloud);
    }

    fn retry(&mut self) {
        self.retry_at = Instant::now() + RETRY;
        for (id, pending) in std::mem::take(&mut self.failing) {
            self.attempt(id, pending, Complaint::Silent);
        }
    }

    fn attempt(&mut self, id: RunId, mut pending: Pending, complaint: Complaint) {
        self.shared.faults.before_files(&self.lane.files);
        match self.write(&mut pending) {
            Ok(page) => self.hand_on(&id, pending, page),
            Err(error) => {
                if complaint == Complaint::Aloud {
                    tracing::warn!(run = %id, %error, files = pending.stream.spec.files,
                        "the files of a run cannot be written; they are tried again");
                }
                self.close(&id);
                pending.lines = None;
                self.failing.insert(id, pending);
                self.retry_at = Instant::now() + RETRY;
            }
        }
    }

    /// The transcript of the run is what it should be, or given up; the artifact writer makes the rest of it.
    fn hand_on(&mut self, id: &RunId, pending: Pending, page: bool) {
        let given_up = self.given_up.contains(id);
        let ended = |run: &Arc<Run>| run.status().is_terminal();
        if pending.settled.as_ref().is_some_and(ended) {
            self.rendered.remove(id);
            self.given_up.remove(id);
        }
        self.artifacts.add(Note {
            run: id.clone(),
            spec: Arc::clone(&pending.stream.spec),
            upto: pending.end,
            page,
            settled: pending.settled,
            given_up,
        });
    }

    /// Answers whether the pages were due.
    fn write(&mut self, pending: &mut Pending) -> io::Result<bool> {
        if !self.given_up.contains(&pending.stream.id) {
            self.write_lines(pending)?;
            if let Some(sheet) = self.open.get_mut(&pending.stream.id) {
                sheet.upto = pending.end;
            }
        }
        pending.start = pending.end;
        pending.lines = Some(Vec::new());
        let id = &pending.stream.id;
        let due = match pending.pages {
            Pages::Keep => false,
            Pages::Due => self
                .rendered
                .get(id)
                .is_none_or(|last| last.elapsed() >= RENDER_EVERY),
            Pages::Now => true,
        };
        if due {
            self.write_pages(pending)?;
            self.rendered.insert(id.clone(), Instant::now());
        }
        Ok(due)
    }

    fn write_lines(&mut self, pending: &mut Pending) -> io::Result<()> {
        let stream = Arc::clone(&pending.stream);
        let shared = Arc::clone(&self.shared);
        let sheet = self.sheet(&stream, &pending.start)?;
        match pending.lines.take() {
            Some(lines) => sheet.put(pending.start.bytes, &lines)?,
            None => {
                transcript_file::render_again(
                    &shared,
                    &stream,
                    pending.start,
                    pending.end,
                    |at, lines| sheet.put(at, lines),
                )?;
            }
        }
        sheet.cut(pending.end.bytes)
    }

    /// The run's transcript, which is in its place and reaches to `start` at least.
    fn sheet(&mut self, stream: &Arc<RunStream>, start: &Head) -> io::Result<&mut TranscriptFile> {
        let id = &stream.id;
        let is_open = match self.open.get(id) {
            Some(sheet) => sheet.is_in_place()?,
            None => false,
        };
        if !is_open {
            self.open.remove(id);
            let sheet = TranscriptFile::open(&self.shared, stream, start)?;
            self.make_room();
            self.open.insert(id.clone(), sheet);
        }
        self.uses += 1;
        let sheet = self.open.get_mut(id).expect("it was opened just now");
        sheet.used = self.uses;
        Ok(sheet)
    }

    /// Closes the transcript that was used the longest ago, if there are too many.
    fn make_room(&mut self) {
        if self.shared.open_transcripts.load(Ordering::Relaxed) <= OPEN {
            return;
        }
        let oldest = self.open.iter().min_by_key(|(_, sheet)| sheet.used);
        if let Some((id, _)) = oldest {
            let id = id.clone();
            self.close(&id);
        }
    }

    /// Closes a transcript; one that is not on disk is remembered.
    fn close(&mut self, id: &RunId) {
        if let Some((stream, upto)) = self.open.remove(id).and_then(TranscriptFile::unsynced) {
            let (_, known) = self.unsynced.entry(id.clone()).or_insert((stream, upto));
            // It may have been closed before, and not gone as far since.
            if known.bytes < upto.bytes {
                *known = upto;
            }
        }
    }

    /// Writes what was closed without a sync once more, with one.
    fn sync_closed(&mut self) {
        for (id, (stream, upto)) in std::mem::take(&mut self.unsynced) {
            if let Err(error) = TranscriptFile::rewrite(&self.shared, &stream, upto) {
                tracing::warn!(run = %id, %error, "a transcript cannot be synced");
                self.unsynced.insert(id, (stream, upto));
            }
        }
    }

    fn write_pages(&mut self, pending: &Pending) -> io::Result<()> {
        let stream = &pending.stream;
        let run = match &pending.settled {
            Some(run) => Arc::clone(run),
            None => match self.shared.snapshot(&stream.id) {
                None => return Ok(()),
                // It ended meanwhile: its files are written once, when the event that says so is reached.
                Some((run, _)) if run.status().is_terminal() => return Ok(()),
                Some((run, lsn)) => {
                    // The record may be ahead of the event that brought us here, never of the disk.
                    self.shared
                        .published
                        .reach_blocking(lsn)
                        .map_err(io::Error::other)?;
                    run
                }
            },
        };
        let money = pending.money.unwrap_or_default();
        self.artifacts.record(&run, &money)
    }

    /// Makes the transcript up to `head` again if somebody took it away and the checkpoint would drop events of it.
    fn put_back(&mut self, stream: &Arc<RunStream>, head: Head) {
        let id = &stream.id;
        let needs_no_log = stream.published().anchor.seq >= head.seq;
        if needs_no_log || self.failing.contains_key(id) || self.given_up.contains(id) {
            return;
        }
        let is_there = match self.open.get(id) {
            Some(sheet) => sheet.is_in_place(),
            None => existing_transcript(&stream.spec.files, id)
                .and_then(|file| Ok(file.metadata()?.len() >= head.bytes)),
        };
        if !is_there.unwrap_or(false) {
            let nothing_new = Pending {
                stream: Arc::clone(stream),
                start: head,
                end: head,
                lines: Some(Vec::new()),
                pages: Pages::Keep,
                money: None,
                settled: None,
            };
            self.receive(id.clone(), nothing_new);
        }
    }

    /// Makes sure that the files are on disk up to the checkpoint, so that the log need not be.
    fn checkpoint(&mut self, mark: &Mark) {
        self.shared.faults.before_files(&self.lane.files);
        if !self.failing.is_empty() {
            self.retry();
        }
        for (stream, head) in &mark.runs {
            self.put_back(stream, *head);
        }
        let lag = Arc::clone(&self.lane.lag);
        let finished = self.artifacts.finish(&|left| lag.finishing(left));
        let synced = self.sync();
        let mut covered = synced && finished && self.failing.is_empty();
        if !covered && self.shared.log.segments() >= RETAINED {
            covered = true;
            self.unsynced.clear();
            self.give_up_failing();
            self.artifacts.give_up();
        }
        let report = Report {
            files: self.lane.files.clone(),
            lsn: mark.lsn,
            covered: if covered {
                Covered::All
            } else {
                Covered::NotAll
            },
        };
        self.lane.lag.answered();
        self.shared.keeping.post(|inbox| inbox.reports.push(report));
    }

    /// Makes what was written survive a power cut; whether all of it does. Of many files each one costs a turn of the disk, a file
    /// system takes them together.
    fn sync(&mut self) -> bool {
        let open = self.open.values().filter(|sheet| sheet.is_dirty()).count();
        let are_many = open + self.unsynced.len() > FEW;
        if (are_many || self.artifacts.is_unsynced()) && self.sync_file_system() {
            self.unsynced.clear();
            self.open.values_mut().for_each(TranscriptFile::synced);
            return true;
        }
        self.sync_closed();
        let mut failed = Vec::new();
        for (id, sheet) in &mut self.open {
            if let Err(error) = sheet.sync() {
                tracing::warn!(run = %id, %error, "a transcript cannot be synced");
                failed.push(id.clone());
            }
        }
        for id in &failed {
            self.close(id);
        }
        failed.is_empty() && self.unsynced.is_empty() && !self.artifacts.is_unsynced()
    }

    fn sync_file_system(&mut self) -> bool {
        let files = &self.lane.files;
        let injected = self.shared.faults.before_file_system_sync();
        let synced = injected.and_then(|()| match Dir::root(Path::new(files)) {
            // What was removed with its project is in nobody's way.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            root => root.and_then(|root| root.sync_file_system()),
        });
        match &synced {
            Ok(()) => self.artifacts.synced(),
            Err(error) => {
                tracing::warn!(files, %error, "the files of a project cannot be synced together");
            }
        }
        synced.is_ok()
    }
}

/// Whether a failure is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complaint {
    Aloud,
    Silent,
}
