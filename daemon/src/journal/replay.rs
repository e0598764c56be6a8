//! What a run has done so far, read back a page at a time: from the log while it holds the events, from the verified transcript before.
//!
//! **Owns** how far the transcript has been read. A page is all of a history that is in memory at once, and is counted among what all
//! runs hold as long as somebody keeps it; who finds no room reads on later, from where it stands. **Order.** Of the transcript
//! nothing is handed out before all of it, up to where the record says that it is on disk, was found to be what was written; it
//! is checked once more as its lines are read. Between two pages the log may have been dropped behind a checkpoint, and the run may have
//! ended and left memory: what comes next is looked for where it lies then. **Failure.** Where a transcript is not what was written there
//! is nothing to read.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Weak};

use rye_core::id::{Lsn, RunId, Seq};
use rye_core::memory::Charge;
use rye_core::transcript::{Cursor, Fault, Head};

use super::archive::Stored;
use super::history::{damaged, each_record};
use super::run_stream::RunStream;
use super::transcript_file::existing_transcript;
use super::{Error, Line, Shared};
use crate::task;

/// Bytes of payloads at which a page is full.
const PAGE_BYTES: usize = 128 << 10;
/// Events of a page at most.
const PAGE_EVENTS: usize = 512;

/// The events of a page, and the memory that they take.
pub(super) type Read = (Vec<Line>, Charge);

/// A page as it grows.
#[derive(Default)]
struct Page {
    lines: Vec<Line>,
    bytes: usize,
}

impl Page {
    fn push(&mut self, line: Line) -> ControlFlow<()> {
        self.bytes += line.payload.len();
        self.lines.push(line);
        if self.bytes >= PAGE_BYTES || self.lines.len() >= PAGE_EVENTS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Reads the events of one run. See the module.
#[derive(Debug)]
pub(super) struct Replay {
    shared: Arc<Shared>,
    source: Source,
    transcript: Option<Transcript>,
}

/// Where the events of a run are.
#[derive(Debug)]
enum Source {
    /// It is in memory.
    Memory(Arc<RunStream>),
    /// It has ended and left memory: the transcript is all there is.
    Archive(Box<Stored>),
}

/// Where a reader who listens goes back to if it falls behind. Nothing of the journal is kept alive or open for it, so that the end
/// of the journal is the end of the feeds.
#[derive(Debug)]
pub(super) struct Bookmark {
    shared: Weak<Shared>,
    run: RunId,
}

impl Bookmark {
    pub(super) async fn open(self) -> Result<Replay, Error> {
        let shared = self.shared.upgrade().ok_or(Error::Closed)?;
        Replay::open(&shared, &self.run).await
    }
}

impl Replay {
    pub(super) async fn open(shared: &Arc<Shared>, run: &RunId) -> Result<Self, Error> {
        if let Some(stream) = shared.stream(run) {
            return Ok(Self::of_memory(shared, stream));
        }
        let stored = shared.archived(run).await?;
        let stored = stored.ok_or_else(|| Error::Unknown { run: run.clone() })?;
        Ok(Self::of_archive(shared, stored))
    }

    pub(super) fn bookmark(&self) -> Bookmark {
        let run = match &self.source {
            Source::Memory(stream) => &stream.id,
            Source::Archive(stored) => &stored.run.id,
        };
        Bookmark {
            shared: Arc::downgrade(&self.shared),
            run: run.clone(),
        }
    }

    fn of_memory(shared: &Arc<Shared>, stream: Arc<RunStream>) -> Self {
        Self::new(shared, Source::Memory(stream))
    }

    fn of_archive(shared: &Arc<Shared>, stored: Stored) -> Self {
        Self::new(shared, Source::Archive(Box::new(stored)))
    }

    fn new(shared: &Arc<Shared>, source: Source) -> Self {
        Self {
            shared: Arc::clone(shared),
            source,
            transcript: None,
        }
    }

    /// The run, if it is in memory.
    pub(super) const fn stream(&self) -> Option<&Arc<RunStream>> {
        match &self.source {
            Source::Memory(stream) => Some(stream),
            Source::Archive(_) => None,
        }
    }

    /// The last event that there is now.
    pub(super) fn last(&self) -> Seq {
        match &self.source {
            Source::Memory(stream) => stream.head().seq,
            Source::Archive(stored) => stored.head.seq,
        }
    }

    /// The events from `next` to `last` at most that fit on a page; one at least, unless there is none.
    pub(super) async fn page(mut self, next: Seq, last: Seq) -> (Self, Result<Read, Error>) {
        let mut charge = self.shared.memory.open();
        // Nothing stands before the first event, in particular no transcript that would have to be there.
        let next = next.max(Seq(1));
        if next > last {
            return (self, Ok((Vec::new(), charge)));
        }
        if !charge.grow(PAGE_BYTES) {
            let full = Error::memory_full(&self.shared.memory);
            return (self, Err(full));
        }
        loop {
            let work = move || {
                let page = self.read(next, last);
                (self, page)
            };
            let (read, page) = task::blocking("read a history", work).await;
            self = read;
            if !matches!(page, Err(Error::DataLoss { .. })) {
                let read = page.map(|lines| {
                    let bytes = lines.iter().map(|line| line.payload.len()).sum();
                    charge.shrink(PAGE_BYTES.saturating_sub(bytes));
                    (lines, charge)
                });
                return (self, read);
            }
            // It may have ended and been archived while we read: the archive knows its final head.
            match self.moved().await {
                Ok(true) => {}
                Ok(false) => return (self, page.map(|lines| (lines, charge))),
                Err(error) => return (self, Err(error)),
            }
        }
    }

    /// Whether the run has left memory since, and is looked for in the archive from now on.
    async fn moved(&mut self) -> Result<bool, Error> {
        let Source::Memory(stream) = &self.source else {
            return Ok(false);
        };
        let has_left = stream.rest.borrow().ended && self.shared.stream(&stream.id).is_none();
        if !has_left {
            return Ok(false);
        }
        let Some(stored) = self.shared.archived(&stream.id).await? else {
            return Ok(false);
        };
        self.source = Source::Archive(Box::new(stored));
        Ok(true)
    }

    fn read(&mut self, next: Seq, last: Seq) -> Result<Vec<Line>, Error> {
        let transcript = &mut self.transcript;
        let stream = match &self.source {
            Source::Memory(stream) => stream,
            Source::Archive(stored) => {
                let run = &stored.run;
                return of_transcript(
                    transcript,
                    &run.spec.files,
                    &run.id,
                    &stored.head,
                    next,
                    last,
                );
            }
        };
        loop {
            let (anchor, places) = {
                let published = stream.published();
                let most = u64::try_from(PAGE_EVENTS).unwrap_or(u64::MAX);
                let last = last.min(Seq(next.0.saturating_add(most)));
                (published.anchor, published.places(next, last))
            };
            if next <= anchor.seq {
                let files = &stream.spec.files;
                return of_transcript(transcript, files, &stream.id, &anchor, next, last);
            }
            match of_log(&self.shared, stream, &places) {
                Ok(lines) => return Ok(lines),
                // A checkpoint came in between: the transcript has them now.
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
}

/// The pages of a history, up to the event that was the last when it was asked for.
#[derive(Debug)]
pub(super) struct Pages {
    /// `None` behind the last page.
    replay: Option<Replay>,
    next: Seq,
    last: Seq,
    /// What the last page takes.
    charge: Option<Charge>,
}

impl Pages {
    pub(super) fn new(replay: Replay) -> Self {
        Self::up_to(replay, None)
    }

    /// The same, up to the event `last` if one is named.
    pub(super) fn up_to(replay: Replay, last: Option<Seq>) -> Self {
        Self {
            last: last.unwrap_or_else(|| replay.last()),
            replay: Some(replay),
            next: Seq(1),
            charge: None,
        }
    }

    /// The next page; `None` behind the last. Nobody keeps the one before any more.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Line>>, Error> {
        self.charge = None;
        let Some(replay) = self.replay.take() else {
            return Ok(None);
        };
        let (replay, page) = replay.page(self.next, self.last).await;
        let (page, charge) = page?;
        let Some(end) = page.last() else {
            return Ok(None);
        };
        self.charge = Some(charge);
        self.next = end.seq.next();
        self.replay = Some(replay);
        Ok(Some(page))
    }
}

fn of_log(shared: &Shared, stream: &RunStream, places: &[(Seq, Lsn)]) -> io::Result<Vec<Line>> {
    let mut page = Page::default();
    each_record(shared, &stream.id, places, |lsn, timestamp, record| {
        Ok(page.push(Line {
            seq: record.seq,
            lsn,
            timestamp,
            payload: record.event.shown().into(),
            event_type: record.event.event_type,
        }))
    })?;
    Ok(page.lines)
}

/// The events of a page as the transcript of `run`, whose files are below `files`, tells them up to `head`.
fn of_transcript(
    transcript: &mut Option<Transcript>,
    files: &str,
    run: &RunId,
    head: &Head,
    next: Seq,
    last: Seq,
) -> Result<Vec<Line>, Error> {
    let mut read = || {
        let mut reading = match transcript.take() {
            Some(reading) if reading.cursor.seq < next => reading,
            Some(_) | None => Transcript::open(files, run).map_err(Fault::Read)?,
        };
        reading.vouch(run, head)?;
        let mut page = Page::default();
        while let Some(line) = reading.next(run)? {
            let is_last = line.seq >= last;
            if line.seq >= next && page.push(line).is_break() || is_last {
                break;
            }
        }
        *transcript = Some(reading);
        Ok(page.lines)
    };
    read().map_err(|fault| damaged(files, run, fault))
}

/// A transcript that is being read.
#[derive(Debug)]
struct Transcript {
    file: Arc<File>,
    lines: BufReader<ReadAt>,
    /// How far it has been read.
    cursor: Cursor,
    /// How far it was found to be what was written.
    vouched: Cursor,
}

impl Transcript {
    fn open(files: &str, run: &RunId) -> io::Result<Self> {
        let file = Arc::new(existing_transcript(files, run)?);
        Ok(Self {
            lines: BufReader::new(ReadAt::new(&file, 0)),
            file,
            cursor: Cursor::default(),
            vouched: Cursor::default(),
        })
    }

    /// Finds out whether it is what was written, up to `head`.
    fn vouch(&mut self, run: &RunId, head: &Head) -> Result<(), Fault> {
        let mut lines = BufReader::new(ReadAt::new(&self.file, self.vouched.at));
        while self.vouched.at < head.bytes {
            pass(&mut lines, &mut self.vouched, run, head.bytes)?;
        }
        self.vouched.meet(head)
    }

    /// The next event, as far as it was found to be what was written.
    fn next(&mut self, run: &RunId) -> Result<Option<Line>, Fault> {
        while self.cursor.at < self.vouched.at {
            let event = pass(&mut self.lines, &mut self.cursor, run, self.vouched.at)?;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }
}

/// Reads the next line, which ends at byte `end` at most.
fn pass(
    lines: &mut BufReader<ReadAt>,
    cursor: &mut Cursor,
    run: &RunId,
    end: u64,
) -> Result<Option<Line>, Fault> {
    let mut text = Vec::new();
    // A line without end must not fill the memory.
    let mut line = lines.take(end.saturating_sub(cursor.at));
    line.read_until(b'\n', &mut text).map_err(Fault::Read)?;
    if text.pop() != Some(b'\n') {
        return Err(Fault::Short(cursor.at));
    }
    Ok(Line::of_transcript(cursor.pass(run, &text)?))
}

/// Reads a file from some place on; several do at once.
#[derive(Debug)]
struct ReadAt {
    file: Arc<File>,
    at: u64,
}

impl ReadAt {
    fn new(file: &Arc<File>, at: u64) -> Self {
        let file = Arc::clone(file);
        Self { file, at }
    }
}

impl io::Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += u64::try_from(read).unwrap_or(u64::MAX);
        Ok(read)
    }
}
