//! The thread that turns commits into what the world may see.
//!
//! **Order**: commits in order of LSN. A commit is rendered and its heads are signed while its sync is in flight; then the
//! thread waits for the durable mark, and only then subscribers, projections and waiters get it. So nothing is
//! published that a power cut could take back, and signing costs a run no time.
//! **Owns** the live records as they were at the commit it published last: a checkpoint is a mark in its queue, and needs no
//! look at the sequencer. **Never** takes the sequencer's lock, and holds nobody up but through the permits of the commits in
//! its queue, which it gives back as it handles them (see `backlog`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, Lsn, RunId, Seq};
use rye_core::ledger::{Ledger, Rows};
use rye_core::model::{Event, Run};
use rye_core::seal::{Fingerprint, Signature};
use rye_core::state::{self, Closed};
use rye_core::transcript::{Fact, Head};
use rye_journal::history::Removal;
use tokio::sync::oneshot;

use super::backlog::Permit;
use super::record::Rendered;
use super::run_stream::{Rest, RunStream};
use super::sealer::Ended;
use super::touches::TouchKind;
use super::watermark::Failure;
use super::{Line, Shared, wide};
use rye_host::fail_point::{self, Place};

/// What the log held at open.
#[derive(Debug)]
pub(super) enum Replayed {
    Commit(Commit),
    Removal(Lsn, Removal),
}

/// What the sequencer hands over, in order.
#[derive(Debug)]
pub(super) enum Job {
    Commit {
        commit: Commit,
        permit: Permit,
    },
    Removal {
        lsn: Lsn,
        removal: Removal,
        permit: Permit,
    },
    /// Everything up to `lsn`, the commit before this, is to become independent of the log.
    Checkpoint {
        lsn: Lsn,
        epoch: Epoch,
        reply: Option<oneshot::Sender<()>>,
    },
}

/// A live run at a checkpoint.
#[derive(Debug, Clone)]
pub(super) struct CheckpointRun {
    pub(super) run: Arc<Run>,
    pub(super) stream: Arc<RunStream>,
    pub(super) head: Head,
}

/// A point in the log before which nothing but base and archive shall be needed.
#[derive(Debug)]
pub(super) struct CheckpointJob {
    pub(super) lsn: Lsn,
    pub(super) epoch: Epoch,
    pub(super) runs: Vec<CheckpointRun>,
    /// The accounts on which something happened, and the meters.
    pub(super) ledger: Rows,
    /// Told when it is done, or has failed.
    pub(super) reply: Option<oneshot::Sender<()>>,
}

/// The runs that have not ended, each with its stream and its record, and the open accounts, at one position of the log.
/// At open the accounts are those of the base, and follow as the log is published again.
#[derive(Debug, Default)]
pub(super) struct LiveRuns {
    runs: HashMap<RunId, (Arc<RunStream>, Arc<Run>)>,
    ledger: Ledger,
}

impl LiveRuns {
    /// No runs yet, and these accounts.
    pub(super) fn new(ledger: Ledger) -> Self {
        Self {
            runs: HashMap::new(),
            ledger,
        }
    }

    /// Takes in the record of a run at a later position.
    pub(super) fn enter(&mut self, stream: Arc<RunStream>, run: Arc<Run>) {
        if run.status().is_terminal() {
            self.runs.remove(&run.id);
            return;
        }
        match self.runs.get_mut(&run.id) {
            Some((_, known)) => *known = run,
            None => {
                self.runs.insert(run.id.clone(), (stream, run));
            }
        }
    }

    fn checkpoint(&self) -> Vec<CheckpointRun> {
        let live = self.runs.values().map(|(stream, run)| CheckpointRun {
            run: Arc::clone(run),
            stream: Arc::clone(stream),
            head: stream.head(),
        });
        live.collect()
    }

    /// The meters, and the accounts that the records of the runs do not tell.
    fn accounts(&self) -> Rows {
        let runs = self.runs.values().map(|(_, run)| run.as_ref());
        state::to_store(&self.ledger, runs)
    }
}

/// One commit.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) lsn: Lsn,
    pub(super) at: Timestamp,
    pub(super) entries: Vec<Entry>,
    /// The records after it; none if they are known to be older than those that are live.
    pub(super) records: Vec<(Arc<RunStream>, Arc<Run>)>,
    /// What it did to accounts and meters.
    pub(super) rows: Rows,
    /// The accounts it closed.
    pub(super) closed: Closed,
}

/// One event of a commit.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stream: Arc<RunStream>,
    pub(super) seq: Seq,
    pub(super) text: Rendered,
    boundary: bool,
    /// The record after this event, if it suspended or ended the run.
    settled: Option<Arc<Run>>,
}

impl Entry {
    /// `change` is what came of `event`.
    pub(super) fn new(
        stream: &Arc<RunStream>,
        event: &Event,
        change: state::Fact,
        text: Rendered,
    ) -> Self {
        Self {
            stream: Arc::clone(stream),
            seq: change.seq,
            text,
            boundary: event.facets().boundary,
            settled: change.settled,
        }
    }

    /// The event as readers get it.
    fn line(&self, lsn: Lsn, at: Timestamp) -> Line {
        Line {
            seq: self.seq,
            lsn,
            timestamp: at,
            event_type: self.text.name.to_owned(),
            payload: self.text.payload.as_str().into(),
        }
    }

    /// How it moves the run.
    fn kind(&self) -> TouchKind {
        match self.rest() {
            None => TouchKind::Moved,
            Some(rest) if rest.ended => TouchKind::Ended,
            Some(_) => TouchKind::Rested,
        }
    }

    /// Where the run comes to rest with it, if it does.
    fn rest(&self) -> Option<Rest> {
        let run = self.settled.as_ref()?;
        Some(Rest {
            at: self.seq,
            ended: run.status().is_terminal(),
        })
    }
}

/// The end of a transcript after an entry, and the signature of its checkpoint with the key.
type Written = (Head, Option<(Signature, Fingerprint)>);

/// Publishes what the log held at open up to the frame that began this life, then what comes. `live` are the runs at the end
/// of what the log held, and the accounts at its beginning. The body of the publisher thread.
pub(super) fn run(
    shared: &Arc<Shared>,
    mut live: LiveRuns,
    backlog: Vec<Replayed>,
    begin: Lsn,
    jobs: &Receiver<Job>,
) {
    let replay = backlog
        .into_iter()
        .try_for_each(|replayed| match replayed {
            Replayed::Commit(commit) => publish(shared, &mut live, commit),
            Replayed::Removal(lsn, removal) => publish_removal(shared, lsn, removal),
        })
        .and_then(|()| shared.durable.reach_blocking(begin));
    let result = replay.and_then(|()| {
        drop(shared.wide.show(begin, Vec::new));
        shared.published.advance(begin);
        jobs.iter().try_for_each(|job| match job {
            Job::Commit { commit, permit } => {
                drop(permit);
                publish(shared, &mut live, commit)
            }
            Job::Removal {
                lsn,
                removal,
                permit,
            } => {
                drop(permit);
                publish_removal(shared, lsn, removal)
            }
            Job::Checkpoint { lsn, epoch, reply } => {
                let runs = live.checkpoint();
                let checkpoint = CheckpointJob {
                    lsn,
                    epoch,
                    runs,
                    ledger: live.accounts(),
                    reply,
                };
                shared
                    .keeping
                    .post(|inbox| inbox.checkpoint = Some(checkpoint));
                Ok(())
            }
        })
    });
    if let Err(failure) = result {
        shared.published.fail(failure);
    }
}

fn publish_removal(shared: &Arc<Shared>, lsn: Lsn, removal: Removal) -> Result<(), Failure> {
    shared.durable.reach_blocking(lsn)?;
    fail_point::reach(Place::Removed);
    shared.touches.remove(lsn, &removal);
    shared.keeping.post(|inbox| inbox.removals.push(removal));
    drop(shared.wide.show(lsn, Vec::new));
    shared.published.advance(lsn);
    Ok(())
}

fn publish(shared: &Arc<Shared>, live: &mut LiveRuns, commit: Commit) -> Result<(), Failure> {
    let written = write(shared, &commit);
    shared.durable.reach_blocking(commit.lsn)?;
    let Commit {
        lsn,
        at,
        entries,
        records,
        rows,
        mut closed,
    } = commit;
    for (stream, run) in records {
        live.enter(stream, run);
    }
    live.ledger.enter(rows);
    let shown = shared.wide.show(lsn, || {
        let events = entries.iter().map(|entry| wide::Event {
            stream: Arc::clone(&entry.stream),
            line: entry.line(lsn, at),
            last: entry.rest().is_some_and(|rest| rest.ended),
        });
        events.collect()
    });
    for (place, (entry, (end, signature))) in entries.iter().zip(written).enumerate() {
        // Before the event is shown: a reader of it looks for its signature.
        if let Some((signature, signer)) = signature {
            shared.signatures.push((lsn, place), signature, signer);
        }
        let rest = entry.rest();
        entry
            .stream
            .publish((lsn, end), rest, &shared.memory, || entry.line(lsn, at));
        if let Some(run) = entry
            .settled
            .as_ref()
            .filter(|_| rest.is_some_and(|rest| rest.ended))
        {
            let ended = Ended {
                run: Arc::clone(run),
                stream: Arc::clone(&entry.stream),
                head: end,
                lsn,
                // They are kept with the first run of the commit that ended.
                closed: std::mem::take(&mut closed),
            };
            shared.keeping.post(|inbox| inbox.ended.push(ended));
        }
    }
    let moved = entries.iter();
    let moved = moved.map(|entry| (&entry.stream.id, &*entry.stream.spec.files, entry.kind()));
    shared.touches.mark(lsn, moved);
    drop(shown);
    shared.published.advance(lsn);
    Ok(())
}

fn write(shared: &Shared, commit: &Commit) -> Vec<Written> {
    let mut written: Vec<Written> = Vec::with_capacity(commit.entries.len());
    // Of interest for their hashes alone.
    let mut lines = Vec::new();
    for (place, entry) in commit.entries.iter().enumerate() {
        let earlier = commit.entries[..place]
            .iter()
            .rposition(|earlier| Arc::ptr_eq(&earlier.stream, &entry.stream));
        let mut end = match earlier {
            Some(earlier) => written[earlier].0,
            None => entry.stream.head(),
        };
        let fact = Fact {
            run: &entry.stream.id,
            seq: entry.seq,
            at: commit.at,
            name: entry.text.name,
            payload: &entry.text.payload,
        };
        lines.clear();
        end.write_event(&fact, &mut lines);
        let signature = entry.boundary.then(|| {
            let signed = shared.signer.sign(&end.digest(fact.run));
            end.write_checkpoint(fact.run, fact.at, &signed, &mut lines);
            (signed.signature, signed.signer.clone())
        });
        written.push((end, signature));
    }
    written
}
