//! A file of history, and its frames.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rye_core::frame::{Frame, HEADER_BYTES, Header, SegmentId};
use rye_core::id::Lsn;

use super::payload::{self, MAX_TEXT_BYTES, damaged};

/// End of a file of history, as the base records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    pub file: u32,
    /// Length of the file in bytes.
    pub length: u64,
}

/// Bit in the segment ids of history. Segments of the log have ids without it.
const SEGMENT_BIT: u64 = 1 << 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl Extent {
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes.into())
    }
}

#[derive(Debug)]
pub(super) struct HistoryFile {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) file: File,
}

pub(super) fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number}.his"))
}

/// Path of the temporary file that replaces the file `number`.
pub(super) fn tmp_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number}.his.tmp"))
}

/// True for the file name of a [`tmp_path`].
pub(super) fn is_tmp(name: &str) -> bool {
    name.strip_suffix(".tmp").and_then(number).is_some()
}

/// Returns the number of the file with this name; `None` if it is no file of history.
pub(super) fn number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".his")?.parse().ok()?;
    (format!("{number}.his") == name).then_some(number)
}

impl HistoryFile {
    pub(super) fn open(dir: &Path, number: u32, options: &OpenOptions) -> io::Result<Self> {
        let path = path(dir, number);
        let file = options.open(&path)?;
        Ok(Self { number, path, file })
    }

    /// Creates an empty file at [`tmp_path`].
    pub(super) fn create_tmp(dir: &Path, number: u32) -> io::Result<Self> {
        let path = tmp_path(dir, number);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(&path)?;
        Ok(Self { number, path, file })
    }

    /// Segment id in its frames.
    pub(super) fn segment(&self) -> SegmentId {
        SegmentId(SEGMENT_BIT | u64::from(self.number))
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Reads bytes of the file. Allocates no more than the file has.
    pub(super) fn read(&self, extent: Extent) -> io::Result<Vec<u8>> {
        let length = self.length()?;
        if extent.end() > length {
            return Err(damaged(format!("the file ends at byte {length}")));
        }
        let mut bytes = vec![0; usize::try_from(extent.bytes).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, extent.offset)?;
        Ok(bytes)
    }

    /// Returns the text of the frame at `extent`, which belongs to the section that ends at `last`. Fails if the text
    /// has more than `most` bytes.
    pub(super) fn text(&self, extent: Extent, last: Lsn, most: usize) -> io::Result<Vec<u8>> {
        let bytes = self.read(extent)?;
        let payload = self.payload(&bytes, last)?;
        payload::decode(payload, most.min(MAX_TEXT_BYTES))
    }

    /// Returns the payload of the frame `bytes`, which belongs to the section that ends at `last`.
    pub(super) fn payload<'b>(&self, bytes: &'b [u8], last: Lsn) -> io::Result<&'b [u8]> {
        let frame = Frame::decode(self.segment(), bytes);
        let frame = frame.ok_or_else(|| damaged("its checksum does not match"))?;
        if frame.encoded_len() != bytes.len() || frame.lsn != last {
            return Err(damaged(format!("it belongs to position {}", frame.lsn)));
        }
        Ok(frame.payload)
    }

    /// Returns the unverified header and the extent of the frame at `offset`; `None` if no frame begins there that ends
    /// within `length`.
    pub(super) fn header(&self, offset: u64, length: u64) -> io::Result<Option<(Header, Extent)>> {
        let bytes = u32::try_from(HEADER_BYTES).map_err(io::Error::other)?;
        let extent = Extent { offset, bytes };
        if extent.end() > length {
            return Ok(None);
        }
        let header = Header::read(&self.read(extent)?);
        let header = header.filter(|header| header.segment == self.segment());
        Ok(header.and_then(|header| {
            let bytes = u32::try_from(HEADER_BYTES + header.length).ok()?;
            let extent = Extent { offset, bytes };
            (extent.end() <= length).then_some((header, extent))
        }))
    }
}
