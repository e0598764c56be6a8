//! The only critical section: commits are checked, applied, numbered and queued in it.
//!
//! **Owns** the [`State`] of all runs, the position of the last frame, and that of the last event of each run.
//! **Never** does work under its lock that grows with the size of a run or with the number of runs. A commit is
//! drafted, rendered and encoded before, and the records that it replaces are freed after. Readers of many runs
//! ([`Sequencer::in_slices`]) take the lock for [`SLICE`] runs at a time. A checkpoint is only an entry between two
//! commits, and the publisher has the records that belong to it.
//!
//! **Order.** Both queues, the writer's and the publisher's, are filled under the lock, so their order is the order of
//! the log. **Races.** A draft is stale if its runs have changed or if it lacks the warnings due to its settlements
//! (`notices`). It is drafted again outside the lock; after [`DRAFTS`] attempts once more under it, where no other
//! commit can interfere. Only this last attempt copies records under the lock; it needs that many commits to one run
//! during the drafts. Two commits to one run are thus never mixed, and the LSN orders them. **Failure.** A refused
//! commit has changed nothing and is in no queue.

mod budget_queue;
mod notices;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};

use rye_core::clock::Clock;
use rye_core::id::{Epoch, Lsn, RunId};
use rye_core::ledger::Rows;
use rye_core::model::{Run, Syncing};
use rye_core::state::{Change, Conditions, Draft, RefusalReason, State};
use rye_core::transcript::Head;
use rye_host::fail_point;
use tokio::sync::oneshot;

use self::budget_queue::BudgetQueue;
pub use self::budget_queue::BudgetSlot;
pub(crate) use self::budget_queue::WaitSlot;
use self::notices::Warnings;
use crate::backlog::{Backlog, Permit};
use crate::base::Span;
use crate::error::Error;
use crate::history::Removal;
use crate::jobs::{self, Commit, Entry};
use crate::log::{Log, Storage};
use crate::record::{Body, Rendered, encode_commit};
use crate::stream::run_stream::RunStream;
use crate::watermark::Failure;

/// Number of runs that a reader looks at under one lock.
pub(crate) const SLICE: usize = 256;
/// Number of drafts of one commit outside the lock.
const DRAFTS: usize = 4;

/// Data of a run in memory in addition to its record.
#[derive(Debug)]
pub(crate) struct Position {
    /// Position of its last event in the log.
    pub(crate) lsn: Lsn,
    pub(crate) stream: Arc<RunStream>,
}

/// The positions of the runs in memory.
#[derive(Debug, Default)]
pub(crate) struct Positions(HashMap<RunId, Position>);

impl Positions {
    pub(crate) fn get(&self, id: &RunId) -> Option<&Position> {
        self.0.get(id)
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = &Arc<RunStream>> {
        self.0.values().map(|position| &position.stream)
    }

    /// Adds a run that is published up to `head`, with all events in the sections `spans` of history.
    pub(crate) fn restore(&mut self, run: &Run, head: Head, spans: Vec<Span>, lsn: Lsn) {
        let stream = RunStream::new(run.id.clone(), Arc::clone(&run.spec), head, spans);
        stream.committed.send_replace(run.seq);
        let stream = Arc::new(stream);
        self.0.insert(run.id.clone(), Position { lsn, stream });
    }

    /// Drops a run that has left memory.
    pub(crate) fn forget(&mut self, id: &RunId) -> Option<Position> {
        self.0.remove(id)
    }

    /// Records that the last event of `run`, which may be new, is at `lsn`.
    pub(crate) fn advance(&mut self, run: &Run, lsn: Lsn) -> Arc<RunStream> {
        if !self.0.contains_key(&run.id) {
            self.restore(run, Head::default(), Vec::new(), lsn);
        }
        let position = self.0.get_mut(&run.id).expect("it was entered just now");
        position.lsn = lsn;
        position.stream.committed.send_replace(run.seq);
        Arc::clone(&position.stream)
    }
}

/// The receipt of a commit that is applied and queued for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub lsn: Lsn,
}

/// Result of a commit that is applied and queued for the disk.
#[derive(Debug, Clone)]
pub struct Committed {
    pub ticket: Ticket,
    /// The records after the commit, one for each run that it changed.
    pub(crate) runs: Vec<Arc<Run>>,
}

impl Committed {
    const fn nothing(ticket: Ticket) -> Self {
        let runs = Vec::new();
        Self { ticket, runs }
    }

    /// Returns the record of `id` right after the commit; `None` if the commit did not change it.
    pub fn run(&self, id: &RunId) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == *id)
    }
}

/// The critical section and its prerequisites. All callers that commit or read share one handle.
pub(crate) struct Sequencer {
    order: Mutex<Order>,
    pub(crate) backlog: Backlog,
    clock: Arc<dyn Clock>,
    log: Arc<Log>,
    /// Largest number of live runs in one tree.
    tree_runs: NonZeroUsize,
}

/// State that the lock protects.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) last: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) state: State,
    pub(crate) positions: Positions,
    /// Callers that wait for budget.
    pub(crate) budget_queue: BudgetQueue,
    closed: bool,
    publisher: Option<Sender<jobs::Job>>,
}

/// A commit before it is checked, created outside the lock.
struct Drafted {
    draft: Draft,
    body: Vec<u8>,
    sync: Syncing,
}

impl Order {
    pub(crate) fn new(
        last: Lsn,
        epoch: Epoch,
        state: State,
        positions: Positions,
        publisher: Sender<jobs::Job>,
    ) -> Self {
        Self {
            last,
            epoch,
            state,
            positions,
            budget_queue: BudgetQueue::default(),
            closed: false,
            publisher: Some(publisher),
        }
    }

    /// Returns the position of the next frame, which becomes the last.
    pub(crate) fn advance(&mut self) -> Lsn {
        self.last = self.last.next();
        self.last
    }

    /// Queues a job for the publisher. If the publisher has ended, the journal has failed and its watermarks report it.
    fn publish(&self, job: jobs::Job) {
        if let Some(publisher) = &self.publisher
            && publisher.send(job).is_err()
        {
            tracing::debug!("the publisher is gone");
        }
    }

    fn checkpoint(&self, reply: Option<oneshot::Sender<()>>) {
        self.publish(jobs::Job::Checkpoint {
            lsn: self.last,
            epoch: self.epoch,
            reply,
        });
    }

    /// Refuses commits from now on, and requests a last checkpoint. Returns false if that has happened before.
    pub(crate) fn begin_close(&mut self, reply: oneshot::Sender<()>) -> bool {
        let first = !std::mem::replace(&mut self.closed, true);
        if first {
            self.checkpoint(Some(reply));
        }
        first
    }

    /// Makes the publisher end.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.publisher = None;
    }

    /// Returns at most one slice of `runs`, each with the position of its last event.
    pub(crate) fn slice<'a>(
        &self,
        runs: impl Iterator<Item = &'a Arc<Run>>,
    ) -> Vec<(Arc<Run>, Lsn)> {
        let known = |run: &Arc<Run>| {
            let position = self.positions.get(&run.id)?;
            Some((Arc::clone(run), position.lsn))
        };
        runs.take(SLICE).filter_map(known).collect()
    }
}

impl Drafted {
    /// `texts` are the rendered events of the draft.
    fn new(draft: Draft, texts: &[Rendered]) -> Self {
        let records = draft
            .facts()
            .zip(texts)
            .map(|((change, fact), text)| (&change.run, fact.seq, fact.name, text));
        let body = encode_commit(draft.at(), records);
        let syncs = draft.facts().map(|(change, _)| change.event.facets().sync);
        let sync = syncs.min().unwrap_or(Syncing::Now);
        Self { draft, body, sync }
    }
}

impl Sequencer {
    pub(crate) fn new(
        order: Order,
        log: Arc<Log>,
        clock: Arc<dyn Clock>,
        tree_runs: NonZeroUsize,
    ) -> Self {
        Self {
            order: Mutex::new(order),
            backlog: Backlog::default(),
            clock,
            log,
            tree_runs,
        }
    }

    /// Locks the order. A panic under the lock fails the journal, but does not poison the lock for the next caller.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(|poisoned| {
            self.log.durable.fail(Failure::Panicked("sequencer"));
            poisoned.into_inner()
        })
    }

    /// Returns the lock if the journal accepts commits.
    fn accepting(&self) -> Result<MutexGuard<'_, Order>, Error> {
        if let Some(failure) = self.log.durable.failure() {
            return Err(Error::Failed(failure));
        }
        let sequencer = self.lock();
        if sequencer.closed {
            return Err(Error::Closed);
        }
        Ok(sequencer)
    }

    fn conditions(&self, asker: &WaitSlot<'_>) -> Conditions {
        Conditions {
            arrival: asker
                .as_ref()
                .and_then(|place| Some(place.as_ref()?.arrival())),
            most_in_tree: self.tree_runs.get(),
            full: *self.log.pool.storage().borrow() == Storage::Full,
        }
    }

    /// Checks if `changes` would be accepted now, and returns them.
    pub(crate) fn admit(&self, changes: Vec<Change>) -> Result<Vec<Change>, Error> {
        let base = self.accepting()?.state.base(&changes);
        let draft = base.draft(self.clock.now(), changes)?;
        let conditions = self.conditions(&None);
        let checked = self.accepting()?.state.check(&draft, &conditions);
        match checked {
            // Stale drafts and missing budget are left for the commit itself to detect.
            Err(refused)
                if refused.why != RefusalReason::Stale && refused.awaited_limit().is_none() =>
            {
                Err(refused.into())
            }
            Ok(_) | Err(_) => Ok(draft.into_changes()),
        }
    }

    /// Makes one commit of `changes`, whose events are rendered in `texts`: checks, applies, numbers and queues it.
    pub(crate) fn append(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        mut texts: Vec<Rendered>,
        permit: Permit,
        asker: WaitSlot<'_>,
    ) -> Result<Committed, Error> {
        if changes.is_empty() {
            let lsn = self.accepting()?.last;
            return Ok(Committed::nothing(Ticket { lsn }));
        }
        let mut warnings = Warnings::default();
        for _ in 0..DRAFTS {
            let base = self.accepting()?.state.base(&changes);
            let draft = base.draft(self.clock.now(), changes);
            let drafted =
                Drafted::new(draft.map_err(|why| warnings.without_warnings(why))?, &texts);
            let conditions = self.conditions(&asker);
            let sequencer = self.accepting()?;
            match sequencer.state.check(&drafted.draft, &conditions) {
                Ok(rows) => {
                    let notices = sequencer.state.notices(&drafted.draft);
                    if warnings.cover(&notices) {
                        return Ok(self.seal(sequencer, drafted, rows, texts, permit));
                    }
                    drop(sequencer);
                    changes = drafted.draft.into_changes();
                    warnings.replace(notices, &mut changes, &mut texts);
                }
                Err(refused) if refused.why == RefusalReason::Stale => {
                    drop(sequencer);
                    changes = drafted.draft.into_changes();
                }
                Err(refused) => {
                    self.wait_for_budget(sequencer, &refused, asker);
                    return Err(warnings.without_warnings(refused).into());
                }
            }
        }
        self.append_alone(changes, texts, permit, asker, warnings)
    }

    /// As [`Sequencer::append`], under the lock, so that no other commit interferes.
    fn append_alone(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        mut texts: Vec<Rendered>,
        permit: Permit,
        asker: WaitSlot<'_>,
        mut warnings: Warnings,
    ) -> Result<Committed, Error> {
        let conditions = self.conditions(&asker);
        let sequencer = self.accepting()?;
        loop {
            let base = sequencer.state.base(&changes);
            let draft = base.draft(self.clock.now(), changes);
            let drafted =
                Drafted::new(draft.map_err(|why| warnings.without_warnings(why))?, &texts);
            let rows = match sequencer.state.check(&drafted.draft, &conditions) {
                Ok(rows) => rows,
                Err(refused) => {
                    self.wait_for_budget(sequencer, &refused, asker);
                    return Err(warnings.without_warnings(refused).into());
                }
            };
            let notices = sequencer.state.notices(&drafted.draft);
            if warnings.cover(&notices) {
                return Ok(self.seal(sequencer, drafted, rows, texts, permit));
            }
            changes = drafted.draft.into_changes();
            warnings.replace(notices, &mut changes, &mut texts);
        }
    }

    /// Applies a draft that was checked under this lock, with its changes `rows` of accounts.
    fn seal(
        &self,
        mut sequencer: MutexGuard<'_, Order>,
        drafted: Drafted,
        rows: Rows,
        texts: Vec<Rendered>,
        permit: Permit,
    ) -> Committed {
        let Drafted { draft, body, sync } = drafted;
        let at = draft.at();
        let lsn = sequencer.advance();
        fail_point::commit(lsn, draft.facts().map(|(change, _)| &change.event));
        let applied = sequencer.state.apply(draft, rows);
        sequencer.budget_queue.call(&applied.to_retry);
        let streams: Vec<Arc<RunStream>> = applied
            .runs
            .iter()
            .map(|run| sequencer.positions.advance(run, lsn))
            .collect();
        let entries = applied.changes.iter().zip(applied.facts).zip(texts);
        let entries = entries
            .map(|((change, fact), text)| Entry::new(&streams[fact.run], &change.event, fact, text))
            .collect();
        let records = streams.into_iter().zip(applied.runs.iter().cloned());
        let commit = Commit {
            lsn,
            at,
            entries,
            records: records.collect(),
            closed: applied.rows.closed.clone(),
            rows: applied.rows,
        };
        self.log.append(lsn, body, sync);
        sequencer.publish(jobs::Job::Commit { commit, permit });
        if self.log.rolled.swap(false, Ordering::Relaxed) {
            sequencer.checkpoint(None);
        }
        // The values dropped from here on may be as large as a run.
        drop(sequencer);
        Committed {
            ticket: Ticket { lsn },
            runs: applied.runs,
        }
    }

    /// Removes the runs of `removal`, unless one of them is in memory or a run that has not ended needs it.
    pub(crate) fn append_removal(&self, removal: Removal, permit: Permit) -> Result<Ticket, Error> {
        let body = Body::Removed(removal.clone()).encode();
        let runs = || removal.runs.iter().map(|removed| &removed.run);
        let mut sequencer = self.accepting()?;
        sequencer.state.check_removal(runs())?;
        let lsn = sequencer.advance();
        sequencer.state.remove(runs());
        let sync = Syncing::Now;
        self.log.append(lsn, body, sync);
        sequencer.publish(jobs::Job::Removal {
            lsn,
            removal,
            permit,
        });
        if self.log.rolled.swap(false, Ordering::Relaxed) {
            sequencer.checkpoint(None);
        }
        Ok(Ticket { lsn })
    }

    /// Returns a record with the position of its last event.
    pub(crate) fn snapshot(&self, id: &RunId) -> Option<(Arc<Run>, Lsn)> {
        let sequencer = self.lock();
        let run = sequencer.state.run(id)?;
        Some((Arc::clone(run), sequencer.positions.get(id)?.lsn))
    }

    pub(crate) fn stream(&self, id: &RunId) -> Option<Arc<RunStream>> {
        let sequencer = self.lock();
        Some(Arc::clone(&sequencer.positions.get(id)?.stream))
    }

    /// Passes the runs in memory to `look`, a slice at a time, until it breaks. `next` returns the slice after a run,
    /// or the first one. It is called under the lock and returns only pointers. Runs may be added and removed between
    /// two slices.
    pub(crate) fn in_slices(
        &self,
        next: impl Fn(&Order, Option<&Arc<Run>>) -> Vec<(Arc<Run>, Lsn)>,
        mut look: impl FnMut(&Arc<Run>, Lsn) -> ControlFlow<()>,
    ) {
        let mut last: Option<Arc<Run>> = None;
        loop {
            let slice = next(&self.lock(), last.as_ref());
            for (run, lsn) in &slice {
                if look(run, *lsn).is_break() {
                    return;
                }
            }
            match slice.into_iter().next_back() {
                Some((run, _)) => last = Some(run),
                None => return,
            }
        }
    }

    /// Removes ended runs from memory.
    pub(crate) fn evict<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        for id in ids {
            let evicted = {
                let mut sequencer = self.lock();
                let position = sequencer.positions.forget(id);
                (sequencer.state.evict(id), position)
            };
            drop(evicted);
        }
    }

    /// True if the run was removed recently.
    pub(crate) fn is_gone(&self, id: &RunId) -> bool {
        self.lock().state.is_gone(id)
    }
}

impl fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
