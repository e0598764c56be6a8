//! `rye/agent/threads/internal/emitter`: appends a custom event to the calling run.
//!
//! **Never** appends to another run: a call that names another one is refused. Names of the daemon's own events are
//! refused, so that the two cannot be confused.

use rye_core::model::{Event, Failure, Object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::session::{Session, invalid, read};
use crate::port::Refusal;

/// Maximum length of an event name in bytes.
const MOST_NAME: usize = 64;
/// Event name that the transcript uses for a signed head.
const HEAD: &str = "checkpoint";
/// Maximum size of an event's content as JSON, in bytes.
const MOST_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
struct Params {
    #[serde(alias = "name")]
    event_type: String,
    #[serde(default, alias = "content")]
    payload: Object,
    #[serde(alias = "run_id")]
    thread_id: Option<String>,
}

pub(super) async fn emit(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let params: Params = read(params)?;
    check(&params, session.run.as_str()).map_err(invalid)?;
    let (name, content) = (params.event_type.clone(), Value::Object(params.payload));
    let emitted = session.runs.emit(session.run.clone(), name, content).await;
    emitted.map_err(Refusal::of_run)?;
    Ok(json!({"success": true, "event_type": params.event_type}))
}

fn check(params: &Params, own: &str) -> Result<(), String> {
    let name = &params.event_type;
    let fits = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-')
    };
    if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(fits) {
        return Err(format!(
            "`event_type` has 1 to {MOST_NAME} of a-z, 0-9, `_`, `.` and `-`; {name:?} has not"
        ));
    }
    if Event::names().any(|known| known == name) || name == HEAD {
        return Err(format!(
            "`{name}` is an event of the daemon; choose another `event_type`"
        ));
    }
    if params
        .thread_id
        .as_ref()
        .is_some_and(|thread| thread != own)
    {
        return Err("an event goes to the run that emits it; leave `thread_id` out".to_owned());
    }
    let bytes = json!(params.payload).to_string().len();
    if bytes > MOST_BYTES {
        return Err(format!(
            "`payload` has {bytes} bytes as JSON, more than {MOST_BYTES}; write it to a file and emit its name"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, payload: Value, thread: Option<&str>) -> Result<(), String> {
        let Value::Object(payload) = payload else {
            panic!("a payload is an object")
        };
        let params = Params {
            event_type: name.to_owned(),
            payload,
            thread_id: thread.map(str::to_owned),
        };
        check(&params, "own-1")
    }

    #[test]
    fn event_names_are_short_plain_and_unreserved() {
        for name in ["checkpoint_saved", "a.b-c", "x"] {
            assert_eq!(checked(name, json!({}), None), Ok(()), "{name}");
        }
        let long = "x".repeat(MOST_NAME + 1);
        for name in ["", "Upper", "with blank", "../x", long.as_str()] {
            assert!(checked(name, json!({}), None).is_err(), "{name}");
        }
        for name in ["run_killed", "graph_completed", "emitted", "checkpoint"] {
            let told = checked(name, json!({}), None).unwrap_err();
            assert!(told.contains("event of the daemon"), "{told}");
        }
    }

    #[test]
    fn event_is_for_own_run_and_bounded() {
        assert_eq!(checked("x", json!({}), Some("own-1")), Ok(()));
        assert!(checked("x", json!({}), Some("../own-1")).is_err());
        let fits = "x".repeat(MOST_BYTES - 10);
        assert_eq!(checked("x", json!({"a": fits}), None), Ok(()));
        let big = "x".repeat(MOST_BYTES);
        assert!(checked("x", json!({"a": big}), None).is_err());
    }
}
