//! Between the messages of the contract and the values of the core.

use std::time::Duration;

use rye_core::clock::Timestamp;
use rye_core::id::{ItemKind, ItemRef};
use rye_core::model::{self, Durability, Object, RunKind, Status, Verdict};
use rye_core::money::Usd;
use rye_proto::v1;
use serde_json::Value;

use crate::error::Error;

/// Whole milliseconds, as the contract counts; a time beyond 64 bits is the longest there is.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A type of items as the contract names it.
pub fn item_type(kind: ItemKind) -> v1::ItemType {
    match kind {
        ItemKind::Tool => v1::ItemType::Tool,
        ItemKind::Directive => v1::ItemType::Directive,
        ItemKind::Knowledge => v1::ItemType::Knowledge,
        ItemKind::Config => v1::ItemType::Config,
    }
}

/// The word for the type of an item; `item` for one that this client does not know.
pub fn item_word(item: &v1::ItemRef) -> &'static str {
    let mut kinds = ItemKind::ALL.into_iter();
    let kind = kinds.find(|kind| i32::from(item_type(*kind)) == item.r#type);
    kind.map_or("item", ItemKind::as_str)
}

/// An item as the contract names it.
pub fn item_ref(item: &ItemRef) -> v1::ItemRef {
    v1::ItemRef {
        r#type: item_type(item.kind).into(),
        id: item.id.to_string(),
    }
}

/// A status as the contract names it.
pub fn run_status(status: Status) -> v1::RunStatus {
    match status {
        Status::Created => v1::RunStatus::Created,
        Status::Running => v1::RunStatus::Running,
        Status::Suspended => v1::RunStatus::Suspended,
        Status::Completed => v1::RunStatus::Completed,
        Status::CompletedWithErrors => v1::RunStatus::CompletedWithErrors,
        Status::Error => v1::RunStatus::Error,
        Status::Cancelled => v1::RunStatus::Cancelled,
        Status::Killed => v1::RunStatus::Killed,
    }
}

/// A durability as the contract names it; none leaves the choice to the graph and the daemon.
pub fn durability(durability: Option<Durability>) -> v1::Durability {
    match durability {
        None => v1::Durability::Unspecified,
        Some(Durability::Strict) => v1::Durability::Strict,
        Some(Durability::Relaxed) => v1::Durability::Relaxed,
    }
}

/// What became of an attempt, as the contract names it.
pub fn verdict(verdict: Verdict) -> v1::Verdict {
    match verdict {
        Verdict::Retry => v1::Verdict::Retry,
        Verdict::Done => v1::Verdict::Done,
        Verdict::Fail => v1::Verdict::Fail,
    }
}

/// The status of a run.
pub fn status_of(run: &v1::Run) -> Result<Status, Error> {
    let status = match v1::RunStatus::try_from(run.status) {
        Ok(v1::RunStatus::Created) => Status::Created,
        Ok(v1::RunStatus::Running) => Status::Running,
        Ok(v1::RunStatus::Suspended) => Status::Suspended,
        Ok(v1::RunStatus::Completed) => Status::Completed,
        Ok(v1::RunStatus::CompletedWithErrors) => Status::CompletedWithErrors,
        Ok(v1::RunStatus::Error) => Status::Error,
        Ok(v1::RunStatus::Cancelled) => Status::Cancelled,
        Ok(v1::RunStatus::Killed) => Status::Killed,
        Ok(v1::RunStatus::Unspecified) | Err(_) => {
            return Err(Error::Malformed {
                what: format!("a run status ({}) this client does not know", run.status),
            });
        }
    };
    Ok(status)
}

/// What carries a run out.
pub fn kind_of(run: &v1::Run) -> Result<RunKind, Error> {
    match v1::RunKind::try_from(run.kind) {
        Ok(v1::RunKind::Graph) => Ok(RunKind::Graph),
        Ok(v1::RunKind::Tool) => Ok(RunKind::Tool),
        Ok(v1::RunKind::Thread) => Ok(RunKind::Thread),
        Ok(v1::RunKind::Unspecified) | Err(_) => Err(Error::Malformed {
            what: format!("a run kind ({}) this client does not know", run.kind),
        }),
    }
}

/// The id of the item a run runs; empty if the daemon left it out.
pub fn item_id(run: &v1::Run) -> &str {
    run.item.as_ref().map_or("", |item| item.id.as_str())
}

/// A point in time.
pub fn timestamp(at: &prost_types::Timestamp) -> Timestamp {
    let ms = at.seconds.saturating_mul(1000);
    Timestamp::from_ms(ms.saturating_add(i64::from(at.nanos) / 1_000_000))
}

/// The fact an event tells; `None` for a type that this client does not know.
pub fn fact(event: &v1::Event) -> Option<model::Event> {
    model::Event::read(&event.event_type, &event.payload_json).ok()
}

/// Money as the contract has it, with nine decimals and as much as it comes to; empty means none. `name` is the field.
pub fn usd(name: &str, text: &str) -> Result<Usd, Error> {
    if text.is_empty() {
        return Ok(Usd::ZERO);
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.')
        .filter(|(dollars, nanos)| is_number(dollars) && is_number(nanos) && nanos.len() == 9)
        .and_then(|(dollars, nanos)| format!("{dollars}{nanos}").parse().ok())
        .map(Usd::from_nanos)
        .ok_or_else(|| Error::Malformed {
            what: format!("a malformed amount of money in `{name}`"),
        })
}

/// A JSON text of the contract, where empty means none. `name` is the field.
pub fn json(name: &str, text: &str) -> Result<Option<Value>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::Malformed {
            what: format!("malformed JSON in `{name}`: {error}"),
        }),
    }
}

/// A JSON object of the contract. `name` is the field.
pub fn object(name: &str, text: &str) -> Result<Object, Error> {
    match json(name, text)? {
        Some(Value::Object(object)) => Ok(object),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Err(Error::Malformed {
            what: format!("no JSON object in `{name}`"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_wire() {
        for status in Status::ALL {
            let run = v1::Run {
                status: run_status(status).into(),
                ..v1::Run::default()
            };
            assert_eq!(status_of(&run).unwrap(), status);
        }
        assert!(status_of(&v1::Run::default()).is_err());
    }

    #[test]
    fn money_survives_the_wire_and_nothing_else_is_taken_for_it() {
        for nanos in [0, 1, 1_000_000_000, u64::MAX] {
            let amount = Usd::from_nanos(nanos);
            assert_eq!(usd("own", &amount.to_string()).unwrap(), amount);
        }
        assert_eq!(usd("own", "").unwrap(), Usd::ZERO);
        for text in [
            "1",
            "1.5",
            "-1.000000000",
            "1.0000000000",
            ".000000001",
            "99999999999.000000000",
            "1.00000000x",
        ] {
            let error = usd("own", text).unwrap_err().to_string();
            assert!(error.contains("`own`"), "{error}");
        }
    }

    #[test]
    fn unknown_events_are_no_facts() {
        let event = |event_type: &str, payload: &str| v1::Event {
            event_type: event_type.to_owned(),
            payload_json: payload.to_owned(),
            ..v1::Event::default()
        };
        assert_eq!(
            fact(&event("cancel_requested", r#"{"cause":"uid:1"}"#)),
            Some(model::Event::Run(model::RunEvent::CancelRequested {
                cause: "uid:1".to_owned()
            }))
        );
        assert_eq!(fact(&event("moon_landed", "{}")), None);
    }
}
