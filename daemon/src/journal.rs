//! The journal: what has happened, and the only way anything happens.
//!
//! **Owns** the log, history, the records of all runs, their index and their feeds.
//! **Never** lets anything out (an answer, an event) before it is on disk, opens no file of a project to write, and never decides: an
//! [`Event`] is a fact somebody else decided.
//!
//! ```text
//!                       ┌ lock ──────────────┐        writer ── fdatasync ──► durable ─┐
//! commit ──► draft ──► │ check apply number │ ──► ┤                                  ▼
//!                       └────────────────────┘        publisher ── render, sign ── wait ──► published ──► feeds, waiters
//!                                                                         │
//!                                    sealer (history, index, base) ◄────┴──► touches: which runs moved, for exports
//! ```
//!
//! **Order.** The LSN orders commits, the seq the events of a run. Everything follows the LSN: writing, publishing,
//! sealing. A ticket's [`Journal::durable`] is where a run's next effect may start; [`Journal::published`] is
//! where its head is signed and its listeners have it.
//!
//! **Failure.** A write or sync of the log that fails is final: [`Journal::failed`] resolves, nothing is answered any more.
//! A full disk is not: [`Journal::storage`] says so, new work is refused ([`Why::Full`]), runs can still be suspended and end.
//! Dropping the journal is a crash without the crash: what was queued is written, nothing is rounded off.
//! A kill at any instant loses no acknowledged commit; see `recovery` for how a torn end is distinguished from damage.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rye_core::clock::{Clock, Timestamp};
use rye_core::digest::Digest;
use rye_core::id::{Epoch, ItemRef, Lsn, RunId, Seq};
use rye_core::ledger::AccountId;
use rye_core::memory::Memory;
use rye_core::model::{Event, Object, Run, RunKind, Status, Syncing};
use rye_core::seal::Token;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::config::TREE_RUNS;
use rye_host::task;

mod accounts;
mod backlog;
mod base;
mod compactor;
mod cursor;
mod deltas;
mod error;
mod export_source;
mod faults;
mod index;
mod line;
mod listing;
mod log;
mod long;
mod mailbox;
mod notices;
mod past;
mod publisher;
mod range;
mod reader;
mod record;
mod recovery;
mod removal;
mod run_stream;
mod sealer;
mod sections;
mod segment;
mod sequencer;
mod steps;
mod stored;
#[cfg(test)]
pub(crate) mod tests;
mod texts;
mod threads;
mod touches;
mod watermark;
mod wide;

pub(crate) use faults::Faults;
#[cfg(test)]
pub(crate) use faults::hooks::Sync as Syncs;
use line::Asker;
use record::{Body, Rendered};
use removal::KEYS_KEPT;
use run_stream::Rest;
use threads::{IndexState, Shared};
use watermark::lock;

pub use accounts::AccountRow;
pub use cursor::{Cursor, Of, Read, Sees, Since, Spot, Until};
pub use deltas::{Delta, DeltaKind, Live, Shown, Speaker};
pub use error::Error;
pub use export_source::{ExportSource, Exported, FoundRun, Money, PublishedRun, Touched};
pub use index::{IndexError, KeyOwner};
pub use line::Place;
pub use listing::{Filter, Page, page_token};
pub use reader::{Extract, Piece, Reader, THREADS, Verdict, WrittenLine};
pub use rye_core::state::{Change, Refused, Why};
pub use rye_core::transcript::{Head, Signed};
pub use rye_journal::history::RemovedRun;
pub use sealer::SealBounds;
pub use segment::Storage;
pub use steps::{StepLine, Walked};
pub use touches::{Missed, Reported, Touch, TouchKind};
pub use watermark::Failure;

/// Signs what the journal shows. All signatures are pure functions of their input, so that lost lines come back
/// byte for byte.
pub trait Signer: Send + Sync {
    /// The signature over `head`, the digest of a head of a transcript.
    fn sign(&self, head: &Digest) -> Signed<'_>;
    /// The Markdown `body` under its signature line.
    fn sign_text(&self, body: String, at: Timestamp) -> String;
    /// The object with its `_signature`.
    fn sign_json(&self, object: &Object, at: Timestamp) -> Object;
    /// True if a key of this node made `token`.
    fn verifies(&self, token: &Token) -> bool;
}

/// What a journal needs to open.
#[derive(Clone)]
pub struct Options {
    /// The state directory; its owner holds the lock on it.
    pub dir: PathBuf,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Who signs.
    pub signer: Arc<dyn Signer>,
    /// Length of a log segment in bytes.
    pub segment_bytes: u64,
    /// What of ended runs may be in memory before it is sealed.
    pub seal: SealBounds,
    /// Where the memory that the values of runs take is counted.
    pub memory: Arc<Memory>,
    /// Most runs of one tree that are not over at once.
    pub tree_runs: NonZeroUsize,
    /// How long the start key of a removed run starts nothing.
    pub keys_kept: Duration,
}

impl Options {
    /// The defaults for the state directory `dir`: segments of 8 MiB: a crash replays at most one of them, in
    /// about 60 ms.
    pub fn new(dir: PathBuf, clock: Arc<dyn Clock>, signer: Arc<dyn Signer>) -> Self {
        Self {
            dir,
            clock,
            signer,
            segment_bytes: 8 << 20,
            seal: SealBounds::default(),
            memory: Arc::default(),
            tree_runs: TREE_RUNS,
            keys_kept: KEYS_KEPT,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("dir", &self.dir)
            .field("segment_bytes", &self.segment_bytes)
            .finish_non_exhaustive()
    }
}

/// What an opened journal found.
#[derive(Debug)]
pub struct Recovered {
    /// This life of the daemon; durable.
    pub epoch: Epoch,
    /// Runs that have not ended, the oldest first.
    pub live: Vec<Arc<Run>>,
}

/// The receipt of a commit that is in order and on its way to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Its position.
    pub lsn: Lsn,
}

/// What a commit led to. It is in order and on its way to the disk.
#[derive(Debug, Clone)]
pub struct Committed {
    /// Its receipt.
    pub ticket: Ticket,
    /// The records it led to, one for each run it touched.
    runs: Vec<Arc<Run>>,
}

impl Committed {
    const fn nothing(ticket: Ticket) -> Self {
        let runs = Vec::new();
        Self { ticket, runs }
    }

    /// The record of `id` right after the commit; `None` if the commit did not touch it.
    pub fn run(&self, id: &RunId) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == *id)
    }
}

/// One event of a run as readers get it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Position in the run.
    pub seq: Seq,
    /// Position in the log; 0 if it was read from the transcript.
    pub lsn: Lsn,
    /// When it was committed.
    pub timestamp: Timestamp,
    /// What kind of event.
    pub event_type: String,
    /// Its content, as JSON text; a long one as `{"object": <sha256>, "bytes": n}`.
    pub payload: Arc<str>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its id.
    pub id: RunId,
    /// What runs.
    pub item: ItemRef,
    /// What carries it out.
    pub kind: RunKind,
    /// Where it stands.
    pub status: Status,
    /// Its project.
    pub project: String,
    /// Who asked.
    pub principal: String,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// How many ancestors it has.
    pub depth: u32,
    /// Whether its parent does not wait for it.
    pub detached: bool,
    /// The run it continues.
    pub continuation_of: Option<RunId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Steps taken.
    pub steps: u32,
    /// The account of its chain.
    pub account: AccountId,
    /// How many child runs its chain has started.
    #[serde(default)]
    pub spawn_count: u32,
    /// Who asked it to stop, and why, if that was accepted.
    #[serde(default)]
    pub cancel: Option<String>,
    /// When.
    #[serde(default)]
    pub cancelled_at: Option<Timestamp>,
}

impl Summary {
    /// The short form of a record.
    pub fn of(run: &Run) -> Self {
        Self {
            id: run.id.clone(),
            item: run.spec.item.clone(),
            kind: run.spec.kind(),
            status: run.status(),
            project: run.spec.project.clone(),
            principal: run.spec.principal.clone(),
            parent: run.spec.parent.clone(),
            depth: run.spec.depth,
            detached: !run.spec.parent_end.waits(),
            continuation_of: run.spec.continuation_of.clone(),
            created_at: run.created_at,
            started_at: run.started_at,
            updated_at: run.updated_at,
            ended_at: run.ended_at,
            steps: run.steps(),
            account: run.spec.budget.account.clone(),
            spawn_count: run.spawn_count,
            cancel: run.cancel.clone(),
            cancelled_at: run.cancelled_at,
        }
    }
}

/// The journal of one state directory. See the module.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the journal, recovers what the log holds and begins a new epoch. The index of ended runs opens behind it.
    pub async fn open(options: Options) -> Result<(Self, Recovered), Error> {
        Self::open_with(options, Faults::default()).await
    }

    pub(crate) async fn open_with(
        options: Options,
        faults: Faults,
    ) -> Result<(Self, Recovered), Error> {
        let seams = faults.clone();
        let (options, opened) = task::blocking("open the journal", move || {
            let opened = recovery::open(&options, seams);
            (options, opened)
        })
        .await;
        let (journal, recovered) = threads::start(options, opened?, faults);
        let begin = journal.shared.sequencer().last;
        journal.durable(Ticket { lsn: begin }).await?;
        Ok((journal, recovered))
    }

    /// Where the memory that the values of runs take is counted.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.shared.memory)
    }

    /// Commits `changes`, all or none. On return they are applied and on their way to the disk. Waits only while a slow disk
    /// keeps thousands of commits waiting, and to put payloads over 64 KiB into the object store: that is done for a
    /// commit that would be accepted, so that one that is refused leaves none there. Cancel safe: all or nothing then too.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Committed, Error> {
        self.commit_as(changes, None).await
    }

    /// The same. If the commit is refused because money lacks that only open calls hold, there is a `place` in the line from then on,
    /// with which to ask again once it is called; a commit that is accepted leaves the line.
    pub async fn commit_in_line(
        &self,
        changes: Vec<Change>,
        place: &mut Option<Place>,
    ) -> Result<Committed, Error> {
        let committed = self.commit_as(changes, Some(place)).await?;
        *place = None;
        Ok(committed)
    }

    async fn commit_as(&self, changes: Vec<Change>, asker: Asker<'_>) -> Result<Committed, Error> {
        let depth = |change: &Change| Some(self.snapshot(&change.run)?.spec.depth);
        self.shared.log.faults.before_commit(depth, &changes).await;
        let permit = self.shared.backlog.place().await?;
        let short = |change: &Change| Rendered::short(&change.event);
        let texts: Vec<Option<Rendered>> = changes.iter().map(short).collect();
        let (changes, texts) = if texts.iter().all(Option::is_some) {
            (changes, texts.into_iter().flatten().collect())
        } else {
            self.spill(changes, texts).await?
        };
        self.shared.append(changes, texts, permit, asker)
    }

    /// Puts the payloads of `changes` for which there is no text into the object store, one at a time.
    async fn spill(
        &self,
        changes: Vec<Change>,
        texts: Vec<Option<Rendered>>,
    ) -> Result<(Vec<Change>, Vec<Rendered>), Error> {
        let changes = self.shared.admit(changes)?;
        let shared = Arc::clone(&self.shared);
        let spilled = task::blocking("keep long payloads", move || {
            let spill = |(change, text): (&Change, Option<Rendered>)| match text {
                Some(text) => Ok(text),
                None => Rendered::spilled(&change.event, &shared.objects),
            };
            let texts = changes.iter().zip(texts).map(spill);
            let texts = texts.collect::<Result<_, _>>()?;
            Ok((changes, texts))
        });
        spilled.await.map_err(Error::Object)
    }

    /// Commits one short fact without waiting for anything, from where nothing can wait.
    pub fn note(&self, run: &RunId, event: Event) -> Result<Committed, Error> {
        let permit = self.shared.backlog.place_now()?;
        let text = Rendered::of(&event);
        let change = Change::event(run, event);
        self.shared.append(vec![change], vec![text], permit, None)
    }

    /// The last event of a live run as committed, durable or not; `None` if the run is not in memory.
    pub fn commits(&self, id: &RunId) -> Option<watch::Receiver<Seq>> {
        Some(self.shared.stream(id)?.committed.subscribe())
    }

    /// The time as the log knows it.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// 64 unpredictable bits.
    pub fn random(&self) -> u64 {
        self.shared.clock.random()
    }

    /// Resolves when the commit is on disk: effects that depend on it may start. Cancel safe.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Error> {
        self.shared
            .durable
            .reach(ticket.lsn)
            .await
            .map_err(Error::Failed)
    }

    /// Resolves when the commit is durable, its heads are signed and listeners have it. Cancel safe.
    pub async fn published(&self, ticket: Ticket) -> Result<(), Error> {
        self.shared
            .published
            .reach(ticket.lsn)
            .await
            .map_err(Error::Failed)
    }

    /// Resolves with the reason when the journal has given up, or is closed.
    pub async fn failed(&self) -> Failure {
        self.shared.durable.failed().await
    }

    /// Sentences on what history has lost or cannot read, as it was found at the start.
    pub fn history_notes(&self) -> &[String] {
        &self.shared.history_notes
    }

    /// Whether the log can grow, as it changes.
    pub fn storage(&self) -> watch::Receiver<Storage> {
        self.shared.log.pool.storage().subscribe()
    }

    /// As if the disk of the log had filled up, or had space again.
    #[cfg(test)]
    pub(crate) fn pretend(&self, storage: Storage) {
        self.shared.log.pool.storage().send_replace(storage);
    }

    /// Who signs what the journal shows.
    pub fn signer(&self) -> Arc<dyn Signer> {
        Arc::clone(&self.shared.signer)
    }

    /// Resolves when the run has ended and its end is durable. Cancel safe.
    pub async fn ended(&self, id: &RunId) -> Result<(), Error> {
        self.rests(id, |rest| rest.ended).await
    }

    /// Resolves when the run has ended, or was suspended by an event after `since` even if it resumed at once, and that is
    /// published. Cancel safe.
    pub async fn rested(&self, id: &RunId, since: Seq) -> Result<(), Error> {
        self.rests(id, |rest| rest.ended || rest.at > since).await
    }

    async fn rests(&self, id: &RunId, enough: impl Fn(&Rest) -> bool) -> Result<(), Error> {
        let Some(stream) = self.shared.stream(id) else {
            return match self.shared.indexed(id).await? {
                Some(_) => Ok(()),
                None => Err(Error::Unknown { run: id.clone() }),
            };
        };
        let mut rest = stream.rest.subscribe();
        tokio::select! {
            _ = rest.wait_for(enough) => Ok(()),
            failure = self.shared.durable.failed() => Err(Error::Failed(failure)),
        }
    }

    /// Reads the events of `id` after `since` and those that come, and what its model says meanwhile.
    pub async fn listen(&self, id: &RunId, since: Seq) -> Result<Live, Error> {
        let stream = self.shared.stream(id);
        let events = self
            .read(Of::Run(id.clone()), Since::Seq(since), Until::Ended)
            .await?;
        Ok(Live::new(events, stream, since))
    }

    /// Who tells what a model says in the call that begins; `None` if the run is not in memory.
    pub fn speaker(&self, id: &RunId) -> Option<Speaker> {
        self.shared.stream(id).map(Speaker::begin)
    }

    /// All events that are published now.
    #[cfg(test)]
    pub(crate) async fn history(&self, id: &RunId) -> Result<Vec<Line>, Error> {
        let mut cursor = self
            .read(Of::Run(id.clone()), Since::Begin, Until::Now)
            .await?;
        let mut lines = Vec::new();
        while let Some(page) = cursor.next_page().await? {
            lines.extend(page.into_iter().filter_map(Read::line));
        }
        Ok(lines)
    }

    /// Closes in order, however long that takes.
    pub async fn close(&self) -> Result<(), Error> {
        self.close_within(Duration::MAX).await
    }

    /// Closes in order: a last checkpoint, a last frame that vouches for all before it, the end of all threads.
    /// Commits are refused from the first moment on. What takes longer than `patience` is left: the next start makes files and the
    /// index again from the log.
    pub async fn close_within(&self, patience: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let left = || patience.saturating_sub(begun.elapsed());
        let (reply, checkpointed) = oneshot::channel();
        if !self.shared.sequencer().begin_close(reply) {
            return Ok(());
        }
        let checkpointed = tokio::time::timeout(left() / 2, checkpointed);
        if !matches!(checkpointed.await, Ok(Ok(()))) {
            tracing::warn!("the journal closes without a last checkpoint");
        }
        let lsn = {
            let mut sequencer = self.shared.sequencer();
            let lsn = sequencer.advance();
            let at = self.shared.clock.now();
            let body = Body::Closed { at }.encode();
            let sync = Syncing::Now;
            self.shared
                .log
                .queue
                .post(|jobs| jobs.push(log::Job { lsn, body, sync }));
            lsn
        };
        let written = tokio::time::timeout(left(), self.durable(Ticket { lsn }));
        let written = written.await.unwrap_or_else(|_late| {
            tracing::warn!("the disk does not answer: the log ends without a last frame");
            Ok(())
        });
        let shared = Arc::clone(&self.shared);
        let workers = std::mem::take(&mut *lock(&self.threads));
        let stopped = task::blocking("close the journal", move || threads::stop(&shared, workers));
        if tokio::time::timeout(left(), stopped).await.is_err() {
            tracing::warn!("the threads of the journal have not ended; the next start continues");
        }
        written
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let workers = std::mem::take(&mut *lock(&self.threads));
        if !workers.is_empty() {
            threads::stop(&self.shared, workers);
        }
    }
}
