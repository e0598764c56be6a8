//! Table of sections: for each range of positions the file and the extent of its directory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rye_core::id::Lsn;

use super::file::{Extent, HistoryFile};
use super::payload::{self, TABLE, damaged};

/// A section, in 40 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) first: Lsn,
    pub(super) last: Lsn,
    /// Start of its directory.
    offset: u64,
    /// Length of its directory.
    bytes: u32,
    file: u32,
    /// False only if its directory has no removals.
    pub(super) has_removals: bool,
}

impl Row {
    pub(super) const fn new(
        range: (Lsn, Lsn),
        file: u32,
        directory: Extent,
        has_removals: bool,
    ) -> Self {
        Self {
            first: range.0,
            last: range.1,
            offset: directory.offset,
            bytes: directory.bytes,
            file,
            has_removals,
        }
    }

    pub(super) const fn directory(&self) -> Extent {
        Extent {
            offset: self.offset,
            bytes: self.bytes,
        }
    }
}

/// The sections of all files, in the order of the log. Ranges do not overlap.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    files: BTreeMap<u32, Arc<HistoryFile>>,
}

impl Table {
    /// Position of the last commit in history.
    pub(super) fn last(&self) -> Lsn {
        self.rows.last().map_or(Lsn(0), |row| row.last)
    }

    /// Returns the first section that ends after `position`.
    pub(super) fn after(&self, position: Lsn) -> Option<(Arc<HistoryFile>, Row)> {
        let row = self
            .rows
            .get(self.rows.partition_point(|row| row.last <= position))?;
        Some((Arc::clone(self.files.get(&row.file)?), *row))
    }

    /// Adds a section of `file`. Sections that overlap it are of a failed append whose file could not be cut, and are
    /// dropped.
    pub(super) fn push(&mut self, file: &Arc<HistoryFile>, row: Row) {
        let kept = self.rows.partition_point(|known| known.last < row.first);
        self.rows.truncate(kept);
        self.rows.push(row);
        self.files.insert(row.file, Arc::clone(file));
    }

    /// Adds `file` and its sections.
    pub(super) fn extend(&mut self, file: &Arc<HistoryFile>, rows: Vec<Row>) {
        self.files.insert(file.number, Arc::clone(file));
        for row in rows {
            self.push(file, row);
        }
    }

    /// Replaces a file and its sections by `file` and `rows`, which cover the same positions.
    pub(super) fn replace(&mut self, file: &Arc<HistoryFile>, rows: Vec<Row>) {
        let mut known = self.rows.iter();
        let at = known.position(|row| row.file == file.number);
        let at = at.unwrap_or(self.rows.len());
        self.rows.retain(|row| row.file != file.number);
        self.rows.splice(at..at, rows);
        self.files.insert(file.number, Arc::clone(file));
    }

    pub(super) fn files(&self) -> Vec<Arc<HistoryFile>> {
        self.files.values().cloned().collect()
    }

    pub(super) fn file(&self, number: u32) -> Option<Arc<HistoryFile>> {
        self.files.get(&number).cloned()
    }

    /// Returns the sections of the file `number`.
    pub(super) fn sections_of(&self, number: u32) -> Vec<Row> {
        let rows = self.rows.iter().filter(|row| row.file == number);
        rows.copied().collect()
    }

    pub(super) fn has_removals(&self) -> bool {
        self.rows.iter().any(|row| row.has_removals)
    }

    /// Returns the ranges of positions before the last section that no section covers.
    pub(super) fn gaps(&self) -> Vec<(Lsn, Lsn)> {
        let mut before = Lsn(0);
        let gaps = self.rows.iter().filter_map(|row| {
            let gap = (before.next(), Lsn(row.first.0 - 1));
            before = row.last;
            (gap.0 <= gap.1).then_some(gap)
        });
        gaps.collect()
    }
}

/// Returns the text of the table frame of a file: a line `[first,last,offset,bytes,has removals]` for each section.
pub(super) fn encode(rows: &[Row]) -> io::Result<Vec<u8>> {
    let mut text = payload::begin(TABLE);
    for row in rows {
        let line = (row.first, row.last, row.offset, row.bytes, row.has_removals);
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Returns the rows in the text of the table frame of a file.
pub(super) fn decode(text: &[u8], file: u32) -> io::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in payload::lines(text, TABLE)? {
        let (first, last, offset, bytes, has_removals) = serde_json::from_slice(line)?;
        if first <= rows.last().map_or(Lsn(0), |row| row.last) || last < first {
            return Err(damaged("its sections are not in order"));
        }
        let directory = Extent { offset, bytes };
        rows.push(Row::new((first, last), file, directory, has_removals));
    }
    Ok(rows)
}
