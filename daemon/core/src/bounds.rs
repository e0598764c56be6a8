//! Limits on the depth and the size of a value.
//!
//! Tools, callers and templates make values. Each value is measured where it enters, before it can do harm. **Depth**:
//! a value is wrapped several times on its way to the log, the wire and the archive, and common JSON readers stop at
//! 128 levels. [`MOST_DEPTH`] leaves room for every wrapping. **Size**: one run must not take the memory of all others.
//! The state of a run, and the result of one template, is at most [`MOST_BYTES`] large. Memory counts, not JSON: a list
//! of nulls takes 14 times as much memory as its JSON has bytes.

use serde_json::Value;

use crate::error::{ErrorKind, Kinded};

/// Largest number of nested lists and maps in a value.
pub const MOST_DEPTH: usize = 64;
/// Largest approximate memory of the values of one run, in bytes.
pub const MOST_BYTES: usize = 64 << 20;
/// Size of a state, in bytes, above which a warning advises to keep data in files.
pub const MANY_BYTES: usize = 1 << 20;

/// Limit that a value exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("nested more than {MOST_DEPTH} levels deep")]
    Depth,
    #[error("larger than {} MiB in memory", MOST_BYTES >> 20)]
    Bytes,
}

impl Kinded for Excess {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Memory of a value itself. An entry of a list or a map takes it inside the memory of that container.
const VALUE: usize = size_of::<Value>();
/// Memory of one slot of a map's table: hash, key, value and index.
const ENTRY: usize = 2 * size_of::<usize>() + size_of::<String>() + VALUE;
/// Overhead of one allocation, in bytes.
const ALLOCATION: usize = 16;

/// Checks the depth and the size of `value`. Returns its approximate size in memory, in bytes.
pub fn check(value: &Value) -> Result<usize, Excess> {
    size_within(value, MOST_DEPTH, MOST_BYTES)
}

/// Returns the approximate size of `value` in memory, in bytes; at most [`MOST_BYTES`].
pub fn size(value: &Value) -> usize {
    size_within(value, usize::MAX, MOST_BYTES).unwrap_or(MOST_BYTES)
}

/// Returns an upper bound of the memory, in bytes, that decoding `json` takes at any moment. Lists and maps grow by
/// doubling.
pub fn most_of_json(json: &str) -> usize {
    let (mut values, mut entries, mut maps, mut quotes) = (1, 0, 0, 0);
    for byte in json.bytes() {
        match byte {
            b',' | b'[' => values += 1,
            b'{' => (values, maps) = (values + 1, maps + 1),
            b':' => entries += 1,
            b'"' => quotes += 1,
            _ => {}
        }
    }
    let texts = json.len() + quotes * ALLOCATION;
    let lists = values * 2 * (VALUE + ALLOCATION);
    texts + lists + (3 * entries + room(1) * maps) * ENTRY + 2 * maps * ALLOCATION
}

/// Returns the size of a value that is at most `depth` deep and at most `bytes` large.
pub(crate) fn size_within(value: &Value, depth: usize, bytes: usize) -> Result<usize, Excess> {
    let mut left = bytes.checked_sub(VALUE).ok_or(Excess::Bytes)?;
    spend(value, depth, &mut left)?;
    Ok(bytes - left)
}

/// Subtracts from `left` the memory that `value` owns, without the memory of the value itself.
fn spend(value: &Value, depth: usize, left: &mut usize) -> Result<(), Excess> {
    let mut pay = |bytes: usize| {
        *left = left.checked_sub(bytes).ok_or(Excess::Bytes)?;
        Ok(())
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => pay(text.len() + ALLOCATION),
        Value::Array(list) => {
            let depth = depth.checked_sub(1).ok_or(Excess::Depth)?;
            pay(list.len() * VALUE + ALLOCATION)?;
            list.iter().try_for_each(|entry| spend(entry, depth, left))
        }
        Value::Object(map) => {
            let depth = depth.checked_sub(1).ok_or(Excess::Depth)?;
            pay(room(map.len()) * ENTRY + 2 * ALLOCATION)?;
            map.iter().try_for_each(|(key, entry)| {
                let key = key.len() + ALLOCATION;
                *left = left.checked_sub(key).ok_or(Excess::Bytes)?;
                spend(entry, depth, left)
            })
        }
    }
}

/// Returns the capacity of a map that grew to `entries`. Its table doubles, and is at most seven eighths full.
const fn room(entries: usize) -> usize {
    match entries {
        0 => 0,
        1..=3 => 3,
        4..=7 => 7,
        _ => (entries * 8 / 7).next_power_of_two() / 8 * 7,
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
    fn map_capacity_exceeds_its_entries() {
        let rooms: Vec<usize> = [0, 1, 3, 4, 7, 8, 14, 15, 28, 29].map(room).into();
        assert_eq!(rooms, [0, 3, 3, 7, 7, 14, 14, 28, 28, 56]);
    }

    #[test]
    fn value_size_is_bounded_by_its_json() {
        for value in [
            json!(null),
            json!(""),
            json!(vec![Value::Null; 1000]),
            json!(vec![json!([]); 1000]),
            json!(vec![json!({"a": 1}); 1000]),
            json!({"a": {"b": ["x", "y", {"c": "é\n\u{0}"}]}}),
            (0..1000).map(|n| (n.to_string(), json!(n))).collect(),
        ] {
            let json = value.to_string();
            assert!(size(&value) <= most_of_json(&json), "{json}");
        }
        assert!(most_of_json(&"x".repeat(1000)) < 1500);
    }

    #[test]
    fn size_counts_memory_not_json() {
        let nulls = json!(vec![Value::Null; 100]);
        assert_eq!(check(&nulls), Ok(101 * VALUE + ALLOCATION));
        let text = json!("x".repeat(1000));
        assert_eq!(check(&text), Ok(VALUE + 1000 + ALLOCATION));
        let map = json!({"k": [null]});
        let bytes = 2 * VALUE + 3 * ENTRY + 4 * ALLOCATION + 1;
        assert_eq!(size_within(&map, 2, bytes), Ok(bytes));
        assert_eq!(size_within(&map, 2, bytes - 1), Err(Excess::Bytes));
        assert_eq!(size_within(&map, 1, bytes), Err(Excess::Depth));
    }
}
