//! Invisible characters of foreign texts, and the one function that makes them visible.
//!
//! Tools, models, graphs and callers supply texts. A character that has an effect instead of a glyph can make one text
//! look like another: it moves a cursor, reverses the direction, breaks a line, or has no width. All code that displays
//! foreign text uses this module. Replacements differ: a screen shows the code, a page a blank, a diagram U+FFFD.

/// Returns true if `character` is invisible or changes the display of other text: control characters, direction marks,
/// line separators, characters without width, tags, and noncharacters.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns true if `character` is a joiner between two characters that may need it, as in some scripts and in emoji. A
/// joiner has a visible effect only there.
fn joins(before: Option<char>, character: char, after: Option<char>) -> bool {
    let is_joiner = matches!(character, '\u{200c}' | '\u{200d}');
    // Between ASCII characters a joiner is invisible, but would make two equal-looking words different.
    let needs_it = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_invisible(c));
    is_joiner && needs_it(before) && needs_it(after)
}

/// Returns `text` with each invisible character that is not in `kept` replaced by `unseen`.
pub fn replace_invisible(
    text: &str,
    kept: &[char],
    mut unseen: impl FnMut(char, &mut String),
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let is_kept = kept.contains(&character) || !is_invisible(character);
        if is_kept || joins(before, character, rest.peek().copied()) {
            out.push(character);
        } else {
            unseen(character, &mut out);
        }
        before = Some(character);
    }
    out
}

/// Returns `text` with each invisible character as its code: `\u{202e}`, `\n`.
pub fn escape_invisible(text: &str, kept: &[char]) -> String {
    replace_invisible(text, kept, |character, out| {
        out.extend(character.escape_default());
    })
}

/// Returns `text` as a part of one line, with `instead` for each invisible character.
pub fn in_line(text: &str, instead: char) -> String {
    replace_invisible(text, &[], |_, out| out.push(instead))
}

/// Returns `text` as one word of a shell's command line, quoted only if necessary.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./~-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        let hidden = [
            '\u{0}',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2061}',
            '\u{2064}',
            '\u{2066}',
            '\u{2069}',
            '\u{206a}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0020}',
            '\u{e0100}',
            '\u{fdd0}',
        ];
        for character in hidden {
            let code = character.escape_default().to_string();
            assert_eq!(
                escape_invisible(&format!("pay{character}pal"), &[]),
                format!("pay{code}pal")
            );
        }
        assert_eq!(escape_invisible("a\nb\tc", &['\n']), "a\nb\\tc");
        assert_eq!(in_line("a\nb\u{202e}c", ' '), "a b c");
    }

    #[test]
    fn shell_word_is_one_word() {
        assert_eq!(shell_word("a[1]=done"), "'a[1]=done'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("app-1@last~2"), "app-1@last~2");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn visible_characters_and_needed_joiners_are_kept() {
        for text in [
            "ünï 日本 🦀 ✓ \\u{1b}",
            "👩\u{200d}🔬",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
        ] {
            assert_eq!(escape_invisible(text, &[]), text);
        }
        for text in [
            "\u{200d}🔬",
            "👩\u{200d}",
            "a\u{200c}ب",
            "ب\u{200c}\u{200c}ب",
        ] {
            assert!(escape_invisible(text, &[]).contains("\\u{200"), "{text:?}");
        }
    }
}
