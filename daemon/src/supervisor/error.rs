//! Why the supervisor did not do what it was asked.

use rye_core::definition::MISFIT;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemRef, RunId};
use rye_core::model::Failure;
use rye_core::provider::Unresolved;

use crate::port::Refusal;
use crate::{chain, directives, index, inspect, models, native, projects, thread};

/// The code of the failure of a run whose tools would miss variables of the environment.
pub(super) const VARIABLES_MISSING: &str = "missing_environment_variables";
/// The code of [`Error::Removed`].
const REMOVED: &str = "run_removed";

/// Why the supervisor did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The run is not known.
    #[error("there is no run `{run}`")]
    UnknownRun {
        /// Its id.
        run: RunId,
    },
    /// The run is over.
    #[error("run `{run}` has ended ({status}); an ended run cannot be {wanted}")]
    Over {
        /// Its id.
        run: RunId,
        /// Its status.
        status: rye_core::model::Status,
        /// What was asked, in the past tense.
        wanted: &'static str,
    },
    /// The project directory cannot be used.
    #[error(transparent)]
    Project(#[from] projects::Error),
    /// The item cannot be looked at.
    #[error(transparent)]
    Inspect(#[from] inspect::Error),
    /// The caller may not see, or not touch, a run that the request names.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The item is refused or not there.
    #[error("failed to start `{item}`")]
    Item {
        /// The item.
        item: ItemRef,
        /// Why.
        #[source]
        source: Box<chain::Error>,
    },
    /// A capability to start is missing.
    #[error("{message}")]
    Denied {
        /// Which, and which layer lacks it.
        message: String,
    },
    /// A directive cannot be used.
    #[error(transparent)]
    Directive(#[from] directives::Error),
    /// Nothing is fetched.
    #[error(transparent)]
    Fetch(#[from] index::Error),
    /// Nothing is signed.
    #[error(transparent)]
    Sign(#[from] native::SignError),
    /// The models of the project cannot be read.
    #[error(transparent)]
    Models(#[from] models::Error),
    /// There is no model to be used.
    #[error(transparent)]
    NoModel(#[from] Unresolved),
    /// The prompt of a thread cannot be put together.
    #[error("{message}")]
    Unprompted {
        /// Why.
        message: String,
        /// The same, for programs.
        code: String,
    },
    /// It is part of the language, and not carried out yet.
    #[error("{message}")]
    NotSupported {
        /// What, and what to do instead.
        message: String,
    },
    /// Only graphs have nodes to begin at.
    #[error("`{item}` is a tool; only a graph can be stepped or resumed")]
    NotAGraph {
        /// The item.
        item: ItemRef,
    },
    /// A parameter that says how an item is to run is wrong.
    #[error("{message}")]
    Params {
        /// Which, and the fix.
        message: String,
    },
    /// What is asked for cannot begin.
    #[error("{}", failure.message)]
    Faulty {
        /// Why.
        failure: Box<Failure>,
    },
    /// The inputs of a directive do not fit it.
    #[error("{message}")]
    Inputs {
        /// Which, and why.
        message: String,
    },
    /// What was asked of a run does not fit what it is or why it is suspended.
    #[error("run `{run}`: {problem}")]
    Unfit {
        /// Its id.
        run: RunId,
        /// What does not fit, and the fix.
        problem: String,
    },
    /// The idempotency key was used for something else.
    #[error(
        "the idempotency key belongs to run `{run}`, which was started with {what}; use another key"
    )]
    KeyReused {
        /// The run it started.
        run: RunId,
        /// What is not the same, as it was then.
        what: String,
    },
    /// The run that began under the same key, or that continued the same run, was removed.
    #[error(
        "it began as run `{run}` before, which was removed, and does not begin again; another idempotency key begins anew"
    )]
    Removed {
        /// The run.
        run: RunId,
    },
    /// The run is not suspended.
    #[error(
        "run `{run}` is {status}; only a suspended run, or one that ended without success, can be resumed"
    )]
    NotSuspended {
        /// Its id.
        run: RunId,
        /// Its status.
        status: rye_core::model::Status,
    },
    /// The daemon is stopping.
    #[error("the daemon is stopping and starts nothing new; try again when it is up")]
    Stopping,
    /// The journal did not take it.
    #[error("failed to record the run")]
    Journal(#[from] rye_journal::Error),
}

impl Error {
    /// Its code, for programs: what kind of error it is, or more exactly what keeps a run from beginning.
    pub fn reason(&self) -> &str {
        if let Self::Faulty { failure } = self {
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
        if let Self::Removed { .. } = self {
            return REMOVED;
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
            Self::Denied { .. } => ErrorKind::Denied,
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
            | Self::NotSupported { .. } => ErrorKind::Invalid,
            Self::Unprompted { code, .. } if code == thread::INTEGRITY => ErrorKind::Denied,
            Self::Over { .. }
            | Self::Unprompted { .. }
            | Self::Unfit { .. }
            | Self::KeyReused { .. }
            | Self::Removed { .. }
            | Self::NotSuspended { .. } => ErrorKind::Precondition,
            Self::Stopping => ErrorKind::Unavailable,
            Self::Journal(source) => source.kind(),
        }
    }
}
