//! The part of an ended graph run that failed and after which its graph went on.

use super::attempt::Unknown;
use super::failure::GRAPH_FAILED;
use super::graph;
use super::life::Outcome;
use super::run::Run;

impl Run {
    /// True if it ended at a node that declares a failure, after others had failed and the graph had gone on: a run that
    /// continues it begins at the first of these, unless at-most-once nodes were carried out since.
    pub fn failed_after_failures(&self) -> bool {
        let Some(Outcome::Error { error }) = self.outcome() else {
            return false;
        };
        // A failed child run hands its class on.
        let is_own = self.graph().is_some_and(|state| {
            let stood = state.stood();
            stood.child().is_none() && stood.items().is_none()
        });
        is_own
            && error.class.as_deref() == Some(GRAPH_FAILED)
            && self
                .first_failed()
                .is_some_and(|first| first.once_since.is_empty())
    }

    /// Returns the first node that failed, whole or in some of its items, and after which this ended graph run went on.
    pub fn first_failed(&self) -> Option<&graph::Unrepaired> {
        self.outcome()?;
        self.graph()?.unrepaired.first().map(|first| &**first)
    }

    /// Returns the attempts of unknown outcome that a run which walks on from the first failure of this one may reach.
    pub fn unknown_from_failed(&self) -> Vec<Unknown> {
        let mut unknown = self.unknown();
        let more = [
            graph::GraphState::unknown,
            graph::GraphState::unknown_of_repairs,
        ];
        let more = more.map(|unknown| self.graph().map(unknown).unwrap_or_default());
        for one in more.into_iter().flatten() {
            if !unknown.contains(&one) {
                unknown.push(one);
            }
        }
        unknown
    }
}
