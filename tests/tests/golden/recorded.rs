//! Recorded facts in Rye's terms: the record with the rulings applied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::trace;

/// Facts about a call, by name.
pub(super) type Facts = BTreeMap<&'static str, Value>;

/// Beginnings of equal messages in the original and in Rye, with Rye's code. Such messages are compared by code, even
/// where the graph itself handles them, as in `_last_error`.
const WORDINGS: &[(&str, &str, &str)] = &[
    (
        "Max steps exceeded",
        "the graph took ",
        "max_steps_exceeded",
    ),
    (
        "Permission denied: ",
        "permission denied: ",
        "permission_denied",
    ),
    ("Tool not found: ", " does not exist in ", "item_not_found"),
    ("Graph validation failed: ", "/", "graph_validation_failed"),
    (
        "Input validation failed: ",
        "input validation failed: ",
        "input_validation_failed",
    ),
    (
        "Missing environment variables: ",
        "missing environment variables: ",
        "missing_env",
    ),
    (
        "Terminal thread not found: ",
        "the terminal thread ",
        "terminal_thread_not_found",
    ),
    (
        "unknown",
        "the tool reported a failure without saying why",
        "tool_failed",
    ),
];

/// Messages of the original's validator, by their beginning or a part, with Rye's code.
const FINDINGS: &[(&str, &str)] = &[
    ("start node ", "unknown_node"),
    ("missing 'over' expression", "missing_key"),
    ("missing 'action'", "missing_action"),
    ("graph must declare 'permissions'", "missing_permissions"),
    (
        "state keys referenced but never assigned",
        "unassigned_state",
    ),
    ("state keys assigned but never referenced", "unread_state"),
];

/// True if `text` begins with the words `part`. A single word must be the whole text.
fn begins(text: &str, part: &str) -> bool {
    text == part || part.contains([' ', '/']) && text.starts_with(part)
}

/// Replaces every text in `value` that begins like a known message by its code.
pub(super) fn by_code(value: &mut Value) {
    match value {
        Value::String(text) => {
            let known = WORDINGS
                .iter()
                .find(|(original, ours, _)| begins(text, original) || begins(text, ours));
            if let Some((_, _, code)) = known {
                *text = format!("({code})");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(by_code),
        Value::Object(fields) => fields.values_mut().for_each(by_code),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the expected facts of a call: the record with the rulings applied.
pub(super) fn expected(graph: &str, run: &Value, ruling: Option<&Value>) -> Facts {
    let result = &run["result"];
    let mut facts = if result.get("warnings").is_some() {
        recorded_findings(result)
    } else if result.get("executed_node").is_some() {
        Facts::from([
            ("success", result["success"].clone()),
            ("state", result["state"].clone()),
            ("executed_node", result["executed_node"].clone()),
            ("next_node", result["next_node"].clone()),
            ("steps", result["step_count"].clone()),
        ])
    } else {
        recorded_end(run)
    };
    facts.extend(trace::recorded(graph, run));
    if let Some(ruling) = ruling {
        if let Some(instead) = ruling.get("instead") {
            facts = trace::nothing();
            lay_over(&mut facts, instead);
        }
        if ruling.get("nodes").is_some() {
            facts.remove("steps");
        }
        lay_over(&mut facts, ruling);
    }
    if let Some(status) = facts.get("status").and_then(Value::as_str) {
        if matches!(status, "completed" | "completed_with_errors") {
            facts.retain(|key, _| !["error", "node", "code"].contains(key));
        } else {
            facts.remove("output");
        }
    }
    facts.values_mut().for_each(by_code);
    facts
}

/// Facts that a ruling may name.
const KEYS: [&str; 22] = [
    "status",
    "nodes",
    "state",
    "suppressed",
    "error",
    "node",
    "code",
    "output",
    "steps",
    "success",
    "executed_node",
    "next_node",
    "errors",
    "warnings",
    "node_count",
    "refused",
    "dispatches",
    "hooks",
    "progress",
    "log",
    "unresolved",
    "in_flight",
];

fn lay_over(facts: &mut Facts, ruling: &Value) {
    for key in KEYS {
        if let Some(value) = ruling.get(key) {
            facts.insert(key, value.clone());
        }
    }
}

fn recorded_end(run: &Value) -> Facts {
    let result = &run["result"];
    let error = result.get("error");
    let status = if error.is_some() {
        json!("error")
    } else {
        result["status"].clone()
    };
    let suppressed = result.get("errors").cloned().unwrap_or(json!([]));
    let mut facts = Facts::from([
        ("status", status),
        ("nodes", run["nodes"].clone()),
        ("state", run["final_state"].clone()),
        ("suppressed", suppressed),
        ("output", result["output"].clone()),
    ]);
    if let Some(error) = error {
        facts.insert("error", error.clone());
        // Limits and refusals of the original name no node; those of Rye name the current one.
        if let Some(node) = result.get("node") {
            facts.insert("node", node.clone());
        }
    }
    if let Some(steps) = result.get("steps") {
        facts.insert("steps", steps.clone());
    }
    facts
}

/// Returns the findings of the original by Rye's codes, each once.
fn recorded_findings(result: &Value) -> Facts {
    let codes = |list: &Value| {
        // The original reports some findings twice.
        let texts: BTreeSet<_> = list.as_array().unwrap().iter().map(Value::as_str).collect();
        let mut codes: Vec<&str> = texts
            .into_iter()
            .map(|text| {
                let text = text.unwrap();
                let known = FINDINGS.iter().find(|(part, _)| text.contains(part));
                known.map_or("unknown finding", |(_, code)| *code)
            })
            .collect();
        codes.sort_unstable();
        json!(codes)
    };
    Facts::from([
        ("success", result["success"].clone()),
        ("errors", codes(&result["errors"])),
        ("warnings", codes(&result["warnings"])),
        ("node_count", result["node_count"].clone()),
    ])
}
