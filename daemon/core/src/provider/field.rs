//! Fields of what a provider sends.
//!
//! A field may be a value of another kind than its api has. It is taken if its meaning is plain, and refused if not: only a field that is
//! not there, or null, counts as absent.

use serde_json::{Map, Value};

use super::stream::{Fault, Signal, malformed};
use super::usage::Tokens;
use crate::error::excerpt;
use crate::json::repaired;

/// Most tokens that a call may report.
const MOST_TOKENS: i64 = 1_000_000_000;
/// Most levels of the parts of a text.
const MOST_LEVELS: u8 = 8;
/// The fields of a part that say something, and whether that is a thought.
const SAYING: [(&str, bool); 4] = [
    ("text", false),
    ("content", false),
    ("thinking", true),
    ("reasoning", true),
];

/// The data of an event, as JSON, and whether halves of surrogate pairs were replaced in it.
pub(super) fn parsed(data: &str) -> Result<(Value, bool), Fault> {
    let read = |text: &str| serde_json::from_str(text);
    match read(data) {
        Ok(value) => Ok((value, false)),
        Err(error) => read(&repaired(data))
            .map(|value| (value, true))
            .map_err(|_same| malformed(format!("an event is not JSON: {error}"))),
    }
}

/// True unless the value is as good as absent.
pub(super) fn says(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// An object, or `None` if there is nothing.
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

/// The entries of a list; a value that is no list is the only one.
pub(super) fn entries(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(entries) => entries,
        value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![value]
        }
    }
}

/// A word, an id or a name; a number is taken as its digits.
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

/// A number that tells parts from each other; a text of digits is taken as well.
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

/// A whole number; one like `3.0` is taken as well.
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

/// A text of the model.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) thinking: String,
}

/// What the model says, as a text or as a list of parts.
pub(super) fn said(value: &Value, field: &str) -> Result<Said, Fault> {
    let mut said = Said::default();
    add(value, false, field, MOST_LEVELS, &mut said)?;
    Ok(said)
}

fn add(
    value: &Value,
    is_thought: bool,
    field: &str,
    levels: u8,
    said: &mut Said,
) -> Result<(), Fault> {
    let Some(below) = levels.checked_sub(1) else {
        return Err(malformed(format!("`{field}` has too many levels")));
    };
    match value {
        Value::Array(parts) => parts
            .iter()
            .try_for_each(|part| add(part, is_thought, field, below, said)),
        Value::Object(part) => {
            let found = SAYING
                .iter()
                .find(|(key, _)| part.get(*key).is_some_and(says));
            match found {
                Some((key, thought)) => {
                    add(&part[*key], is_thought || *thought, field, below, said)
                }
                None if SAYING.iter().any(|(key, _)| part.contains_key(*key)) => Ok(()),
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

/// The arguments of a call, or a part of them, as JSON text. An object is taken as its JSON; one without members says nothing yet.
pub(super) fn arguments(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(map) if map.is_empty() => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The answer begins, of a model that calls itself like that.
pub(super) fn begun(model: &Value) -> Signal {
    let model = match model {
        Value::Null => String::new(),
        Value::String(name) => excerpt(name).into_owned(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            excerpt(&other.to_string()).into_owned()
        }
    };
    Signal::Begun { model }
}

/// What a provider reports of the tokens of a call.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// As far as they were reported.
    pub(super) tokens: Tokens,
    pub(super) has_input: bool,
    pub(super) has_output: bool,
    /// What is odd about it.
    warnings: Vec<&'static str>,
}

const UNREADABLE: &str = "the provider said in a way that cannot be read what the call used";
const NEGATIVE: &str =
    "the provider said that the call used less than no tokens, which count as none";

impl Report {
    /// The members of a report, or of a part of one.
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

    /// A number of tokens; `None` if there is none, or none that can be read. One below zero counts as none.
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

    /// The tokens of the whole call; `None` if some number is missing or cannot be read.
    pub(super) fn whole(&self) -> Option<Tokens> {
        let is_readable = !self.warnings.contains(&UNREADABLE);
        (self.has_input && self.has_output && is_readable).then_some(self.tokens)
    }

    /// What is odd about the report.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| (*warning).to_owned())
    }
}
