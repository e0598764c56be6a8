//! Finds the sections of a file: by its table, or frame by frame.

use std::io;
use std::ops::Range;

use rye_core::frame::{Frame, HEADER_BYTES, Header};
use rye_core::id::Lsn;

use super::directory::Directory;
use super::file::{Extent, HistoryFile};
use super::payload::{self, DIRECTORY, MAX_TEXT_BYTES, TABLE, is_damage};
use super::table::{self, Row};

/// Lengths in bytes of the ends of a file in which its table is searched, one after the other.
const TAIL_BYTES: [u64; 3] = [64 << 10, 1 << 20, 16 << 20];

/// The sections of a file, found frame by frame.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) rows: Vec<Row>,
    /// Ranges of bytes between sections that belong to no complete section.
    pub(super) damaged: Vec<Range<u64>>,
    /// End of the last complete section, or of the table after it.
    pub(super) end: u64,
    /// True if there is a table: no more sections are appended to the file.
    pub(super) has_table: bool,
}

impl Scan {
    pub(super) fn drop_last(&mut self) {
        self.rows.pop();
        self.end = self.rows.last().map_or(0, |row| row.directory().end());
        self.damaged.retain(|bytes| bytes.start < self.end);
    }
}

/// Returns the sections that the table of `file` names; `None` if its last frame is no complete table.
pub(super) fn table(file: &HistoryFile, length: u64) -> Option<Vec<Row>> {
    for tail in TAIL_BYTES.map(|tail| tail.min(length)) {
        let bytes = u32::try_from(tail).ok()?;
        let offset = length - tail;
        let bytes = file.read(Extent { offset, bytes }).ok()?;
        let frame = (0..bytes.len()).rev().find_map(|at| {
            let rest = bytes.get(at..)?;
            let is_last = HEADER_BYTES + Header::read(rest)?.length == rest.len();
            is_last.then(|| Frame::decode(file.segment(), rest))?
        });
        if let Some(frame) = frame {
            let text = payload::decode(frame.payload, MAX_TEXT_BYTES).ok()?;
            return table::decode(&text, file.number).ok();
        }
    }
    None
}

/// Finds the sections of `file`, which has `length` bytes, by their frames. Reads only headers and directories unless
/// these show damage.
pub(super) fn sections(file: &HistoryFile, length: u64) -> io::Result<Scan> {
    let scan = grouped(file, &chain(file, length)?)?;
    if scan.damaged.is_empty() && scan.end == length {
        return Ok(scan);
    }
    grouped(file, &sound(file, length)?)
}

/// True if the directory and all blocks of a section are undamaged.
pub(super) fn is_whole(file: &HistoryFile, row: &Row) -> io::Result<bool> {
    let text = file.text(row.directory(), row.last, MAX_TEXT_BYTES);
    let directory = text.and_then(|text| Directory::decode(&text));
    let blocks = directory.and_then(|directory| {
        let mut blocks = directory.blocks.iter();
        blocks.try_for_each(|block| file.text(block.frame(), row.last, block.raw()).map(drop))
    });
    Ok(unless_damaged(blocks)?.is_some())
}

/// Returns the unverified frames from the start of the file, each of which begins where the previous one ends.
fn chain(file: &HistoryFile, length: u64) -> io::Result<Vec<(Header, Extent)>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some(frame) = file.header(at, length)? {
        at = frame.1.end();
        frames.push(frame);
    }
    Ok(frames)
}

/// Returns all frames of the file whose checksums match. Holds the whole file in memory.
fn sound(file: &HistoryFile, length: u64) -> io::Result<Vec<(Header, Extent)>> {
    let bytes = u32::try_from(length).map_err(io::Error::other)?;
    let bytes = file.read(Extent { offset: 0, bytes })?;
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let frame = Frame::decode(file.segment(), rest);
        if let Some(header) = frame.and_then(|_| Header::read(rest)) {
            let bytes = u32::try_from(HEADER_BYTES + header.length).map_err(io::Error::other)?;
            let offset = u64::try_from(at).map_err(io::Error::other)?;
            frames.push((header, Extent { offset, bytes }));
            at += HEADER_BYTES + header.length;
        } else {
            at += 1;
        }
    }
    Ok(frames)
}

/// Groups frames into sections. Frames of a section have the same position, and the last of them is its directory.
fn grouped(file: &HistoryFile, frames: &[(Header, Extent)]) -> io::Result<Scan> {
    let mut scan = Scan::default();
    for group in frames.chunk_by(|(one, _), (next, _)| one.lsn == next.lsn) {
        let start = group.first().map_or(scan.end, |(_, extent)| extent.offset);
        let mut end = scan.end;
        // A table has the position of the last section.
        for (header, extent) in group.iter().rev().take(2) {
            let text = unless_damaged(file.text(*extent, header.lsn, MAX_TEXT_BYTES))?;
            let is_of = |form| {
                text.as_ref()
                    .is_some_and(|text| payload::content(text, form).is_ok())
            };
            end = end.max(extent.end());
            if is_of(TABLE) {
                scan.has_table = true;
                continue;
            }
            let before = scan.rows.last().map_or(Lsn(0), |row| row.last);
            if is_of(DIRECTORY) && before <= header.durable && header.durable < header.lsn {
                if scan.end < start {
                    scan.damaged.push(scan.end..start);
                }
                scan.end = end;
                let range = (header.durable.next(), header.lsn);
                let removes = text.and_then(|text| Directory::removes(&text).ok());
                let has_removals = removes.unwrap_or(true);
                let row = Row::new(range, file.number, *extent, has_removals);
                scan.rows.push(row);
            }
            break;
        }
    }
    Ok(scan)
}

/// Returns `None` if bytes are damaged. Fails if they cannot be read now.
fn unless_damaged<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
