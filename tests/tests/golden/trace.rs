//! The trace of a run in common terms: calls of tools, answers of hooks, progress lines, the log of its tools, and
//! unresolved paths.
//!
//! If both sides have the same content in other shapes, [`RULES`] names the translation. `rulings.json` has its reason
//! under `everywhere`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::data;
use super::recorded::Facts;

/// Translations that apply to every case. Each name has a reason in `rulings.json`.
pub(super) const RULES: [&str; 13] = [
    "calls_that_reach_nothing",
    "elapsed_time",
    "error_edge_lines",
    "events_without_answer",
    "last_line",
    "lines_in_flight",
    "lines_of_execute",
    "most_retries",
    "order_of_new_keys",
    "params_of_builtin_items",
    "retry_lines",
    "suppressed_error_lines",
    "unresolved_once",
];

/// `retry.max_retries` of the shipped configuration. Rye's hooks add it to an answer without a number.
const MOST_RETRIES: u32 = 3;

/// The observable effects of one call of Rye.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Events of its run.
    pub(super) events: Vec<Value>,
    /// Records of the tools, in the order of their starts: `{item_id, params}`.
    pub(super) recorded_calls: Vec<Value>,
    /// Standard error of `ryectl run`; `None` for `ryectl execute`.
    pub(super) lines: Option<String>,
    /// Content of the log of the logging tool.
    pub(super) log: String,
}

/// Returns the facts of a call without effects.
pub(super) fn nothing() -> Facts {
    let none = || json!([]);
    Facts::from([
        ("dispatches", none()),
        ("hooks", none()),
        ("log", none()),
        ("progress", none()),
        ("unresolved", none()),
    ])
}

pub(super) fn recorded(graph: &str, run: &Value) -> Facts {
    let dispatches = run["dispatches"].as_array().unwrap().iter();
    let mut dispatches: Vec<Value> = dispatches.filter_map(recorded_call).collect();
    let hooks = run["hook_events"].as_array().unwrap().iter();
    let hooks: Vec<Value> = hooks.filter_map(recorded_answer).collect();
    let suppressed = &run["result"]["errors"];
    let lines = run["progress"].as_array().unwrap().iter();
    let progress: Vec<Value> = lines
        .filter_map(|line| Line::read(graph, line.as_str().unwrap()))
        .map(|line| line.with_error(suppressed).to_json())
        .collect();
    let mut facts = Facts::from([
        ("hooks", json!(hooks)),
        (
            "log",
            run.get("log_txt").cloned().unwrap_or_else(|| json!([])),
        ),
        ("progress", json!(progress)),
        ("unresolved", recorded_unresolved(&run["log_warnings"])),
    ]);
    if let Some(most) = run.get("max_in_flight") {
        // Parallel items have no order.
        sort(&mut dispatches);
        facts.insert("in_flight", most.clone());
    }
    facts.insert("dispatches", json!(dispatches));
    facts
}

/// Returns a call that reached a tool.
fn recorded_call(dispatch: &Value) -> Option<Value> {
    let item = dispatch["item_id"].as_str().unwrap();
    let mut call = dispatch.clone();
    if is_built_in(item) {
        call.as_object_mut().unwrap().remove("params");
        return Some(call);
    }
    let tool = data("tools").join(format!("{item}.py"));
    (item.starts_with("rye/") || tool.exists()).then_some(call)
}

/// True for an item inside the daemon, where nothing records its parameters.
fn is_built_in(item: &str) -> bool {
    item.starts_with("rye/agent/threads/internal/")
}

/// Returns the answer of a hook, if it counts: `[event, answer]`.
fn recorded_answer(fired: &Value) -> Option<Value> {
    let (event, mut answer) = (&fired[0], fired[1].as_object()?.clone());
    if let Some(action) = answer.get("action") {
        if action == "retry" {
            answer.entry("max_retries").or_insert(json!(MOST_RETRIES));
        }
        return Some(json!([event, answer]));
    }
    // The built-in hook of the original answers this if no hook of Rye is called.
    let built_in = answer["status"] == "error" && answer.get("error") == Some(&Value::Null);
    (!built_in).then(|| json!([event, "failed"]))
}

fn recorded_unresolved(warnings: &Value) -> Value {
    let texts = warnings.as_array().into_iter().flatten();
    let paths: BTreeSet<&str> = texts
        .filter_map(|text| {
            let text = text.as_str().unwrap();
            let inner = text.strip_prefix("interpolation '${")?;
            inner.strip_suffix("}' resolved to None")
        })
        .collect();
    json!(paths)
}

pub(super) fn observed(graph: &str, call: &Call) -> Facts {
    let events = &call.events;
    let most = most_in_flight(events);
    let mut dispatches = dispatches(events, &call.recorded_calls);
    if most > 1 {
        sort(&mut dispatches);
    }
    let mut facts = Facts::from([
        ("dispatches", json!(dispatches)),
        ("hooks", json!(answers(events))),
        ("log", json!(call.log.lines().collect::<Vec<_>>())),
        ("unresolved", unresolved(events)),
        ("in_flight", json!(most)),
    ]);
    if let Some(lines) = &call.lines {
        let on_edges = error_edges(events);
        let lines = lines
            .lines()
            .filter_map(|line| Line::read(graph, line))
            .filter(|line| !line.retry && !on_edges.contains(&(line.step, line.node.as_str())))
            .map(|line| line.to_json());
        facts.insert("progress", lines.collect());
    }
    facts
}

fn sort(list: &mut [Value]) {
    list.sort_by_key(ToString::to_string);
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    let of = move |event: &&Value| event["event_type"] == name;
    events.iter().filter(of).map(|event| &event["payload"])
}

/// Returns the calls in the order of their announcement, each with its parameters and its failure.
fn dispatches(events: &[Value], told: &[Value]) -> Vec<Value> {
    let mut params: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for call in told {
        let item = call["item_id"].as_str().unwrap();
        params.entry(item).or_default().push_back(&call["params"]);
    }
    let mut calls = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let (begun, ends): (_, &[&str]) = match event["event_type"].as_str().unwrap() {
            "step_started" if event["payload"].get("items").is_none() => {
                ("step", &["step_failed", "step_completed"])
            }
            "item_started" => ("item", &["item_completed"]),
            "hook_started" => ("index", &["hook_completed"]),
            _ => continue,
        };
        let start = &event["payload"];
        let id = start["action_id"].as_str().unwrap();
        let item = id.strip_prefix("tool:").unwrap();
        let mut call = json!({"item_id": item});
        if let Some(params) = params.get_mut(item).and_then(VecDeque::pop_front) {
            call["params"] = params.clone();
        } else if !is_built_in(item) {
            continue;
        }
        let end = events[at..].iter().find(|event| {
            let name = event["event_type"].as_str().unwrap();
            ends.contains(&name) && event["payload"][begun] == start[begun]
        });
        let failed = end.map(|end| end["payload"].get("error").is_some());
        call["outcome"] = json!(failed.map(|failed| if failed { "error" } else { "ok" }));
        if begun == "index" {
            call["hook"] = start["event"].clone();
        }
        calls.push(call);
    }
    let left = params.into_iter().filter(|(_, left)| !left.is_empty());
    calls.extend(left.map(|(item, left)| json!({"item_id": item, "unannounced": left})));
    calls
}

/// Returns the answers of hooks: `[event, answer]`. A retry without a call is derived from its effect.
fn answers(events: &[Value]) -> Vec<Value> {
    let mut answers = Vec::new();
    let mut told = false;
    for event in events {
        let payload = &event["payload"];
        match event["event_type"].as_str().unwrap() {
            "hook_completed" => {
                if let Some(control) = payload.get("control") {
                    answers.push(json!([payload["event"], control]));
                    told = true;
                } else if payload.get("error").is_some() {
                    answers.push(json!([payload["event"], "failed"]));
                }
            }
            "retry_scheduled" if payload["by"] != "node" => {
                if !told {
                    answers.push(json!(["error", {"action": "retry"}]));
                }
                told = false;
            }
            "step_completed" => told = false,
            _ => {}
        }
    }
    answers
}

fn unresolved(events: &[Value]) -> Value {
    let paths: BTreeSet<&str> = named(events, "warning")
        .filter_map(|warning| {
            let text = warning["message"].as_str().unwrap();
            let path = text.strip_prefix("interpolation resolved to null: ")?;
            Some(path.split_once(" (").map_or(path, |(path, _)| path))
        })
        .collect();
    json!(paths)
}

fn most_in_flight(events: &[Value]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for event in events {
        match event["event_type"].as_str().unwrap() {
            "item_started" => now += 1,
            "item_completed" => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// Returns the failed steps after which the graph followed an error edge.
fn error_edges(events: &[Value]) -> BTreeSet<(u64, &str)> {
    named(events, "step_completed")
        .filter(|step| step.get("error").is_some() && step.get("suppressed").is_none())
        .filter(|step| !step["next_node"].is_null())
        .map(|step| {
            (
                step["step"].as_u64().unwrap(),
                step["node"].as_str().unwrap(),
            )
        })
        .collect()
}

/// Line of a finished step: `[graph:<id>] step <step>/<nodes> <node> <mark> [<elapsed>] [(<detail>)]`.
#[derive(Debug)]
struct Line {
    step: u64,
    /// Rye omits it if there are more steps than nodes.
    nodes: Option<u64>,
    node: String,
    mark: String,
    detail: Option<String>,
    retry: bool,
}

impl Line {
    fn read(graph: &str, line: &str) -> Option<Self> {
        let rest = line.strip_prefix(&format!("[graph:golden/{graph}] step "))?;
        let (count, rest) = rest.split_once(' ').unwrap();
        let (step, nodes) = count.split_once('/').unwrap_or((count, "0"));
        let step: u64 = step.parse().unwrap();
        let nodes: u64 = nodes.parse().unwrap();
        let (node, rest) = rest.split_once(' ').unwrap();
        if rest == "..." {
            return None;
        }
        let (mark, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let detail = rest
            .split_once('(')
            .map(|(_, detail)| detail.strip_suffix(')').unwrap_or(detail).to_owned());
        let detail = detail.map(|detail| match detail.strip_prefix('+') {
            Some(keys) => {
                let keys: BTreeSet<&str> = keys.split(", ").collect();
                let keys: Vec<&str> = keys.into_iter().collect();
                format!("+{}", keys.join(", "))
            }
            None => detail,
        });
        // The final line of the original, with the count of steps or the limit.
        let last = detail.as_ref().is_some_and(|detail| {
            let limit = detail.starts_with("max_steps_exceeded (");
            let count = detail.strip_suffix(" steps");
            let count = count.or_else(|| detail.strip_suffix(" step"));
            limit || count.is_some_and(|count| count.parse::<u64>().is_ok())
        });
        (!last).then(|| Self {
            step,
            nodes: Some(nodes).filter(|nodes| step <= *nodes),
            node: node.to_owned(),
            mark: mark.to_owned(),
            retry: rest.contains(") retry "),
            detail,
        })
    }

    /// Adds the error to the line of a suppressed failure, where the original shows the keys that it set.
    fn with_error(mut self, suppressed: &Value) -> Self {
        let mut list = suppressed.as_array().into_iter().flatten();
        if let Some(entry) = list.find(|entry| entry["step"] == self.step)
            && self.mark == "✗"
        {
            self.detail = entry["error"].as_str().map(str::to_owned);
        }
        self
    }

    fn to_json(&self) -> Value {
        let mut line = json!([self.step, self.nodes, self.node, self.mark]);
        if let Some(detail) = &self.detail {
            line.as_array_mut().unwrap().push(json!(detail));
        }
        line
    }
}
