//! The thread that lets memory and log go: it archives ended runs, indexes them, and writes the base at checkpoints.
//!
//! **Order** of what must be on disk before what: archive before index and base, transcripts and base before a
//! segment of the log is removed, archive and index before an ended run leaves memory. **Failure**: what cannot be
//! written is tried again; until then memory and log keep it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, RunId};
use rye_core::model::Run;

use super::archive::{ArchiveOffset, Base, Stored};
use super::index::{Entry, Index, IndexError};
use super::publisher::CheckpointJob;
use super::run_stream::RunStream;
use super::transcript::Head;
use super::{IndexState, Shared};

/// Pause after a failure to archive.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after an index that could not even be built anew.
const REOPEN: Duration = Duration::from_mins(1);

/// An ended run whose files and objects are written.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) run: Arc<Run>,
    pub(super) stream: Arc<RunStream>,
    pub(super) head: Head,
    /// Position of its last event.
    pub(super) lsn: Lsn,
}

/// Whether every transcript is on disk up to a checkpoint, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covered {
    All,
    NotAll,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) ended: Vec<Ended>,
    pub(super) checkpoint: Option<(CheckpointJob, Covered)>,
    /// A reader found the index broken.
    pub(super) suspect: bool,
}

#[derive(Debug)]
pub(super) struct Archiver {
    shared: Arc<Shared>,
    /// Records the archive held beyond the base at open: they come once more from the log.
    known: HashMap<RunId, ArchiveOffset>,
    index: Option<Index>,
    reopen_at: Instant,
    unarchived: Vec<Ended>,
    /// Archived, and not in the index.
    unindexed: Vec<(Ended, Entry)>,
}

impl Archiver {
    pub(super) fn new(shared: Arc<Shared>, known: HashMap<RunId, ArchiveOffset>) -> Self {
        Self {
            shared,
            known,
            index: None,
            reopen_at: Instant::now(),
            unarchived: Vec::new(),
            unindexed: Vec::new(),
        }
    }

    /// Works until the mailbox is closed. The body of the keeping thread.
    pub(super) fn run(mut self) {
        self.open_index();
        loop {
            let settled = self.unarchived.is_empty() && self.index.is_some();
            let taken = self.shared.keeping.take((!settled).then_some(RETRY));
            let inbox = taken.value;
            self.unarchived.extend(inbox.ended);
            self.archive();
            if inbox.suspect {
                self.index = None;
                self.reopen_at = Instant::now();
            }
            if self.index.is_none() && Instant::now() >= self.reopen_at {
                self.open_index();
            }
            self.apply();
            if let Some((job, covered)) = inbox.checkpoint {
                self.checkpoint(job, covered);
            }
            if taken.closed {
                let closed = Arc::new(IndexError::Closed);
                self.shared.index.send_replace(IndexState::Broken(closed));
                return;
            }
        }
    }

    fn archive(&mut self) {
        let mut fresh = Vec::new();
        for ended in std::mem::take(&mut self.unarchived) {
            match self.known.remove(&ended.run.id) {
                Some(offset) => self.archived(ended, offset),
                None => fresh.push(ended),
            }
        }
        if fresh.is_empty() {
            return;
        }
        let records: Vec<(Lsn, Stored)> = fresh
            .iter()
            .map(|ended| {
                let run = Arc::clone(&ended.run);
                let head = ended.head;
                (ended.lsn, Stored { run, head })
            })
            .collect();
        match self.shared.archive.append(&records) {
            Ok(spots) => {
                for (ended, offset) in fresh.into_iter().zip(spots) {
                    self.archived(ended, offset);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "ended runs cannot be archived; they stay in memory");
                self.unarchived = fresh;
            }
        }
    }

    fn archived(&mut self, ended: Ended, offset: ArchiveOffset) {
        let entry = Entry::new(&ended.run, offset);
        self.unindexed.push((ended, entry));
    }

    fn open_index(&mut self) {
        self.reopen_at = Instant::now() + REOPEN;
        self.shared.index.send_replace(IndexState::Opening);
        match Index::open(&self.shared.dir, &self.shared.archive) {
            Ok(index) => {
                self.shared
                    .index
                    .send_replace(IndexState::Ready(index.clone()));
                self.index = Some(index);
            }
            Err(error) => {
                tracing::warn!(error = %rye_core::error::with_sources(&error), "the index cannot be opened");
                self.shared
                    .index
                    .send_replace(IndexState::Broken(Arc::new(error)));
            }
        }
    }

    /// Puts what is archived into the index; after that it need not stay in memory.
    fn apply(&mut self) {
        let Some(index) = &self.index else { return };
        let entries: Vec<Entry> = self
            .unindexed
            .iter()
            .map(|(_, entry)| entry.clone())
            .collect();
        match index.apply(&entries) {
            Ok(()) => {
                let indexed = std::mem::take(&mut self.unindexed);
                self.shared
                    .evict(indexed.iter().map(|(ended, _)| &ended.run.id));
            }
            Err(error) => {
                tracing::warn!(%error, "the index failed");
                self.index = None;
                self.reopen_at = Instant::now();
            }
        }
    }

    fn checkpoint(&mut self, job: CheckpointJob, covered: Covered) {
        let written = if covered == Covered::NotAll || !self.unarchived.is_empty() {
            tracing::info!(lsn = %job.lsn, "the log is kept: not everything in it is elsewhere yet");
            Ok(())
        } else {
            self.write_base(&job)
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the checkpoint failed; the log is kept");
        }
        if let Some(asker) = job.reply {
            crate::task::reply(asker, ());
        }
    }

    fn write_base(&self, job: &CheckpointJob) -> std::io::Result<()> {
        let runs = job
            .runs
            .iter()
            .map(|live| Stored {
                run: Arc::clone(&live.run),
                head: live.head,
            })
            .collect();
        let base = Base {
            lsn: job.lsn,
            epoch: job.epoch,
            archive: self.shared.archive.length()?,
            runs,
        };
        base.write(&self.shared.dir)?;
        for live in &job.runs {
            live.stream.settle(live.head);
        }
        for (ended, _) in &self.unindexed {
            if ended.lsn <= job.lsn {
                ended.stream.settle(ended.head);
            }
        }
        self.shared.log.drop_through(job.lsn)
    }
}
