//! An error of the client's own part, which no daemon had a part in.

use std::error::Error;
use std::{fmt, io};

use rye_client::exit::Exit;

type Cause = Box<dyn Error + Send + Sync>;

/// An error with its exit code and, where the message does not name it, the fix.
#[derive(Debug)]
pub(crate) struct LocalError {
    /// The exit code.
    pub(crate) exit: Exit,
    /// The fix, for people.
    pub(crate) hint: Option<String>,
    error: Cause,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Message {
    message: String,
    source: Option<Cause>,
}

impl LocalError {
    /// `error`, with the exit code for it.
    pub(crate) fn of(exit: Exit, error: impl Into<Cause>) -> Self {
        Self {
            exit,
            hint: None,
            error: error.into(),
        }
    }

    /// An error with this message and the reason for it.
    pub(crate) fn because(
        exit: Exit,
        message: impl Into<String>,
        reason: impl Into<Cause>,
    ) -> Self {
        let (message, source) = (message.into(), Some(reason.into()));
        Self::of(exit, Message { message, source })
    }

    /// A file or stdin that an argument names cannot be read.
    pub(crate) fn unreadable(place: &str, error: io::Error) -> Self {
        Self::because(Exit::Usage, format!("cannot read {place}"), error)
    }

    /// The arguments, or a file that they name, are malformed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::of(Exit::Usage, message.into())
    }

    /// Something that the arguments name does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::of(Exit::NotFound, message.into())
    }

    /// Something has to be different first. This is not exit code 1, which says how a run ended.
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::of(Exit::Precondition, message.into())
    }

    /// The same error with its fix.
    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for LocalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
