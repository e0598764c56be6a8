//! Long results that the model reads again: which part it asks for, and what it receives of it.

use serde_json::{Value, json};

use crate::conversation::{Digest, Tool};
use crate::error::excerpt;
use crate::model::Object;

/// The name of the tool.
pub(super) const READ: &str = "read_artifact";
/// Most characters of a part.
const MOST_CHARS: u64 = 8000;
/// What the tool takes.
const KEYS: [&str; 3] = ["artifact", "offset", "limit"];

/// A part of a long result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The name of the result.
    pub artifact: Digest,
    /// The first character, from 0.
    pub offset: u64,
    /// Most characters.
    pub limit: u64,
}

impl Reading {
    /// What a call with these arguments asks for.
    pub(super) fn of(input: &Object) -> Result<Self, String> {
        if let Some(other) = input.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let (known, other) = (KEYS.join(", "), excerpt(other));
            return Err(format!("`{READ}` takes {known}, and no `{other}`"));
        }
        let name = input.get("artifact").and_then(Value::as_str);
        let name = name.and_then(|name| Digest::try_from(name.to_owned()).ok());
        let limit = number(input, "limit", MOST_CHARS)?;
        if !(1..=MOST_CHARS).contains(&limit) {
            return Err(format!("`limit` is a number from 1 to {MOST_CHARS}"));
        }
        Ok(Self {
            artifact: name.ok_or("`artifact` must be the name that stands under `_artifact`")?,
            offset: number(input, "offset", 0)?,
            limit,
        })
    }

    /// What the model receives of the result `text`: the part, where it lies, and where the next one begins.
    pub fn part_of(&self, text: &str) -> String {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let characters = text.chars().count();
        let rest = text.chars().skip(place(self.offset));
        let content: String = rest.take(place(self.limit)).collect();
        let end = place(self.offset).saturating_add(content.chars().count());
        let mut told = json!({
            "content": content,
            "offset": self.offset,
            "characters": characters,
        });
        if end < characters {
            told["next_offset"] = json!(end);
        }
        told.to_string()
    }
}

fn number(input: &Object, key: &str, default: u64) -> Result<u64, String> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(given) => given
            .as_u64()
            .ok_or_else(|| format!("`{key}` must be a whole number from 0")),
    }
}

/// How the model is offered the tool.
pub(super) fn tool() -> Tool {
    Tool {
        name: READ.to_owned(),
        description: "Reads a part of a long result, of which only an outline was told. Offsets and limits count characters."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "artifact": {"type": "string", "description": "The name that stands under `_artifact` in the outline."},
                "offset": {"type": "integer", "minimum": 0, "description": "The first character; 0 by default."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_CHARS, "description": "Most characters; as many as can be by default."},
            },
            "required": ["artifact"],
            "additionalProperties": false,
        }),
    }
}
