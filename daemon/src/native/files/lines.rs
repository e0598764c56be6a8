//! Lines of a file, and their ids.

use std::fmt;

use rye_core::seal::sha256;

/// Maximum number of characters shown of a line.
const MOST_SHOWN: usize = 2_000;
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 8;

/// A line without its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// `\n`, `\r\n`, or empty at the end of a file.
    pub(super) end: &'a [u8],
}

/// Splits `content` into lines. Only `\n` ends one; a `\r` before it belongs to the line end.
pub(super) fn split(content: &[u8]) -> Vec<Line<'_>> {
    content
        .split_inclusive(|byte| *byte == b'\n')
        .map(|whole| {
            let text = whole.strip_suffix(b"\n").unwrap_or(whole);
            let text = match text.strip_suffix(b"\r") {
                Some(text) if whole.ends_with(b"\n") => text,
                Some(_) | None => text,
            };
            let (text, end) = whole.split_at(text.len());
            Line { text, end }
        })
        .collect()
}

/// Hash of a line's number, from 1, and text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineId(u32);

impl LineId {
    pub(super) fn of(number: usize, text: &[u8]) -> Self {
        let mut named = format!("{number}:").into_bytes();
        named.extend_from_slice(text);
        let [a, b, c, d, ..] = sha256(named);
        Self(u32::from_be_bytes([a, b, c, d]))
    }

    /// Parses an id.
    pub(super) fn read(text: &str) -> Option<Self> {
        let is_one = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != ID_DIGITS || !text.bytes().all(is_one) {
            return None;
        }
        u32::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for LineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0ID_DIGITS$x}", self.0)
    }
}

/// Text of a line for display, truncated to `MOST_SHOWN` characters.
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(MOST_SHOWN) {
        None => text.into_owned(),
        Some((at, _)) => {
            let (kept, more) = text.split_at(at);
            format!("{kept} … [{} more characters]", more.chars().count())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(content: &str) -> Vec<(&str, &str)> {
        let text = |bytes| str::from_utf8(bytes).unwrap();
        let lines = split(content.as_bytes()).into_iter();
        lines
            .map(|line| (text(line.text), text(line.end)))
            .collect()
    }

    #[test]
    fn lines_end_at_line_feed_only() {
        assert_eq!(texts(""), []);
        assert_eq!(texts("a\nb"), [("a", "\n"), ("b", "")]);
        assert_eq!(texts("a\r\n\n"), [("a", "\r\n"), ("", "\n")]);
        assert_eq!(
            texts("a\u{c}b\u{85}\u{2028}c\rd\n"),
            [("a\u{c}b\u{85}\u{2028}c\rd", "\n")]
        );
        assert_eq!(texts("a\r"), [("a\r", "")]);
    }

    #[test]
    fn equal_lines_have_distinct_ids() {
        let id = LineId::of;
        assert_eq!(
            id(1, b"x").to_string(),
            rye_core::seal::sha256_hex("1:x")[..ID_DIGITS]
        );
        assert_eq!(LineId::read(&id(1, b"x").to_string()), Some(id(1, b"x")));
        for text in [
            "",
            "0123456",
            "012345678",
            "0123456G",
            "+1234567",
            "ABCDEF01",
        ] {
            assert_eq!(LineId::read(text), None, "{text}");
        }
        assert_ne!(id(1, b"x"), id(2, b"x"));
        assert_ne!(id(1, b"x"), id(1, b"y"));
        assert_ne!(id(1, b"1:x"), id(11, b":x"));
    }

    #[test]
    fn long_lines_are_cut_at_character_with_marker() {
        let long = "ä".repeat(MOST_SHOWN + 7);
        let told = shown(long.as_bytes());
        assert!(told.ends_with("ä … [7 more characters]"), "{told}");
        let whole = "ä".repeat(MOST_SHOWN);
        assert_eq!(shown(whole.as_bytes()), whole);
    }

    proptest! {
        #[test]
        fn lines_preserve_every_byte(content in "[a\r\nä]{0,40}") {
            let lines = split(content.as_bytes());
            let together: Vec<u8> = lines.iter().flat_map(|line| [line.text, line.end].concat()).collect();
            prop_assert_eq!(together, content.as_bytes());
        }
    }
}
