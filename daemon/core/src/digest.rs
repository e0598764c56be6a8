//! Objects and their names: a text is called by the SHA-256 of itself.
//!
//! **Owns** the form of a name, and the one text of a JSON value that is kept under it. **Never** stores anything.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::id::InvalidId;
use crate::seal::{canonical, hex, sha256_hex};

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

/// An object whose canonical text is made where it is written, by [`Display`](fmt::Display): it may take six times what it is made of.
#[derive(Clone)]
pub struct Written {
    /// SHA-256 of the text, as 64 lower-case hexadecimal digits.
    pub hash: String,
    /// Bytes of the text.
    pub bytes: u64,
    write: Arc<Write>,
}

/// Writes a text, the same each time.
type Write = dyn Fn(&mut dyn fmt::Write) -> fmt::Result + Send + Sync;

impl Written {
    /// The object whose text `write` writes, the same each time.
    pub(crate) fn new(
        write: impl Fn(&mut dyn fmt::Write) -> fmt::Result + Send + Sync + 'static,
    ) -> Self {
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let done = in_pieces(&write, &mut |piece| {
            hasher.update(piece);
            bytes += length(piece);
            Ok(())
        });
        done.expect("hashing cannot fail");
        Self {
            hash: hex(&hasher.finalize()),
            bytes,
            write: Arc::new(write),
        }
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_pieces(&*self.write, &mut |piece| f.write_str(piece))
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Written").field(&self.hash).finish()
    }
}

impl From<Encoded> for Written {
    fn from(Encoded { hash, text }: Encoded) -> Self {
        let bytes = length(&text);
        let write = Arc::new(move |out: &mut dyn fmt::Write| out.write_str(&text));
        Self { hash, bytes, write }
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).expect("a length in memory fits 64 bits")
}

/// Bytes of text that are handed on together.
const PIECE: usize = 64 << 10;

/// Hands what `write` writes, often a character at a time, to `sink` in larger pieces.
fn in_pieces(
    write: &(impl Fn(&mut dyn fmt::Write) -> fmt::Result + ?Sized),
    sink: &mut dyn FnMut(&str) -> fmt::Result,
) -> fmt::Result {
    let text = String::new();
    let mut pieces = Pieces { text, sink };
    write(&mut pieces)?;
    let Pieces { text, sink } = pieces;
    sink(&text)
}

struct Pieces<'a> {
    text: String,
    sink: &'a mut dyn FnMut(&str) -> fmt::Result,
}

impl fmt::Write for Pieces<'_> {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > PIECE {
            (self.sink)(&self.text)?;
            self.text.clear();
        }
        if more.len() > PIECE {
            return (self.sink)(more);
        }
        self.text.push_str(more);
        Ok(())
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
        let text = canonical(object);
        Self {
            hash: sha256_hex(&text),
            text,
        }
    }
}
