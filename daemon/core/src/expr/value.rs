//! Text, equality and order of values, and JSON without silent loss.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::bounds;
use crate::error::excerpt;
use crate::json;

/// A text that is not JSON, or holds a number that would be rounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadJson {
    pub reason: String,
}

impl crate::error::Kinded for BadJson {
    fn kind(&self) -> crate::error::ErrorKind {
        crate::error::ErrorKind::Invalid
    }
}

/// Parses JSON. An integer beyond 64 bits, a duplicate key, and a value beyond the [bounds] are errors; plain
/// `serde_json` would round the integer and drop the first of the two keys. Half of a surrogate pair becomes U+FFFD.
pub fn parse_json(text: &str) -> Result<Value, BadJson> {
    let text = &*json::repaired(text);
    let Unambiguous(value) = serde_json::from_str(text).map_err(|error| BadJson {
        reason: error.to_string(),
    })?;
    bounds::check(&value).map_err(|excess| BadJson {
        reason: format!("it is {excess}"),
    })?;
    match oversized_integer(text) {
        None => Ok(value),
        Some(integer) => Err(BadJson {
            reason: format!(
                "the integer {} does not fit 64 bits; send it as text",
                excerpt(integer)
            ),
        }),
    }
}

/// A value without duplicate keys.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

/// Visitor that builds a value.
struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(entry)) = entries.next_element()? {
            list.push(entry);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let key = excerpt(&key);
                return Err(A::Error::custom(format_args!(
                    "the key `{key}` occurs twice"
                )));
            }
            let Unambiguous(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Returns the first integer of a well-formed JSON text that neither `i64` nor `u64` holds.
fn oversized_integer(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(inner) = bytes.get(at) {
                    at += 1 + usize::from(*inner == b'\\');
                    if *inner == b'"' {
                        break;
                    }
                }
            }
            b'-' | b'0'..=b'9' => {
                while bytes
                    .get(at)
                    .is_some_and(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                {
                    at += 1;
                }
                let number = &json[start..at];
                if !number.contains(['.', 'e', 'E'])
                    && number.parse::<i64>().is_err()
                    && number.parse::<u64>().is_err()
                {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

/// Renders a value inside text: strings bare, null as nothing, all else as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    Text,
    List,
    Map,
}

impl Kind {
    pub(crate) const fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::List,
            Value::Object(_) => Self::Map,
        }
    }

    /// Returns the name of the type, with its article.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a bool",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Map => "a map",
        }
    }
}

/// Returns the type of a value, with its article.
pub(crate) const fn kind_of(value: &Value) -> &'static str {
    Kind::of(value).as_str()
}

/// Compares values: numbers by their value (5 equals 5.0), bools only with bools, maps in any order.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

/// Compares two numbers exactly, even an integer with a float.
pub(super) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        // Rounding to a float keeps order, so only a tie requires an exact comparison.
        (Some(_) | None, None) | (None, Some(_)) => match a.as_f64()?.partial_cmp(&b.as_f64()?)? {
            Ordering::Equal => match (exact(a), exact(b)) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                (Some(_) | None, None) | (None, Some(_)) => Some(Ordering::Equal),
            },
            unequal @ (Ordering::Less | Ordering::Greater) => Some(unequal),
        },
    }
}

/// Returns the integer that a number is written as.
pub(super) fn integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

/// Returns the integer that a number is equal to, or `None` if it has a fraction or exceeds 128 bits.
fn exact(number: &Number) -> Option<i128> {
    integer(number).or_else(|| {
        let float = number.as_f64()?;
        if float.fract() == 0.0 {
            format!("{float:.0}").parse().ok()
        } else {
            None
        }
    })
}
