//! `rye/core/processes/…`: operations on single runs. [`super::reach`] limits the accessible runs.

use std::time::Duration;

use rye_core::model::Chunks;
use rye_core::model::{Failure, Object, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reach::{self, actionable, is_self_or_ancestor, visible};
use super::report;
use super::session::{Session, invalid, read};
use crate::port::Refusal;
use crate::stop::CancelMode;
use rye_journal::Filter;

/// Statuses of runs that have not ended.
pub(super) const ACTIVE: [Status; 3] = [Status::Created, Status::Running, Status::Suspended];
/// Default time in seconds for which a cancel waits for the run to stop.
pub(super) const CANCEL_WAIT: f64 = 5.0;

#[derive(Debug, Deserialize)]
struct Named {
    run_id: String,
}

#[derive(Debug, Deserialize)]
struct ListParams {
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Cancelled {
    run_id: String,
    reason: Option<String>,
    grace: Option<f64>,
}

/// Reports about a run.
pub(super) async fn status(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let Named { run_id } = read(params)?;
    let run = visible(session, &run_id).await?;
    let cost = report::cost(&run, session).await?;
    Ok(report::record(&run, &cost))
}

/// Lists runs that have not ended, or those with the given status, newest first.
pub(super) async fn list(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let ListParams { status } = read(params)?;
    let statuses = match status.as_deref() {
        None => ACTIVE.to_vec(),
        Some("all") => Vec::new(),
        Some(word) => vec![parse_status(word)?],
    };
    let filter = Filter {
        statuses,
        ..Filter::default()
    };
    let runs = records(filter, session).await?;
    Ok(json!({"count": runs.len(), "runs": runs}))
}

fn parse_status(word: &str) -> Result<Status, Failure> {
    let found = Status::ALL
        .into_iter()
        .find(|status| status.as_str() == word);
    found.ok_or_else(|| {
        let words = Status::ALL.map(Status::as_str).join(", ");
        invalid(format!("`status` is `all` or one of {words}, not {word:?}"))
    })
}

/// Records of the visible runs that match `filter`, without the calling run.
pub(super) async fn records(filter: Filter, session: &Session<'_>) -> Result<Vec<Value>, Failure> {
    let filter = filter.visible_to(reach::caller(session));
    let runs = session.runs.list(filter).await.map_err(Refusal::of_run)?;
    let mut records = Vec::new();
    for run in runs.iter().filter(|run| run.id != *session.run) {
        // A run that can no longer be read is left out, as it would be a moment later.
        if let Ok(run) = session.runs.get(run.id.clone()).await {
            let cost = report::cost(&run, session).await?;
            records.push(report::record(&run, &cost));
        }
    }
    Ok(records)
}

/// Requests a stop of a run, waits for it within `grace`, and reports its status. Kills nothing.
pub(super) async fn cancel(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let Cancelled {
        run_id,
        reason,
        grace,
    } = read(params)?;
    let grace = seconds("grace", grace.unwrap_or(CANCEL_WAIT))?;
    let run = actionable(session, &run_id).await?;
    let cause = reason.unwrap_or_else(|| format!("the run {}", session.run));
    let mut run = session
        .runs
        .cancel(run.id.clone(), cause, CancelMode::Graceful)
        .await
        .map_err(Refusal::of_run)?;
    if !is_self_or_ancestor(session, &run).await? {
        let settled = session.runs.settled(run.id.clone());
        if let Ok(settled) = tokio::time::timeout(grace, settled).await {
            run = settled.map_err(Refusal::of_run)?;
        }
    }
    let method = if run.status().is_terminal() {
        "cancelled"
    } else {
        "requested"
    };
    Ok(json!({
        "success": true,
        "run_id": run.id,
        "status": run.status().as_str(),
        "method": method,
    }))
}

/// Reports the steps of a run.
pub(super) async fn steps(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let Named { run_id } = read(params)?;
    let run = visible(session, &run_id).await?;
    let steps = session
        .runs
        .steps(run.id.clone())
        .await
        .map_err(Refusal::of_run)?;
    Ok(json!({
        "run_id": run.id,
        "graph_id": run.spec.item.id,
        "status": run.status().as_str(),
        "count": steps.len(),
        "steps": steps,
        "errors_suppressed": run.suppressed().map_or(0, Chunks::len),
    }))
}

/// Longest time of a parameter: a year.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Converts a parameter in seconds.
pub(super) fn seconds(name: &str, given: f64) -> Result<Duration, Failure> {
    let time = Duration::try_from_secs_f64(given).ok();
    time.filter(|time| *time <= LONGEST).ok_or_else(|| {
        let most = LONGEST.as_secs();
        invalid(format!(
            "`{name}` is a number of seconds from 0 to {most}, not {given}"
        ))
    })
}
