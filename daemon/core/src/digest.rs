//! Objects and their names: a text is called by the SHA-256 of itself.
//!
//! **Owns** the form of a name, and the one text of a JSON value that is kept under it. **Never** stores anything.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::InvalidId;
use crate::seal::{canonical, sha256_hex};

/// The name of an object: the SHA-256 of its text, as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The name of the object with this text.
    pub fn of(text: &str) -> Self {
        Self(sha256_hex(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(is_digit) {
            return Ok(Self(text));
        }
        Err(InvalidId {
            text,
            what: "the name of an object",
            reason: "it is 64 lower-case hexadecimal digits",
        })
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// An object in its one text, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// SHA-256 of `text`, as 64 lower-case hexadecimal digits.
    pub hash: String,
    /// Canonical JSON.
    pub text: String,
}

impl Encoded {
    /// The text and the name of `object`.
    pub fn of(object: &Value) -> Self {
        Self::of_text(canonical(object))
    }

    /// The object whose canonical text this is.
    pub(crate) fn of_text(text: String) -> Self {
        Self {
            hash: sha256_hex(&text),
            text,
        }
    }
}
