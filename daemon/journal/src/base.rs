//! `<state>/base`: the records of live runs at one position of the log, replaced as a whole.
//!
//! **Owns** the file. It has one frame for the head, and one frame for each record. Base, history and log are the
//! primary data together; the index can be rebuilt from them. **Never** holds more than one encoded record in memory
//! during a write: one may be as large as a run may be. **Failure.** The file is renamed to its name when it is
//! complete and synced, so a crash leaves the old base or the new one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
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
        let mut reader = match File::open(Self::path(state)) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let head: BaseHead = read_record(&mut reader)?;
        let runs = (0..head.runs).map(|_| read_record(&mut reader));
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
        let mut out = BufWriter::new(&mut draft.file);
        frame(head.lsn, &stored::write(head)?).write(&mut out)?;
        for run in runs {
            frame(head.lsn, &stored::write(&run)?).write(&mut out)?;
        }
        out.flush()?;
        drop(out);
        draft.commit(NAME)
    }
}

const fn frame(lsn: Lsn, payload: &[u8]) -> Frame<'_> {
    Frame {
        segment: BASE,
        lsn,
        durable: lsn,
        payload,
    }
}

fn read_record<T: DeserializeOwned>(reader: &mut BufReader<File>) -> io::Result<T> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its checksum does not match");
    let mut bytes = vec![0; HEADER_BYTES];
    reader.read_exact(&mut bytes).map_err(|error| {
        let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
        if is_cut { damaged() } else { error }
    })?;
    let length = Frame::payload_length(&bytes).ok_or_else(damaged)?;
    // A damaged length must not allocate more than the file holds.
    reader.take(size(length)).read_to_end(&mut bytes)?;
    let frame = Frame::decode(BASE, &bytes).ok_or_else(damaged)?;
    stored::read(frame.payload)
}
