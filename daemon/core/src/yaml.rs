//! YAML text as JSON values, and where each of them stands in the text.
//!
//! **Owns** the reading of YAML: the 1.2 core schema, merges (`<<`), and the place of every key and value. The only
//! module that names a YAML library: `serde_yaml` reads the values, `saphyr-parser` the places.
//! **Never** accepts what JSON cannot say: keys that are not text, `.nan`, `.inf`, integers beyond 64 bits, custom
//! tags. One text is one document; a key stands once.
//!
//! **Order.** The places are read first, event by event and without recursion. That pass bounds depth, number of
//! values and what aliases expand to, so that the second pass (which recurses and expands) cannot be driven out of
//! stack or memory by a hostile text.
//! **Failure.** The first fault ends the reading and names its line and column.

mod survey;

use serde_json::{Map, Number, Value};
use serde_yaml::Value as Yaml;

use crate::error::{ErrorKind, Kinded};

use survey::{Found, MAX_BYTES, Place, Survey};

/// A place in a text, both counted from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// Something wrong, or doubtful, at one place of a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct Fault {
    /// What is wrong, for people.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl Fault {
    fn new(at: Position, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: at.line,
            column: at.column,
        }
    }
}

impl Kinded for Fault {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// A YAML document.
#[derive(Debug, Clone)]
pub struct Document {
    /// What it says. An empty text says null.
    pub value: Value,
    /// Values that YAML 1.1 reads differently (`no`, `on`, `017`, `1:30`).
    pub warnings: Vec<Fault>,
    root: Place,
}

impl Document {
    /// A value that was not read from a text of its own: all of it stands at the start.
    pub fn without_places(value: Value) -> Self {
        Self {
            value,
            warnings: Vec::new(),
            root: Place::nowhere(),
        }
    }

    /// Where the value at the JSON pointer stands; its nearest known ancestor if it came in by an alias or a merge,
    /// or is not there.
    pub fn position(&self, pointer: &str) -> Position {
        self.root.find(pointer).1.value
    }

    /// Where the key (or the list entry) that leads to the value at the JSON pointer stands; falls back likewise.
    pub fn key_position(&self, pointer: &str) -> Position {
        match self.root.find(pointer) {
            (Found::Exactly, place) => place.key,
            (Found::Ancestor, place) => place.value,
        }
    }
}

/// Reads one document.
pub fn parse(text: &str) -> Result<Document, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        return Err(Fault::new(
            Position::START,
            format!("the text is longer than {MAX_BYTES} bytes"),
        ));
    }
    let survey = Survey::of(text)?;
    let mut raw: Yaml = serde_yaml::from_str(text).map_err(|error| translate(&error))?;
    if survey.rereads {
        reread(&survey.root, &mut raw);
    }
    let value = to_json(raw, &survey.root, &mut String::new())?;
    Ok(Document {
        value,
        warnings: survey.warnings,
        root: survey.root,
    })
}

/// Appends `segment` to a JSON pointer.
pub fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

fn translate(error: &serde_yaml::Error) -> Fault {
    let at = error
        .location()
        .map_or(Position::START, |location| Position {
            line: location.line().max(1),
            column: location.column().max(1),
        });
    let text = error.to_string();
    Fault::new(at, text.split(" at line ").next().unwrap_or(&text))
}

/// Puts the integers with leading zeros in place.
fn reread(place: &Place, value: &mut Yaml) {
    if let Some(integer) = place.integer {
        *value = Yaml::from(integer);
        return;
    }
    for (key, child) in &place.children {
        let below = match value {
            Yaml::Mapping(map) => map.get_mut(key.as_str()),
            Yaml::Sequence(list) => key.parse().ok().and_then(|at: usize| list.get_mut(at)),
            Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::String(_) | Yaml::Tagged(_) => {
                None
            }
        };
        if let Some(below) = below {
            reread(child, below);
        }
    }
}

/// Recursion is bounded: `serde_yaml` refuses values deeper than 128.
fn to_json(value: Yaml, root: &Place, pointer: &mut String) -> Result<Value, Fault> {
    let fault = |pointer: &str, message: String| Fault::new(root.find(pointer).1.value, message);
    match value {
        Yaml::Null => Ok(Value::Null),
        Yaml::Bool(bool) => Ok(Value::Bool(bool)),
        Yaml::String(text) => Ok(Value::String(text)),
        Yaml::Number(number) => number
            .as_u64()
            .map(Number::from)
            .or_else(|| number.as_i64().map(Number::from))
            .or_else(|| number.as_f64().and_then(Number::from_f64))
            .map(Value::Number)
            .ok_or_else(|| fault(pointer, format!("`{number}` is not a finite number"))),
        Yaml::Sequence(list) => {
            let mut values = Vec::with_capacity(list.len());
            for (at, entry) in list.into_iter().enumerate() {
                let length = pointer.len();
                push_segment(pointer, &at.to_string());
                values.push(to_json(entry, root, pointer)?);
                pointer.truncate(length);
            }
            Ok(Value::Array(values))
        }
        Yaml::Mapping(map) => map_to_json(map, root, pointer).map(Value::Object),
        Yaml::Tagged(tagged) => Err(fault(
            pointer,
            format!("the tag `{}` is not supported", tagged.tag),
        )),
    }
}

/// A map with its merges (`<<`) applied: its own keys win, then the first source that has a key.
fn map_to_json(
    map: serde_yaml::Mapping,
    root: &Place,
    pointer: &mut String,
) -> Result<Map<String, Value>, Fault> {
    let mut values = Map::with_capacity(map.len());
    let mut sources = Vec::new();
    let length = pointer.len();
    for (key, entry) in map {
        let key = text_key(key).map_err(|key| {
            push_segment(pointer, &key);
            let message = format!("the key `{key}` is not text; write it in quotes");
            Fault::new(root.find(pointer).1.value, message)
        })?;
        push_segment(pointer, &key);
        let entry = to_json(entry, root, pointer)?;
        if key == "<<" {
            sources = merge_sources(entry).ok_or_else(|| {
                let message = "`<<` takes a map or a list of maps";
                Fault::new(root.find(pointer).1.value, message)
            })?;
        } else {
            values.insert(key, entry);
        }
        pointer.truncate(length);
    }
    for (key, entry) in sources.into_iter().flatten() {
        values.entry(key).or_insert(entry);
    }
    Ok(values)
}

/// The maps a merge takes keys from; `None` if the value is nothing to merge.
fn merge_sources(value: Value) -> Option<Vec<Map<String, Value>>> {
    let map = |value| match value {
        Value::Object(map) => Some(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    };
    match value {
        Value::Array(list) => list.into_iter().map(map).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            map(value).map(|map| vec![map])
        }
    }
}

/// The text of a key, or how a key that is not text was probably written.
fn text_key(key: Yaml) -> Result<String, String> {
    match key {
        Yaml::String(text) => Ok(text),
        Yaml::Null => Err("null".to_owned()),
        Yaml::Bool(bool) => Err(bool.to_string()),
        Yaml::Number(number) => Err(number.to_string()),
        Yaml::Sequence(_) | Yaml::Mapping(_) | Yaml::Tagged(_) => Err("…".to_owned()),
    }
}

#[cfg(test)]
mod tests;
