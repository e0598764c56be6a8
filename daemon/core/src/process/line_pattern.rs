//! A regular expression over lines of output, bounded in size and in steps.

use std::borrow::Cow;

use fancy_regex::{Regex, RegexBuilder};
use serde_json::json;

use crate::model::Object;

/// Limit of the expression in bytes.
const MOST_BYTES: usize = 1 << 10;
/// Number of backtracking steps after which a line counts as not matching: some ten milliseconds at worst.
const MOST_STEPS: usize = 200_000;
/// Limit of the compiled expression in bytes.
const MOST_COMPILED: usize = 1 << 20;

#[derive(Debug, Clone)]
pub struct LinePattern(Regex);

impl LinePattern {
    /// Compiles `text`. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MOST_BYTES {
            return Err(format!(
                "is a regular expression of 1 to {MOST_BYTES} bytes, and has {}",
                text.len()
            ));
        }
        let built = RegexBuilder::new(text)
            .backtrack_limit(MOST_STEPS)
            .delegate_size_limit(MOST_COMPILED)
            .delegate_dfa_size_limit(MOST_COMPILED)
            .build();
        built
            .map(Self)
            .map_err(|error| format!("is no regular expression that can be used: {error}"))
    }

    /// True if `line`, without its colours, matches; `None` if that takes too many steps.
    pub fn matches(&self, line: &str) -> Option<bool> {
        self.0.is_match(&*without_colours(line)).ok()
    }
}

impl LinePattern {
    /// Returns the texts of the named groups that take part in the match of `line`.
    pub fn groups(&self, line: &str) -> Object {
        let line = without_colours(line);
        let Ok(Some(found)) = self.0.captures(&*line) else {
            return Object::new();
        };
        let names = self.0.capture_names().flatten();
        let text = |name: &str| Some((name.to_owned(), json!(found.name(name)?.as_str())));
        names.filter_map(text).collect()
    }
}

/// Returns `line` without the control sequences of terminals (`ESC [ … letter`).
pub(super) fn without_colours(line: &str) -> Cow<'_, str> {
    if !line.contains("\u{1b}[") {
        return line.into();
    }
    let mut parts = line.split("\u{1b}[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c));
        kept.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_not_part_of_a_line() {
        let pattern = LinePattern::parse("^ready on [0-9]+$").unwrap();
        for line in [
            "ready on 80",
            "\u{1b}[1;32mready\u{1b}[0m on \u{1b}[4m80\u{1b}[0m",
        ] {
            assert_eq!(pattern.matches(line), Some(true), "{line:?}");
        }
        assert_eq!(pattern.matches("not ready on 80"), Some(false));
        assert_eq!(without_colours("a\u{1b}[3"), "a");
    }

    #[test]
    fn named_groups_of_a_match_are_texts() {
        let pattern = LinePattern::parse("in (?<ms>[0-9]+)(?<unit>ms)?(?<rest>x)?").unwrap();
        let groups = pattern.groups("compiled in \u{1b}[1m42\u{1b}[0mms");
        assert_eq!(groups["ms"], "42");
        assert_eq!(groups["unit"], "ms");
        assert_eq!(groups.len(), 2);
        assert!(pattern.groups("nothing").is_empty());
    }

    #[test]
    fn size_and_steps_are_bounded() {
        assert!(LinePattern::parse("").is_err());
        assert!(LinePattern::parse(&"a".repeat(MOST_BYTES + 1)).is_err());
        assert!(LinePattern::parse("a(").is_err());
        assert!(LinePattern::parse(r"\w{9999}{99}").is_err());
        let hostile = LinePattern::parse(r"^(?=(a+)+$)\1b").unwrap();
        assert_ne!(hostile.matches(&"a".repeat(5000)), Some(true));
        let linear = LinePattern::parse("^(a+)+$").unwrap();
        assert_eq!(
            linear.matches(&format!("{}b", "a".repeat(5000))),
            Some(false)
        );
    }
}
