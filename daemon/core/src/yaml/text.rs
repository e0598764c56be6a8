//! Positions in a text, and faults there.

use crate::error::{ErrorKind, Kinded};

/// A position in a text. Line and column count from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A fault, or a doubt, at one position of a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlFault {
    /// For people.
    pub message: String,
    pub line: usize,
    pub column: usize,
}

impl YamlFault {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: at.line,
            column: at.column,
        }
    }
}

impl Kinded for YamlFault {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}
