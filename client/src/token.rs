//! The token of a program that a run started.

use std::fmt;

use tonic::metadata::AsciiMetadataValue;

/// Token of a program, added to the calls that a program may make.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(AsciiMetadataValue);

/// Omits the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Returns `None` if `text` cannot be a token.
    pub fn new(text: &str) -> Option<Self> {
        let mut value: AsciiMetadataValue = format!("Bearer {text}").parse().ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// Value of the header `authorization`.
    pub(crate) fn bearer(&self) -> AsciiMetadataValue {
        self.0.clone()
    }
}
