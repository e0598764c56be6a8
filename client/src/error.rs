//! Errors of the client: its own failures and the daemon's refusals.

use std::io;
use std::path::PathBuf;

use rye_core::error::{ErrorKind, Kinded};
use rye_proto::convert::Malformed;
use tonic::{Code, Status};

/// Key of the trailing metadata with the daemon's reason, a word for programs.
const REASON: &str = "rye-reason";

/// A failure on the client's side, or a refusal of the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no home directory to keep the daemon's state in")]
    NoHome,
    #[error("there is no home directory to look for your keys in")]
    NoUserSpace,
    /// A relative `USER_SPACE` would depend on the current directory.
    #[error("USER_SPACE is `{}`, which is not an absolute path", path.display())]
    RelativeUserSpace { path: PathBuf },
    #[error("this directory is gone: it was removed, or moved out of reach")]
    DirectoryGone,
    /// Records and messages have paths as text.
    #[error("the path of the project, `{}`, is not UTF-8", path.display())]
    ProjectPath { path: PathBuf },
    #[error("the socket path `{}` has {} bytes; a Unix socket takes at most 107", path.display(), path.as_os_str().len())]
    SocketPathTooLong { path: PathBuf },
    /// Nothing listens, and no daemon was started.
    #[error("no daemon listens on `{}`", socket.display())]
    NotRunning { socket: PathBuf, why: NotStarted },
    /// The socket exists but cannot be used.
    #[error("cannot connect to the daemon's socket `{}`", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    /// The daemon's program, log or state directory could not be used.
    #[error("cannot start the daemon: {what} `{}`", path.display())]
    CannotStart {
        /// The failed operation, such as `create the directory`.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A daemon that was started ended, or was not ready in time.
    #[error("the daemon did not become ready: {why}{}", if last_line.is_empty() { String::new() } else { format!("; it said: {last_line}") })]
    NotReady {
        why: String,
        last_line: String,
        log: PathBuf,
    },
    /// The connection broke and could not be restored.
    #[error("lost the connection to the daemon on `{}`: {why}", socket.display())]
    Lost {
        socket: PathBuf,
        /// Cause in the system's words, if it gave one.
        why: String,
        /// True if the socket exists and nothing listens: a daemon that dies leaves its socket, one that stops removes
        /// it.
        died: bool,
    },
    /// The daemon accepts calls and answers none.
    #[error("{} on `{}`{} has not answered within {seconds} s", named(*pid), socket.display(), if *is_recovering { " is still recovering its runs, and" } else { "" })]
    NoAnswer {
        socket: PathBuf,
        pid: Option<i32>,
        seconds: u64,
        /// True if the daemon reports that it is reading its log.
        is_recovering: bool,
    },
    /// A daemon holds the state directory, and its socket is unknown.
    #[error("a daemon uses `{}`, and nothing there says where it listens", state_dir.display())]
    Hidden { state_dir: PathBuf },
    /// A daemon that does not answer could not be ended.
    #[error("cannot end the daemon (pid {pid})")]
    CannotEnd { pid: i32, source: io::Error },
    #[error("{message}")]
    Refused {
        kind: ErrorKind,
        message: String,
        /// The daemon's reason, a word for programs.
        reason: Option<String>,
    },
    #[error("the request has {bytes} bytes; at most {most} can be sent")]
    TooLong { bytes: usize, most: usize },
    /// The daemon's answer violates the contract that this client knows.
    #[error("the daemon's answer has {what}")]
    Malformed { what: String },
    /// The daemon got the request to stop and still runs.
    #[error("{} on `{}` has not stopped within {seconds} s", named(*pid), socket.display())]
    StillRunning {
        socket: PathBuf,
        pid: Option<i32>,
        seconds: u64,
    },
}

/// Reason that no daemon was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStarted {
    /// `--no-autostart` was given.
    SwitchedOff,
    /// A run never starts a daemon.
    InsideRun,
    /// The call does not start daemons.
    NotRequested,
}

impl Error {
    /// Converts the status of a call. A status with a source was made on this side: the transport broke.
    pub(crate) fn from_status(socket: &std::path::Path, status: &Status) -> Self {
        if std::error::Error::source(status).is_some() {
            let kind = broken_by(status);
            return Self::Lost {
                socket: socket.to_owned(),
                why: kind.map_or_else(|| "it was closed".to_owned(), |kind| kind.to_string()),
                died: kind == Some(io::ErrorKind::ConnectionRefused),
            };
        }
        let reason = status.metadata().get(REASON);
        let reason = reason.and_then(|word| word.to_str().ok());
        Self::Refused {
            kind: kind_of(status.code()),
            message: status.message().to_owned(),
            reason: reason.map(str::to_owned),
        }
    }

    /// Returns the reason as a word for programs: the daemon's own, if it gave one, else that of the kind.
    pub fn reason(&self) -> &str {
        if let Self::Refused {
            reason: Some(word), ..
        } = self
        {
            return word;
        }
        self.kind().word()
    }

    /// Returns the fix, or `None` if the message names it.
    pub fn hint(&self) -> Option<String> {
        let fix = match self {
            Self::NoHome => "set HOME, or name a directory with --state-dir",
            Self::NoUserSpace => "set HOME, or USER_SPACE to an absolute path",
            Self::RelativeUserSpace { .. } => {
                "set it to an absolute path, or leave it out to use HOME"
            }
            Self::SocketPathTooLong { .. } => "give a shorter path with --socket or --state-dir",
            Self::NotRunning { why, .. } => match why {
                NotStarted::SwitchedOff => {
                    "start it with `ryectl daemon start`, or leave out --no-autostart"
                }
                NotStarted::InsideRun => "a run never starts a daemon",
                NotStarted::NotRequested => "`ryectl daemon start` starts it",
            },
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the socket belongs to another user; name your own with --socket or --state-dir"
            }
            Self::CannotStart {
                what: "run",
                source,
                ..
            } if source.kind() == io::ErrorKind::NotFound => {
                "install `ryed` next to `ryectl`, or start it by hand"
            }
            Self::Refused {
                kind: ErrorKind::DataLoss,
                ..
            } => {
                "the file was changed, cut or removed outside of Rye; only a copy of it brings it back"
            }
            // The message itself names the cause or the fix.
            Self::Connect { .. }
            | Self::CannotStart { .. }
            | Self::CannotEnd { .. }
            | Self::Refused { .. } => return None,
            Self::TooLong { .. } => "put large data into a file of the project, and pass its name",
            Self::NotReady { log, .. } => return Some(format!("its log is `{}`", log.display())),
            Self::NoAnswer {
                is_recovering: true,
                ..
            } => "a long log takes long; `ryectl daemon logs` shows its log",
            Self::NoAnswer { .. } => {
                "it may be stopped or overloaded; `ryectl daemon logs` shows its log, `ryectl daemon stop` ends it"
            }
            Self::Hidden { .. } => {
                "it may just have been started: try again; else end it by its pid (`pgrep -a ryed`)"
            }
            Self::DirectoryGone => {
                "change to a directory that exists, or name the project with --project and an absolute path"
            }
            Self::ProjectPath { .. } => "rename its directory, or work in another one",
            Self::Lost { .. } => {
                "runs are recovered when the daemon is back; `ryectl ps` starts it and shows them"
            }
            Self::Malformed { .. } => {
                "ryectl and ryed may be of different versions: compare `ryectl --version` with `ryectl daemon status`"
            }
            Self::StillRunning { .. } => "`ryectl ps` shows what still runs",
        };
        Some(fix.to_owned())
    }

    /// True if the same call may succeed once the daemon is back.
    pub(crate) const fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. }
                | Self::NotRunning { .. }
                | Self::Connect { .. }
                | Self::Refused {
                    kind: ErrorKind::Unavailable,
                    ..
                }
        )
    }
}

impl From<Malformed> for Error {
    fn from(Malformed { what }: Malformed) -> Self {
        Self::Malformed { what }
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoHome
            | Self::NoUserSpace
            | Self::RelativeUserSpace { .. }
            | Self::DirectoryGone
            | Self::ProjectPath { .. }
            | Self::SocketPathTooLong { .. }
            | Self::TooLong { .. } => ErrorKind::Invalid,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorKind::Denied
            }
            Self::NotRunning { .. }
            | Self::Connect { .. }
            | Self::CannotStart { .. }
            | Self::NotReady { .. }
            | Self::Lost { .. }
            | Self::NoAnswer { .. }
            | Self::Hidden { .. }
            | Self::CannotEnd { .. }
            | Self::StillRunning { .. } => ErrorKind::Unavailable,
            Self::Refused { kind, .. } => *kind,
            Self::Malformed { .. } => ErrorKind::Bug,
        }
    }
}

/// Names the daemon, with its pid if that is known.
fn named(pid: Option<i32>) -> String {
    pid.map_or_else(
        || "the daemon".to_owned(),
        |pid| format!("the daemon (pid {pid})"),
    )
}

/// Returns the system's error that broke the connection, if one did.
fn broken_by(status: &Status) -> Option<io::ErrorKind> {
    let mut causes =
        std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    causes.find_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()))
}

fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::NotFound => ErrorKind::NotFound,
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
        Code::FailedPrecondition | Code::Aborted | Code::Unimplemented => ErrorKind::Precondition,
        Code::AlreadyExists => ErrorKind::Exists,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => ErrorKind::Unavailable,
        Code::DataLoss => ErrorKind::DataLoss,
        Code::Internal | Code::Unknown | Code::Ok => ErrorKind::Bug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_the_daemons_reason() {
        let mut status = Status::permission_denied("the tool `a/b` is unsigned");
        status
            .metadata_mut()
            .insert(REASON, "unsigned".parse().unwrap());
        let error = Error::from_status("/s".as_ref(), &status);
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(error.to_string(), "the tool `a/b` is unsigned");
        assert_eq!(error.hint(), None);
        assert!(matches!(error, Error::Refused { reason: Some(word), .. } if word == "unsigned"));
    }

    #[test]
    fn data_loss_status_hints_at_outside_change() {
        let error = Error::from_status("/s".as_ref(), &Status::data_loss("`x` was changed"));
        assert_eq!(error.kind(), ErrorKind::DataLoss);
        assert!(error.hint().unwrap().contains("outside of Rye"));
    }

    #[test]
    fn a_broken_transport_is_an_outage_and_a_refusal_is_not() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        let error = Error::from_status("/s".as_ref(), &broken);
        assert!(error.is_outage());
        let told = rye_core::error::with_sources(&error);
        assert_eq!(
            told,
            "lost the connection to the daemon on `/s`: connection reset"
        );
        assert!(!Error::from_status("/s".as_ref(), &Status::internal("x")).is_outage());
        assert!(Error::from_status("/s".as_ref(), &Status::unavailable("draining")).is_outage());
    }
}
