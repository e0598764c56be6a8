//! The journal: what has happened, and the only way anything happens.
//!
//! **Owns** the log, history, the records of all runs, their index and their feeds.
//! **Never** lets anything out (an answer, an event) before it is on disk, opens no file of a project to write, and never decides: an
//! [`Event`](rye_core::model::Event) is a fact somebody else decided.
//!
//! ```text
//!                       ┌ lock ──────────────┐        writer ── fdatasync ──► durable ─┐
//! commit ──► draft ──► │ check apply number │ ──► ┤                                  ▼
//!                       └────────────────────┘        publisher ── render, sign ── wait ──► published ──► feeds, waiters
//!                                                                         │
//!                                    sealer (history, index, base) ◄────┴──► touches: which runs moved, for exports
//! ```
//!
//! **Order.** The LSN orders commits, the seq the events of a run. Everything follows the LSN: writing, publishing,
//! sealing. A ticket's [`Journal::durable`] is where a run's next effect may start; [`Journal::published`] is
//! where its head is signed and its listeners have it.
//!
//! **Failure.** A write or sync of the log that fails is final: [`Journal::failed`] resolves, nothing is answered any more.
//! A full disk is not: [`Journal::storage`] says so, new work is refused ([`Why::Full`]), runs can still be suspended and end.
//! Dropping the journal is a crash without the crash: what was queued is written, nothing is rounded off.
//! A kill at any instant loses no acknowledged commit; see `recovery` for how a torn end is distinguished from damage.
//!
//! Groups of modules are rows, the lowest first: a module uses only earlier rows.

mod options;
mod watermark;

mod faults;
pub mod history;
mod mailbox;

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
    AccountRow, ExportSource, Exported, Filter, FoundRun, Journal, Money, Page, PublishedRun,
    Recovered, StepLine, Touched, Walked, page_token,
};
pub use log::Storage;
pub use options::{Options, SealBounds, Signer, TREE_RUNS};
pub use reader::{
    Cursor, Extract, Live, Of, Piece, Read, Reader, Sees, Shown, Since, Spot, THREADS, Until,
    Verdict, WrittenLine,
};
pub use record::Line;
pub use rye_core::state::{Change, Refused, Why};
pub use rye_core::transcript::{Head, Signed};
pub use sequencer::{Committed, Place, Ticket};
pub use stream::{Delta, DeltaKind, Missed, Reported, Speaker, Touch, TouchKind};
pub use watermark::Failure;
