//! Access to runs: one rule for calls from outside and for the tools of runs.
//!
//! | caller | sees | may stop, resume and answer |
//! | --- | --- | --- |
//! | a user | the user's runs, in every project | every run it sees |
//! | a tool run that a user started | the runs of its user in its project | every run it sees: it acts for the user |
//! | a graph run | the runs of its user in its project | its own chain of continuations and its descendants |
//! | a tool run of another run | the runs of its user in its project | none: authority only narrows |
//!
//! A continuation counts as the run that it continues. **Never** reports why a run is hidden: for the caller it does
//! not exist.

use crate::capability::Layer;
use crate::id::RunId;
use crate::ledger::AccountId;
use crate::model::{RunKind, Spec};

/// Caller of an operation on runs.
#[derive(Debug, Clone, Copy)]
pub enum Caller<'a> {
    /// A user with its permissions; the layer's source is the user's name.
    User(&'a Layer),
    Run {
        run: &'a RunId,
        /// Authority and project of the run.
        spec: &'a Spec,
    },
}

/// Filter for the runs that a caller sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    pub principal: &'a str,
    /// Limits the scope to one project; `None` means every project.
    pub project: Option<&'a str>,
}

impl<'a> Caller<'a> {
    /// Returns the filter for the runs that the caller sees.
    pub fn scope(self) -> Scope<'a> {
        match self {
            Self::User(layer) => Scope {
                principal: &layer.source,
                project: None,
            },
            Self::Run { spec, .. } => Scope {
                principal: &spec.principal,
                project: Some(&spec.project),
            },
        }
    }

    /// Returns true if the caller sees the run of `spec`.
    pub fn sees(self, spec: &Spec) -> bool {
        let Scope { principal, project } = self.scope();
        principal == spec.principal && project.is_none_or(|project| project == spec.project)
    }

    /// Returns the account from which the runs that the caller resumes must draw, itself or in its subtree. `None` if
    /// the caller acts for a user.
    pub fn pays(self) -> Option<&'a AccountId> {
        match self {
            Self::User(_) => None,
            Self::Run { spec, .. } => (!self.is_for_user()).then_some(&spec.budget.account),
        }
    }

    /// Returns true for a user and for a tool run that a user started directly.
    fn is_for_user(self) -> bool {
        match self {
            Self::User(_) => true,
            Self::Run { spec, .. } => spec.kind() == RunKind::Tool && spec.parent.is_none(),
        }
    }

    /// Returns true if the caller may stop, resume and answer the first run of `lineage`. The specs of its ancestors
    /// follow it, the nearest first.
    pub fn may_act<'s>(self, lineage: impl IntoIterator<Item = &'s Spec>) -> bool {
        let mut lineage = lineage.into_iter().peekable();
        if !lineage.peek().is_some_and(|own| self.sees(own)) {
            return false;
        }
        match self {
            Self::User(_) => true,
            Self::Run { spec, .. } if spec.kind() == RunKind::Tool => spec.parent.is_none(),
            Self::Run { spec, .. } => lineage.any(|above| above.chain_root == spec.chain_root),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ItemId, ItemRef};
    use crate::model::{Budget, Task};

    fn layer(name: &str) -> Layer {
        Layer {
            source: name.to_owned(),
            patterns: Vec::new(),
        }
    }

    fn id(text: &str) -> RunId {
        RunId::new(text).unwrap()
    }

    fn run(kind: RunKind, name: &str, principal: &str, project: &str) -> Spec {
        Spec {
            project: project.into(),
            principal: principal.into(),
            ..Spec::new(
                Task::of(kind),
                ItemRef::tool(ItemId::new("t/item").unwrap()),
                id(name),
                Budget::open(id(name)),
            )
        }
    }

    fn below(parent: &str, run: Spec) -> Spec {
        let parent = Some(id(parent));
        Spec { parent, ..run }
    }

    /// Returns the access of `caller` to the first run of a lineage: `acts`, `sees`, or `none`.
    fn may(caller: Caller<'_>, line: &[&Spec]) -> &'static str {
        let own = line.first().expect("a line has a run");
        match (caller.sees(own), caller.may_act(line.iter().copied())) {
            (true, true) => "acts",
            (true, false) => "sees",
            (false, false) => "none",
            (false, true) => "acts on what it does not see",
        }
    }

    #[test]
    fn user_acts_on_own_runs_only() {
        let (ada, bob) = (layer("uid:1"), layer("uid:2"));
        let (ada, bob) = (Caller::User(&ada), Caller::User(&bob));
        let own = run(RunKind::Graph, "graph-1", "uid:1", "/p");
        let child = below("graph-1", run(RunKind::Tool, "tool-1", "uid:1", "/p"));
        let elsewhere = run(RunKind::Graph, "graph-3", "uid:1", "/q");
        assert_eq!(may(ada, &[&own]), "acts");
        assert_eq!(may(ada, &[&child, &own]), "acts");
        assert_eq!(may(ada, &[&elsewhere]), "acts");
        assert_eq!(may(bob, &[&own]), "none");
        let of_bob = run(RunKind::Graph, "graph-4", "uid:2", "/p");
        assert_eq!(may(bob, &[&own, &of_bob]), "none");
        assert!(!ada.may_act([]));
    }

    #[test]
    fn tool_run_acts_for_its_user_and_for_no_other_run() {
        let name = id("tool-1");
        let by = |spec| Caller::Run { run: &name, spec };
        let of_user = run(RunKind::Tool, "tool-1", "uid:1", "/p");
        let graph = run(RunKind::Graph, "graph-1", "uid:1", "/p");
        let elsewhere = run(RunKind::Graph, "graph-2", "uid:1", "/q");
        let of_bob = run(RunKind::Graph, "graph-3", "uid:2", "/p");
        assert_eq!(may(by(&of_user), &[&graph]), "acts");
        assert_eq!(may(by(&of_user), &[&elsewhere]), "none");
        assert_eq!(may(by(&of_user), &[&of_bob]), "none");
        let of_graph = below("graph-1", run(RunKind::Tool, "tool-1", "uid:1", "/p"));
        assert_eq!(may(by(&of_graph), &[&graph]), "sees");
        assert_eq!(may(by(&of_graph), &[&of_graph, &graph]), "sees");
    }

    #[test]
    fn graph_run_acts_on_its_chain_and_descendants() {
        let name = id("graph-1");
        let by = |spec| Caller::Run { run: &name, spec };
        let own = run(RunKind::Graph, "graph-1", "uid:1", "/p");
        let next = Spec {
            continuation_of: Some(id("graph-1")),
            ..own.clone()
        };
        let child = below("graph-1", run(RunKind::Graph, "graph-2", "uid:1", "/p"));
        let beside = run(RunKind::Graph, "graph-3", "uid:1", "/p");
        let elsewhere = run(RunKind::Graph, "graph-4", "uid:1", "/q");
        for line in [&[&own][..], &[&next], &[&child, &own], &[&child, &next]] {
            assert_eq!(may(by(&own), line), "acts");
            assert_eq!(may(by(&next), line), "acts");
        }
        assert_eq!(may(by(&own), &[&beside]), "sees");
        assert_eq!(may(by(&child), &[&own]), "sees");
        assert_eq!(may(by(&own), &[&elsewhere]), "none");
        assert_eq!(may(by(&own), &[&elsewhere, &own]), "none");
    }
}
