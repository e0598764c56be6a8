//! Pipes of expressions: operations on a value.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use serde_json::{Number, Value};

use super::path::{did_you_mean, nearest};
use super::value::{Kind, equal, integer, kind_of, parse_json, text_of};
use crate::bounds::MOST_BYTES;

/// Largest number of pieces of a split text. Each piece takes memory in addition to its characters.
const MOST_PIECES: usize = MOST_BYTES / 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pipe {
    Json,
    FromJson,
    Length,
    Keys,
    Upper,
    Lower,
    Trim,
    Lines,
    Split,
    Join,
    First,
    Last,
    Sum,
    Unique,
    Add,
    Append,
    Default,
}

impl Pipe {
    pub(super) const ALL: [Self; 17] = [
        Self::Json,
        Self::FromJson,
        Self::Length,
        Self::Keys,
        Self::Upper,
        Self::Lower,
        Self::Trim,
        Self::Lines,
        Self::Split,
        Self::Join,
        Self::First,
        Self::Last,
        Self::Sum,
        Self::Unique,
        Self::Add,
        Self::Append,
        Self::Default,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::FromJson => "from_json",
            Self::Length => "length",
            Self::Keys => "keys",
            Self::Upper => "upper",
            Self::Lower => "lower",
            Self::Trim => "trim",
            Self::Lines => "lines",
            Self::Split => "split",
            Self::Join => "join",
            Self::First => "first",
            Self::Last => "last",
            Self::Sum => "sum",
            Self::Unique => "unique",
            Self::Add => "add",
            Self::Append => "append",
            Self::Default => "default",
        }
    }

    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|pipe| pipe.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            let hint = did_you_mean(nearest(name, names));
            let names = names.join(", ");
            format!("there is no pipe `{name}`{hint}; there are {names}")
        })
    }

    /// Returns the kind of argument that the pipe takes, with its article.
    pub(super) const fn argument_kind(self) -> Option<&'static str> {
        match self {
            Self::Split | Self::Join => Some("a text"),
            Self::Add => Some("a number"),
            Self::Append | Self::Default => Some("a value"),
            Self::Json
            | Self::FromJson
            | Self::Length
            | Self::Keys
            | Self::Upper
            | Self::Lower
            | Self::Trim
            | Self::Lines
            | Self::First
            | Self::Last
            | Self::Sum
            | Self::Unique => None,
        }
    }

    /// Checks that the pipe accepts `argument`. The error completes "pipe `x` …".
    pub(super) fn check(self, argument: &Value) -> Result<(), String> {
        let takes = match self {
            Self::Split if argument.as_str() == Some("") => {
                return Err("cannot cut at an empty text".to_owned());
            }
            Self::Split | Self::Join => argument.is_string(),
            Self::Add => argument.is_number(),
            Self::Append | Self::Default => true,
            Self::Json
            | Self::FromJson
            | Self::Length
            | Self::Keys
            | Self::Upper
            | Self::Lower
            | Self::Trim
            | Self::Lines
            | Self::First
            | Self::Last
            | Self::Sum
            | Self::Unique => return Ok(()),
        };
        if takes {
            return Ok(());
        }
        let wants = self.argument_kind().unwrap_or_default();
        Err(format!("takes {wants}, not {}", kind_of(argument)))
    }

    /// Returns true for the pipe that applies to null only and lets all else pass.
    pub(super) const fn replaces_null(self) -> bool {
        matches!(self, Self::Default)
    }

    /// Returns the type of the result, or `None` if it depends on the input.
    pub(super) const fn kind(self) -> Option<Kind> {
        match self {
            Self::Json | Self::Upper | Self::Lower | Self::Trim | Self::Join => Some(Kind::Text),
            Self::Length | Self::Sum | Self::Add => Some(Kind::Number),
            Self::Keys | Self::Lines | Self::Split | Self::Unique | Self::Append => {
                Some(Kind::List)
            }
            Self::FromJson | Self::First | Self::Last | Self::Default => None,
        }
    }

    /// Returns the value after the pipe. The error completes "pipe `x` …".
    pub(super) fn apply(self, value: &Value, argument: Option<&Value>) -> Result<Value, String> {
        let argument = argument.unwrap_or(&Value::Null);
        self.check(argument)?;
        let wants = |what: &str| Err(format!("needs {what}, not {}", kind_of(value)));
        match (self, value) {
            (Self::Json, _) => Ok(Value::String(value.to_string())),
            (Self::FromJson, Value::String(text)) => {
                parse_json(text).map_err(|error| format!("cannot read its text: {error}"))
            }
            (Self::Lines, Value::String(text)) => pieces(text.lines()),
            (Self::Split, Value::String(text)) => {
                pieces(text.split(argument.as_str().unwrap_or_default()))
            }
            (Self::FromJson | Self::Lines | Self::Split, _)
            | (Self::Upper | Self::Lower | Self::Trim, Value::Array(_) | Value::Object(_)) => {
                wants("a text")
            }
            (Self::Length, Value::String(text)) => Ok(text.chars().count().into()),
            (Self::Length, Value::Array(list)) => Ok(list.len().into()),
            (Self::Length, Value::Object(map)) => Ok(map.len().into()),
            (Self::Length, _) => wants("a text, a list or a map"),
            (Self::Keys, Value::Object(map)) => Ok(map.keys().cloned().collect()),
            (Self::Keys, _) => wants("a map"),
            (Self::Upper, _) => Ok(text_of(value).to_uppercase().into()),
            (Self::Lower, _) => Ok(text_of(value).to_lowercase().into()),
            (Self::Trim, _) => Ok(text_of(value).trim().into()),
            (Self::Add, Value::Number(number)) => {
                total(std::iter::once(number).chain(argument.as_number()))
            }
            (Self::Add, _) => wants("a number"),
            (Self::First, Value::Array(list)) => Ok(list.first().cloned().unwrap_or_default()),
            (Self::Last, Value::Array(list)) => Ok(list.last().cloned().unwrap_or_default()),
            (Self::Join, Value::Array(list)) => joined(list, argument.as_str().unwrap_or_default()),
            (Self::Sum, Value::Array(list)) => sum(list),
            (Self::Unique, Value::Array(list)) => Ok(unique(list)),
            (Self::Append, Value::Array(list)) => {
                Ok(list.iter().chain([argument]).cloned().collect())
            }
            (
                Self::First | Self::Last | Self::Join | Self::Sum | Self::Unique | Self::Append,
                _,
            ) => wants("a list"),
            (Self::Default, _) => Ok(argument.clone()),
        }
    }
}

fn pieces<'t>(pieces: impl Iterator<Item = &'t str>) -> Result<Value, String> {
    let mut list = Vec::new();
    for piece in pieces {
        if list.len() >= MOST_PIECES {
            return Err(format!(
                "would make more than {MOST_PIECES} pieces; keep large data in files and pass their paths"
            ));
        }
        list.push(Value::from(piece));
    }
    Ok(Value::Array(list))
}

fn joined(list: &[Value], between: &str) -> Result<Value, String> {
    let mut text = String::new();
    for (index, entry) in list.iter().enumerate() {
        if index > 0 {
            text.push_str(between);
        }
        text.push_str(&text_of(entry));
        if text.len() > MOST_BYTES {
            let problem = "would make a text that is too large; keep large data in files and pass their paths";
            return Err(problem.to_owned());
        }
    }
    Ok(text.into())
}

fn sum(list: &[Value]) -> Result<Value, String> {
    let other = list
        .iter()
        .enumerate()
        .find(|(_, entry)| !entry.is_number());
    match other {
        Some((place, other)) => Err(format!(
            "needs a list of numbers; [{place}] is {}",
            kind_of(other)
        )),
        None => total(list.iter().filter_map(Value::as_number)),
    }
}

/// Returns the sum of numbers; it is exact if all are integers.
fn total<'n>(numbers: impl Iterator<Item = &'n Number> + Clone) -> Result<Value, String> {
    let too_large = || "would be a number that is too large".to_owned();
    let whole: Option<i128> = numbers.clone().map(integer).sum();
    if let Some(whole) = whole {
        let number = i64::try_from(whole).map(Number::from);
        let number = number.or_else(|_negative| u64::try_from(whole).map(Number::from));
        return number.map(Value::Number).map_err(|_beyond| too_large());
    }
    let sum: f64 = numbers.filter_map(Number::as_f64).sum();
    Number::from_f64(sum)
        .map(Value::Number)
        .ok_or_else(too_large)
}

/// Returns the first of each group of equal entries, in order.
fn unique(list: &[Value]) -> Value {
    let mut seen: HashMap<u64, Vec<&Value>> = HashMap::new();
    let mut firsts = Vec::new();
    for entry in list {
        let alike = seen.entry(sketch(entry)).or_default();
        if !alike.iter().any(|other| equal(other, entry)) {
            alike.push(entry);
            firsts.push(entry.clone());
        }
    }
    Value::Array(firsts)
}

/// Returns a hash that equal values share.
fn sketch(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Null => {}
        Value::Bool(bool) => bool.hash(&mut hasher),
        // A float has two zeros.
        Value::Number(number) => (number.as_f64().unwrap_or_default() + 0.0)
            .to_bits()
            .hash(&mut hasher),
        Value::String(text) => text.hash(&mut hasher),
        Value::Array(list) => list
            .iter()
            .for_each(|entry| sketch(entry).hash(&mut hasher)),
        // The order of entries does not matter.
        Value::Object(map) => map
            .iter()
            .map(|(key, entry)| {
                let mut hasher = DefaultHasher::new();
                (key, sketch(entry)).hash(&mut hasher);
                hasher.finish()
            })
            .fold(0_u64, u64::wrapping_add)
            .hash(&mut hasher),
    }
    (Kind::of(value), hasher.finish()).hash(&mut hasher);
    hasher.finish()
}
