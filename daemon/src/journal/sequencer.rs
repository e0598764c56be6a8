//! The one critical section: events are checked, applied, numbered and queued in it, and nowhere else.
//!
//! A commit is all or nothing: every event is applied to a copy of its run before any of these takes the place of its run. Both
//! queues, the writer's and the publisher's, are filled under the lock, so their order is the order of the log.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, Lsn, RunId};
use rye_core::model::{Event, Run, RunEvent, Syncing};
use tokio::sync::oneshot;

use super::log;
use super::publisher::{self, Commit, Entry};
use super::record::{Rendered, encode_commit};
use super::run_stream::RunStream;
use super::segment::Storage;
use super::transcript::Head;
use super::{Error, Shared};

/// Start keys of ended runs that are kept when the run has left memory. Whoever found a key unused in the index may only now come
/// to use it; meanwhile far fewer runs come and go.
const LATE_KEYS: usize = 4096;

/// A run in memory.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) run: Arc<Run>,
    /// Position of its last event.
    pub(super) lsn: Lsn,
    pub(super) stream: Arc<RunStream>,
}

/// An event ready for the critical section.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) run: RunId,
    pub(super) event: Event,
    pub(super) text: Rendered,
}

/// A live run at a checkpoint.
#[derive(Debug)]
pub(super) struct CheckpointRun {
    pub(super) run: Arc<Run>,
    pub(super) stream: Arc<RunStream>,
    /// Filled in by the publisher, which knows it.
    pub(super) head: Head,
}

/// A point in the log before which nothing but base and archive shall be needed.
#[derive(Debug)]
pub(super) struct CheckpointJob {
    pub(super) lsn: Lsn,
    pub(super) epoch: Epoch,
    pub(super) runs: Vec<CheckpointRun>,
    /// Told when it is done, or has failed.
    pub(super) reply: Option<oneshot::Sender<()>>,
}

/// Principal and start key.
type Key = (String, String);

#[derive(Debug)]
pub(super) struct Sequencer {
    pub(super) last: Lsn,
    pub(super) epoch: Epoch,
    pub(super) runs: HashMap<RunId, Live>,
    keys: HashMap<Key, RunId>,
    /// Those of `keys` whose runs have left memory, the latest last.
    late: VecDeque<Key>,
    pub(super) closed: bool,
    publisher: Option<SyncSender<publisher::Job>>,
}

fn key(run: &Run) -> Option<Key> {
    let spec = &run.spec;
    spec.start_key
        .as_ref()
        .map(|key| (spec.principal.clone(), key.clone()))
}

impl Sequencer {
    pub(super) fn new(
        last: Lsn,
        epoch: Epoch,
        runs: HashMap<RunId, Live>,
        publisher: SyncSender<publisher::Job>,
    ) -> Self {
        let keys = runs
            .values()
            .filter_map(|live| Some((key(&live.run)?, live.run.id.clone())))
            .collect();
        Self {
            last,
            epoch,
            runs,
            keys,
            late: VecDeque::new(),
            closed: false,
            publisher: Some(publisher),
        }
    }

    pub(super) fn by_key(&self, principal: &str, key: &str) -> Option<RunId> {
        self.keys
            .get(&(principal.to_owned(), key.to_owned()))
            .cloned()
    }

    /// The position of the next frame.
    pub(super) fn advance(&mut self) -> Lsn {
        self.last = self.last.next();
        self.last
    }

    /// The records the events lead to, in order; nothing is changed.
    fn check(
        &self,
        at: Timestamp,
        prepared: &[Prepared],
        storage: Storage,
    ) -> Result<Vec<Arc<Run>>, Error> {
        let mut ahead: HashMap<&RunId, usize> = HashMap::new();
        let mut records: Vec<Arc<Run>> = Vec::with_capacity(prepared.len());
        for Prepared { run, event, .. } in prepared {
            if storage == Storage::Full && event.facets().begins {
                return Err(Error::Full);
            }
            let now = ahead
                .get(run)
                .map(|place| &records[*place])
                .or_else(|| self.runs.get(run).map(|live| &live.run));
            let next = match (event, now) {
                (Event::Run(RunEvent::RunCreated(_)), Some(_)) => {
                    return Err(Error::Exists { run: run.clone() });
                }
                (Event::Run(RunEvent::RunCreated(spec)), None) => {
                    if let Some(taken) = spec
                        .start_key
                        .as_ref()
                        .and_then(|key| self.by_key(&spec.principal, key))
                    {
                        return Err(Error::KeyTaken { run: taken });
                    }
                    Run::create(run.clone(), at, Arc::clone(spec))
                }
                (_, None) => return Err(Error::NotLive { run: run.clone() }),
                (event, Some(record)) => {
                    let mut next = Run::clone(record);
                    next.apply(at, event).map_err(|source| Error::Illegal {
                        run: run.clone(),
                        source,
                    })?;
                    next
                }
            };
            ahead.insert(run, records.len());
            records.push(Arc::new(next));
        }
        Ok(records)
    }

    /// Puts the records that checked events lead to in place.
    fn apply(&mut self, lsn: Lsn, prepared: Vec<Prepared>, records: Vec<Arc<Run>>) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(prepared.len());
        for (Prepared { run, event, text }, record) in prepared.into_iter().zip(records) {
            if let Event::Run(RunEvent::RunCreated(spec)) = &event {
                let stream = RunStream::new(run.clone(), Arc::clone(spec), Head::default());
                if let Some(key) = key(&record) {
                    self.keys.insert(key, run.clone());
                }
                let live = Live {
                    run: record,
                    lsn,
                    stream: Arc::new(stream),
                };
                entries.push(Entry::new(&live.stream, &event, text, &live.run));
                self.runs.insert(run, live);
                continue;
            }
            let live = self
                .runs
                .get_mut(&run)
                .expect("the check found it and the lock is held");
            live.lsn = lsn;
            live.run = record;
            entries.push(Entry::new(&live.stream, &event, text, &live.run));
        }
        entries
    }

    fn checkpoint(&self, reply: Option<oneshot::Sender<()>>) -> CheckpointJob {
        let runs = self
            .runs
            .values()
            .filter(|live| !live.run.status().is_terminal())
            .map(|live| CheckpointRun {
                run: Arc::clone(&live.run),
                stream: Arc::clone(&live.stream),
                head: Head::default(),
            })
            .collect();
        CheckpointJob {
            lsn: self.last,
            epoch: self.epoch,
            runs,
            reply,
        }
    }

    /// Hands over to the publisher. Blocks while its queue is full: it needs no lock of ours to empty it. If it is
    /// gone, the journal has failed and its marks say so.
    fn tell(&self, job: publisher::Job) {
        if let Some(publisher) = &self.publisher
            && publisher.send(job).is_err()
        {
            tracing::debug!("the publisher is gone");
        }
    }

    /// Refuses commits, and asks for a last checkpoint; `false` if that has happened before.
    pub(super) fn begin_close(&mut self, reply: oneshot::Sender<()>) -> bool {
        let first = !std::mem::replace(&mut self.closed, true);
        if first {
            let checkpoint = self.checkpoint(Some(reply));
            self.tell(publisher::Job::Checkpoint(checkpoint));
        }
        first
    }

    /// Lets the publisher end.
    pub(super) fn hang_up(&mut self) {
        self.closed = true;
        self.publisher = None;
    }

    pub(super) fn evict(&mut self, id: &RunId) {
        if let Some(live) = self.runs.remove(id)
            && let Some(key) = key(&live.run)
        {
            self.late.push_back(key);
            if self.late.len() > LATE_KEYS
                && let Some(oldest) = self.late.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
    }
}

impl Shared {
    /// Checks, applies, numbers and queues `prepared` as one commit.
    pub(super) fn append(&self, prepared: Vec<Prepared>) -> Result<Lsn, Error> {
        let storage = *self.log.pool.storage().borrow();
        let mut sequencer = self.sequencer();
        if let Some(failure) = self.durable.failure() {
            return Err(Error::Failed(failure));
        }
        if sequencer.closed {
            return Err(Error::Closed);
        }
        let at = self.clock.now();
        let records = sequencer.check(at, &prepared, storage)?;
        if prepared.is_empty() {
            return Ok(sequencer.last);
        }
        let lsn = sequencer.advance();
        let syncs = prepared.iter().map(|prepared| prepared.event.facets().sync);
        let sync = syncs.min().unwrap_or(Syncing::Now);
        let entries = sequencer.apply(lsn, prepared, records);
        let body = encode_commit(
            at,
            entries
                .iter()
                .map(|entry| (&entry.stream.id, entry.seq, &entry.text)),
        );
        self.log
            .queue
            .post(|jobs| jobs.push(log::Job { lsn, body, sync }));
        sequencer.tell(publisher::Job::Commit(Commit { lsn, at, entries }));
        if self
            .log
            .rolled
            .swap(false, std::sync::atomic::Ordering::Relaxed)
        {
            let checkpoint = sequencer.checkpoint(None);
            sequencer.tell(publisher::Job::Checkpoint(checkpoint));
        }
        Ok(lsn)
    }

    /// A record with the position of its last event.
    pub(super) fn snapshot(&self, id: &RunId) -> Option<(Arc<Run>, Lsn)> {
        let sequencer = self.sequencer();
        let live = sequencer.runs.get(id)?;
        Some((Arc::clone(&live.run), live.lsn))
    }

    pub(super) fn stream(&self, id: &RunId) -> Option<Arc<RunStream>> {
        let sequencer = self.sequencer();
        Some(Arc::clone(&sequencer.runs.get(id)?.stream))
    }

    /// Lets ended runs leave memory.
    pub(super) fn evict<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        let mut sequencer = self.sequencer();
        for id in ids {
            sequencer.evict(id);
        }
    }
}
