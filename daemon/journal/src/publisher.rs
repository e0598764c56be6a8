//! The thread that publishes commits.
//!
//! **Order**: commits are published in the order of their LSNs. A commit is rendered and its heads are signed while its
//! sync is in progress. Then the thread waits for the durable watermark, and only then sends the commit to subscribers,
//! exports and waiting tasks. So a power cut cannot undo a published event, and signing does not delay a run.
//!
//! **Owns** the live records as of the last published commit. A checkpoint is an entry in its queue, and needs no
//! access to the sequencer. **Never** takes the sequencer's lock, and blocks no one except through the permits of the
//! commits in its queue, which it returns when it handles them (see `backlog`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rye_core::id::{Lsn, RunId};
use rye_core::ledger::{Ledger, Rows};
use rye_core::memory::Memory;
use rye_core::model::Run;
use rye_core::seal::{Fingerprint, Signature};
use rye_core::state;
use rye_core::transcript::{Fact, Head};
use rye_host::fail_point::{self, FailPlace};

use crate::coalescing_queue::CoalescingQueue;
use crate::history::Removal;
use crate::jobs::{CheckpointJob, CheckpointRun, Commit, Ended, Inbox, Job, Replayed};
use crate::log::Log;
use crate::options::Signer;
use crate::stream::run_stream::RunStream;
use crate::stream::{Published, all_runs};
use crate::watermark::Failure;

/// The publisher, run by its own thread.
pub(crate) struct Publisher {
    pub(crate) log: Arc<Log>,
    pub(crate) published: Arc<Published>,
    pub(crate) sealer: Arc<CoalescingQueue<Inbox>>,
    pub(crate) signer: Arc<dyn Signer>,
    pub(crate) memory: Arc<Memory>,
}

/// The runs that have not ended, each with its stream and record, and the open accounts, at one position of the log. At
/// open the accounts are those of the base, and are updated as the log is published again.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns {
    runs: HashMap<RunId, (Arc<RunStream>, Arc<Run>)>,
    ledger: Ledger,
}

impl LiveRuns {
    /// Returns these accounts without runs.
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            runs: HashMap::new(),
            ledger,
        }
    }

    /// Updates the record of a run to a later position. A run that has ended is removed.
    pub(crate) fn enter(&mut self, stream: Arc<RunStream>, run: Arc<Run>) {
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

    /// Returns the meters, and the accounts that the records of the runs do not hold.
    fn accounts(&self) -> Rows {
        let runs = self.runs.values().map(|(_, run)| run.as_ref());
        state::to_store(&self.ledger, runs)
    }
}

/// Head of the transcript after an entry, and the signature of its checkpoint with the key.
type Written = (Head, Option<(Signature, Fingerprint)>);

impl Publisher {
    /// Publishes the frames that the log held at open up to the frame that began this epoch, then new ones. `live` are
    /// the runs at the end of those frames, and the accounts before them. The body of the publisher thread.
    pub(crate) fn run(
        &self,
        mut live: LiveRuns,
        backlog: Vec<Replayed>,
        begin: Lsn,
        jobs: &Receiver<Job>,
    ) {
        let replay = backlog
            .into_iter()
            .try_for_each(|replayed| match replayed {
                Replayed::Commit(commit) => self.publish(&mut live, commit),
                Replayed::Removal(lsn, removal) => self.publish_removal(lsn, removal),
            })
            .and_then(|()| self.log.durable.reach_blocking(begin));
        let result = replay.and_then(|()| {
            drop(self.published.wide.show(begin, Vec::new));
            self.published.watermark.advance(begin);
            jobs.iter().try_for_each(|job| match job {
                Job::Commit { commit, permit } => {
                    drop(permit);
                    self.publish(&mut live, commit)
                }
                Job::Removal {
                    lsn,
                    removal,
                    permit,
                } => {
                    drop(permit);
                    self.publish_removal(lsn, removal)
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
                    self.sealer
                        .post(|inbox| inbox.checkpoint = Some(checkpoint));
                    Ok(())
                }
            })
        });
        if let Err(failure) = result {
            self.published.watermark.fail(failure);
        }
    }

    fn publish_removal(&self, lsn: Lsn, removal: Removal) -> Result<(), Failure> {
        self.log.durable.reach_blocking(lsn)?;
        fail_point::reach(FailPlace::Removed);
        self.published.touches.remove(lsn, &removal);
        self.sealer.post(|inbox| inbox.removals.push(removal));
        drop(self.published.wide.show(lsn, Vec::new));
        self.published.watermark.advance(lsn);
        Ok(())
    }

    fn publish(&self, live: &mut LiveRuns, commit: Commit) -> Result<(), Failure> {
        let written = self.write(&commit);
        self.log.durable.reach_blocking(commit.lsn)?;
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
        let shown = self.published.wide.show(lsn, || {
            let events = entries.iter().map(|entry| all_runs::Event {
                stream: Arc::clone(&entry.stream),
                line: entry.line(lsn, at),
                last: entry.rest().is_some_and(|rest| rest.ended),
            });
            events.collect()
        });
        for (place, (entry, (end, signature))) in entries.iter().zip(written).enumerate() {
            // Before the event is shown: a reader of it looks for its signature.
            if let Some((signature, signer)) = signature {
                self.published
                    .signatures
                    .push((lsn, place), signature, signer);
            }
            let rest = entry.rest();
            entry
                .stream
                .publish((lsn, end), rest, &self.memory, || entry.line(lsn, at));
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
                self.sealer.post(|inbox| inbox.ended.push(ended));
            }
        }
        let moved = entries.iter();
        let moved = moved.map(|entry| (&entry.stream.id, &*entry.stream.spec.files, entry.kind()));
        self.published.touches.record(lsn, moved);
        drop(shown);
        self.published.watermark.advance(lsn);
        Ok(())
    }

    fn write(&self, commit: &Commit) -> Vec<Written> {
        let mut written: Vec<Written> = Vec::with_capacity(commit.entries.len());
        // Only their hashes are used.
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
                name: entry.name,
                payload: &entry.text.payload,
            };
            lines.clear();
            end.write_event(&fact, &mut lines);
            let signature = entry.boundary.then(|| {
                let signed = self.signer.sign(&end.digest(fact.run));
                end.write_checkpoint(fact.run, fact.at, &signed, &mut lines);
                (signed.signature, signed.signer.clone())
            });
            written.push((end, signature));
        }
        written
    }
}
