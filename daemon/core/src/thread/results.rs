//! The form in which a model receives a result: whole if it is short, otherwise head and tail of a text or an outline
//! of JSON, and the name of the whole.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::result_text::ResultParts;
use crate::conversation::Digest;
use crate::machine::{ResultText, TextForm};
use crate::model::{Failure, Object};

/// Limit of the bytes of a result that are sent whole, if its tool sets none: for JSON, and for a text, whose head and
/// tail are more useful than an outline.
const DATA_BYTES: usize = 2400;
const TEXT_BYTES: usize = 16 << 10;
/// The limit for a fetched item, which has 48 KiB of text below a line that names it.
const ITEM_BYTES: usize = 49 << 10;
/// The limit if the context is three quarters full, whatever the tool sets.
const CROWDED_BYTES: usize = 1200;
/// Largest limit that a tool may set.
const MOST_REQUESTED: usize = 64 << 10;
/// Bytes of a token, and the divisor of the free context that one result may take.
const TOKEN_BYTES: u64 = 4;
const FREE_SHARE: u64 = 4;
/// Limit of the characters of a text in an outline; it is higher for the most important texts.
const MOST_CHARS: usize = 200;
const MOST_OUTPUT_CHARS: usize = 500;
/// Names of the most important texts.
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
    pub text: String,
    /// The whole, if the text is a part or an outline of it. It must be stored before the model receives the text.
    pub artifact: Option<Artifact>,
}

/// A whole result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub name: Digest,
    pub text: String,
}

/// The fill level of the context.
#[derive(Debug, Clone, Copy)]
pub(super) struct Free {
    /// Tokens that were sent to the turn.
    pub(super) sent: u64,
    /// Tokens that may be sent.
    pub(super) room: u64,
}

impl Free {
    /// Returns the limit of the bytes of a result that are sent whole, given the limit of its tool.
    fn most_bytes(self, asked: usize) -> usize {
        if self.sent.saturating_mul(4) > self.room.saturating_mul(3) {
            return asked.min(CROWDED_BYTES);
        }
        let free = self.room.saturating_sub(self.sent);
        let share = free.saturating_mul(TOKEN_BYTES) / FREE_SHARE;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        asked.min(share.max(CROWDED_BYTES))
    }
}

/// Returns the answer for a long result that the model received before.
pub(super) fn once_more(artifact: &Artifact) -> String {
    let told = json!({
        "_artifact": artifact.name,
        "_bytes": artifact.text.len(),
        "_same": "this result was given under this name before",
    });
    told.to_string()
}

/// Returns the form of `result`, and of `failure`, for a context with that fill level.
pub(super) fn shown(
    result: &Value,
    failure: Option<&Failure>,
    as_text: ResultText,
    free: Free,
) -> Shown {
    let limit = as_text
        .limit
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let most = |usual: usize| free.most_bytes(limit.unwrap_or(usual).min(MOST_REQUESTED));
    if let Some(parts) = ResultParts::of(as_text.form, result, failure) {
        let most = most(if as_text.form == TextForm::Items {
            ITEM_BYTES
        } else {
            TEXT_BYTES
        });
        return sent(parts.whole(), most, |_, name| parts.shortened(most, name));
    }
    let whole = match failure {
        Some(failure) => failed(result, failure),
        None => stripped(result),
    };
    sent(whole.to_string(), most(DATA_BYTES), |text, name| {
        outlined(&whole, text, name)
    })
}

/// Returns the text itself if it has at most `most` bytes, else its name and the output of `shorten`.
fn sent(text: String, most: usize, shorten: impl FnOnce(&str, &Digest) -> String) -> Shown {
    if text.len() <= most {
        return Shown {
            text,
            artifact: None,
        };
    }
    let name = Digest::of(&text);
    Shown {
        text: shorten(&text, &name),
        artifact: Some(Artifact { name, text }),
    }
}

/// Returns the outline of a result whose JSON is `text`.
fn outlined(whole: &Value, text: &str, name: &Digest) -> String {
    let mut outline = match outline(whole, MOST_DEPTH, MOST_OUTPUT_CHARS) {
        Value::Object(outline) => outline,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Map::from_iter([("content".to_owned(), other)]),
    };
    outline.insert("_artifact".to_owned(), json!(name));
    outline.insert("_bytes".to_owned(), json!(text.len()));
    Value::Object(outline).to_string()
}

/// Returns a result without the executor's description of itself.
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
    // The failure contains it in more detail.
    whole.remove("status");
    whole.insert(
        "error".to_owned(),
        json!({"code": failure.code, "message": failure.message}),
    );
    Value::Object(whole)
}

/// Returns the outline of `value`, with that many levels, and texts of that many characters.
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

/// Returns the head and the tail of a text.
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
    fn result_size_is_requested_and_bounded_by_context() {
        // Tokens sent, room, limit of the tool; bytes that are sent whole.
        let table = [
            (0, 100_000, 2400, 2400),
            (75_000, 100_000, 2400, 2400),
            (75_001, 100_000, 2400, 1200),
            (0, 100_000, 65_536, 65_536),
            (75_001, 100_000, 65_536, 1200),
            (75_001, 100_000, 100, 100),
            // A quarter of the free context, if it is small.
            (8_000, 20_000, 65_536, 12_000),
            (0, 100, 65_536, 1200),
            (1, 0, 2400, 1200),
            (0, u64::MAX, 65_536, 65_536),
        ];
        for (sent, room, asked, most) in table {
            let free = Free { sent, room };
            assert_eq!(free.most_bytes(asked), most, "{free:?} {asked}");
        }
    }

    #[test]
    fn result_size_defaults_to_16_kib_and_at_most_64() {
        let roomy = Free {
            sent: 0,
            room: 1_000_000,
        };
        let is_whole = |result: &Value, limit| {
            let as_text = ResultText {
                limit,
                ..ResultText::default()
            };
            shown(result, None, as_text, roomy).artifact.is_none()
        };
        let text = |bytes: usize| json!("x".repeat(bytes));
        assert!(is_whole(&text(16 << 10), None) && !is_whole(&text((16 << 10) + 1), None));
        assert!(is_whole(&text(64 << 10), Some(u32::MAX)));
        assert!(!is_whole(&text((64 << 10) + 1), Some(u32::MAX)));
        assert!(is_whole(&text(10), Some(10)) && !is_whole(&text(11), Some(10)));
        // `["…"]` has four bytes more.
        let data = |bytes: usize| json!(["x".repeat(bytes - 4)]);
        assert!(is_whole(&data(2400), None) && !is_whole(&data(2401), None));
    }
}
