//! Fence around runs that are being killed: after a kill is recorded, nothing begins in that run or below it.
//!
//! **Order.** The check walks up from the affected run. So a kill has no cost per run below it, and a run created at
//! the same moment cannot escape. The deepest runs are ended first, so all ancestors of a live run are in memory.

use super::State;
use crate::model::Run;

impl State {
    /// Returns the run whose kill covers `run`: itself, or its nearest ancestor that is being killed. Only a kill of
    /// the whole tree covers detached runs.
    pub fn fence<'a>(&'a self, run: &'a Run) -> Option<&'a Run> {
        let (mut at, mut left_alone) = (run, false);
        // The depth is the number of ancestors.
        for _ in 0..=run.spec.depth {
            let covers = |all| all || !left_alone;
            if at.kill.as_ref().is_some_and(|kill| covers(kill.tree)) {
                return Some(at);
            }
            left_alone |= at.spec.parent_end.is_detached();
            at = self.run(at.spec.parent.as_ref()?)?;
        }
        None
    }
}
