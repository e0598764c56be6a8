//! Removed runs: conditions of a removal, and refusal of runs that name a removed one.
//!
//! **Owns** the ids of the last [`MAX_GONE`] removed runs. A caller that read the record of a run before its removal
//! may still request a run that continues it; that is refused. **Never** holds a removed run: it was evicted earlier.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::{RefusalReason, Refused, State};
use crate::id::RunId;
use crate::model::{Run, Spec};

/// Number of removed runs that are remembered. A creation is drafted and committed within milliseconds; far fewer runs
/// are removed meanwhile.
const MAX_GONE: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Gone {
    ids: HashSet<RunId>,
    /// The same ids, the oldest first.
    order: VecDeque<RunId>,
}

impl Gone {
    fn enter(&mut self, id: &RunId) {
        if self.ids.insert(id.clone()) {
            self.order.push_back(id.clone());
        }
        if self.order.len() > MAX_GONE
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    /// Returns a removed run that `spec` names.
    pub(super) fn named_by(&self, spec: &Spec) -> Option<RunId> {
        let names = spec.parent.iter().chain(continued(spec));
        names.into_iter().find(|id| self.ids.contains(id)).cloned()
    }
}

/// Returns the runs of its chain that `spec` names.
fn continued(spec: &Spec) -> impl Iterator<Item = &RunId> {
    spec.continuation_of.iter().chain([&spec.chain_root])
}

/// Runs in memory that continue others, by those.
#[derive(Debug, Default)]
pub(super) struct Continuations(HashMap<RunId, BTreeSet<RunId>>);

impl Continuations {
    pub(super) fn enter(&mut self, run: &Run) {
        for of in continued(&run.spec).filter(|of| **of != run.id) {
            let runs = self.0.entry(of.clone()).or_default();
            runs.insert(run.id.clone());
        }
    }

    pub(super) fn forget(&mut self, run: &Run) {
        for of in continued(&run.spec) {
            if let Some(runs) = self.0.get_mut(of) {
                runs.remove(&run.id);
                if runs.is_empty() {
                    self.0.remove(of);
                }
            }
        }
    }

    fn of(&self, run: &RunId) -> impl Iterator<Item = &RunId> {
        self.0.get(run).into_iter().flatten()
    }
}

impl State {
    /// Fails if one of `runs` is in memory, or if a live run is its child or continues it.
    pub fn check_removal<'a>(
        &self,
        runs: impl IntoIterator<Item = &'a RunId>,
    ) -> Result<(), Refused> {
        for (number, id) in runs.into_iter().enumerate() {
            let why = match self.runs.get(id) {
                Some(run) if run.status().is_terminal() => Some(RefusalReason::Unsealed),
                Some(_) => Some(RefusalReason::Live),
                None => self.user_of(id).cloned().map(RefusalReason::Named),
            };
            if let Some(why) = why {
                return Err(Refused {
                    change: number,
                    run: id.clone(),
                    why,
                });
            }
        }
        Ok(())
    }

    /// Returns a live run that names `id`.
    fn user_of(&self, id: &RunId) -> Option<&RunId> {
        let is_live = |user: &&RunId| {
            let run = self.runs.get(*user);
            run.is_some_and(|run| !run.status().is_terminal())
        };
        let mut users = self.children(id).chain(self.continuations.of(id));
        users.find(is_live)
    }

    /// Returns true if the run was removed recently.
    pub fn is_gone(&self, id: &RunId) -> bool {
        self.gone.ids.contains(id)
    }

    /// Records the removal of `runs`, which are not in memory. From now on, no run that names one of them can be
    /// created.
    pub fn remove<'a>(&mut self, runs: impl IntoIterator<Item = &'a RunId>) {
        for id in runs {
            self.gone.enter(id);
        }
    }
}
