//! Checking a whole transcript from its text and public keys alone.
//!
//! Each line is written again from what it says and compared byte for byte, so nothing in a line is left to how JSON is read.
//! **Order**: line by line, one in memory at a time. **Failure**: it ends at the first fault. What is before the last checkpoint that
//! passed is proved by a signature; what is between that and the fault has the right form and no more.

use std::io::{self, BufRead};

use super::read::{Fault, Sealed, Written};
use super::{Fact, Head, Signed, length};
use crate::clock::Timestamp;
use crate::id::{RunId, Seq};
use crate::model::Event;
use crate::seal::{Fingerprint, PublicKey};

/// Most bytes of a line, with its LF. Those that are written have less: long payloads are objects.
pub const MAX_LINE_BYTES: u64 = 64 << 20;

/// Result of checking a transcript.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The run that the first line names; `None` if there is no such line.
    pub run: Option<RunId>,
    /// Events that a signature proves.
    pub events: u64,
    /// Checkpoints whose signatures prove them.
    pub checkpoints: u64,
    /// Bytes of both, from the first of the transcript on.
    pub bytes: u64,
    /// The keys that signed, in the order of their first checkpoints.
    pub signers: Vec<Fingerprint>,
    /// Why it is not the whole transcript of a run that has ended; `None` if it is.
    pub fault: Option<Fault>,
}

/// Checks that `lines` are the whole transcript of a run that has ended, signed with some of `keys`.
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

/// The line that was checked last.
#[derive(Debug, Clone, Copy)]
enum Last {
    /// A checkpoint of a run that goes on, or no line at all.
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

/// A check in progress.
struct Check<'a> {
    keys: &'a [PublicKey],
    /// The end of what was checked.
    head: Head,
    last: Last,
    verdict: Verdict,
    /// The line at hand, as it is written.
    rendered: Vec<u8>,
}

impl Check<'_> {
    fn all(&mut self, lines: &mut impl BufRead) -> Result<(), Fault> {
        let mut text = Vec::new();
        while self.read(lines, &mut text)? {
            self.line(&text)?;
        }
        match self.last {
            Last::End => Ok(()),
            Last::Event { ends: true, .. } => Err(Fault::Short(self.head.bytes)),
            Last::Event { ends: false, .. } | Last::Checkpoint => {
                Err(Fault::Unended(self.head.bytes))
            }
        }
    }

    /// Puts the next line, with its LF, into `text`; false if there is none.
    fn read(&self, lines: &mut impl BufRead, text: &mut Vec<u8>) -> Result<bool, Fault> {
        let at = self.head.bytes;
        text.clear();
        let mut line = io::Read::take(&mut *lines, MAX_LINE_BYTES);
        line.read_until(b'\n', text).map_err(Fault::Read)?;
        match (text.last(), self.last) {
            (None, _) => Ok(false),
            (Some(_), Last::End) => Err(Fault::Behind(at)),
            (Some(b'\n'), Last::Checkpoint | Last::Event { .. }) => Ok(true),
            (Some(_), _) if length(text) == MAX_LINE_BYTES => Err(Fault::Long(at)),
            (Some(_), Last::Checkpoint | Last::Event { .. }) => Err(Fault::Short(at)),
        }
    }

    fn line(&mut self, text: &[u8]) -> Result<(), Fault> {
        let line = Written::read(self.head.bytes, text.strip_suffix(b"\n").unwrap_or(text))?;
        let run = self.verdict.run.get_or_insert_with(|| line.run_id.clone());
        let run = run.clone();
        if line.is_event() {
            self.event(&run, &line, text)
        } else {
            self.checkpoint(&run, &line, text)
        }
    }

    fn event(&mut self, run: &RunId, line: &Written<'_>, text: &[u8]) -> Result<(), Fault> {
        let start = self.head.bytes;
        let time = line.time().ok_or(Fault::Broken(start))?;
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

    fn checkpoint(&mut self, run: &RunId, line: &Written<'_>, text: &[u8]) -> Result<(), Fault> {
        let start = self.head.bytes;
        let Last::Event { at, ends, .. } = self.last else {
            return Err(Fault::Broken(start));
        };
        let token = Sealed::read(line.payload.get()).and_then(|sealed| sealed.token());
        let token = token.ok_or(Fault::Unsigned(start))?;
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
            return Err(Fault::UnknownKey {
                at: start,
                signer: token.signer,
            });
        };
        if !key.verifies(&digest, &token.signature) {
            return Err(Fault::Unsigned(start));
        }
        self.prove(token.signer);
        self.last = if ends { Last::End } else { Last::Checkpoint };
        Ok(())
    }

    /// Checks that `line` has the position `seq` and names the line before it. All else the comparison finds.
    fn follows(&self, line: &Written<'_>, seq: Seq) -> Result<(), Fault> {
        if line.seq != seq {
            return Err(Fault::Broken(self.head.bytes));
        }
        match self.last {
            Last::Event { start, .. } if line.prev != self.head.hash => Err(Fault::Replaced(start)),
            // A signature proves the line before, so that this one is wrong.
            Last::Event { .. } | Last::Checkpoint | Last::End => Ok(()),
        }
    }

    /// Checks that `text` is what `write` writes next, and takes it as read.
    fn is_written(
        &mut self,
        text: &[u8],
        write: impl FnOnce(&mut Head, &mut Vec<u8>),
    ) -> Result<(), Fault> {
        let (start, mut head) = (self.head.bytes, self.head);
        self.rendered.clear();
        write(&mut head, &mut self.rendered);
        if *text != *self.rendered {
            let same = text.iter().zip(&self.rendered).take_while(|(a, b)| a == b);
            let same = u64::try_from(same.count()).expect("a length in memory fits 64 bits");
            return Err(Fault::Differs(start + same));
        }
        self.head = head;
        Ok(())
    }

    /// A signature of `signer` proves all that was read.
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
