//! Errors that end a verb.

use rye_client::exit::Exit;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::InvalidId;
use rye_item::{directories, draft, init, keys, library, lock, sign, spaces, trust};
use rye_proto::convert::Malformed;

use crate::local_error::LocalError;

/// An error that ends a verb, from the daemon or from the client's own work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Client(#[from] rye_client::Error),
    #[error(transparent)]
    Local(#[from] LocalError),
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => Exit::of_error(error.kind()),
            Self::Local(error) => error.exit,
        }
    }

    /// Returns the reason as a word for programs.
    pub(crate) fn reason(&self) -> &str {
        if let Self::Client(error) = self {
            return error.reason();
        }
        let kind = match self.exit() {
            Exit::NotFound => ErrorKind::NotFound,
            Exit::Refused => ErrorKind::Denied,
            Exit::Precondition => ErrorKind::Precondition,
            Exit::Unreachable => ErrorKind::Unavailable,
            Exit::Internal => ErrorKind::Bug,
            Exit::Done
            | Exit::Failed
            | Exit::Usage
            | Exit::Suspended
            | Exit::TimedOut
            | Exit::Interrupted(_) => ErrorKind::Invalid,
        };
        kind.word()
    }

    /// Returns the fix, unless the message names it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.hint(),
            Self::Local(error) => error.hint.clone(),
        }
    }
}

/// Returns the exit code of a failure in which no daemon took part. An invalid file is a finding, and a disk that does
/// not answer is no unreachable daemon.
const fn local(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unavailable => Exit::Failed,
        ErrorKind::NotFound
        | ErrorKind::Precondition
        | ErrorKind::Exists
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::DataLoss
        | ErrorKind::Bug => Exit::of_error(kind),
    }
}

macro_rules! from_local {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Local(LocalError::of(local(error.kind()), error))
            }
        })+
    };
}

from_local!(
    directories::Error,
    draft::Error,
    init::Error,
    keys::Error,
    library::Error,
    lock::Error,
    spaces::Error,
    trust::Error
);

impl From<sign::Error> for Failure {
    fn from(error: sign::Error) -> Self {
        let exit = if error.is_invalid_argument() {
            Exit::Usage
        } else {
            local(error.kind())
        };
        Self::Local(LocalError::of(exit, error))
    }
}

impl From<InvalidId> for Failure {
    fn from(error: InvalidId) -> Self {
        Self::Local(LocalError::of(Exit::Usage, error))
    }
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::Client(error.into())
    }
}
