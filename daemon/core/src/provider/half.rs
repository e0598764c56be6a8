//! Surrogate pairs that a provider split between two pieces of one text.
//!
//! Most pieces hold no half pair and are read as plain strings. Only a piece that cannot be read that way becomes a
//! [`Piece`].

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Replacement of an unpaired half.
const REPLACEMENT: char = '\u{fffd}';

/// A piece of a text, which may begin and end in the middle of a character.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// Second half of a split character at the start of the piece.
    low: Option<u16>,
    text: String,
    /// First half of a split character at the end of the piece.
    high: Option<u16>,
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl Piece {
    /// Returns true if the piece is exactly `text`.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text && self.low.is_none() && self.high.is_none()
    }

    /// Decodes UTF-8 in which halves are encoded as characters, as the JSON reader produces them.
    fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut piece = Self::default();
        let mut is_first = true;
        loop {
            let valid = match str::from_utf8(bytes) {
                Ok(text) => {
                    piece.text.push_str(text);
                    return Some(piece);
                }
                Err(error) => error.valid_up_to(),
            };
            let (text, rest) = bytes.split_at(valid);
            piece.text.push_str(str::from_utf8(text).ok()?);
            let (half, rest) = half(rest)?;
            is_first &= valid == 0;
            match half {
                0xdc00.. if is_first => piece.low = Some(half),
                ..0xdc00 if rest.is_empty() => piece.high = Some(half),
                _ => piece.text.push(REPLACEMENT),
            }
            is_first = false;
            bytes = rest;
        }
    }
}

/// Returns the half pair at the start of `bytes`, and the rest.
fn half(bytes: &[u8]) -> Option<(u16, &[u8])> {
    match bytes {
        [0xed, high @ 0xa0..=0xbf, low @ 0x80..=0xbf, rest @ ..] => {
            let bits = ((u16::from(*high) & 0x3f) << 6) | (u16::from(*low) & 0x3f);
            Some((0xd000 | bits, rest))
        }
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PieceVisitor;

        impl Visitor<'_> for PieceVisitor {
            type Value = Piece;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Piece, E> {
                Piece::read(bytes).ok_or_else(|| E::custom("the text is not UTF-8"))
            }
        }

        deserializer.deserialize_bytes(PieceVisitor)
    }
}

/// First halves at the ends of the last pieces, by the position of their text.
#[derive(Debug, Default)]
pub(super) struct Halves(BTreeMap<u32, u16>);

impl Halves {
    /// Returns the text of the next piece of the text at `position`. An unpaired half is replaced.
    pub(super) fn join(&mut self, position: u32, piece: Piece) -> String {
        let Piece { low, text, high } = piece;
        let is_plain = low.is_none() && high.is_none();
        if is_plain && (self.0.is_empty() || text.is_empty()) {
            return text;
        }
        let before = self.0.remove(&position);
        let joined = match (before, low) {
            (None, None) => None,
            (Some(high), Some(low)) => char::decode_utf16([high, low]).next(),
            (Some(_), None) | (None, Some(_)) => Some(Ok(REPLACEMENT)),
        };
        let joined = joined.map(|joined| joined.unwrap_or(REPLACEMENT));
        if let Some(high) = high {
            self.0.insert(position, high);
        }
        joined.into_iter().collect::<String>() + &text
    }

    /// Returns the replacement of a half at the end of the text at `position`, if there is one.
    pub(super) fn end(&mut self, position: u32) -> Option<String> {
        let half = self.0.remove(&position);
        half.map(|_| REPLACEMENT.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[&str]) -> String {
        let mut halves = Halves::default();
        let mut text = String::new();
        for piece in pieces {
            let piece: Piece = serde_json::from_str(&format!("\"{piece}\"")).unwrap();
            text.push_str(&halves.join(1, piece));
        }
        text + &halves.end(1).unwrap_or_default()
    }

    #[test]
    fn halves_join_across_pieces() {
        for (pieces, text) in [
            (&["a\\ud83d", "\\ude00b"][..], "a\u{1f600}b"),
            (&["\\ud83d", "", "\\ude00"], "\u{1f600}"),
            (&["\\ud83d\\ude00"], "\u{1f600}"),
            (
                &["\u{e9}\\ud83d", "\\ude00\\ud83d", "\\ude00"],
                "\u{e9}\u{1f600}\u{1f600}",
            ),
            (&["a\\ud83d"], "a\u{fffd}"),
            (&["a\\ud83d", "b"], "a\u{fffd}b"),
            (&["a\\ud83d", "\\ud83d", "\\ude00"], "a\u{fffd}\u{1f600}"),
            (&["\\ude00b"], "\u{fffd}b"),
            (&["a\\ude00", "\\ud83db"], "a\u{fffd}\u{fffd}b"),
            (&["\\ud83dx\\ude00"], "\u{fffd}x\u{fffd}"),
            (&["\\ude00\\ude00"], "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(joined(pieces), text, "{pieces:?}");
        }
    }

    #[test]
    fn halves_join_across_pieces_of_other_texts() {
        let piece = |text: &str| serde_json::from_str::<Piece>(&format!("\"{text}\"")).unwrap();
        let mut halves = Halves::default();
        assert_eq!(halves.join(0, piece("a\\ud83d")), "a");
        assert_eq!(halves.join(1, piece("b")), "b");
        assert_eq!(halves.join(0, piece("\\ude00")), "\u{1f600}");
        assert_eq!((halves.end(0), halves.end(1)), (None, None));
    }
}
