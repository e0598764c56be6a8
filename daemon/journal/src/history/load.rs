//! Opens a history: builds the table of its sections, and reports everything that is not as it was written.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::error::Error;
use super::faults::Faults;
use super::file::{self, FileEnd, HistoryFile};
use super::scan::{self, Scan};
use super::table::Table;
use super::writer::Current;

/// Reads the files in the order of their numbers.
#[derive(Debug)]
pub(super) struct Loader<'d> {
    pub(super) dir: &'d Path,
    /// End of history, at first as the caller has recorded it.
    pub(super) expected: Option<FileEnd>,
    pub(super) faults: &'d Faults,
    pub(super) table: Table,
    pub(super) notes: Vec<String>,
}

/// Returns the numbers of the files in `dir`, in order. Removes unfinished files of a compaction, and returns a message
/// about each that could not be removed.
pub(super) fn list(dir: &Path) -> Result<(Vec<u32>, Vec<String>), Error> {
    let failed = || Error::files("list", dir);
    let (mut numbers, mut notes) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name();
        if name.to_str().is_some_and(file::is_tmp) {
            let path = entry.path();
            if let Err(error) = fs::remove_file(&path) {
                notes.push(format!("`{}` cannot be removed: {error}", path.display()));
            }
        }
        numbers.extend(name.to_str().and_then(file::number));
    }
    numbers.sort_unstable();
    Ok((numbers, notes))
}

impl Loader<'_> {
    /// Adds the sections of all files. Returns the last file if more sections can be appended to it.
    pub(super) fn load(&mut self, numbers: &[u32]) -> Option<Current> {
        if let Some(end) = self.expected.filter(|end| !numbers.contains(&end.file)) {
            self.note(end.file, "is missing");
        }
        let mut current = None;
        for number in numbers {
            let is_last = Some(number) == numbers.last();
            current = self.add(*number, is_last).unwrap_or_else(|error| {
                self.note(*number, format!("cannot be used: {error}"));
                None
            });
        }
        current
    }

    fn add(&mut self, number: u32, is_last: bool) -> io::Result<Option<Current>> {
        let (file, is_writable) = self.open(number, is_last)?;
        let mut length = file.length()?;
        // The last frame is complete. Compaction may have made the file shorter than its recorded length.
        if let Some(rows) = scan::table(&file, length) {
            self.table.extend(&file, rows);
            if is_last {
                let file = number;
                self.expected = Some(FileEnd { file, length });
            }
            return Ok(None);
        }
        let synced = self.synced(number);
        if synced != u64::MAX && length < synced {
            self.note(number, format!("has {length} bytes of {synced}"));
        }
        let mut scan = scan::sections(&file, length)?;
        let mut current = None;
        if is_last {
            // Only the last append can be unsynced. Its directory may be on disk while one of its blocks is not.
            let unsynced = scan.rows.last().filter(|_| synced < scan.end);
            if let Some(row) = unsynced
                && !scan::is_whole(&file, row)?
            {
                scan.drop_last();
            }
            let takes_more = is_writable && !scan.has_table && synced <= scan.end;
            match self.settle(&file, &scan, length, takes_more) {
                Ok(()) if takes_more => {
                    length = scan.end;
                    let end = FileEnd {
                        file: number,
                        length,
                    };
                    self.expected = Some(end);
                    let file = Arc::clone(&file);
                    current = Some(Current { file, length });
                }
                Ok(()) => {}
                Err(error) => {
                    self.note(number, format!("cannot be written: {error}"));
                    if synced < scan.end {
                        scan.drop_last();
                    }
                }
            }
        }
        let tail = (scan.end < length).then_some(scan.end..length);
        for bytes in scan.damaged.into_iter().chain(tail) {
            self.note(
                number,
                format!("is damaged at bytes {} to {}", bytes.start, bytes.end),
            );
        }
        self.table.extend(&file, scan.rows);
        Ok(current)
    }

    /// Cuts a file that takes more sections to its complete sections, and syncs data that the previous process may not
    /// have synced.
    fn settle(
        &mut self,
        file: &HistoryFile,
        scan: &Scan,
        length: u64,
        takes_more: bool,
    ) -> io::Result<()> {
        if takes_more && scan.end < length {
            file.file.set_len(scan.end)?;
            let bytes = length - scan.end;
            let note = format!("ended with {bytes} bytes of an unfinished append, which were cut");
            self.note(file.number, note);
        }
        self.faults.sync(&file.file)?;
        self.faults.sync_dir(self.dir)
    }

    /// Opens a file, the last one for appending if possible. Returns true if it can be written.
    fn open(&mut self, number: u32, is_last: bool) -> io::Result<(Arc<HistoryFile>, bool)> {
        let mut options = OpenOptions::new();
        options.read(true);
        if is_last {
            match HistoryFile::open(self.dir, number, options.clone().write(true)) {
                Ok(file) => return Ok((Arc::new(file), true)),
                Err(error) => self.note(number, format!("cannot be written: {error}")),
            }
        }
        let file = HistoryFile::open(self.dir, number, &options)?;
        Ok((Arc::new(file), false))
    }

    /// Number of bytes of the file `number` that were synced for certain; `u64::MAX` for a file before the last
    /// recorded one.
    fn synced(&self, number: u32) -> u64 {
        match self.expected {
            Some(end) if end.file == number => end.length,
            Some(end) if end.file > number => u64::MAX,
            Some(_) | None => 0,
        }
    }

    fn note(&mut self, number: u32, text: impl AsRef<str>) {
        let path = file::path(self.dir, number);
        let note = format!("`{}` {}", path.display(), text.as_ref());
        self.notes.push(note);
    }
}
