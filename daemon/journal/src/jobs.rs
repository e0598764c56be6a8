//! What the threads of the journal hand on: the sequencer to the publisher, and the publisher to the sealer.

use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, Lsn, Seq};
use rye_core::ledger::Rows;
use rye_core::model::{Event, Run};
use rye_core::state::{self, Closed};
use rye_core::transcript::Head;
use tokio::sync::oneshot;

use crate::backlog::Permit;
use crate::history::Removal;
use crate::record::{Line, Rendered};
use crate::stream::run_stream::{Rest, RunStream};
use crate::stream::touches::TouchKind;

/// What the log held at open.
#[derive(Debug)]
pub(crate) enum Replayed {
    Commit(Commit),
    Removal(Lsn, Removal),
}

/// What the sequencer hands over, in order.
#[derive(Debug)]
pub(crate) enum Job {
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
pub(crate) struct CheckpointRun {
    pub(crate) run: Arc<Run>,
    pub(crate) stream: Arc<RunStream>,
    pub(crate) head: Head,
}

/// A point in the log before which nothing but base and archive shall be needed.
#[derive(Debug)]
pub(crate) struct CheckpointJob {
    pub(crate) lsn: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) runs: Vec<CheckpointRun>,
    /// The accounts on which something happened, and the meters.
    pub(crate) ledger: Rows,
    /// Told when it is done, or has failed.
    pub(crate) reply: Option<oneshot::Sender<()>>,
}

/// One commit.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) lsn: Lsn,
    pub(crate) at: Timestamp,
    pub(crate) entries: Vec<Entry>,
    /// The records after it; none if they are known to be older than those that are live.
    pub(crate) records: Vec<(Arc<RunStream>, Arc<Run>)>,
    /// What it did to accounts and meters.
    pub(crate) rows: Rows,
    /// The accounts it closed.
    pub(crate) closed: Closed,
}

/// One event of a commit.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) stream: Arc<RunStream>,
    pub(crate) seq: Seq,
    pub(crate) text: Rendered,
    pub(crate) boundary: bool,
    /// The record after this event, if it suspended or ended the run.
    pub(crate) settled: Option<Arc<Run>>,
}

impl Entry {
    /// `change` is what came of `event`.
    pub(crate) fn new(
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
    pub(crate) fn line(&self, lsn: Lsn, at: Timestamp) -> Line {
        Line {
            seq: self.seq,
            lsn,
            timestamp: at,
            event_type: self.text.name.to_owned(),
            payload: self.text.payload.as_str().into(),
        }
    }

    /// How it moves the run.
    pub(crate) fn kind(&self) -> TouchKind {
        match self.rest() {
            None => TouchKind::Moved,
            Some(rest) if rest.ended => TouchKind::Ended,
            Some(_) => TouchKind::Rested,
        }
    }

    /// Where the run comes to rest with it, if it does.
    pub(crate) fn rest(&self) -> Option<Rest> {
        let run = self.settled.as_ref()?;
        Some(Rest {
            at: self.seq,
            ended: run.status().is_terminal(),
        })
    }
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) run: Arc<Run>,
    pub(crate) stream: Arc<RunStream>,
    pub(crate) head: Head,
    /// Position of its last event.
    pub(crate) lsn: Lsn,
    /// The accounts that its end closed.
    pub(crate) closed: Closed,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) ended: Vec<Ended>,
    /// The newest one covers those before it.
    pub(crate) checkpoint: Option<CheckpointJob>,
    /// Published removals.
    pub(crate) removals: Vec<Removal>,
    /// Callers that wait until history has all that is published now. They hear whether it has.
    pub(crate) waiting: Vec<oneshot::Sender<bool>>,
    /// A reader found the index broken.
    pub(crate) suspect: bool,
}
