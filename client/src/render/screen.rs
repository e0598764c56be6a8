//! The one way from text to a screen.
//!
//! Texts come from tools, graphs and callers. Characters that do something to a terminal instead of being seen are shown
//! as what they are, so that no text moves the cursor, hides a line or passes for another.

use std::fmt::Write as _;

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
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match (character, style) {
            ('\n' | '\t', _) => shown.push(character),
            (GREEN, Style::Colour) => shown.push_str("\u{1b}[32m"),
            (RED, Style::Colour) => shown.push_str("\u{1b}[31m"),
            (YELLOW, Style::Colour) => shown.push_str("\u{1b}[33m"),
            (END, Style::Colour) => shown.push_str("\u{1b}[0m"),
            (unseen, _) if is_unseen(unseen) => shown.extend(unseen.escape_default()),
            (seen, _) => shown.push(seen),
        }
    }
    shown
}

/// `text` as a part of a line: its line ends are escaped too.
pub(crate) fn in_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// A JSON document as a screen may get it: the same document, with what is not seen in its texts escaped.
pub(crate) fn json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for character in document.chars() {
        if character != '\n' && is_unseen(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(shown, "\\u{unit:04x}").expect("writing to a String cannot fail");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Control characters, marks that turn the direction of text around, separators that break lines, and noncharacters.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{feff}'
        )
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
        assert!(text.chars().all(|c| c == '\n' || !is_unseen(c)), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
