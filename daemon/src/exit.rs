//! Exit codes of `ryed`, as listed in the command line reference.

use std::process::ExitCode;

use rye_core::error::ErrorKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Success, a requested shutdown included.
    Done,
    /// The command line or the settings are invalid.
    Usage,
    /// A named object does not exist.
    NotFound,
    Refused,
    /// The state of the host or of the state directory prevents it: another daemon owns it, or the disk is full.
    Precondition,
    /// Internal error, or damaged stored data.
    Internal,
}

impl ExitStatus {
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Precondition => 5,
            Self::Internal => 70,
        }
    }
}

impl From<ErrorKind> for ExitStatus {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Usage,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Denied => Self::Refused,
            ErrorKind::Precondition
            | ErrorKind::Exists
            | ErrorKind::Exhausted
            | ErrorKind::Unavailable => Self::Precondition,
            ErrorKind::DataLoss | ErrorKind::Bug => Self::Internal,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        status.code().into()
    }
}
