//! Appends sections to one file until it is full or a write fails, then to a new file.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rye_core::id::{Lsn, Name};

use super::block::{self, Packer};
use super::directory::{Directory, RunEntry, Span, by_project};
use super::error::Error;
use super::faults::Faults;
use super::file::{self, Extent, FileEnd, HistoryFile};
use super::frames::FrameWriter;
use super::payload::{ENTRIES, EVENTS, Encoder, RECORDS};
use super::section::{RunPart, Section};
use super::table::{self, Row, Table};
use crate::watermark::lock;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    /// Length in bytes at which a file is full.
    pub(super) file_bytes: u64,
    /// Number of the next new file.
    pub(super) next: u32,
    pub(super) current: Option<Current>,
    /// End of the last synced frame.
    pub(super) end: Option<FileEnd>,
    pub(super) encoder: Encoder,
    pub(super) faults: Faults,
}

/// The file to which sections are appended.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) file: Arc<HistoryFile>,
    /// End of its last synced frame.
    pub(super) length: u64,
}

impl Writer {
    /// Appends `section`; it is on disk when this returns.
    pub(super) fn append(&mut self, section: &Section) -> Result<(Arc<HistoryFile>, Row), Error> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.create()?,
        };
        let range = (section.first, section.last);
        let before = Lsn(section.first.0 - 1);
        let directory = self.write(&current, section.last, before, |frames| {
            frames.write_section(section)
        })?;
        current.length = directory.end();
        let file = Arc::clone(&current.file);
        self.current = Some(current);
        let has_removals = !section.removed.is_empty();
        let row = Row::new(range, file.number, directory, has_removals);
        Ok((file, row))
    }

    /// Ends the current file if it is full.
    pub(super) fn finish_full(&mut self, table: &Mutex<Table>) -> Result<(), Error> {
        let current = self.current.as_ref();
        if current.is_some_and(|current| current.length >= self.file_bytes) {
            self.finish(table)?;
        }
        Ok(())
    }

    /// Ends the current file with its part of `table`. The next section goes to a new file.
    pub(super) fn finish(&mut self, table: &Mutex<Table>) -> Result<(), Error> {
        if let Some(current) = self.current.take() {
            let rows = lock(table).sections_of(current.file.number);
            let last = rows.last().map_or(Lsn(0), |row| row.last);
            self.write(&current, last, last, |frames| {
                frames.write(&table::encode(&rows)?)
            })?;
        }
        Ok(())
    }

    /// Records that compaction has replaced the file `number`.
    pub(super) fn set_length(&mut self, number: u32, length: u64) {
        if let Some(end) = self.end.as_mut().filter(|end| end.file == number) {
            end.length = length;
        }
    }

    /// True if the next section goes to the file `number`.
    pub(super) fn is_current(&self, number: u32) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.file.number == number)
    }

    /// Writes and syncs frames at the end of `current`. After a failure the file is cut to its previous end.
    fn write(
        &mut self,
        current: &Current,
        lsn: Lsn,
        durable: Lsn,
        write: impl FnOnce(&mut FrameWriter<'_>) -> io::Result<Extent>,
    ) -> Result<Extent, Error> {
        let mut frames = FrameWriter {
            file: &current.file,
            faults: &self.faults,
            encoder: &mut self.encoder,
            lsn,
            durable,
            offset: current.length,
            blocks: Vec::new(),
        };
        let written = write(&mut frames).and_then(|extent| {
            self.faults.sync(&current.file.file)?;
            if current.length == 0 {
                self.faults.sync_dir(&self.dir)?;
            }
            Ok(extent)
        });
        match written {
            Ok(extent) => {
                let (file, length) = (current.file.number, extent.end());
                self.end = Some(FileEnd { file, length });
                Ok(extent)
            }
            Err(source) => {
                self.cut(current);
                Err(Error::files("append to", &current.file.path)(source))
            }
        }
    }

    /// Cuts `current` to its synced part. A file without one is removed, so that a full disk does not collect empty
    /// files.
    fn cut(&mut self, current: &Current) {
        let HistoryFile { number, path, file } = &*current.file;
        let cut = if current.length == 0 {
            fs::remove_file(path).map(|()| self.next = *number)
        } else {
            file.set_len(current.length)
        };
        if let Err(error) = cut {
            // Harmless: a later section of the same positions replaces the rest of the failed append.
            tracing::warn!(%error, path = %path.display(), "a failed append to history cannot be undone");
        }
    }

    fn create(&mut self) -> Result<Current, Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = HistoryFile::open(&self.dir, self.next, &options)
            .map_err(Error::files("create", &file::path(&self.dir, self.next)))?;
        self.next = self.next.saturating_add(1);
        let file = Arc::new(file);
        Ok(Current { file, length: 0 })
    }
}

impl FrameWriter<'_> {
    /// Writes `section`. Returns the extent of its directory.
    fn write_section(&mut self, section: &Section) -> io::Result<Extent> {
        let mut parts: Vec<&RunPart> = section.runs.iter().collect();
        parts.sort_by_key(|&part| (&*part.files, part.events.first().map(|event| event.lsn)));
        let spans = self.write_events(&parts)?;
        let records = self.write_texts(&parts, RECORDS, |part| part.record.as_deref())?;
        let entries = self.write_texts(&parts, ENTRIES, |part| part.entry.as_deref())?;
        let entries: BTreeSet<u32> = entries.into_iter().flatten().collect();
        let parts = parts.iter().zip(spans.into_iter().zip(records));
        let (files, runs) = by_project(parts.map(|(part, (spans, record))| {
            let (run, names) = (part.run.clone(), part.names.clone());
            let entry = RunEntry {
                run,
                files: 0,
                spans,
                record,
                names,
            };
            (Name::clone(&part.files), entry)
        }));
        let directory = Directory {
            first: section.first,
            last: section.last,
            files,
            fingerprints: section.fingerprints.clone(),
            blocks: std::mem::take(&mut self.blocks),
            runs,
            entries: entries.into_iter().collect(),
            removed: section.removed.clone(),
        };
        self.write(&directory.encode()?)
    }

    /// Writes the events of `parts`. Returns the spans of each part.
    fn write_events(&mut self, parts: &[&RunPart]) -> io::Result<Vec<Vec<Span>>> {
        let mut packer = Packer::new(self, EVENTS);
        let mut spans = Vec::with_capacity(parts.len());
        for part in parts {
            let mut of_part: Vec<Span> = Vec::new();
            for event in &part.events {
                let block = packer.push(&part.run, &block::event_line(event)?)?;
                let (first, last) = (event.seq, event.seq);
                match of_part.last_mut().filter(|span| span.block == block) {
                    Some(span) => span.last = last,
                    None => of_part.push(Span { block, first, last }),
                }
            }
            spans.push(of_part);
        }
        packer.flush()?;
        Ok(spans)
    }

    /// Writes one line of each part that has one. Returns the index of its block for each part.
    fn write_texts(
        &mut self,
        parts: &[&RunPart],
        form: &'static str,
        text: impl Fn(&RunPart) -> Option<&[u8]>,
    ) -> io::Result<Vec<Option<u32>>> {
        let mut packer = Packer::new(self, form);
        let blocks = parts.iter().map(|part| {
            text(part)
                .map(|text| packer.push(&part.run, text))
                .transpose()
        });
        let blocks = blocks.collect::<io::Result<_>>()?;
        packer.flush()?;
        Ok(blocks)
    }
}
