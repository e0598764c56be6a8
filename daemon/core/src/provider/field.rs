//! Fields of a provider's answer.
//!
//! A field may have another type than its API defines. It is accepted if its meaning is clear, and refused otherwise.
//! Only a missing field or null counts as absent.

use serde_json::{Map, Value};

use super::stream::{Fault, StreamSignal, malformed};
use super::usage::Tokens;
use crate::error::excerpt;
use crate::json::repaired;

/// Largest number of tokens that a call may report.
const MOST_TOKENS: i64 = 1_000_000_000;
/// Deepest nesting of the parts of a text.
const MOST_LEVELS: u8 = 8;
/// Fields of a part that hold text, and true for those that hold reasoning.
const TEXT_KEYS: [(&str, bool); 4] = [
    ("text", false),
    ("content", false),
    ("thinking", true),
    ("reasoning", true),
];

/// Parses the data of an event as JSON. The flag is true if half surrogate pairs were replaced in it.
pub(super) fn parsed(data: &str) -> Result<(Value, bool), Fault> {
    let read = |text: &str| serde_json::from_str(text);
    match read(data) {
        Ok(value) => Ok((value, false)),
        Err(error) => read(&repaired(data))
            .map(|value| (value, true))
            .map_err(|_same| malformed(format!("an event is not JSON: {error}"))),
    }
}

/// Returns true unless the value is empty, null or false.
pub(super) fn has_content(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// Returns an object, or `None` for null.
pub(super) fn object<'v>(
    value: &'v Value,
    field: &str,
) -> Result<Option<&'v Map<String, Value>>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(malformed(format!("`{field}` is no object")))
        }
    }
}

/// Returns the entries of a list; any other value except null is its only entry.
pub(super) fn entries(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(entries) => entries,
        value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![value]
        }
    }
}

/// Returns a word, an id or a name; a number is converted to its digits.
pub(super) fn word(value: &Value, field: &str) -> Result<String, Fault> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(malformed(format!("`{field}` is no text")))
        }
    }
}

/// Returns the number that distinguishes parts; a text of digits is accepted too.
pub(super) fn index(value: &Value, field: &str) -> Result<Option<u64>, Fault> {
    let from_whole = || whole(value).and_then(|number| u64::try_from(number).ok());
    let number = match value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64().or_else(from_whole),
        Value::String(digits) => digits.trim().parse().ok(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number
        .map(Some)
        .ok_or_else(|| malformed(format!("`{field}` is no number from 0 on")))
}

/// Returns a whole number; `3.0` is accepted too.
fn whole(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = || {
        let float = value.as_f64()?;
        let is_whole = float.fract() == 0.0 && float.abs() < EXACT;
        // A whole number below 2^53 has the same digits without its fraction.
        is_whole.then(|| format!("{float:.0}").parse().ok())?
    };
    value.as_i64().or_else(float)
}

/// Text and reasoning of a model.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ModelText {
    pub(super) text: String,
    pub(super) thinking: String,
}

/// Reads the output of the model, which is a text or a list of parts.
pub(super) fn model_text(value: &Value, field: &str) -> Result<ModelText, Fault> {
    let mut said = ModelText::default();
    add(value, false, field, MOST_LEVELS, &mut said)?;
    Ok(said)
}

fn add(
    value: &Value,
    is_thought: bool,
    field: &str,
    levels: u8,
    said: &mut ModelText,
) -> Result<(), Fault> {
    let Some(below) = levels.checked_sub(1) else {
        return Err(malformed(format!("`{field}` has too many levels")));
    };
    match value {
        Value::Array(parts) => parts
            .iter()
            .try_for_each(|part| add(part, is_thought, field, below, said)),
        Value::Object(part) => {
            let found = TEXT_KEYS
                .iter()
                .find(|(key, _)| part.get(*key).is_some_and(has_content));
            match found {
                Some((key, thought)) => {
                    add(&part[*key], is_thought || *thought, field, below, said)
                }
                None if TEXT_KEYS.iter().any(|(key, _)| part.contains_key(*key)) => Ok(()),
                None => Err(malformed(format!("`{field}` has a part without text"))),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let place = if is_thought {
                &mut said.thinking
            } else {
                &mut said.text
            };
            place.push_str(&word(value, field)?);
            Ok(())
        }
    }
}

/// Returns the arguments of a call, or a part of them, as JSON text. An object is serialised; an empty one counts as
/// absent.
pub(super) fn arguments(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(map) if map.is_empty() => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns the signal of a beginning answer with the name that the model reports.
pub(super) fn begun(model: &Value) -> StreamSignal {
    let model = match model {
        Value::Null => String::new(),
        Value::String(name) => excerpt(name).into_owned(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            excerpt(&other.to_string()).into_owned()
        }
    };
    StreamSignal::Begun { model }
}

/// A provider's usage report of a call.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Numbers reported so far.
    pub(super) tokens: Tokens,
    pub(super) has_input: bool,
    pub(super) has_output: bool,
    warnings: Vec<&'static str>,
}

const UNREADABLE: &str = "the provider said in a way that cannot be read what the call used";
const NEGATIVE: &str =
    "the provider said that the call used less than no tokens, which count as none";

impl Report {
    /// Returns the members of a report, or of a part of one.
    pub(super) fn members<'v>(&mut self, report: &'v Value) -> Option<&'v Map<String, Value>> {
        match report {
            Value::Object(members) => Some(members),
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.warn(UNREADABLE);
                None
            }
        }
    }

    /// Returns a number of tokens, or `None` if it is absent or unreadable. A negative number counts as 0.
    pub(super) fn number(&mut self, value: Option<&Value>) -> Option<u64> {
        let reported = match value? {
            Value::Null => return None,
            number @ Value::Number(_) => whole(number),
            Value::String(digits) => digits.trim().parse().ok(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let Some(reported) = reported.filter(|tokens| *tokens <= MOST_TOKENS) else {
            self.warn(UNREADABLE);
            return None;
        };
        if reported < 0 {
            self.warn(NEGATIVE);
        }
        Some(u64::try_from(reported).unwrap_or(0))
    }

    /// Notes that the numbers contradict each other.
    pub(super) fn contradicts(&mut self) {
        self.warn(NEGATIVE);
    }

    fn warn(&mut self, warning: &'static str) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Returns the tokens of the whole call, or `None` if a number is missing or unreadable.
    pub(super) fn whole(&self) -> Option<Tokens> {
        let is_readable = !self.warnings.contains(&UNREADABLE);
        (self.has_input && self.has_output && is_readable).then_some(self.tokens)
    }

    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| (*warning).to_owned())
    }
}
