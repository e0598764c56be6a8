//! One lane for each project: a thread of its own that writes what runs leave there.
//!
//! **Owns** which projects have a lane. One is made when there is something to write, and ends when there was nothing for a while.
//! **Never** makes one project wait for another, and waits for none: what a lane still has to write lies in its mailbox, some
//! megabytes at most, and beyond that in the log. **Order.** At a checkpoint each lane is marked, and notifies the archiver when
//! everything before is on disk. **Failure.** A project that is slower than its runs holds them up (see [`super::lag`]). One that hangs
//! keeps its thread and a bounded piece of the log: once the log has grown to [`RETAINED`](super::projector::RETAINED) segments for its
//! sake, it is kept no longer. When the project moves again, it gets what lies in the mailbox; runs that would need more are left as
//! they are.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use rye_core::id::Lsn;
use rye_core::memory::Memory;

use super::Shared;
use super::lag::{Lag, LagBounds};
use super::mailbox::Mailbox;
use super::projector::{Inbox, Mark, Pending, Projector, SHARED_BYTES};
use super::publisher::CheckpointRun;
use super::watermark::{Failure, POISON, lock};
use crate::task;

/// How long the end of the journal waits for projects that do not move.
const PATIENCE: Duration = Duration::from_secs(2);

/// The lane of one project.
#[derive(Debug)]
pub(super) struct Lane {
    /// The `files` directory of its runs.
    pub(super) files: String,
    pub(super) mailbox: Mailbox<Inbox>,
    pub(super) lag: Arc<Lag>,
}

#[derive(Debug)]
pub(super) struct Lanes {
    /// Where this life of the daemon began; a lane begins when everything before is published.
    pub(super) begin: Lsn,
    /// How long one stays that has nothing to do.
    pub(super) idle: Duration,
    bounds: LagBounds,
    /// Room for lines that all mailboxes share.
    room: Arc<Memory>,
    table: Mutex<Table>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    lanes: HashMap<String, Arc<Lane>>,
    /// Of each project that has a lane, or runs.
    lags: HashMap<String, Weak<Lag>>,
    /// Threads that have not ended.
    threads: usize,
}

impl Lanes {
    pub(super) fn new(begin: Lsn, bounds: LagBounds, idle: Duration) -> Self {
        Self {
            begin,
            idle,
            bounds,
            room: Arc::new(Memory::new(SHARED_BYTES)),
            table: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Leaves something to be written; at once, if it is `urgent`.
    pub(super) fn add(&self, shared: &Arc<Shared>, pending: Pending, urgent: bool) {
        let stream = Arc::clone(&pending.stream);
        let bytes = pending.bytes();
        let mut table = lock(&self.table);
        let lane = table.lane(shared, &stream.spec.files);
        let add = |inbox: &mut Inbox| lane.lag.add(bytes, inbox.add(pending, &self.room));
        if urgent {
            lane.mailbox.post(add);
        } else {
            lane.mailbox.leave(add);
        }
    }

    /// Marks a checkpoint in every lane that may have something to do for it; answers with their projects.
    pub(super) fn mark(
        &self,
        shared: &Arc<Shared>,
        lsn: Lsn,
        runs: &[CheckpointRun],
    ) -> HashSet<String> {
        let mut table = lock(&self.table);
        let mut marks: HashMap<String, Mark> = HashMap::new();
        for files in table.lanes.keys() {
            marks.insert(files.clone(), Mark::new(lsn));
        }
        for live in runs {
            // What is on disk before the mark was seen to be so by an earlier one.
            if live.stream.published().anchor.seq < live.head.seq {
                let mark = marks
                    .entry(live.stream.spec.files.clone())
                    .or_insert_with(|| Mark::new(lsn));
                mark.runs.push((Arc::clone(&live.stream), live.head));
            }
        }
        let marked = marks.keys().cloned().collect();
        for (files, mark) in marks {
            let lane = table.lane(shared, &files);
            lane.lag.mark();
            lane.mailbox.post(|inbox| inbox.checkpoint = Some(mark));
        }
        marked
    }

    /// How far the files of a project are behind.
    pub(super) fn lag(&self, files: &str) -> Arc<Lag> {
        lock(&self.table).lag(files, self.bounds)
    }

    /// Removes a lane that has nothing to do; `false` if something came meanwhile.
    pub(super) fn retire(&self, lane: &Lane) -> bool {
        let mut table = lock(&self.table);
        let idle = lane.mailbox.is_empty();
        if idle {
            table.lanes.remove(&lane.files);
        }
        idle
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.table).lanes.len()
    }

    /// Lets all lanes end, and waits for those that move.
    pub(super) fn close(&self) {
        let table = lock(&self.table);
        for lane in table.lanes.values() {
            lane.mailbox.close();
        }
        let (table, waited) = self
            .ended
            .wait_timeout_while(table, PATIENCE, |table| table.threads > 0)
            .expect(POISON);
        if waited.timed_out() {
            let open = table.threads;
            tracing::warn!(open, "projects that do not answer are left as they are");
        }
    }

    fn leave(&self) {
        lock(&self.table).threads -= 1;
        self.ended.notify_all();
    }
}

impl Table {
    /// The lane of a project, which is made if there is none.
    fn lane(&mut self, shared: &Arc<Shared>, files: &str) -> &Lane {
        if !self.lanes.contains_key(files) {
            let lane = Arc::new(Lane {
                files: files.to_owned(),
                mailbox: Mailbox::default(),
                lag: self.lag(files, shared.lanes.bounds),
            });
            self.lanes.insert(files.to_owned(), Arc::clone(&lane));
            self.threads += 1;
            start(Arc::clone(shared), lane);
        }
        &self.lanes[files]
    }

    fn lag(&mut self, files: &str, bounds: LagBounds) -> Arc<Lag> {
        if let Some(lag) = self.lags.get(files).and_then(Weak::upgrade) {
            return lag;
        }
        self.lags.retain(|_, lag| lag.strong_count() > 0);
        let lag = Arc::new(Lag::new(bounds));
        self.lags.insert(files.to_owned(), Arc::downgrade(&lag));
        lag
    }
}

/// Nobody joins the thread: it may be held up for ever.
fn start(shared: Arc<Shared>, lane: Arc<Lane>) {
    task::worker("lane", move || {
        let work = || Projector::new(Arc::clone(&shared), lane).run();
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            shared.durable.fail(Failure::Panicked("lane"));
            shared.published.fail(Failure::Panicked("lane"));
        }
        shared.lanes.leave();
    });
}
