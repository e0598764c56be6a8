//! Access of the calling run to other runs: which it may see, stop or resume, by the rules of
//! [`port::reach`](crate::port::reach).
//!
//! A tool neither waits for nor kills the run it is part of: that would wait for its own end.

use std::sync::Arc;

use rye_core::access::Caller;
use rye_core::id::RunId;
use rye_core::model::{Failure, Run};

use super::session::{Session, invalid};
use crate::port::{Refusal, reach};

/// The calling run as the caller.
pub(super) const fn caller<'a>(session: &Session<'a>) -> Caller<'a> {
    Caller::Run {
        run: session.run,
        spec: session.spec,
    }
}

/// The run named `id`, if the calling run may see it.
pub(super) async fn visible(session: &Session<'_>, id: &str) -> Result<Arc<Run>, Failure> {
    let id = RunId::new(id).map_err(invalid)?;
    let run = reach::visible(session.runs, caller(session), &id).await;
    run.map_err(Refusal::of_run)
}

/// The run named `id`, if the calling run may stop and resume it.
pub(super) async fn actionable(session: &Session<'_>, id: &str) -> Result<Arc<Run>, Failure> {
    let id = RunId::new(id).map_err(invalid)?;
    let run = reach::actionable(session.runs, caller(session), &id).await;
    run.map_err(Refusal::of_run)
}

/// True if the calling run is `run`, or a descendant of it.
pub(super) async fn is_self_or_ancestor(session: &Session<'_>, run: &Run) -> Result<bool, Failure> {
    if run.spec.chain_root == session.spec.chain_root {
        return Ok(true);
    }
    let own = session.runs.get(session.run.clone()).await;
    let above = reach::ancestry(session.runs, &own.map_err(Refusal::of_run)?).await;
    Ok(above.iter().any(|above| above.id == run.id))
}
