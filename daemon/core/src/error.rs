//! What kinds of failure there are, and how a chain of errors is written.
//!
//! Every module keeps its own error type with its own words; it answers [`Kinded::kind`] so that the edges (gRPC
//! status, exit code) map each failure once, exhaustively. Display texts never repeat their source:
//! [`with_sources`] walks it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Write as _;

/// What a failure means to the one who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The thing named does not exist.
    NotFound,
    /// The input is malformed or fails validation; sending it again does not help.
    Invalid,
    /// The state of the subject does not allow this now.
    Precondition,
    /// Something of that name is there already.
    Exists,
    /// Refused: permission, capability, or an item that may not run.
    Denied,
    /// A limit or a resource ran out.
    Exhausted,
    /// A part we depend on does not answer; trying again may help.
    Unavailable,
    /// Stored data is damaged or missing.
    DataLoss,
    /// We broke our own rule.
    Bug,
}

impl ErrorKind {
    /// All of them.
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

    /// Its code, for programs.
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

/// An error that knows what it means.
pub trait Kinded: StdError {
    /// The meaning of this failure, for status and exit codes.
    fn kind(&self) -> ErrorKind;
}

/// Characters of a text of somebody else's that an error repeats.
const EXCERPT_CHARS: usize = 200;

/// The beginning of a text that an error repeats: enough to know it again.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    beginning(text, EXCERPT_CHARS)
}

/// The first `most` characters of a text, and a sign that there is more.
pub fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// The text of `error` and all its sources, joined by `: `.
pub fn with_sources(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        write!(text, ": {cause}").expect("writing to a String cannot fail");
        source = cause.source();
    }
    text
}
