//! The one way from text to a screen.
//!
//! Texts come from tools, graphs and callers. Characters that do something to a terminal instead of being seen are shown
//! as what they are ([`sight`]), so that no text moves the cursor, hides a line or passes for another.

use std::fmt::Write as _;

use rye_core::sight;

use super::Style;

/// Where green begins. Colours are noted as noncharacters, which no text has, until the text is shown.
pub(super) const GREEN: char = '\u{fdd0}';
/// Where red begins.
pub(super) const RED: char = '\u{fdd1}';
/// Where yellow begins.
pub(super) const YELLOW: char = '\u{fdd2}';
/// Where a colour ends.
pub(super) const END: char = '\u{fdd3}';

/// `text` as a screen may get it: lines stay lines, colours become what `style` makes of them, and whatever else is not
/// seen is escaped.
pub(crate) fn shown(text: &str, style: Style) -> String {
    sight::shown(text, &['\n', '\t'], |unseen, out| match (unseen, style) {
        (GREEN, Style::Colour) => out.push_str("\u{1b}[32m"),
        (RED, Style::Colour) => out.push_str("\u{1b}[31m"),
        (YELLOW, Style::Colour) => out.push_str("\u{1b}[33m"),
        (END, Style::Colour) => out.push_str("\u{1b}[0m"),
        _ => out.extend(unseen.escape_default()),
    })
}

/// `text` as a part of a line: its line ends are escaped too.
pub(crate) fn in_line(text: &str) -> String {
    sight::escaped(text, &[])
}

/// A JSON document as a screen may get it: the same document, with what is not seen in its texts escaped.
pub(crate) fn json(document: &str) -> String {
    sight::shown(document, &['\n'], |unseen, out| {
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
    fn nothing_in_a_text_steers_the_terminal() {
        assert_eq!(shown(EVIL, Style::Plain), ESCAPED);
        assert_eq!(in_line(EVIL), ESCAPED);
        let coloured = shown(EVIL, Style::Colour);
        assert!(
            coloured.starts_with("a\\u{1b}[31mb\\u{7}c\\rd"),
            "{coloured}"
        );
    }

    #[test]
    fn text_that_is_seen_stays_as_it_is() {
        let text = "ünï 日本 🦀 \\u{1b} ✓\n\tsecond line";
        assert_eq!(shown(text, Style::Plain), text);
        assert_eq!(in_line("a\tb\nc"), "a\\tb\\nc");
    }

    #[test]
    fn a_document_on_a_screen_is_the_same_document() {
        let value = serde_json::json!({"k\u{9b}": [EVIL, "\n", "ü"]});
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(
            text.chars().all(|c| c == '\n' || !sight::is_unseen(c)),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
