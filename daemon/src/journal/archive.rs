//! `<state>/archive`: the final records of ended runs, one frame each, appended and synced, never changed, their long texts kept apart; and
//! `<state>/base`: the records of live runs at a checkpoint, one frame each behind one that says what they belong to,
//! replaced as a whole. One record at a time is in memory as it is written: it may be as large as a run may be. Together with the log they are
//! the truth; the index only finds things in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::frame::{Frame, HEADER_BYTES, SegmentId};
use rye_core::id::{Epoch, Lsn};
use rye_core::ledger::Rows;
use rye_core::model::Run;
use rye_core::state::Closed;
use rye_core::transcript::Head;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::log::size;
use super::segment::sync_dir;
use super::{stored, texts};
use crate::object;

/// Frames outside the log carry ids no segment ever gets.
const ARCHIVE: SegmentId = SegmentId(u64::MAX);
const BASE: SegmentId = SegmentId(u64::MAX - 1);

/// A record with what pins its transcript.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) run: Arc<Run>,
    pub(super) head: Head,
    /// The accounts that its end closed.
    #[serde(default, skip_serializing_if = "Closed::is_empty")]
    pub(super) closed: Closed,
}

/// Where an archived record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ArchiveOffset {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl ArchiveOffset {
    pub(super) const fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

#[derive(Debug)]
pub(super) struct Archive {
    file: File,
}

impl Archive {
    /// Opens the archive, or makes an empty one.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path(state))?;
        Ok(Self { file })
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The records from byte `from` on, as far as they are whole, without their long texts; the end of the last whole one. Stops at the
    /// first error of `each`.
    pub(super) fn scan<E: From<io::Error>>(
        &self,
        from: u64,
        mut each: impl FnMut(ArchiveOffset, Lsn, Stored) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut reader = BufReader::new(self.file.try_clone()?);
        reader.seek(SeekFrom::Start(from))?;
        let mut at = from;
        let mut bytes = vec![0; HEADER_BYTES];
        while read_frame(&mut reader, &mut bytes)? {
            let Some(frame) = Frame::decode(ARCHIVE, &bytes) else {
                break;
            };
            let (lsn, stored) = (frame.lsn, stored::read(frame.payload)?);
            let offset = ArchiveOffset {
                offset: at,
                bytes: size(bytes.len()),
            };
            at = offset.end();
            each(offset, lsn, stored)?;
        }
        Ok(at)
    }

    /// Cuts off what follows `length`: the torn end of a last append.
    pub(super) fn cut(&self, length: u64) -> io::Result<()> {
        if self.length()? > length {
            self.file.set_len(length)?;
        }
        self.file.sync_all()
    }

    /// Appends records and syncs; their long texts go to `objects`. On an error nothing is appended.
    pub(super) fn append(
        &self,
        records: &[(Lsn, Stored)],
        objects: &object::Store,
    ) -> io::Result<Vec<ArchiveOffset>> {
        let start = self.length()?;
        let written = self
            .write(start, records, objects)
            .and_then(|spots| self.file.sync_data().map(|()| spots));
        if written.is_err() {
            self.file.set_len(start)?;
        }
        written
    }

    fn write(
        &self,
        start: u64,
        records: &[(Lsn, Stored)],
        objects: &object::Store,
    ) -> io::Result<Vec<ArchiveOffset>> {
        let mut end = &self.file;
        end.seek(SeekFrom::Start(start))?;
        let mut out = BufWriter::new(end);
        let mut spots: Vec<ArchiveOffset> = Vec::with_capacity(records.len());
        for (lsn, stored) in records {
            let payload = texts::write(stored, objects)?;
            let frame = frame(ARCHIVE, *lsn, &payload);
            frame.write(&mut out)?;
            spots.push(ArchiveOffset {
                offset: spots.last().map_or(start, |last| last.end()),
                bytes: size(frame.encoded_len()),
            });
        }
        out.flush()?;
        Ok(spots)
    }

    /// The record at `offset`, with its long texts if it is said where these are.
    pub(super) fn read(
        &self,
        offset: ArchiveOffset,
        objects: Option<&object::Store>,
    ) -> io::Result<Stored> {
        let mut bytes = vec![0; usize::try_from(offset.bytes).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, offset.offset)?;
        let frame = Frame::decode(ARCHIVE, &bytes)
            .ok_or_else(|| damaged(format!("the archive is damaged at byte {}", offset.offset)))?;
        match objects {
            Some(objects) => texts::read(frame.payload, objects),
            None => stored::read(frame.payload),
        }
    }
}

const fn frame(segment: SegmentId, lsn: Lsn, payload: &[u8]) -> Frame<'_> {
    Frame {
        segment,
        lsn,
        durable: lsn,
        payload,
    }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads one frame's bytes; `false` at the end or where they stop short.
fn read_frame(reader: &mut BufReader<File>, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.resize(HEADER_BYTES, 0);
    let whole = |result: io::Result<()>| match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    };
    if !whole(reader.read_exact(bytes))? {
        return Ok(false);
    }
    let Some(length) = Frame::payload_length(bytes) else {
        return Ok(false);
    };
    // A damaged length must not make us ask for memory that no file can fill.
    let read = reader.by_ref().take(size(length)).read_to_end(bytes)?;
    Ok(read == length)
}

fn path(state: &Path) -> PathBuf {
    state.join("archive")
}

/// The live runs at one position of the log.
#[derive(Debug, Default)]
pub(super) struct Base {
    pub(super) head: BaseHead,
    pub(super) runs: Vec<Stored>,
}

/// What the records of a base belong to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BaseHead {
    pub(super) lsn: Lsn,
    pub(super) epoch: Epoch,
    /// Length of the archive that goes with it.
    pub(super) archive: u64,
    /// How many there are.
    pub(super) runs: usize,
    /// Their accounts as far as their records do not tell them, those above them, and the meters.
    #[serde(default, skip_serializing_if = "Rows::is_empty")]
    pub(super) ledger: Rows,
}

impl Base {
    pub(super) fn path(state: &Path) -> PathBuf {
        state.join("base")
    }

    /// The base in `state`; `None` before the first checkpoint.
    pub(super) fn read(state: &Path) -> io::Result<Option<Self>> {
        let mut reader = match File::open(Self::path(state)) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let head: BaseHead = read_of_base(&mut reader)?;
        let runs = (0..head.runs).map(|_| read_of_base(&mut reader));
        let runs = runs.collect::<io::Result<_>>()?;
        Ok(Some(Self { head, runs }))
    }

    /// Replaces the base in `state` by one with these records; it is on disk when this returns.
    pub(super) fn write(
        state: &Path,
        head: &BaseHead,
        runs: impl ExactSizeIterator<Item = Stored>,
    ) -> io::Result<()> {
        debug_assert_eq!(head.runs, runs.len(), "each record is counted");
        let path = Self::path(state);
        let temporary = path.with_extension("tmp");
        let mut out = BufWriter::new(File::create(&temporary)?);
        frame(BASE, head.lsn, &stored::write(head)?).write(&mut out)?;
        for run in runs {
            frame(BASE, head.lsn, &stored::write(&run)?).write(&mut out)?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        sync_dir(state)
    }
}

/// The next record of a base.
fn read_of_base<T: DeserializeOwned>(reader: &mut BufReader<File>) -> io::Result<T> {
    let mut bytes = Vec::new();
    let is_whole = read_frame(reader, &mut bytes)?;
    let frame = is_whole.then(|| Frame::decode(BASE, &bytes)).flatten();
    let frame = frame.ok_or_else(|| damaged("its checksum does not match".to_owned()))?;
    stored::read(frame.payload)
}
