//! The directory of a section: its blocks, and the runs in them.

use std::io;

use rye_core::digest::Digest;
use rye_core::id::{Lsn, Name, RunId, Seq};
use rye_core::seal::Fingerprint;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};

use super::file::Extent;
use super::payload::{self, DIRECTORY};
use super::removal::Removal;

#[derive(Debug, Serialize, Deserialize)]
pub struct Directory {
    /// Position of its first commit.
    pub first: Lsn,
    /// Position of its last commit.
    pub last: Lsn,
    pub(super) files: Vec<Name>,
    /// Fingerprints of the signing keys, each with the position from which the key signed, in order.
    pub fingerprints: Vec<(Lsn, Fingerprint)>,
    pub(super) blocks: Vec<Block>,
    /// Its runs, ordered by project and first event.
    pub runs: Vec<RunEntry>,
    /// Indexes of the blocks with entries of the index.
    pub(super) entries: Vec<u32>,
    /// Removals in its range.
    pub removed: Vec<Removal>,
}

#[derive(Debug, Deserialize)]
pub struct RunEntry {
    pub run: RunId,
    /// Index of its project in `Directory::files`.
    pub(super) files: usize,
    pub(super) spans: Vec<Span>,
    /// Index of the block with its final record.
    pub(super) record: Option<u32>,
    /// Digests of the objects that its events in the section name.
    pub names: Vec<Digest>,
}

/// Events of one run in one block.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Span {
    pub(super) block: u32,
    pub(super) first: Seq,
    pub(super) last: Seq,
}

/// Frame of a block, and the length of its text.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Block {
    offset: u64,
    bytes: u32,
    raw: u32,
}

// On disk these are arrays, which the derived deserializers accept too.

impl Serialize for RunEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self {
            run,
            files,
            spans,
            record,
            names,
        } = self;
        (run, files, spans, record, names).serialize(to)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.block, self.first, self.last).serialize(to)
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.offset, self.bytes, self.raw).serialize(to)
    }
}

/// Returns the projects and the runs, each with the index of its project. `runs` have to be ordered by project.
pub(super) fn by_project(
    runs: impl Iterator<Item = (Name, RunEntry)>,
) -> (Vec<Name>, Vec<RunEntry>) {
    let mut projects: Vec<Name> = Vec::new();
    let mut entries = Vec::new();
    for (project, mut entry) in runs {
        if projects.last() != Some(&project) {
            projects.push(project);
        }
        entry.files = projects.len() - 1;
        entries.push(entry);
    }
    (projects, entries)
}

impl RunEntry {
    /// Returns the first and last of its events in the section; `None` if it has none there.
    pub fn seqs(&self) -> Option<(Seq, Seq)> {
        let (first, last) = (self.spans.first()?, self.spans.last()?);
        Some((first.first, last.last))
    }

    /// True if the run ended in the section; then the section has its final record.
    pub const fn is_ended(&self) -> bool {
        self.record.is_some()
    }
}

impl Block {
    pub(super) fn new(frame: Extent, text: &[u8]) -> io::Result<Self> {
        let Extent { offset, bytes } = frame;
        let raw = u32::try_from(text.len()).map_err(io::Error::other)?;
        Ok(Self { offset, bytes, raw })
    }

    /// Returns the same block in another frame.
    pub(super) const fn moved(self, to: Extent) -> Self {
        let Extent { offset, bytes } = to;
        let raw = self.raw;
        Self { offset, bytes, raw }
    }

    pub(super) const fn frame(self) -> Extent {
        let Self { offset, bytes, .. } = self;
        Extent { offset, bytes }
    }

    pub(super) fn raw(self) -> usize {
        usize::try_from(self.raw).unwrap_or(usize::MAX)
    }
}

impl Directory {
    /// Returns the fingerprint of the key that signed at `lsn`.
    pub fn fingerprint(&self, lsn: Lsn) -> Option<&Fingerprint> {
        let mut keys = self.fingerprints.iter().rev();
        keys.find(|(from, _)| *from <= lsn).map(|(_, key)| key)
    }

    /// Bytes of its blocks before compression.
    pub fn raw_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.raw()).sum()
    }

    /// Returns the entry of `run`.
    pub fn run(&self, run: &RunId) -> Option<&RunEntry> {
        self.runs.iter().find(|entry| entry.run == *run)
    }

    /// Returns the directory with the files of the project of one of its runs; `None` for a run of another directory.
    pub fn files_of(&self, run: &RunEntry) -> Option<&Name> {
        self.files.get(run.files)
    }

    /// Returns the block with this index, or an empty block, which no frame matches, if there is none.
    pub(super) fn block(&self, number: u32) -> Block {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        self.blocks.get(at).copied().unwrap_or_default()
    }

    /// True if it has all blocks and projects to which it refers.
    pub(super) fn is_consistent(&self) -> bool {
        let has_block = |number: &u32| {
            let number = usize::try_from(*number);
            number.is_ok_and(|number| number < self.blocks.len())
        };
        let is_whole = |entry: &RunEntry| {
            let mut blocks = entry.spans.iter().map(|span| &span.block);
            blocks.all(has_block)
                && entry.record.iter().all(has_block)
                && entry.files < self.files.len()
        };
        self.runs.iter().all(is_whole) && self.entries.iter().all(has_block)
    }

    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut text = payload::begin(DIRECTORY);
        serde_json::to_writer(&mut text, self)?;
        Ok(text)
    }

    pub(super) fn decode(text: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(payload::content(text, DIRECTORY)?)?)
    }

    /// True if the directory in `text` has removals. Decodes nothing else of it.
    pub(super) fn removes(text: &[u8]) -> io::Result<bool> {
        #[derive(Deserialize)]
        struct Removals {
            removed: Vec<IgnoredAny>,
        }
        let found: Removals = serde_json::from_slice(payload::content(text, DIRECTORY)?)?;
        Ok(!found.removed.is_empty())
    }
}
