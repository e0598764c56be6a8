//! The runs that a compaction removes from history, and the removals that stay on record.

use std::collections::{HashMap, HashSet};

use rye_core::clock::Timestamp;
use rye_core::id::RunId;

use super::directory::Directory;
use super::removal::Removal;

/// Removed runs, and the number of their directory entries in all of history.
pub(super) struct DeadRuns<'d> {
    pub(super) dead: &'d HashSet<RunId>,
    /// Number of directory entries of each run that a removal or the caller names.
    pub(super) entries: HashMap<RunId, u64>,
    /// True if a directory cannot be read; it may have entries of any run.
    pub(super) has_unknown: bool,
    pub(super) keys_since: Timestamp,
}

impl DeadRuns<'_> {
    pub(super) fn has(&self, run: &RunId) -> bool {
        self.dead.contains(run)
    }

    /// Returns the part of `removal` that stays on record; `None` if nothing does.
    pub(super) fn needed(&self, mut removal: Removal) -> Option<Removal> {
        let keeps_keys = removal.at >= self.keys_since;
        removal.runs.retain(|removed| {
            let entries = self.entries.get(&removed.run);
            let is_in_history = self.has_unknown || entries.is_none_or(|count| *count > 0);
            is_in_history || keeps_keys && removed.start_key.is_some()
        });
        let is_needed = !removal.runs.is_empty() || !removal.kept.is_empty();
        is_needed.then_some(removal)
    }

    /// Counts the entries in `directory`. Later directories have to be added first: a removal comes after the entries
    /// of its runs.
    pub(super) fn add(&mut self, directory: &Directory) {
        for removed in directory.removed.iter().flat_map(|removal| &removal.runs) {
            self.entries.entry(removed.run.clone()).or_default();
        }
        for entry in &directory.runs {
            if let Some(count) = self.entries.get_mut(&entry.run) {
                *count += 1;
            }
        }
    }

    /// Subtracts the entries of dead runs in `directory`.
    pub(super) fn subtract(&mut self, directory: &Directory) {
        let runs = directory.runs.iter();
        for entry in runs.filter(|entry| self.dead.contains(&entry.run)) {
            if let Some(count) = self.entries.get_mut(&entry.run) {
                *count = count.saturating_sub(1);
            }
        }
    }
}
