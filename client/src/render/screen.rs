//! The only way from text to a screen.
//!
//! Texts come from tools, graphs and callers. Characters that control a terminal instead of being visible are escaped
//! ([`printable`]), so that no text moves the cursor, hides a line or imitates another text.

use std::fmt::Write as _;

use rye_core::printable;

use super::Style;

/// Begins green. Colours are noncharacters, which are not expected in texts, until the text is shown.
pub(super) const GREEN: char = '\u{fdd0}';
/// Begins red.
pub(super) const RED: char = '\u{fdd1}';
/// Begins yellow.
pub(super) const YELLOW: char = '\u{fdd2}';
/// Ends a colour.
pub(super) const END: char = '\u{fdd3}';

/// Escapes `text` for a screen. Line feeds and tabs stay, colours become terminal sequences if `style` allows them, and
/// other invisible characters are escaped.
pub(crate) fn shown(text: &str, style: Style) -> String {
    printable::replace_invisible(text, &['\n', '\t'], |unseen, out| match (unseen, style) {
        (GREEN, Style::Colour) => out.push_str("\u{1b}[32m"),
        (RED, Style::Colour) => out.push_str("\u{1b}[31m"),
        (YELLOW, Style::Colour) => out.push_str("\u{1b}[33m"),
        (END, Style::Colour) => out.push_str("\u{1b}[0m"),
        _ => out.extend(unseen.escape_default()),
    })
}

/// Escapes `text` for a part of a line: line feeds and tabs are escaped too.
pub(crate) fn in_line(text: &str) -> String {
    printable::escape_invisible(text, &[])
}

/// Escapes a JSON document for a screen, as JSON escapes, so that it stays the same document. Values may be coloured.
pub(crate) fn json(document: &str, style: Style) -> String {
    let document = escaped(document);
    match style {
        Style::Colour => shown(&coloured(&document), style),
        Style::Plain => document,
    }
}

/// Colours the values of a JSON document, but not its keys.
fn coloured(document: &str) -> String {
    let mut out = String::with_capacity(document.len() * 2);
    let mut rest = document;
    while let Some(first) = rest.chars().next() {
        let (token, colour) = match first {
            '"' => {
                let (text, behind) = rest.split_at(end_of_text(rest));
                (text, (!behind.starts_with(':')).then_some(GREEN))
            }
            '-' | '0'..='9' | 'a'..='z' => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (&rest[..end], Some(YELLOW))
            }
            _ => (&rest[..first.len_utf8()], None),
        };
        match colour {
            Some(colour) => {
                out.push(colour);
                out.push_str(token);
                out.push(END);
            }
            None => out.push_str(token),
        }
        rest = &rest[token.len()..];
    }
    out
}

/// Returns the end of the quoted text that `json` begins with, its quotes included.
fn end_of_text(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in json.char_indices().skip(1) {
        match character {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    json.len()
}

fn escaped(document: &str) -> String {
    printable::replace_invisible(document, &['\n'], |unseen, out| {
        let mut units = [0; 2];
        for unit in unseen.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\u{1b}[31mb\u{7}c\rd\u{9b}2Je\u{202e}f\u{7f}\u{fdd3}\u{2066}";
    const ESCAPED: &str = "a\\u{1b}[31mb\\u{7}c\\rd\\u{9b}2Je\\u{202e}f\\u{7f}\\u{fdd3}\\u{2066}";

    #[test]
    fn shown_text_has_no_terminal_controls() {
        assert_eq!(shown(EVIL, Style::Plain), ESCAPED);
        assert_eq!(in_line(EVIL), ESCAPED);
        let coloured = shown(EVIL, Style::Colour);
        assert!(
            coloured.starts_with("a\\u{1b}[31mb\\u{7}c\\rd"),
            "{coloured}"
        );
    }

    #[test]
    fn printable_text_is_shown_unchanged() {
        let text = "ünï 日本 🦀 \\u{1b} ✓\n\tsecond line";
        assert_eq!(shown(text, Style::Plain), text);
        assert_eq!(in_line("a\tb\nc"), "a\\tb\\nc");
    }

    #[test]
    fn a_document_on_a_screen_is_the_same_document() {
        let value = serde_json::json!({"k\u{9b}": [EVIL, "\n", "ü"]});
        let text = json(&serde_json::to_string_pretty(&value).unwrap(), Style::Plain);
        assert!(
            text.chars()
                .all(|c| c == '\n' || !printable::is_invisible(c)),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
    #[test]
    fn values_of_a_document_have_colours_and_keys_have_none() {
        let value = serde_json::json!({"k": ["a\\\"b: \u{1b}", -1.5e3, null], "n": {}});
        let document = serde_json::to_string_pretty(&value).unwrap();
        let text = json(&document, Style::Colour);
        let expected = concat!(
            "{\n  \"k\": [\n    \u{1b}[32m\"a\\\\\\\"b: \\u001b\"\u{1b}[0m,\n",
            "    \u{1b}[33m-1500.0\u{1b}[0m,\n    \u{1b}[33mnull\u{1b}[0m\n  ],\n  \"n\": {}\n}"
        );
        assert_eq!(text, expected);
        let plain = text.replace("\u{1b}[32m", "").replace("\u{1b}[33m", "");
        assert_eq!(plain.replace("\u{1b}[0m", ""), document);
    }
}
