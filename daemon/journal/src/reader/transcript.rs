//! The transcript of a run, rendered from its events and their stored signatures.
//!
//! **Owns** the progress of the rendering, and the verdict. **Never** repairs anything. With [`Extract::verify`] every
//! signature is checked, and the file in the project is compared as far as it reaches: it is an export, which may be
//! late or missing. **Failure.** Where history or the file is not what was written, the reading ends. The lines before
//! it have been returned, and the verdict has the place and the reason.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::memory::Charge;
use rye_core::seal::Token;
use rye_core::transcript::{Fact, Head, Signed, TranscriptFault};

use super::event_store::EventStore;
use super::run_pages::{Event, Source};
use crate::error::Error;
use crate::log::size;
use crate::options::Signer;
use crate::record::{Line, Unreadable};
use rye_host::safe_path::Dir;
use rye_host::task;

/// Approximate number of bytes of lines that are returned together.
const PIECE_BYTES: usize = 256 * 1024;
/// Name of the file in the directory of a run.
const TRANSCRIPT: &str = "transcript.jsonl";

/// Path below a `files` directory that contains the directories of runs.
pub const THREADS: &str = "state/threads";

/// Options for reading a transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extract {
    /// Number of the last events to read; `None` for all.
    pub tail: Option<usize>,
    /// True to check signatures, the file, and long payloads that are not shown.
    pub verify: bool,
}

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenLine {
    /// The line as in the file, without its line feed.
    pub text: String,
    /// The whole payload, if the line only has the reference to its object.
    pub payload: Option<Box<str>>,
}

/// The result of reading a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Place and reason of the first difference from what was written; `None` if there is none.
    pub problem: Option<String>,
    /// Number of events before that.
    pub events: u64,
    /// Number of checkpoints before that.
    pub checkpoints: u64,
    /// Bytes of the events and checkpoints before that.
    pub bytes: u64,
}

/// An item of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Lines(Vec<WrittenLine>),
    /// There are no more lines.
    End(Verdict),
}

/// Reads one transcript, a piece at a time.
#[derive(Debug)]
pub struct Reader(Option<Box<Reading>>);

impl Reader {
    /// Opens the transcript of `run` up to the events that are published now.
    pub(crate) async fn open(
        store: &Arc<EventStore>,
        signer: Arc<dyn Signer>,
        run: &RunId,
        extract: Extract,
    ) -> Result<Self, Error> {
        let source = Source::find(store, run).await?;
        let store = Arc::clone(store);
        let open = move || Reading::open(store, signer, source, extract);
        let reading = task::blocking("open a transcript", open).await;
        Ok(Self(Some(Box::new(reading))))
    }

    /// Returns the next lines, and at the end the verdict; `None` after that, and after an error.
    pub async fn next(&mut self) -> Option<Result<Piece, Error>> {
        let reading = self.0.take()?;
        let read = task::blocking("read a transcript", move || reading.next());
        Some(read.await.map(|(piece, rest)| {
            self.0 = rest;
            piece
        }))
    }
}

struct Rendered {
    text: Vec<u8>,
    /// The event, or `None` for a checkpoint.
    event: Option<Line>,
}

impl Rendered {
    /// Bytes of memory that the line takes, with its long payload.
    fn takes(&self) -> usize {
        let long = self.event.as_ref().and_then(Line::spilled_bytes);
        self.text
            .len()
            .saturating_mul(2)
            .saturating_add(long.unwrap_or(0))
    }
}

/// Progress of reading a transcript.
struct Reading {
    store: Arc<EventStore>,
    signer: Arc<dyn Signer>,
    source: Source,
    extract: Extract,
    /// End of the rendered part.
    head: Head,
    /// Expected end of the transcript.
    end: Head,
    /// The file in the project, read up to the compared part.
    file: Option<BufReader<File>>,
    path: PathBuf,
    /// Rendered lines that are not returned yet.
    ready: VecDeque<Rendered>,
    verdict: Verdict,
    charge: Charge,
    /// Part of `charge` for the lines that were returned last.
    handed_out: usize,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading")
            .field("run", self.run())
            .field("extract", &self.extract)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// Opens the file if the transcript is to be verified. Blocks.
    fn open(
        store: Arc<EventStore>,
        signer: Arc<dyn Signer>,
        source: Source,
        extract: Extract,
    ) -> Self {
        let (end, files) = (source.head(), source.files().to_owned());
        let mut reading = Self {
            charge: store.memory.open(),
            path: transcript_path(&files, source.run()),
            store,
            signer,
            extract,
            head: Head::default(),
            end,
            file: None,
            ready: VecDeque::new(),
            verdict: Verdict::default(),
            handed_out: 0,
            source,
        };
        if extract.verify {
            match existing_transcript(&files, reading.run()) {
                Ok(file) => reading.file = Some(BufReader::new(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => reading.fail_in_file(&TranscriptFault::Read(error)),
            }
        }
        reading
    }

    fn run(&self) -> &RunId {
        self.source.run()
    }

    /// Returns the next lines and the remaining reading. Blocks.
    fn next(mut self: Box<Self>) -> Result<(Piece, Option<Box<Self>>), Error> {
        let mut lines: VecDeque<Rendered> = VecDeque::new();
        let (mut bytes, mut events) = (0, 0);
        // The lines that were returned before have been sent.
        self.charge.shrink(std::mem::take(&mut self.handed_out));
        while self.verdict.problem.is_none() {
            let Some(line) = self.line()? else { break };
            let takes = line.takes();
            if !self.charge.grow(takes) {
                return Err(Error::memory_full(&self.store.memory));
            }
            self.handed_out += takes;
            bytes += line.text.len();
            events += usize::from(line.event.is_some());
            lines.push_back(line);
            let Some(tail) = self.extract.tail else {
                if bytes >= PIECE_BYTES {
                    break;
                }
                continue;
            };
            let is_too_early = |line: &Rendered, events| events > tail || line.event.is_none();
            while let Some(dropped) = lines.pop_front_if(|line| is_too_early(line, events)) {
                events -= usize::from(dropped.event.is_some());
                self.charge.shrink(dropped.takes());
                self.handed_out -= dropped.takes();
            }
        }
        if lines.is_empty() {
            return Ok((Piece::End(self.verdict), None));
        }
        let lines = lines.into_iter().map_while(|line| self.whole(line));
        let lines = lines.collect();
        Ok((Piece::Lines(lines), Some(self)))
    }

    /// Returns the next line, or `None` at the end or at a difference.
    fn line(&mut self) -> Result<Option<Rendered>, Error> {
        if self.ready.is_empty() && self.head.seq < self.end.seq {
            let next = self.head.seq.next();
            match self.source.read(&self.store, next, self.end.seq) {
                Ok(page) => page.events.into_iter().for_each(|event| self.render(event)),
                Err(error @ Error::DataLoss { .. }) => {
                    self.verdict.problem = Some(with_sources(&error));
                }
                Err(error) => return Err(error),
            }
        }
        let Some(line) = self.ready.pop_front() else {
            if self.verdict.problem.is_none() {
                self.end();
            }
            return Ok(None);
        };
        if let Err(fault) = self.compare(&line.text) {
            self.fail_in_file(&fault);
            return Ok(None);
        }
        match line.event {
            Some(_) => self.verdict.events += 1,
            None => self.verdict.checkpoints += 1,
        }
        self.verdict.bytes += size(line.text.len()) + 1;
        Ok(Some(line))
    }

    /// Renders the line of `event`, and its checkpoint.
    fn render(&mut self, event: Event) {
        if self.verdict.problem.is_some() {
            return;
        }
        let run = self.source.run().clone();
        let fact = Fact {
            run: &run,
            seq: event.line.seq,
            at: event.line.timestamp,
            name: &event.line.event_type,
            payload: &event.line.payload,
        };
        let mut text = Vec::new();
        self.head.write_event(&fact, &mut text);
        text.pop();
        let mut checkpoint = None;
        if let Some((signature, signer)) = &event.signed {
            let token = Token {
                signed_at: fact.at,
                hash: self.head.digest(&run).to_string(),
                signature: *signature,
                signer: signer.clone(),
            };
            let is_signed = !self.extract.verify || self.signer.verifies(&token);
            let mut text = Vec::new();
            let signature = *signature;
            let signed = Signed { signature, signer };
            self.head
                .write_checkpoint(&run, fact.at, &signed, &mut text);
            text.pop();
            checkpoint = Some(text).filter(|_| is_signed);
            if !is_signed {
                let seq = fact.seq;
                let what = "the signature does not cover what history holds up to there";
                self.verdict.problem = Some(format!("event {seq} of run {run}: {what}"));
            }
        }
        let long = Some(&event.line).filter(|line| self.extract.verify && line.is_spilled());
        if let Some(Err(error)) = long.map(|line| self.payload(line)) {
            self.fail(event.line.seq, &error);
            return;
        }
        let event = Some(event.line);
        self.ready.push_back(Rendered { text, event });
        let checkpoint = checkpoint.map(|text| Rendered { text, event: None });
        self.ready.extend(checkpoint);
    }

    /// Compares the next line of the file, if there is one, with `text`.
    fn compare(&mut self, text: &[u8]) -> Result<(), TranscriptFault> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut found = Vec::new();
        let most = size(text.len()) + 1;
        file.take(most)
            .read_to_end(&mut found)
            .map_err(TranscriptFault::Read)?;
        let expected = text.iter().chain(b"\n");
        if let Some(same) = found.iter().zip(expected).position(|(a, b)| a != b) {
            return Err(TranscriptFault::Differs(self.verdict.bytes + size(same)));
        }
        if size(found.len()) < most {
            // The file is an export, and late.
            self.file = None;
        }
        Ok(())
    }

    /// Checks that all lines end at the recorded head, and that the file has no further bytes.
    fn end(&mut self) {
        if self.head != self.end {
            let run = self.run();
            let what = "its events do not lead to the head on record";
            self.verdict.problem = Some(format!("run {run}: {what}"));
        } else if let (Source::Ended(_), Some(file)) = (&self.source, &mut self.file)
            && file.read(&mut [0]).is_ok_and(|read| read > 0)
        {
            let fault = TranscriptFault::Trailing(self.verdict.bytes);
            self.fail_in_file(&fault);
        }
    }

    fn fail_in_file(&mut self, fault: &TranscriptFault) {
        let (path, what) = (self.path.display(), with_sources(fault));
        self.verdict.problem = Some(format!("`{path}`: {what}"));
    }

    fn fail(&mut self, seq: rye_core::id::Seq, error: &Unreadable) {
        let what = with_sources(error);
        self.verdict.problem = Some(format!("event {seq} of run {}: {what}", self.run()));
    }

    /// Reads the payload of `line`, which an object holds.
    fn payload(&self, line: &Line) -> Result<Box<str>, Unreadable> {
        let whole = line.clone().whole(&self.store.runs.objects)?;
        Ok((&*whole.payload).into())
    }

    /// Returns the line for the caller; `None` if its payload cannot be read.
    fn whole(&mut self, line: Rendered) -> Option<WrittenLine> {
        let Rendered { text, event } = line;
        let text = String::from_utf8(text).expect("it was rendered of texts");
        let long = event.filter(Line::is_spilled);
        let payload = |event: Line| self.payload(&event).map_err(|error| (event.seq, error));
        match long.map(payload).transpose() {
            Ok(payload) => Some(WrittenLine { text, payload }),
            Err((seq, error)) => {
                self.fail(seq, &error);
                None
            }
        }
    }
}

fn transcript_path(files: &str, run: &RunId) -> PathBuf {
    let directory = Path::new(files).join(THREADS).join(run.as_str());
    directory.join(TRANSCRIPT)
}

/// Opens the transcript file of a run whose files are below `files`.
fn existing_transcript(files: &str, run: &RunId) -> io::Result<File> {
    let directory = Path::new(THREADS).join(run.as_str());
    let directory = Dir::root(Path::new(files))?.enter(&directory)?;
    let file = directory.look(TRANSCRIPT)?;
    file.ok_or_else(|| io::ErrorKind::NotFound.into())
}
