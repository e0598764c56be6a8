//! Which runs a run may see, and which it may stop or resume.
//!
//! **Rule.** A run sees the runs of its own project and its own principal; of any other it is told that there is no such run.
//! It acts
//!
//! | called by | on |
//! | --- | --- |
//! | a tool run of a person (it has no parent) | every run it sees: it acts for that person |
//! | a graph run | itself and the runs below it: authority only narrows |
//!
//! A run that continues another belongs where that one did, above and below. Nobody waits for, and nobody kills, the run it
//! is part of: that would wait for its own end.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::{Failure, Run, RunKind};

use super::{Session, invalid};
use crate::port::Refusal;

/// More levels than runs can lie below each other: a longer line is damaged.
const MOST_LEVELS: usize = 1000;

/// The run named `id`, if whoever calls may see it.
pub(super) async fn visible(session: &Session<'_>, id: &str) -> Result<Arc<Run>, Failure> {
    let id = RunId::new(id).map_err(invalid)?;
    let run = session
        .runs
        .get(id.clone())
        .await
        .map_err(Refusal::of_run)?;
    if sees(session, &run) {
        Ok(run)
    } else {
        Err(Failure::permanent(
            "run_not_found",
            format!("there is no run `{id}`"),
        ))
    }
}

/// The run named `id`, if whoever calls may stop and resume it.
pub(super) async fn actionable(session: &Session<'_>, id: &str) -> Result<Arc<Run>, Failure> {
    let run = visible(session, id).await?;
    let acts = if session.spec.kind == RunKind::Tool {
        session.spec.parent.is_none()
    } else {
        let above = line_above(session, &run).await;
        above.iter().any(|run| is_same(session, run))
    };
    if acts {
        return Ok(run);
    }
    let text = format!(
        "a run acts on itself and on the runs below it; `{id}` is not among those of `{}`",
        session.run
    );
    Err(Failure::permanent("permission_denied", text))
}

/// Whether the run that calls is `run`, or lies below it.
pub(super) async fn is_within(session: &Session<'_>, run: &Run) -> Result<bool, Failure> {
    if is_same(session, run) {
        return Ok(true);
    }
    let own = session.runs.get(session.run.clone()).await;
    let above = line_above(session, &own.map_err(Refusal::of_run)?).await;
    Ok(above.iter().any(|above| above.id == run.id))
}

fn sees(session: &Session<'_>, run: &Run) -> bool {
    let (own, other) = (session.spec, &*run.spec);
    (&own.project, &own.principal) == (&other.project, &other.principal)
}

/// Whether `run` is the one that calls, or stands in the same chain of continuations.
fn is_same(session: &Session<'_>, run: &Run) -> bool {
    run.spec.chain_root == session.spec.chain_root
}

/// `run` and every run above it.
async fn line_above(session: &Session<'_>, run: &Arc<Run>) -> Vec<Arc<Run>> {
    let mut line = vec![Arc::clone(run)];
    let mut next = above(run);
    while let Some(id) = next.filter(|_| line.len() < MOST_LEVELS) {
        let Ok(run) = session.runs.get(id).await else {
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
