//! The thread that turns commits into what the world may see.
//!
//! **Order**: commits in order of LSN. A commit is rendered and its heads are signed while its sync is in flight; then the
//! thread waits for the durable mark, and only then subscribers, projections and waiters get it. So nothing is
//! published that a power cut could take back, and signing costs a run no time.
//! **Never** takes the sequencer's lock: the sequencer may be waiting for room in this thread's queue.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, Seq};
use rye_core::model::{Event, Pages, Run, RunEvent};

use super::projector::{Inbox, Pending};
use super::record::Rendered;
use super::run_stream::{Rest, RunStream};
use super::transcript::{Fact, Head};
use super::watermark::Failure;
use super::{CheckpointJob, Line, Shared};

/// What the sequencer hands over, in order.
#[derive(Debug)]
pub(super) enum Job {
    Commit(Commit),
    /// Everything before it is to become independent of the log.
    Checkpoint(CheckpointJob),
}

/// One commit.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) lsn: Lsn,
    pub(super) at: Timestamp,
    pub(super) entries: Vec<Entry>,
}

/// One event of a commit.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stream: Arc<RunStream>,
    pub(super) seq: Seq,
    pub(super) text: Rendered,
    boundary: bool,
    pages: Pages,
    /// The record after this event, if the run parked or ended with it.
    settled: Option<Arc<Run>>,
}

impl Entry {
    /// `run` is the record after `event`.
    pub(super) fn new(
        stream: &Arc<RunStream>,
        event: &Event,
        text: Rendered,
        run: &Arc<Run>,
    ) -> Self {
        let settles =
            matches!(event, Event::Run(RunEvent::RunSuspended(_))) || event.outcome().is_some();
        let facets = event.facets();
        Self {
            stream: Arc::clone(stream),
            seq: run.seq,
            text,
            boundary: facets.boundary,
            pages: facets.pages,
            settled: settles.then(|| Arc::clone(run)),
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

/// An entry as it will stand in the transcript.
struct Written {
    start: Head,
    end: Head,
    lines: Vec<u8>,
}

/// Publishes what the log held at open up to the frame that began this life, then what comes. The body of the publisher thread.
pub(super) fn run(shared: &Shared, backlog: Vec<Commit>, begin: Lsn, jobs: &Receiver<Job>) {
    let replay = backlog
        .into_iter()
        .try_for_each(|commit| publish(shared, commit))
        .and_then(|()| shared.durable.reach_blocking(begin));
    let result = replay.and_then(|()| {
        shared.published.advance(begin);
        jobs.iter().try_for_each(|job| match job {
            Job::Commit(commit) => publish(shared, commit),
            Job::Checkpoint(checkpoint) => {
                forward(shared, checkpoint);
                Ok(())
            }
        })
    });
    if let Err(failure) = result {
        shared.published.fail(failure);
    }
    shared.projections.close();
}

/// Adds the heads, which nobody else knows at this very position.
fn forward(shared: &Shared, mut checkpoint: CheckpointJob) {
    for live in &mut checkpoint.runs {
        live.head = live.stream.head();
    }
    shared
        .projections
        .post(|inbox| inbox.checkpoint = Some(checkpoint));
}

fn publish(shared: &Shared, commit: Commit) -> Result<(), Failure> {
    let written = write(shared, &commit);
    shared.durable.reach_blocking(commit.lsn)?;
    let Commit { lsn, at, entries } = commit;
    let urgent = entries.iter().any(|entry| entry.pages == Pages::Now);
    let mut pending = Vec::with_capacity(entries.len());
    for (entry, Written { start, end, lines }) in entries.into_iter().zip(written) {
        let rest = entry.rest();
        entry.stream.publish(lsn, end, rest, || Line {
            seq: entry.seq,
            lsn,
            timestamp: at,
            event_type: entry.text.name.to_owned(),
            payload: serde_json::from_str(&entry.text.payload)
                .expect("a payload is the JSON we rendered"),
        });
        pending.push(Pending {
            stream: entry.stream,
            start,
            end,
            lines: Some(lines),
            pages: entry.pages,
            settled: entry.settled.map(|run| (run, lsn)),
        });
    }
    let project = |inbox: &mut Inbox| pending.into_iter().for_each(|one| inbox.add(one));
    if urgent {
        shared.projections.post(project);
    } else {
        shared.projections.leave(project);
    }
    shared.published.advance(lsn);
    Ok(())
}

fn write(shared: &Shared, commit: &Commit) -> Vec<Written> {
    let mut written: Vec<Written> = Vec::with_capacity(commit.entries.len());
    for (place, entry) in commit.entries.iter().enumerate() {
        let earlier = commit.entries[..place]
            .iter()
            .rposition(|earlier| Arc::ptr_eq(&earlier.stream, &entry.stream));
        let start = match earlier {
            Some(earlier) => written[earlier].end,
            None => entry.stream.head(),
        };
        let mut end = start;
        let mut lines = Vec::new();
        let fact = Fact {
            run: &entry.stream.id,
            seq: entry.seq,
            at: commit.at,
            name: entry.text.name,
            payload: &entry.text.payload,
            boundary: entry.boundary,
        };
        end.write(&fact, shared.signer.as_ref(), &mut lines);
        written.push(Written { start, end, lines });
    }
    written
}
