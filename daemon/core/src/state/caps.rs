//! Limits on the number of runs, and on the memory of their inputs.

use std::collections::HashMap;

use super::{Draft, RefusalReason, Refused, State};
use crate::id::RunId;
use crate::model::{RunKind, Spec};

impl State {
    /// Refuses a draft that creates a run whose inputs do not fit. Growth of existing runs is reserved elsewhere, and
    /// counted.
    pub(super) fn check_memory(&self, draft: &Draft) -> Result<(), Refused> {
        let mut added = 0;
        for drafted in draft.runs.iter().filter(|drafted| drafted.base.is_none()) {
            added += drafted.record.held();
            if !self.memory.fits(added) {
                return Err(Refused {
                    change: drafted.first,
                    run: drafted.record.id.clone(),
                    why: RefusalReason::MemoryFull(self.memory.most()),
                });
            }
        }
        Ok(())
    }

    /// Refuses a draft with which a run would have more live child runs than it may have. Runs that end in the same
    /// draft still count.
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
                    why: RefusalReason::TooManyChildren(most),
                });
            }
        }
        Ok(())
    }

    /// Returns the largest number of live runs in the tree of a run with this `spec`, and the refusal beyond it:
    /// `most`, or fewer for a thread if its parent sets a lower limit.
    pub(super) fn full_tree(&self, spec: &Spec, most: usize) -> (usize, RefusalReason) {
        let starts = spec
            .parent
            .as_ref()
            .and_then(|parent| self.runs.get(parent));
        let starts = starts.filter(|_| spec.kind() == RunKind::Thread);
        let fewer = starts.and_then(|run| run.spec.children.most_in_tree);
        let fewer = fewer.and_then(|fewer| usize::try_from(fewer).ok());
        match fewer.filter(|fewer| *fewer < most) {
            Some(fewer) => (fewer, RefusalReason::ThreadsFull(fewer)),
            None => (most, RefusalReason::TreeFull(most)),
        }
    }
}
