//! Why no tests run.

use std::io;
use std::path::Path;

use rye_client::exit::Exit;

/// Why no tests run, or why their results cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    /// The exit code. It is never 1, which says that a case failed.
    pub(crate) exit: Exit,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    fn new(exit: Exit, message: String, source: Option<io::Error>) -> Self {
        Self {
            exit,
            message,
            source,
        }
    }

    /// There is no project, or there are no tests.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message.into(), None)
    }

    /// The path or a file of tests is malformed.
    pub(super) fn usage(message: String) -> Self {
        Self::new(Exit::Usage, message, None)
    }

    pub(super) fn unreadable(path: &Path, source: io::Error) -> Self {
        let message = format!("cannot read `{}`", path.display());
        Self::new(Exit::Usage, message, Some(source))
    }

    /// The cases cannot be set up.
    pub(super) fn precondition(message: String, source: Option<io::Error>) -> Self {
        Self::new(Exit::Precondition, message, source)
    }

    pub(crate) fn unwritable(path: &Path, source: io::Error) -> Self {
        let message = format!("cannot write `{}`", path.display());
        Self::precondition(message, Some(source))
    }
}
