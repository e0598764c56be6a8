//! Verification of a whole transcript by its text and public keys alone.
//!
//! Each line is rendered again from its parsed members and compared byte for byte, so no result depends on JSON
//! parsing. **Order**: line by line, one in memory at a time. **Failure**: verification ends at the first fault. A
//! signature proves everything up to the last valid checkpoint. The lines between that and the fault are only
//! well-formed.

use std::io::{self, BufRead};

use super::read::{Sealed, TranscriptFault, Written};
use super::{Fact, Head, Signed, length};
use crate::clock::Timestamp;
use crate::id::{RunId, Seq};
use crate::model::Event;
use crate::seal::{Fingerprint, PublicKey};

/// Size limit of a line with its LF, in bytes. Written lines are shorter, because long payloads are objects.
pub const MAX_LINE_BYTES: u64 = 64 << 20;

/// Result of verifying a transcript.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Run that the first line names; `None` if there is no such line.
    pub run: Option<RunId>,
    /// Number of events that a signature proves.
    pub events: u64,
    /// Number of checkpoints with a valid signature.
    pub checkpoints: u64,
    /// Length of the proved part, in bytes from the start of the transcript.
    pub bytes: u64,
    /// Keys that signed, in the order of their first checkpoints.
    pub signers: Vec<Fingerprint>,
    /// First fault; `None` if `lines` are the whole transcript of an ended run.
    pub fault: Option<TranscriptFault>,
}

/// Verifies that `lines` are the whole transcript of an ended run, signed with some of `keys`.
pub fn verify(mut lines: impl BufRead, keys: &[PublicKey]) -> Verdict {
    let mut check = Check {
        keys,
        head: Head::default(),
        last: Last::Checkpoint,
        verdict: Verdict::default(),
        rendered: Vec::new(),
    };
    let fault = check.all(&mut lines).err();
    Verdict {
        fault,
        ..check.verdict
    }
}

/// Kind of the line that was checked last.
#[derive(Debug, Clone, Copy)]
enum Last {
    /// A checkpoint of a run that continues, or no line at all.
    Checkpoint,
    /// The event at byte `start`.
    Event {
        start: u64,
        at: Timestamp,
        ends: bool,
    },
    /// The checkpoint of the event that ended the run.
    End,
}

/// A verification in progress.
struct Check<'a> {
    keys: &'a [PublicKey],
    /// End of the checked part.
    head: Head,
    last: Last,
    verdict: Verdict,
    /// The current line, rendered again.
    rendered: Vec<u8>,
}

impl Check<'_> {
    fn all(&mut self, lines: &mut impl BufRead) -> Result<(), TranscriptFault> {
        let mut text = Vec::new();
        while self.read(lines, &mut text)? {
            self.line(&text)?;
        }
        match self.last {
            Last::End => Ok(()),
            Last::Event { ends: true, .. } => Err(TranscriptFault::Short(self.head.bytes)),
            Last::Event { ends: false, .. } | Last::Checkpoint => {
                Err(TranscriptFault::Unended(self.head.bytes))
            }
        }
    }

    /// Reads the next line, with its LF, into `text`. Returns false at the end of the file.
    fn read(&self, lines: &mut impl BufRead, text: &mut Vec<u8>) -> Result<bool, TranscriptFault> {
        let at = self.head.bytes;
        text.clear();
        let mut line = io::Read::take(&mut *lines, MAX_LINE_BYTES);
        line.read_until(b'\n', text)
            .map_err(TranscriptFault::Read)?;
        match (text.last(), self.last) {
            (None, _) => Ok(false),
            (Some(_), Last::End) => Err(TranscriptFault::Trailing(at)),
            (Some(b'\n'), Last::Checkpoint | Last::Event { .. }) => Ok(true),
            (Some(_), _) if length(text) == MAX_LINE_BYTES => Err(TranscriptFault::Long(at)),
            (Some(_), Last::Checkpoint | Last::Event { .. }) => Err(TranscriptFault::Short(at)),
        }
    }

    fn line(&mut self, text: &[u8]) -> Result<(), TranscriptFault> {
        let line = Written::read(self.head.bytes, text.strip_suffix(b"\n").unwrap_or(text))?;
        let run = self.verdict.run.get_or_insert_with(|| line.run_id.clone());
        let run = run.clone();
        if line.is_event() {
            self.event(&run, &line, text)
        } else {
            self.checkpoint(&run, &line, text)
        }
    }

    fn event(
        &mut self,
        run: &RunId,
        line: &Written<'_>,
        text: &[u8],
    ) -> Result<(), TranscriptFault> {
        let start = self.head.bytes;
        let time = line.time().ok_or(TranscriptFault::Broken(start))?;
        let fact = Fact {
            run,
            seq: self.head.seq.next(),
            at: time,
            name: &line.event_type,
            payload: line.payload.get(),
        };
        self.follows(line, fact.seq)?;
        self.is_written(text, |head, out| head.write_event(&fact, out))?;
        self.last = Last::Event {
            start,
            at: time,
            ends: Event::ends_run(fact.name),
        };
        Ok(())
    }

    fn checkpoint(
        &mut self,
        run: &RunId,
        line: &Written<'_>,
        text: &[u8],
    ) -> Result<(), TranscriptFault> {
        let start = self.head.bytes;
        let Last::Event { at, ends, .. } = self.last else {
            return Err(TranscriptFault::Broken(start));
        };
        let token = Sealed::read(line.payload.get()).and_then(|sealed| sealed.token());
        let token = token.ok_or(TranscriptFault::Unsigned(start))?;
        let signed = Signed {
            signature: token.signature,
            signer: &token.signer,
        };
        self.follows(line, self.head.seq)?;
        let digest = self.head.digest(run).to_string();
        self.is_written(text, |head, out| {
            head.write_checkpoint(run, at, &signed, out);
        })?;
        let key = self
            .keys
            .iter()
            .find(|key| *key.fingerprint() == token.signer);
        let Some(key) = key else {
            return Err(TranscriptFault::UnknownKey {
                at: start,
                signer: token.signer,
            });
        };
        if !key.verifies(&digest, &token.signature) {
            return Err(TranscriptFault::Unsigned(start));
        }
        self.prove(token.signer);
        self.last = if ends { Last::End } else { Last::Checkpoint };
        Ok(())
    }

    /// Checks that `line` has the position `seq` and names the previous line. The comparison of bytes finds all other
    /// faults.
    fn follows(&self, line: &Written<'_>, seq: Seq) -> Result<(), TranscriptFault> {
        if line.seq != seq {
            return Err(TranscriptFault::Broken(self.head.bytes));
        }
        match self.last {
            Last::Event { start, .. } if line.prev != self.head.hash => {
                Err(TranscriptFault::Replaced(start))
            }
            // A signature proves the previous line, so this line is wrong.
            Last::Event { .. } | Last::Checkpoint | Last::End => Ok(()),
        }
    }

    /// Checks that `text` is what `write` writes next, and advances the head.
    fn is_written(
        &mut self,
        text: &[u8],
        write: impl FnOnce(&mut Head, &mut Vec<u8>),
    ) -> Result<(), TranscriptFault> {
        let (start, mut head) = (self.head.bytes, self.head);
        self.rendered.clear();
        write(&mut head, &mut self.rendered);
        if *text != *self.rendered {
            let same = text.iter().zip(&self.rendered).take_while(|(a, b)| a == b);
            let same = u64::try_from(same.count()).expect("a length in memory fits 64 bits");
            return Err(TranscriptFault::Differs(start + same));
        }
        self.head = head;
        Ok(())
    }

    /// Records that a signature of `signer` proves all lines read so far.
    fn prove(&mut self, signer: Fingerprint) {
        let verdict = &mut self.verdict;
        verdict.events = self.head.seq.0;
        verdict.checkpoints += 1;
        verdict.bytes = self.head.bytes;
        if !verdict.signers.contains(&signer) {
            verdict.signers.push(signer);
        }
    }
}
