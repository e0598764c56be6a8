//! Conversion of a tool's answer to the form of the protocol.
//!
//! Some servers send other forms, after their tools have already done their work. **Rule.** Nothing of an answer is
//! dropped. A value of another type is accepted with a remark where its meaning is clear. An answer that could mean
//! failure or success counts as neither.

use rye_core::error::beginning;
use rye_core::model::Object;
use serde_json::{Value, json};

use super::message::text_of;

/// Content types of the protocol.
const TYPES: [&str; 5] = ["text", "image", "audio", "resource", "resource_link"];
/// Keys of a result of the protocol.
const KEYS: [&str; 5] = [
    "content",
    "structuredContent",
    "isError",
    "resultType",
    "_meta",
];
/// Maximum length in characters of a value in a remark.
const SHOWN: usize = 60;
/// Maximum number of remarks about one answer.
const MOST_REMARKS: usize = 5;

/// Answer of a tool.
#[derive(Debug, PartialEq)]
pub(super) struct ToolAnswer {
    /// Object with the list `content`, the bool `isError`, and `structuredContent` if there is any.
    pub(super) result: Value,
    /// Deviations from the protocol, as text.
    pub(super) remarks: Vec<String>,
}

/// Reason why an answer cannot be used.
#[derive(Debug, PartialEq)]
pub(super) enum Unusable {
    /// The server did not execute the call.
    Refused(String),
    /// The server executed the call, and its answer is ambiguous.
    Unclear(String),
}

pub(super) fn read(result: Value) -> Result<ToolAnswer, Unusable> {
    let mut remarks = Vec::new();
    if !is_of_the_protocol(&result) {
        remarks.push("its answer has no `content`: it is kept as it came".to_owned());
    }
    let mut result = object_of(result);
    refuse_other_types(&result)?;
    let is_error = is_error(result.get("isError"))?;
    let content = content(result.shift_remove("content"), &mut remarks)?;
    let mut read = Object::from_iter([
        ("content".to_owned(), Value::Array(content)),
        ("isError".to_owned(), Value::Bool(is_error)),
    ]);
    if let Some(structured) = result.shift_remove("structuredContent") {
        read.insert("structuredContent".to_owned(), structured);
    }
    let more = remarks.len().saturating_sub(MOST_REMARKS);
    if more > 0 {
        remarks.truncate(MOST_REMARKS);
        remarks.push(format!("and {more} more of the kind"));
    }
    Ok(ToolAnswer {
        result: Value::Object(read),
        remarks,
    })
}

/// True if `result` has a key of the protocol, or is an empty object.
fn is_of_the_protocol(result: &Value) -> bool {
    let has_key = |object: &Object| KEYS.iter().any(|key| object.contains_key(*key));
    result
        .as_object()
        .is_some_and(|object| object.is_empty() || has_key(object))
}

/// Converts the result to an object of the protocol.
fn object_of(result: Value) -> Object {
    let is_of_the_protocol = is_of_the_protocol(&result);
    let (key, value) = match result {
        Value::Object(object) if is_of_the_protocol => return object,
        Value::Null => ("content", json!([])),
        Value::String(_) => ("content", result),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            ("structuredContent", result)
        }
    };
    Object::from_iter([(key.to_owned(), value)])
}

fn refuse_other_types(result: &Object) -> Result<(), Unusable> {
    let kind = result.get("resultType").unwrap_or(&Value::Null);
    if kind == "input_required" {
        let refused = "it requests input, which is not available";
        return Err(Unusable::Refused(refused.to_owned()));
    }
    if kind.is_null() || kind == "complete" {
        return Ok(());
    }
    Err(Unusable::Unclear(format!(
        "its `resultType` is {}, which is not known",
        short(kind)
    )))
}

fn is_error(value: Option<&Value>) -> Result<bool, Unusable> {
    let value = value.unwrap_or(&Value::Null);
    if *value == true || value == "true" {
        return Ok(true);
    }
    if value.is_null() || *value == false || value == "false" {
        return Ok(false);
    }
    Err(Unusable::Unclear(format!(
        "its `isError` is {}, which is neither true nor false",
        short(value)
    )))
}

/// Blocks of the content; a single block or text counts as a list of one.
fn content(content: Option<Value>, remarks: &mut Vec<String>) -> Result<Vec<Value>, Unusable> {
    let blocks = match content.unwrap_or_default() {
        Value::Null => Vec::new(),
        Value::Array(blocks) => blocks,
        one @ (Value::Object(_) | Value::String(_)) => vec![one],
        other @ (Value::Bool(_) | Value::Number(_)) => {
            return Err(Unusable::Unclear(format!(
                "its `content` is {other}, which is no list"
            )));
        }
    };
    let blocks = blocks.into_iter().enumerate();
    Ok(blocks
        .map(|(at, value)| block(at, value, remarks))
        .collect())
}

/// Converts one block; a value that is not an object becomes its text.
fn block(at: usize, value: Value, remarks: &mut Vec<String>) -> Value {
    let Value::Object(mut block) = value else {
        remarks.push(format!(
            "`content[{at}]` is no object: it is taken as a text"
        ));
        return json!({"type": "text", "text": text_of(&value)});
    };
    let kind = block.get("type").and_then(Value::as_str);
    if !kind.is_some_and(|kind| TYPES.contains(&kind)) {
        let kind = block.get("type").map_or_else(|| "null".to_owned(), short);
        remarks.push(format!(
            "`content[{at}]` is of the type {kind}, which is not known: it is kept as it came"
        ));
    }
    if let Some(text) = block.get_mut("text")
        && !text.is_string()
    {
        remarks.push(format!(
            "`content[{at}].text` is no text: it is taken as its JSON"
        ));
        let taken = if text.is_null() {
            String::new()
        } else {
            text_of(text)
        };
        *text = taken.into();
    }
    Value::Object(block)
}

/// Beginning of a value, for a message.
fn short(value: &Value) -> String {
    beginning(&value.to_string(), SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn conforming_answer_is_accepted_without_note() {
        for (sent, expected) in [
            (json!({}), json!({"content": [], "isError": false})),
            (
                json!({"content": [text("a"), {"type": "image", "data": "QUJD", "mimeType": "image/png"}], "_meta": {"x": 1}}),
                json!({"content": [text("a"), {"type": "image", "data": "QUJD", "mimeType": "image/png"}], "isError": false}),
            ),
            (
                json!({"content": [], "structuredContent": null, "isError": true, "resultType": "complete"}),
                json!({"content": [], "isError": true, "structuredContent": null}),
            ),
        ] {
            let read = read(sent).unwrap();
            assert_eq!((read.result, read.remarks), (expected, Vec::new()));
        }
    }

    #[test]
    fn unambiguous_wrong_type_is_accepted_with_note() {
        let widget = json!({"type": "widget", "html": "<b>"});
        for (sent, expected) in [
            (
                json!({"success": true, "rows": [1]}),
                json!({"content": [], "isError": false, "structuredContent": {"success": true, "rows": [1]}}),
            ),
            (
                json!([1, 2]),
                json!({"content": [], "isError": false, "structuredContent": [1, 2]}),
            ),
            (
                json!(7),
                json!({"content": [], "isError": false, "structuredContent": 7}),
            ),
            (
                json!("done"),
                json!({"content": [text("done")], "isError": false}),
            ),
            (json!(null), json!({"content": [], "isError": false})),
            (
                json!({"content": "done"}),
                json!({"content": [text("done")], "isError": false}),
            ),
            (
                json!({"content": [text("before"), widget]}),
                json!({"content": [text("before"), widget], "isError": false}),
            ),
            (
                json!({"content": [3, null]}),
                json!({"content": [text("3"), text("null")], "isError": false}),
            ),
            (
                json!({"content": [{"type": "text", "text": null}]}),
                json!({"content": [text("")], "isError": false}),
            ),
            (
                json!({"content": [{"type": "text", "text": {"a": 1}}]}),
                json!({"content": [text(r#"{"a":1}"#)], "isError": false}),
            ),
        ] {
            let read = read(sent.clone()).unwrap();
            assert_eq!(read.result, expected);
            assert!(!read.remarks.is_empty(), "{sent}");
        }
        let plain = read(json!({"content": text("one"), "isError": "true"})).unwrap();
        assert_eq!(
            plain.result,
            json!({"content": [text("one")], "isError": true})
        );
        let many = read(json!({"content": vec![Value::Null; 100]})).unwrap();
        assert_eq!(many.remarks.len(), MOST_REMARKS + 1);
    }

    #[test]
    fn possible_failure_is_not_success() {
        for sent in [
            json!({"content": [], "isError": 1}),
            json!({"content": [], "isError": "perhaps"}),
            json!({"content": [], "isError": {}}),
            json!({"content": 7}),
            json!({"content": [], "resultType": "task"}),
            json!({"resultType": 1}),
        ] {
            assert!(
                matches!(read(sent.clone()), Err(Unusable::Unclear(_))),
                "{sent}"
            );
        }
        let asks = json!({"resultType": "input_required", "requestState": "x"});
        assert!(matches!(read(asks), Err(Unusable::Refused(_))));
    }
}
