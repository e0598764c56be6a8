//! How deep and how large a value may be.
//!
//! Tools, callers and templates make values; each is measured where it comes in, long before it could do harm. **Depth**:
//! a value is wrapped several times on its way into the log, the wire and the archive, and common readers of JSON stop at
//! 128 levels; [`MOST_DEPTH`] leaves room for every wrapping. **Size**: one run must not take the memory of all others; the
//! state of a run, and whatever one template makes of it, stays within [`MOST_BYTES`].

use serde_json::Value;

use crate::error::{ErrorKind, Kinded};

/// Lists and maps within each other that a value may have.
pub const MOST_DEPTH: usize = 64;
/// Bytes of a value as JSON, roughly, that a run may hold at once.
pub const MOST_BYTES: usize = 64 << 20;
/// From here on the author is told that the state is no place for data.
pub const MANY_BYTES: usize = 1 << 20;

/// How a value goes beyond what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Too many lists and maps within each other.
    #[error("nested more than {MOST_DEPTH} levels deep")]
    Depth,
    /// Too large.
    #[error("larger than {} MiB", MOST_BYTES >> 20)]
    Bytes,
}

impl Kinded for Excess {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Measures `value`; its size in bytes as JSON, roughly.
pub fn check(value: &Value) -> Result<usize, Excess> {
    within(value, MOST_DEPTH, MOST_BYTES)
}

/// The size of a value in bytes as JSON, roughly; of one beyond [`MOST_BYTES`] no more than that is counted.
pub(crate) fn size(value: &Value) -> usize {
    within(value, usize::MAX, MOST_BYTES).unwrap_or(MOST_BYTES)
}

/// The size of a value that is at most `depth` deep and `bytes` large.
pub(crate) fn within(value: &Value, depth: usize, bytes: usize) -> Result<usize, Excess> {
    let mut left = bytes;
    spend(value, depth, &mut left)?;
    Ok(bytes - left)
}

fn spend(value: &Value, depth: usize, left: &mut usize) -> Result<(), Excess> {
    let mut pay = |bytes: usize| {
        *left = left.checked_sub(bytes).ok_or(Excess::Bytes)?;
        Ok(())
    };
    match value {
        Value::Null | Value::Bool(_) => pay(4),
        Value::Number(_) => pay(8),
        Value::String(text) => pay(text.len() + 2),
        Value::Array(list) => {
            let depth = depth.checked_sub(1).ok_or(Excess::Depth)?;
            pay(list.len() + 2)?;
            list.iter().try_for_each(|entry| spend(entry, depth, left))
        }
        Value::Object(map) => {
            let depth = depth.checked_sub(1).ok_or(Excess::Depth)?;
            pay(2)?;
            map.iter().try_for_each(|(key, entry)| {
                *left = left.checked_sub(key.len() + 4).ok_or(Excess::Bytes)?;
                spend(entry, depth, left)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({"a": inner}),
        })
    }

    #[test]
    fn depth_counts_lists_and_maps() {
        assert!(check(&nested(MOST_DEPTH)).is_ok());
        assert_eq!(check(&nested(MOST_DEPTH + 1)), Err(Excess::Depth));
    }

    #[test]
    fn size_is_about_that_of_the_json() {
        for value in [
            json!({"a": [1, 2, 3], "text": "x".repeat(1000), "none": null}),
            json!(vec!["ab"; 500]),
            json!([]),
        ] {
            let size = check(&value).unwrap();
            let json = value.to_string().len();
            assert!(
                size >= json / 2 && size <= json * 2 + 8,
                "{size} for {json}"
            );
        }
        assert_eq!(within(&json!("12345"), 0, 6), Err(Excess::Bytes));
        assert_eq!(within(&json!("12345"), 0, 7), Ok(7));
        assert_eq!(within(&json!({"k": [null]}), 2, 10), Err(Excess::Bytes));
    }
}
