//! Usage of the blocks of a section by living and removed runs, and the choice of the sections that compaction merges.

use std::ops::AddAssign;

use rye_core::id::RunId;

use super::directory::Directory;
use super::payload::{ENTRIES, EVENTS, RECORDS};

/// Sections with fewer bytes in blocks of living runs are merged.
const SMALL_BYTES: u64 = 1 << 20;
/// Limit in bytes on the text of a merged section, which a reader may hold in memory. The sealer ends its sections at
/// the same length.
const MERGED_RAW_BYTES: u64 = 16 << 20;

/// Number of lines of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// Form of the block; empty if no run of the directory uses the block.
    pub(super) form: &'static str,
    /// Lines of living runs.
    pub(super) living: u64,
    /// Lines of removed runs.
    pub(super) removed: u64,
}

/// Bytes in blocks of living runs, estimated from their share of the lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) bytes: u64,
    /// Bytes before compression.
    raw: u64,
}

impl Usage {
    /// Returns the share of living runs in `bytes`.
    fn share(self, bytes: u64) -> u64 {
        let lines = self.living.saturating_add(self.removed).max(1);
        bytes.saturating_mul(self.living) / lines
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.raw = self.raw.saturating_add(other.raw);
    }
}

impl Size {
    fn of(directory: &Directory, is_removed: impl Fn(&RunId) -> bool) -> Self {
        let mut size = Self::default();
        let usages = usages(directory, is_removed);
        for (block, usage) in directory.blocks.iter().zip(usages) {
            let raw = u64::try_from(block.raw()).unwrap_or(u64::MAX);
            size += Self {
                bytes: usage.share(block.frame().bytes.into()),
                raw: usage.share(raw),
            };
        }
        size
    }

    fn is_merged_with(self, next: Self) -> bool {
        let is_small = self.bytes < SMALL_BYTES || next.bytes < SMALL_BYTES;
        let is_empty = self.raw == 0 || next.raw == 0;
        is_empty || is_small && self.raw.saturating_add(next.raw) <= MERGED_RAW_BYTES
    }
}

/// Returns the usage of each block of `directory`.
pub(super) fn usages(directory: &Directory, is_removed: impl Fn(&RunId) -> bool) -> Vec<Usage> {
    let mut usages = vec![Usage::default(); directory.blocks.len()];
    for entry in &directory.runs {
        let is_removed = is_removed(&entry.run);
        let events = entry.spans.iter().map(|span| {
            let count = span.last.0.saturating_sub(span.first.0).saturating_add(1);
            (EVENTS, span.block, count)
        });
        let records = entry.record.iter().map(|block| (RECORDS, *block, 1));
        // The directory records neither the runs that have an index entry nor the block of an entry.
        let entries = directory.entries.iter().map(|block| (ENTRIES, *block, 1));
        for (form, block, count) in events.chain(records).chain(entries) {
            let block = usize::try_from(block).unwrap_or(usize::MAX);
            let Some(usage) = usages.get_mut(block) else {
                continue;
            };
            usage.form = form;
            let lines = if is_removed {
                &mut usage.removed
            } else {
                &mut usage.living
            };
            *lines = lines.saturating_add(count);
        }
    }
    usages
}

/// Returns the bytes in blocks of a section: of living runs, and of all runs.
pub(super) fn bytes(directory: &Directory, is_removed: impl Fn(&RunId) -> bool) -> (u64, u64) {
    let frames = directory.blocks.iter().map(|block| block.frame().bytes);
    let all = frames.map(u64::from).sum();
    (Size::of(directory, is_removed).bytes, all)
}

/// Groups the sections of a file; each group becomes one section. Positions that no section covers stay uncovered,
/// between groups.
pub(super) fn groups(
    sections: Vec<Directory>,
    is_removed: impl Fn(&RunId) -> bool,
) -> Vec<Vec<Directory>> {
    let mut groups: Vec<(Size, Vec<Directory>)> = Vec::new();
    for section in sections {
        let size = Size::of(&section, &is_removed);
        let group = groups.last_mut().filter(|(of_group, group)| {
            let last = group.last();
            last.is_some_and(|last| last.last.next() == section.first)
                && of_group.is_merged_with(size)
        });
        match group {
            Some((of_group, group)) => {
                *of_group += size;
                group.push(section);
            }
            None => groups.push((size, vec![section])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
