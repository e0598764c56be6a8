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

use std::collections::{BTreeMap, HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};
use serde_yaml::Value as Yaml;

use crate::error::{ErrorKind, Kinded};

/// Deepest nesting, below the recursion limit of `serde_yaml` (128).
const MAX_DEPTH: usize = 100;
/// Most keys and values, aliases expanded.
const MAX_NODES: usize = 100_000;
/// Most bytes of text, aliases expanded.
const MAX_BYTES: usize = 16 << 20;

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

impl From<Marker> for Position {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
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

/// Where a key and its value stand, and those below it.
#[derive(Debug, Clone)]
struct Place {
    key: Position,
    value: Position,
    /// What the core schema reads here where `serde_yaml` reads text: an integer with leading zeros.
    integer: Option<i64>,
    children: BTreeMap<String, Place>,
}

#[derive(Clone, Copy)]
enum Found {
    Exactly,
    Ancestor,
}

impl Place {
    fn new(key: Position, value: Position) -> Self {
        Self {
            key,
            value,
            integer: None,
            children: BTreeMap::new(),
        }
    }

    fn find(&self, pointer: &str) -> (Found, &Self) {
        let mut place = self;
        for segment in pointer.split('/').skip(1) {
            let key = segment.replace("~1", "/").replace("~0", "~");
            match place.children.get(&key) {
                Some(child) => place = child,
                None => return (Found::Ancestor, place),
            }
        }
        (Found::Exactly, place)
    }
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

/// How much a value expands to.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    nodes: usize,
    bytes: usize,
}

impl Weight {
    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A list or map that is not closed yet.
struct Open {
    place: Place,
    /// The key it will be attached under.
    name: String,
    anchor: usize,
    weight: Weight,
    kind: Kind,
}

enum Kind {
    List { length: usize },
    Map { key: Option<(String, Position)> },
}

/// The first pass: places, bounds and what the values alone no longer tell.
struct Survey {
    root: Place,
    warnings: Vec<Fault>,
    /// Whether some place has an integer to put in.
    rereads: bool,
    open: Vec<Open>,
    anchors: HashMap<usize, Weight>,
    total: Weight,
    documents: usize,
}

/// Where the next value goes.
struct Slot {
    name: String,
    key: Position,
}

impl Survey {
    fn of(text: &str) -> Result<Self, Fault> {
        let mut survey = Self {
            root: Place::new(Position::START, Position::START),
            warnings: Vec::new(),
            rereads: false,
            open: Vec::new(),
            anchors: HashMap::new(),
            total: Weight::default(),
            documents: 0,
        };
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) =
                event.map_err(|error| Fault::new(Position::from(*error.marker()), error.info()))?;
            survey.take(&event, span)?;
        }
        Ok(survey)
    }

    fn take(&mut self, event: &Event<'_>, span: Span) -> Result<(), Fault> {
        let at = Position::from(span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Fault::new(at, "a second document; one file holds one"));
                }
                Ok(())
            }
            Event::Alias(anchor) => self.alias(*anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                let plain = *style == ScalarStyle::Plain && tag.is_none();
                self.scalar(text, plain, *anchor, at)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                self.enter(Kind::List { length: 0 }, *anchor, at)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                self.enter(Kind::Map { key: None }, *anchor, at)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.leave();
                Ok(())
            }
        }
    }

    /// Charges the weight of one value to the document and to the collection it stands in.
    fn charge(&mut self, weight: Weight, at: Position) -> Result<(), Fault> {
        self.total.add(weight);
        if self.total.nodes > MAX_NODES || self.total.bytes > MAX_BYTES {
            return Err(Fault::new(
                at,
                format!(
                    "the document expands to more than {MAX_NODES} values or {MAX_BYTES} bytes"
                ),
            ));
        }
        if let Some(open) = self.open.last_mut() {
            open.weight.add(weight);
        }
        Ok(())
    }

    /// Takes the place of the next value; a map that waits for a key has none.
    fn slot(&mut self, at: Position) -> Result<Slot, Fault> {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => Ok(Slot {
                name: String::new(),
                key: at,
            }),
            Some(Kind::List { length }) => {
                *length += 1;
                Ok(Slot {
                    name: (*length - 1).to_string(),
                    key: at,
                })
            }
            Some(Kind::Map { key }) => {
                key.take()
                    .map(|(name, key)| Slot { name, key })
                    .ok_or_else(|| {
                        Fault::new(at, "a key must be a text, not a list, a map or an alias")
                    })
            }
        }
    }

    fn attach(&mut self, name: String, place: Place) {
        match self.open.last_mut() {
            Some(open) => {
                open.place.children.insert(name, place);
            }
            None => self.root = place,
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        plain: bool,
        anchor: usize,
        at: Position,
    ) -> Result<(), Fault> {
        let weight = Weight {
            nodes: 1,
            bytes: text.len(),
        };
        self.charge(weight, at)?;
        if anchor != 0 {
            self.anchors.insert(anchor, weight);
        }
        if let Some(Open {
            place,
            kind: Kind::Map { key: key @ None },
            ..
        }) = self.open.last_mut()
        {
            if let Some(first) = place.children.get(text) {
                let line = first.key.line;
                return Err(Fault::new(
                    at,
                    format!("the key `{text}` stands twice; first in line {line}"),
                ));
            }
            *key = Some((text.to_owned(), at));
            return Ok(());
        }
        let slot = self.slot(at)?;
        let mut place = Place::new(slot.key, if text.is_empty() { slot.key } else { at });
        if plain {
            place.integer = self.judge(text, anchor, at)?;
        }
        self.attach(slot.name, place);
        Ok(())
    }

    /// Looks at a plain scalar: refuses integers nobody can hold, warns of words YAML 1.1 reads differently, and
    /// returns an integer that `serde_yaml` would take for text.
    fn judge(&mut self, text: &str, anchor: usize, at: Position) -> Result<Option<i64>, Fault> {
        match Plain::of(text) {
            Plain::Clear => Ok(None),
            Plain::TooLarge => Err(Fault::new(
                at,
                format!("the integer `{text}` does not fit 64 bits; write it in quotes"),
            )),
            Plain::Text(reading) => {
                self.warnings.push(Fault::new(
                    at,
                    format!("`{text}` is the text \"{text}\"; YAML 1.1 reads {reading}"),
                ));
                Ok(None)
            }
            Plain::LeadingZeros(integer) => {
                if anchor != 0 || self.open.iter().any(|open| open.anchor != 0) {
                    return Err(Fault::new(
                        at,
                        format!("`{text}` below an anchor; write `{integer}` or \"{text}\""),
                    ));
                }
                self.warnings.push(Fault::new(
                    at,
                    format!("`{text}` is {integer}; YAML 1.1 reads leading zeros as octal (`0o17` is octal in both senses)"),
                ));
                self.rereads = true;
                Ok(Some(integer))
            }
        }
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Fault> {
        let weight = *self
            .anchors
            .get(&anchor)
            .ok_or_else(|| Fault::new(at, "an alias stands inside the value it names"))?;
        self.charge(weight, at)?;
        let slot = self.slot(at)?;
        self.attach(slot.name, Place::new(slot.key, at));
        Ok(())
    }

    fn enter(&mut self, kind: Kind, anchor: usize, at: Position) -> Result<(), Fault> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Fault::new(
                at,
                format!("nested more than {MAX_DEPTH} levels deep"),
            ));
        }
        self.charge(Weight { nodes: 1, bytes: 0 }, at)?;
        let slot = self.slot(at)?;
        self.open.push(Open {
            place: Place::new(slot.key, at),
            name: slot.name,
            anchor,
            weight: Weight { nodes: 1, bytes: 0 },
            kind,
        });
        Ok(())
    }

    fn leave(&mut self) {
        let Some(closed) = self.open.pop() else {
            return;
        };
        if closed.anchor != 0 {
            self.anchors.insert(closed.anchor, closed.weight);
        }
        if let Some(parent) = self.open.last_mut() {
            // The parent was charged one node when this one was opened.
            parent.weight.add(Weight {
                nodes: closed.weight.nodes - 1,
                bytes: closed.weight.bytes,
            });
        }
        self.attach(closed.name, closed.place);
    }
}

fn check_tag(tag: Option<&Tag>, at: Position) -> Result<(), Fault> {
    const KNOWN: [&str; 7] = ["str", "int", "float", "bool", "null", "seq", "map"];
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && KNOWN.contains(&tag.suffix.as_str())) => {
            Err(Fault::new(at, format!("the tag `{tag}` is not supported")))
        }
        Some(_) | None => Ok(()),
    }
}

/// What a plain scalar is, as far as the versions of YAML and the size of numbers matter.
enum Plain {
    /// Read alike by everyone.
    Clear,
    /// Text for us; the other reading of YAML 1.1.
    Text(&'static str),
    /// A decimal integer for us, octal in YAML 1.1.
    LeadingZeros(i64),
    /// An integer beyond 64 bits.
    TooLarge,
}

impl Plain {
    fn of(text: &str) -> Self {
        match text {
            "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Self::Text("true"),
            "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Self::Text("false"),
            _ => {}
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if digits(unsigned) {
            return match (text.parse::<i64>(), unsigned.parse::<u64>()) {
                (Ok(integer), _) if unsigned.len() > 1 && unsigned.starts_with('0') => {
                    Self::LeadingZeros(integer)
                }
                (Ok(_), _) => Self::Clear,
                (Err(_), Ok(_)) if !text.starts_with('-') && !unsigned.starts_with('0') => {
                    Self::Clear
                }
                (Err(_), Ok(_) | Err(_)) => Self::TooLarge,
            };
        }
        for (prefix, radix) in [("0x", 16), ("0o", 8)] {
            if let Some(rest) = unsigned.strip_prefix(prefix)
                && !rest.is_empty()
                && rest.chars().all(|c| c.is_digit(radix))
            {
                return match u64::from_str_radix(rest, radix) {
                    Ok(_) => Self::Clear,
                    Err(_) => Self::TooLarge,
                };
            }
        }
        if unsigned.contains(':') && unsigned.split(':').all(digits) {
            return Self::Text("a number to the base 60");
        }
        if unsigned.contains('_') && digits(&unsigned.replace('_', "")) {
            return Self::Text("a number");
        }
        Self::Clear
    }
}

#[cfg(test)]
mod tests;
