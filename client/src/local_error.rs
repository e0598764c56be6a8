//! Errors of the client's own work, without a daemon.

use std::error::Error;
use std::{fmt, io};

use rye_client::exit::Exit;

type Cause = Box<dyn Error + Send + Sync>;

/// An error with its exit code and, where the message does not name it, the fix.
#[derive(Debug)]
pub(crate) struct LocalError {
    pub(crate) exit: Exit,
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
    /// Wraps `error` without a hint.
    pub(crate) fn of(exit: Exit, error: impl Into<Cause>) -> Self {
        Self {
            exit,
            hint: None,
            error: error.into(),
        }
    }

    /// Makes an error with this message and `reason` as its source.
    pub(crate) fn because(
        exit: Exit,
        message: impl Into<String>,
        reason: impl Into<Cause>,
    ) -> Self {
        let (message, source) = (message.into(), Some(reason.into()));
        Self::of(exit, Message { message, source })
    }

    /// Reports that a file or stdin named by an argument cannot be read.
    pub(crate) fn unreadable(place: &str, error: io::Error) -> Self {
        Self::because(Exit::Usage, format!("cannot read {place}"), error)
    }

    /// Reports malformed arguments, or a malformed file that they name.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::of(Exit::Usage, message.into())
    }

    /// Reports that something named by the arguments does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::of(Exit::NotFound, message.into())
    }

    /// Reports that something else must be done first. Exit code 1 would say how a run ended.
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::of(Exit::Precondition, message.into())
    }

    /// Adds the fix.
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
