//! The one critical section: commits are compared, applied, numbered and queued in it, and nowhere else.
//!
//! **Owns** the [`State`] of all runs, the position of the last frame and of the last event of each run. **Never** does
//! under its lock what grows with a run or with how many there are: a commit is drafted, rendered and encoded before, and
//! what it replaces is freed after. Readers of many runs ([`Shared::in_slices`]) take the lock for [`SLICE`] runs at a time; a
//! checkpoint is only a mark between two commits, and the publisher knows the records that belong to it.
//!
//! **Order.** Both queues, the writer's and the publisher's, are filled under the lock, so their order is the order of the
//! log. **Races.** A draft whose runs have moved on, or that lacks the warnings due to its settlements (`notices`), is drafted
//! again, outside the lock; after [`DRAFTS`] attempts once more under it, where nobody can come in between. Only this last one
//! copies records under the lock; it takes that many commits to one run while one was drafted. Two commits to one run are thus never
//! mixed, and the LSN says which came first. **Failure.** A refused commit has changed nothing and is in no queue.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, MutexGuard};

use rye_core::id::{Epoch, Lsn, RunId};
use rye_core::ledger::Rows;
use rye_core::model::{Run, Syncing};
use rye_core::state::{Change, Conditions, Draft, State, Why};
use rye_core::transcript::Head;
use rye_journal::history::Removal;
use tokio::sync::oneshot;

use super::backlog::Permit;
use super::base::Span;
use super::line::{Asker, Line};
use super::log;
use super::notices::Warnings;
use super::publisher::{self, Commit, Entry};
use super::record::{Body, Rendered, encode_commit};
use super::run_stream::RunStream;
use super::segment::Storage;
use super::{Committed, Error, Shared, Ticket};
use rye_host::fail_point;

/// Runs that a reader looks at in one go.
pub(super) const SLICE: usize = 256;
/// Drafts of one commit outside the lock.
const DRAFTS: usize = 4;

/// What the journal knows about a run in memory beside its record.
#[derive(Debug)]
pub(super) struct Position {
    /// Where its last event lies.
    pub(super) lsn: Lsn,
    pub(super) stream: Arc<RunStream>,
}

/// The positions of the runs in memory.
#[derive(Debug, Default)]
pub(super) struct Positions(HashMap<RunId, Position>);

impl Positions {
    pub(super) fn get(&self, id: &RunId) -> Option<&Position> {
        self.0.get(id)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &Arc<RunStream>> {
        self.0.values().map(|position| &position.stream)
    }

    /// Enters a run that was published up to `head` before, all of which is in the sections `spans` of history.
    pub(super) fn restore(&mut self, run: &Run, head: Head, spans: Vec<Span>, lsn: Lsn) {
        let stream = RunStream::new(run.id.clone(), Arc::clone(&run.spec), head, spans);
        stream.committed.send_replace(run.seq);
        let stream = Arc::new(stream);
        self.0.insert(run.id.clone(), Position { lsn, stream });
    }

    /// Forgets a run that has left memory.
    pub(super) fn forget(&mut self, id: &RunId) -> Option<Position> {
        self.0.remove(id)
    }

    /// Takes in that the last event of `run` lies at `lsn`; the run may be new.
    pub(super) fn advance(&mut self, run: &Run, lsn: Lsn) -> Arc<RunStream> {
        if !self.0.contains_key(&run.id) {
            self.restore(run, Head::default(), Vec::new(), lsn);
        }
        let position = self.0.get_mut(&run.id).expect("it was entered just now");
        position.lsn = lsn;
        position.stream.committed.send_replace(run.seq);
        Arc::clone(&position.stream)
    }
}

#[derive(Debug)]
pub(super) struct Sequencer {
    pub(super) last: Lsn,
    pub(super) epoch: Epoch,
    pub(super) state: State,
    pub(super) positions: Positions,
    /// Those who wait for money.
    pub(super) line: Line,
    closed: bool,
    publisher: Option<Sender<publisher::Job>>,
}

/// A commit as it would be, made outside the lock.
struct Drafted {
    draft: Draft,
    body: Vec<u8>,
    sync: Syncing,
}

impl Sequencer {
    pub(super) fn new(
        last: Lsn,
        epoch: Epoch,
        state: State,
        positions: Positions,
        publisher: Sender<publisher::Job>,
    ) -> Self {
        Self {
            last,
            epoch,
            state,
            positions,
            line: Line::default(),
            closed: false,
            publisher: Some(publisher),
        }
    }

    /// The position of the next frame.
    pub(super) fn advance(&mut self) -> Lsn {
        self.last = self.last.next();
        self.last
    }

    /// Hands over to the publisher. If it is gone, the journal has failed and its watermarks say so.
    fn publish(&self, job: publisher::Job) {
        if let Some(publisher) = &self.publisher
            && publisher.send(job).is_err()
        {
            tracing::debug!("the publisher is gone");
        }
    }

    fn checkpoint(&self, reply: Option<oneshot::Sender<()>>) {
        self.publish(publisher::Job::Checkpoint {
            lsn: self.last,
            epoch: self.epoch,
            reply,
        });
    }

    /// Refuses commits, and asks for a last checkpoint; `false` if that has happened before.
    pub(super) fn begin_close(&mut self, reply: oneshot::Sender<()>) -> bool {
        let first = !std::mem::replace(&mut self.closed, true);
        if first {
            self.checkpoint(Some(reply));
        }
        first
    }

    /// Lets the publisher end.
    pub(super) fn hang_up(&mut self) {
        self.closed = true;
        self.publisher = None;
    }

    /// At most one slice of `runs`, each with the position of its last event.
    pub(super) fn slice<'a>(
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
            .map(|((change, fact), text)| (&change.run, fact.seq, text));
        let body = encode_commit(draft.at(), records);
        let syncs = draft.facts().map(|(change, _)| change.event.facets().sync);
        let sync = syncs.min().unwrap_or(Syncing::Now);
        Self { draft, body, sync }
    }
}

impl Shared {
    /// The lock, if the journal accepts commits.
    fn accepting(&self) -> Result<MutexGuard<'_, Sequencer>, Error> {
        if let Some(failure) = self.durable.failure() {
            return Err(Error::Failed(failure));
        }
        let sequencer = self.sequencer();
        if sequencer.closed {
            return Err(Error::Closed);
        }
        Ok(sequencer)
    }

    fn conditions(&self, asker: &Asker<'_>) -> Conditions {
        Conditions {
            arrival: asker
                .as_ref()
                .and_then(|place| Some(place.as_ref()?.arrival())),
            most_in_tree: self.tree_runs.get(),
            full: *self.log.pool.storage().borrow() == Storage::Full,
        }
    }

    /// Whether `changes` would be accepted as things stand; hands them back.
    pub(super) fn admit(&self, changes: Vec<Change>) -> Result<Vec<Change>, Error> {
        let base = self.accepting()?.state.base(&changes);
        let draft = base.draft(self.clock.now(), changes)?;
        let conditions = self.conditions(&None);
        let checked = self.accepting()?.state.check(&draft, &conditions);
        match checked {
            // What it is now, and what it has to wait for, is for the commit itself to find out.
            Err(refused) if refused.why != Why::Stale && refused.lacking().is_none() => {
                Err(refused.into())
            }
            Ok(_) | Err(_) => Ok(draft.into_changes()),
        }
    }

    /// Makes `changes`, whose events are rendered in `texts`, one commit: checks, applies, numbers and queues it.
    pub(super) fn append(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        mut texts: Vec<Rendered>,
        permit: Permit,
        asker: Asker<'_>,
    ) -> Result<Committed, Error> {
        if changes.is_empty() {
            let lsn = self.accepting()?.last;
            return Ok(Committed::nothing(Ticket { lsn }));
        }
        let mut warnings = Warnings::default();
        for _ in 0..DRAFTS {
            let base = self.accepting()?.state.base(&changes);
            let draft = base.draft(self.clock.now(), changes);
            let drafted = Drafted::new(draft.map_err(|why| warnings.told(why))?, &texts);
            let conditions = self.conditions(&asker);
            let sequencer = self.accepting()?;
            match sequencer.state.check(&drafted.draft, &conditions) {
                Ok(rows) => {
                    let notices = sequencer.state.notices(&drafted.draft);
                    if warnings.are(&notices) {
                        return Ok(self.seal(sequencer, drafted, rows, texts, permit));
                    }
                    drop(sequencer);
                    changes = drafted.draft.into_changes();
                    warnings.replace(notices, &mut changes, &mut texts);
                }
                Err(refused) if refused.why == Why::Stale => {
                    drop(sequencer);
                    changes = drafted.draft.into_changes();
                }
                Err(refused) => {
                    self.stand_in_line(sequencer, &refused, asker);
                    return Err(warnings.told(refused).into());
                }
            }
        }
        self.append_alone(changes, texts, permit, asker, warnings)
    }

    /// The same under the lock, so that nobody comes in between.
    fn append_alone(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        mut texts: Vec<Rendered>,
        permit: Permit,
        asker: Asker<'_>,
        mut warnings: Warnings,
    ) -> Result<Committed, Error> {
        let conditions = self.conditions(&asker);
        let sequencer = self.accepting()?;
        loop {
            let base = sequencer.state.base(&changes);
            let draft = base.draft(self.clock.now(), changes);
            let drafted = Drafted::new(draft.map_err(|why| warnings.told(why))?, &texts);
            let rows = match sequencer.state.check(&drafted.draft, &conditions) {
                Ok(rows) => rows,
                Err(refused) => {
                    self.stand_in_line(sequencer, &refused, asker);
                    return Err(warnings.told(refused).into());
                }
            };
            let notices = sequencer.state.notices(&drafted.draft);
            if warnings.are(&notices) {
                return Ok(self.seal(sequencer, drafted, rows, texts, permit));
            }
            changes = drafted.draft.into_changes();
            warnings.replace(notices, &mut changes, &mut texts);
        }
    }

    /// Applies what was checked under this very lock, and does `rows` to accounts.
    fn seal(
        &self,
        mut sequencer: MutexGuard<'_, Sequencer>,
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
        sequencer.line.call(&applied.concerned);
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
        self.log
            .queue
            .post(|jobs| jobs.push(log::Job { lsn, body, sync }));
        sequencer.publish(publisher::Job::Commit { commit, permit });
        if self.log.rolled.swap(false, Ordering::Relaxed) {
            sequencer.checkpoint(None);
        }
        // What is dropped from here on may be as large as a run.
        drop(sequencer);
        Committed {
            ticket: Ticket { lsn },
            runs: applied.runs,
        }
    }

    /// Removes the runs of `removal`, if none of them is in memory or needed by a run that has not ended.
    pub(super) fn append_removal(&self, removal: Removal, permit: Permit) -> Result<Ticket, Error> {
        let body = Body::Removed(removal.clone()).encode();
        let runs = || removal.runs.iter().map(|removed| &removed.run);
        let mut sequencer = self.accepting()?;
        sequencer.state.check_removal(runs())?;
        let lsn = sequencer.advance();
        sequencer.state.remove(runs());
        let sync = Syncing::Now;
        self.log
            .queue
            .post(|jobs| jobs.push(log::Job { lsn, body, sync }));
        sequencer.publish(publisher::Job::Removal {
            lsn,
            removal,
            permit,
        });
        if self.log.rolled.swap(false, Ordering::Relaxed) {
            sequencer.checkpoint(None);
        }
        Ok(Ticket { lsn })
    }

    /// A record with the position of its last event.
    pub(super) fn snapshot(&self, id: &RunId) -> Option<(Arc<Run>, Lsn)> {
        let sequencer = self.sequencer();
        let run = sequencer.state.run(id)?;
        Some((Arc::clone(run), sequencer.positions.get(id)?.lsn))
    }

    pub(super) fn stream(&self, id: &RunId) -> Option<Arc<RunStream>> {
        let sequencer = self.sequencer();
        Some(Arc::clone(&sequencer.positions.get(id)?.stream))
    }

    /// Hands the runs in memory to `look`, a slice at a time, until it has seen enough. `next` names the slice that follows a
    /// run, or the first; it is called under the lock and gives pointers only. Between two slices runs may come and go.
    pub(super) fn in_slices(
        &self,
        next: impl Fn(&Sequencer, Option<&Arc<Run>>) -> Vec<(Arc<Run>, Lsn)>,
        mut look: impl FnMut(&Arc<Run>, Lsn) -> std::ops::ControlFlow<()>,
    ) {
        let mut last: Option<Arc<Run>> = None;
        loop {
            let slice = next(&self.sequencer(), last.as_ref());
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

    /// Lets ended runs leave memory.
    pub(super) fn evict<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        for id in ids {
            let evicted = {
                let mut sequencer = self.sequencer();
                let position = sequencer.positions.forget(id);
                (sequencer.state.evict(id), position)
            };
            drop(evicted);
        }
    }
}
