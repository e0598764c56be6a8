//! Parsing of one message of a server.
//!
//! A value of another type than the protocol requires is accepted where its meaning is clear: the id `"3"` for 3, an
//! `error` that is a string, `"error": null` next to a result. The result of a call passes through the library
//! unparsed, because the library rejects the whole answer if one part is unknown to it; [`super::answer`] parses it.
//! **Failure.** A text that is not a message is an error. An answer to a call that cannot be converted without loss
//! still counts as an answer, so that only its call fails.

use std::collections::HashMap;

use rmcp::model::{CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerResult};
use rye_core::expr::parse_json;
use rye_core::json;
use rye_core::model::Object;
use serde_json::Value;

use super::inbox::Message;

/// Code of an error that has none: internal error of JSON-RPC.
const NO_CODE: i32 = -32603;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Call,
    Other,
}

/// Result of a call on its way through the library.
#[derive(Debug, PartialEq)]
pub(super) enum CallResult {
    /// The unchanged result.
    Whole(Value),
    /// Reason why it cannot be converted.
    Unusable(String),
}

#[derive(Debug)]
pub(super) enum Incoming {
    Message(Box<Message>),
    /// Description of an answer that belongs to no request.
    Stray(String),
}

/// Parses `text`; `asked` has the unanswered requests.
pub(super) fn read(
    text: &[u8],
    asked: &HashMap<RequestId, RequestKind>,
) -> Result<Incoming, String> {
    let text = &*json::decoded(text);
    let (message, loss) = match parse_json(text) {
        Ok(message) => (message, None),
        Err(loss) => {
            let message = serde_json::from_str(text).map_err(|error| error.to_string())?;
            (message, Some(loss))
        }
    };
    let Value::Object(mut message) = message else {
        return Err("it is no JSON object".to_owned());
    };
    message.retain(|key, value| !(matches!(key.as_str(), "id" | "error") && value.is_null()));
    if message.contains_key("method") {
        return typed(message);
    }
    let id = message.shift_remove("id");
    let id = id.and_then(|id| known_id(id, asked));
    if let Some(error) = message.shift_remove("error") {
        let error = error_data(error);
        return Ok(match id {
            Some(id) => Incoming::Message(Box::new(JsonRpcMessage::error(error, Some(id)))),
            None => Incoming::Stray(format!(
                "it sent an error that belongs to no request: {}",
                error.message
            )),
        });
    }
    let Some(result) = message.shift_remove("result") else {
        return Err("it has neither `method` nor `result` nor `error`".to_owned());
    };
    let Some(id) = id else {
        let stray = "it sent a result that belongs to no request";
        return Ok(Incoming::Stray(stray.to_owned()));
    };
    let result = match asked.get(&id) {
        Some(RequestKind::Call) => passing(match loss {
            None => CallResult::Whole(result),
            Some(loss) => CallResult::Unusable(loss.to_string()),
        }),
        Some(RequestKind::Other) | None => {
            serde_json::from_value(result).map_err(|error| error.to_string())?
        }
    };
    Ok(Incoming::Message(Box::new(JsonRpcMessage::response(
        result, id,
    ))))
}

/// A request or a notification of the server.
fn typed(mut message: Object) -> Result<Incoming, String> {
    message.shift_remove("result");
    message.insert("jsonrpc".to_owned(), "2.0".into());
    let message = serde_json::from_value(Value::Object(message));
    message
        .map(|message| Incoming::Message(Box::new(message)))
        .map_err(|error| error.to_string())
}

/// The request that `id` names; a number may be sent as a string, and vice versa.
fn known_id(id: Value, asked: &HashMap<RequestId, RequestKind>) -> Option<RequestId> {
    let id: RequestId = serde_json::from_value(id).ok()?;
    let other = match &id {
        RequestId::String(text) => text.trim().parse().ok().map(RequestId::Number),
        RequestId::Number(number) => Some(RequestId::String(number.to_string().into())),
    };
    [Some(id), other]
        .into_iter()
        .flatten()
        .find(|id| asked.contains_key(id))
}

/// Error of an answer; a value that is not an object becomes its message.
fn error_data(error: Value) -> ErrorData {
    let Value::Object(mut error) = error else {
        return ErrorData::new(ErrorCode(NO_CODE), text_of(&error), None);
    };
    let code = match error.get("code") {
        Some(Value::Number(code)) => code.as_i64(),
        Some(Value::String(code)) => code.trim().parse().ok(),
        Some(_) | None => None,
    };
    let code = code.and_then(|code| i32::try_from(code).ok());
    let message = match error.get("message") {
        Some(message) if !message.is_null() => text_of(message),
        Some(_) | None => Value::Object(error.clone()).to_string(),
    };
    let data = error.shift_remove("data").filter(|data| !data.is_null());
    ErrorData::new(ErrorCode(code.unwrap_or(NO_CODE)), message, data)
}

/// The string, or another value as JSON.
pub(super) fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Keys of the envelope in which results pass through the library.
const WHOLE: &str = "whole";
const UNUSABLE: &str = "unusable";

fn passing(result: CallResult) -> ServerResult {
    let (key, value) = match result {
        CallResult::Whole(result) => (WHOLE, result),
        CallResult::Unusable(reason) => (UNUSABLE, reason.into()),
    };
    let result = Object::from_iter([(key.to_owned(), value)]);
    ServerResult::CustomResult(CustomResult(Value::Object(result)))
}

/// Unpacks the result of a call that has passed through the library.
pub(super) fn passed(result: ServerResult) -> CallResult {
    let ServerResult::CustomResult(CustomResult(Value::Object(mut result))) = result else {
        return CallResult::Unusable("it is no answer to a call".to_owned());
    };
    match result.shift_remove(WHOLE) {
        Some(result) => CallResult::Whole(result),
        None => CallResult::Unusable(result.get(UNUSABLE).map(text_of).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests() -> HashMap<RequestId, RequestKind> {
        HashMap::from([
            (RequestId::Number(1), RequestKind::Other),
            (RequestId::Number(3), RequestKind::Call),
        ])
    }

    fn read(text: &[u8]) -> Result<Incoming, String> {
        super::read(text, &requests())
    }

    fn called(text: &[u8]) -> CallResult {
        let Ok(Incoming::Message(message)) = read(text) else {
            panic!("{} is no message", String::from_utf8_lossy(text));
        };
        let (result, id) = message.into_response().unwrap();
        assert_eq!(id, RequestId::Number(3));
        passed(result)
    }

    #[test]
    fn call_result_is_passed_unchanged() {
        let text =
            |text: &str| CallResult::Whole(json!({"content": [{"type": "text", "text": text}]}));
        let sent: [(&[u8], CallResult); 7] = [
            (
                br#"{"jsonrpc":"2.0","id":3,"result":{"x":[1]}}"#,
                CallResult::Whole(json!({"x": [1]})),
            ),
            (
                br#"{"id":"3","result":null,"error":null}"#,
                CallResult::Whole(Value::Null),
            ),
            (
                br#"{"jsonrpc":"2.0","id":3.0,"error":null,"result":"done"}"#,
                CallResult::Whole(json!("done")),
            ),
            (
                br#"{"id":3,"result":{"content":[{"type":"text","text":"half \ud83d"}]}}"#,
                text("half \u{fffd}"),
            ),
            (
                b"{\"id\":3,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"caf\xe9\"}]}}",
                text("caf\u{fffd}"),
            ),
            (
                b"\xef\xbb\xbf{\"id\":3,\"result\":[]}",
                CallResult::Whole(json!([])),
            ),
            (
                br#"{"id":3,"result":{"isError":"perhaps"}}"#,
                CallResult::Whole(json!({"isError": "perhaps"})),
            ),
        ];
        for (sent, expected) in sent {
            assert_eq!(called(sent), expected, "{}", String::from_utf8_lossy(sent));
        }
    }

    #[test]
    fn lossy_result_fails_call_with_reason() {
        for (sent, problem) in [
            (
                r#"{"id":3,"result":{"wei":19876543210987654321}}"#,
                "19876543210987654321",
            ),
            (r#"{"id":3,"result":{"a":1,"a":2}}"#, "`a`"),
        ] {
            let CallResult::Unusable(reason) = called(sent.as_bytes()) else {
                panic!("{sent} is taken");
            };
            assert!(reason.contains(problem), "{reason}");
        }
    }

    #[test]
    fn error_keeps_its_message() {
        for (error, words) in [
            (r#"{"code":-32602,"message":"no column"}"#, "no column"),
            (
                r#"{"code":"-32602","message":{"reason":1}}"#,
                r#"{"reason":1}"#,
            ),
            (r#"{"reason":"no column"}"#, r#"{"reason":"no column"}"#),
            (r#""no column""#, "no column"),
            ("7", "7"),
        ] {
            let sent = format!(r#"{{"jsonrpc":"2.0","id":3,"error":{error},"result":null}}"#);
            let Ok(Incoming::Message(message)) = read(sent.as_bytes()) else {
                panic!("{sent} is a message");
            };
            let (error, id) = message.into_error().unwrap();
            assert_eq!((&*error.message, id), (words, Some(RequestId::Number(3))));
        }
    }

    #[test]
    fn unmatched_message_is_noted_and_invalid_one_is_error() {
        for sent in [
            r#"{"id":9,"result":{}}"#,
            r#"{"id":[3],"result":{}}"#,
            r#"{"result":{}}"#,
            r#"{"id":null,"error":{"code":-32700,"message":"cannot parse"}}"#,
        ] {
            assert!(
                matches!(read(sent.as_bytes()), Ok(Incoming::Stray(_))),
                "{sent}"
            );
        }
        for sent in ["", "{", "[]", "7", "{}", r#"{"id":3}"#, r#"{"method":7}"#] {
            assert!(read(sent.as_bytes()).is_err(), "{sent}");
        }
    }
}
