//! Failures of the history store.

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
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Answer of the system.
        #[source]
        source: io::Error,
    },
    /// A frame cannot be read.
    #[error("{content} cannot be read: the frame at byte {offset} of `{}`", path.display())]
    Frame {
        /// The requested part of its content: runs and their events, or positions.
        content: String,
        /// The file.
        path: PathBuf,
        /// Start of the frame.
        offset: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The sealer handed over a section that could not be read back.
    #[error("the section cannot be stored: {0}")]
    Refused(String),
}

impl Error {
    /// Makes an error of the answer of the system to `operation` on `path`.
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
