//! Why the journal cannot do its part.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::history;
use rye_core::error::{ErrorKind, Kinded, excerpt};
use rye_core::id::RunId;
use rye_core::memory::Memory;
use rye_core::state::{Refused, Why};

use crate::index::IndexError;
use crate::watermark::Failure;
use rye_host::blobs;

/// How often a payload is in memory while it is sent: as text, and as bytes of a message.
pub(crate) const COPIES: usize = 2;

/// Why the journal cannot do its part.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the state directory cannot be used.
    #[error("failed to {what} `{}`", path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A frame that was once on disk is damaged. Nothing was changed.
    #[error("the log is damaged at byte {offset} of `{}`; restore the state directory from a copy", path.display())]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where the bad frame starts.
        offset: u64,
    },
    /// A part of the store is gone that other parts refer to. Nothing was changed.
    #[error("`{}` is missing or was cut short; restore the state directory from a copy", path.display())]
    Missing {
        /// What is missing.
        path: PathBuf,
    },
    /// An earlier version of ryed wrote it. Nothing was changed.
    #[error(
        "`{}` was written by an earlier version of ryed, whose state this version cannot read: move the state directory away, or name \
         another one",
        path.display()
    )]
    Former {
        /// A file that only such a version has.
        path: PathBuf,
    },
    /// History cannot be read or written.
    #[error("history cannot be used")]
    History(#[source] history::Error),
    /// A sound frame says something this version does not understand. Nothing was changed.
    #[error("the record at byte {offset} of `{}` cannot be understood", path.display())]
    Unreadable {
        /// The segment.
        path: PathBuf,
        /// Where the frame starts.
        offset: u64,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The journal gave up; the daemon must end.
    #[error("the journal does not work any more")]
    Failed(#[source] Failure),
    /// The journal is closed or closing.
    #[error("the journal is closed")]
    Closed,
    /// The disk is so slow that nothing more can wait for it.
    #[error("the disk that holds the log does not keep up")]
    Behind,
    /// A change of the commit cannot happen; none of them has.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is no such run.
    #[error("there is no run {run}")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// A long payload could not be put away.
    #[error("failed to keep a long payload")]
    Object(#[source] blobs::Error),
    /// The events of a run are not what was written.
    #[error("the history of run {run} is damaged")]
    DataLoss {
        /// The run.
        run: RunId,
        /// Where, and how.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// What was to be read does not fit into memory now.
    #[error(
        "what all runs hold, and what is read of them, may take {} MiB of memory together (`limits.memory_mb`), and what comes next does not \
         fit beside the rest now; the run is not affected: read on later, or raise that limit",
        most >> 20
    )]
    MemoryFull {
        /// The limit, in bytes.
        most: usize,
    },
    /// What was to be read never fits into memory.
    #[error(
        "the next event of run {run} has {} MiB, which take {COPIES} times as much memory while they are sent, and what all runs hold and \
         what is read of them may take {} MiB together (`limits.memory_mb`); the run is not affected, and `ryectl get {run}` tells how \
         it stands: raise that limit to follow it",
        bytes.div_ceil(1 << 20), most >> 20
    )]
    TooLong {
        /// The run.
        run: RunId,
        /// What is to be read.
        bytes: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// The index of ended runs does not answer.
    #[error("ended runs cannot be looked up")]
    Index(#[source] Arc<IndexError>),
    /// Neither log nor history holds what comes after a place: it is lost, or it is the log of another daemon.
    #[error(
        "the daemon does not hold what comes after this cursor; look at the runs as they are (`List`), and begin without one"
    )]
    Passed,
    /// A page token that this journal never gave out.
    #[error("`{}` is not a page token", excerpt(token))]
    PageToken {
        /// The token.
        token: String,
    },
}

impl Error {
    /// That there is no room in `memory` now.
    pub(crate) fn memory_full(memory: &Memory) -> Self {
        Self::MemoryFull {
            most: memory.most(),
        }
    }

    /// Whether the journal works and only has no place to keep the commit now: it may be taken later, as it is.
    pub const fn is_out_of_space(&self) -> bool {
        match self {
            Self::Refused(Refused { why: Why::Full, .. })
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
            | Self::Behind
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

    /// Whether nothing can be committed any more in this life of the daemon.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Closed)
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Files { .. } | Self::Failed(_) | Self::Closed | Self::Behind | Self::Index(_) => {
                ErrorKind::Unavailable
            }
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
