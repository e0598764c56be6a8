//! What a model receives of a result: all of it if it is short, otherwise its outline, and where the whole lies.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::conversation::Digest;
use crate::model::{Failure, Object};

/// Most bytes of a result that are sent whole, if its tool does not say.
const MOST_BYTES: usize = 2400;
/// The same where the context is three quarters full, whatever the tool says.
const CROWDED_BYTES: usize = 1200;
/// Most bytes that a tool may ask for.
const MOST_ASKED: usize = 8 << 10;
/// Most characters of a text in an outline; of the texts that matter most, more.
const MOST_CHARS: usize = 200;
const MOST_OUTPUT_CHARS: usize = 500;
/// Texts that matter most.
const OUTPUTS: [&str; 2] = ["content", "stdout"];
/// Elements of a list in an outline, of objects and of plain values.
const FIRST_OBJECTS: usize = 3;
const FIRST_VALUES: usize = 20;
/// Levels of an outline.
const MOST_DEPTH: usize = 3;
/// Keys by which the executor describes itself.
const ENVELOPE: [&str; 5] = ["chain", "metadata", "path", "source", "resolved_env_keys"];

/// A result as a model receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The text.
    pub text: String,
    /// The whole, if the text is an outline: it is to be kept before the model receives that.
    pub artifact: Option<Artifact>,
}

/// A whole result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name.
    pub name: Digest,
    /// It.
    pub text: String,
}

/// Most bytes of a result that are sent whole in a turn to which `input` tokens were sent, of the `room` that there is; `asked` is what its
/// tool asks for.
pub(super) fn most_bytes(input: u64, room: u64, asked: Option<u32>) -> usize {
    let asked = asked.map(|asked| usize::try_from(asked).unwrap_or(usize::MAX));
    let most = asked.map_or(MOST_BYTES, |asked| asked.min(MOST_ASKED));
    let is_crowded = input.saturating_mul(4) > room.saturating_mul(3);
    if is_crowded {
        most.min(CROWDED_BYTES)
    } else {
        most
    }
}

/// What a model receives of a long result that it was shown before.
pub(super) fn once_more(artifact: &Artifact) -> String {
    let told = json!({
        "_artifact": artifact.name,
        "_bytes": artifact.text.len(),
        "_same": "this is the very result that was told under this name before",
    });
    told.to_string()
}

/// What a model receives of `result`, and of `failure`, of which up to `most` bytes are sent whole.
pub fn shown(result: &Value, failure: Option<&Failure>, most: usize) -> Shown {
    let whole = match failure {
        Some(failure) => failed(result, failure),
        None => stripped(result),
    };
    let text = match whole.as_str() {
        Some(text) => text.to_owned(),
        None => whole.to_string(),
    };
    if text.len() <= most {
        return Shown {
            text,
            artifact: None,
        };
    }
    let name = Digest::of(&text);
    let mut outline = match outline(&whole, MOST_DEPTH, MOST_OUTPUT_CHARS) {
        Value::Object(outline) => outline,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Map::from_iter([("content".to_owned(), other)]),
    };
    outline.insert("_artifact".to_owned(), json!(name));
    outline.insert("_bytes".to_owned(), json!(text.len()));
    Shown {
        text: Value::Object(outline).to_string(),
        artifact: Some(Artifact { name, text }),
    }
}

/// A result without what the executor says of itself.
fn stripped(result: &Value) -> Value {
    let Value::Object(object) = result else {
        return result.clone();
    };
    let is_own = |key: &String| !ENVELOPE.contains(&key.as_str());
    let own = object.iter().filter(|(key, _)| is_own(key));
    Value::Object(
        own.map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

fn failed(result: &Value, failure: &Failure) -> Value {
    let mut whole = match stripped(result) {
        Value::Object(object) => object,
        Value::Null => Object::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Object::from_iter([("result".to_owned(), other)])
        }
    };
    // The failure says it better.
    whole.remove("status");
    whole.insert(
        "error".to_owned(),
        json!({"code": failure.code, "message": failure.message}),
    );
    Value::Object(whole)
}

/// The outline of `value`, over so many levels, with texts of so many characters.
fn outline(value: &Value, depth: usize, chars: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(cut(text, chars)),
        Value::Array(list) if depth == 0 => json!(format!("{} elements", list.len())),
        Value::Object(object) if depth == 0 => json!(format!("{} keys", object.len())),
        Value::Array(list) => {
            let is_plain = |value: &Value| !value.is_array() && !value.is_object();
            let most = if list.iter().all(is_plain) {
                FIRST_VALUES
            } else {
                FIRST_OBJECTS
            };
            let first = list
                .iter()
                .take(most)
                .map(|value| outline(value, depth - 1, MOST_CHARS));
            let first: Vec<Value> = first.collect();
            if list.len() <= most {
                return Value::Array(first);
            }
            json!({"_count": list.len(), "_first": first})
        }
        Value::Object(object) => {
            let part = |(key, value): (&String, &Value)| {
                let is_output = OUTPUTS.contains(&key.as_str());
                let chars = if is_output {
                    MOST_OUTPUT_CHARS
                } else {
                    MOST_CHARS
                };
                (key.clone(), outline(value, depth - 1, chars))
            };
            Value::Object(object.iter().take(FIRST_VALUES).map(part).collect())
        }
    }
}

/// The head and the tail of a text.
fn cut(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    if count <= chars {
        return text.to_owned();
    }
    let (head, tail) = (chars * 2 / 3, chars / 3);
    let mut short: String = text.chars().take(head).collect();
    write!(short, " … {} characters … ", count - head - tail)
        .expect("writing to a String cannot fail");
    short.extend(text.chars().skip(count - tail));
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_told_whole_where_the_context_is_crowded_and_as_much_as_a_tool_asks_for_else() {
        // Tokens sent, room, what the tool asks for; how many bytes are sent whole.
        let table = [
            (0, 100, None, 2400),
            (75, 100, None, 2400),
            (76, 100, None, 1200),
            (0, 100, Some(8192), 8192),
            (0, 100, Some(u32::MAX), 8192),
            (0, 100, Some(100), 100),
            (76, 100, Some(8192), 1200),
            (76, 100, Some(100), 100),
            (1, 0, None, 1200),
        ];
        for (input, room, asked, most) in table {
            assert_eq!(most_bytes(input, room, asked), most, "{input} {asked:?}");
        }
        let text = "x".repeat(1300);
        let shown = |most| shown(&json!(text), None, most);
        assert_eq!(shown(2400).artifact, None);
        assert_eq!(shown(1200).artifact.unwrap().text, text);
    }
}
