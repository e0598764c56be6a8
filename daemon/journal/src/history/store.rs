//! The store: its table, the files, and the only writer.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use rye_core::id::Lsn;

use super::error::Error;
use super::faults::{Faults, sync_dir};
use super::file::FileEnd;
use super::load::{self, Loader};
use super::payload::Encoder;
use super::reader::SectionRef;
use super::removal::Removal;
use super::rewrite::Rewriter;
use super::section::Section;
use super::table::Table;
use super::writer::Writer;
use crate::watermark::lock;

/// Settings of a store.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Length in bytes at which a file is full and the next one begins.
    pub file_bytes: u64,
    /// Last recorded [`Store::end`]. Everything up to it was on disk, and the log may have dropped it; the log holds
    /// everything after it.
    pub expected: Option<FileEnd>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            expected: None,
        }
    }
}

/// State of a history when it was opened.
#[derive(Debug)]
pub struct Found {
    /// Position of the last commit in history; 0 if there is none.
    pub last: Lsn,
    /// Ranges of positions before `last`, first and last position each, that no file holds.
    pub lost: Vec<(Lsn, Lsn)>,
    /// False only if [`Store::removals`] has none.
    pub has_removals: bool,
    /// Messages about files that are missing, short, cut, damaged or cannot be used.
    pub notes: Vec<String>,
}

/// The history of a daemon. Any number of threads may read while one appends and one compacts.
#[derive(Debug)]
pub struct Store {
    /// Locked for look-ups, never during a read or a write of a file. The last in the order of locks.
    pub(super) table: Mutex<Table>,
    pub(super) writer: Mutex<Writer>,
    /// Locked during the whole of a compaction, and before the other two.
    pub(super) rewriter: Mutex<Rewriter>,
}

impl Store {
    /// Opens the history in `dir`, or creates an empty one. Damaged, short and missing files do not make it fail.
    /// Blocks.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Found), Error> {
        Self::open_with(dir, options, Faults::default())
    }

    pub(super) fn open_with(
        dir: &Path,
        options: Options,
        faults: Faults,
    ) -> Result<(Self, Found), Error> {
        make_dir(dir)?;
        let (numbers, notes) = load::list(dir)?;
        let mut loader = Loader {
            dir,
            expected: options.expected,
            faults: &faults,
            table: Table::default(),
            notes,
        };
        let current = loader.load(&numbers);
        let Loader {
            table,
            notes,
            expected: end,
            ..
        } = loader;
        let found = Found {
            last: table.last(),
            lost: table.gaps(),
            has_removals: table.has_removals(),
            notes,
        };
        let expected = options.expected.map(|end| end.file);
        let used = expected.max(numbers.last().copied()).unwrap_or(0);
        let encoder = || Encoder::new().map_err(Error::files("compress for", dir));
        let writer = Writer {
            dir: dir.to_owned(),
            file_bytes: options.file_bytes,
            next: used.saturating_add(1),
            current,
            end,
            encoder: encoder()?,
            faults: faults.clone(),
        };
        let rewriter = Rewriter {
            dir: dir.to_owned(),
            encoder: encoder()?,
            faults,
        };
        let store = Self {
            table: Mutex::new(table),
            writer: Mutex::new(writer),
            rewriter: Mutex::new(rewriter),
        };
        Ok((store, found))
    }

    /// Appends `section`; it is on disk, and readers find it, when this returns. After a failure history is unchanged,
    /// and the next section goes to a new file: a second sync of lost pages proves nothing. Blocks.
    pub fn append(&self, section: &Section) -> Result<(), Error> {
        let mut writer = lock(&self.writer);
        section.check(self.last())?;
        writer.finish_full(&self.table)?;
        let (file, row) = writer.append(section)?;
        lock(&self.table).push(&file, row);
        Ok(())
    }

    /// Position of the last commit in history; 0 if there is none.
    pub fn last(&self) -> Lsn {
        lock(&self.table).last()
    }

    /// End of history, for [`Options::expected`] of the next open; `None` if there is none. Blocks while a section is
    /// appended.
    pub fn end(&self) -> Option<FileEnd> {
        lock(&self.writer).end
    }

    /// Returns the section with position `at`; `None` if no file holds it.
    pub fn find(&self, at: Lsn) -> Option<SectionRef> {
        let section = self.sections(Lsn(at.0.checked_sub(1)?)).next()?;
        (section.first() <= at).then_some(section)
    }

    /// Returns the sections that end after `after`, in the order of the log, including those that are appended during
    /// the iteration. The first may begin at or before `after`, because compaction merges sections.
    pub fn sections(&self, after: Lsn) -> impl Iterator<Item = SectionRef> {
        let mut after = after;
        std::iter::from_fn(move || {
            let (file, row) = lock(&self.table).after(after)?;
            after = row.last;
            Some(SectionRef::new(file, row))
        })
    }

    /// Returns the removals in history in the order of the log, each with the last position of its section. One error
    /// takes the place of those in a damaged directory. Reads only directories with removals. Blocks.
    pub fn removals(&self) -> impl Iterator<Item = Result<(Lsn, Removal), Error>> {
        let sections = self.sections(Lsn(0)).filter(SectionRef::has_removals);
        sections.flat_map(|section| {
            let last = section.last();
            let removed = section.read().map(|read| read.into_directory().removed);
            let (removed, error) = match removed {
                Ok(removed) => (removed, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            let removed = removed.into_iter().map(move |removal| Ok((last, removal)));
            removed.chain(error)
        })
    }

    /// Length of all files together in bytes. Blocks.
    pub fn bytes(&self) -> u64 {
        let files = lock(&self.table).files();
        let lengths = files.iter().filter_map(|file| file.length().ok());
        lengths.sum()
    }
}

#[cfg(test)]
impl Store {
    /// Returns the hooks that make writes of this store fail.
    pub(crate) fn hooks(&self) -> std::sync::Arc<super::faults::hooks::Hooks> {
        std::sync::Arc::clone(&lock(&self.writer).faults.hooks)
    }
}

/// Creates `dir` if it is missing. On return it survives a power cut.
fn make_dir(dir: &Path) -> Result<(), Error> {
    if !dir.is_dir() {
        fs::create_dir(dir).map_err(Error::files("create", dir))?;
    }
    let parent = dir.parent().unwrap_or(dir);
    sync_dir(parent).map_err(Error::files("sync", parent))
}
