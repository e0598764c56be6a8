//! `rye/agent/threads/orchestrator`: operations of a graph on the runs it started, and of a person on all of theirs.
//!
//! [`super::reach`] limits the accessible runs; [`super::wait`] waits for them. Operations that only LLM threads have
//! (their text, their handoff) are refused by name.

use std::sync::Arc;

use rye_core::model::{Failure, Kill, Object, Run};
use rye_process::KILL_GRACE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::processes::{ACTIVE, records, seconds};
use super::reach::{actionable, is_self_or_ancestor, visible};
use super::session::{Session, read};
use super::{report, resume, wait};
use crate::port::Refusal;
use crate::stop::CancelMode;
use rye_journal::Filter;

/// Parameters by `operation`.
#[derive(Debug, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
enum Operation {
    WaitThreads(wait::Params),
    CancelThread(Cancellation),
    KillThread {
        thread_id: String,
        reason: Option<String>,
        grace: Option<f64>,
    },
    GetStatus {
        thread_id: String,
    },
    ListActive,
    ListChildren {
        thread_id: Option<String>,
    },
    AggregateResults {
        thread_ids: Vec<Value>,
    },
    GetChain {
        thread_id: String,
    },
    ResumeThread(resume::Params),
}

/// Parameters of a cancel.
#[derive(Debug, Deserialize)]
pub(super) struct Cancellation {
    thread_id: String,
    reason: Option<String>,
}

/// Executes `operation`.
pub(super) async fn call(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let operation = read(params).map_err(|misfit| Failure {
        message: misfit
            .message
            .replace("unknown variant", "there is no `operation`"),
        ..misfit
    })?;
    match operation {
        Operation::WaitThreads(params) => wait::wait(params, session).await,
        Operation::CancelThread(asked) => cancel(asked, session).await,
        Operation::KillThread {
            thread_id,
            reason,
            grace,
        } => kill(&thread_id, reason, grace, session).await,
        Operation::GetStatus { thread_id } => {
            let run = visible(session, &thread_id).await?;
            let mut document = report::record(&run, &report::cost(&run, session).await?);
            document["thread_id"] = json!(run.id);
            Ok(document)
        }
        Operation::ListActive => {
            let filter = Filter {
                statuses: ACTIVE.to_vec(),
                ..Filter::default()
            };
            let runs = records(filter, session).await?;
            let ids: Vec<_> = runs.iter().map(|run| &run["run_id"]).collect();
            Ok(json!({"count": ids.len(), "active_threads": ids, "threads": runs}))
        }
        Operation::ListChildren { thread_id } => {
            let parent = match thread_id {
                Some(id) => visible(session, &id).await?.id.clone(),
                None => session.run.clone(),
            };
            let filter = Filter {
                parent: Some(parent.clone()),
                ..Filter::default()
            };
            let runs = records(filter, session).await?;
            Ok(json!({"thread_id": parent, "count": runs.len(), "children": runs}))
        }
        Operation::AggregateResults { thread_ids } => wait::aggregate(&thread_ids, session).await,
        Operation::GetChain { thread_id } => chain(&thread_id, session).await,
        Operation::ResumeThread(asked) => resume::resume(asked, session).await,
    }
}

/// Requests a stop of a run.
pub(super) async fn cancel(asked: Cancellation, session: &Session<'_>) -> Result<Value, Failure> {
    let run = actionable(session, &asked.thread_id).await?;
    let cause = asked
        .reason
        .unwrap_or_else(|| format!("the run {}", session.run));
    let run = session
        .runs
        .cancel(run.id.clone(), cause, CancelMode::Graceful)
        .await;
    let run = run.map_err(Refusal::of_run)?;
    Ok(json!({
        "success": true,
        "cancelled": true,
        "thread_id": run.id,
        "status": run.status().as_str(),
    }))
}

async fn kill(
    id: &str,
    reason: Option<String>,
    grace: Option<f64>,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let grace = grace.map_or(Ok(KILL_GRACE), |grace| seconds("grace", grace))?;
    let run = actionable(session, id).await?;
    if is_self_or_ancestor(session, &run).await? {
        let text = format!("`{id}` is the run that asks, or waits for it; cancel it instead");
        return Err(Failure::permanent("kills_itself", text));
    }
    let cause = reason.unwrap_or_else(|| format!("the run {}", session.run));
    let killed = session.runs.kill(run.id.clone(), Kill::new(cause, grace));
    let killed = killed.await;
    let (run, receipt) = killed.map_err(Refusal::of_run)?;
    let receipt = run.receipt().map(|_| receipt);
    Ok(json!({
        "success": true,
        "killed": receipt.is_some(),
        "thread_id": run.id,
        "status": run.status().as_str(),
        "receipt": receipt,
    }))
}

/// Chain of continuations of a run, from its root to the newest.
async fn chain(id: &str, session: &Session<'_>) -> Result<Value, Failure> {
    let run = visible(session, id).await?;
    let mut run = session
        .runs
        .newest(run.id.clone())
        .await
        .map_err(Refusal::of_run)?;
    let mut chain = vec![link(&run)];
    while let Some(before) = run.spec.continuation_of.clone() {
        run = session.runs.get(before).await.map_err(Refusal::of_run)?;
        chain.push(link(&run));
    }
    chain.reverse();
    Ok(json!({"chain_length": chain.len(), "chain": chain}))
}

fn link(run: &Arc<Run>) -> Value {
    json!({
        "thread_id": run.id,
        "status": run.status().as_str(),
        "directive": run.spec.item.id,
    })
}
