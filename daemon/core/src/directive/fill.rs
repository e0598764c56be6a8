//! Placeholders in the text of a directive.
//!
//! ```text
//! {input:k}   {input:k?}   {input:k:else}   {input:k|else}   ${inputs.k}
//! {env:NAME}  {env:NAME:else}
//! ```
//!
//! One pass from left to right; all other text, and every inserted value, stays as it is.

use std::ops::Range;

use super::prompt::Values;
use crate::expr::text_of;

/// Limit of a fallback in bytes, so that the rest of a text is not searched for a brace repeatedly.
const MOST_BYTES: usize = 4096;

const SHORT: &str = "{input:";
const LONG: &str = "${inputs.";

/// The beginnings of placeholders.
const HEADS: [(&str, Of); 3] = [(SHORT, Of::Input), (LONG, Of::Input), ("{env:", Of::Env)];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placeholder<'t> {
    /// Bytes of the placeholder.
    pub(super) range: Range<usize>,
    pub(super) of: Of,
    pub(super) name: &'t str,
    /// The replacement of a missing value; without one the placeholder stays.
    pub(super) fallback: Option<&'t str>,
}

/// The source of a placeholder's value.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Of {
    Input,
    Env,
}

/// Returns all placeholders of `text`, in order.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + text.get(at..)?.find(['{', '$'])?;
            if let Some(found) = placeholder(text, start) {
                at = found.range.end;
                return Some(found);
            }
            at = start + 1;
        }
    })
}

fn placeholder(text: &str, start: usize) -> Option<Placeholder<'_>> {
    let rest = &text[start..];
    let (head, of) = HEADS.into_iter().find(|(head, _)| rest.starts_with(head))?;
    let inner = &rest[head.len()..];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (name, after) = inner.split_at(inner.find(|c| !plain(c))?);
    if name.is_empty() {
        return None;
    }
    let end = after
        .bytes()
        .take(MOST_BYTES)
        .position(|byte| byte == b'}')?;
    let other = &after[..end];
    let is_short = head == SHORT;
    let is_braced = head != LONG;
    let fallback = match other.split_at_checked(1) {
        None => None,
        Some(("?", "")) if is_short => Some(""),
        Some((":", other)) if is_braced => Some(other),
        Some(("|", other)) if is_short => Some(other),
        Some(_) => return None,
    };
    Some(Placeholder {
        range: start..start + head.len() + name.len() + end + 1,
        of,
        name,
        fallback,
    })
}

/// Fills `text` with its values; a placeholder without value or fallback stays, and is noted.
pub(super) fn fill(text: &str, values: &Values<'_>, notes: &mut Vec<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut from = 0;
    for found in placeholders(text) {
        let value = match found.of {
            Of::Input => {
                let value = values.inputs.get(found.name);
                value.filter(|value| !value.is_null()).map(text_of)
            }
            Of::Env => (values.env)(found.name),
        };
        let written = &text[found.range.clone()];
        filled.push_str(&text[from..found.range.start]);
        match (&value, found.fallback) {
            (Some(value), _) => filled.push_str(value),
            (None, Some(fallback)) => filled.push_str(fallback),
            (None, None) => {
                filled.push_str(written);
                notes.push(format!("`{written}` has no value and stays as it is"));
            }
        }
        from = found.range.end;
    }
    filled.push_str(&text[from..]);
    filled
}
