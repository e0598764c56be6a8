//! Files about a run for people and tools, as pure functions of its record and cost: `thread.json` and the state page.

use std::io::Write as _;

use rye_core::ledger::Cost;
use rye_core::model::{Object, Run};
use serde_json::json;

/// Unsigned content of `thread.json`.
pub(super) fn thread(run: &Run, cost: &Cost) -> Object {
    let spec = &run.spec;
    let outcome = json!(run.outcome());
    let reason = json!(run.suspension().map(|why| why.reason.as_str()));
    let fields = [
        ("thread_id", json!(run.id)),
        ("item_id", json!(spec.item.id)),
        ("item_type", json!(spec.item.kind)),
        ("kind", json!(spec.kind())),
        ("status", json!(run.status())),
        ("suspend_reason", reason),
        ("parent_thread_id", json!(spec.parent)),
        ("continuation_of", json!(spec.continuation_of)),
        ("chain_root", json!(spec.chain_root)),
        ("principal", json!(spec.principal)),
        ("content_hash", json!(spec.content_hash)),
        ("created_at", json!(run.created_at.to_string())),
        ("started_at", json!(run.started_at.map(|at| at.to_string()))),
        ("updated_at", json!(run.updated_at.to_string())),
        ("ended_at", json!(run.ended_at.map(|at| at.to_string()))),
        ("seq", json!(run.seq)),
        ("steps", json!(run.steps())),
        ("spawn_count", json!(run.spawn_count)),
        ("limits", json!(spec.limits_at_start())),
        ("capabilities", json!(spec.layers)),
        ("cost", json!(cost.figures())),
        ("outcome", outcome),
    ];
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Unsigned state page of a graph run; `None` for other runs.
pub(super) fn state_page(run: &Run, cost: &Cost) -> Option<String> {
    let vars = run.vars()?;
    let graph = &run.spec.item.id;
    let source = run.spec.graph();
    let version = source.map_or("", |graph| graph.version.as_str());
    let fields = [
        ("id", json!(format!("graphs/{graph}/{}", run.id))),
        ("name", json!(run.id)),
        ("title", json!(format!("State: {graph} ({})", run.id))),
        ("entry_type", json!("graph_state")),
        ("category", json!(format!("graphs/{graph}"))),
        ("version", json!(version)),
        ("graph_id", json!(graph)),
        ("graph_run_id", json!(run.id)),
        ("parent_thread_id", json!(run.spec.parent)),
        ("status", json!(run.status())),
        ("current_node", json!(run.last_node())),
        ("step_count", json!(run.steps())),
        ("cost", json!(cost.figures())),
        ("seq", json!(run.seq)),
        (
            "started_at",
            json!(run.started_at.unwrap_or(run.created_at).to_string()),
        ),
        ("updated_at", json!(run.updated_at.to_string())),
        ("tags", json!(["graph_state", graph.name()])),
    ];
    // Every value is written as JSON, which is YAML, so a text cannot break out of its line.
    let mut page = b"```yaml\n".to_vec();
    for (key, value) in fields {
        writeln!(page, "{key}: {value}").expect("writing to memory cannot fail");
    }
    page.extend_from_slice(b"```\n\n```json\n");
    // Written directly into the page, without a copy: a state may be large.
    serde_json::to_writer_pretty(&mut page, vars).expect("a state is plain data");
    page.extend_from_slice(b"\n```\n");
    Some(String::from_utf8(page).expect("JSON is text"))
}
