use crate::bounds::Excess;
use crate::error::{ErrorKind, Kinded, excerpt};

/// Number of characters of a template that an error shows.
pub(super) const SHOWN: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The graph does not run.
    Error,
    /// The graph runs, but its author should check this.
    Warning,
}

/// Fault of a template or condition, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    /// JSON pointer below the checked value; empty for the value itself.
    pub at: String,
    pub message: String,
    pub severity: Severity,
}

/// Reason why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("malformed template `{}`: {reason}", excerpt(template))]
    Malformed {
        template: String,
        /// Grammar rule that the template breaks.
        reason: String,
    },
    /// An expression begins with a name that the scope lacks.
    #[error("`${{{}}}` reads `{name}`, {reason}", excerpt(expression))]
    UnknownName {
        /// Text between the braces.
        expression: String,
        name: String,
        /// Names that exist instead, and the escaped form for a shell.
        reason: String,
    },
    /// A pipe received a value that it does not accept.
    #[error("pipe `{pipe}` in `${{{expression}}}` {reason}")]
    Pipe {
        pipe: &'static str,
        /// Text between the braces.
        expression: String,
        /// Expected and received type.
        reason: String,
    },
    /// The result of a template exceeds the bounds of a run.
    #[error("what `{template}` makes is {excess}; keep large data in files and pass their paths")]
    Excess {
        /// First 100 characters of the template.
        template: String,
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
