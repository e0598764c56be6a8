//! The transcript of a run: one JSON line per event, chained by hashes, with a signed checkpoint after each boundary.
//!
//! ```text
//! {"seq":6,"timestamp":"…","run_id":"…","event_type":"step_completed","payload":{…},"prev":"<hash of line 5>"}
//! {"seq":6,"timestamp":"…","run_id":"…","event_type":"checkpoint","payload":{"hash":"<hash of the line before>",
//!  "state_hash":"…","signature":"rye:signed:…"},"prev":"<the same hash>"}
//! ```
//!
//! `prev` is the SHA-256 of the line before it without its LF; 64 zeros before the first. `state_hash` folds the facts
//! that make up the state, so that its cost does not grow with the state: `H(state_hash before ‖ event type ‖ LF ‖
//! payload)` at each `graph_started`, `step_completed` and `tool_completed`, 64 zeros before the first. The signature
//! covers the SHA-256 of `rye:head:1 LF run LF seq LF hash LF state_hash`. Everything here is a pure function of the log,
//! so a lost line comes back byte for byte.
//!
//! Once the log does not hold them any more, lines that somebody removed or changed are lost. What comes later still stands
//! where it belongs; a reader gets the byte at which the transcript stops being what was written.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufRead};

use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, RunId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::record::Unreadable;
use super::{Line, Signer};
use crate::object::Digest;

/// The event type of a checkpoint line, which is not an event.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// How far a transcript goes, and what pins every byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// The last event.
    pub(super) seq: Seq,
    /// Length of the transcript.
    pub(super) bytes: u64,
    /// Hash of its last line.
    pub(super) hash: Digest,
    /// Hash over the facts of the state.
    pub(super) state: Digest,
}

/// One event, ready to be written down.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact<'a> {
    pub(super) run: &'a RunId,
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) name: &'a str,
    pub(super) payload: &'a str,
    /// Whether a signed checkpoint follows.
    pub(super) boundary: bool,
}

impl Head {
    /// Appends the line of `fact`, and its checkpoint, to `out`.
    pub(super) fn write(&mut self, fact: &Fact<'_>, signer: &dyn Signer, out: &mut Vec<u8>) {
        fold(&mut self.state, fact.name, fact.payload);
        self.seq = fact.seq;
        self.line(fact, fact.name, fact.payload, out);
        if fact.boundary {
            let signature = signer.sign_hex(&self.signed(fact.run).to_string(), fact.at);
            let payload = format!(
                r#"{{"hash":"{}","state_hash":"{}","signature":"{signature}"}}"#,
                self.hash, self.state
            );
            self.line(fact, CHECKPOINT, &payload, out);
        }
    }

    /// What the signature of a checkpoint at this head covers.
    pub(super) fn signed(&self, run: &RunId) -> Digest {
        let Self {
            seq, hash, state, ..
        } = self;
        Digest::of(&[format!("rye:head:1\n{run}\n{seq}\n{hash}\n{state}").as_bytes()])
    }

    fn line(&mut self, fact: &Fact<'_>, name: &str, payload: &str, out: &mut Vec<u8>) {
        let Fact { run, seq, at, .. } = fact;
        let mut text = String::with_capacity(payload.len() + 256);
        write!(
            text,
            r#"{{"seq":{seq},"timestamp":"{at}","run_id":"{run}","event_type":"{name}","payload":{payload},"prev":"{}"}}"#,
            self.hash
        )
        .expect("writing to a String cannot fail");
        self.hash = Digest::of(&[text.as_bytes()]);
        text.push('\n');
        self.bytes += u64::try_from(text.len()).expect("a length fits 64 bits");
        out.extend_from_slice(text.as_bytes());
    }
}

/// Takes an event into the hash over the facts of the state, if it is one of these.
pub(super) fn fold(state: &mut Digest, name: &str, payload: &str) {
    if matches!(name, "graph_started" | "step_completed" | "tool_completed") {
        let facts = [state.as_bytes(), name.as_bytes(), b"\n", payload.as_bytes()];
        *state = Digest::of(&facts);
    }
}

/// A line as it is read back.
#[derive(Debug, Deserialize)]
struct Written<'a> {
    seq: Seq,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    run_id: RunId,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    payload: &'a RawValue,
    prev: Digest,
}

/// Where a transcript stops being what was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    #[error("what follows byte {0} is missing")]
    Short(u64),
    #[error("the line at byte {0} is not one of ours")]
    Foreign(u64, #[source] serde_json::Error),
    #[error("the line at byte {0} does not follow the line before it")]
    Broken(u64),
    #[error("its last line is not the one on record")]
    Head,
    #[error("it holds more than was written, from byte {0} on")]
    Behind(u64),
    #[error("byte {0} is not what was written")]
    Differs(u64),
    #[error("the checkpoint at byte {0} is not signed by this node for what stands before it")]
    Unsigned(u64),
    #[error("the long payload of the line at byte {0} cannot be read")]
    Payload(u64, #[source] Box<Unreadable>),
}

/// What a checkpoint says.
#[derive(Debug, Deserialize)]
struct Signed<'a> {
    hash: Digest,
    state_hash: Digest,
    #[serde(borrow)]
    signature: Cow<'a, str>,
}

/// Whether the checkpoint `text` is that of the line before it, with the hash `state` over the facts, and signed by this node.
pub(super) fn is_signed(text: &[u8], run: &RunId, state: &Digest, signer: &dyn Signer) -> bool {
    let Ok(line) = serde_json::from_slice::<Written<'_>>(text) else {
        return false;
    };
    let Ok(sealed) = serde_json::from_str::<Signed<'_>>(line.payload.get()) else {
        return false;
    };
    let head = Head {
        seq: line.seq,
        hash: line.prev,
        state: *state,
        ..Head::default()
    };
    (sealed.hash, sealed.state_hash) == (head.hash, head.state)
        && signer.verify_hex(&sealed.signature, &head.signed(run).to_string())
}

/// How far a transcript has been read, and checked on the way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// Bytes before it.
    pub(super) at: u64,
    hash: Digest,
    /// The last event before it.
    pub(super) seq: Seq,
}

impl Cursor {
    /// Goes on over the line `text` (without its LF), which must follow what was read before; its event, if it is one.
    pub(super) fn pass(&mut self, run: &RunId, text: &[u8]) -> Result<Option<Line>, Fault> {
        let line: Written<'_> =
            serde_json::from_slice(text).map_err(|source| Fault::Foreign(self.at, source))?;
        let is_event = line.event_type != CHECKPOINT;
        let expected = if is_event { self.seq.next() } else { self.seq };
        if line.prev != self.hash || line.run_id != *run || line.seq != expected {
            return Err(Fault::Broken(self.at));
        }
        let timestamp = Timestamp::parse(&line.timestamp).ok_or(Fault::Broken(self.at))?;
        self.hash = Digest::of(&[text]);
        self.seq = expected;
        self.at += u64::try_from(text.len()).expect("a length fits 64 bits") + 1;
        Ok(is_event.then_some(Line {
            seq: expected,
            lsn: Lsn::default(),
            timestamp,
            event_type: line.event_type.into_owned(),
            payload: line.payload.get().into(),
        }))
    }

    /// Checks that what was read ends at `head`.
    pub(super) fn meet(&self, head: &Head) -> Result<(), Fault> {
        if (self.at, self.hash, self.seq) == (head.bytes, head.hash, head.seq) {
            Ok(())
        } else {
            Err(Fault::Head)
        }
    }
}

/// The farthest place, the end of `anchor` at most, up to which a transcript is what was written.
pub(super) fn intact(reader: impl BufRead, run: &RunId, anchor: &Head) -> Cursor {
    let mut reader = reader.take(anchor.bytes);
    let mut cursor = Cursor::default();
    let mut text = Vec::new();
    while let Ok(1..) = reader.read_until(b'\n', &mut text) {
        if text.pop() != Some(b'\n') || cursor.pass(run, &text).is_err() {
            break;
        }
        text.clear();
    }
    cursor
}
