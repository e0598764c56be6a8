//! YAML text as JSON values, and the position of each of them in the text.
//!
//! **Owns** the reading of YAML: the 1.2 core schema, merges (`<<`), and the position of every key and value. The only
//! module that names the YAML library.
//! **Never** accepts values that JSON does not have: keys that are not text, `.nan`, `.inf`, integers beyond 64 bits,
//! custom tags. One text is one document; a key occurs once in its map.
//!
//! **Bounds.** The events of the text become a value without recursion. Depth, number of values and the expansion of
//! aliases are bounded, so that a hostile text can exhaust neither stack nor memory.
//! **Failure.** The first fault ends the reading and names its line and column.

mod scalar;
mod text;

mod tree;

use serde_json::Value;

pub use self::text::{Position, YamlFault};
use self::tree::{Found, MAX_BYTES, Place, Tree};

#[derive(Debug, Clone)]
pub struct Document {
    /// Null for an empty text.
    pub value: Value,
    /// Values that YAML 1.1 reads differently (`no`, `on`, `017`, `1:30`).
    pub warnings: Vec<YamlFault>,
    root: Place,
}

impl Document {
    /// Makes a document from a value without a text: every position is the start.
    pub fn without_positions(value: Value) -> Self {
        Self {
            value,
            warnings: Vec::new(),
            root: Place::nowhere(),
        }
    }

    /// Returns the position of the value at the JSON pointer. For a value from an alias or a merge, or a missing one,
    /// it is that of the nearest known ancestor.
    pub fn position(&self, pointer: &str) -> Position {
        self.root.find(pointer).1.value
    }

    /// Returns the position of the key (or the list entry) of the value at the JSON pointer, with the same fallback.
    pub fn key_position(&self, pointer: &str) -> Position {
        match self.root.find(pointer) {
            (Found::Exactly, place) => place.key,
            (Found::Ancestor, place) => place.value,
        }
    }
}

pub fn parse(text: &str) -> Result<Document, YamlFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        return Err(YamlFault::new(
            Position::START,
            format!("the text is longer than {MAX_BYTES} bytes"),
        ));
    }
    check_characters(text)?;
    let tree = Tree::of(text)?;
    Ok(Document {
        value: tree.value,
        warnings: tree.warnings,
        root: tree.root,
    })
}

/// Refuses characters that YAML does not have, such as control characters.
fn check_characters(text: &str) -> Result<(), YamlFault> {
    let is_known = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    };
    let Some(index) = text.find(|c| !is_known(c)) else {
        return Ok(());
    };
    let before = &text[..index];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let at = Position {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    };
    Err(YamlFault::new(at, "control characters are not allowed"))
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

#[cfg(test)]
mod tests;
