//! What a lane makes of transcripts for people and auditors: objects, and the page for people.
//!
//! **Owns** `state/objects` (results, receipts, snapshots and refs) and `knowledge/agent/threads/<graph>/<run>.md` below the run's
//! `files` directory. **Never** reads the log: its only source is the transcript, which the lane has written before it
//! says so here, and which is checked line by line on the way. So it may fall behind by any distance without keeping a
//! run, the archive or another project waiting, and needs no more memory for it than a note for each run.
//!
//! **Durability.** A run that has not parked or ended may be behind: after a restart its objects are made again from the
//! first line on; those that are there are compared and left alone. A run that has is finished before a checkpoint passes:
//! then the log is the only thing that would bring us back to it. What is on the page cache only is made durable by one sync of
//! the file system at each checkpoint, because a sync for each of some ten thousand small files would take minutes.
//!
//! **Order**: an object before what names it, results before receipts, receipts before the snapshot, the snapshot before the
//! ref. A run that parks and goes on at once may leave no snapshot of that moment: a ref names the newest one only.
//! **Failure**: a project that is gone, full or in our way is tried again every second, until its lane gives up. A transcript that
//! is not what was written ends the run's objects.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::cas::Encoded;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::{Object, Run, RunKind};
use serde_json::json;

use super::Shared;
use super::page::{Outlines, Page};
use super::projector::{RENDER_EVERY, RETRY};
use super::receipts::Receipts;
use super::record::{Logged, Unreadable};
use super::run_stream::RunStream;
use super::transcript::{Cursor, Fault, Head, gap_in};
use super::transcript_file::existing_transcript;
use crate::beneath::Dir;
use crate::object::ProjectObjects;

/// Bytes of a transcript that are taken in before another run has its turn; more than one line.
const PIECE_BYTES: u64 = 512 << 10;

/// What is to be made of a run whose transcript is written.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) stream: Arc<RunStream>,
    /// How far the transcript goes.
    pub(super) upto: Head,
    /// Whether the page is to be rendered.
    pub(super) page: bool,
    /// The record, if the run has parked or ended.
    pub(super) settled: Option<Arc<Run>>,
    /// Whether the transcript is not written any more.
    pub(super) given_up: bool,
    /// Whether its project has refused it before.
    pub(super) failed: bool,
}

impl Note {
    fn merge(&mut self, later: Self) {
        self.upto = later.upto;
        self.page |= later.page;
        self.settled = later.settled;
        self.given_up |= later.given_up;
        self.failed |= later.failed;
    }
}

/// At most one note for each run.
#[derive(Debug, Default)]
struct Notes(HashMap<RunId, Note>);

impl Notes {
    fn add(&mut self, note: Note) {
        match self.0.get_mut(&note.stream.id) {
            Some(earlier) => earlier.merge(note),
            None => {
                self.0.insert(note.stream.id.clone(), note);
            }
        }
    }
}

/// What is known about a run from its transcript.
#[derive(Debug)]
struct RunHistory {
    cursor: Cursor,
    receipts: Receipts,
    page: Page,
    /// Objects that are not written yet, in order.
    unwritten: Vec<Encoded>,
    rendered: Option<Instant>,
}

/// Why a run's objects and page are not what they should be.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// May pass.
    #[error("its files cannot be written")]
    Project(#[from] io::Error),
    #[error("its transcript cannot be used")]
    Transcript(#[source] Fault),
    #[error("event {seq} cannot be understood")]
    Event {
        seq: rye_core::id::Seq,
        #[source]
        source: Unreadable,
    },
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Read(source) => Self::Project(source),
            Fault::Short(_)
            | Fault::Foreign(..)
            | Fault::Broken(_)
            | Fault::Head
            | Fault::Gap { .. } => Self::Transcript(fault),
        }
    }
}

#[derive(Debug)]
pub(super) struct ArtifactWriter {
    shared: Arc<Shared>,
    files: String,
    waiting: Notes,
    failing: Notes,
    retry_at: Instant,
    chronicles: HashMap<RunId, RunHistory>,
    outlines: Outlines,
    /// Runs that have no objects any more, because their transcript is not what was written.
    lost: HashSet<RunId>,
    /// Whether there are files that a power cut would take.
    unsynced: bool,
}

impl ArtifactWriter {
    pub(super) fn new(shared: Arc<Shared>, files: String) -> Self {
        Self {
            shared,
            files,
            waiting: Notes::default(),
            failing: Notes::default(),
            retry_at: Instant::now(),
            chronicles: HashMap::new(),
            outlines: Outlines::default(),
            lost: HashSet::new(),
            unsynced: false,
        }
    }

    /// Takes in what is to be made.
    pub(super) fn add(&mut self, note: Note) {
        if self.failing.0.contains_key(&note.stream.id) {
            self.failing.add(note);
        } else {
            self.waiting.add(note);
        }
    }

    /// Gives each waiting run a turn.
    pub(super) fn work(&mut self) {
        if Instant::now() >= self.retry_at {
            self.retry();
        }
        self.turns(|_| true);
    }

    /// When there is more to do, if there is.
    pub(super) fn pause(&self) -> Option<Duration> {
        if !self.waiting.0.is_empty() {
            return Some(Duration::ZERO);
        }
        (!self.failing.0.is_empty()).then_some(RETRY)
    }

    fn retry(&mut self) {
        self.retry_at = Instant::now() + RETRY;
        self.waiting.0.extend(self.failing.0.drain());
    }

    /// Gives each waiting run that is `meant` a turn.
    fn turns(&mut self, meant: impl Fn(&Note) -> bool) {
        self.shared.faults.before_files(&self.files);
        let ids: Vec<RunId> = self
            .waiting
            .0
            .iter()
            .filter(|(_, note)| meant(note))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            let Some(mut note) = self.waiting.0.remove(&id) else {
                continue;
            };
            match self.turn(&id, &mut note) {
                Ok(Turn::Done) => self.done(&id, &note),
                Ok(Turn::More) => self.waiting.add(note),
                Err(Trouble::Project(error)) => {
                    if !std::mem::replace(&mut note.failed, true) {
                        tracing::warn!(run = %id, %error, files = note.stream.spec.files,
                            "the objects and the page of a run cannot be written; they are tried again");
                    }
                    self.failing.add(note);
                }
                Err(error) => {
                    tracing::warn!(run = %id, error = %with_sources(&error),
                        "the run has no further objects, and its page is not rendered any more");
                    self.lost.insert(id.clone());
                    self.done(&id, &note);
                }
            }
        }
    }

    /// Gives turns until every run that parked or ended is done or fails.
    pub(super) fn finish(&mut self) {
        while self.waiting.0.values().any(|note| note.settled.is_some()) {
            self.turns(|note| note.settled.is_some());
        }
    }

    /// Takes in one piece of the run's transcript.
    fn turn(&mut self, id: &RunId, note: &mut Note) -> Result<Turn, Trouble> {
        let spec = &note.stream.spec;
        if spec.kind != RunKind::Graph || note.given_up || self.lost.contains(id) {
            return Ok(Turn::Done);
        }
        let mut chronicle = match self.chronicles.remove(id) {
            Some(chronicle) => chronicle,
            // Nothing has happened to it in this life yet, nor has it come to rest.
            None if !note.page && note.settled.is_none() => return Ok(Turn::Done),
            None => RunHistory {
                cursor: Cursor::default(),
                receipts: Receipts::default(),
                page: Page::new(id, spec, &self.outlines.of(spec)),
                unwritten: Vec::new(),
                rendered: None,
            },
        };
        let turn = self.go_on(id, note, &mut chronicle);
        self.chronicles.insert(id.clone(), chronicle);
        turn
    }

    fn go_on(
        &mut self,
        id: &RunId,
        note: &mut Note,
        chronicle: &mut RunHistory,
    ) -> Result<Turn, Trouble> {
        if chronicle.unwritten.is_empty() && chronicle.cursor.at < note.upto.bytes {
            self.read(id, note, chronicle)?;
        }
        let files = &note.stream.spec.files;
        let root = Dir::root(Path::new(files))?;
        if !chronicle.unwritten.is_empty() || note.settled.is_some() {
            self.unsynced = true;
            let vault = ProjectObjects::make(Path::new(files))?;
            let mut written = 0;
            let put = chronicle.unwritten.iter().try_for_each(|object| {
                vault.put(object)?;
                written += 1;
                Ok::<_, io::Error>(())
            });
            chronicle.unwritten.drain(..written);
            put?;
            if chronicle.cursor.at >= note.upto.bytes {
                chronicle.cursor.meet(&note.upto)?;
                self.put_snapshot(note, chronicle, &vault)?;
            }
        }
        let caught_up = chronicle.cursor.at >= note.upto.bytes;
        let overdue = || {
            chronicle
                .rendered
                .is_none_or(|at| at.elapsed() >= RENDER_EVERY)
        };
        if note.page && (caught_up || overdue()) {
            self.write_page(id, note, chronicle, &root)?;
            chronicle.rendered = Some(Instant::now());
        }
        Ok(if caught_up { Turn::Done } else { Turn::More })
    }

    /// Reads the next piece of the transcript.
    fn read(&self, id: &RunId, note: &Note, chronicle: &mut RunHistory) -> Result<(), Trouble> {
        let file = existing_transcript(&note.stream.spec.files, id)?;
        let from = chronicle.cursor.at;
        let length = PIECE_BYTES.min(note.upto.bytes - from);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        match file.read_exact_at(&mut bytes, from) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Fault::Short(note.upto.bytes).into());
            }
            read => read?,
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return Err(Fault::Broken(from).into());
        };
        for text in bytes[..end].split(|byte| *byte == b'\n') {
            let Some(line) = chronicle.cursor.pass(id, text)? else {
                continue;
            };
            if let Some(gap) = gap_in(&line) {
                return Err(gap.into());
            }
            let (seq, at) = (line.seq, line.timestamp);
            let event = Logged::of_shown(line.event_type, line.payload)
                .event(&self.shared.objects)
                .map_err(|source| Trouble::Event { seq, source })?;
            let left = chronicle.receipts.take(at, &event);
            chronicle.page.take(seq, at, &event, left.as_ref());
            chronicle.unwritten.extend(
                left.into_iter()
                    .flat_map(|left| [left.result, left.receipt]),
            );
        }
        Ok(())
    }

    /// The run parked or ended, and everything before is written.
    fn put_snapshot(
        &self,
        note: &Note,
        chronicle: &RunHistory,
        vault: &ProjectObjects,
    ) -> io::Result<()> {
        let Some(run) = &note.settled else {
            return Ok(());
        };
        let (state, execution) = chronicle.receipts.snapshots(run);
        vault.put(&state)?;
        vault.put(&execution)?;
        let pointer = Object::from_iter([
            ("hash".to_owned(), json!(execution.hash)),
            ("graph_run_id".to_owned(), json!(run.id)),
        ]);
        let pointer = self.shared.signer.sign_json(&pointer, run.updated_at);
        let pointer = serde_json::to_vec(&pointer).expect("a JSON object is plain data");
        vault.put_ref(&run.id, &pointer)
    }

    fn write_page(
        &self,
        id: &RunId,
        note: &Note,
        chronicle: &RunHistory,
        root: &Dir,
    ) -> io::Result<()> {
        let graph = note.stream.spec.item.id.as_str();
        let directory = root.make(&Path::new("knowledge/agent/threads").join(graph))?;
        let text = chronicle.page.render(chronicle.receipts.len());
        let text = self.shared.signer.sign_text(&text, chronicle.page.seen());
        directory.replace(&format!("{id}.md"), text.as_bytes())
    }

    /// The run's objects are what they should be, or given up.
    fn done(&mut self, id: &RunId, note: &Note) {
        let Some(run) = &note.settled else {
            return;
        };
        self.chronicles.remove(id);
        if run.status().is_terminal() {
            self.lost.remove(id);
        }
    }

    /// Makes sure that the objects of runs that parked or ended are on disk; whether they are.
    pub(super) fn checkpoint(&mut self) -> bool {
        self.retry();
        self.finish();
        let synced = self.sync();
        synced && !self.failing.0.values().any(|note| note.settled.is_some())
    }

    /// Makes what was written survive a power cut; whether it does.
    pub(super) fn sync(&mut self) -> bool {
        if !self.unsynced {
            return true;
        }
        let vault = ProjectObjects::open(Path::new(&self.files));
        let synced = vault.and_then(|vault| vault.map_or(Ok(()), |vault| vault.sync()));
        if let Err(error) = &synced {
            tracing::warn!(files = self.files, %error, "the objects of a project cannot be synced");
        }
        self.unsynced = synced.is_err();
        !self.unsynced
    }

    /// Leaves the runs that could not be written as they are.
    pub(super) fn give_up(&mut self) {
        self.unsynced = false;
        let settled = |note: &Note| note.settled.is_some();
        let given_up: Vec<_> = self.failing.0.extract_if(|_, note| settled(note)).collect();
        for (id, note) in given_up {
            tracing::warn!(run = %id, files = self.files,
                "the objects of a run are given up: its project did not take them for too long");
            self.done(&id, &note);
        }
    }
}

/// What a turn of a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Everything the note asked for is done.
    Done,
    /// There is more to read.
    More,
}
