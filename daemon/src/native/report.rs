//! Runs in words: the documents that native tools answer with.

use std::sync::Arc;

use rye_core::ledger::Cost;
use rye_core::model::{Failure, Run, Status};
use serde_json::{Value, json};

use super::session::Session;
use crate::port::Refusal;

/// What the chain of `run` and all below it have cost so far.
pub(super) async fn cost(run: &Arc<Run>, session: &Session<'_>) -> Result<Cost, Failure> {
    let cost = session.runs.cost(Arc::clone(run)).await;
    cost.map_err(Refusal::of_run)
}

/// Everything a caller may know about a run that has cost so much, without its state.
pub(super) fn record(run: &Run, cost: &Cost) -> Value {
    let spec = &run.spec;
    let mut document = json!({
        "run_id": run.id,
        "directive": spec.item.id,
        "kind": spec.kind().as_str(),
        "status": run.status().as_str(),
        "alive": is_alive(run),
        "pid": is_alive(run).then(std::process::id),
        "parent_id": spec.parent,
        "steps": run.steps(),
        "current_node": run.last_node(),
        "cost": figures(run, cost),
        "created_at": run.created_at.to_string(),
        "updated_at": run.updated_at.to_string(),
        "ended_at": run.ended_at.map(|at| at.to_string()),
    });
    if let Some(cause) = &run.cancel {
        document["cancel_requested"] = json!(cause);
    }
    if let Some(why) = run.suspension() {
        document["suspended"] = json!(why);
    }
    if let Some(error) = error(run) {
        document["error"] = json!(error);
    }
    if let Some(errors) = run.suppressed() {
        document["errors_suppressed"] = json!(errors.len());
    }
    document
}

/// What a wait reports about a run that has cost so much.
pub(super) fn result(run: &Run, cost: &Cost) -> Value {
    let result = run.result();
    json!({
        "thread_id": run.id,
        "status": run.status().as_str(),
        "cost": figures(run, cost),
        "error": error(run),
        "outputs": result.get("output"),
        "result": result.get("result"),
    })
}

/// What stands in the place of a run that cannot be reported about.
pub(super) fn failed(failure: &Failure) -> Value {
    json!({"status": "error", "cost": {}, "error": failure.message, "outputs": null})
}

/// What a run has cost, with the steps it took.
fn figures(run: &Run, cost: &Cost) -> Value {
    let mut figures = cost.numbers();
    figures.insert("steps".to_owned(), json!(run.steps()));
    Value::Object(figures)
}

/// Whether a task of this daemon carries it out.
pub(super) fn is_alive(run: &Run) -> bool {
    match run.status() {
        Status::Created | Status::Running => true,
        Status::Suspended
        | Status::Completed
        | Status::CompletedWithErrors
        | Status::Error
        | Status::Cancelled
        | Status::Killed => false,
    }
}

/// Why it did not end well, or behind which failure it is suspended, for people.
fn error(run: &Run) -> Option<String> {
    run.failure().map(|failure| failure.message)
}
