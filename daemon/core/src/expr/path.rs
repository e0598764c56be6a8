//! Paths: `state.list.0.name`, `state.list[0].name`.

use std::borrow::Cow;

use serde_json::Value;

use super::scope::{Bound, Scope};

/// A parsed path: a name of the scope and the steps below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    text: String,
    segments: Vec<String>,
}

impl Path {
    /// Parses a path; the error names the rule that it breaks.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path is empty".to_owned());
        }
        let mut segments = Vec::new();
        for dotted in text.split('.') {
            let (key, brackets) = match dotted.find('[') {
                Some(open) => dotted.split_at(open),
                None => (dotted, ""),
            };
            check_key(key, text)?;
            segments.push(key.to_owned());
            let mut rest = brackets;
            while !rest.is_empty() {
                let (index, after) = rest
                    .strip_prefix('[')
                    .and_then(|inner| inner.split_once(']'))
                    .filter(|(index, _)| is_index(index))
                    .ok_or_else(|| {
                        format!("`{rest}` in `{text}` is not an index; write `[0]` or `.0`")
                    })?;
                segments.push(index.to_owned());
                rest = after;
            }
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name of the scope that the path begins with.
    pub(super) fn root(&self) -> &str {
        self.segments.first().map_or("", String::as_str)
    }

    /// Returns the value at the path, or `None` if it does not resolve.
    pub(super) fn resolve<'s>(&self, scope: &'s dyn Scope) -> Option<Cow<'s, Value>> {
        let (first, rest) = self.segments.split_first()?;
        let bound = scope.get(first)?;
        let Some((second, rest)) = rest.split_first() else {
            return Some(bound.whole());
        };
        rest.iter()
            .try_fold(enter(bound, second)?, |value, segment| step(value, segment))
            .map(Cow::Borrowed)
    }

    /// Returns the path with its failing step replaced by the nearest existing name.
    pub(super) fn suggest(&self, scope: &dyn Scope) -> Option<String> {
        let (first, rest) = self.segments.split_first()?;
        let Some(bound) = scope.get(first) else {
            return self.replacing(0, nearest(first, scope.names())?);
        };
        let (second, rest) = rest.split_first()?;
        let Some(mut value) = enter(bound, second) else {
            let near = match bound {
                Bound::Value(value) => nearest_key(second, value)?,
                Bound::Vars(vars) => nearest(second, vars.names())?,
            };
            return self.replacing(1, near);
        };
        for (below, segment) in rest.iter().enumerate() {
            if let Some(next) = step(value, segment) {
                value = next;
            } else {
                return self.replacing(below + 2, nearest_key(segment, value)?);
            }
        }
        None
    }

    fn replacing(&self, at: usize, name: &str) -> Option<String> {
        let mut segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        *segments.get_mut(at)? = name;
        Some(segments.join("."))
    }
}

/// Returns true if a path can read a value with this name.
pub(crate) fn is_name(text: &str) -> bool {
    Path::parse(text).is_ok_and(|path| path.segments.len() == 1)
}

fn nearest_key<'v>(word: &str, value: &'v Value) -> Option<&'v str> {
    nearest(word, value.as_object()?.keys().map(String::as_str))
}

/// Takes the first step below a name of the scope.
fn enter<'s>(bound: Bound<'s>, segment: &str) -> Option<&'s Value> {
    match bound {
        Bound::Value(value) => step(value, segment),
        Bound::Vars(vars) => vars.get(segment),
    }
}

fn step<'s>(value: &'s Value, segment: &str) -> Option<&'s Value> {
    match value {
        Value::Object(map) => map.get(segment),
        Value::Array(list) if is_index(segment) => {
            let at = match segment.strip_prefix('-') {
                Some(back) => list.len().checked_sub(back.parse().ok()?)?,
                None => segment.parse().ok()?,
            };
            list.get(at)
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            None
        }
    }
}

/// Returns true for `0`, `12`, `-1`; false for `+1`, `01`, `-0`.
pub(super) fn is_index(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !digits.starts_with('0'))
}

/// Checks a key: letters, digits and `_ - / @`, with single blanks between words, such as `under_score`, `sp ace`,
/// `ünï`. All other characters are errors, so that arithmetic and shell forms never become silent nulls.
fn check_key(key: &str, path: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err(format!("`{path}` has an empty step"));
    }
    let mut before = None;
    let mut chars = key.chars().peekable();
    while let Some(c) = chars.next() {
        let allowed = match c {
            ' ' => before.is_some_and(is_word) && chars.peek().copied().is_some_and(is_word),
            '-' | '/' | '@' => true,
            other => is_word(other),
        };
        if !allowed {
            // A blank is an error because of a neighbouring character: name that one.
            let culprit = match c {
                ' ' => chars.find(|c| *c != ' ' && !is_word(*c)).unwrap_or(c),
                other => other,
            };
            return Err(unexpected(culprit, path));
        }
        before = Some(c);
    }
    Ok(())
}

/// Returns true for the characters that words of a key consist of.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || (!c.is_ascii() && !c.is_whitespace() && !c.is_control())
}

fn unexpected(c: char, path: &str) -> String {
    match c {
        '+' => format!(
            "`+` in `{path}`: expressions do not calculate; to build a list use a foreach node with `collect`"
        ),
        ' ' => format!("a blank in `{path}` is outside of a name"),
        '{' | '$' if path.starts_with("${") && path.ends_with('}') => {
            let inner = path.trim_start_matches("${").trim_end_matches('}');
            format!("a path is without `${{}}`: write `{inner}`")
        }
        '{' | '$' => format!("`{c}` in `{path}`: expressions do not nest"),
        '-' | '/' | '*' | '<' | '>' | '=' | '!' | '&' => {
            format!("`{c}` in `{path}`: expressions do not calculate; branch with `when`")
        }
        '"' | '\'' => format!(
            "`{c}` in `{path}`: an expression begins with a path; a text in quotes is after `||` or in the brackets of a pipe"
        ),
        ':' | '#' | '%' | '?' => format!(
            "`{c}` in `{path}`: `${{…}}` is not a shell expansion; give alternatives as `a || b`"
        ),
        other => format!("{other:?} in `{path}` is not part of a path"),
    }
}

/// Largest number of names examined for a suggestion.
const MAX_CANDIDATES: usize = 1000;
/// Smallest number of characters that count as the beginning of a name.
const SHORTEST_BEGINNING: usize = 4;
/// Longest name for which suggestions are made, in characters.
const MAX_WORD: usize = 64;

/// Returns the candidate that `word` was probably meant to be: the most similar one, or the only one that begins with
/// `word`.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let letters: Vec<char> = word.chars().take(MAX_WORD + 1).collect();
    if letters.len() > MAX_WORD {
        return None;
    }
    let allowed = match letters.len() {
        0..=2 => 0,
        3..=5 => 1,
        6.. => 2,
    };
    let mut near: Option<(usize, &str)> = None;
    let mut longer = Vec::new();
    for candidate in candidates.into_iter().take(MAX_CANDIDATES) {
        let other: Vec<char> = candidate.chars().take(MAX_WORD + 1).collect();
        if letters.len().abs_diff(other.len()) <= allowed {
            let distance = distance(&letters, &other);
            let best = near.map_or(allowed + 1, |(best, _)| best);
            if distance > 0 && distance < best {
                near = Some((distance, candidate));
            }
        } else if candidate.starts_with(word) {
            longer.push(candidate);
        }
    }
    let only = match longer.as_slice() {
        [only] if letters.len() >= SHORTEST_BEGINNING => Some(*only),
        _ => None,
    };
    near.map(|(_, candidate)| candidate).or(only)
}

/// Formats a suggestion for the end of a clause: ` (did you mean `near`?)`, or nothing.
pub fn did_you_mean(near: Option<impl std::fmt::Display>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours that turn one word into the
/// other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut older: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(older[j - 2] + 1);
            }
            row.push(best);
        }
        older = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
