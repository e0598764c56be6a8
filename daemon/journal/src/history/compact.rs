//! Compaction: rewrites files with removed runs without these runs.
//!
//! **Owns** the choice of the files and their order, and the time for which a removal stays on record. **Never**
//! removes a position, and skips a file whose content it cannot read completely. **Order**: one file after the other,
//! beginning with those without living runs, which need almost no space. A file replaces its predecessor once it is
//! synced. **Failure** ends the compaction: the files before it are done, the others are unchanged.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::RunId;

use super::dead_runs::DeadRuns;
use super::directory::Directory;
use super::error::Error;
use super::file::{Extent, HistoryFile};
use super::reader::SectionRef;
use super::rewrite::Rewriter;
use super::store::Store;
use super::table::Row;
use super::usage;
use crate::watermark::lock;

/// Selects the files that a compaction rewrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Full files with removed runs in which living runs have less than half of the bytes.
    Sparse,
    /// Each file with a removed run. The file to which sections are appended is ended first.
    All,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Number of files that were rewritten.
    pub files: u32,
    /// Their length in bytes before.
    pub before: u64,
    /// Their length in bytes now.
    pub after: u64,
    /// Messages about damage because of which data of a removed run may remain.
    pub notes: Vec<String>,
}

#[derive(Debug, Default)]
struct Content {
    /// Bytes in blocks of living runs.
    living: u64,
    /// Bytes in all blocks.
    all: u64,
    has_living: bool,
    has_dead: bool,
}

impl Content {
    fn add(&mut self, directory: &Directory, dead: &HashSet<RunId>) {
        let (living, all) = usage::bytes(directory, |run| dead.contains(run));
        self.living = self.living.saturating_add(living);
        self.all = self.all.saturating_add(all);
        let mut runs = directory.runs.iter().map(|entry| dead.contains(&entry.run));
        self.has_dead |= runs.clone().any(|is_dead| is_dead);
        self.has_living |= !runs.all(|is_dead| is_dead);
    }

    fn is_in(&self, scope: Scope) -> bool {
        self.has_dead
            && match scope {
                Scope::Sparse => {
                    !self.has_living || self.living < self.all.saturating_sub(self.living)
                }
                Scope::All => true,
            }
    }
}

impl Store {
    /// Rewrites files with runs of `dead` without these. `dead` are runs that were removed, of which no event can be
    /// appended any more. Positions stay; adjacent small sections of a file become one. Removals keep the start keys of
    /// runs that were removed at `keys_since` or later. Readers and the appender can work at the same time. Blocks.
    pub fn compact(
        &self,
        dead: &HashSet<RunId>,
        scope: Scope,
        keys_since: Timestamp,
    ) -> Result<Compacted, Error> {
        let mut rewriter = lock(&self.rewriter);
        let mut compacted = Compacted::default();
        let mut removed = DeadRuns {
            dead,
            entries: dead.iter().map(|run| (run.clone(), 0)).collect(),
            has_unknown: false,
            keys_since,
        };
        let contents = self.survey(&mut removed, &mut compacted.notes)?;
        let chosen = contents.iter().filter(|(_, content)| content.is_in(scope));
        let mut chosen: Vec<_> = chosen.collect();
        chosen.sort_by_key(|(number, content)| (content.has_living, **number));
        for (number, _) in chosen {
            if self.end_file(*number, scope)? {
                self.compact_file(*number, &mut rewriter, &mut removed, &mut compacted)?;
            }
        }
        Ok(compacted)
    }

    /// Reads all directories. Files with a damaged directory are reported in `notes` and left out.
    fn survey(
        &self,
        removed: &mut DeadRuns<'_>,
        notes: &mut Vec<String>,
    ) -> Result<BTreeMap<u32, Content>, Error> {
        let files = lock(&self.table).files();
        let mut contents = BTreeMap::new();
        for file in files.iter().rev() {
            let mut content = Content::default();
            let mut is_whole = true;
            let rows = lock(&self.table).sections_of(file.number);
            for row in rows.iter().rev() {
                match readable(read(file, *row))? {
                    Ok(directory) => {
                        removed.add(&directory);
                        content.add(&directory, removed.dead);
                    }
                    Err(error) => {
                        is_whole = false;
                        notes.push(skipped(file, error));
                    }
                }
            }
            removed.has_unknown |= !is_whole;
            if is_whole {
                contents.insert(file.number, content);
            }
        }
        Ok(contents)
    }

    /// Returns true if no more sections are appended to the file.
    fn end_file(&self, number: u32, scope: Scope) -> Result<bool, Error> {
        let mut writer = lock(&self.writer);
        if !writer.is_current(number) {
            return Ok(true);
        }
        match scope {
            Scope::Sparse => Ok(false),
            Scope::All => writer.finish(&self.table).map(|()| true),
        }
    }

    fn compact_file(
        &self,
        number: u32,
        rewriter: &mut Rewriter,
        removed: &mut DeadRuns<'_>,
        compacted: &mut Compacted,
    ) -> Result<(), Error> {
        let (source, rows) = {
            let table = lock(&self.table);
            (table.file(number), table.sections_of(number))
        };
        let Some(source) = source else {
            return Ok(());
        };
        let failed = || Error::files("compact", &source.path);
        let before = source.length().map_err(failed())?;
        let sections = match readable(read_all(&source, &rows))? {
            Ok(sections) => sections,
            Err(error) => {
                compacted.notes.push(skipped(&source, error));
                return Ok(());
            }
        };
        if !is_whole(&source, before, &rows, &sections).map_err(failed())? {
            let reason = "its directories do not match its bytes";
            compacted.notes.push(skipped(&source, reason));
            return Ok(());
        }
        for section in &sections {
            removed.subtract(section);
        }
        let groups = usage::groups(sections, |run| removed.has(run));
        let rewritten = rewriter.rewrite(&source, groups, removed);
        let rewritten = rewritten.map_err(failed())?;
        let synced = rewriter.faults.sync_dir(&rewriter.dir);
        // Done after a failure too: the new file has the name. A power cut may restore the old one; both hold all
        // living runs.
        lock(&self.table).replace(&Arc::new(rewritten.file), rewritten.rows);
        synced.map_err(failed())?;
        lock(&self.writer).set_length(number, rewritten.length);
        compacted.files += 1;
        compacted.before += before;
        compacted.after += rewritten.length;
        compacted.notes.extend(rewritten.notes);
        Ok(())
    }
}

fn read(file: &Arc<HistoryFile>, row: Row) -> Result<Directory, Error> {
    let section = SectionRef::new(Arc::clone(file), row);
    Ok(section.read()?.into_directory())
}

/// Reads the directories of a file. Fails if one is damaged.
fn read_all(file: &Arc<HistoryFile>, rows: &[Row]) -> Result<Vec<Directory>, Error> {
    rows.iter().map(|row| read(file, *row)).collect()
}

/// True if these sections and their table are all of the file, and no directory refers to a block or project that it
/// lacks.
fn is_whole(
    file: &HistoryFile,
    length: u64,
    rows: &[Row],
    sections: &[Directory],
) -> io::Result<bool> {
    let blocks = sections.iter().flat_map(|section| &section.blocks);
    let frames = blocks.map(|block| block.frame());
    let frames: Vec<Extent> = frames.chain(rows.iter().map(Row::directory)).collect();
    let known: u64 = frames.iter().map(|frame| u64::from(frame.bytes)).sum();
    let end = rows.last().map_or(0, |row| row.directory().end());
    let table = file.header(end, length)?;
    let table_end = table.map_or(end, |(_, table)| table.end());
    let is_in_sections = known == end && frames.iter().all(|frame| frame.end() <= end);
    let is_consistent = sections.iter().all(Directory::is_consistent);
    Ok(is_in_sections && table_end == length && is_consistent)
}

/// Returns the message about a file that is not rewritten.
fn skipped(file: &HistoryFile, reason: impl Display) -> String {
    let path = file.path.display();
    format!("`{path}` stays with all that is in it: {reason}")
}

/// Separates damage from failures that may not occur again.
fn readable<T>(read: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match read {
        Err(error) if error.kind() != ErrorKind::DataLoss => Err(error),
        read => Ok(read),
    }
}
