//! The fence around runs that are being killed: from the moment a kill is on record nothing begins in that run and below it.
//!
//! **Order.** The walk goes up from the run in question, so a kill costs nothing per run below it, and no run that is created at
//! that very moment can slip through. Runs are ended the deepest first, so what is above a live run is in memory.

use super::State;
use crate::model::Run;

impl State {
    /// The run whose kill covers `run`: itself, or the nearest one above that is being killed. Detached runs are covered only
    /// by a kill of the whole tree.
    pub fn fence<'a>(&'a self, run: &'a Run) -> Option<&'a Run> {
        let (mut at, mut left_alone) = (run, false);
        // So many runs are above it, and no more.
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
