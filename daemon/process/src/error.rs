//! Errors of starting and following processes.

use std::io;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::model::Isolation;

/// Reason why a process could not be started or followed. From [`Spawner::start`](super::Spawner::start): the program
/// was not executed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("program `{program}` not found (looked for {looked_for})")]
    ProgramNotFound {
        /// Name in the plan.
        program: String,
        /// Paths that were tried.
        looked_for: String,
    },
    /// The program exists but cannot be executed.
    #[error("failed to execute `{program}`")]
    Execute { program: String, source: io::Error },
    #[error("failed to enter the working directory `{cwd}`")]
    WorkingDirectory { cwd: String, source: io::Error },
    /// An argument, a variable or a path holds a NUL byte, which the kernel cannot pass on.
    #[error("{what} of `{program}` holds a NUL byte")]
    NulByte {
        /// Part of the plan.
        what: String,
        program: String,
    },
    /// The kernel takes no longer argument or variable.
    #[error(
        "{what} of `{program}` has {bytes} bytes, and the kernel takes at most {most}: pass large data on stdin or in a file"
    )]
    TooLong {
        /// Part of the plan.
        what: String,
        program: String,
        bytes: usize,
        most: usize,
    },
    /// All arguments and variables together exceed the limit of the kernel.
    #[error(
        "the arguments and variables of `{program}` have {bytes} bytes together, more than the kernel takes (a quarter of `ulimit -s`, at most 6 MiB): pass large data on stdin or in a file"
    )]
    TooLongTogether { program: String, bytes: usize },
    /// A step before the execution failed.
    #[error("failed to {step} for `{program}`")]
    Prepare {
        /// The failed operation.
        step: &'static str,
        program: String,
        source: io::Error,
    },
    /// A started process could not be followed to its end.
    #[error("failed to {step} of process {pid}")]
    Follow {
        /// The failed operation.
        step: &'static str,
        pid: i32,
        source: io::Error,
    },
    #[error("the isolation `{level}` is not available: {cause}", level = level.as_str())]
    NoIsolation {
        level: Isolation,
        /// The missing part, and the fix.
        cause: String,
    },
    /// The thread that starts processes has ended.
    #[error("the daemon starts no processes any more")]
    SpawnerGone,
    /// The caller at a socket cannot be identified.
    #[error("failed to read the credentials of a caller")]
    Credentials(#[source] io::Error),
    /// The parent process could not start or watch the daemon.
    #[error("failed to {step}")]
    Parent {
        /// The failed operation.
        step: &'static str,
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ProgramNotFound { .. }
            | Self::Execute { .. }
            | Self::WorkingDirectory { .. }
            | Self::NoIsolation { .. } => ErrorKind::Precondition,
            Self::NulByte { .. } | Self::TooLong { .. } | Self::TooLongTogether { .. } => {
                ErrorKind::Invalid
            }
            Self::Prepare { .. } | Self::Parent { .. } => ErrorKind::Exhausted,
            Self::Follow { .. } => ErrorKind::Bug,
            Self::SpawnerGone => ErrorKind::Unavailable,
            Self::Credentials(_) => ErrorKind::Denied,
        }
    }
}
