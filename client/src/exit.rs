//! Exit codes of `ryectl`. Scripts depend on them, so a code keeps its meaning.

use rye_core::error::ErrorKind;
use rye_core::model::Status;

/// An exit code of `ryectl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exit {
    /// The verb succeeded. For a verb that waits for a run: the run ended `completed`.
    Done,
    /// The run ended in another way, or a check failed.
    Failed,
    /// Unknown verb or flag, or malformed input.
    Usage,
    /// The run, item or key does not exist.
    NotFound,
    /// Missing permission or capability, an item that may not run, or stored data that was changed.
    Refused,
    /// The run's state does not allow the request, or a limit is reached.
    Precondition,
    Unreachable,
    /// A bug in Rye.
    Internal,
    Suspended,
    TimedOut,
    /// The verb ends early, by the signal of the interruption.
    Interrupted(Interruption),
}

/// Reason for which a verb ends before its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Interruption {
    /// The terminal was closed (SIGHUP).
    HangUp,
    /// Ctrl-C (SIGINT).
    Keyboard,
    /// The reader of stdout has closed its end (SIGPIPE).
    ReaderGone,
    /// Another process requested the end (SIGTERM).
    Termination,
}

impl Interruption {
    /// Number of the signal.
    pub const fn signal(self) -> u8 {
        match self {
            Self::HangUp => 1,
            Self::Keyboard => 2,
            Self::ReaderGone => 13,
            Self::Termination => 15,
        }
    }

    /// Description for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::HangUp => "the terminal was closed",
            Self::Keyboard => "interrupted",
            Self::ReaderGone => "the reader of the output is gone",
            Self::Termination => "terminated",
        }
    }
}

impl Exit {
    pub const ALL: [Self; 14] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Precondition,
        Self::Unreachable,
        Self::Internal,
        Self::Suspended,
        Self::TimedOut,
        Self::Interrupted(Interruption::HangUp),
        Self::Interrupted(Interruption::Keyboard),
        Self::Interrupted(Interruption::ReaderGone),
        Self::Interrupted(Interruption::Termination),
    ];

    /// Returns the number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Precondition => 5,
            Self::Unreachable => 69,
            Self::Internal => 70,
            Self::Suspended => 75,
            Self::TimedOut => 124,
            // A shell reports a death by a signal so.
            Self::Interrupted(why) => 128 + why.signal(),
        }
    }

    /// Returns the code of a verb that waited until a run had this status.
    pub const fn of_run(status: Status) -> Self {
        match status {
            Status::Created | Status::Running | Status::Completed => Self::Done,
            Status::Suspended => Self::Suspended,
            Status::CompletedWithErrors | Status::Error | Status::Cancelled | Status::Killed => {
                Self::Failed
            }
        }
    }

    /// Returns the code of a verb that failed with an error of this kind.
    pub const fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Invalid => Self::Usage,
            // Data changed or removed outside of Rye is refused like a modified item.
            ErrorKind::Denied | ErrorKind::DataLoss => Self::Refused,
            ErrorKind::Precondition | ErrorKind::Exists | ErrorKind::Exhausted => {
                Self::Precondition
            }
            ErrorKind::Unavailable => Self::Unreachable,
            ErrorKind::Bug => Self::Internal,
        }
    }

    /// Returns the code of a verb that waited for several runs. A failed run outranks a suspended one.
    #[must_use]
    pub fn of_runs(statuses: impl IntoIterator<Item = Status>) -> Self {
        let mut exit = Self::Done;
        for status in statuses {
            match Self::of_run(status) {
                Self::Failed => return Self::Failed,
                Self::Suspended => exit = Self::Suspended,
                Self::Done
                | Self::Usage
                | Self::NotFound
                | Self::Refused
                | Self::Precondition
                | Self::Unreachable
                | Self::Internal
                | Self::TimedOut
                | Self::Interrupted(_) => {}
            }
        }
        exit
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_run_has_its_code() {
        let codes: Vec<(&str, u8)> = Status::ALL
            .into_iter()
            .map(|status| (status.as_str(), Exit::of_run(status).code()))
            .collect();
        assert_eq!(
            codes,
            [
                ("created", 0),
                ("running", 0),
                ("suspended", 75),
                ("completed", 0),
                ("completed_with_errors", 1),
                ("error", 1),
                ("cancelled", 1),
                ("killed", 1),
            ]
        );
    }

    #[test]
    fn every_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::NotFound, 3),
            (ErrorKind::Invalid, 2),
            (ErrorKind::Precondition, 5),
            (ErrorKind::Exists, 5),
            (ErrorKind::Denied, 4),
            (ErrorKind::Exhausted, 5),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::DataLoss, 4),
            (ErrorKind::Bug, 70),
        ] {
            assert_eq!(Exit::of_error(kind).code(), code, "{kind:?}");
        }
    }

    #[test]
    fn the_pages_have_the_code_of_each_end_and_of_each_kind_of_error() {
        let codes = rye_pages::Table::read("docs/steering-runs.md", "exit codes");
        codes.assert_lists(Exit::ALL.map(|exit| exit.code().to_string()));
        let kinds = rye_pages::Table::read("docs/reference.md", "error kinds");
        for kind in ErrorKind::ALL {
            kinds.assert_cell(kind.word(), "exit code", Exit::of_error(kind).code());
        }
    }

    #[test]
    fn exit_code_of_several_runs_prefers_failure() {
        use Status::{Completed, Error, Suspended};
        assert_eq!(Exit::of_runs([Completed, Completed]), Exit::Done);
        assert_eq!(Exit::of_runs([Suspended, Completed]), Exit::Suspended);
        assert_eq!(Exit::of_runs([Suspended, Error, Completed]), Exit::Failed);
    }
}
