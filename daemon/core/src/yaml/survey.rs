//! The first pass over a text: places, bounds, and what the values alone no longer tell.

use std::collections::{BTreeMap, HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use super::{Fault, Position};

/// Deepest nesting, below the recursion limit of `serde_yaml` (128).
pub(super) const MAX_DEPTH: usize = 100;
/// Most keys and values, aliases expanded.
pub(super) const MAX_NODES: usize = 100_000;
/// Most bytes of text, aliases expanded.
pub(super) const MAX_BYTES: usize = 16 << 20;

impl From<Marker> for Position {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

/// Where a key and its value stand, and those below it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) key: Position,
    pub(super) value: Position,
    /// What the core schema reads here where `serde_yaml` reads text: an integer with leading zeros.
    pub(super) integer: Option<i64>,
    pub(super) children: BTreeMap<String, Place>,
}

#[derive(Clone, Copy)]
pub(super) enum Found {
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

    /// The place of a value that stands in no text.
    pub(super) fn nowhere() -> Self {
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
pub(super) struct Survey {
    pub(super) root: Place,
    pub(super) warnings: Vec<Fault>,
    /// Whether some place has an integer to put in.
    pub(super) rereads: bool,
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
    pub(super) fn of(text: &str) -> Result<Self, Fault> {
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
            Plain::Number => {
                let message = format!("`{text}` is a number; YAML 1.1 reads a text");
                self.warnings.push(Fault::new(at, message));
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
                    format!("`{text}` is {integer}; YAML 1.1 reads leading zeros as octal"),
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
    /// A number for us, text in YAML 1.1: `0o17`, `1e3`.
    Number,
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
                    Ok(_) if radix == 8 => Self::Number,
                    Ok(_) => Self::Clear,
                    Err(_) => Self::TooLarge,
                };
            }
        }
        if let Some((digits_before, exponent)) = unsigned.split_once(['e', 'E'])
            && digits(digits_before)
            && digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
        {
            return Self::Number;
        }
        if is_date(text) {
            return Self::Text("a date");
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

/// `2026-01-31`, alone or before a time.
fn is_date(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let digits = |part: &str, most| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    matches!(parts.as_slice(), [year, month, day]
        if year.len() == 4 && digits(year, 4) && digits(month, 2) && digits(day, 2))
}
