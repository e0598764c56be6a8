//! What is made of runs for people and auditors: objects, pages, and requests that people lay beside them.
//!
//! **Owns** `state/objects` (results, receipts, snapshots and refs), `state/threads/<run>/thread.json`,
//! `knowledge/graphs/<graph>/<run>.md` and `knowledge/agent/threads/<item>/<run>.md` below the `files` directory of a run, and of a
//! thread `state.json` and `escalation.json` beside its `thread.json`.
//! **Never** reads the log: objects and the page are made of the transcript, which the lane of the project has written before it
//! says so here, and which is checked line by line on the way. So they may fall behind by any distance without keeping a
//! run, the archive or another project waiting, and need no more memory for it than a note for each run.
//!
//! **Durability.** A run that is neither suspended nor ended may be behind: after a restart its objects are made again from the
//! first line on; those that are there are compared and left alone. One that is, is finished before a checkpoint passes:
//! then the log is the only thing that would bring us back to it. What is on the page cache only is made durable by one sync of
//! the file system at each checkpoint, because a sync for each of some ten thousand small files would take minutes.
//!
//! **Order**: an object before what names it, results before receipts, receipts before the snapshot, the snapshot before the
//! ref. A run that is suspended and resumes at once may leave no snapshot of that moment: a ref names the newest one only.
//! **Failure**: a project that is gone, full or in our way is tried again every second, until its lane gives up. A transcript that
//! is not what was written ends the run's objects.

mod cancel;
mod page;
mod receipts;
mod render;
mod thread_page;
mod thread_state;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rye_core::clock::Timestamp;
use rye_core::digest::Written;
use rye_core::error::with_sources;
use rye_core::id::{RunId, Seq};
use rye_core::model::{Event, Object, Run, RunKind, Spec};
use serde_json::json;

pub use self::cancel::cancel_requests;
use self::page::{Outlines, Page};
use self::receipts::Receipts;
use self::thread_page::ThreadPage;
use crate::beneath::Dir;
use crate::journal::{self, ArtifactLane, Money, Note, Reading, Signer, Transcripts, Unusable};
use crate::object::ProjectObjects;

/// Shortest time between two turns of runs that are under way: a turn opens the same files for one event as for a hundred.
const TURN_EVERY: Duration = Duration::from_millis(25);
/// Shortest time between two renderings of a running run's page.
const RENDER_EVERY: Duration = Duration::from_millis(100);
/// How long such a turn takes at most, but for the run that is at it: transcripts of others are to be written meanwhile.
const PIECE: Duration = Duration::from_millis(10);
/// Pause before a project that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Makes the artifacts of all runs; signs them as this node.
#[derive(Clone)]
pub struct Artifacts {
    signer: Arc<dyn Signer>,
}

impl Artifacts {
    /// Artifacts that `signer` signs.
    pub fn new(signer: Arc<dyn Signer>) -> Arc<Self> {
        Arc::new(Self { signer })
    }
}

impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts").finish_non_exhaustive()
    }
}

impl journal::Artifacts for Artifacts {
    fn lane(&self, files: &str, transcripts: Transcripts) -> Box<dyn ArtifactLane> {
        Box::new(ArtifactWriter::new(
            Arc::clone(&self.signer),
            files.to_owned(),
            transcripts,
        ))
    }
}

/// At most one note for each run, in the order in which they came.
#[derive(Debug, Default)]
struct Notes {
    of_run: HashMap<RunId, Note>,
    order: VecDeque<RunId>,
    /// Those of runs that were suspended or ended.
    settled: usize,
}

impl Notes {
    fn add(&mut self, note: Note) {
        self.settled += usize::from(note.settled.is_some());
        if let Some(earlier) = self.of_run.get_mut(&note.run) {
            self.settled -= usize::from(earlier.settled.is_some());
            earlier.upto = note.upto;
            earlier.page |= note.page;
            earlier.settled = note.settled;
            earlier.given_up |= note.given_up;
        } else {
            self.order.push_back(note.run.clone());
            self.of_run.insert(note.run.clone(), note);
        }
    }

    fn next(&mut self) -> Option<Note> {
        let note = self.of_run.remove(&self.order.pop_front()?)?;
        self.settled -= usize::from(note.settled.is_some());
        Some(note)
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// What is known about a run from its transcript.
#[derive(Debug)]
struct RunHistory {
    reading: Reading,
    made: Made,
    rendered: Option<Instant>,
}

/// What is made of the events of a run, as far as they were read.
#[derive(Debug)]
enum Made {
    Graph(Box<GraphMade>),
    Thread(Box<ThreadPage>),
}

#[derive(Debug)]
struct GraphMade {
    receipts: Receipts,
    page: Page,
    /// Objects that are not written yet, in order.
    unwritten: Vec<Written>,
}

impl Made {
    /// Nothing yet; `None` for a run of a kind that leaves neither objects nor a page.
    fn new(id: &RunId, spec: &Spec, outlines: &mut Outlines) -> Option<Self> {
        match spec.kind() {
            RunKind::Graph => Some(Self::Graph(Box::new(GraphMade {
                receipts: Receipts::default(),
                page: Page::new(id, spec, &outlines.of(spec)),
                unwritten: Vec::new(),
            }))),
            RunKind::Thread => Some(Self::Thread(Box::new(ThreadPage::new(id, spec)))),
            RunKind::Tool => None,
        }
    }

    fn take(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        match self {
            Self::Graph(made) => {
                let left = made.receipts.take(at, event);
                made.page.take(seq, at, event, left.as_ref());
                let objects = left
                    .into_iter()
                    .flat_map(|left| [left.result, left.receipt]);
                made.unwritten.extend(objects);
            }
            Self::Thread(page) => page.take(seq, at, event),
        }
    }

    /// Whether there are objects that are not written yet.
    fn has_unwritten(&self) -> bool {
        match self {
            Self::Graph(made) => !made.unwritten.is_empty(),
            Self::Thread(_) => false,
        }
    }

    /// The unsigned page, and the time of the last event on it.
    fn page(&self) -> (String, Timestamp) {
        match self {
            Self::Graph(made) => (made.page.render(made.receipts.len()), made.page.seen()),
            Self::Thread(page) => (page.render(), page.seen()),
        }
    }
}

struct ArtifactWriter {
    signer: Arc<dyn Signer>,
    files: String,
    transcripts: Transcripts,
    waiting: Notes,
    failing: Notes,
    /// When those that wait get their next turn.
    due: Instant,
    retry_at: Instant,
    chronicles: HashMap<RunId, RunHistory>,
    outlines: Outlines,
    /// Runs of which it has been said that they cannot be written.
    failed: HashSet<RunId>,
    /// Runs that have no objects any more, because their transcript is not what was written.
    lost: HashSet<RunId>,
    /// Whether there are files that a power cut would take.
    unsynced: bool,
}

impl ArtifactWriter {
    fn new(signer: Arc<dyn Signer>, files: String, transcripts: Transcripts) -> Self {
        Self {
            signer,
            files,
            transcripts,
            waiting: Notes::default(),
            failing: Notes::default(),
            due: Instant::now(),
            retry_at: Instant::now(),
            chronicles: HashMap::new(),
            outlines: Outlines::default(),
            failed: HashSet::new(),
            lost: HashSet::new(),
            unsynced: false,
        }
    }

    /// A file about `run` with its signature.
    fn signed(&self, run: &Run, content: &Object) -> Vec<u8> {
        let signed = self.signer.sign_json(content, run.updated_at);
        let mut text = serde_json::to_vec_pretty(&signed).expect("a JSON object is plain data");
        text.push(b'\n');
        text
    }

    fn retry(&mut self) {
        self.retry_at = Instant::now() + RETRY;
        while let Some(note) = self.failing.next() {
            self.waiting.add(note);
        }
    }

    /// Gives each waiting run a turn, or as many as are done by `until`: the others come first the next time.
    fn turns(&mut self, until: Instant) {
        for _ in 0..self.waiting.order.len() {
            if Instant::now() >= until {
                self.due = until;
                return;
            }
            let Some(note) = self.waiting.next() else {
                return;
            };
            self.give_turn(note);
        }
    }

    fn give_turn(&mut self, mut note: Note) {
        let id = note.run.clone();
        match self.turn(&id, &mut note) {
            Ok(Turn::Done) => self.done(&id, &note),
            Ok(Turn::More) => {
                self.waiting.add(note);
                self.due = Instant::now();
            }
            Err(Unusable::Project(error)) => {
                if self.failed.insert(id.clone()) {
                    tracing::warn!(run = %id, %error, files = self.files,
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

    /// Takes in one piece of the run's transcript.
    fn turn(&mut self, id: &RunId, note: &mut Note) -> Result<Turn, Unusable> {
        let spec = &note.spec;
        if note.given_up || self.lost.contains(id) {
            return Ok(Turn::Done);
        }
        let mut chronicle = match self.chronicles.remove(id) {
            Some(chronicle) => chronicle,
            // Nothing has happened to it in this life yet, nor has it come to rest.
            None if !note.page && note.settled.is_none() => return Ok(Turn::Done),
            None => match Made::new(id, spec, &mut self.outlines) {
                None => return Ok(Turn::Done),
                Some(made) => RunHistory {
                    reading: Reading::default(),
                    made,
                    rendered: None,
                },
            },
        };
        let turn = self.advance(id, note, &mut chronicle);
        self.chronicles.insert(id.clone(), chronicle);
        turn
    }

    fn advance(
        &mut self,
        id: &RunId,
        note: &mut Note,
        chronicle: &mut RunHistory,
    ) -> Result<Turn, Unusable> {
        if !chronicle.made.has_unwritten() && !chronicle.reading.is_at(&note.upto) {
            self.read(note, chronicle)?;
        }
        self.write(id, note, chronicle).map_err(Unusable::Project)
    }

    fn write(&mut self, id: &RunId, note: &Note, chronicle: &mut RunHistory) -> io::Result<Turn> {
        let root = Dir::of_run(&note.spec)?;
        let caught_up = chronicle.reading.is_at(&note.upto);
        let is_due = chronicle.made.has_unwritten() || note.settled.is_some();
        self.unsynced |= is_due;
        if let (Made::Graph(made), true) = (&mut chronicle.made, is_due) {
            let vault = ProjectObjects::make(Path::new(&self.files))?;
            let mut written = 0;
            let put = made.unwritten.iter().try_for_each(|object| {
                vault.put(object)?;
                written += 1;
                Ok::<_, io::Error>(())
            });
            made.unwritten.drain(..written);
            put?;
            if caught_up {
                self.put_snapshot(note, &made.receipts, &vault)?;
            }
        }
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
    fn read(&self, note: &Note, chronicle: &mut RunHistory) -> Result<(), Unusable> {
        let RunHistory { reading, made, .. } = chronicle;
        self.transcripts
            .read(note, reading, |seq, at, event| made.take(seq, at, event))
    }

    /// The run was suspended or ended, and everything before is written.
    fn put_snapshot(
        &self,
        note: &Note,
        receipts: &Receipts,
        vault: &ProjectObjects,
    ) -> io::Result<()> {
        let Some(run) = &note.settled else {
            return Ok(());
        };
        let (state, execution) = receipts.snapshots(run);
        vault.put(&state)?;
        vault.put(&execution)?;
        let pointer = Object::from_iter([
            ("hash".to_owned(), json!(execution.hash)),
            ("graph_run_id".to_owned(), json!(run.id)),
        ]);
        let pointer = self.signer.sign_json(&pointer, run.updated_at);
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
        let item = note.spec.item.id.as_str();
        let directory = root.pages("knowledge/agent/threads", item)?;
        let (text, seen) = chronicle.made.page();
        let text = self.signer.sign_text(text, seen);
        directory.replace(&format!("{id}.md"), text.as_bytes())
    }

    /// The run's objects are what they should be, or given up.
    fn done(&mut self, id: &RunId, note: &Note) {
        let Some(run) = &note.settled else {
            return;
        };
        self.chronicles.remove(id);
        self.failed.remove(id);
        if run.status().is_terminal() {
            self.lost.remove(id);
        }
    }
}

impl ArtifactLane for ArtifactWriter {
    fn record(&mut self, run: &Run, money: &Money) -> io::Result<()> {
        let cost = &money.cost;
        let root = Dir::of_run(&run.spec)?;
        let beside = journal::run_dir(&root, &run.id)?;
        let put = |name: &str, content: &Object| beside.replace(name, &self.signed(run, content));
        put("thread.json", &render::thread(run, cost))?;
        if let Some(state) = thread_state::state(run, money) {
            match thread_state::escalation(run, cost) {
                Some(escalation) => put("escalation.json", &escalation)?,
                None => drop(beside.remove("escalation.json")?),
            }
            put("state.json", &state)?;
        }
        if let Some(page) = render::state_page(run, cost) {
            let dir = root.pages("knowledge/graphs", run.spec.item.id.as_str())?;
            let page = self.signer.sign_text(page, run.updated_at);
            dir.replace(&format!("{}.md", run.id), page.as_bytes())?;
        }
        Ok(())
    }

    fn add(&mut self, note: Note) {
        if self.failing.of_run.contains_key(&note.run) {
            self.failing.add(note);
        } else {
            if note.settled.is_some() {
                self.due = Instant::now();
            }
            self.waiting.add(note);
        }
    }

    fn work(&mut self) {
        let now = Instant::now();
        if now >= self.retry_at {
            self.retry();
        }
        if now >= self.due {
            self.due = now + TURN_EVERY;
            self.turns(now + PIECE);
        }
    }

    fn pause(&self) -> Option<Duration> {
        if !self.waiting.is_empty() {
            return Some(self.due.saturating_duration_since(Instant::now()));
        }
        (!self.failing.is_empty()).then_some(RETRY)
    }

    fn unfinished(&self) -> usize {
        self.waiting.settled
    }

    fn finish(&mut self, left: &dyn Fn(usize)) -> bool {
        self.retry();
        while self.waiting.settled > 0
            && let Some(note) = self.waiting.next()
        {
            if note.settled.is_some() {
                self.give_turn(note);
                left(self.waiting.settled);
            } else {
                self.waiting.add(note);
            }
        }
        self.failing.settled == 0
    }

    fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    fn synced(&mut self) {
        self.unsynced = false;
    }

    fn give_up(&mut self) {
        self.unsynced = false;
        let mut failing = std::mem::take(&mut self.failing);
        while let Some(note) = failing.next() {
            if note.settled.is_none() {
                self.failing.add(note);
                continue;
            }
            tracing::warn!(run = %note.run, files = self.files,
                "the objects of a run are given up: its project did not take them for too long");
            self.done(&note.run, &note);
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
