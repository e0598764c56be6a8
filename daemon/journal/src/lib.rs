//! The journal: the durable record of all events of all runs, and the only way to change a run.
//!
//! **Owns** the log, history, the records of all runs, their index and their feeds. **Never** releases an answer or an
//! event before it is on disk; text deltas of models are the only exception. It opens no file of a project for writing,
//! and decides nothing: an [`Event`](rye_core::model::Event) is a fact that its caller has decided.
//!
//! ```text
//!                       ┌ lock ──────────────┐        writer ── fdatasync ──► durable ─┐
//! commit ──► draft ──► │ check apply number │ ──► ┤                                  ▼
//!                       └────────────────────┘        publisher ── render, sign ── wait ──► published ──► listeners
//!                                                                         │
//!                                    sealer (history, index, base) ◄────┴──► touches: changed runs, for exports
//! ```
//!
//! **Order.** The LSN orders commits, the seq orders the events of a run. Writing, publishing and sealing follow the
//! LSN. When [`Journal::durable`] resolves for a ticket, the next effect of the run may start. When
//! [`Journal::published`] resolves, the head of the run is signed and its listeners have it.
//!
//! **Failure.** A failed write or sync of the log is final: [`Journal::failed`] resolves, and no request is answered
//! any more. A full disk is not final: [`Journal::storage`] reports it and new work is refused ([`RefusalReason::Full`]), while
//! runs can still be suspended and end. Dropping the journal is like a crash, except that queued frames are written; no
//! checkpoint and no last frame are written. A kill at any instant loses no acknowledged commit; see `recovery` for the
//! difference between a torn end and damage.
//!
//! Each group of modules is a row, the lowest first: a module uses only earlier rows.

mod options;
mod watermark;

mod coalescing_queue;
mod faults;
pub mod history;

mod log;
mod record;

mod base;

mod index;
mod stream;

mod error;

mod backlog;
mod compactor;

mod jobs;

mod publisher;
mod sequencer;
mod sweeper;

mod reader;
mod recovery;
mod sealer;

mod journal;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use faults::Faults;
#[cfg(any(test, feature = "testing"))]
pub use faults::hooks::{self, Sync as Syncs};
pub use history::RemovedRun;
pub use index::{IndexError, KeyOwner, Summary};
pub use journal::{
    AccountRow, EndedItems, ExportSource, Exported, Filter, FoundRun, Journal, Money, Page,
    PublishedRun, Recovered, StepLine, Touched, Walked, page_token,
};
pub use log::Storage;
pub use options::{Options, SealBounds, Signer, TREE_RUNS};
pub use reader::{
    Cursor, Extract, Live, Of, Piece, Read, Reader, Sees, Shown, Since, Spot, THREADS, Until,
    Verdict, WrittenLine,
};
pub use record::Line;
pub use rye_core::state::{Change, RefusalReason, Refused};
pub use rye_core::transcript::{Head, Signed};
pub use sequencer::{BudgetSlot, Committed, Ticket};
pub use stream::{Delta, DeltaKind, DeltaSender, Missed, Reported, Touch, TouchKind};
pub use watermark::Failure;
