//! `rye/agent/threads/orchestrator`: what a graph does with the runs it started, and a person with all of theirs.
//!
//! What a run may see and do stands in [`super::reach`]; waiting in [`super::wait`]. Operations on what only LLM threads
//! have (their text, their handoff) are refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_core::model::{Failure, Kill, Object, Raised, Run, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use super::processes::{ACTIVE, records, seconds};
use super::reach::{actionable, is_within, visible};
use super::{Session, invalid, read, report, wait};
use crate::journal::Filter;
use crate::port::{Refusal, Resume};
use crate::process::KILL_GRACE;

/// What is asked, by the word of `operation`.
#[derive(Debug, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
enum Operation {
    WaitThreads(wait::Params),
    CancelThread {
        thread_id: String,
        reason: Option<String>,
    },
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
    ResumeThread(Resumption),
    ReadTranscript,
    ChainSearch,
    HandoffThread,
}

#[derive(Debug, Deserialize)]
struct Resumption {
    thread_id: String,
    message: Option<String>,
    max_steps: Option<u32>,
    #[serde(default)]
    uncertain: BTreeMap<String, String>,
}

/// Does what `operation` names.
pub(super) async fn call(params: Object, session: &Session<'_>) -> Result<Value, Failure> {
    let later = |operation: &str| {
        let text = format!("`{operation}` is for LLM threads, which a later release has");
        Err(Failure::permanent("unsupported", text))
    };
    let operation = read(params).map_err(|misfit| Failure {
        message: misfit
            .message
            .replace("unknown variant", "there is no `operation`"),
        ..misfit
    })?;
    match operation {
        Operation::WaitThreads(params) => wait::wait(params, session).await,
        Operation::CancelThread { thread_id, reason } => cancel(&thread_id, reason, session).await,
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
        Operation::ResumeThread(asked) => resume(asked, session).await,
        Operation::ReadTranscript => later("read_transcript"),
        Operation::ChainSearch => later("chain_search"),
        Operation::HandoffThread => later("handoff_thread"),
    }
}

async fn cancel(id: &str, reason: Option<String>, session: &Session<'_>) -> Result<Value, Failure> {
    let run = actionable(session, id).await?;
    let cause = reason.unwrap_or_else(|| format!("the run {}", session.run));
    let run = session.runs.cancel(run.id.clone(), cause).await;
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
    if is_within(session, &run).await? {
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

/// The chain of continuations a run belongs to, from its root to the newest.
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

async fn resume(asked: Resumption, session: &Session<'_>) -> Result<Value, Failure> {
    if asked.message.is_some() {
        return Err(invalid(
            "`message` is for LLM threads; a graph run resumes from its state, so leave it out",
        ));
    }
    let run = actionable(session, &asked.thread_id).await?;
    let resolved = session
        .runs
        .newest(run.id.clone())
        .await
        .map_err(Refusal::of_run)?;
    let mut verdicts = Vec::new();
    for (item, word) in asked.uncertain {
        let verdict = Verdict::parse(&word).ok_or_else(|| {
            invalid(format!(
                "`uncertain.{item}` is retry, done or fail, not {word:?}"
            ))
        })?;
        verdicts.push((item, verdict));
    }
    let request = Resume {
        by: format!("the run {}", session.run),
        spend: None,
        raised: Raised {
            max_steps: asked.max_steps,
            ..Raised::default()
        },
        verdicts,
        message: None,
        layers: session.spec.layers.clone(),
    };
    let resumed = session.runs.resume(resolved.id.clone(), request).await;
    let resumed = resumed.map_err(Refusal::of_run)?;
    let original = (resolved.id != run.id).then_some(&run.id);
    Ok(json!({
        "success": true,
        "resumed": true,
        "old_thread_id": resolved.id,
        "new_thread_id": resumed.id,
        "original_thread_id": original,
        "resolved_thread_id": resolved.id,
        "directive": resumed.spec.item.id,
        "new_thread_result": {"success": true, "thread_id": resumed.id, "status": resumed.status().as_str()},
    }))
}
