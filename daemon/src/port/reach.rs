//! Getting at a run on behalf of somebody: the rule of [`rye_core::access`], asked of records.
//!
//! **Never** distinguishes a run that somebody may not see from one that does not exist.

use std::sync::Arc;

use rye_core::access::Caller;
use rye_core::error::ErrorKind;
use rye_core::id::RunId;
use rye_core::model::Run;

use super::{Refusal, Runs};

/// More levels of child runs than there can be: a longer line is damaged.
const MOST_LEVELS: usize = 1000;

/// The run `id`, if `caller` sees it.
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

/// The run `id`, if `caller` may stop, resume and answer it.
pub async fn actionable(
    runs: &dyn Runs,
    caller: Caller<'_>,
    id: &RunId,
) -> Result<Arc<Run>, Refusal> {
    let run = visible(runs, caller, id).await?;
    let line = line_above(runs, &run).await;
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

/// `run` and its ancestors.
pub async fn line_above(runs: &dyn Runs, run: &Arc<Run>) -> Vec<Arc<Run>> {
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

/// The run that asked for `run`; for one that continues another, that one.
fn above(run: &Run) -> Option<RunId> {
    let spec = &run.spec;
    spec.parent.clone().or_else(|| spec.continuation_of.clone())
}
