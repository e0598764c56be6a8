//! The thread that moves what is published into history, and frees log and memory.
//!
//! **Owns** when a section is made, and what has ended and is still in memory. It seals when a log segment is full, when many runs have
//! ended or none has for a while ([`SealBounds`]), and at the close. **Never** touches a file of a project. **Order.** Objects of a record,
//! then the section that names them, then the index, then an ended run leaves memory. Sections come before the base,
//! the base before a segment of the log goes. **Failure.** What cannot be written is tried again every second; until then memory and log
//! keep it. A damaged frame in the log ends the journal, as a failed write of the log does.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::model::Run;
use rye_core::state::Closed;
use rye_core::transcript::Head;
use rye_journal::history::Removal;
use tokio::sync::oneshot;

use super::Shared;
use super::base::{Base, BaseHead, Span, Stored};
use super::index::{IndexError, Keeper};
use super::publisher::CheckpointJob;
use super::run_stream::RunStream;
use super::sections;
use super::watermark::Failure;

/// Segments of the log that history may lack. With more, storage counts as full.
const MAX_UNSEALED: usize = 8;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// How much of what has ended may be in memory before it is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealBounds {
    /// Ended runs.
    pub runs: usize,
    /// Bytes that their values take.
    pub bytes: usize,
    /// Time without a further end.
    pub idle: Duration,
}

impl Default for SealBounds {
    fn default() -> Self {
        Self {
            runs: 1024,
            bytes: 16 << 20,
            idle: Duration::from_secs(5),
        }
    }
}

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

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) ended: Vec<Ended>,
    /// The newest one covers those before it.
    pub(super) checkpoint: Option<CheckpointJob>,
    /// Published removals.
    pub(super) removals: Vec<Removal>,
    /// Callers that wait until history has all that is published now. They hear whether it has.
    pub(super) waiting: Vec<oneshot::Sender<bool>>,
    /// A reader found the index broken.
    pub(super) suspect: bool,
}

#[derive(Debug)]
pub(super) struct Sealer {
    shared: Arc<Shared>,
    bounds: SealBounds,
    index: Keeper,
    /// Not in history yet.
    ended: Vec<Ended>,
    /// Bytes that their values take.
    bytes: usize,
    last_end: Instant,
    retry_at: Instant,
    /// In history, and not in the index.
    sealed: Vec<Ended>,
    /// True if runs were removed and history does not have it.
    has_removals: bool,
    /// True if history could not be written the last time.
    has_failed: bool,
    /// Callers that wait until history has all that was published when they came.
    waiting: Vec<oneshot::Sender<bool>>,
}

impl Sealer {
    pub(super) fn new(shared: Arc<Shared>, bounds: SealBounds) -> Self {
        let now = Instant::now();
        Self {
            bounds,
            index: Keeper::new(Arc::clone(&shared)),
            shared,
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

    /// Works until the mailbox is closed. The log was read again up to `begin`, and the base ends at `base`. The body of the sealing thread.
    pub(super) fn run(mut self, base: Lsn, begin: Lsn) {
        self.index.open_if_due();
        if self.shared.published.reach_blocking(begin).is_ok() {
            self.find_spans(base);
        }
        loop {
            let mut first = self.shared.keeping.take(self.pause());
            self.shared.faults.before_position();
            // A run that ended is in the mailbox before that is published. So all that ended up to here is taken now.
            let published = self.shared.published.get();
            let mut rest = self.shared.keeping.take(Some(Duration::ZERO));
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
                    rye_host::task::reply(asker, is_sealed && self.sealed.is_empty());
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
        let history = self.shared.history.last();
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
        // The section that records them comes later: until then the index of a next start does not miss them.
        self.has_removals |= !inbox.removals.is_empty();
        self.index.remove(&inbox.removals);
        inbox.checkpoint
    }

    /// How long to wait for more.
    fn pause(&self) -> Option<Duration> {
        let now = Instant::now();
        let left = |until: Instant| until.saturating_duration_since(now);
        let index = (!self.index.is_on_disk()).then_some(RETRY);
        let seal = self.has_something().then(|| left(self.due()));
        let waiting = (!self.waiting.is_empty()).then_some(Duration::ZERO);
        index.into_iter().chain(seal).chain(waiting).min()
    }

    /// When to seal what has ended.
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

    /// Moves what is published up to `upto` into history. Returns true if history has all of it.
    fn seal(&mut self, upto: Lsn) -> bool {
        while self.shared.history.last() < upto {
            match self.seal_section(upto) {
                Ok(()) => {}
                Err(error) => {
                    self.retry_at = Instant::now() + RETRY;
                    tracing::warn!(%error, "history cannot be written; log and memory keep what it lacks");
                    self.has_failed = true;
                    let is_behind = self.shared.log.segments() > MAX_UNSEALED;
                    self.shared.log.pool.set_behind(is_behind);
                    if error.kind() == io::ErrorKind::InvalidData {
                        let failure = Failure::Write(Arc::new(error));
                        self.shared.durable.fail(failure);
                    }
                    return false;
                }
            }
        }
        (self.has_removals, self.has_failed) = (false, false);
        self.shared.log.pool.set_behind(false);
        true
    }

    fn seal_section(&mut self, upto: Lsn) -> io::Result<()> {
        // What the log has dropped is in history, or lost with a file of it.
        let from = self
            .shared
            .history
            .last()
            .next()
            .max(self.shared.log.first());
        let built = sections::build(&self.shared, from, upto, &self.ended)?;
        let last = built.section.last;
        let appended = self.shared.history.append(&built.section);
        appended.map_err(io::Error::other)?;
        self.shared.signatures.forget(last);
        for run in &built.section.runs {
            self.enter(&run.run, sections::span(run));
        }
        let (sealed, ended) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|ended| ended.lsn <= last);
        self.ended = ended;
        self.bytes = self.ended.iter().map(|ended| ended.run.held()).sum();
        self.sealed.extend::<Vec<_>>(sealed);
        if self
            .index
            .apply(&built.entries, &built.section.removed, last)
        {
            self.evict();
        }
        Ok(())
    }

    /// Enters that history has `span` of a run.
    fn enter(&self, run: &RunId, span: Option<Span>) {
        if let Some((stream, span)) = self.shared.stream(run).zip(span) {
            stream.seal(span);
        }
    }

    /// Enters what history holds of live runs beyond the base.
    fn find_spans(&self, base: Lsn) {
        for section in self.shared.history.sections(base) {
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

    /// Lets the runs leave memory that history and index hold.
    fn evict(&mut self) {
        self.shared
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
            rye_host::task::reply(asker, ());
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
            history: self.shared.history.end().map(|end| (end.file, end.length)),
            runs: job.runs.len(),
            ledger: job.ledger.clone(),
        };
        Base::write(&self.shared.dir, &head, runs)?;
        self.shared.log.drop_through(job.lsn)
    }
}
