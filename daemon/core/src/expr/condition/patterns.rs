//! Patterns of one file, compiled within a common memory budget.
//!
//! The regex library does not report the size of a compiled pattern. So each pattern is compiled with a small limit
//! first and then with larger ones, and counts with the first limit that it fits into. **Failure.** After a pattern
//! that does not fit, no further pattern is compiled: one fault covers all of them.

use fancy_regex::{CompileError, Error, Regex, RegexBuilder};
use regex_syntax::ast::parse::Parser;

/// Number of backtracking steps after which a pattern counts as not matching: some ten milliseconds at worst.
const BACKTRACK_LIMIT: usize = 200_000;
/// Budget of the patterns of one file, in bytes as counted here. The engines take about three times as much.
const FILE_BYTES: usize = 16 << 20;
/// Size limits of a pattern, in bytes; a pattern counts with the first one that it fits into.
const PATTERN_BYTES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Remaining budget for the patterns of a file.
#[derive(Debug)]
pub(crate) struct Patterns {
    left: usize,
    is_over: bool,
}

/// Reason why a pattern is not compiled.
pub(super) enum Unusable {
    /// The pattern is malformed.
    Bad(String),
    /// The pattern exceeds the remaining budget.
    TooComplex(String),
    /// An earlier pattern exceeded the budget, and that was reported.
    Reported,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            left: FILE_BYTES,
            is_over: false,
        }
    }
}

impl Patterns {
    /// Returns true if some patterns were not compiled.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn compile(&mut self, pattern: &str) -> Result<Regex, Unusable> {
        if self.is_over {
            return Err(Unusable::Reported);
        }
        let parts = parts(pattern);
        for bytes in PATTERN_BYTES {
            let Some(left) = self.left.checked_sub(bytes.saturating_mul(parts)) else {
                break;
            };
            let built = RegexBuilder::new(pattern)
                .backtrack_limit(BACKTRACK_LIMIT)
                .delegate_size_limit(bytes)
                .delegate_dfa_size_limit(bytes)
                .build();
            match built {
                Ok(regex) => {
                    self.left = left;
                    return Ok(regex);
                }
                Err(error) if is_too_large(&error) => {}
                Err(error) => return Err(Unusable::Bad(error.to_string())),
            }
        }
        let most = PATTERN_BYTES.last().map_or(0, |bytes| bytes >> 10);
        self.give_up(format!(
            "this pattern takes more memory than there is for it: one may take {most} KiB, and all of a file together {} MiB",
            FILE_BYTES >> 20
        ))
    }

    fn give_up(&mut self, why: String) -> Result<Regex, Unusable> {
        self.is_over = true;
        Err(Unusable::TooComplex(why))
    }
}

/// Returns the largest number of compiled patterns that `pattern` may consist of. Look-around and back references split
/// it.
fn parts(pattern: &str) -> usize {
    if Parser::new().parse(pattern).is_ok() {
        return 1;
    }
    let cuts = ['(', ')', '[', '|', '.', '\\', '*', '+', '?'];
    1 + pattern.matches(cuts).count()
}

fn is_too_large(error: &Error) -> bool {
    if let Error::CompileError(error) = error
        && let CompileError::InnerError(inner) = &**error
    {
        inner.size_limit().is_some()
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(patterns: &mut Patterns, pattern: &str) -> usize {
        (0..10_000)
            .take_while(|_| patterns.compile(pattern).is_ok())
            .count()
    }

    #[test]
    fn patterns_count_by_size_and_parts() {
        let count = |pattern| compiled(&mut Patterns::default(), pattern);
        assert_eq!(count("^(ok|done)$"), 1024);
        assert!((16..256).contains(&count(r"\w{8}-\w{8}")));
        assert_eq!(count(r"\w{2000}"), 0);
        assert!((20..=256).contains(&count("(?=ab)(?!cd)ef")));
    }

    #[test]
    fn pattern_beyond_budget_is_reported_once() {
        let mut patterns = Patterns::default();
        let said = |patterns: &mut Patterns| patterns.compile(r"\w{2000}");
        assert!(matches!(said(&mut patterns), Err(Unusable::TooComplex(_))));
        assert!(patterns.is_over());
        assert!(matches!(said(&mut patterns), Err(Unusable::Reported)));
        assert!(matches!(patterns.compile("a"), Err(Unusable::Reported)));
    }

    #[test]
    fn a_bad_pattern_is_not_too_large() {
        let bad = Patterns::default().compile("a(");
        assert!(matches!(bad, Err(Unusable::Bad(_))));
    }
}
