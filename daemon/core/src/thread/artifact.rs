//! Reads of long results: the requested part, and the text that the model receives.

use serde_json::{Value, json};

use crate::conversation::{Digest, Tool};
use crate::error::excerpt;
use crate::model::Object;

/// The name of the tool.
pub(super) const READ: &str = "read_artifact";
/// Limit of the characters of a part.
const MOST_CHARS: u64 = 8000;
/// The parameters of the tool.
const KEYS: [&str; 3] = ["artifact", "offset", "limit"];

/// A part of a long result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRange {
    pub artifact: Digest,
    /// The first character, from 0.
    pub offset: u64,
    /// Limit of the characters.
    pub limit: u64,
}

impl ArtifactRange {
    /// Reads the arguments of a call.
    pub(super) fn of(input: &Object) -> Result<Self, String> {
        if let Some(other) = input.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let (known, other) = (KEYS.join(", "), excerpt(other));
            return Err(format!("`{READ}` takes {known}, and no `{other}`"));
        }
        let name = input.get("artifact").and_then(Value::as_str);
        let name = name.and_then(|name| name.parse().ok());
        let limit = number(input, "limit", MOST_CHARS)?;
        if !(1..=MOST_CHARS).contains(&limit) {
            return Err(format!("`limit` is a number from 1 to {MOST_CHARS}"));
        }
        Ok(Self {
            artifact: name.ok_or("`artifact` must be the name of a long result, as the note in it or `_artifact` says it")?,
            offset: number(input, "offset", 0)?,
            limit,
        })
    }

    /// Returns the part of `text` for the model, with its position and the start of the next part.
    pub fn part_of(&self, text: &str) -> String {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let characters = text.chars().count();
        let rest = text.chars().skip(place(self.offset));
        let mut part: String = rest.take(place(self.limit)).collect();
        let end = place(self.offset).saturating_add(part.chars().count());
        if !part.is_empty() && !part.ends_with('\n') {
            part.push('\n');
        }
        let note = if end < characters {
            format!(
                "[characters {} to {end} of {characters}: read on with offset {end}]\n",
                self.offset
            )
        } else {
            format!(
                "[characters {} to the end, which is at {characters}]\n",
                self.offset
            )
        };
        part + &note
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

/// Makes the tool as it is offered.
pub(super) fn tool() -> Tool {
    Tool {
        name: READ.to_owned(),
        description: "Reads a part of a long result, of which only head and tail or an outline was sent. Offsets and limits count characters."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "artifact": {"type": "string", "description": "The name of the result, as the note in it or `_artifact` says it."},
                "offset": {"type": "integer", "minimum": 0, "description": "The first character; 0 by default."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_CHARS, "description": "Most characters; as many as can be by default."},
            },
            "required": ["artifact"],
            "additionalProperties": false,
        }),
    }
}
