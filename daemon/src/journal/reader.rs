//! The transcript of a run, read as it was written: line by line, each checked on the way.
//!
//! **Owns** how far it has been read, and the verdict. The file of the project is read up to where the log may be gone; what comes later
//! is rendered again from the log, for the file may be behind. A line is handed out once the line behind it, or the record, has pinned
//! it. **Never** repairs anything. **Failure.** Where a line is not what was
//! written the reading ends: what stood before it has been handed out, and the verdict says where and why.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rye_core::digest::Digest;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::memory::Charge;
use rye_core::transcript::{self, Cursor, Fault, Head};

use super::archive::Stored;
use super::record::Unreadable;
use super::run_stream::RunStream;
use super::transcript_file::{existing_transcript, transcript_path};
use super::{Error, Journal, Line, Shared, history};
use crate::task;

/// Lines are handed out in pieces of about this size.
const PIECE_BYTES: usize = 256 * 1024;

/// How a transcript is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extract {
    /// Only so many of the last events; `None` for all.
    pub tail: Option<usize>,
    /// Whether signatures, the end of the file and long payloads that are not shown are checked as well.
    pub verify: bool,
}

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenLine {
    /// As it stands in the file, without its line feed.
    pub text: String,
    /// The whole payload, if the line only names the object that holds it.
    pub payload: Option<Box<str>>,
}

/// What reading a transcript came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Where and why it is not what was written; `None` if it is.
    pub problem: Option<String>,
    /// Events that were found to be what was written.
    pub events: u64,
    /// Signed checkpoints among them.
    pub checkpoints: u64,
    /// Bytes of both.
    pub bytes: u64,
}

/// What a reader hands out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The lines that come next.
    Lines(Vec<WrittenLine>),
    /// There are no more.
    End(Verdict),
}

/// Reads one transcript.
#[derive(Debug)]
pub struct Reader(Option<Box<Reading>>);

impl Reader {
    /// The next lines, and last the verdict; `None` behind that, and behind an error: there is no memory for what comes next.
    pub async fn next(&mut self) -> Option<Result<Piece, Error>> {
        let reading = self.0.take()?;
        let read = task::blocking("read a transcript", move || reading.next());
        Some(read.await.map(|(piece, rest)| {
            self.0 = rest;
            piece
        }))
    }
}

/// Why a reading ends before the transcript does.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("the long payload of the line at byte {0} cannot be read")]
    Payload(u64, #[source] Box<Unreadable>),
}

/// A line that was passed.
struct Passed {
    text: String,
    /// The event, if it is one.
    event: Option<Line>,
    /// The byte at which it begins.
    at: u64,
    /// The byte at which the next one does.
    end: u64,
}

impl Passed {
    /// The memory that it takes, with the payload that belongs to it.
    fn takes(&self) -> usize {
        let spilled = self.event.as_ref().and_then(Line::spilled_bytes);
        self.text
            .len()
            .saturating_mul(2)
            .saturating_add(spilled.unwrap_or(0))
    }
}

/// How far a transcript has been read.
struct Reading {
    shared: Arc<Shared>,
    run: RunId,
    path: PathBuf,
    extract: Extract,
    source: Box<dyn BufRead + Send>,
    /// Where it should end.
    head: Head,
    cursor: Cursor,
    /// The line that was passed last: what it is pinned by comes behind it.
    held: Option<Passed>,
    /// The hash over the facts of the state so far.
    state: Digest,
    verdict: Verdict,
    /// What is held of it in memory.
    charge: Charge,
    /// What of that the lines take that were handed out last.
    handed_out: usize,
}

/// What there is of a transcript.
struct Extent {
    /// Its file is read up to here.
    anchor: Head,
    /// It ends here.
    head: Head,
    /// The lines between the two; `None` if nothing may follow in the file.
    rest: Option<Vec<u8>>,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading")
            .field("run", &self.run)
            .field("extract", &self.extract)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Reads the transcript of `id` as far as it is published now.
    pub async fn transcript(&self, id: &RunId, extract: Extract) -> Result<Reader, Error> {
        let shared = Arc::clone(&self.shared);
        let reading = if let Some(stream) = self.shared.stream(id) {
            let open = move || Reading::of_memory(shared, &stream, extract);
            task::blocking("open a transcript", open).await?
        } else {
            let Some(stored) = self.shared.archived(id).await? else {
                return Err(Error::Unknown { run: id.clone() });
            };
            let open = move || Reading::of_archive(shared, &stored, extract);
            task::blocking("open a transcript", open).await
        };
        Ok(Reader(Some(Box::new(reading))))
    }
}

impl Reading {
    /// Of a run in memory: the file up to the checkpoint of the daemon, and what the log has of it since. Blocks.
    fn of_memory(
        shared: Arc<Shared>,
        stream: &Arc<RunStream>,
        extract: Extract,
    ) -> Result<Self, Error> {
        loop {
            let (anchor, head) = {
                let published = stream.published();
                (published.anchor, published.head)
            };
            let (mut rest, mut charge) = (Vec::new(), shared.memory.open());
            let mut has_room = true;
            let rendered = history::render_again(&shared, stream, anchor, head, |_, lines| {
                has_room = has_room && charge.grow(lines.len());
                if has_room {
                    rest.extend_from_slice(lines);
                }
                Ok(())
            });
            match rendered {
                Ok(()) if !has_room => return Err(Error::memory_full(&shared.memory)),
                Ok(()) => {
                    let files = &stream.spec.files;
                    let extent = Extent {
                        anchor,
                        head,
                        rest: Some(rest),
                    };
                    return Ok(Self::open(
                        shared, &stream.id, files, extract, extent, charge,
                    ));
                }
                // A checkpoint came in between: the file has them now.
                Err(_) if stream.published().anchor.seq > anchor.seq => {}
                Err(source) => {
                    return Err(Error::DataLoss {
                        run: stream.id.clone(),
                        source: Box::new(source),
                    });
                }
            }
        }
    }

    /// Of a run that has ended and left memory: the file is all there is. Blocks.
    fn of_archive(shared: Arc<Shared>, stored: &Stored, extract: Extract) -> Self {
        let (run, head) = (&stored.run, stored.head);
        let files = &run.spec.files;
        let extent = Extent {
            anchor: head,
            head,
            rest: None,
        };
        let charge = shared.memory.open();
        Self::open(shared, &run.id, files, extract, extent, charge)
    }

    /// The file up to the anchor of `extent`, and behind it the rest.
    fn open(
        shared: Arc<Shared>,
        run: &RunId,
        files: &str,
        extract: Extract,
        extent: Extent,
        charge: Charge,
    ) -> Self {
        let Extent { anchor, head, rest } = extent;
        let mut reading = Self {
            shared,
            run: run.clone(),
            path: transcript_path(files, run),
            extract,
            source: Box::new(io::empty()),
            head,
            cursor: Cursor::default(),
            held: None,
            state: Digest::default(),
            verdict: Verdict::default(),
            charge,
            handed_out: 0,
        };
        let opened = Self::source(run, files, extract, anchor, rest);
        match opened {
            Ok(source) => reading.source = source,
            Err(fault) => reading.fail(&fault.into()),
        }
        reading
    }

    fn source(
        run: &RunId,
        files: &str,
        extract: Extract,
        anchor: Head,
        rest: Option<Vec<u8>>,
    ) -> Result<Box<dyn BufRead + Send>, Fault> {
        let may_follow = rest.is_some();
        let rest = rest.unwrap_or_default();
        let file = match existing_transcript(files, run) {
            // Nothing of it has to be there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound && anchor.bytes == 0 => {
                return Ok(Box::new(io::Cursor::new(rest)));
            }
            file => file.map_err(Fault::Read)?,
        };
        let length = file.metadata().map_err(Fault::Read)?.len();
        if extract.verify {
            if !may_follow && length > anchor.bytes {
                return Err(Fault::Behind(anchor.bytes));
            }
            let written = length.saturating_sub(anchor.bytes);
            let written = usize::try_from(written).unwrap_or(usize::MAX);
            let mut found = vec![0; written.min(rest.len())];
            file.read_exact_at(&mut found, anchor.bytes)
                .map_err(Fault::Read)?;
            if let Some(same) = found.iter().zip(&rest).position(|(a, b)| a != b) {
                let at = u64::try_from(same).unwrap_or(u64::MAX);
                return Err(Fault::Differs(anchor.bytes.saturating_add(at)));
            }
        }
        let of_file = BufReader::new(file).take(anchor.bytes);
        if length < anchor.bytes {
            // What follows is missing; it must not be mistaken for a line that does not fit.
            return Ok(Box::new(of_file));
        }
        Ok(Box::new(of_file.chain(io::Cursor::new(rest))))
    }

    /// The next lines, and what is left to read. Blocks.
    fn next(mut self: Box<Self>) -> Result<(Piece, Option<Box<Self>>), Error> {
        let mut lines: VecDeque<Passed> = VecDeque::new();
        let (mut bytes, mut events) = (0, 0);
        // What was handed out before has been sent.
        self.charge.shrink(std::mem::take(&mut self.handed_out));
        while self.verdict.problem.is_none() {
            let passed = match self.sure() {
                Ok(Some(passed)) => passed,
                Ok(None) => break,
                Err(problem) => {
                    self.fail(&problem);
                    break;
                }
            };
            let takes = passed.takes();
            if !self.charge.grow(takes) {
                return Err(Error::memory_full(&self.shared.memory));
            }
            self.handed_out += takes;
            bytes += passed.text.len();
            events += usize::from(passed.event.is_some());
            lines.push_back(passed);
            match self.extract.tail {
                None if bytes >= PIECE_BYTES => break,
                None => {}
                Some(tail) => {
                    while lines
                        .front()
                        .is_some_and(|line| events > tail || line.event.is_none())
                    {
                        let Some(dropped) = lines.pop_front() else {
                            break;
                        };
                        events -= usize::from(dropped.event.is_some());
                        self.charge.shrink(dropped.takes());
                        self.handed_out -= dropped.takes();
                    }
                }
            }
        }
        if lines.is_empty() {
            return Ok((Piece::End(self.verdict), None));
        }
        let lines = lines
            .into_iter()
            .map_while(|line| self.whole(line))
            .collect();
        Ok((Piece::Lines(lines), Some(self)))
    }

    /// The next line that is sure to be what was written: the line behind it says so, or the record. `None` behind the last.
    fn sure(&mut self) -> Result<Option<Passed>, Problem> {
        loop {
            let sure = if self.cursor.at < self.head.bytes {
                let passed = self.pass()?;
                self.held.replace(passed)
            } else {
                self.cursor.meet(&self.head)?;
                match self.held.take() {
                    None => return Ok(None),
                    last => last,
                }
            };
            if let Some(sure) = sure {
                match sure.event {
                    Some(_) => self.verdict.events += 1,
                    None => self.verdict.checkpoints += 1,
                }
                self.verdict.bytes = sure.end;
                return Ok(Some(sure));
            }
        }
    }

    fn fail(&mut self, problem: &Problem) {
        let (path, what) = (self.path.display(), with_sources(problem));
        self.verdict.problem = Some(format!("`{path}`: {what}"));
    }

    /// The line that comes next.
    fn pass(&mut self) -> Result<Passed, Problem> {
        let at = self.cursor.at;
        let left = self.head.bytes.saturating_sub(at);
        let mut text = Vec::new();
        // A line without end must not fill the memory.
        let mut line = io::Read::by_ref(&mut self.source).take(left);
        line.read_until(b'\n', &mut text).map_err(Fault::Read)?;
        if text.pop() != Some(b'\n') {
            return Err(Fault::Short(at).into());
        }
        let passed = self.cursor.pass(&self.run, &text)?;
        if let transcript::Passed::Checkpoint(checkpoint) = &passed
            && self.extract.verify
            && !self.is_signed(checkpoint)
        {
            return Err(Fault::Unsigned(at).into());
        }
        let event = Line::of_transcript(passed);
        if let Some(line) = &event {
            transcript::fold(&mut self.state, &line.event_type, &line.payload);
            if self.extract.verify && line.is_spilled() {
                self.payload(line, at)?;
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Passed {
            text,
            event,
            at,
            end: self.cursor.at,
        })
    }

    /// True if this node signed `checkpoint` for all that was read before it.
    fn is_signed(&self, checkpoint: &transcript::Checkpoint<'_>) -> bool {
        let token = checkpoint.token(&self.run, &self.state);
        token.is_some_and(|token| self.shared.signer.verifies(&token))
    }

    /// The payload of `line`, which lies elsewhere.
    fn payload(&self, line: &Line, at: u64) -> Result<Box<str>, Problem> {
        let whole = line.clone().whole(&self.shared.objects);
        let whole = whole.map_err(|source| Problem::Payload(at, Box::new(source)))?;
        Ok((&*whole.payload).into())
    }

    /// The line as it is handed out; `None` if its payload is gone.
    fn whole(&mut self, passed: Passed) -> Option<WrittenLine> {
        let spilled = passed.event.as_ref().filter(|line| line.is_spilled());
        let payload = spilled.map(|line| self.payload(line, passed.at));
        match payload.transpose() {
            Ok(payload) => Some(WrittenLine {
                text: passed.text,
                payload,
            }),
            Err(problem) => {
                self.fail(&problem);
                None
            }
        }
    }
}
