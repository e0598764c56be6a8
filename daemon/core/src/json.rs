//! Conversion of JSON from other programs into text that a strict reader accepts.

use std::borrow::Cow;

/// Bytes of an escape of a UTF-16 code unit, as in `\u00e9`.
const ESCAPE: usize = 6;

/// Replaces each string escape of `text` that is half of a surrogate pair by `\ufffd`.
///
/// JSON allows such escapes and a Rust string cannot hold them. Programs write them when they cut a text between two
/// UTF-16 code units, and for file names that are not UTF-8. A replacement has the length of the escape, so positions
/// in messages stay correct.
pub fn repaired(text: &str) -> Cow<'_, str> {
    if !text.contains(r"\ud") && !text.contains(r"\uD") {
        return Cow::Borrowed(text);
    }
    let mut repaired = String::new();
    let mut copied = 0;
    for half in Halves::of(text) {
        repaired.push_str(&text[copied..half]);
        repaired.push_str(r"\ufffd");
        copied = half + ESCAPE;
    }
    if repaired.is_empty() {
        return Cow::Borrowed(text);
    }
    repaired.push_str(&text[copied..]);
    Cow::Owned(repaired)
}

/// Decodes JSON: drops a byte order mark, replaces bytes that are not UTF-8 by U+FFFD, and escapes as in [`repaired`].
pub fn decoded(json: &[u8]) -> Cow<'_, str> {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    match String::from_utf8_lossy(json) {
        Cow::Borrowed(text) => repaired(text),
        Cow::Owned(text) => Cow::Owned(repaired(&text).into_owned()),
    }
}

/// Finds the positions of escapes that are half of a surrogate pair.
struct Halves<'t> {
    bytes: &'t [u8],
    at: usize,
    is_in_string: bool,
}

impl<'t> Halves<'t> {
    fn of(text: &'t str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
            is_in_string: false,
        }
    }
}

impl Iterator for Halves<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some(byte) = self.bytes.get(self.at) {
            let start = self.at;
            if *byte == b'"' {
                self.is_in_string = !self.is_in_string;
            }
            if *byte != b'\\' || !self.is_in_string {
                self.at += 1;
                continue;
            }
            match code_unit(self.bytes, start) {
                Some(0xD800..=0xDBFF) if is_low_half(self.bytes, start + ESCAPE) => {
                    self.at += 2 * ESCAPE;
                }
                Some(0xD800..=0xDFFF) => {
                    self.at += ESCAPE;
                    return Some(start);
                }
                Some(_) => self.at += ESCAPE,
                None => self.at += 2,
            }
        }
        None
    }
}

fn is_low_half(bytes: &[u8], at: usize) -> bool {
    matches!(code_unit(bytes, at), Some(0xDC00..=0xDFFF))
}

/// Returns the code unit whose escape begins at `at`, or `None` if there is no escape.
fn code_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes
        .get(at..at + ESCAPE)?
        .strip_prefix(br"\u")
        .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_half_pairs_in_strings_are_replaced() {
        for (text, expected) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDCE9.txt""#, r#""\ufffd.txt""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\u0041""#, r#""\ufffd\u0041""#),
            (r#""\ud83d\\ude00""#, r#""\ufffd\\ude00""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\"\ud83d\"""#, r#""\"\ufffd\"""#),
            (
                r#"{"\ud800": ["é", "\udfff"]}"#,
                r#"{"\ufffd": ["é", "\ufffd"]}"#,
            ),
        ] {
            assert_eq!(repaired(text), expected, "{text}");
            let value: Result<Value, _> = serde_json::from_str(&repaired(text));
            assert!(value.is_ok(), "{text}");
        }
        for text in [
            "",
            r#""\ud83d\ude00""#,
            r#""\uD83D\uDE00""#,
            r#""\\ud83d""#,
            r#""\\\\ud83d""#,
            r"\ud83d",
            r#""a" \ud83d "b""#,
            r#""\ud83""#,
            r#""\ud8é""#,
            r#""\u+d83""#,
            r#""\"#,
            r#""\é\ud83d\ude00"#,
        ] {
            let same = repaired(text);
            assert!(matches!(same, Cow::Borrowed(_)), "{text} became {same}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_as_half_pairs_are() {
        let decode = |bytes: &[u8]| serde_json::from_str::<Value>(&decoded(bytes)).unwrap();
        assert_eq!(
            decode(b"[\"caf\xe9\", \"\\udce9\"]"),
            serde_json::json!(["caf\u{fffd}", "\u{fffd}"])
        );
        assert_eq!(decode(b"\xef\xbb\xbf[]"), serde_json::json!([]));
        assert!(matches!(decoded("\"é\"".as_bytes()), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn escaped_code_units_are_read_as_utf16_lossy(units in prop::collection::vec(
            prop_oneof![0xD800..=0xDFFF_u16, any::<u16>(), Just(0x5c), Just(0x22)], 0..20,
        )) {
            let escapes = units.iter().map(|unit| format!("\\u{unit:04x}"));
            let escapes = escapes.collect::<Vec<_>>().concat();
            let text = format!("\"{escapes}\"");
            let read: String = serde_json::from_str(&repaired(&text)).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }

        #[test]
        fn valid_json_is_unchanged(text in r#"[\\"ud8cDé{} ]{0,24}"#) {
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert_eq!(repaired(&text), &*text);
            }
        }
    }
}
