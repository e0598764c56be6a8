//! Errors of the supervisor.

use rye_core::callers::CALLER_NOT_ALLOWED;
use rye_core::definition::MISFIT;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemRef, RunId};
use rye_core::model::Failure;
use rye_core::provider::Unresolved;

use crate::callbacks::Closed;
use crate::dispatch::{ISOLATION_UNAVAILABLE, LIMITS_UNAVAILABLE};
use crate::port::Refusal;
use crate::{chain, directives, index, inspect, models, native, projects, thread};

/// Code of the failure of a run whose tools need environment variables that are not set.
pub(super) const VARIABLES_MISSING: &str = "missing_environment_variables";
const REMOVED: &str = "run_removed";
const FREEZE_UNAVAILABLE: &str = "freeze_unavailable";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no run `{run}`")]
    UnknownRun { run: RunId },
    /// The run has ended.
    #[error("run `{run}` has ended ({status}); an ended run cannot be {wanted}")]
    Over {
        run: RunId,
        status: rye_core::model::Status,
        /// The requested action as a past participle, such as `resumed`.
        wanted: &'static str,
    },
    #[error(transparent)]
    Project(#[from] projects::Error),
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    /// The caller may not see the run that the request names, or not act on it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The item does not exist or was refused.
    #[error("failed to start `{item}`")]
    Item {
        item: ItemRef,
        #[source]
        source: Box<chain::Error>,
    },
    /// The caller lacks a capability.
    #[error("{message}")]
    Denied {
        /// The capability, and the layer that lacks it.
        message: String,
    },
    #[error(transparent)]
    Directive(#[from] directives::Error),
    #[error(transparent)]
    Fetch(#[from] index::Error),
    #[error(transparent)]
    Sign(#[from] native::SignError),
    #[error(transparent)]
    Models(#[from] models::Error),
    /// No model can be used.
    #[error(transparent)]
    NoModel(#[from] Unresolved),
    /// The prompt of a thread cannot be composed.
    #[error("{message}")]
    Unprompted {
        message: String,
        /// Code of the reason.
        code: String,
    },
    /// The item is not meant for people.
    #[error("{message}")]
    CallerNotAllowed {
        /// The item, its file and its callers.
        message: String,
    },
    /// A feature of the language that is not implemented.
    #[error("{message}")]
    NotSupported {
        /// The feature, and what to do instead.
        message: String,
    },
    /// A tool was named where only a graph has nodes to begin at.
    #[error("`{item}` is a tool; only a graph can be stepped or resumed")]
    NotAGraph { item: ItemRef },
    /// An option of the request is wrong.
    #[error("{message}")]
    Params {
        /// The option, and the fix.
        message: String,
    },
    /// The host or a setting does not allow the requested isolation.
    #[error("{message}")]
    NoIsolation {
        /// The level, and the cause.
        message: String,
    },
    /// The host does not enforce the requested limits, which is required.
    #[error("{message}")]
    NoLimits {
        /// The limits, and the reason.
        message: String,
    },
    /// The host has no cgroup for the process.
    #[error("run `{run}` cannot be frozen: {problem}")]
    NoFreezer {
        run: RunId,
        /// The reason, and the fix.
        problem: String,
    },
    /// The run would fail at once.
    #[error("{}", failure.message)]
    Faulty { failure: Box<Failure> },
    /// The inputs do not match the directive.
    #[error("{message}")]
    Inputs {
        /// The input, and the reason.
        message: String,
    },
    /// The request does not fit the run, or the reason for which it is suspended.
    #[error("run `{run}`: {problem}")]
    Unfit {
        run: RunId,
        /// The mismatch, and the fix.
        problem: String,
    },
    /// The idempotency key was used for another request.
    #[error(
        "the idempotency key belongs to run `{run}`, which was started with {what}; use another key"
    )]
    KeyReused {
        run: RunId,
        /// The difference, as it was in the first request.
        what: String,
    },
    /// The run with the same key, or the existing continuation of the same run, was removed.
    #[error(
        "it began as run `{run}` before, which was removed, and does not begin again; another idempotency key begins anew"
    )]
    Removed { run: RunId },
    #[error(
        "run `{run}` is {status}; only a suspended run, or one that ended without success, can be resumed"
    )]
    NotSuspended {
        run: RunId,
        status: rye_core::model::Status,
    },
    #[error("the daemon is stopping and starts nothing new; try again when it is up")]
    Stopping,
    /// The program that calls has ended, or calls too often.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The program does not make the calls of its earlier try.
    #[error("{}", failure.message)]
    Diverged { failure: Box<Failure> },
    /// The journal did not accept the commit.
    #[error("failed to record the run")]
    Journal(#[from] rye_journal::Error),
}

impl Error {
    /// Code for programs: the kind of error, or the code of the failure that prevents the start.
    pub fn reason(&self) -> &str {
        if let Self::Faulty { failure } | Self::Diverged { failure } = self {
            return &failure.code;
        }
        if let Self::Item { source, .. } = self
            && let chain::Error::Params { failure, .. } = &**source
        {
            return &failure.code;
        }
        if let Self::Inputs { .. } = self {
            return MISFIT;
        }
        if let Self::NoIsolation { .. } = self {
            return ISOLATION_UNAVAILABLE;
        }
        if let Self::NoFreezer { .. } = self {
            return FREEZE_UNAVAILABLE;
        }
        if let Self::NoLimits { .. } = self {
            return LIMITS_UNAVAILABLE;
        }
        if let Self::Removed { .. } = self {
            return REMOVED;
        }
        if let Self::Closed(closed) = self {
            return closed.code();
        }
        if let Self::CallerNotAllowed { .. } = self {
            return CALLER_NOT_ALLOWED;
        }
        self.kind().word()
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownRun { .. } => ErrorKind::NotFound,
            Self::Project(source) => source.kind(),
            Self::Inspect(source) => source.kind(),
            Self::Refused(source) => source.kind(),
            Self::Item { source, .. } => source.kind(),
            Self::Sign(source) => source.kind(),
            Self::Denied { .. } | Self::CallerNotAllowed { .. } => ErrorKind::Denied,
            Self::Directive(source) => source.kind(),
            Self::Fetch(source) => source.kind(),
            Self::Models(source) => source.kind(),
            Self::NoModel(source) => source.kind(),
            Self::Faulty { failure } if failure.code == VARIABLES_MISSING => {
                ErrorKind::Precondition
            }
            Self::Faulty { .. }
            | Self::NotAGraph { .. }
            | Self::Params { .. }
            | Self::Inputs { .. }
            | Self::NotSupported { .. }
            | Self::Closed(Closed::Concurrent) => ErrorKind::Invalid,
            Self::Unprompted { code, .. } if code == thread::INTEGRITY => ErrorKind::Denied,
            Self::Over { .. }
            | Self::Unprompted { .. }
            | Self::Unfit { .. }
            | Self::KeyReused { .. }
            | Self::Removed { .. }
            | Self::NotSuspended { .. }
            | Self::Closed(Closed::Ended)
            | Self::Diverged { .. }
            | Self::NoIsolation { .. }
            | Self::NoLimits { .. }
            | Self::NoFreezer { .. } => ErrorKind::Precondition,
            Self::Closed(Closed::TooManyOpen | Closed::TooMany) => ErrorKind::Exhausted,
            Self::Stopping => ErrorKind::Unavailable,
            Self::Journal(source) => source.kind(),
        }
    }
}
