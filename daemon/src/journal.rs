//! The journal: what has happened, and the only way anything happens.
//!
//! **Owns** the log, the records of all runs, their archive and index, their feeds and the files in their projects.
//! **Never** lets anything out (an answer, an event, a file) before it is on disk, and never decides: an
//! [`Event`] is a fact somebody else decided.
//!
//! ```text
//!            ┌ lock ──────────────┐        writer ── fdatasync ──► durable ─┐
//! commit ──► │ check apply number │ ──► ┤                                  ▼
//!            └────────────────────┘        publisher ── render, sign ── wait ──► published ──► feeds, waiters
//!                                                                         │
//!                                                  keeper (archive, index, base) ◄── projector (project files)
//! ```
//!
//! **Order.** The LSN orders commits, the seq the events of a run. Everything follows the LSN: writing, publishing,
//! projecting, archiving. A ticket's [`Journal::durable`] is where a run's next effect may start; [`Journal::published`] is
//! where its head is signed and its listeners have it.
//!
//! **Failure.** A write or sync of the log that fails is final: [`Journal::failed`] resolves, nothing is answered any more.
//! A full disk is not: [`Journal::storage`] says so, new work is refused with [`Error::Full`], runs can still park and end.
//! Dropping the journal is a crash without the crash: what was queued is written, nothing is rounded off.
//! A kill at any instant loses no acknowledged commit; see `recovery` for how a torn end is told from damage.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use rye_core::clock::{Clock, Timestamp};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{Epoch, ItemRef, Lsn, RunId, Seq};
use rye_core::model::{Birth, Event, Illegal, Object, Run, RunKind, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::{object, task};

mod archive;
mod beneath;
mod faults;
mod feed;
mod history;
mod index;
mod keeper;
mod listing;
mod log;
mod mailbox;
mod mark;
mod projector;
mod publisher;
mod record;
mod recovery;
mod render;
mod segment;
mod sequencer;
#[cfg(test)]
mod tests;
mod track;
mod transcript;

use archive::Archive;
use faults::Faults;
use index::{Index, IndexError};
use keeper::Keeper;
use log::{Log, Writer};
use mailbox::Mailbox;
use mark::{Mark, lock};
use projector::Projector;
use record::{Body, Rendered};
use sequencer::{CheckpointJob, Prepared, Sequencer};

pub use feed::{Feed, FeedError};
pub use index::IndexError as BrokenIndex;
pub use listing::{Filter, Page};
pub use mark::Failure;
pub use segment::Storage;

/// Commits between the sequencer and the publisher: far more than there are runs that wait for one each.
const PUBLISHER_QUEUE: usize = 4096;

/// Signs what the journal shows. All signatures are pure functions of their input, so that lost lines come back
/// byte for byte.
pub trait Notary: Send + Sync {
    /// The token `rye:signed:…` over a SHA-256 in hexadecimal.
    fn sign_hex(&self, hash_hex: &str, at: Timestamp) -> String;
    /// The Markdown `body` under its signature line.
    fn sign_text(&self, body: &str, at: Timestamp) -> String;
    /// The object with its `_signature`.
    fn sign_json(&self, object: &Object, at: Timestamp) -> Object;
    /// Whether `token` is this node's signature of `hash_hex`.
    fn verify_hex(&self, token: &str, hash_hex: &str) -> bool;
}

/// What a journal needs to open.
#[derive(Clone)]
pub struct Options {
    /// The state directory; its owner holds the lock on it.
    pub dir: PathBuf,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Who signs.
    pub notary: Arc<dyn Notary>,
    /// Length of a log segment in bytes.
    pub segment_bytes: u64,
}

impl Options {
    /// The defaults for the state directory `dir`: segments of 16 MiB.
    pub fn new(dir: PathBuf, clock: Arc<dyn Clock>, notary: Arc<dyn Notary>) -> Self {
        Self {
            dir,
            clock,
            notary,
            segment_bytes: 16 << 20,
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
    /// Runs that have not ended.
    pub live: Vec<Arc<Run>>,
}

/// One fact to be committed.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a change lives no longer than the call that commits it"
)]
pub enum Change {
    /// A run is accepted.
    Create {
        /// Its id, which must be new.
        id: RunId,
        /// What is fixed about it.
        birth: Arc<Birth>,
    },
    /// Something happened to a run.
    Event {
        /// The run.
        run: RunId,
        /// What happened.
        event: Event,
    },
}

/// The receipt of a commit that is in order and on its way to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a commit counts once it is durable"]
pub struct Ticket {
    /// Its position.
    pub lsn: Lsn,
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
    /// Its content; a long one as `{"object": <sha256>, "bytes": n}`.
    pub payload: Value,
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
}

impl Summary {
    /// The short form of a record.
    pub fn of(run: &Run) -> Self {
        Self {
            id: run.id.clone(),
            item: run.birth.item.clone(),
            kind: run.birth.kind,
            status: run.status(),
            project: run.birth.project.clone(),
            principal: run.birth.principal.clone(),
            parent: run.birth.parent.clone(),
            created_at: run.created_at,
            started_at: run.started_at,
            updated_at: run.updated_at,
            ended_at: run.ended_at,
            steps: run.progress.steps,
        }
    }
}

/// Why the journal cannot do its part.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the state directory cannot be used.
    #[error("failed to {what} `{}`", path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A frame that was once on disk is damaged. Nothing was changed.
    #[error("the log is damaged at byte {offset} of `{}`; restore the state directory from a copy", path.display())]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where the bad frame starts.
        offset: u64,
    },
    /// A part of the store is gone that other parts refer to. Nothing was changed.
    #[error("`{}` is missing or too short; restore the state directory from a copy", path.display())]
    Missing {
        /// What is missing.
        path: PathBuf,
    },
    /// A sound frame says something this version does not understand. Nothing was changed.
    #[error("the record at byte {offset} of `{}` cannot be understood", path.display())]
    Unreadable {
        /// The segment.
        path: PathBuf,
        /// Where the frame starts.
        offset: u64,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The journal gave up; the daemon must end.
    #[error("the journal does not work any more")]
    Failed(#[source] Failure),
    /// The journal is closed or closing.
    #[error("the journal is closed")]
    Closed,
    /// The disk is full: nothing new is admitted.
    #[error("the disk that holds the log is full")]
    Full,
    /// A run of that id exists.
    #[error("run {run} exists already")]
    Exists {
        /// The run.
        run: RunId,
    },
    /// The start key was used before.
    #[error("the start key belongs to run {run}")]
    KeyTaken {
        /// The run it started.
        run: RunId,
    },
    /// There is no such run, or it has ended and left memory.
    #[error("run {run} is not live")]
    NotLive {
        /// The run.
        run: RunId,
    },
    /// There is no such run.
    #[error("there is no run {run}")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// The run cannot take that event now.
    #[error("run {run} refuses the event")]
    Illegal {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        source: Illegal,
    },
    /// A long payload could not be put away.
    #[error("failed to keep a long payload")]
    Object(#[source] object::Error),
    /// The events of a run are not what was written.
    #[error("the history of run {run} is damaged")]
    DataLoss {
        /// The run.
        run: RunId,
        /// Where, and how.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The index of ended runs does not answer.
    #[error("ended runs cannot be looked up")]
    Index(#[source] Arc<IndexError>),
    /// A page token that this journal never gave out.
    #[error("`{token}` is not a page token")]
    PageToken {
        /// The token.
        token: String,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Files { .. } | Self::Failed(_) | Self::Closed | Self::Index(_) => {
                ErrorKind::Unavailable
            }
            Self::Object(source) => source.kind(),
            Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::DataLoss { .. } => ErrorKind::DataLoss,
            Self::Full => ErrorKind::Exhausted,
            Self::Exists { .. } | Self::KeyTaken { .. } => ErrorKind::Exists,
            Self::NotLive { .. } => ErrorKind::Precondition,
            Self::Illegal { source, .. } => source.kind(),
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::PageToken { .. } => ErrorKind::Invalid,
        }
    }
}

/// The index as readers see it.
#[derive(Debug, Clone)]
enum IndexState {
    Opening,
    Ready(Index),
    Broken(Arc<IndexError>),
}

/// What the journal's threads and its callers share.
struct Shared {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    notary: Arc<dyn Notary>,
    objects: object::Store,
    sequencer: Mutex<Sequencer>,
    log: Arc<Log>,
    durable: Arc<Mark>,
    published: Mark,
    projections: Mailbox<projector::Inbox>,
    keeping: Mailbox<keeper::Inbox>,
    archive: Archive,
    index: watch::Sender<IndexState>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("dir", &self.dir)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Locks the sequencer. A panic inside it is the end of the journal, not of whoever comes next.
    fn sequencer(&self) -> MutexGuard<'_, Sequencer> {
        self.sequencer.lock().unwrap_or_else(|poisoned| {
            self.durable.fail(Failure::Panicked("sequencer"));
            poisoned.into_inner()
        })
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

    async fn open_with(options: Options, faults: Faults) -> Result<(Self, Recovered), Error> {
        let seams = faults.clone();
        let (options, opened) = task::blocking("open the journal", move || {
            let opened = recovery::open(&options, seams);
            (options, opened)
        })
        .await;
        let (journal, recovered) = Self::start(options, opened?, faults);
        let begin = journal.shared.sequencer().last;
        journal.durable(Ticket { lsn: begin }).await?;
        Ok((journal, recovered))
    }

    /// Starts the threads on what was recovered, and queues the frame of the new epoch.
    fn start(options: Options, opened: recovery::Opened, faults: Faults) -> (Self, Recovered) {
        let epoch = Epoch(opened.epoch.0 + 1);
        let live: Vec<Arc<Run>> = opened
            .runs
            .values()
            .map(|live| Arc::clone(&live.run))
            .filter(|run| !run.status().is_terminal())
            .collect();
        let (sender, jobs) = sync_channel(PUBLISHER_QUEUE);
        let replayed = opened.last;
        let mut sequencer = Sequencer::new(replayed, epoch, opened.runs, sender);
        let log = Arc::new(Log::new(
            log::directory(&options.dir),
            opened.pool,
            opened.places,
            faults,
        ));
        let durable = Arc::new(Mark::new(replayed));
        let writer = Writer::new(
            Arc::clone(&log),
            Arc::clone(&durable),
            opened.tail,
            opened.tail_end,
            replayed,
        );
        let lsn = sequencer.advance();
        let at = options.clock.now();
        let body = Body::Epoch { at, epoch }.encode();
        log.queue.post(|jobs| jobs.push(log::Job { lsn, body }));
        let shared = Arc::new(Shared {
            dir: options.dir,
            clock: options.clock,
            notary: options.notary,
            objects: opened.objects,
            sequencer: Mutex::new(sequencer),
            log,
            durable,
            published: Mark::new(opened.base),
            projections: Mailbox::default(),
            keeping: Mailbox::default(),
            archive: opened.archive,
            index: watch::Sender::new(IndexState::Opening),
        });
        if let Err(error) = shared.log.drop_through(opened.base) {
            tracing::warn!(%error, "log segments that are not needed cannot be removed");
        }
        look_at_transcripts(&shared);
        let threads = start_threads(&shared, writer, opened.backlog, jobs, opened.known, lsn);
        let journal = Self {
            shared,
            threads: Mutex::new(threads),
        };
        (journal, Recovered { epoch, live })
    }

    /// Commits `changes`, all or none. On return they are applied and on their way to the disk. Waits only to put
    /// payloads over 64 KiB into the object store.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Ticket, Error> {
        let mut prepared = Vec::with_capacity(changes.len());
        for change in changes {
            let (run, event) = match change {
                Change::Create { id, birth } => (id, Event::RunCreated(birth)),
                Change::Event { run, event } => (run, event),
            };
            let mut text = Rendered::of(&event);
            if text.is_long() {
                let shared = Arc::clone(&self.shared);
                text = task::blocking("keep a long payload", move || text.spill(&shared.objects))
                    .await
                    .map_err(Error::Object)?;
            }
            prepared.push(Prepared { run, event, text });
        }
        let lsn = self.shared.append(prepared)?;
        Ok(Ticket { lsn })
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

    /// Whether the log can grow, as it changes.
    pub fn storage(&self) -> watch::Receiver<Storage> {
        self.shared.log.pool.storage().subscribe()
    }

    /// This life of the daemon.
    pub fn epoch(&self) -> Epoch {
        self.shared.sequencer().epoch
    }

    /// The store of long payloads.
    pub fn objects(&self) -> &object::Store {
        &self.shared.objects
    }

    /// Resolves when the run has ended and its end is durable. Cancel safe.
    pub async fn ended(&self, id: &RunId) -> Result<(), Error> {
        let Some(track) = self.shared.track(id) else {
            return match self.indexed(id).await? {
                Some(_) => Ok(()),
                None => Err(Error::Unknown { run: id.clone() }),
            };
        };
        let mut ended = track.ended.subscribe();
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => Ok(()),
            failure = self.shared.durable.failed() => Err(Error::Failed(failure)),
        }
    }

    /// All events from `from` on, so far, then those that come, up to the one that ends the run.
    pub async fn subscribe(&self, id: &RunId, from: Seq) -> Result<Feed, Error> {
        let before = Seq(from.0.saturating_sub(1));
        let Some(track) = self.shared.track(id) else {
            return Ok(Feed::new(
                self.archived_history(id, from).await?,
                None,
                before,
            ));
        };
        let (shown, live) = {
            let mut published = track.published();
            let shown = published.head.seq;
            let live = (!*track.ended.borrow()).then(|| published.listen());
            (shown, live)
        };
        let replay = self.history_between(id, track, from, shown).await?;
        Ok(Feed::new(replay, live, shown.max(before)))
    }

    /// All events that are durable now.
    pub async fn history(&self, id: &RunId) -> Result<Vec<Line>, Error> {
        match self.shared.track(id) {
            Some(track) => {
                // Right after the start the publisher is still at what the log held.
                let lsn = self.shared.durable.get();
                let caught_up = self.shared.published.reach(lsn);
                caught_up.await.map_err(Error::Failed)?;
                let shown = track.head().seq;
                self.history_between(id, track, Seq(1), shown).await
            }
            None => self.archived_history(id, Seq(1)).await,
        }
    }

    async fn history_between(
        &self,
        id: &RunId,
        track: Arc<track::Track>,
        first: Seq,
        last: Seq,
    ) -> Result<Vec<Line>, Error> {
        if first > last {
            return Ok(Vec::new());
        }
        let shared = Arc::clone(&self.shared);
        let evicted = Arc::clone(&track);
        let lines = task::blocking("read a history", move || {
            history::of_track(&shared, &track, first, last)
        })
        .await;
        match lines {
            // It ended and was archived while we read: the archive knows its final head.
            Err(Error::DataLoss { .. })
                if *evicted.ended.borrow() && self.shared.track(id).is_none() =>
            {
                let mut lines = self.archived_history(id, first).await?;
                lines.retain(|line| line.seq <= last);
                Ok(lines)
            }
            lines => lines,
        }
    }

    /// Closes in order: a last checkpoint, a last frame that vouches for all before it, the end of all threads.
    /// Commits are refused from the first moment on.
    pub async fn close(&self) -> Result<(), Error> {
        let (reply, checkpointed) = oneshot::channel();
        if !self.shared.sequencer().begin_close(reply) {
            return Ok(());
        }
        if checkpointed.await.is_err() {
            tracing::debug!("the journal closes without a last checkpoint");
        }
        let lsn = {
            let mut sequencer = self.shared.sequencer();
            let lsn = sequencer.advance();
            let at = self.shared.clock.now();
            let body = Body::Closed { at }.encode();
            self.shared
                .log
                .queue
                .post(|jobs| jobs.push(log::Job { lsn, body }));
            lsn
        };
        let written = self.durable(Ticket { lsn }).await;
        let shared = Arc::clone(&self.shared);
        let threads = std::mem::take(&mut *lock(&self.threads));
        task::blocking("close the journal", move || stop(&shared, threads)).await;
        written
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        if !threads.is_empty() {
            stop(&self.shared, threads);
        }
    }
}

/// Lets every thread finish what it has, and joins it.
fn stop(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.sequencer().hang_up();
    shared.log.queue.close();
    shared.log.pool.stop();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the journal panicked");
        }
    }
}

/// Has the projector compare the transcripts of live runs with what is on record, whether or not there is more to come.
fn look_at_transcripts(shared: &Shared) {
    let sequencer = shared.sequencer();
    for live in sequencer.runs.values() {
        let head = live.track.head();
        shared.projections.post(|inbox| {
            inbox.add(projector::Pending {
                track: Arc::clone(&live.track),
                start: head,
                end: head,
                lines: Some(Vec::new()),
                pages: projector::Pages::Keep,
                settled: None,
            });
        });
    }
}

/// Each thread ends when the one before it does: writer and publisher when the sequencer hangs up, then the
/// projector, then the keeper.
fn start_threads(
    shared: &Arc<Shared>,
    writer: Writer,
    backlog: Vec<publisher::Commit>,
    jobs: std::sync::mpsc::Receiver<publisher::Job>,
    known: std::collections::HashMap<RunId, archive::Spot>,
    begin: Lsn,
) -> Vec<JoinHandle<()>> {
    let publisher = Arc::clone(shared);
    let projector = Projector::new(Arc::clone(shared));
    let keeper = Keeper::new(Arc::clone(shared), known);
    let preparer = Arc::clone(&shared.log);
    vec![
        start_thread(
            "writer",
            shared,
            move || writer.run(),
            |shared| {
                shared.durable.fail(Failure::Closed);
            },
        ),
        start_thread(
            "publisher",
            shared,
            move || publisher::run(&publisher, backlog, begin, &jobs),
            |shared| shared.projections.close(),
        ),
        start_thread(
            "projector",
            shared,
            move || projector.run(begin),
            |shared| {
                shared.keeping.close();
            },
        ),
        start_thread("keeper", shared, move || keeper.run(), |_| {}),
        start_thread("preparer", shared, move || preparer.pool.maintain(), |_| {}),
    ]
}

/// A panic of `work` fails the journal; `after` runs in any case.
fn start_thread(
    name: &'static str,
    shared: &Arc<Shared>,
    work: impl FnOnce() + Send + 'static,
    after: impl FnOnce(&Shared) + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    task::worker(name, move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            shared.durable.fail(Failure::Panicked(name));
            shared.published.fail(Failure::Panicked(name));
        }
        after(&shared);
    })
}
