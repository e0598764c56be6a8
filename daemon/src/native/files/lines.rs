//! Lines of a file and the ids by which they are named.

use rye_core::seal::sha256_hex;

/// Characters of a line that are shown.
const MOST_SHOWN: usize = 2_000;
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 8;

/// A line, apart from what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// `\n`, `\r\n`, or nothing at the end of a file.
    pub(super) end: &'a [u8],
}

/// The lines of `content`. Only `\n` ends one; a `\r` before it belongs to the end.
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

/// The id of the line `number`, from 1: it names a line with this text at this place.
pub(super) fn id(number: usize, text: &[u8]) -> String {
    let mut named = format!("{number}:").into_bytes();
    named.extend_from_slice(text);
    let mut id = sha256_hex(named);
    id.truncate(ID_DIGITS);
    id
}

/// A line as it is shown: without what is too long of it.
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(MOST_SHOWN) {
        None => text.into_owned(),
        Some((at, _)) => {
            let more = text[at..].chars().count();
            format!("{} … [{more} more characters]", &text[..at])
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
    fn only_line_feeds_end_lines() {
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
    fn equal_lines_have_ids_of_their_own() {
        assert_eq!(id(1, b"x").len(), ID_DIGITS);
        assert_ne!(id(1, b"x"), id(2, b"x"));
        assert_ne!(id(1, b"x"), id(1, b"y"));
        assert_ne!(id(1, b"1:x"), id(11, b":x"));
    }

    #[test]
    fn long_lines_are_cut_between_characters_and_marked() {
        let long = "ä".repeat(MOST_SHOWN + 7);
        let told = shown(long.as_bytes());
        assert!(told.ends_with("ä … [7 more characters]"), "{told}");
        let whole = "ä".repeat(MOST_SHOWN);
        assert_eq!(shown(whole.as_bytes()), whole);
    }

    proptest! {
        #[test]
        fn no_byte_of_a_file_is_lost(content in "[a\r\nä]{0,40}") {
            let lines = split(content.as_bytes());
            let together: Vec<u8> = lines.iter().flat_map(|line| [line.text, line.end].concat()).collect();
            prop_assert_eq!(together, content.as_bytes());
        }
    }
}
