//! JSON documents about runs in the answers of native tools.

use std::sync::Arc;

use rye_core::ledger::Cost;
use rye_core::model::{Failure, Run, Status};
use serde_json::{Value, json};

use super::session::Session;
use crate::port::Refusal;

/// Cost so far of the chain of `run` and its descendants.
pub(super) async fn cost(run: &Arc<Run>, session: &Session<'_>) -> Result<Cost, Failure> {
    let cost = session.runs.cost(Arc::clone(run)).await;
    cost.map_err(Refusal::of_run)
}

/// Record of a run without its state.
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

/// Entry of a wait about a run.
pub(super) fn result(run: &Run, cost: &Cost) -> Value {
    let result = run.result();
    json!({
        "run_id": run.id,
        "thread_id": run.id,
        "status": run.status().as_str(),
        "cost": figures(run, cost),
        "error": error(run),
        "outputs": result.get("output"),
        "result": result.get("result"),
    })
}

/// Entry about a run that cannot be reported.
pub(super) fn failed(failure: &Failure) -> Value {
    json!({"status": "error", "cost": {}, "error": failure.message, "outputs": null})
}

/// Cost of a run, with its number of steps.
fn figures(run: &Run, cost: &Cost) -> Value {
    let mut figures = cost.numbers();
    figures.insert("steps".to_owned(), json!(run.steps()));
    Value::Object(figures)
}

/// True if a task of this daemon drives the run.
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

/// Message of the failure that ended or suspended the run.
fn error(run: &Run) -> Option<String> {
    run.failure().map(|failure| failure.message)
}
