//! Errors of the journal.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::history;
use rye_core::error::{ErrorKind, Kinded, excerpt};
use rye_core::id::RunId;
use rye_core::memory::Memory;
use rye_core::state::{RefusalReason, Refused};

use crate::index::IndexError;
use crate::watermark::Failure;
use rye_host::blobs;

/// Number of copies of a payload in memory while it is sent: as text, and as bytes of a message.
pub(crate) const COPIES: usize = 2;

/// Error of a request to the journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the state directory cannot be used.
    #[error("failed to {what} `{}`", path.display())]
    Files {
        /// Operation that failed, as a verb.
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A frame that was once on disk is damaged. Nothing was changed.
    #[error("the log is damaged at byte {offset} of `{}`; restore the state directory from a copy", path.display())]
    Corrupt {
        /// File of the segment.
        path: PathBuf,
        /// Offset of the bad frame in bytes.
        offset: u64,
    },
    /// A part of the store is missing that other parts refer to. Nothing was changed.
    #[error("`{}` is missing or was cut short; restore the state directory from a copy", path.display())]
    Missing { path: PathBuf },
    /// An earlier version of ryed wrote the state. Nothing was changed.
    #[error(
        "`{}` was written by an earlier version of ryed, whose state this version cannot read: move the state directory away, or name \
         another one",
        path.display()
    )]
    Former {
        /// A file that only such a version has.
        path: PathBuf,
    },
    #[error("history cannot be used")]
    History(#[source] history::Error),
    /// A sound frame has content that this version does not understand. Nothing was changed.
    #[error("the record at byte {offset} of `{}` cannot be understood", path.display())]
    Unreadable {
        /// File of the segment.
        path: PathBuf,
        /// Offset of the frame in bytes.
        offset: u64,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The journal has failed; the daemon must end.
    #[error("the journal does not work any more")]
    Failed(#[source] Failure),
    #[error("the journal is closed")]
    Closed,
    /// The disk is so slow that no more commits can wait for it.
    #[error("the disk that holds the log does not keep up")]
    DiskOverloaded,
    /// A change of the commit was refused; none of them was applied.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("there is no run {run}")]
    Unknown { run: RunId },
    /// A long payload could not be stored.
    #[error("failed to keep a long payload")]
    Object(#[source] blobs::Error),
    /// The events of a run are not what was written.
    #[error("the history of run {run} is damaged")]
    DataLoss {
        run: RunId,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The requested data does not fit into memory now.
    #[error(
        "what all runs hold, and what is read of them, may take {} MiB of memory together (`limits.memory_mb`), and what comes next does not \
         fit beside the rest now; the run is not affected: read on later, or raise that limit",
        most >> 20
    )]
    MemoryFull {
        /// Limit in bytes.
        most: usize,
    },
    /// The requested data never fits into memory.
    #[error(
        "the next event of run {run} has {} MiB, which take {COPIES} times as much memory while they are sent, and what all runs hold and \
         what is read of them may take {} MiB together (`limits.memory_mb`); the run is not affected, and `ryectl get {run}` tells how \
         it stands: raise that limit to follow it",
        bytes.div_ceil(1 << 20), most >> 20
    )]
    TooLong {
        run: RunId,
        /// Length of the payload in bytes.
        bytes: usize,
        /// Limit in bytes.
        most: usize,
    },
    /// The index of ended runs failed or is not available.
    #[error("ended runs cannot be looked up")]
    Index(#[source] Arc<IndexError>),
    /// Neither log nor history holds the events after a position: they are lost, or the position is of another daemon.
    #[error(
        "the daemon does not hold what comes after this cursor; look at the runs as they are (`List`), and begin without one"
    )]
    Passed,
    /// The page token is not of this journal.
    #[error("`{}` is not a page token", excerpt(token))]
    PageToken { token: String },
}

impl Error {
    /// Returns the error that `memory` has no room now.
    pub(crate) fn memory_full(memory: &Memory) -> Self {
        Self::MemoryFull {
            most: memory.most(),
        }
    }

    /// True if the journal works and only has no space to store the commit now: the same commit may be accepted later.
    pub const fn is_out_of_space(&self) -> bool {
        match self {
            Self::Refused(Refused {
                why: RefusalReason::Full,
                ..
            })
            | Self::Object(blobs::Error::Store { .. }) => true,
            Self::Object(blobs::Error::Read { .. } | blobs::Error::Damaged { .. })
            | Self::Files { .. }
            | Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Former { .. }
            | Self::History(_)
            | Self::Unreadable { .. }
            | Self::Failed(_)
            | Self::Closed
            | Self::DiskOverloaded
            | Self::Refused(_)
            | Self::Unknown { .. }
            | Self::DataLoss { .. }
            | Self::MemoryFull { .. }
            | Self::TooLong { .. }
            | Self::Index(_)
            | Self::Passed
            | Self::PageToken { .. } => false,
        }
    }

    /// True if this process can commit nothing any more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Closed)
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Files { .. }
            | Self::Failed(_)
            | Self::Closed
            | Self::DiskOverloaded
            | Self::Index(_) => ErrorKind::Unavailable,
            Self::MemoryFull { .. } | Self::TooLong { .. } => ErrorKind::Exhausted,
            Self::Object(source) => source.kind(),
            Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::DataLoss { .. } => ErrorKind::DataLoss,
            Self::Refused(refused) => refused.kind(),
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::History(source) => source.kind(),
            Self::Passed | Self::Former { .. } => ErrorKind::Precondition,
            Self::PageToken { .. } => ErrorKind::Invalid,
        }
    }
}
