//! Rewrites a file of history without removed runs.
//!
//! Blocks are copied as they are, or without the lines of removed runs; they are not packed again. A frame that cannot
//! be read is copied byte for byte if a living run has lines in it, and stays unreadable.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use rye_core::id::{Lsn, Name, RunId};
use rye_core::seal::Fingerprint;

use super::block;
use super::dead_runs::DeadRuns;
use super::directory::{Block, Directory, RunEntry, by_project};
use super::faults::Faults;
use super::file::{Extent, HistoryFile};
use super::frames::FrameWriter;
use super::payload::{self, Encoder, damaged, is_damage};
use super::removal::Removal;
use super::table::{self, Row};
use super::usage::{Usage, usages};

#[derive(Debug)]
pub(super) struct Rewriter {
    pub(super) dir: PathBuf,
    pub(super) encoder: Encoder,
    pub(super) faults: Faults,
}

/// A file that was renamed to the path of its source. The directory is not synced yet.
pub(super) struct Rewritten {
    pub(super) file: HistoryFile,
    pub(super) rows: Vec<Row>,
    pub(super) length: u64,
    /// Messages about damaged blocks.
    pub(super) notes: Vec<String>,
}

impl Rewriter {
    /// Replaces the file `source` by one with a section for each of `groups`. After a failure `source` is unchanged.
    pub(super) fn rewrite(
        &mut self,
        source: &HistoryFile,
        groups: Vec<Vec<Directory>>,
        removed: &DeadRuns<'_>,
    ) -> io::Result<Rewritten> {
        let tmp = HistoryFile::create_tmp(&self.dir, source.number)?;
        let mut notes = Vec::new();
        let written = self.write(&tmp, source, groups, removed, &mut notes);
        let renamed = written.and_then(|written| {
            self.faults.sync(&tmp.file)?;
            self.faults.rename(&tmp.path, &source.path)?;
            Ok(written)
        });
        match renamed {
            Ok((rows, length)) => {
                let path = source.path.clone();
                let file = HistoryFile { path, ..tmp };
                Ok(Rewritten {
                    file,
                    rows,
                    length,
                    notes,
                })
            }
            Err(error) => {
                if let Err(error) = fs::remove_file(&tmp.path) {
                    // The next start removes the file.
                    tracing::warn!(%error, path = %tmp.path.display(), "an unfinished file cannot be removed");
                }
                Err(error)
            }
        }
    }

    /// Writes all sections and their table. Returns the rows of the table and the length of the file.
    fn write(
        &mut self,
        tmp: &HistoryFile,
        source: &HistoryFile,
        groups: Vec<Vec<Directory>>,
        removed: &DeadRuns<'_>,
        notes: &mut Vec<String>,
    ) -> io::Result<(Vec<Row>, u64)> {
        let mut rows: Vec<Row> = Vec::with_capacity(groups.len());
        for group in groups {
            let Some((first, last)) = group.first().zip(group.last()) else {
                continue;
            };
            let range = (first.first, last.last);
            let durable = Lsn(range.0.0.saturating_sub(1));
            let frames = self.frames(tmp, &rows, range.1, durable);
            let mut merger = Merger::new(frames, source, removed, notes);
            for section in group {
                merger.add(section)?;
            }
            let (directory, has_removals) = merger.finish(range)?;
            rows.push(Row::new(range, tmp.number, directory, has_removals));
        }
        let last = rows.last().map_or(Lsn(0), |row| row.last);
        let table = table::encode(&rows)?;
        let table = self.frames(tmp, &rows, last, last).write(&table)?;
        Ok((rows, table.end()))
    }

    /// Returns a writer of frames after the sections `rows`.
    fn frames<'w>(
        &'w mut self,
        file: &'w HistoryFile,
        rows: &[Row],
        lsn: Lsn,
        durable: Lsn,
    ) -> FrameWriter<'w> {
        FrameWriter {
            file,
            faults: &self.faults,
            encoder: &mut self.encoder,
            lsn,
            durable,
            offset: rows.last().map_or(0, |row| row.directory().end()),
            blocks: Vec::new(),
        }
    }
}

/// Writes adjacent sections as one.
struct Merger<'w> {
    frames: FrameWriter<'w>,
    source: &'w HistoryFile,
    removed: &'w DeadRuns<'w>,
    notes: &'w mut Vec<String>,
    /// Living runs, each with its project.
    runs: Vec<(Name, RunEntry)>,
    /// Index of each run in `runs`.
    known: HashMap<RunId, usize>,
    fingerprints: Vec<(Lsn, Fingerprint)>,
    entries: Vec<u32>,
    removals: Vec<Removal>,
}

impl<'w> Merger<'w> {
    fn new(
        frames: FrameWriter<'w>,
        source: &'w HistoryFile,
        removed: &'w DeadRuns<'w>,
        notes: &'w mut Vec<String>,
    ) -> Self {
        Self {
            frames,
            source,
            removed,
            notes,
            runs: Vec::new(),
            known: HashMap::new(),
            fingerprints: Vec::new(),
            entries: Vec::new(),
            removals: Vec::new(),
        }
    }

    fn add(&mut self, section: Directory) -> io::Result<()> {
        self.add_keys(&section);
        let blocks = self.write_blocks(&section)?;
        let number = |old: u32| {
            let number = blocks.get(usize::try_from(old).ok()?)?;
            number.to_owned()
        };
        let entries = section.entries.iter();
        self.entries
            .extend(entries.filter_map(|block| number(*block)));
        let removals = section.removed.into_iter();
        let removals = removals.filter_map(|removal| self.removed.needed(removal));
        self.removals.extend(removals);
        for mut entry in section.runs {
            if self.removed.has(&entry.run) {
                continue;
            }
            let missing = || damaged(format!("a block of run {} is not there", entry.run));
            for span in &mut entry.spans {
                span.block = number(span.block).ok_or_else(missing)?;
            }
            if let Some(record) = &mut entry.record {
                *record = number(*record).ok_or_else(missing)?;
            }
            let project = section.files.get(entry.files);
            let project = project.ok_or_else(|| damaged("a project is not there"))?;
            self.add_run(Name::clone(project), entry);
        }
        Ok(())
    }

    fn add_run(&mut self, project: Name, entry: RunEntry) {
        let known = self.known.get(&entry.run);
        if let Some((_, known)) = known.and_then(|at| self.runs.get_mut(*at)) {
            known.spans.extend(entry.spans);
            known.names.extend(entry.names);
            known.record = entry.record.or(known.record);
        } else {
            self.known.insert(entry.run.clone(), self.runs.len());
            self.runs.push((project, entry));
        }
    }

    /// Adds the keys of `section`. They replace the keys of earlier sections from its first position on.
    fn add_keys(&mut self, section: &Directory) {
        for (from, key) in &section.fingerprints {
            let from = *from.max(&section.first);
            self.fingerprints.retain(|(earlier, _)| *earlier < from);
            if self.fingerprints.last().is_none_or(|(_, last)| last != key) {
                self.fingerprints.push((from, key.clone()));
            }
        }
    }

    /// Writes the blocks in which living runs have lines. Returns the new index of each block; `None` if the block was
    /// dropped.
    fn write_blocks(&mut self, section: &Directory) -> io::Result<Vec<Option<u32>>> {
        let usages = usages(section, |run| self.removed.has(run));
        let blocks = section.blocks.iter().zip(usages);
        let numbers = blocks.map(|(block, usage)| {
            let number = u32::try_from(self.frames.blocks.len()).map_err(io::Error::other)?;
            let is_written = usage.living > 0 && self.write_block(section.last, *block, usage)?;
            Ok(is_written.then_some(number))
        });
        numbers.collect()
    }

    /// Writes the lines of living runs in `block`. Returns false if there are none.
    fn write_block(&mut self, last: Lsn, block: Block, usage: Usage) -> io::Result<bool> {
        let frame = self.source.read(block.frame())?;
        let payload = self.source.payload(&frame, last);
        let read = payload.and_then(|payload| Ok((payload, self.changed(payload, block, usage)?)));
        match read {
            Ok((payload, None)) => self.frames.copy_block(block, payload)?,
            Ok((_, Some(text))) if payload::content(&text, usage.form)?.is_empty() => {
                return Ok(false);
            }
            Ok((_, Some(text))) => self.frames.write_block(&text)?,
            Err(error) if is_damage(&error) => {
                self.frames.copy_damaged(block, &frame)?;
                let Extent { offset, .. } = block.frame();
                let path = self.source.path.display();
                let note = format!(
                    "a block of `{path}` stays with the runs in it, for its frame at byte {offset} cannot be read: {error}"
                );
                self.notes.push(note);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Returns the text of a block without removed runs; `None` if it has no removed run.
    fn changed(&self, payload: &[u8], block: Block, usage: Usage) -> io::Result<Option<Vec<u8>>> {
        if usage.removed == 0 {
            return Ok(None);
        }
        let text = payload::decode(payload, block.raw())?;
        let kept = block::retain(&text, usage.form, |run| !self.removed.has(run))?;
        Ok((kept.len() < text.len()).then_some(kept))
    }

    /// Writes the directory of `range`. Returns its extent, and true if it has removals.
    fn finish(mut self, range: (Lsn, Lsn)) -> io::Result<(Extent, bool)> {
        for (_, entry) in &mut self.runs {
            let mut names = HashSet::new();
            entry.names.retain(|name| names.insert(*name));
        }
        self.runs.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (files, runs) = by_project(self.runs.into_iter());
        let directory = Directory {
            first: range.0,
            last: range.1,
            files,
            fingerprints: self.fingerprints,
            blocks: std::mem::take(&mut self.frames.blocks),
            runs,
            entries: self.entries,
            removed: self.removals,
        };
        let extent = self.frames.write(&directory.encode()?)?;
        Ok((extent, !directory.removed.is_empty()))
    }
}
