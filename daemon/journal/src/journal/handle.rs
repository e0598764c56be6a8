//! The handle on a journal: commits, and waits for their effects.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rye_core::clock::{Clock, Timestamp};
use rye_core::id::{RunId, Seq};
use rye_core::memory::Memory;
use rye_core::model::Event;
use rye_core::state::Change;
use rye_host::{blobs, task};
use tokio::sync::watch;

use crate::coalescing_queue::CoalescingQueue;
use crate::compactor::Compactor;
use crate::error::Error;
use crate::jobs::Inbox;
use crate::log::{Log, Storage};
use crate::options::Signer;
use crate::reader::{Cursor, EventStore, Extract, Live, Of, Reader, RunStore, Since, Until};
use crate::record::Rendered;
use crate::sequencer::{BudgetSlot, Committed, Sequencer, Ticket, WaitSlot};
use crate::stream::run_stream::Rest;
use crate::stream::{DeltaSender, Published};
use crate::sweeper::Sweeper;
use crate::watermark::Failure;

/// The journal of one state directory. See the documentation of the crate.
pub struct Journal {
    pub(crate) runs: Arc<RunStore>,
    pub(crate) events: Arc<EventStore>,
    pub(crate) sequencer: Arc<Sequencer>,
    pub(crate) log: Arc<Log>,
    pub(crate) published: Arc<Published>,
    pub(crate) sealer: Arc<CoalescingQueue<Inbox>>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) sweeper: Arc<Sweeper>,
    pub(crate) objects: Arc<blobs::Store>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) signer: Arc<dyn Signer>,
    /// Messages about data that history had lost at the start.
    pub(crate) history_notes: Vec<String>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Journal {
    /// Returns the counter of the memory that the values of runs take.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Commits `changes`, all or none. On return they are applied and queued for the disk. Waits only in two cases:
    /// while a slow disk keeps thousands of commits waiting, and to store payloads over 64 KiB as objects. These are
    /// stored only if the commit would be accepted, so that a refused commit leaves no objects. Cancel safe: then too
    /// all or none are committed.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Committed, Error> {
        self.commit_as(changes, None).await
    }

    /// As [`Journal::commit`]. If the commit is refused because its budget is held by open calls, `place` is set to a
    /// place in the queue. The caller retries with it once it is woken. An accepted commit leaves the queue.
    pub async fn commit_or_queue(
        &self,
        changes: Vec<Change>,
        place: &mut Option<BudgetSlot>,
    ) -> Result<Committed, Error> {
        let committed = self.commit_as(changes, Some(place)).await?;
        *place = None;
        Ok(committed)
    }

    async fn commit_as(
        &self,
        changes: Vec<Change>,
        asker: WaitSlot<'_>,
    ) -> Result<Committed, Error> {
        let depth = |change: &Change| Some(self.snapshot(&change.run)?.spec.depth);
        self.log.faults.before_commit(depth, &changes).await;
        let permit = self.sequencer.backlog.place().await?;
        let short = |change: &Change| Rendered::short(&change.event);
        let texts: Vec<Option<Rendered>> = changes.iter().map(short).collect();
        let (changes, texts) = if texts.iter().all(Option::is_some) {
            (changes, texts.into_iter().flatten().collect())
        } else {
            self.spill(changes, texts).await?
        };
        self.keep_named(&texts);
        self.sequencer.append(changes, texts, permit, asker)
    }

    /// Stores the payloads of `changes` that have no text as objects, one at a time.
    async fn spill(
        &self,
        changes: Vec<Change>,
        texts: Vec<Option<Rendered>>,
    ) -> Result<(Vec<Change>, Vec<Rendered>), Error> {
        let changes = self.sequencer.admit(changes)?;
        let objects = Arc::clone(&self.objects);
        let spilled = task::blocking("keep long payloads", move || {
            let spill = |(change, text): (&Change, Option<Rendered>)| match text {
                Some(text) => Ok(text),
                None => Rendered::spilled(&change.event, &objects),
            };
            let texts = changes.iter().zip(texts).map(spill);
            let texts = texts.collect::<Result<_, _>>()?;
            Ok((changes, texts))
        });
        spilled.await.map_err(Error::Object)
    }

    /// Commits one short fact without waiting, for callers that cannot wait.
    pub fn note(&self, run: &RunId, event: Event) -> Result<Committed, Error> {
        let permit = self.sequencer.backlog.place_now()?;
        let text = Rendered::of(&event);
        let change = Change::event(run, event);
        let texts = vec![text];
        self.keep_named(&texts);
        self.sequencer.append(vec![change], texts, permit, None)
    }

    /// Keeps the objects that events name from being swept. A cached result may name an object of a removed run.
    fn keep_named(&self, texts: &[Rendered]) {
        for text in texts {
            self.objects.keep_named(text.payload.as_bytes());
        }
    }

    /// Returns the last event of a live run as committed, durable or not; `None` if the run is not in memory.
    pub fn commits(&self, id: &RunId) -> Option<watch::Receiver<Seq>> {
        Some(self.sequencer.stream(id)?.committed.subscribe())
    }

    /// Returns the time of the clock that stamps commits.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns 64 unpredictable bits.
    pub fn random(&self) -> u64 {
        self.clock.random()
    }

    /// Resolves when the commit is on disk: effects that depend on it may start. Cancel safe.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Error> {
        self.log
            .durable
            .reach(ticket.lsn)
            .await
            .map_err(Error::Failed)
    }

    /// Resolves when the commit is durable, its heads are signed and listeners have it. Cancel safe.
    pub async fn published(&self, ticket: Ticket) -> Result<(), Error> {
        self.published
            .watermark
            .reach(ticket.lsn)
            .await
            .map_err(Error::Failed)
    }

    /// Resolves with the reason when the journal has failed or is closed.
    pub async fn failed(&self) -> Failure {
        self.log.durable.failed().await
    }

    /// Messages about history that was lost or unreadable at the start.
    pub fn history_notes(&self) -> &[String] {
        &self.history_notes
    }

    /// Returns a watch on the storage of the log.
    pub fn storage(&self) -> watch::Receiver<Storage> {
        self.log.pool.storage().subscribe()
    }

    /// Sets the storage state for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn pretend(&self, storage: Storage) {
        self.log.pool.storage().send_replace(storage);
    }

    pub fn signer(&self) -> Arc<dyn Signer> {
        Arc::clone(&self.signer)
    }

    /// Resolves when the run has ended and its end is published. Cancel safe.
    pub async fn ended(&self, id: &RunId) -> Result<(), Error> {
        self.rests(id, |rest| rest.ended).await
    }

    /// Resolves when the run has ended, or was suspended by an event after `since` even if it resumed immediately, and
    /// that is published. Cancel safe.
    pub async fn rested(&self, id: &RunId, since: Seq) -> Result<(), Error> {
        self.rests(id, |rest| rest.ended || rest.at > since).await
    }

    async fn rests(&self, id: &RunId, enough: impl Fn(&Rest) -> bool) -> Result<(), Error> {
        let Some(stream) = self.sequencer.stream(id) else {
            return match self.runs.indexed(id).await? {
                Some(_) => Ok(()),
                None => Err(Error::Unknown { run: id.clone() }),
            };
        };
        let mut rest = stream.rest.subscribe();
        tokio::select! {
            _ = rest.wait_for(enough) => Ok(()),
            failure = self.log.durable.failed() => Err(Error::Failed(failure)),
        }
    }

    /// Opens a cursor and reads the first page, so that the caller gets the error if that cannot be read.
    pub async fn read(&self, of: Of, since: Since, until: Until) -> Result<Cursor, Error> {
        Cursor::open(&self.events, of, since, until).await
    }

    /// Opens the transcript of `id` up to the events that are published now.
    pub async fn transcript(&self, id: &RunId, extract: Extract) -> Result<Reader, Error> {
        Reader::open(&self.events, Arc::clone(&self.signer), id, extract).await
    }

    /// Subscribes to the events of `id` after `since`, past and new, and to the deltas of its model.
    pub async fn listen(&self, id: &RunId, since: Seq) -> Result<Live, Error> {
        let stream = self.sequencer.stream(id);
        let events = self
            .read(Of::Run(id.clone()), Since::Seq(since), Until::Ended)
            .await?;
        let ears = stream.map(|stream| Arc::clone(&stream.delta_listeners));
        Ok(Live::new(events, ears, since))
    }

    /// Returns the sender of deltas for the call that begins; `None` if the run is not in memory.
    pub fn delta_sender(&self, id: &RunId) -> Option<DeltaSender> {
        let stream = self.sequencer.stream(id)?;
        Some(DeltaSender::begin(Arc::clone(&stream.delta_listeners)))
    }

    /// Returns all events that are published now.
    #[cfg(any(test, feature = "testing"))]
    pub async fn history(&self, id: &RunId) -> Result<Vec<crate::record::Line>, Error> {
        let mut cursor = self
            .read(Of::Run(id.clone()), Since::Begin, Until::Now)
            .await?;
        let mut lines = Vec::new();
        while let Some(page) = cursor.next_page().await? {
            lines.extend(page.into_iter().filter_map(crate::reader::Read::line));
        }
        Ok(lines)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
