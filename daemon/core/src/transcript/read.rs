//! Reading the lines of a transcript.

use std::borrow::Cow;
use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CHECKPOINT, Head, length};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::id::{RunId, Seq};
use crate::seal::{Fingerprint, Token};

/// Members of a line.
#[derive(Debug, Deserialize)]
pub(super) struct Written<'a> {
    pub(super) seq: Seq,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    pub(super) run_id: RunId,
    #[serde(borrow)]
    pub(super) event_type: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) payload: &'a RawValue,
    pub(super) prev: Digest,
}

impl<'a> Written<'a> {
    /// Parses the line `text`, which begins at byte `at` and has no LF.
    pub(super) fn read(at: u64, text: &'a [u8]) -> Result<Self, TranscriptFault> {
        serde_json::from_slice(text).map_err(|source| TranscriptFault::Foreign(at, source))
    }

    pub(super) fn is_event(&self) -> bool {
        self.event_type != CHECKPOINT
    }

    pub(super) fn time(&self) -> Option<Timestamp> {
        Timestamp::parse(&self.timestamp)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Sealed<'a> {
    hash: Digest,
    state_hash: Digest,
    #[serde(borrow)]
    signature: Cow<'a, str>,
}

impl<'a> Sealed<'a> {
    pub(super) fn read(payload: &'a str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }

    pub(super) fn token(&self) -> Option<Token> {
        Token::parse(&self.signature)
    }
}

/// Position and kind of a transcript's first fault.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptFault {
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// The text ends within a line, or before a required checkpoint.
    #[error("what follows byte {0} is missing")]
    Short(u64),
    /// The line is longer than any written line.
    #[error("the line at byte {0} has more than {max} MiB", max = super::MAX_LINE_BYTES >> 20)]
    Long(u64),
    #[error("the line at byte {0} is not one of a transcript")]
    Foreign(u64, #[source] serde_json::Error),
    /// The line is of another run, or its position does not follow.
    #[error("the line at byte {0} does not follow the line before it")]
    Broken(u64),
    /// The next line names the hash of another line.
    #[error("the line at byte {0} is not the one that the next line names")]
    Replaced(u64),
    /// The text ends elsewhere than the record says.
    #[error("its last line is not the one on record")]
    Head,
    /// Text follows the end of the run.
    #[error("it holds more than was written, from byte {0} on")]
    Trailing(u64),
    /// First byte that differs from the written line.
    #[error("byte {0} is not what was written")]
    Differs(u64),
    /// The checkpoint has no signature, or its signature covers something else.
    #[error("the checkpoint at byte {0} is not signed for what precedes it")]
    Unsigned(u64),
    /// The checkpoint names a key that is not among the accepted ones.
    #[error(
        "the checkpoint at byte {at} is signed by the key {signer}, which is not one of those that it is checked with"
    )]
    UnknownKey {
        /// First byte of the checkpoint.
        at: u64,
        signer: Fingerprint,
    },
    /// The text ends before the run does.
    #[error("it ends at byte {0}, before its run does: it was cut, or the run has not ended yet")]
    Unended(u64),
}

/// A well-formed line of a transcript.
#[derive(Debug)]
pub enum TranscriptLine<'a> {
    Event {
        /// Position in the run.
        seq: Seq,
        /// Time of the commit.
        at: Timestamp,
        name: Cow<'a, str>,
        /// Content as JSON text; a long one is `{"object": <sha256>, "bytes": n}`.
        payload: &'a str,
    },
    /// The checkpoint after an event.
    Checkpoint(Checkpoint<'a>),
}

/// A checkpoint whose signature is not verified yet.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    seq: Seq,
    prev: Digest,
    payload: &'a str,
}

impl Checkpoint<'_> {
    /// Returns the token over the previous line, if it names that line and `state`, the hash over the facts of the
    /// state at that line.
    pub fn token(&self, run: &RunId, state: &Digest) -> Option<Token> {
        let sealed = Sealed::read(self.payload)?;
        let head = Head {
            seq: self.seq,
            bytes: 0,
            hash: self.prev,
            state: *state,
        };
        let token = sealed.token()?;
        let fits = (sealed.hash, sealed.state_hash) == (head.hash, head.state)
            && token.hash.parse() == Ok(head.digest(run));
        fits.then_some(token)
    }
}

/// Position of a reader in a transcript. All earlier lines are chained.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    /// Number of bytes read.
    pub at: u64,
    /// Hash of the last line read.
    hash: Digest,
    /// Position of the last event read.
    pub seq: Seq,
}

impl Cursor {
    /// Parses the line `text`, without its LF, of the transcript of `run`. It must follow the lines read earlier.
    pub fn pass<'a>(
        &mut self,
        run: &RunId,
        text: &'a [u8],
    ) -> Result<TranscriptLine<'a>, TranscriptFault> {
        let line = Written::read(self.at, text)?;
        let is_event = line.is_event();
        let expected = if is_event { self.seq.next() } else { self.seq };
        if line.prev != self.hash || line.run_id != *run || line.seq != expected {
            return Err(TranscriptFault::Broken(self.at));
        }
        let at = line.time().ok_or(TranscriptFault::Broken(self.at))?;
        self.hash = Digest::of(text);
        self.seq = expected;
        self.at += length(text) + 1;
        let payload = line.payload.get();
        Ok(if is_event {
            TranscriptLine::Event {
                seq: expected,
                at,
                name: line.event_type,
                payload,
            }
        } else {
            TranscriptLine::Checkpoint(Checkpoint {
                seq: expected,
                prev: line.prev,
                payload,
            })
        })
    }

    /// Checks that the lines read end at `head`.
    pub fn meet(&self, head: &Head) -> Result<(), TranscriptFault> {
        if (self.at, self.hash, self.seq) == (head.bytes, head.hash, head.seq) {
            Ok(())
        } else {
            Err(TranscriptFault::Head)
        }
    }
}
