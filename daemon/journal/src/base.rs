//! `<state>/base`: the records of live runs at one position of the log, replaced as a whole.
//!
//! **Owns** the file: JSON lines, the head and then one for each record. A line begins a frame, and a long one fills
//! several. The frames are numbered, so a missing one is noticed. Base, history and log are the primary data together;
//! the index can be rebuilt from them. **Never** holds a long line in memory: the text of a record may take several
//! times the memory of its run. **Failure.** The file is renamed to its name when it is complete and synced, so a crash
//! leaves the old base or the new one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::frame::{Frame, HEADER_BYTES, SegmentId};
use rye_core::id::{Epoch, Lsn, Seq};
use rye_core::ledger::Rows;
use rye_core::model::Run;
use rye_core::state::Closed;
use rye_core::transcript::Head;
use rye_host::safe_path::{Dir, Draft};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::log::size;
use crate::record::stored;

const NAME: &str = "base";
/// Segment id of the frames. No segment of the log and no file of history has it.
const BASE: SegmentId = SegmentId(u64::MAX);
/// Limit in bytes on the payload of a frame.
const PIECE: usize = 256 << 10;

/// The record of a run, and the data that is needed to read its events and to continue its transcript.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) run: Arc<Run>,
    pub(crate) head: Head,
    /// Accounts that the end of the run closed.
    #[serde(default, skip_serializing_if = "Closed::is_empty")]
    pub(crate) closed: Closed,
    /// Sections of history with its events, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) spans: Vec<Span>,
}

/// Events of a run in one section of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Seq, Lsn)", into = "(Seq, Lsn)")]
pub(crate) struct Span {
    /// First event.
    pub(crate) first: Seq,
    /// Position of the last event. It finds the section, even after compaction has merged sections.
    pub(crate) lsn: Lsn,
}

impl From<(Seq, Lsn)> for Span {
    fn from((first, lsn): (Seq, Lsn)) -> Self {
        Self { first, lsn }
    }
}

impl From<Span> for (Seq, Lsn) {
    fn from(span: Span) -> Self {
        (span.first, span.lsn)
    }
}

/// The live runs at one position of the log.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(crate) head: BaseHead,
    pub(crate) runs: Vec<Stored>,
}

/// Head of a base: the position, and all data that is not of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BaseHead {
    pub(crate) lsn: Lsn,
    pub(crate) epoch: Epoch,
    /// Number and length of the last file of history. A shorter file has lost events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<(u32, u64)>,
    /// Number of records.
    pub(crate) runs: usize,
    /// Accounts that the records do not hold, and the meters.
    #[serde(default, skip_serializing_if = "Rows::is_empty")]
    pub(crate) ledger: Rows,
}

impl Base {
    pub(crate) fn path(state: &Path) -> PathBuf {
        state.join(NAME)
    }

    /// Returns the base in `state`, or `None` before the first checkpoint.
    pub(crate) fn read(state: &Path) -> io::Result<Option<Self>> {
        let mut lines = match File::open(Self::path(state)) {
            Ok(file) => Lines::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let head: BaseHead = lines.read()?;
        let runs = (0..head.runs).map(|_| lines.read());
        let runs = runs.collect::<io::Result<_>>()?;
        Ok(Some(Self { head, runs }))
    }

    /// Replaces the base in `state`. The new one is on disk on return.
    pub(crate) fn write(
        state: &Path,
        head: &BaseHead,
        runs: impl ExactSizeIterator<Item = Stored>,
    ) -> io::Result<()> {
        debug_assert_eq!(head.runs, runs.len(), "each record is counted");
        let mut draft = Draft::new(Dir::follow(state)?, format!("{NAME}.tmp"))?;
        let mut pieces = Pieces {
            number: 0,
            piece: Vec::new(),
            out: BufWriter::new(&mut draft.file),
        };
        pieces.line(head)?;
        for run in runs {
            pieces.line(&run)?;
        }
        pieces.out.flush()?;
        drop(pieces);
        draft.commit(NAME)
    }
}

/// Writes lines in frames.
struct Pieces<W> {
    /// Number of the next frame.
    number: u64,
    /// Its payload.
    piece: Vec<u8>,
    out: W,
}

impl<W: Write> Pieces<W> {
    fn line<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        stored::write_to(record, &mut *self)?;
        self.write_all(b"\n")?;
        self.frame()
    }

    fn frame(&mut self) -> io::Result<()> {
        let number = Lsn(self.number);
        let frame = Frame {
            segment: BASE,
            lsn: number,
            durable: number,
            payload: &self.piece,
        };
        frame.write(&mut self.out)?;
        self.number += 1;
        self.piece.clear();
        Ok(())
    }
}

impl<W: Write> Write for Pieces<W> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE {
            self.frame()?;
        }
        let taken = json.len().min(PIECE - self.piece.len());
        self.piece.extend(&json[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads lines from frames.
struct Lines {
    file: BufReader<File>,
    /// Number of the next frame.
    number: u64,
    /// Payload of the current frame.
    frame: Vec<u8>,
    /// Number of its bytes that were read.
    read: usize,
}

impl Lines {
    fn new(file: File) -> Self {
        Self {
            file: BufReader::new(file),
            number: 0,
            frame: Vec::new(),
            read: 0,
        }
    }

    /// Decodes the next line.
    fn read<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.next_frame()?;
        if self.is_line_end() {
            return stored::read(&self.frame);
        }
        let record = stored::read_from(&mut *self)?;
        let is_whole = self.is_line_end() && self.read == self.frame.len();
        is_whole.then_some(record).ok_or_else(damaged)
    }

    fn is_line_end(&self) -> bool {
        self.frame.ends_with(b"\n")
    }

    /// Reads the next frame. After an error there is no current one.
    fn next_frame(&mut self) -> io::Result<()> {
        self.read = 0;
        let mut bytes = mem::take(&mut self.frame);
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        self.file.read_exact(&mut bytes).map_err(|error| {
            let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
            if is_cut { damaged() } else { error }
        })?;
        let length = Frame::payload_length(&bytes).filter(|length| *length <= PIECE);
        let length = size(length.ok_or_else(damaged)?);
        (&mut self.file).take(length).read_to_end(&mut bytes)?;
        let frame = Frame::decode(BASE, &bytes);
        if frame.is_none_or(|frame| frame.lsn != Lsn(self.number)) {
            return Err(damaged());
        }
        self.number += 1;
        bytes.drain(..HEADER_BYTES);
        self.frame = bytes;
        Ok(())
    }
}

/// The rest of the current line.
impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.frame.len() && !self.is_line_end() {
            self.next_frame()?;
        }
        let read = (&self.frame[self.read..]).read(out)?;
        self.read += read;
        Ok(read)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its checksum does not match")
}
