//! Why a process cannot be started or followed.

use std::io;

use rye_core::error::{ErrorKind, Kinded};

/// Why a process could not be started or followed. From [`Spawner::start`](super::Spawner::start): the program was not executed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such program.
    #[error("program `{program}` not found (looked for {looked_for})")]
    ProgramNotFound {
        /// As the plan names it.
        program: String,
        /// The paths that were tried.
        looked_for: String,
    },
    /// The program is there and cannot be executed.
    #[error("failed to execute `{program}`")]
    Execute {
        /// Its path.
        program: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("failed to enter the working directory `{cwd}`")]
    WorkingDirectory {
        /// The directory.
        cwd: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// An argument, a variable or a path holds a NUL byte, which the kernel cannot pass on.
    #[error("{what} of `{program}` holds a NUL byte")]
    NulByte {
        /// Which part of the plan.
        what: &'static str,
        /// The program.
        program: String,
    },
    /// A step before the execution failed.
    #[error("failed to {step} for `{program}`")]
    Prepare {
        /// What was to be done.
        step: &'static str,
        /// The program.
        program: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// A process that was started could not be followed to its end.
    #[error("failed to {step} of process {pid}")]
    Follow {
        /// What was to be done.
        step: &'static str,
        /// The process.
        pid: i32,
        /// What the kernel says.
        source: io::Error,
    },
    /// The thread that starts processes has ended.
    #[error("the daemon starts no processes any more")]
    SpawnerGone,
    /// The caller behind a socket cannot be identified.
    #[error("failed to read the credentials of a caller")]
    Credentials(#[source] io::Error),
    /// The parent could not start or watch the daemon.
    #[error("failed to {step}")]
    Parent {
        /// What was to be done.
        step: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ProgramNotFound { .. } | Self::Execute { .. } | Self::WorkingDirectory { .. } => {
                ErrorKind::Precondition
            }
            Self::NulByte { .. } => ErrorKind::Invalid,
            Self::Prepare { .. } | Self::Parent { .. } => ErrorKind::Exhausted,
            Self::Follow { .. } => ErrorKind::Bug,
            Self::SpawnerGone => ErrorKind::Unavailable,
            Self::Credentials(_) => ErrorKind::Denied,
        }
    }
}
