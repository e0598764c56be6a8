//! What can go wrong between the client and the daemon.

use std::io;
use std::path::PathBuf;

use rye_core::error::{ErrorKind, Kinded};
use rye_proto::convert::Malformed;
use tonic::{Code, Status};

/// Trailing metadata in which the daemon gives its reason as a word for programs.
const REASON: &str = "rye-reason";

/// A failure of the client's part, or the daemon's refusal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No state directory can be named.
    #[error("there is no home directory to keep the daemon's state in")]
    NoHome,
    /// No user space can be named.
    #[error("there is no home directory to look for your keys in")]
    NoUserSpace,
    /// `USER_SPACE` depends on where a command is given.
    #[error("USER_SPACE is `{}`, which is not an absolute path", path.display())]
    RelativeUserSpace {
        /// What it says.
        path: PathBuf,
    },
    /// The directory that the command was given in was removed.
    #[error("this directory is gone: it was removed, or moved out of reach")]
    DirectoryGone,
    /// A Unix socket path has at most 107 bytes.
    #[error("the socket path `{}` has {} bytes; a Unix socket takes at most 107", path.display(), path.as_os_str().len())]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Nothing listens, and nothing was started.
    #[error("no daemon listens on `{}`", socket.display())]
    NotRunning {
        /// Where it was looked for.
        socket: PathBuf,
        /// Why none was started.
        why: NotStarted,
    },
    /// The socket is there but cannot be used.
    #[error("cannot connect to the daemon's socket `{}`", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The daemon's program, log or state directory could not be used to start it.
    #[error("cannot start the daemon: {what} `{}`", path.display())]
    CannotStart {
        /// What failed, as `create the directory`.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon was started and ended, or did not become ready in time.
    #[error("the daemon did not become ready: {why}{}", if last_line.is_empty() { String::new() } else { format!("; it said: {last_line}") })]
    NotReady {
        /// What was seen of it.
        why: String,
        /// The last line of its log.
        last_line: String,
        /// Its log.
        log: PathBuf,
    },
    /// The connection broke and did not come back.
    #[error("lost the connection to the daemon on `{}`: {why}", socket.display())]
    Lost {
        /// The socket.
        socket: PathBuf,
        /// What broke it, in the words of the system where it has some.
        why: String,
        /// Whether nothing listens where a daemon did: one that died leaves its socket behind, one that stopped does not.
        died: bool,
    },
    /// The daemon takes calls and answers none.
    #[error("{} on `{}`{} has not answered within {seconds} s", named(*pid), socket.display(), if *is_recovering { " is still recovering its runs, and" } else { "" })]
    NoAnswer {
        /// The socket.
        socket: PathBuf,
        /// Its pid, if it is known.
        pid: Option<i32>,
        /// How long it was waited for.
        seconds: u64,
        /// True if it reports that it reads its log.
        is_recovering: bool,
    },
    /// A daemon uses the state directory, and cannot be found.
    #[error("a daemon uses `{}`, and nothing there says where it listens", state_dir.display())]
    Hidden {
        /// The state directory.
        state_dir: PathBuf,
    },
    /// A daemon that does not answer could not be ended.
    #[error("cannot end the daemon (pid {pid})")]
    CannotEnd {
        /// Its pid.
        pid: i32,
        /// Why not.
        source: io::Error,
    },
    /// The daemon answered with an error.
    #[error("{message}")]
    Refused {
        /// What it means.
        kind: ErrorKind,
        /// The daemon's words.
        message: String,
        /// A word for programs.
        reason: Option<String>,
    },
    /// A request is longer than any the daemon takes.
    #[error("the request has {bytes} bytes; at most {most} can be sent")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The daemon's answer does not fit the contract this client knows.
    #[error("the daemon's answer has {what}")]
    Malformed {
        /// What does not fit.
        what: String,
    },
    /// The daemon was asked to stop and is still there.
    #[error("{} on `{}` has not stopped within {seconds} s", named(*pid), socket.display())]
    StillRunning {
        /// Its socket.
        socket: PathBuf,
        /// Its pid, if it is known.
        pid: Option<i32>,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// Why no daemon was started where none was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStarted {
    /// The caller said `--no-autostart`.
    SwitchedOff,
    /// Inside a run no daemon is ever started.
    InsideRun,
    /// The call only asks whether one runs.
    NotAsked,
}

impl Error {
    /// What a status from a call means. A status with a source was made on this side: the transport broke.
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

    /// The word for it, for programs: the daemon's own, where it gave one.
    pub fn reason(&self) -> &str {
        if let Self::Refused {
            reason: Some(word), ..
        } = self
        {
            return word;
        }
        self.kind().word()
    }

    /// The fix, where there is one.
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
                NotStarted::NotAsked => "`ryectl daemon start` starts it",
            },
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the socket belongs to another user; name your own with --socket or --state-dir"
            }
            Self::CannotStart {
                what: "run",
                source,
                ..
            } if source.kind() == io::ErrorKind::NotFound => {
                "install `ryed` beside `ryectl`, or start it by hand"
            }
            Self::Refused {
                kind: ErrorKind::DataLoss,
                ..
            } => {
                "the file was changed, cut or removed outside of Rye; only a copy of it brings it back"
            }
            // The daemon's own words name the fix.
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

/// The daemon, with its pid if that is known.
fn named(pid: Option<i32>) -> String {
    pid.map_or_else(
        || "the daemon".to_owned(),
        |pid| format!("the daemon (pid {pid})"),
    )
}

/// What the system says broke the connection under a call.
fn broken_by(status: &Status) -> Option<io::ErrorKind> {
    let mut causes =
        std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    causes.find_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()))
}

/// The kind of failure a gRPC code stands for.
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
    fn damage_from_outside_is_told_as_such() {
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
