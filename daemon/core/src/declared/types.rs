//! JSON Schemas of values, for tables of keys. Where a reader takes null for absent, so does the schema.

use serde_json::{Value, json};

/// Any value.
pub fn any() -> Value {
    json!({})
}

/// A text; null is refused.
pub fn text() -> Value {
    json!({"type": "string"})
}

/// A text, or null.
pub fn optional_text() -> Value {
    optional("string")
}

/// A list of texts; null is refused.
pub fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

/// A text, a list of texts, or null.
pub fn names() -> Value {
    json!({"type": ["string", "array", "null"], "items": {"type": "string"}})
}

/// True, false, or null.
pub fn switch() -> Value {
    optional("boolean")
}

/// A map with any keys, or null.
pub fn object() -> Value {
    optional("object")
}

/// A list of anything, or null.
pub fn list() -> Value {
    optional("array")
}

/// A number of seconds, a text such as `1h30m`, or null.
pub fn time() -> Value {
    json!({"type": ["number", "string", "null"]})
}

/// A whole number that is not below `least`, or null.
pub fn whole(least: u32) -> Value {
    json!({"type": ["integer", "null"], "minimum": least})
}

/// One of `words`, or null.
pub fn word<'w>(words: impl IntoIterator<Item = &'w str>) -> Value {
    let words = words.into_iter().map(Value::from).chain([Value::Null]);
    json!({"enum": words.collect::<Vec<_>>()})
}

/// A map of the kind that `$defs` has under `name`.
pub fn defined(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// A map of the kind that `$defs` has under `name`, or null.
pub fn optional_defined(name: &str) -> Value {
    json!({"anyOf": [defined(name), {"type": "null"}]})
}

/// A value of a JSON type, or null.
fn optional(kind: &str) -> Value {
    json!({"type": [kind, "null"]})
}
