//! Reading a section: first its directory, then only the blocks that are needed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rye_core::id::{Lsn, RunId, Seq};

use super::block;
use super::directory::{Directory, RunEntry, Span};
use super::error::Error;
use super::file::{Extent, HistoryFile};
use super::payload::{ENTRIES, MAX_TEXT_BYTES, RECORDS, damaged};
use super::section::Event;
use super::table::Row;
use super::usage::usages;

/// A section of history. Its file stays open and readable while this value exists.
#[derive(Debug, Clone)]
pub struct SectionRef {
    file: Arc<HistoryFile>,
    pub(super) row: Row,
}

impl SectionRef {
    pub(super) const fn new(file: Arc<HistoryFile>, row: Row) -> Self {
        Self { file, row }
    }

    pub(super) const fn has_removals(&self) -> bool {
        self.row.has_removals
    }

    /// Position of its first commit.
    pub const fn first(&self) -> Lsn {
        self.row.first
    }

    /// Position of its last commit.
    pub const fn last(&self) -> Lsn {
        self.row.last
    }

    /// Reads the directory. Blocks.
    pub fn read(&self) -> Result<SectionReader, Error> {
        let (first, last) = (self.first(), self.last());
        let extent = self.row.directory();
        let text = self.file.text(extent, last, MAX_TEXT_BYTES);
        let directory = text.and_then(|text| Directory::decode(&text));
        let directory = directory.and_then(|directory| {
            let is_same = (directory.first, directory.last) == (first, last);
            let other = || damaged("its positions are not those on record");
            is_same.then_some(directory).ok_or_else(other)
        });
        let content = || format!("positions {first} to {last} of history");
        let directory = directory.map_err(|source| self.error(extent, content(), source))?;
        let section = self.clone();
        Ok(SectionReader { section, directory })
    }

    fn error(&self, frame: Extent, content: String, source: io::Error) -> Error {
        Error::Frame {
            content,
            path: self.file.path.clone(),
            offset: frame.offset,
            source,
        }
    }
}

/// A section with its directory in memory. Blocks are read when they are needed, and decompressed one at a time.
#[derive(Debug)]
pub struct SectionReader {
    section: SectionRef,
    directory: Directory,
}

impl SectionReader {
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) fn into_directory(self) -> Directory {
        self.directory
    }

    /// Returns the events of `run` with these positions, in order. One error takes the place of those in a damaged
    /// block, and the events after it follow. Blocks.
    pub fn events_of(
        &self,
        run: &RunId,
        seqs: RangeInclusive<Seq>,
    ) -> impl Iterator<Item = Result<Event, Error>> + use<'_> {
        let (start, end) = seqs.clone().into_inner();
        let entry = self.directory.run(run).into_iter();
        let spans = entry.flat_map(|entry| entry.spans.iter().map(move |span| (entry, *span)));
        let spans = spans.filter(move |(_, span)| start <= span.last && span.first <= end);
        let events = spans.flat_map(|run| each(self.events_in(run.1.block, &[run])));
        let events = events.map(|event| event.map(|(_, event)| event));
        events.filter(move |event| !event.as_ref().is_ok_and(|event| !seqs.contains(&event.seq)))
    }

    /// Returns the events of the runs that `wanted` selects, in the order of the log. Fails if one of their blocks is
    /// damaged. Blocks.
    pub fn events(&self, wanted: impl Fn(&RunEntry) -> bool) -> Result<Vec<(RunId, Event)>, Error> {
        let mut blocks: BTreeMap<u32, Vec<(&RunEntry, Span)>> = BTreeMap::new();
        for entry in self.directory.runs.iter().filter(|entry| wanted(entry)) {
            for span in &entry.spans {
                blocks.entry(span.block).or_default().push((entry, *span));
            }
        }
        let mut events = Vec::new();
        for (block, spans) in &blocks {
            events.extend(self.events_in(*block, spans)?);
        }
        events.sort_by_key(|(_, event)| (event.lsn, event.place));
        Ok(events)
    }

    /// Returns the final record of `run`; `None` if the section has none. Blocks.
    pub fn record_of(&self, run: &RunId) -> Result<Option<Vec<u8>>, Error> {
        let Some(block) = self.directory.run(run).and_then(|entry| entry.record) else {
            return Ok(None);
        };
        let content = || format!("the record of run {run}");
        let records = self.read(block, content, |text| {
            let mut records = block::read_texts(text, RECORDS)?.into_iter();
            let record = records.find(|(of, _)| of == run);
            record.ok_or_else(|| damaged("the record is not in it"))
        });
        records.map(|(_, record)| Some(record))
    }

    /// Returns the final records of all runs that ended in this section. One error takes the place of those in a
    /// damaged block. Blocks.
    pub fn records(&self) -> impl Iterator<Item = Result<(RunId, Vec<u8>), Error>> {
        let mut blocks: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for entry in &self.directory.runs {
            if let Some(block) = entry.record {
                blocks.entry(block).or_default().push(entry.run.as_str());
            }
        }
        blocks.into_iter().flat_map(|(block, runs)| {
            let content = || format!("the records of runs {}", runs.join(", "));
            self.texts(block, RECORDS, content)
        })
    }

    /// Returns the index entries of all runs that ended in this section. One error takes the place of those in a
    /// damaged block. Blocks.
    pub fn entries(&self) -> impl Iterator<Item = Result<(RunId, Vec<u8>), Error>> {
        let blocks = self.directory.entries.iter();
        blocks.flat_map(|block| {
            let (first, last) = (self.section.first(), self.section.last());
            let content = || format!("index entries of positions {first} to {last}");
            self.texts(*block, ENTRIES, content)
        })
    }

    /// Returns the text of each block without the lines of the runs that `is_removed` selects. Blocks.
    pub fn texts_without(
        &self,
        is_removed: impl Fn(&RunId) -> bool,
    ) -> impl Iterator<Item = Result<Vec<u8>, Error>> {
        let usages = usages(&self.directory, &is_removed).into_iter();
        let used = (0..).zip(usages).filter(|(_, usage)| usage.living > 0);
        used.map(move |(block, usage)| {
            let (first, last) = (self.section.first(), self.section.last());
            let content = || format!("a block of positions {first} to {last}");
            self.read(block, content, |text| {
                block::retain(text, usage.form, |run| !is_removed(run))
            })
        })
    }

    fn texts(
        &self,
        block: u32,
        form: &str,
        content: impl Fn() -> String,
    ) -> Vec<Result<(RunId, Vec<u8>), Error>> {
        each(self.read(block, content, |text| block::read_texts(text, form)))
    }

    /// Returns the events of these runs in `block`. Fails unless they are exactly the events of the spans.
    fn events_in(
        &self,
        block: u32,
        runs: &[(&RunEntry, Span)],
    ) -> Result<Vec<(RunId, Event)>, Error> {
        let content = || {
            let runs = runs.iter().map(|(RunEntry { run, .. }, span)| {
                format!("events {} to {} of run {run}", span.first, span.last)
            });
            runs.collect::<Vec<_>>().join(", ")
        };
        self.read(block, content, |text| {
            let seqs = |(entry, span): &(&'_ RunEntry, Span)| {
                (entry.run.clone(), span.first.0..=span.last.0)
            };
            let mut seqs: HashMap<RunId, RangeInclusive<u64>> = runs.iter().map(seqs).collect();
            let events = block::read_events(text, |run| seqs.contains_key(run))?;
            let positions = self.section.first()..=self.section.last();
            let is_next = |(run, event): &(RunId, Event)| {
                let seq = seqs.get_mut(run).and_then(Iterator::next);
                seq == Some(event.seq.0) && positions.contains(&event.lsn)
            };
            let is_same = events.iter().all(is_next) && seqs.values().all(RangeInclusive::is_empty);
            let other = || damaged("its events are not those on record");
            is_same.then_some(events).ok_or_else(other)
        })
    }

    /// Reads the text of `block` with `read`; an error names the `content`.
    fn read<T>(
        &self,
        block: u32,
        content: impl Fn() -> String,
        read: impl FnOnce(&[u8]) -> io::Result<T>,
    ) -> Result<T, Error> {
        let block = self.directory.block(block);
        let SectionRef { file, row } = &self.section;
        let text = file.text(block.frame(), row.last, block.raw());
        let found = text.and_then(|text| {
            if text.len() == block.raw() {
                return read(&text);
            }
            Err(damaged("its length is not that on record"))
        });
        found.map_err(|source| self.section.error(block.frame(), content(), source))
    }
}

/// Returns the items of a list, or one error in their place.
fn each<T>(list: Result<Vec<T>, Error>) -> Vec<Result<T, Error>> {
    match list {
        Ok(list) => list.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}
