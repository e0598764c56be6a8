//! The thread that writes a run's files into its project.
//!
//! **Owns** `state/threads/<run>/transcript.jsonl`, `state/threads/<run>/thread.json` and
//! `knowledge/graphs/<graph>/<run>.md` below the run's `files` directory. **Never** holds a run up: whoever publishes
//! leaves lines in a mailbox; what does not fit there, or could not be written, is rendered again from the log.
//! **Order**: lines of a run are appended in order, each at its own offset. **Failure**: a project that is gone, full
//! or in our way is tried again every second; once the log has grown to [`RETAINED`] segments for its sake, its files
//! are given up with a warning. A tail that differs from the log moves to `transcript.lost-<n>.jsonl`. A transcript that could
//! not be synced is written once more before it counts as being on disk: what the system could not write, it forgets.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::model::Run;

use super::curator::Note;
use super::keeper::Covered;
use super::log::size;
use super::render;
use super::track::Track;
use super::transcript::Head;
use super::{CheckpointJob, Shared, history};
use crate::beneath::Dir;

/// Transcripts kept open; each takes a descriptor for itself and one for its directory.
const OPEN: usize = 256;
/// Lines of one mailbox; more are left to the log.
const PENDING_BYTES: usize = 16 << 20;
/// Shortest time between two renderings of a running run's pages.
pub(super) const RENDER_EVERY: Duration = Duration::from_millis(100);
/// Pause before a project that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Segments of log kept for projects that fail.
pub(super) const RETAINED: usize = 8;

/// Most of an existing file that is compared with the log: more than the log can hold.
const TAIL_BYTES: u64 = 256 << 20;

const TRANSCRIPT: &str = "transcript.jsonl";
pub(super) const THREADS: &str = "state/threads";

/// When the pages of a run are rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pages {
    /// Nothing they show has changed for good.
    Keep,
    /// A boundary: if the last rendering is old enough.
    Due,
    /// The status changed.
    Now,
}

/// What waits to be written about one run.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) track: Arc<Track>,
    /// The transcript before `lines`.
    pub(super) start: Head,
    /// The transcript after them.
    pub(super) end: Head,
    /// `None`: render them again.
    pub(super) lines: Option<Vec<u8>>,
    pub(super) pages: Pages,
    /// The record, once the run parked or ended: it changes no more under our eyes.
    pub(super) settled: Option<(Arc<Run>, Lsn)>,
}

impl Pending {
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
        self.settled = later.settled;
    }
}

/// What the publisher leaves for the projector.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    runs: HashMap<RunId, Pending>,
    bytes: usize,
    pub(super) checkpoint: Option<CheckpointJob>,
}

impl Inbox {
    pub(super) fn add(&mut self, mut pending: Pending) {
        let bytes = pending.lines.as_ref().map_or(0, Vec::len);
        if self.bytes + bytes > PENDING_BYTES {
            pending.lines = None;
        } else {
            self.bytes += bytes;
        }
        match self.runs.get_mut(&pending.track.id) {
            Some(earlier) => earlier.merge(pending),
            None => {
                self.runs.insert(pending.track.id.clone(), pending);
            }
        }
    }
}

/// An open transcript.
#[derive(Debug)]
struct Transcript {
    track: Arc<Track>,
    file: File,
    dir: Dir,
    length: u64,
    /// Its lines go up to here.
    upto: Head,
    /// Perhaps written since its last sync.
    dirty: bool,
    /// Made by us and its name not yet synced.
    fresh: bool,
    used: u64,
}

#[derive(Debug)]
pub(super) struct Projector {
    shared: Arc<Shared>,
    open: HashMap<RunId, Transcript>,
    uses: u64,
    rendered: HashMap<RunId, Instant>,
    failing: HashMap<RunId, Pending>,
    /// Transcripts that were closed without a sync, and up to where they have to be written again.
    unsynced: HashMap<RunId, (Arc<Track>, Head)>,
    retry_at: Instant,
    /// Runs whose transcript was shortened behind our back: nothing is appended to a torso.
    torsos: HashSet<RunId>,
}

impl Projector {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            open: HashMap::new(),
            uses: 0,
            rendered: HashMap::new(),
            failing: HashMap::new(),
            unsynced: HashMap::new(),
            retry_at: Instant::now(),
            torsos: HashSet::new(),
        }
    }

    /// Writes until the mailbox is closed. `begin`: where this life began; only when everything before
    /// is published can a file be told to be ahead of the log.
    pub(super) fn run(mut self, begin: Lsn) {
        if self.shared.published.reach_blocking(begin).is_err() {
            return;
        }
        loop {
            let timeout = (!self.failing.is_empty()).then_some(RETRY);
            let taken = self.shared.projections.take(timeout);
            for (id, pending) in taken.value.runs {
                self.take_up(id, pending);
            }
            if !self.failing.is_empty() && Instant::now() >= self.retry_at {
                self.retry();
            }
            if let Some(checkpoint) = taken.value.checkpoint {
                self.checkpoint(checkpoint);
            }
            if taken.closed {
                return;
            }
        }
    }

    fn take_up(&mut self, id: RunId, pending: Pending) {
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
        match self.write(&mut pending) {
            Ok(page) => self.hand_on(&id, pending, page),
            Err(error) => {
                if complaint == Complaint::Aloud {
                    tracing::warn!(run = %id, %error, files = pending.track.birth.files,
                        "the files of a run cannot be written; they are tried again");
                }
                self.close(&id);
                pending.lines = None;
                self.failing.insert(id, pending);
                self.retry_at = Instant::now() + RETRY;
            }
        }
    }

    /// The files of the run are what they should be, or given up; the curator makes the rest of them.
    fn hand_on(&mut self, id: &RunId, pending: Pending, page: bool) {
        let given_up = self.torsos.contains(id);
        let ended = |(run, _): &(Arc<Run>, Lsn)| run.status().is_terminal();
        if pending.settled.as_ref().is_some_and(ended) {
            self.rendered.remove(id);
            self.torsos.remove(id);
        }
        let note = Note {
            track: pending.track,
            upto: pending.end,
            page,
            settled: pending.settled,
            given_up,
            failed: false,
        };
        self.shared.curating.post(|inbox| inbox.runs.add(note));
    }

    /// Answers whether the pages were due.
    fn write(&mut self, pending: &mut Pending) -> io::Result<bool> {
        if !self.torsos.contains(&pending.track.id) {
            self.write_lines(pending)?;
            if let Some(transcript) = self.open.get_mut(&pending.track.id) {
                transcript.upto = pending.end;
            }
        }
        pending.start = pending.end;
        pending.lines = Some(Vec::new());
        let id = &pending.track.id;
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
        let track = Arc::clone(&pending.track);
        let shared = Arc::clone(&self.shared);
        match pending.lines.take() {
            Some(lines) => self.append(&track, pending.start.bytes, &lines),
            None => {
                history::render_again(&shared, &track, pending.start, pending.end, |at, lines| {
                    self.append(&track, at, lines)
                })
            }
        }
    }

    /// Puts `lines` at offset `at` of the run's transcript.
    fn append(&mut self, track: &Arc<Track>, at: u64, lines: &[u8]) -> io::Result<()> {
        self.uses += 1;
        let uses = self.uses;
        let mut lines = lines;
        let mut at = at;
        if !self.open.contains_key(&track.id) {
            let mut transcript = open_transcript(track)?;
            match transcript.meet(at, lines)? {
                Met::Torso => {
                    tracing::warn!(run = %track.id, "the transcript is shorter than its record; nothing is appended to it");
                    self.torsos.insert(track.id.clone());
                    return Ok(());
                }
                Met::Has(there) => {
                    lines = &lines[there..];
                    at += size(there);
                }
            }
            self.make_room();
            self.open.insert(track.id.clone(), transcript);
        }
        let transcript = self
            .open
            .get_mut(&track.id)
            .expect("it was opened just now");
        transcript.used = uses;
        if !lines.is_empty() {
            transcript.file.write_all_at(lines, at)?;
            transcript.length = at + size(lines.len());
            transcript.dirty = true;
        }
        Ok(())
    }

    /// Closes the transcript that was used the longest ago, if there are too many.
    fn make_room(&mut self) {
        if self.open.len() < OPEN {
            return;
        }
        let oldest = self
            .open
            .iter_mut()
            .min_by_key(|(_, transcript)| transcript.used);
        let Some((id, transcript)) = oldest else {
            return;
        };
        let id = id.clone();
        if let Err(error) = transcript.sync() {
            tracing::warn!(run = %id, %error, "a transcript cannot be synced");
        }
        self.close(&id);
    }

    /// Closes a transcript; one that is not on disk is remembered.
    fn close(&mut self, id: &RunId) {
        if let Some(transcript) = self.open.remove(id)
            && transcript.dirty
        {
            let Transcript { track, upto, .. } = transcript;
            let (_, known) = self.unsynced.entry(id.clone()).or_insert((track, upto));
            // It may have been closed before, and not gone as far since.
            if known.bytes < upto.bytes {
                *known = upto;
            }
        }
    }

    /// Writes what was closed without a sync once more, with one.
    fn sync_closed(&mut self) {
        for (id, (track, upto)) in std::mem::take(&mut self.unsynced) {
            if let Err(error) = rewrite(&self.shared, &track, upto) {
                tracing::warn!(run = %id, %error, "a transcript cannot be synced");
                self.unsynced.insert(id, (track, upto));
            }
        }
    }

    fn write_pages(&self, pending: &Pending) -> io::Result<()> {
        let track = &pending.track;
        let run = match &pending.settled {
            Some((run, _)) => Arc::clone(run),
            None => match self.shared.snapshot(&track.id) {
                None => return Ok(()),
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
        let root = Dir::root(Path::new(&track.birth.files))?;
        let notary = &self.shared.notary;
        let thread = notary.sign_json(&render::thread(&run), run.updated_at);
        let mut text = serde_json::to_vec_pretty(&thread).expect("a JSON object is plain data");
        text.push(b'\n');
        run_dir(&root, &track.id)?.replace("thread.json", &text)?;
        if let Some(page) = render::state_page(&run) {
            let dir = root.make(&Path::new("knowledge/graphs").join(run.birth.item.id.as_str()))?;
            let page = notary.sign_text(&page, run.updated_at);
            dir.replace(&format!("{}.md", run.id), page.as_bytes())?;
        }
        Ok(())
    }

    /// Makes sure that transcripts are on disk up to the checkpoint, so that the log need not be.
    fn checkpoint(&mut self, job: CheckpointJob) {
        if !self.failing.is_empty() {
            self.retry();
        }
        self.sync_closed();
        let mut failed = Vec::new();
        for (id, transcript) in &mut self.open {
            if let Err(error) = transcript.sync() {
                tracing::warn!(run = %id, %error, "a transcript cannot be synced");
                failed.push(id.clone());
            }
        }
        for id in &failed {
            self.close(id);
        }
        let all = failed.is_empty() && self.failing.is_empty() && self.unsynced.is_empty();
        let mut covered = if all { Covered::All } else { Covered::NotAll };
        if covered == Covered::NotAll && self.shared.log.segments() >= RETAINED {
            covered = Covered::All;
            self.unsynced.clear();
            for (id, pending) in std::mem::take(&mut self.failing) {
                tracing::warn!(run = %id, files = pending.track.birth.files,
                    "the files of a run are given up: its project did not take them for too long");
                self.torsos.insert(id.clone());
                self.hand_on(&id, pending, false);
            }
        }
        self.shared
            .curating
            .post(|inbox| inbox.checkpoint = Some((job, covered)));
    }
}

/// Whether a failure is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complaint {
    Aloud,
    Silent,
}

/// What an existing file has of the lines that belong at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// It ends before them.
    Torso,
    /// It holds their first so many bytes, and nothing after.
    Has(usize),
}

impl Transcript {
    /// Compares what follows `at` with `lines`; what differs, or goes beyond, is moved aside.
    fn meet(&mut self, at: u64, lines: &[u8]) -> io::Result<Met> {
        let Some(behind) = self.length.checked_sub(at) else {
            return Ok(Met::Torso);
        };
        if behind > TAIL_BYTES {
            return Err(io::Error::other(
                "the transcript is far longer than its run",
            ));
        }
        let mut tail = vec![0; usize::try_from(behind).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut tail, at)?;
        let same = tail.iter().zip(lines).take_while(|(a, b)| a == b).count();
        if same == tail.len() {
            return Ok(Met::Has(same));
        }
        let kept = tail[..same]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let lost = self.save_tail(&tail[kept..])?;
        tracing::warn!(
            file = lost,
            bytes = tail.len() - kept,
            "a transcript held lines the log does not know; they were moved aside"
        );
        self.file.set_len(at + size(kept))?;
        self.length = at + size(kept);
        self.dirty = true;
        Ok(Met::Has(kept))
    }

    fn save_tail(&self, tail: &[u8]) -> io::Result<String> {
        for number in 1_u32.. {
            let name = format!("transcript.lost-{number}.jsonl");
            match self.dir.create(&name) {
                Ok(file) => {
                    file.write_all_at(tail, 0)?;
                    file.sync_all()?;
                    self.dir.sync()?;
                    return Ok(name);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no name is left for a lost tail"))
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.fresh {
            let root = Dir::root(Path::new(&self.track.birth.files))?;
            self.dir.sync()?;
            root.make(Path::new(THREADS))?.sync()?;
            root.make(Path::new("state"))?.sync()?;
            self.fresh = false;
        }
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }
}

fn run_dir(root: &Dir, id: &RunId) -> io::Result<Dir> {
    root.state()?.make(&Path::new("threads").join(id.as_str()))
}

fn open_transcript(track: &Arc<Track>) -> io::Result<Transcript> {
    let root = Dir::root(Path::new(&track.birth.files))?;
    let dir = run_dir(&root, &track.id)?;
    let (file, fresh) = match dir.open(TRANSCRIPT)? {
        Some(file) => (file, false),
        None => (dir.create(TRANSCRIPT)?, true),
    };
    let length = file.metadata()?.len();
    Ok(Transcript {
        track: Arc::clone(track),
        file,
        dir,
        length,
        upto: track.published().anchor,
        // What is there may be what a life that ended at once did not get to sync.
        dirty: !fresh,
        fresh,
        used: 0,
    })
}

/// Puts the lines from where the transcript is known to be on disk up to `upto` into its file once more, and syncs it. One that
/// was shortened behind our back is left to the next who appends.
fn rewrite(shared: &Shared, track: &Arc<Track>, upto: Head) -> io::Result<()> {
    let mut transcript = open_transcript(track)?;
    if transcript.length < upto.bytes {
        return Ok(());
    }
    let anchor = track.published().anchor;
    history::render_again(shared, track, anchor, upto, |at, lines| {
        transcript.file.write_all_at(lines, at)
    })?;
    (transcript.dirty, transcript.fresh) = (true, true);
    transcript.sync()
}

/// The transcript of a run whose files are below `files`, to be read.
pub(super) fn existing_transcript(files: &str, id: &RunId) -> io::Result<File> {
    Dir::root(Path::new(files))?
        .enter(&Path::new(THREADS).join(id.as_str()))?
        .open(TRANSCRIPT)?
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}
