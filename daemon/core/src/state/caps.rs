//! How many runs there may be at once, and how much memory what they begin with may take.

use std::collections::HashMap;

use super::{Draft, Refused, State, Why};
use crate::id::RunId;
use crate::model::{RunKind, Spec};

impl State {
    /// Refuses a draft that creates a run whose inputs do not fit. What happens to runs that are there is counted, and was asked for before.
    pub(super) fn check_memory(&self, draft: &Draft) -> Result<(), Refused> {
        let mut added = 0;
        for drafted in draft.runs.iter().filter(|drafted| drafted.base.is_none()) {
            added += drafted.record.held();
            if !self.memory.fits(added) {
                return Err(Refused {
                    change: drafted.first,
                    run: drafted.record.id.clone(),
                    why: Why::MemoryFull(self.memory.most()),
                });
            }
        }
        Ok(())
    }

    /// Refuses a draft with which more runs that one run has started would not be over than it may have at once. What ends in the same
    /// draft counts still.
    pub(super) fn check_children(&self, draft: &Draft) -> Result<(), Refused> {
        let mut added: HashMap<&RunId, usize> = HashMap::new();
        for (number, (change, _)) in draft.facts().enumerate() {
            let Some(parent) = change.created().and_then(|spec| spec.parent.as_ref()) else {
                continue;
            };
            let most = self.runs.get(parent).and_then(|run| run.spec.children.most);
            let Some(most) = most else { continue };
            let added = added.entry(parent).or_default();
            *added += 1;
            let live = self.live_children.get(parent).copied().unwrap_or_default();
            if live + *added > usize::try_from(most).unwrap_or(usize::MAX) {
                return Err(Refused {
                    change: number,
                    run: change.run.clone(),
                    why: Why::TooManyChildren(most),
                });
            }
        }
        Ok(())
    }

    /// How many runs of its tree may be live with a run of this `spec`, and what it is refused with if there would be more: `most`, or fewer
    /// for a thread if the run that starts it says so.
    pub(super) fn full_tree(&self, spec: &Spec, most: usize) -> (usize, Why) {
        let starts = spec
            .parent
            .as_ref()
            .and_then(|parent| self.runs.get(parent));
        let starts = starts.filter(|_| spec.kind() == RunKind::Thread);
        let fewer = starts.and_then(|run| run.spec.children.most_in_tree);
        let fewer = fewer.and_then(|fewer| usize::try_from(fewer).ok());
        match fewer.filter(|fewer| *fewer < most) {
            Some(fewer) => (fewer, Why::ThreadsFull(fewer)),
            None => (most, Why::TreeFull(most)),
        }
    }
}
