//! The serialized form of the frames of the log. Old forms stay readable; a new form gets a new name (`commit/2`).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use crate::history::Removal;
use rye_core::clock::Timestamp;
use rye_core::digest::Digest;
use rye_core::id::{Epoch, Lsn, RunId, Seq};
use rye_core::model::{self, Event};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use rye_host::blobs;

pub(crate) mod stored;
pub(crate) mod texts;

/// Limit in bytes on payloads in a record. Longer ones are stored as objects, and the record names them.
pub(crate) const SPILL_BYTES: usize = 64 * 1024;

/// An event of a run in the form for readers.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Position in the run.
    pub seq: Seq,
    /// Position in the log.
    pub lsn: Lsn,
    /// Time of its commit.
    pub timestamp: Timestamp,
    /// Name of its type.
    pub event_type: String,
    /// Its content as JSON text; a long one as `{"object": <sha256>, "bytes": n}`.
    pub payload: Arc<str>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Body {
    /// Start of an epoch: a new process of the daemon.
    #[serde(rename = "epoch/1")]
    Epoch { at: Timestamp, epoch: Epoch },
    /// Events of any number of runs, committed together.
    #[serde(rename = "commit/1")]
    Commit { at: Timestamp, records: Vec<Record> },
    #[serde(rename = "removed/1")]
    Removed(Removal),
    /// The log was closed in order: everything before its position is on disk.
    #[serde(rename = "closed/1")]
    Closed { at: Timestamp },
}

impl Body {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("records are plain data")
    }
}

/// One event of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: RunId,
    pub(crate) seq: Seq,
    pub(crate) event: Logged,
}

/// An event in the log: its payload, or a reference to the object that holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Logged {
    pub(crate) event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spilled: Option<Spilled>,
}

/// Reference to a long payload.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spilled {
    object: Digest,
    bytes: u64,
}

/// Reason why a record cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("the record is not one this version knows")]
    Event(#[from] model::Unreadable),
    #[error("the payload of `{event_type}` is gone")]
    Object {
        event_type: String,
        #[source]
        source: blobs::Error,
    },
}

impl Logged {
    /// Returns the payload as transcripts and streams show it: a long one as the reference to its object.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        match (&self.payload, &self.spilled) {
            (_, Some(spilled)) => Cow::Owned(spilled.shown()),
            (Some(payload), None) => Cow::Borrowed(payload.get()),
            (None, None) => Cow::Borrowed("null"),
        }
    }

    /// Decodes the event. Blocks if its payload is long.
    pub(crate) fn event(&self, objects: &blobs::Store) -> Result<Event, Unreadable> {
        event(&self.event_type, &self.shown(), objects)
    }

    /// Returns the digest of the object that holds a long payload.
    pub(crate) fn object(&self) -> Option<Digest> {
        self.spilled.as_ref().map(|spilled| spilled.object)
    }
}

impl Spilled {
    /// Parses the reference in `payload`; `None` if `payload` is the content itself.
    fn of_shown(payload: &str) -> Option<Self> {
        let may_be = payload.starts_with(r#"{"object":"#);
        may_be.then(|| serde_json::from_str(payload).ok())?
    }

    fn shown(&self) -> String {
        serde_json::to_string(self).expect("a reference is plain data")
    }
}

/// Decodes the event whose payload is shown as `payload`. Blocks if its payload is long.
pub(crate) fn event(
    event_type: &str,
    payload: &str,
    objects: &blobs::Store,
) -> Result<Event, Unreadable> {
    let Some(Spilled { object, .. }) = Spilled::of_shown(payload) else {
        return Ok(Event::read(event_type, payload)?);
    };
    let read = objects.read(&object, |payload| Event::read_from(event_type, payload));
    Ok(read.map_err(gone(event_type))??)
}

/// Returns a constructor of the error that the payload of such an event could not be read.
fn gone(event_type: &str) -> impl FnOnce(blobs::Error) -> Unreadable {
    let event_type = event_type.to_owned();
    move |source| Unreadable::Object { event_type, source }
}

fn spilled_text(
    event_type: &str,
    spilled: &Spilled,
    objects: &blobs::Store,
) -> Result<String, Unreadable> {
    let bytes = objects.get(&spilled.object).map_err(gone(event_type))?;
    // Converted in place, because it may be large.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

impl Line {
    /// True if an object holds the payload.
    pub(crate) fn is_spilled(&self) -> bool {
        Spilled::of_shown(&self.payload).is_some()
    }

    /// Returns the length of the payload in bytes if an object holds it.
    pub(crate) fn spilled_bytes(&self) -> Option<usize> {
        let spilled = Spilled::of_shown(&self.payload)?;
        Some(usize::try_from(spilled.bytes).unwrap_or(usize::MAX))
    }

    /// Decodes the event. Blocks if its payload is long.
    pub(crate) fn event(&self, objects: &blobs::Store) -> Result<Event, Unreadable> {
        event(&self.event_type, &self.payload, objects)
    }

    /// Returns the line with its whole payload. Blocks if an object holds that.
    pub(crate) fn whole(self, objects: &blobs::Store) -> Result<Self, Unreadable> {
        let Some(spilled) = Spilled::of_shown(&self.payload) else {
            return Ok(self);
        };
        let payload = spilled_text(&self.event_type, &spilled, objects)?.into();
        Ok(Self { payload, ..self })
    }
}

/// The payload of an event in the text form that log, transcript and stream share, created before the lock is taken.
#[derive(Debug, Clone)]
pub(crate) struct Rendered {
    /// The payload, or `{"object","bytes"}` once it is spilled.
    pub(crate) payload: String,
    spilled: bool,
}

impl Rendered {
    /// Renders the event with its payload, of any length.
    pub(crate) fn of(event: &Event) -> Self {
        Self::within(event, usize::MAX).expect("there is no bound")
    }

    /// Renders the event with its payload; `None` if that has more than [`SPILL_BYTES`].
    pub(crate) fn short(event: &Event) -> Option<Self> {
        Self::within(event, SPILL_BYTES)
    }

    fn within(event: &Event, most: usize) -> Option<Self> {
        let mut out = Payload::of(event, Bounded::new(most));
        serde_json::to_writer(&mut out, event).ok()?;
        let payload = String::from_utf8(out.out.bytes).expect("JSON is text");
        Some(Self {
            payload,
            spilled: false,
        })
    }

    /// Renders the event and stores its payload in `objects`. The payload is written in pieces, because its JSON may
    /// take six times as much memory as the text. Blocks until it is on disk.
    pub(crate) fn spilled(event: &Event, objects: &blobs::Store) -> Result<Self, blobs::Error> {
        let (object, bytes) = objects.put_written(|out| {
            let mut out = Payload::of(event, out);
            serde_json::to_writer(&mut out, event).map_err(Into::into)
        })?;
        Ok(Self {
            payload: Spilled { object, bytes }.shown(),
            spilled: true,
        })
    }

    /// Returns the rendered form of an event that was read back.
    pub(crate) fn of_logged(logged: &Logged) -> Self {
        Self {
            payload: logged.shown().into_owned(),
            spilled: logged.spilled.is_some(),
        }
    }
}

/// Receives the JSON of an event, `{"event_type":…,"payload":…}`, and forwards its payload.
struct Payload<W> {
    /// Bytes before the payload that are still expected.
    before: usize,
    /// True if a `}` is held back: the last one closes the event.
    closes: bool,
    out: W,
}

impl<W> Payload<W> {
    fn of(event: &Event, out: W) -> Self {
        Self {
            before: r#"{"event_type":"","payload":"#.len() + event.name().len(),
            closes: false,
            out,
        }
    }
}

impl<W: io::Write> io::Write for Payload<W> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        let before = self.before.min(json.len());
        self.before -= before;
        let payload = &json[before..];
        if payload.is_empty() {
            return Ok(json.len());
        }
        if std::mem::take(&mut self.closes) {
            self.out.write_all(b"}")?;
        }
        let kept = payload.strip_suffix(b"}");
        self.closes = kept.is_some();
        self.out.write_all(kept.unwrap_or(payload))?;
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A buffer that fails beyond `most` bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Bounded {
    const fn new(most: usize) -> Self {
        let bytes = Vec::new();
        Self { bytes, most }
    }
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(more.len()) > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes a commit of events of runs, each with its name. The bytes are the same as those of [`Body::encode`], but
/// payloads are not parsed again.
pub(crate) fn encode_commit<'a>(
    at: Timestamp,
    records: impl Iterator<Item = (&'a RunId, Seq, &'static str, &'a Rendered)>,
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
    for (place, (run, seq, name, event)) in records.enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let field = if event.spilled { "spilled" } else { "payload" };
        put(format_args!(
            r#"{comma}{{"run":"{run}","seq":{seq},"event":{{"event_type":"{name}","{field}":{}}}}}"#,
            event.payload
        ));
    }
    put(format_args!("]}}}}"));
    text.into_bytes()
}

#[cfg(test)]
mod tests {

    use super::*;
    use rye_core::model::event::Warning;

    #[test]
    fn payload_is_rendered_equally_inline_and_spilled() {
        let dir = tempfile::tempdir().unwrap();
        let objects = blobs::Store::open(dir.path().join("objects"));
        let warning = |message: String| {
            let node = None;
            Event::from(Warning { node, message })
        };
        let events = [
            warning("}".repeat(100)),
            warning("{\"a\": {}}\u{0}é".repeat(SPILL_BYTES / 20)),
            warning("\u{0}".repeat(SPILL_BYTES)),
        ];
        let is_long = [false, false, true];
        for (event, is_long) in events.iter().zip(is_long) {
            let tagged = serde_json::to_value(event).unwrap();
            let whole = Rendered::of(event);
            let payload: serde_json::Value = serde_json::from_str(&whole.payload).unwrap();
            assert_eq!(payload, tagged["payload"]);
            let short = Rendered::short(event).map(|short| short.payload);
            assert_eq!(short, (!is_long).then(|| whole.payload.clone()));
            let spilled = Rendered::spilled(event, &objects).unwrap();
            let shown = Spilled::of_shown(&spilled.payload).unwrap();
            assert_eq!(shown.bytes, u64::try_from(whole.payload.len()).unwrap());
            assert_eq!(
                objects.get(&shown.object).unwrap(),
                whole.payload.as_bytes()
            );
            let read = super::event(event.name(), &spilled.payload, &objects).unwrap();
            assert_eq!(read, *event);
        }
    }
}
