//! Conversions between messages of the contract and values of the core.

use std::time::Duration;

use rye_core::capability::Layer;
use rye_core::clock::Timestamp;
use rye_core::id::{ItemKind, ItemRef};
use rye_core::model::{Durability, Event, Object, Printed, RunKind, Status, Verdict};
use rye_core::money::Usd;
use serde_json::Value;

use crate::v1;

/// A value of a message that the contract does not allow, or that only a newer contract defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Malformed {
    /// Description of the value and its field.
    pub what: String,
}

impl Malformed {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// Implements conversions between an enum of the core and one of the contract with the same names and an additional
/// `Unspecified`.
macro_rules! same_names {
    ($core:ty, $wire:ty, $($name:ident),+) => {
        impl From<$core> for $wire {
            fn from(value: $core) -> Self {
                match value {
                    $(<$core>::$name => Self::$name),+
                }
            }
        }

        impl $wire {
            /// Returns the value of the core; `None` if it is unspecified.
            pub const fn to_core(self) -> Option<$core> {
                match self {
                    $(Self::$name => Some(<$core>::$name),)+
                    Self::Unspecified => None,
                }
            }
        }
    };
}

same_names!(ItemKind, v1::ItemType, Tool, Directive, Knowledge, Config);
same_names!(RunKind, v1::RunKind, Graph, Tool, Thread, Process);
same_names!(
    Status,
    v1::RunStatus,
    Created,
    Running,
    Suspended,
    Completed,
    CompletedWithErrors,
    Error,
    Cancelled,
    Killed
);
same_names!(Durability, v1::Durability, Strict, Relaxed);
same_names!(Verdict, v1::Verdict, Retry, Done, Fail);

impl From<&ItemRef> for v1::ItemRef {
    fn from(item: &ItemRef) -> Self {
        Self {
            r#type: v1::ItemType::from(item.kind).into(),
            id: item.id.to_string(),
        }
    }
}

impl From<&v1::CapabilityLayer> for Layer {
    fn from(layer: &v1::CapabilityLayer) -> Self {
        Self {
            source: layer.source.clone(),
            patterns: layer.patterns.clone(),
        }
    }
}

impl From<&v1::ProcessEnd> for Printed {
    fn from(end: &v1::ProcessEnd) -> Self {
        Self {
            exit_code: end.exit_code,
            signal: end.signal,
            stdout_tail: end.stdout_tail.clone(),
            stderr_tail: end.stderr_tail.clone(),
        }
    }
}

impl v1::ItemRef {
    /// Returns `TYPE:ID`; the type is `item` if this version does not define it.
    pub fn name(&self) -> String {
        let kind = self.r#type().to_core();
        format!("{}:{}", kind.map_or("item", ItemKind::as_str), self.id)
    }
}

impl v1::Run {
    /// Returns the status as a value of the core.
    pub fn core_status(&self) -> Result<Status, Malformed> {
        let status = v1::RunStatus::try_from(self.status).ok();
        status
            .and_then(v1::RunStatus::to_core)
            .ok_or_else(|| unknown("status", self.status))
    }

    /// Returns the kind as a value of the core.
    pub fn core_kind(&self) -> Result<RunKind, Malformed> {
        let kind = v1::RunKind::try_from(self.kind).ok();
        kind.and_then(v1::RunKind::to_core)
            .ok_or_else(|| unknown("kind", self.kind))
    }

    /// Id of the item that it runs; empty if the daemon omitted it.
    pub fn item_id(&self) -> &str {
        self.item.as_ref().map_or("", |item| item.id.as_str())
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> Result<bool, Malformed> {
        Ok(self.core_status()?.is_terminal())
    }

    /// Returns the state of a graph run; `None` in lists.
    pub fn state(&self) -> Result<Option<Value>, Malformed> {
        document("state_json", &self.state_json)
    }

    /// Returns the output of a graph or a tool, the outputs of a thread, or its last text.
    pub fn output(&self) -> Result<Option<Value>, Malformed> {
        document("output_json", &self.output_json)
    }
}

impl v1::Isolation {
    /// Returns the word of the configuration; `None` if it is unspecified.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Unspecified => None,
            Self::None => Some("none"),
            Self::Scoped => Some("scoped"),
            Self::Sandbox => Some("sandbox"),
            Self::User => Some("user"),
        }
    }
}

impl v1::Event {
    /// Returns the event as a value of the core; `None` if this version does not define its type.
    pub fn fact(&self) -> Option<Event> {
        Event::read(&self.event_type, &self.payload_json).ok()
    }
}

fn unknown(what: &str, number: i32) -> Malformed {
    Malformed::new(format!("a run {what} ({number}) this client does not know"))
}

/// Returns whole milliseconds, as in the contract. A longer duration than 64 bits can hold becomes the maximum.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a time; fractions of a millisecond are dropped.
pub fn timestamp(at: &prost_types::Timestamp) -> Timestamp {
    let ms = at.seconds.saturating_mul(1000);
    Timestamp::from_ms(ms.saturating_add(i64::from(at.nanos) / 1_000_000))
}

/// Parses money of the contract, which has exactly nine decimals; an empty text is zero. `field` is named in the error.
pub fn usd(field: &str, text: &str) -> Result<Usd, Malformed> {
    if text.is_empty() {
        return Ok(Usd::ZERO);
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.')
        .filter(|(dollars, nanos)| is_number(dollars) && is_number(nanos) && nanos.len() == 9)
        .and_then(|(dollars, nanos)| format!("{dollars}{nanos}").parse().ok())
        .map(Usd::from_nanos)
        .ok_or_else(|| Malformed::new(format!("a malformed amount of money in `{field}`")))
}

/// Parses an optional limit; an empty text is no limit. `field` is named in the error.
pub fn limit(field: &str, text: Option<&str>) -> Result<Option<Usd>, Malformed> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| usd(field, text)).transpose()
}

/// Parses the JSON in a text field; `None` if it is empty. `field` is named in the error.
pub fn document(field: &str, text: &str) -> Result<Option<Value>, Malformed> {
    if text.is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_str(text);
    read.map(Some)
        .map_err(|error| Malformed::new(format!("malformed JSON in `{field}`: {error}")))
}

/// Parses the JSON object in a text field. `field` is named in the error.
pub fn object(field: &str, text: &str) -> Result<Object, Malformed> {
    match document(field, text)? {
        Some(Value::Object(object)) => Ok(object),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        )
        | None => Err(Malformed::new(format!("no JSON object in `{field}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rye_core::model::event::CancelRequested;

    #[test]
    fn statuses_round_trip() {
        for status in Status::ALL {
            let run = v1::Run {
                status: v1::RunStatus::from(status).into(),
                ..v1::Run::default()
            };
            assert_eq!(run.core_status().unwrap(), status);
        }
        assert!(v1::Run::default().core_status().is_err());
        assert!(v1::Run::default().core_kind().is_err());
    }

    #[test]
    fn items_have_their_type_before_their_id() {
        for kind in ItemKind::ALL {
            let item = ItemRef::parse(&format!("{kind}:a/b"), kind).unwrap();
            assert_eq!(v1::ItemRef::from(&item).name(), item.to_string());
        }
        let unknown = v1::ItemRef {
            r#type: 99,
            id: "a".to_owned(),
        };
        assert_eq!(unknown.name(), "item:a");
    }

    #[test]
    fn money_round_trips_and_malformed_text_is_refused() {
        for nanos in [0, 1, 1_000_000_000, u64::MAX] {
            let amount = Usd::from_nanos(nanos);
            assert_eq!(usd("own", &amount.to_string()).unwrap(), amount);
        }
        assert_eq!(usd("own", "").unwrap(), Usd::ZERO);
        assert_eq!(limit("max", Some("")).unwrap(), None);
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
            event("cancel_requested", r#"{"cause":"uid:1"}"#).fact(),
            Some(Event::from(CancelRequested {
                cause: "uid:1".to_owned()
            }))
        );
        assert_eq!(event("moon_landed", "{}").fact(), None);
    }
}
