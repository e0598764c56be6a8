//! The transcript of a run: one JSON line per event, chained by hashes, with a signed checkpoint after each boundary.
//!
//! ```text
//! {"seq":6,"timestamp":"…","run_id":"…","event_type":"step_completed","payload":{…},"prev":"<hash of line 5>"}
//! {"seq":6,"timestamp":"…","run_id":"…","event_type":"checkpoint","payload":{"hash":"<hash of the line before>",
//!  "state_hash":"…","signature":"rye:signed:…"},"prev":"<the same hash>"}
//! ```
//!
//! **Owns** the format: writing a line ([`Head`]), reading one ([`Cursor`]), and checking a whole file without the
//! daemon that wrote it ([`verify`]). **Never** signs, and never decides which events a checkpoint follows: the writer
//! does both.
//!
//! **Format.** `prev` is the SHA-256 of the previous line without its LF, or 64 zeros in the first line. `state_hash`
//! folds the facts that make up the state, so that its cost does not grow with the state. It is `H(state_hash before ‖
//! event type ‖ LF ‖ payload)` at each `graph_started`, `step_completed` and `tool_completed`, and 64 zeros before the
//! first. The signature covers the SHA-256 of `rye:head:1 LF run LF seq LF hash LF state_hash`; its token carries the
//! time of the event. The bytes are a pure function of the events, the signatures and the fingerprint of the key.
//!
//! **Order.** Lines are written and read from first to last. **Failure.** Writing cannot fail. A reader stops at the
//! first [`TranscriptFault`], which names the byte.

mod read;
mod verify;

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::id::{RunId, Seq};
use crate::seal::{Fingerprint, Signature, Token};

pub use self::read::{Checkpoint, Cursor, TranscriptFault, TranscriptLine};
pub use self::verify::{MAX_LINE_BYTES, Verdict, verify};

/// The `event_type` of a checkpoint line, which is not an event.
pub const CHECKPOINT: &str = "checkpoint";

/// End of a transcript; its hashes pin every earlier byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// Position of the last event.
    pub seq: Seq,
    /// Length of the transcript in bytes.
    pub bytes: u64,
    /// Hash of the last line.
    pub hash: Digest,
    /// Hash over the facts of the state.
    pub state: Digest,
}

/// One event, ready to be written.
#[derive(Debug, Clone, Copy)]
pub struct Fact<'a> {
    pub run: &'a RunId,
    /// Position in the run.
    pub seq: Seq,
    /// Time of the commit.
    pub at: Timestamp,
    /// Name of the event, without a character that JSON escapes.
    pub name: &'a str,
    /// Content as JSON text on one line; a long one is `{"object": <sha256>, "bytes": n}`.
    pub payload: &'a str,
}

/// Signature of a checkpoint, over [`Head::digest`] after the line of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed<'a> {
    /// Signature over the hexadecimal digits of the digest.
    pub signature: Signature,
    pub signer: &'a Fingerprint,
}

impl Head {
    /// Appends the line of `event` to `out`, and its checkpoint if `signed` is given.
    pub fn write(&mut self, event: &Fact<'_>, signed: Option<&Signed<'_>>, out: &mut Vec<u8>) {
        self.write_event(event, out);
        if let Some(signed) = signed {
            self.write_checkpoint(event.run, event.at, signed, out);
        }
    }

    /// Appends the line of `event` to `out`.
    pub fn write_event(&mut self, event: &Fact<'_>, out: &mut Vec<u8>) {
        fold(&mut self.state, event.name, event.payload);
        self.seq = event.seq;
        self.write_line(event.run, event.at, event.name, event.payload, out);
    }

    /// Appends the checkpoint of the last written event to `out`; `at` is the time of the event.
    pub fn write_checkpoint(
        &mut self,
        run: &RunId,
        at: Timestamp,
        signed: &Signed<'_>,
        out: &mut Vec<u8>,
    ) {
        let token = Token {
            signed_at: at,
            hash: self.digest(run).to_string(),
            signature: signed.signature,
            signer: signed.signer.clone(),
        };
        let payload = format!(
            r#"{{"hash":"{}","state_hash":"{}","signature":"{token}"}}"#,
            self.hash, self.state
        );
        self.write_line(run, at, CHECKPOINT, &payload, out);
    }

    /// Returns the digest that the signature of a checkpoint at this head covers.
    pub fn digest(&self, run: &RunId) -> Digest {
        let Self {
            seq,
            bytes: _,
            hash,
            state,
        } = self;
        Digest::of(format!("rye:head:1\n{run}\n{seq}\n{hash}\n{state}"))
    }

    fn write_line(
        &mut self,
        run: &RunId,
        at: Timestamp,
        name: &str,
        payload: &str,
        out: &mut Vec<u8>,
    ) {
        let (seq, start) = (self.seq, out.len());
        write!(
            out,
            r#"{{"seq":{seq},"timestamp":"{at}","run_id":"{run}","event_type":"{name}","payload":{payload},"prev":"{}"}}"#,
            self.hash
        )
        .expect("writing to a Vec cannot fail");
        self.hash = Digest::of(&out[start..]);
        out.push(b'\n');
        self.bytes += length(&out[start..]);
    }
}

/// Folds an event into the hash over the facts of the state, if it is one of them.
pub fn fold(state: &mut Digest, name: &str, payload: &str) {
    if matches!(name, "graph_started" | "step_completed" | "tool_completed") {
        let facts = [state.as_bytes(), name.as_bytes(), b"\n", payload.as_bytes()];
        *state = Digest::of_parts(&facts);
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a length in memory fits 64 bits")
}

#[cfg(test)]
mod tests;
