//! Faults of templates and conditions.

use crate::bounds::Excess;
use crate::error::{ErrorKind, Kinded, excerpt};

/// Characters of a template that an error shows.
pub(super) const SHOWN: usize = 100;

/// How much a fault weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The graph does not run.
    Error,
    /// It runs; somebody should look.
    Warning,
}

/// What is wrong with a template or condition, and where inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer below the value that was checked; empty for the value itself.
    pub at: String,
    /// What is wrong, for people.
    pub message: String,
    /// Whether the graph can run.
    pub severity: Severity,
}

/// Why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text of a template does not follow the grammar.
    #[error("malformed template `{}`: {reason}", excerpt(template))]
    Malformed {
        /// The template.
        template: String,
        /// The rule it breaks.
        reason: String,
    },
    /// An expression begins with a name that is not there.
    #[error("`${{{}}}` reads `{name}`, {reason}", excerpt(expression))]
    UnknownName {
        /// The text between the braces.
        expression: String,
        /// The name.
        name: String,
        /// What is there instead, and how to write it for a shell.
        reason: String,
    },
    /// A pipe got a value it cannot take.
    #[error("pipe `{pipe}` in `${{{expression}}}` {reason}")]
    Pipe {
        /// The name of the pipe.
        pipe: &'static str,
        /// The text between the braces.
        expression: String,
        /// What it wants, and got.
        reason: String,
    },
    /// What a template makes goes beyond what a run may hold.
    #[error("what `{template}` makes is {excess}; keep large data in files and pass their paths")]
    Excess {
        /// The beginning of the template.
        template: String,
        /// How.
        excess: Excess,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed { .. }
            | Self::UnknownName { .. }
            | Self::Pipe { .. }
            | Self::Excess { .. } => ErrorKind::Invalid,
        }
    }
}
