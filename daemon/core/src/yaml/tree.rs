//! From the events of a text to its value, with the position of each key and value.

use std::collections::{BTreeMap, HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::scalar::{Plain, tagged, unfit_key};
use super::text::{Position, YamlFault};

/// Limit of the nesting, aliases expanded.
pub(super) const MAX_DEPTH: usize = 100;
/// Limit of the keys and values, aliases expanded.
pub(super) const MAX_NODES: usize = 100_000;
/// Limit of the bytes of text, aliases expanded.
pub(super) const MAX_BYTES: usize = 16 << 20;

type Object = Map<String, Value>;

impl From<Marker> for Position {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

/// Positions of a key, its value, and those below it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) key: Position,
    pub(super) value: Position,
    children: BTreeMap<String, Place>,
}

#[derive(Clone, Copy)]
pub(super) enum Found {
    Exactly,
    Ancestor,
}

impl Place {
    const fn new(key: Position, value: Position) -> Self {
        Self {
            key,
            value,
            children: BTreeMap::new(),
        }
    }

    /// Returns the position of a value that is in no text.
    pub(super) const fn nowhere() -> Self {
        Self::new(Position::START, Position::START)
    }

    pub(super) fn find(&self, pointer: &str) -> (Found, &Self) {
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

/// The size of a value, aliases expanded.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl Weight {
    const COLLECTION: Self = Self {
        nodes: 1,
        bytes: 0,
        depth: 1,
    };

    const fn scalar(bytes: usize) -> Self {
        Self {
            nodes: 1,
            bytes,
            depth: 0,
        }
    }

    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Adds an entry of the collection whose weight this is.
    fn hold(&mut self, entry: Self) {
        self.add(entry);
        self.depth = self.depth.max(entry.depth + 1);
    }

    const fn is_too_large(self) -> bool {
        self.nodes > MAX_NODES || self.bytes > MAX_BYTES
    }
}

/// A list or map that is not closed yet.
struct Open {
    slot: Slot,
    anchor: usize,
    positions: Place,
    weight: Weight,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Map {
        values: Object,
        /// The maps from which `<<` takes keys.
        merged: Vec<Object>,
        /// The key of the next value.
        key: Option<Slot>,
    },
}

/// The destination of the next value.
struct Slot {
    name: String,
    at: Position,
    /// Description of a key that is not text.
    unfit: Option<String>,
}

/// The document as far as it is read.
pub(super) struct Tree {
    pub(super) root: Place,
    pub(super) value: Value,
    pub(super) warnings: Vec<YamlFault>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Weight, Value)>,
    total: Weight,
    /// The total size of the values that anchors hold, which are stored a second time.
    kept: Weight,
    documents: usize,
    /// The end of the text, in characters, if it has no line break.
    open_end: Option<usize>,
}

impl Tree {
    pub(super) fn of(text: &str) -> Result<Self, YamlFault> {
        let mut tree = Self {
            root: Place::nowhere(),
            value: Value::Null,
            warnings: Vec::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            total: Weight::default(),
            kept: Weight::default(),
            documents: 0,
            open_end: (!text.ends_with(['\n', '\r'])).then(|| text.chars().count()),
        };
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event
                .map_err(|error| YamlFault::new(Position::from(*error.marker()), error.info()))?;
            tree.take(&event, span)?;
        }
        Ok(tree)
    }

    fn take(&mut self, event: &Event<'_>, span: Span) -> Result<(), YamlFault> {
        let at = Position::from(span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(YamlFault::new(at, "a second document; one file holds one"));
                }
                Ok(())
            }
            Event::Alias(anchor) => self.alias(*anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let is_last = self.open_end.is_some_and(|end| span.end.index() >= end);
                // The parser ends the last line of a text with a line break that does not exist.
                let text = match text.strip_suffix('\n') {
                    Some(text) if is_block && is_last => text,
                    Some(_) | None => text,
                };
                self.scalar(text, *style, tag.as_deref(), *anchor, at)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                self.enter(Content::List(Vec::new()), *anchor, at)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), at)?;
                let map = Content::Map {
                    values: Object::new(),
                    merged: Vec::new(),
                    key: None,
                };
                self.enter(map, *anchor, at)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
        }
    }

    /// Counts a value that begins at `at`.
    fn charge(&mut self, weight: Weight, at: Position) -> Result<(), YamlFault> {
        self.total.add(weight);
        if self.total.is_too_large() {
            return Err(too_large(at));
        }
        if self.open.len() + weight.depth > MAX_DEPTH {
            let message = format!("nested more than {MAX_DEPTH} levels deep");
            return Err(YamlFault::new(at, message));
        }
        Ok(())
    }

    /// Stores the value of an anchor for its aliases.
    fn keep(
        &mut self,
        anchor: usize,
        weight: Weight,
        value: &Value,
        at: Position,
    ) -> Result<(), YamlFault> {
        if anchor == 0 {
            return Ok(());
        }
        self.kept.add(weight);
        if self.kept.is_too_large() {
            return Err(too_large(at));
        }
        self.anchors.insert(anchor, (weight, value.clone()));
        Ok(())
    }

    /// Takes the slot of the next value; a map that waits for a key has none.
    fn slot(&mut self, at: Position) -> Result<Slot, YamlFault> {
        let plain = |name: String| Slot {
            name,
            at,
            unfit: None,
        };
        match self.open.last_mut().map(|open| &mut open.content) {
            None => Ok(plain(String::new())),
            Some(Content::List(values)) => Ok(plain(values.len().to_string())),
            Some(Content::Map { key, .. }) => key.take().ok_or_else(|| {
                YamlFault::new(at, "a key must be a text, not a list, a map or an alias")
            }),
        }
    }

    fn attach(
        &mut self,
        slot: Slot,
        place: Place,
        weight: Weight,
        value: Value,
    ) -> Result<(), YamlFault> {
        let Some(open) = self.open.last_mut() else {
            (self.root, self.value) = (place, value);
            return Ok(());
        };
        open.weight.hold(weight);
        match &mut open.content {
            Content::List(values) => values.push(value),
            Content::Map { merged, .. } if slot.name == "<<" => {
                *merged = merge_sources(value).ok_or_else(|| {
                    YamlFault::new(place.value, "`<<` takes a map or a list of maps")
                })?;
            }
            Content::Map { values, .. } => drop(values.insert(slot.name.clone(), value)),
        }
        open.positions.children.insert(slot.name, place);
        Ok(())
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        anchor: usize,
        at: Position,
    ) -> Result<(), YamlFault> {
        let weight = Weight::scalar(text.len());
        self.charge(weight, at)?;
        if self.waits_for_key() {
            let value = match tag {
                Some(tag) => read_tagged(tag, text, at)?,
                None => Value::from(text),
            };
            self.keep(anchor, weight, &value, at)?;
            let unfit = match (&value, tag) {
                (Value::String(_), Some(_)) => None,
                (Value::String(_), None) if style != ScalarStyle::Plain => None,
                (Value::String(text), None) => unfit_key(text),
                (value, _) => Some(value.to_string()),
            };
            return self.key(text, unfit, weight, at);
        }
        let slot = self.slot(at)?;
        let place = Place::new(slot.at, if text.is_empty() { slot.at } else { at });
        check_key(&slot, place.value)?;
        let value = match tag {
            Some(tag) => read_tagged(tag, text, at)?,
            None if style == ScalarStyle::Plain => self.plain(text, anchor, at)?,
            None => Value::from(text),
        };
        self.keep(anchor, weight, &value, at)?;
        self.attach(slot, place, weight, value)
    }

    fn waits_for_key(&self) -> bool {
        let content = self.open.last().map(|open| &open.content);
        matches!(content, Some(Content::Map { key: None, .. }))
    }

    /// Records the key of the next value.
    fn key(
        &mut self,
        text: &str,
        unfit: Option<String>,
        weight: Weight,
        at: Position,
    ) -> Result<(), YamlFault> {
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        open.weight.add(weight);
        if let Some(first) = open.positions.children.get(text) {
            let line = first.key.line;
            let message = format!("the key `{text}` occurs twice; first in line {line}");
            return Err(YamlFault::new(at, message));
        }
        if let Content::Map { key, .. } = &mut open.content {
            *key = Some(Slot {
                name: text.to_owned(),
                at,
                unfit,
            });
        }
        Ok(())
    }

    /// Reads a plain scalar. Refuses numbers that JSON or 64 bits do not hold, and warns of texts that YAML 1.1 reads
    /// differently.
    fn plain(&mut self, text: &str, anchor: usize, at: Position) -> Result<Value, YamlFault> {
        let (value, warning) = match Plain::of(text) {
            Plain::Clear(value) => return Ok(value),
            Plain::TooLarge => {
                let message =
                    format!("the integer `{text}` does not fit 64 bits; write it in quotes");
                return Err(YamlFault::new(at, message));
            }
            Plain::NotFinite => {
                return Err(YamlFault::new(
                    at,
                    format!("`{text}` is not a finite number; as a text, quote it"),
                ));
            }
            Plain::Text(reading) => {
                let warning = format!("`{text}` is the text \"{text}\"; YAML 1.1 reads {reading}");
                (Value::from(text), warning)
            }
            Plain::Number(value) => {
                let warning = format!("`{text}` is a number; YAML 1.1 reads a text");
                (value, warning)
            }
            Plain::LeadingZeros(integer) => {
                if anchor != 0 || self.open.iter().any(|open| open.anchor != 0) {
                    let message =
                        format!("`{text}` below an anchor; write `{integer}` or \"{text}\"");
                    return Err(YamlFault::new(at, message));
                }
                let warning =
                    format!("`{text}` is {integer}; YAML 1.1 reads leading zeros as octal");
                (Value::from(integer), warning)
            }
        };
        self.warnings.push(YamlFault::new(at, warning));
        Ok(value)
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), YamlFault> {
        let weight = self
            .anchors
            .get(&anchor)
            .map(|(weight, _)| *weight)
            .ok_or_else(|| YamlFault::new(at, "an alias is inside the value it names"))?;
        self.charge(weight, at)?;
        let slot = self.slot(at)?;
        check_key(&slot, at)?;
        let value = self.anchors[&anchor].1.clone();
        let place = Place::new(slot.at, at);
        self.attach(slot, place, weight, value)
    }

    fn enter(&mut self, content: Content, anchor: usize, at: Position) -> Result<(), YamlFault> {
        self.charge(Weight::COLLECTION, at)?;
        let slot = self.slot(at)?;
        check_key(&slot, at)?;
        self.open.push(Open {
            positions: Place::new(slot.at, at),
            slot,
            anchor,
            weight: Weight::COLLECTION,
            content,
        });
        Ok(())
    }

    fn close(&mut self, at: Position) -> Result<(), YamlFault> {
        let Some(closed) = self.open.pop() else {
            return Ok(());
        };
        let value = match closed.content {
            Content::List(values) => Value::Array(values),
            Content::Map {
                mut values, merged, ..
            } => {
                // The map's own keys take precedence, then the first source that has a key.
                for (key, value) in merged.into_iter().flatten() {
                    values.entry(key).or_insert(value);
                }
                Value::Object(values)
            }
        };
        self.keep(closed.anchor, closed.weight, &value, at)?;
        self.attach(closed.slot, closed.positions, closed.weight, value)
    }
}

fn too_large(at: Position) -> YamlFault {
    let message =
        format!("the document expands to more than {MAX_NODES} values or {MAX_BYTES} bytes");
    YamlFault::new(at, message)
}

/// Refuses a key that is not text, at its value.
fn check_key(slot: &Slot, at: Position) -> Result<(), YamlFault> {
    match &slot.unfit {
        None => Ok(()),
        Some(key) => {
            let message = format!("the key `{key}` is not text; write it in quotes");
            Err(YamlFault::new(at, message))
        }
    }
}

/// Returns the maps from which a merge takes keys; `None` if the value cannot be merged.
fn merge_sources(value: Value) -> Option<Vec<Object>> {
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

fn read_tagged(tag: &Tag, text: &str, at: Position) -> Result<Value, YamlFault> {
    tagged(&tag.suffix, text).map_err(|expected| {
        let message = format!("invalid value: string {text:?}, expected {expected}");
        YamlFault::new(at, message)
    })
}

fn check_tag(tag: Option<&Tag>, at: Position) -> Result<(), YamlFault> {
    const KNOWN: [&str; 7] = ["str", "int", "float", "bool", "null", "seq", "map"];
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && KNOWN.contains(&tag.suffix.as_str())) => Err(
            YamlFault::new(at, format!("the tag `{tag}` is not supported")),
        ),
        Some(_) | None => Ok(()),
    }
}
