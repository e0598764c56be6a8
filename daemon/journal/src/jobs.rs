//! Messages between the threads of the journal: from the sequencer to the publisher, and from the publisher to the
//! sealer.

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

/// A frame that the log held when the journal was opened.
#[derive(Debug)]
pub(crate) enum Replayed {
    Commit(Commit),
    Removal(Lsn, Removal),
}

/// Messages of the sequencer to the publisher, in the order of the log.
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
    /// Requests a checkpoint: history and base shall hold everything up to `lsn`, the previous commit, so that the log
    /// is not needed for it.
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

/// A checkpoint: the log up to `lsn` shall no longer be needed, only base and history.
#[derive(Debug)]
pub(crate) struct CheckpointJob {
    pub(crate) lsn: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) runs: Vec<CheckpointRun>,
    /// Accounts with any activity, and the meters.
    pub(crate) ledger: Rows,
    /// Notified when the checkpoint is done or has failed.
    pub(crate) reply: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) lsn: Lsn,
    pub(crate) at: Timestamp,
    pub(crate) entries: Vec<Entry>,
    /// The records after it; none for replayed commits, whose records are older than the live ones.
    pub(crate) records: Vec<(Arc<RunStream>, Arc<Run>)>,
    /// Its changes of accounts and meters.
    pub(crate) rows: Rows,
    /// The accounts that it closed.
    pub(crate) closed: Closed,
}

/// One event of a commit.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) stream: Arc<RunStream>,
    pub(crate) seq: Seq,
    pub(crate) name: &'static str,
    pub(crate) text: Rendered,
    pub(crate) boundary: bool,
    /// The record after this event, if it suspended or ended the run.
    pub(crate) settled: Option<Arc<Run>>,
}

impl Entry {
    /// `change` is the result of applying `event`.
    pub(crate) fn new(
        stream: &Arc<RunStream>,
        event: &Event,
        change: state::Fact,
        text: Rendered,
    ) -> Self {
        Self {
            stream: Arc::clone(stream),
            seq: change.seq,
            name: change.name,
            text,
            boundary: event.facets().boundary,
            settled: change.settled,
        }
    }

    /// Returns the event in the form for readers.
    pub(crate) fn line(&self, lsn: Lsn, at: Timestamp) -> Line {
        Line {
            seq: self.seq,
            lsn,
            timestamp: at,
            event_type: self.name.to_owned(),
            payload: self.text.payload.as_str().into(),
        }
    }

    /// Returns the kind of change for exports.
    pub(crate) fn kind(&self) -> TouchKind {
        match self.rest() {
            None => TouchKind::Moved,
            Some(rest) if rest.ended => TouchKind::Ended,
            Some(_) => TouchKind::Rested,
        }
    }

    /// Returns the suspension or end of the run by this event.
    pub(crate) fn rest(&self) -> Option<Rest> {
        let run = self.settled.as_ref()?;
        Some(Rest {
            at: self.seq,
            ended: run.status().is_terminal(),
        })
    }
}

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
    /// The newest checkpoint replaces earlier ones.
    pub(crate) checkpoint: Option<CheckpointJob>,
    /// Published removals.
    pub(crate) removals: Vec<Removal>,
    /// Callers that wait until history has everything that is published now. The reply is true if that succeeded.
    pub(crate) waiting: Vec<oneshot::Sender<bool>>,
    /// True if a reader found the index broken.
    pub(crate) suspect: bool,
}
