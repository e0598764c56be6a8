//! Content hashes, and objects named by their hash.
//!
//! **Owns** the SHA-256 of a content, its text form, and the canonical text of a JSON value stored under it. **Never**
//! stores anything.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::excerpt;
use crate::seal::{canonical, hex, sha256, sha256_hex};

/// A SHA-256, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Length of the text form.
    pub const TEXT_BYTES: usize = 64;

    /// Hashes `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(sha256(bytes))
    }

    /// Hashes the concatenation of `parts`.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns every sequence of 64 lower-case hexadecimal digits in `text`, also inside of a longer one: no digest in
    /// its text form is missed.
    pub fn all_in(text: &[u8]) -> impl Iterator<Item = Self> {
        let runs = text.split(|byte| digit(*byte).is_none());
        let windows = runs.flat_map(|run| run.windows(Self::TEXT_BYTES));
        windows.filter_map(Self::of_text)
    }

    /// Parses the text form; `None` if `text` has another one.
    fn of_text(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        (text.len() == Self::TEXT_BYTES).then_some(Self(bytes))
    }
}

/// Returns the value of a lower-case hexadecimal digit.
const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0_u8; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a SHA-256 of 64 lower-case hexadecimal digits", excerpt(.0))]
pub struct InvalidDigest(String);

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        Self::of_text(text.as_bytes()).ok_or_else(|| InvalidDigest(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// An object whose canonical text is produced when written, by [`Display`](fmt::Display). The text may take six times
/// the memory of its value.
#[derive(Clone)]
pub struct Written {
    /// SHA-256 of the text, as 64 lower-case hexadecimal digits.
    pub hash: String,
    /// Length of the text in bytes.
    pub bytes: u64,
    write: Arc<Write>,
}

/// Writes a text, the same at each call.
type Write = dyn Fn(&mut dyn fmt::Write) -> fmt::Result + Send + Sync;

impl Written {
    /// Creates the object whose text `write` writes, the same at each call.
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

/// Size of a piece of text, in bytes, that is passed on at once.
const PIECE: usize = 64 << 10;

/// Buffers the output of `write`, often single characters, and passes it to `sink` in larger pieces.
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

/// An object's canonical text with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// SHA-256 of `text`, as 64 lower-case hexadecimal digits.
    pub hash: String,
    /// Canonical JSON.
    pub text: String,
}

impl Encoded {
    /// Encodes `object`.
    pub fn of(object: &Value) -> Self {
        let text = canonical(object);
        Self {
            hash: sha256_hex(&text),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_abc_has_the_published_value() {
        let published = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of("abc").to_string(), published);
        assert_eq!(Digest::of_parts(&[b"a", b"", b"bc"]), Digest::of("abc"));
    }

    #[test]
    fn digest_reads_its_own_text_only() {
        let digest = Digest::of("abc");
        let text = digest.to_string();
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(serde_json::to_value(digest).unwrap(), Value::from(&*text));
        assert_eq!(
            serde_json::from_value(Value::from(&*text)).ok(),
            Some(digest)
        );
        let long = format!("{text}0");
        let foreign = text.replace('b', "g");
        for bad in [&text[1..], &long, &text.to_uppercase(), &foreign, ""] {
            let refused = bad.parse::<Digest>();
            assert_eq!(refused, Err(InvalidDigest(bad.to_owned())));
        }
    }

    #[test]
    fn digests_in_a_text_are_found_whatever_is_around_them() {
        let (one, two) = (Digest::of("one"), Digest::of("two"));
        let text = format!("{one}:sha256-{two}, {}x", &one.to_string()[..63]);
        assert_eq!(
            Digest::all_in(text.as_bytes()).collect::<Vec<_>>(),
            [one, two]
        );
        let text = format!("0{one}f");
        let found: Vec<_> = Digest::all_in(text.as_bytes()).collect();
        assert_eq!((found.len(), found[1]), (3, one));
        assert_eq!(Digest::all_in(b"").next(), None);
    }
}
