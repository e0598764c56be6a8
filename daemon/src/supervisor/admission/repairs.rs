//! Start position of a run that repeats the failed nodes of a run that completed with errors.

use rye_core::definition::Graph;
use rye_core::model::graph::GraphState;
use rye_core::model::{Extent, Run, StartFrom};

use super::Error;

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
