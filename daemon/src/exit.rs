//! The exit codes of `ryed`, as the command line reference lists them.

use std::process::ExitCode;

use rye_core::error::ErrorKind;

/// How `ryed` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It did what it was asked to, a shutdown on request included.
    Done,
    /// The command line or the settings are wrong.
    Usage,
    /// Something named does not exist.
    NotFound,
    /// Not allowed.
    Refused,
    /// The state of the host or of the state directory does not allow it: another daemon owns it, the disk is full.
    Precondition,
    /// We failed at our part, or stored data is damaged.
    Internal,
}

impl ExitStatus {
    /// The code.
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
