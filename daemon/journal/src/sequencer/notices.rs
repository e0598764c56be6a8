//! Warnings about settlements: of calls that cost more than was reserved, and of limits that are mostly used up. A
//! warning follows its settlement in the same commit.
//!
//! The warnings of a settlement are determined when its commit is checked, under the lock. If a commit has other
//! warnings than are due, it is drafted once more with these. So a crash leaves both or none, and no other settlement
//! can intervene.

use rye_core::ledger::Notice;
use rye_core::model::Event;
use rye_core::model::event::Warning;
use rye_core::state::Refused;

use crate::record::Rendered;
use rye_core::state::Change;

/// The warnings in a commit.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    due: Vec<(usize, Notice)>,
    /// Their indexes among the changes.
    indexes: Vec<usize>,
}

impl Warnings {
    /// True if they are the warnings for `notices`.
    pub(crate) fn cover(&self, notices: &[(usize, Notice)]) -> bool {
        self.due == notices
    }

    /// Returns the refusal with the index of its change among the changes without warnings.
    pub(crate) fn without_warnings(&self, refused: Refused) -> Refused {
        let before = self.indexes.iter().filter(|place| **place < refused.change);
        Refused {
            change: refused.change - before.count(),
            ..refused
        }
    }

    /// Replaces the warnings among `changes`, which are rendered in `texts`, by those for `notices`.
    pub(crate) fn replace(
        &mut self,
        notices: Vec<(usize, Notice)>,
        changes: &mut Vec<Change>,
        texts: &mut Vec<Rendered>,
    ) {
        for place in self.indexes.drain(..).rev() {
            changes.remove(place);
            texts.remove(place);
        }
        let settlements = changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.settles().is_some());
        let settlements: Vec<usize> = settlements.map(|(place, _)| place).collect();
        for (settlement, notice) in &notices {
            let Some(settled) = settlements.get(*settlement) else {
                continue;
            };
            // The warnings inserted so far have shifted it.
            let place = settled + 1 + self.indexes.len();
            let event = Event::from(Warning {
                node: None,
                message: notice.to_string(),
            });
            texts.insert(place, Rendered::of(&event));
            let run = changes[*settled + self.indexes.len()].run.clone();
            changes.insert(place, Change::event(&run, event));
            self.indexes.push(place);
        }
        self.due = notices;
    }
}
