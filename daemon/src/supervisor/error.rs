//! Why the supervisor did not do what it was asked.

use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemRef, RunId};

use crate::{chain, journal, projects};

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
    /// The item is refused or not there.
    #[error("failed to start `{item}`")]
    Item {
        /// The item.
        item: ItemRef,
        /// Why.
        #[source]
        source: Box<chain::Error>,
    },
    /// The item is refused or not there, and was only to be looked at.
    #[error("`{item}` cannot be {wanted}")]
    Unseen {
        /// The item.
        item: ItemRef,
        /// What was asked, in the past tense.
        wanted: &'static str,
        /// Why.
        #[source]
        source: Box<chain::Error>,
    },
    /// A tool was to be looked at as a graph.
    #[error(
        "`{item}` is no graph and cannot be {wanted} as one: its `executor_id` does not lead to \
         `rye/core/runtimes/state-graph/runtime`"
    )]
    NoGraph {
        /// The item.
        item: ItemRef,
        /// What was asked, in the past tense.
        wanted: &'static str,
    },
    /// A capability to start is missing.
    #[error("{message}")]
    Denied {
        /// Which, and which layer lacks it.
        message: String,
    },
    /// The item is of a type that does not run.
    #[error("`{item}` is a {kind}; this version of ryed runs tools and graphs", kind = item.kind)]
    NotRunnable {
        /// The item.
        item: ItemRef,
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
        /// Which, and the mend.
        message: String,
    },
    /// The graph cannot be drawn, because it cannot be read.
    #[error("the graph does not validate:\n{findings}")]
    Broken {
        /// The findings, one a line.
        findings: String,
    },
    /// What was asked of a run does not fit what it is or how it is parked.
    #[error("run `{run}`: {problem}")]
    Unfit {
        /// Its id.
        run: RunId,
        /// What does not fit, and the mend.
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
    /// The run is not parked.
    #[error(
        "run `{run}` is {status}; only a parked run, or one that ended without success, can be resumed"
    )]
    NotParked {
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
    Journal(#[from] journal::Error),
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownRun { .. } => ErrorKind::NotFound,
            Self::Project(source) => source.kind(),
            Self::Item { source, .. } | Self::Unseen { source, .. } => source.kind(),
            Self::Denied { .. } => ErrorKind::Denied,
            Self::NotRunnable { .. }
            | Self::NotAGraph { .. }
            | Self::NoGraph { .. }
            | Self::Params { .. }
            | Self::Broken { .. } => ErrorKind::Invalid,
            Self::Over { .. }
            | Self::Unfit { .. }
            | Self::KeyReused { .. }
            | Self::NotParked { .. } => ErrorKind::Precondition,
            Self::Stopping => ErrorKind::Unavailable,
            Self::Journal(source) => source.kind(),
        }
    }
}
