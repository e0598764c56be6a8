//! Access to a run on behalf of a caller: applies the rule of [`rye_core::access`] to records.
//!
//! **Never** tells a run that the caller may not see from one that does not exist.

use std::sync::Arc;

use rye_core::access::Caller;
use rye_core::error::ErrorKind;
use rye_core::id::RunId;
use rye_core::model::Run;

use super::{Refusal, Runs};

/// More levels of child runs than there can be: a longer chain is damaged.
const MOST_LEVELS: usize = 1000;

/// Returns the run `id`, if `caller` may see it.
pub async fn visible(runs: &dyn Runs, caller: Caller<'_>, id: &RunId) -> Result<Arc<Run>, Refusal> {
    let run = runs.get(id.clone()).await?;
    if caller.sees(&run.spec) {
        Ok(run)
    } else {
        Err(Refusal {
            kind: ErrorKind::NotFound,
            message: format!("there is no run `{id}`"),
        })
    }
}

/// Returns the run `id`, if `caller` may stop, resume and answer it.
pub async fn actionable(
    runs: &dyn Runs,
    caller: Caller<'_>,
    id: &RunId,
) -> Result<Arc<Run>, Refusal> {
    let run = visible(runs, caller, id).await?;
    let line = ancestry(runs, &run).await;
    if caller.may_act(line.iter().map(|run| &*run.spec)) {
        return Ok(run);
    }
    let who = match caller {
        Caller::User(layer) => &layer.source,
        Caller::Run { run, .. } => run.as_str(),
    };
    Err(Refusal {
        kind: ErrorKind::Denied,
        message: format!(
            "a run acts on itself and on its descendants; `{id}` is not among those of `{who}`"
        ),
    })
}

/// Returns `run` and its ancestors, from `run` upwards.
pub async fn ancestry(runs: &dyn Runs, run: &Arc<Run>) -> Vec<Arc<Run>> {
    let mut line = vec![Arc::clone(run)];
    let mut next = above(run);
    while let Some(id) = next.filter(|_| line.len() < MOST_LEVELS) {
        let Ok(run) = runs.get(id).await else {
            break;
        };
        next = above(&run);
        line.push(run);
    }
    line
}

/// Returns the parent of `run`, or the run that it continues.
fn above(run: &Run) -> Option<RunId> {
    let spec = &run.spec;
    spec.parent.clone().or_else(|| spec.continuation_of.clone())
}
