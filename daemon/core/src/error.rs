//! Kinds of failure, and the text of a chain of errors.
//!
//! Every module has its own error type with its own texts. It implements [`Kinded::kind`], so that the edges (gRPC
//! status, exit code) map each failure once, exhaustively. Display texts never repeat their source: [`with_sources`]
//! walks it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Write as _;

/// Meaning of a failure for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The named thing does not exist.
    NotFound,
    /// The input is malformed or fails validation; sending it again does not help.
    Invalid,
    /// The state of the subject does not allow this now.
    Precondition,
    /// Something of that name exists already.
    Exists,
    /// Refused: a permission or capability is missing, or the item may not run.
    Denied,
    /// A limit or a resource is exhausted.
    Exhausted,
    /// A dependency does not answer; a retry may help.
    Unavailable,
    /// Stored data is damaged or missing.
    DataLoss,
    /// The daemon broke an invariant of its own.
    Bug,
}

impl ErrorKind {
    pub const ALL: [Self; 9] = [
        Self::NotFound,
        Self::Invalid,
        Self::Precondition,
        Self::Exists,
        Self::Denied,
        Self::Exhausted,
        Self::Unavailable,
        Self::DataLoss,
        Self::Bug,
    ];

    /// Returns the code for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Invalid => "invalid",
            Self::Precondition => "precondition",
            Self::Exists => "exists",
            Self::Denied => "denied",
            Self::Exhausted => "exhausted",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data_loss",
            Self::Bug => "bug",
        }
    }
}

/// An error with an [`ErrorKind`].
pub trait Kinded: StdError {
    fn kind(&self) -> ErrorKind;
}

/// Number of characters of a foreign text that an error repeats.
const EXCERPT_CHARS: usize = 200;

/// Returns the first 200 characters of a text: enough to recognise it in an error.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    beginning(text, EXCERPT_CHARS)
}

/// Returns the first `most` characters of a text, followed by `…` if it is longer.
pub fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// Returns the text of `error` and of all its sources, joined by `: `.
pub fn with_sources(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        write!(text, ": {cause}").expect("writing to a String cannot fail");
        source = cause.source();
    }
    text
}
