//! The thread that moves published commits into history, and frees log and memory.
//!
//! **Owns** the times at which sections are made, and the ended runs that are still in memory. It seals when a log
//! segment is full, when many runs have ended or none has for a while ([`SealBounds`]), and when the journal closes.
//! **Never** touches a file of a project. **Order.** Objects of a record are written before the section that names
//! them, the section before the index, and an ended run leaves memory last. Sections are written before the base, and
//! the base before a segment of the log is removed. **Failure.** A failed write is retried every second; until then
//! memory and log keep the data. A damaged frame in the log fails the journal, like a failed write of the log.

pub(crate) mod sections;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::state::Closed;
use rye_host::fail_point::{self, FailPlace};
use rye_host::task;
use tokio::sync::oneshot;

use self::sections::Material;
use crate::base::{Base, BaseHead, Span, Stored};
use crate::coalescing_queue::CoalescingQueue;
use crate::faults::Faults;
use crate::history;
use crate::index::{IndexError, Keeper};
use crate::jobs::{CheckpointJob, Ended, Inbox};
use crate::options::SealBounds;
use crate::watermark::Failure;

/// Number of log segments beyond which storage counts as full if history cannot be written.
const MAX_UNSEALED: usize = 8;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Sealer {
    dir: PathBuf,
    material: Material,
    history: Arc<history::Store>,
    inbox: Arc<CoalescingQueue<Inbox>>,
    faults: Faults,
    bounds: SealBounds,
    index: Keeper,
    /// Ended runs that are not in history yet.
    ended: Vec<Ended>,
    /// Bytes that their values take.
    bytes: usize,
    last_end: Instant,
    retry_at: Instant,
    /// Ended runs that are in history, but not in the index.
    sealed: Vec<Ended>,
    /// True if history lacks a removal.
    has_removals: bool,
    /// True if the last write of history failed.
    has_failed: bool,
    /// Callers that wait until history has everything that was published when they called.
    waiting: Vec<oneshot::Sender<bool>>,
}

impl Sealer {
    /// `dir` is the state directory.
    pub(crate) fn new(
        dir: PathBuf,
        material: Material,
        history: Arc<history::Store>,
        index: Keeper,
        inbox: Arc<CoalescingQueue<Inbox>>,
        bounds: SealBounds,
    ) -> Self {
        let now = Instant::now();
        Self {
            dir,
            faults: material.log.faults.clone(),
            material,
            history,
            index,
            inbox,
            bounds,
            ended: Vec::new(),
            bytes: 0,
            last_end: now,
            retry_at: now,
            sealed: Vec::new(),
            has_removals: false,
            has_failed: false,
            waiting: Vec::new(),
        }
    }

    /// Works until the queue is closed. The log was replayed up to `begin`, and the base ends at `base`. The body of
    /// the sealer thread.
    pub(crate) fn run(mut self, base: Lsn, begin: Lsn) {
        self.index.open_if_due();
        if self
            .material
            .published
            .watermark
            .reach_blocking(begin)
            .is_ok()
        {
            self.find_spans(base);
        }
        loop {
            let mut first = self.inbox.take(self.pause());
            self.faults.before_position();
            // The publisher queues an ended run before it advances the watermark, so this take gets all runs that ended
            // up to `published`.
            let published = self.material.published.watermark.get();
            let mut rest = self.inbox.take(Some(Duration::ZERO));
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.append(&mut first.value.waiting);
            self.waiting = std::mem::take(&mut rest.value.waiting);
            let checkpoint = self.receive(first.value);
            let checkpoint = self.receive(rest.value).or(checkpoint);
            if self.index.open_if_due() {
                self.evict();
            }
            if self.is_due() || !waiting.is_empty() {
                let is_sealed = self.seal(published);
                for asker in waiting {
                    task::reply(asker, is_sealed && self.sealed.is_empty());
                }
            }
            if let Some(job) = checkpoint {
                self.checkpoint(job);
            }
            if rest.closed {
                self.index.close(IndexError::Closed);
                return;
            }
        }
    }

    fn receive(&mut self, inbox: Inbox) -> Option<CheckpointJob> {
        let history = self.history.last();
        for ended in inbox.ended {
            self.last_end = Instant::now();
            if ended.lsn <= history {
                // A crash came between its section and the base.
                self.sealed.push(ended);
            } else {
                self.bytes += ended.run.held();
                self.ended.push(ended);
            }
        }
        if inbox.suspect {
            self.index.distrust();
        } else if self.index.is_open() {
            self.evict();
        }
        // The section that records them comes later; until then the index of the next start still lists them.
        self.has_removals |= !inbox.removals.is_empty();
        self.index.remove(&inbox.removals);
        inbox.checkpoint
    }

    /// Returns the longest time to wait for more.
    fn pause(&self) -> Option<Duration> {
        let now = Instant::now();
        let left = |until: Instant| until.saturating_duration_since(now);
        let index = (!self.index.is_on_disk()).then_some(RETRY);
        let seal = self.has_something().then(|| left(self.due()));
        let waiting = (!self.waiting.is_empty()).then_some(Duration::ZERO);
        index.into_iter().chain(seal).chain(waiting).min()
    }

    /// Returns the time at which ended runs are sealed.
    fn due(&self) -> Instant {
        let is_full = self.ended.len() >= self.bounds.runs || self.bytes >= self.bounds.bytes;
        let due = if is_full || self.has_removals || self.has_failed {
            self.last_end
        } else {
            self.last_end + self.bounds.idle
        };
        due.max(self.retry_at)
    }

    fn has_something(&self) -> bool {
        !self.ended.is_empty() || self.has_removals || self.has_failed
    }

    fn is_due(&self) -> bool {
        self.has_something() && Instant::now() >= self.due()
    }

    /// Moves everything published up to `upto` into history. Returns true if history has all of it.
    fn seal(&mut self, upto: Lsn) -> bool {
        while self.history.last() < upto {
            match self.seal_section(upto) {
                Ok(()) => {}
                Err(error) => {
                    self.retry_at = Instant::now() + RETRY;
                    tracing::warn!(%error, "history cannot be written; log and memory keep what it lacks");
                    self.has_failed = true;
                    let is_behind = self.material.log.segments() > MAX_UNSEALED;
                    self.material.log.pool.set_unsealed_backlog(is_behind);
                    if error.kind() == io::ErrorKind::InvalidData {
                        let failure = Failure::Write(Arc::new(error));
                        self.material.log.durable.fail(failure);
                    }
                    return false;
                }
            }
        }
        (self.has_removals, self.has_failed) = (false, false);
        self.material.log.pool.set_unsealed_backlog(false);
        true
    }

    fn seal_section(&mut self, upto: Lsn) -> io::Result<()> {
        // Positions that the log has dropped are in history, or were lost with a file of it.
        let from = self.history.last().next().max(self.material.log.first());
        let built = sections::build(&self.material, from, upto, &self.ended)?;
        let last = built.section.last;
        let appended = self.history.append(&built.section);
        appended.map_err(io::Error::other)?;
        self.material.published.signatures.forget(last);
        for run in &built.section.runs {
            self.enter(&run.run, sections::span(run));
        }
        let (sealed, ended) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|ended| ended.lsn <= last);
        self.ended = ended;
        self.bytes = self.ended.iter().map(|ended| ended.run.held()).sum();
        self.sealed.extend::<Vec<_>>(sealed);
        fail_point::reach(FailPlace::Sealed);
        if self
            .index
            .apply(&built.entries, &built.section.removed, last)
        {
            fail_point::reach(FailPlace::Indexed);
            self.evict();
        }
        Ok(())
    }

    /// Records in the stream of a run that history has `span` of it.
    fn enter(&self, run: &RunId, span: Option<Span>) {
        if let Some((stream, span)) = self.material.sequencer.stream(run).zip(span) {
            stream.seal(span);
        }
    }

    /// Adds the spans of live runs that history holds beyond the base.
    fn find_spans(&self, base: Lsn) {
        for section in self.history.sections(base) {
            match section.read() {
                Ok(read) => {
                    for run in &read.directory().runs {
                        let lsn = section.last();
                        let span = run.seqs().map(|(first, _)| Span { first, lsn });
                        self.enter(&run.run, span);
                    }
                }
                Err(error) => tracing::error!(%error, "a part of history cannot be read"),
            }
        }
    }

    /// Removes the runs from memory that history and index hold.
    fn evict(&mut self) {
        self.material
            .sequencer
            .evict(self.sealed.iter().map(|ended| &ended.run.id));
        self.sealed.clear();
    }

    fn checkpoint(&mut self, job: CheckpointJob) {
        let lsn = job.lsn;
        if !self.seal(lsn) {
            tracing::info!(%lsn, "the log is kept: not everything in it is in history yet");
        } else if let Err(error) = self.write_base(&job) {
            tracing::warn!(%error, "the checkpoint failed; the log is kept");
        }
        if let Some(asker) = job.reply {
            task::reply(asker, ());
        }
    }

    fn write_base(&self, job: &CheckpointJob) -> io::Result<()> {
        let runs = job.runs.iter().map(|live| Stored {
            run: Arc::clone(&live.run),
            head: live.head,
            closed: Closed::default(),
            spans: live.stream.published().spans.clone(),
        });
        let head = BaseHead {
            lsn: job.lsn,
            epoch: job.epoch,
            history: self.history.end().map(|end| (end.file, end.length)),
            runs: job.runs.len(),
            ledger: job.ledger.clone(),
        };
        Base::write(&self.dir, &head, runs)?;
        fail_point::reach(FailPlace::BaseRenamed);
        self.material.log.drop_through(job.lsn)
    }
}
