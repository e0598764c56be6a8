//! Readers of foreign bytes, with the invariants that each must keep for any input.
//!
//! The mutation tests and `tests/fuzz` share them.

use rye_core::definition;
use rye_core::directive;
use rye_core::expr::{self, Condition};
use rye_core::frame::{Frame, SegmentId};
use rye_core::id::{ItemId, ItemKind, ItemRef, Lsn, RunId};
use rye_core::model::Event;
use rye_core::seal::{self, Token};
use rye_schema::Schema;
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(text(bytes)))
}

/// Encodes `payload` as a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = Frame {
        segment: SegmentId(1),
        lsn: Lsn(7),
        durable: Lsn(3),
        payload,
    };
    frame.encode(&mut bytes);
    bytes
}

/// Frames of a log: the first frame is found first, and each one re-encodes to bytes of the input.
pub fn frames(bytes: &[u8]) {
    let _length = Frame::payload_length(bytes);
    let first = Frame::decode(SegmentId(1), bytes);
    let found: Vec<_> = Frame::search(SegmentId(1), bytes).collect();
    assert_eq!(
        first.is_some(),
        found.first() == first.as_ref() && first.is_some()
    );
    for frame in found {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert!(bytes.windows(again.len()).any(|part| part == again));
    }
}

pub fn yaml(bytes: &[u8]) {
    let _document = rye_core::yaml::parse(&text(bytes));
}

/// Graph files: a text that cannot be parsed is not valid.
pub fn graphs(bytes: &[u8]) {
    let text = text(bytes);
    let report = definition::validate(&text);
    if let Ok((graph, _)) = definition::parse(&text) {
        let _drawn = format!("{graph:?}");
    } else {
        assert!(!report.is_sound());
    }
}

pub fn directives(bytes: &[u8]) {
    let id = ItemId::new("t/mutated").expect("it is one");
    let _read = directive::parse(&text(bytes), &id);
}

pub fn templates(bytes: &[u8]) {
    let template = Value::String(text(bytes));
    let is_root = |name: &str| name == "state";
    let _faults = expr::check(&template, &is_root);
    let _read = expr::references(&template, &is_root);
}

pub fn conditions(bytes: &[u8]) {
    if let Ok((condition, _)) = Condition::parse(&value(bytes)) {
        let _shown = (condition.to_string(), condition.paths().len());
    }
}

/// JSON Schemas, and checks against them.
pub fn schemas(bytes: &[u8]) {
    let sample = json!({"a": [1, "x", null], "b": {"c": true}});
    if let Ok(schema) = Schema::new(&value(bytes)) {
        let _problems = schema.problems(&sample, 20);
    }
}

/// Ids of items and runs: each one parses from its own text.
pub fn ids(bytes: &[u8]) {
    let text = text(bytes);
    for kind in [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge] {
        if let Ok(item) = ItemRef::parse(&text, kind) {
            let shown = item.to_string();
            let again = ItemRef::parse(&shown, kind).map(|item| item.to_string());
            assert_eq!(again.ok(), Some(shown));
        }
    }
    if let Ok(run) = RunId::new(text.clone()) {
        assert_eq!(run.as_str(), text);
    }
}

/// Outputs of tools, and payloads of events.
pub fn envelopes(bytes: &[u8]) {
    let text = text(bytes);
    let _document = expr::parse_json(&text);
    for name in Event::names() {
        let _event = Event::read(name, &text);
    }
}

/// Signature lines of items: a text never grows by removing them.
pub fn signatures(bytes: &[u8]) {
    let text = text(bytes);
    let normal = seal::normalise(&text);
    for extension in ["yaml", "py", "md", "sh", "js"] {
        let _claim = seal::inspect(ItemKind::Tool, extension, &normal);
        if let Ok(bare) = seal::strip(ItemKind::Tool, extension, &normal) {
            assert!(bare.len() <= normal.len() + 1);
        }
    }
    for line in text.lines() {
        let _token = Token::parse(line);
    }
}
