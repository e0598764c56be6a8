//! Why the journal cannot do its part.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::error::{ErrorKind, Kinded, excerpt};
use rye_core::id::RunId;
use rye_core::model::Illegal;

use super::index::IndexError;
use super::watermark::Failure;
use crate::object;

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
    #[error("`{}` is missing or too short; restore the state directory from a copy", path.display())]
    Missing {
        /// What is missing.
        path: PathBuf,
    },
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
    /// The disk is full: nothing new is admitted.
    #[error("the disk that holds the log is full")]
    Full,
    /// A run of that id exists.
    #[error("run {run} exists already")]
    Exists {
        /// The run.
        run: RunId,
    },
    /// The start key was used before.
    #[error("the start key belongs to run {run}")]
    KeyTaken {
        /// The run it started.
        run: RunId,
    },
    /// There is no such run, or it has ended and left memory.
    #[error("run {run} is not live")]
    NotLive {
        /// The run.
        run: RunId,
    },
    /// There is no such run.
    #[error("there is no run {run}")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// The run cannot take that event now.
    #[error("run {run} refuses the event")]
    Illegal {
        /// The run.
        run: RunId,
        /// Why.
        #[source]
        source: Illegal,
    },
    /// A long payload could not be put away.
    #[error("failed to keep a long payload")]
    Object(#[source] object::Error),
    /// The events of a run are not what was written.
    #[error("the history of run {run} is damaged")]
    DataLoss {
        /// The run.
        run: RunId,
        /// Where, and how.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The index of ended runs does not answer.
    #[error("ended runs cannot be looked up")]
    Index(#[source] Arc<IndexError>),
    /// A page token that this journal never gave out.
    #[error("`{}` is not a page token", excerpt(token))]
    PageToken {
        /// The token.
        token: String,
    },
}

impl Error {
    /// Whether the journal works and only has no place to keep the commit now: it may be taken later, as it is.
    pub const fn is_out_of_space(&self) -> bool {
        match self {
            Self::Full | Self::Object(object::Error::Store { .. }) => true,
            Self::Object(object::Error::Read { .. } | object::Error::Damaged { .. })
            | Self::Files { .. }
            | Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::Failed(_)
            | Self::Closed
            | Self::Exists { .. }
            | Self::KeyTaken { .. }
            | Self::NotLive { .. }
            | Self::Unknown { .. }
            | Self::Illegal { .. }
            | Self::DataLoss { .. }
            | Self::Index(_)
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
            Self::Files { .. } | Self::Failed(_) | Self::Closed | Self::Index(_) => {
                ErrorKind::Unavailable
            }
            Self::Object(source) => source.kind(),
            Self::Corrupt { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::DataLoss { .. } => ErrorKind::DataLoss,
            Self::Full => ErrorKind::Exhausted,
            Self::Exists { .. } | Self::KeyTaken { .. } => ErrorKind::Exists,
            Self::NotLive { .. } => ErrorKind::Precondition,
            Self::Illegal { source, .. } => source.kind(),
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::PageToken { .. } => ErrorKind::Invalid,
        }
    }
}
