//! Start position of a run that repeats what failed of another one: these nodes alone, or the walk from the first of
//! them.

use rye_core::definition::Graph;
use rye_core::model::graph::{GraphState, LastStep};
use rye_core::model::{Extent, Run, StartFrom, UnfinishedWork};

use super::Error;

/// Returns the first node of `run` that failed and after which it went on, with the state and the work to take over, and
/// the extent.
pub(super) fn from_failed(
    run: &Run,
    content_hash: &str,
) -> Result<(String, (GraphState, UnfinishedWork), Extent), Error> {
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    if let Some(barrier) = run.approvals.barrier() {
        return Err(unfit(format!("{barrier}; start a new run")));
    }
    let found = run.graph().and_then(GraphState::from_failed);
    let (state, first) = found.ok_or_else(|| {
        unfit("no node failed after which its graph went on; resume it without --failed".to_owned())
    })?;
    if let Some(once) = first.once_since.first() {
        return Err(unfit(format!(
            "`{once}` is at-most-once and was carried out after `{}` failed: to walk on from there would do it again; \
             start a new run",
            first.node
        )));
    }
    let mut left = first.left.clone().reopened();
    if run.spec.content_hash != content_hash {
        // The items of another text of the graph may differ from those of this one.
        left.items = None;
    }
    Ok((first.node.to_string(), (state, left), Extent::FromFailed))
}

/// Returns the start position for repeating the failed nodes of `run`: the node that failed first.
pub(super) fn of(run: &Run, graph: &Graph, content_hash: &str) -> Result<StartFrom, Error> {
    let unfit = |problem: String| Error::Unfit {
        run: run.id.clone(),
        problem,
    };
    if let Some(barrier) = run.approvals.barrier() {
        return Err(unfit(format!("{barrier}; start a new run")));
    }
    if run.spec.content_hash != content_hash {
        let text = "its graph has been changed since: what failed of it cannot be repeated alone; start a new run";
        return Err(unfit(text.to_owned()));
    }
    let found = run.graph().and_then(GraphState::repairs);
    let (state, first, then) = found.ok_or_else(|| unfit("nothing of it failed".to_owned()))?;
    let names = state
        .unrepaired
        .iter()
        .map(|failed| &failed.node)
        .chain(&then);
    if let Some(lost) = names
        .into_iter()
        .find(|node| graph.nodes.get(node).is_none())
    {
        return Err(unfit(format!(
            "its graph has no node `{lost}`; start a new run"
        )));
    }
    Ok(StartFrom {
        node: first.node.to_string(),
        left: Some(first.left.clone().reopened()),
        state,
        then,
        extent: Extent::Repairs,
    })
}

/// True if the run ended with the failure of `last`.
pub(super) fn ended_at(state: &GraphState, last: &LastStep) -> bool {
    let mut suppressed = state.suppressed.iter();
    last.error.is_some()
        && last.next_node.is_none()
        && suppressed.all(|error| error.step != state.steps)
}
