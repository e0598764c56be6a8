//! Places in a text, and what is wrong there.

use crate::error::{ErrorKind, Kinded};

/// A place in a text, both counted from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// Something wrong, or doubtful, at one place of a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlFault {
    /// What is wrong, for people.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
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
