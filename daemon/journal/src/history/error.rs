//! Errors of the history store.

use std::io;
use std::path::{Path, PathBuf};

use rye_core::error::{ErrorKind, Kinded};

use super::payload::is_damage;

/// Failure to read or write history.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or the directory cannot be used.
    #[error("failed to {operation} `{}`", path.display())]
    Files {
        /// Operation that failed, as a verb.
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A frame cannot be read.
    #[error("{content} cannot be read: the frame at byte {offset} of `{}`", path.display())]
    Frame {
        /// The requested part of its content: runs and their events, or positions.
        content: String,
        path: PathBuf,
        /// Offset of the frame in bytes.
        offset: u64,
        #[source]
        source: io::Error,
    },
    /// The section that the sealer passed could not be read back.
    #[error("the section cannot be stored: {0}")]
    Refused(String),
}

impl Error {
    /// Returns a constructor of the error for a failed `operation` on `path`.
    pub(super) fn files(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Files {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Frame { source, .. } if is_damage(source) => ErrorKind::DataLoss,
            Self::Files { .. } | Self::Frame { .. } => ErrorKind::Unavailable,
            Self::Refused(_) => ErrorKind::Bug,
        }
    }
}
