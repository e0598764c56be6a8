//! What a frame of the log says: the serialised form of commits. A promise: old forms stay readable, a new form gets
//! a new name (`commit/2`).

use std::borrow::Cow;
use std::fmt::Write as _;

use rye_core::clock::Timestamp;
use rye_core::id::{Epoch, RunId, Seq};
use rye_core::model::{self, Event};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Line;
use crate::object::{self, Digest};

/// Payloads longer than this are kept as objects, and the record names them.
pub(super) const SPILL_BYTES: usize = 64 * 1024;

/// The payload of one frame.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Body {
    /// A life of the daemon begins.
    #[serde(rename = "epoch/1")]
    Epoch { at: Timestamp, epoch: Epoch },
    /// Events of any number of runs, all or nothing.
    #[serde(rename = "commit/1")]
    Commit { at: Timestamp, records: Vec<Record> },
    /// The log was closed in order; by its position it says that everything before is on disk.
    #[serde(rename = "closed/1")]
    Closed { at: Timestamp },
}

impl Body {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("records are plain data")
    }
}

/// One event of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) run: RunId,
    pub(super) seq: Seq,
    pub(super) event: Logged,
}

/// An event as the log holds it: its payload, or the object that is its payload.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Logged {
    pub(super) event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spilled: Option<Spilled>,
}

/// Where a long payload lies.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spilled {
    object: Digest,
    bytes: u64,
}

/// Why a record cannot be understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the record is not one this version knows")]
    Event(#[from] model::Unreadable),
    #[error("the payload of `{event_type}` is gone")]
    Object {
        event_type: String,
        #[source]
        source: object::Error,
    },
}

impl Logged {
    /// The payload as transcripts and streams show it: a long one by the object that holds it.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        match (&self.payload, &self.spilled) {
            (_, Some(spilled)) => Cow::Owned(spilled.shown()),
            (Some(payload), None) => Cow::Borrowed(payload.get()),
            (None, None) => Cow::Borrowed("null"),
        }
    }

    /// The event itself. Blocks if its payload is long.
    pub(super) fn event(&self, objects: &object::Store) -> Result<Event, Unreadable> {
        event(&self.event_type, &self.shown(), objects)
    }
}

impl Spilled {
    /// What `payload`, as a transcript shows it, says about where the payload lies.
    fn of_shown(payload: &str) -> Option<Self> {
        let may_be = payload.starts_with(r#"{"object":"#);
        may_be.then(|| serde_json::from_str(payload).ok())?
    }

    fn shown(&self) -> String {
        serde_json::to_string(self).expect("a reference is plain data")
    }
}

/// The event that transcripts and streams show as `payload`. Blocks if its payload is long.
pub(super) fn event(
    event_type: &str,
    payload: &str,
    objects: &object::Store,
) -> Result<Event, Unreadable> {
    let payload = match Spilled::of_shown(payload) {
        None => Cow::Borrowed(payload),
        Some(spilled) => Cow::Owned(spilled_text(event_type, &spilled, objects)?),
    };
    Ok(Event::read(event_type, &payload)?)
}

fn spilled_text(
    event_type: &str,
    spilled: &Spilled,
    objects: &object::Store,
) -> Result<String, Unreadable> {
    let bytes = objects
        .get(&spilled.object)
        .map_err(|source| Unreadable::Object {
            event_type: event_type.to_owned(),
            source,
        })?;
    // In its place: it may be large.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

impl Line {
    /// Whether the payload lies elsewhere.
    pub(super) fn is_spilled(&self) -> bool {
        Spilled::of_shown(&self.payload).is_some()
    }

    /// How long the payload is, if it lies elsewhere.
    pub(super) fn spilled_bytes(&self) -> Option<usize> {
        let spilled = Spilled::of_shown(&self.payload)?;
        Some(usize::try_from(spilled.bytes).unwrap_or(usize::MAX))
    }

    /// The event. Blocks if its payload is long.
    pub(super) fn event(&self, objects: &object::Store) -> Result<Event, Unreadable> {
        event(&self.event_type, &self.payload, objects)
    }

    /// The same with its payload in it, however long that is. Blocks if it is.
    pub(super) fn whole(self, objects: &object::Store) -> Result<Self, Unreadable> {
        let Some(spilled) = Spilled::of_shown(&self.payload) else {
            return Ok(self);
        };
        let payload = spilled_text(&self.event_type, &spilled, objects)?.into();
        Ok(Self { payload, ..self })
    }
}

/// An event in the text form that the log, the transcript and the stream share, made before the lock is taken.
#[derive(Debug, Clone)]
pub(super) struct Rendered {
    pub(super) name: &'static str,
    /// The payload, or `{"object","bytes"}` once it is spilled.
    pub(super) payload: String,
    spilled: bool,
}

impl Rendered {
    pub(super) fn of(event: &Event) -> Self {
        let name = event.name();
        let text = serde_json::to_string(event).expect("events are plain data");
        let payload = text
            .strip_prefix(r#"{"event_type":""#)
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix(r#"","payload":"#))
            .and_then(|rest| rest.strip_suffix('}'))
            .expect("events are tagged beside their content")
            .to_owned();
        Self {
            name,
            payload,
            spilled: false,
        }
    }

    /// The form of an event that was read back.
    pub(super) fn again(name: &'static str, logged: &Logged) -> Self {
        Self {
            name,
            payload: logged.shown().into_owned(),
            spilled: logged.spilled.is_some(),
        }
    }

    pub(super) fn is_long(&self) -> bool {
        self.payload.len() > SPILL_BYTES
    }

    /// Moves the payload to `objects`. Blocks until it is on disk.
    pub(super) fn spill(self, objects: &object::Store) -> Result<Self, object::Error> {
        let object = objects.put(self.payload.as_bytes())?;
        let bytes = u64::try_from(self.payload.len()).expect("a length fits 64 bits");
        Ok(Self {
            payload: Spilled { object, bytes }.shown(),
            spilled: true,
            ..self
        })
    }
}

/// The body of a commit, byte for byte what [`Body::encode`] would write, without parsing payloads again.
pub(super) fn encode_commit<'a>(
    at: Timestamp,
    records: impl Iterator<Item = (&'a RunId, Seq, &'a Rendered)>,
) -> Vec<u8> {
    let mut text = String::with_capacity(1024);
    let mut put = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args)
            .expect("writing to a String cannot fail");
    };
    put(format_args!(
        r#"{{"commit/1":{{"at":{},"records":["#,
        at.ms()
    ));
    for (place, (run, seq, event)) in records.enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let field = if event.spilled { "spilled" } else { "payload" };
        put(format_args!(
            r#"{comma}{{"run":"{run}","seq":{seq},"event":{{"event_type":"{}","{field}":{}}}}}"#,
            event.name, event.payload
        ));
    }
    put(format_args!("]}}}}"));
    text.into_bytes()
}
