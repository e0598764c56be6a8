//! Graphs whose behaviour was recorded from the original, walked by ours.
//!
//! `data/golden/graphs.json` holds what was observed; `data/golden/rulings.json` what we do otherwise on purpose, and why;
//! `LATER` names what belongs to features that are not there yet. Every recorded case is in exactly one of the three.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rye_tests::{World, binaries, until};
use serde_json::{Value, json};

/// Features of later releases, by the beginning of the ids of their cases.
const LATER: &[(&str, &str)] = &[
    ("foreach", "foreach nodes"),
    ("over_", "foreach nodes"),
    ("run_foreach", "foreach nodes"),
    ("cancel_foreach", "foreach nodes"),
    ("cancel_then_return", "foreach nodes"),
    ("hook_", "hooks"),
    ("builtin_retry", "retries"),
    ("perm_internal", "internal control tools"),
    ("resume_", "resume of ended runs"),
    ("graph_run_id_only", "resume of ended runs"),
    ("step_", "single steps"),
    ("inject_", "single steps"),
    ("validate_", "the validate verb"),
    ("env_graph", "env_requires of a graph"),
    ("thread_child", "threads"),
    ("continuation", "threads"),
];

/// How the original and we begin to say the same, and our code for it. Such texts are compared by their code: also where
/// the graph itself handles them, as in `_last_error`.
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
        "unknown",
        "the tool reported a failure without saying why",
        "tool_failed",
    ),
];

/// How many cases are walked at once.
const WALKERS: usize = 3;

fn read(name: &str) -> Value {
    let text = fs::read_to_string(binaries::data().join("golden").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn later(case: &str) -> bool {
    LATER.iter().any(|(prefix, _)| case.starts_with(prefix))
}

/// Puts the code in the place of every text in `value` that one of the wordings begins.
fn by_code(value: &mut Value) {
    match value {
        Value::String(text) => {
            let known = WORDINGS
                .iter()
                .find(|(original, ours, _)| text.starts_with(original) || text.starts_with(ours));
            if let Some((_, _, code)) = known {
                *text = format!("({code})");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(by_code),
        Value::Object(fields) => fields.values_mut().for_each(by_code),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a case must come to: the record, with our rulings laid over it.
fn expected(run: &Value, ruling: Option<&Value>) -> BTreeMap<&'static str, Value> {
    let result = &run["result"];
    let failed = result.get("error").is_some();
    let status = if failed {
        json!("error")
    } else {
        result["status"].clone()
    };
    let mut all = BTreeMap::from([
        ("status", status),
        ("nodes", run["nodes"].clone()),
        ("state", run["final_state"].clone()),
        (
            "suppressed",
            result.get("errors").cloned().unwrap_or(json!([])),
        ),
    ]);
    if failed {
        all.insert("error", result["error"].clone());
        all.insert("node", result.get("node").cloned().unwrap_or(Value::Null));
    } else if status_is_success(&all) {
        all.insert("output", result["output"].clone());
    }
    for key in [
        "status",
        "nodes",
        "state",
        "suppressed",
        "error",
        "node",
        "output",
        "code",
    ] {
        if let Some(value) = ruling.and_then(|ruling| ruling.get(key)) {
            all.insert(key, value.clone());
        }
    }
    if status_is_success(&all) {
        all.remove("error");
        all.remove("node");
    } else {
        all.remove("output");
    }
    all.values_mut().for_each(by_code);
    all
}

fn status_is_success(all: &BTreeMap<&'static str, Value>) -> bool {
    matches!(
        all["status"].as_str(),
        Some("completed" | "completed_with_errors")
    )
}

/// What our run of a case came to, in the same terms.
fn observed(world: &World, run: &Value) -> BTreeMap<&'static str, Value> {
    let id = run["run_id"].as_str().unwrap();
    let steps = world.ryectl("steps --json").arg(id).ok().json();
    let nodes = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["node"].clone())
        .collect();
    let error = |field: &str| run["error"].get(field).cloned().unwrap_or(Value::Null);
    let mut all = BTreeMap::from([
        ("status", run["status"].clone()),
        ("nodes", Value::Array(nodes)),
        ("state", run["state"].clone()),
        ("suppressed", run["errors"].clone()),
        ("error", error("message")),
        ("node", error("node")),
        ("code", error("code")),
        ("output", run["output"].clone()),
    ]);
    all.values_mut().for_each(by_code);
    all
}

/// Runs `graph` of the project `project` and answers its record.
fn walk(world: &World, project: &Path, graph: &str, params: &Value) -> Value {
    let mut inputs = params.clone();
    let mut command = world.ryectl("run --json --quiet").within(project);
    if let Some(caps) = inputs
        .as_object_mut()
        .and_then(|inputs| inputs.remove("capabilities"))
    {
        for cap in caps.as_array().unwrap() {
            command = command.arg("--cap").arg(cap.as_str().unwrap());
        }
    }
    let child = command
        .arg(format!("golden/{graph}"))
        .arg("--input")
        .arg(inputs.to_string())
        .into_command();
    // A step that wants the run to be cancelled says so, and goes on when it has been.
    thread::scope(|scope| {
        let mut child = child;
        let ended = scope.spawn(move || child.output().unwrap());
        if graph == "cancel" {
            until("the step that is to be cancelled", || {
                project.join(".stub/cancel").exists().then_some(())
            });
            let run = world
                .ryectl("ps --json")
                .ok()
                .json()
                .as_array()
                .unwrap()
                .iter()
                .find(|run| run["item_id"] == "golden/cancel")
                .unwrap()["run_id"]
                .clone();
            let _asked = world.ryectl("cancel").arg(run.as_str().unwrap()).ok();
            fs::write(project.join(".stub/cancelled"), "").unwrap();
        }
        let output = ended.join().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| json!({"stderr": String::from_utf8_lossy(&output.stderr)}))
    })
}

fn disagreement(
    world: &World,
    signed: &Path,
    case: &Value,
    ruling: Option<&Value>,
) -> Option<String> {
    let id = case["id"].as_str().unwrap();
    let project = world.home().join("cases").join(id);
    copy(signed, &project.join(".ai"));
    let recorded = &case["runs"][0];
    let mut run = walk(
        world,
        &project,
        case["graph"].as_str().unwrap(),
        &recorded["params"],
    );
    if id == "builtins" {
        freeze_clock(&mut run);
    }
    if run.get("run_id").is_none() {
        return Some(format!("{id}: no run: {}", run["stderr"]));
    }
    let observed = observed(world, &run);
    let wrong: Vec<String> = expected(recorded, ruling)
        .into_iter()
        .filter(|(key, value)| observed[key] != *value)
        .map(|(key, value)| {
            format!(
                "  {key}: expected {value}\n  {key}: observed {}",
                observed[key]
            )
        })
        .collect();
    (!wrong.is_empty()).then(|| format!("{id}:\n{}", wrong.join("\n")))
}

/// Puts the recorded time in the place of the time of this run, which is checked for its form.
fn freeze_clock(run: &mut Value) {
    let output = run["output"].clone();
    let (now, ms) = (
        output["now"].as_str().unwrap(),
        output["ms"].as_i64().unwrap(),
    );
    assert!(
        now.ends_with('Z') && now.len() == "2026-01-02T03:04:05.678Z".len(),
        "{now}"
    );
    assert_eq!(now[20..23], format!("{:03}", ms % 1000));
    let frozen = run
        .to_string()
        .replace(now, "2026-01-02T03:04:05.678901+00:00")
        .replace(&ms.to_string(), "1767323045678");
    *run = serde_json::from_str(&frozen).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

/// Lets the tool of the recorded cancellation ask for it; the recording harness did so from outside.
fn teach_echo_to_cancel(tools: &Path) {
    let path = tools.join("stub/echo.py");
    let text = fs::read_to_string(&path).unwrap();
    let asking = "    if params.get(\"value\") == \"__SIGTERM__\":\n\
                  \x20       import os, time\n\
                  \x20       stub = os.path.join(project_path, \".stub\")\n\
                  \x20       os.makedirs(stub, exist_ok=True)\n\
                  \x20       open(os.path.join(stub, \"cancel\"), \"w\").close()\n\
                  \x20       while not os.path.exists(os.path.join(stub, \"cancelled\")):\n\
                  \x20           time.sleep(0.01)\n";
    let (head, body) = text.split_once("    return").unwrap();
    fs::write(path, format!("{head}{asking}    return{body}")).unwrap();
}

#[test]
fn recorded_graphs_come_to_the_recorded_end_or_to_ours() {
    let world = World::new();
    let tools = world.project().join(".ai/tools");
    copy(&binaries::data().join("golden/tools"), &tools);
    teach_echo_to_cancel(&tools);
    let _signed = world.ryectl("sign tool:golden/* tool:stub/*").ok();
    let _daemon = world.start("env:\n  pass: [GOLDEN_LEAK]\n");
    let signed = world.project().join(".ai");

    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    let now: Vec<&Value> = cases
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| !later(case["id"].as_str().unwrap()))
        .collect();
    assert!(now.len() >= 50, "only {} cases are walked", now.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while let Some(case) = now.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let ruling = rulings.get(case["id"].as_str().unwrap());
                        wrong.extend(disagreement(&world, &signed, case, ruling));
                    }
                    wrong
                })
            })
            .collect();
        walkers
            .into_iter()
            .flat_map(|walker| walker.join().unwrap())
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} of {} cases disagree:\n{}",
        wrong.len(),
        now.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_ruling_is_about_a_case_that_is_walked_and_gives_its_reason() {
    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    for (id, ruling) in rulings.as_object().unwrap() {
        assert!(
            cases
                .as_array()
                .unwrap()
                .iter()
                .any(|case| case["id"] == *id),
            "{id} is not recorded"
        );
        assert!(!later(id), "{id} is ruled on and left for later");
        assert!(
            ruling["because"]
                .as_str()
                .is_some_and(|because| because.len() > 10),
            "{id} gives no reason"
        );
    }
    for (prefix, _) in LATER {
        assert!(
            cases
                .as_array()
                .unwrap()
                .iter()
                .any(|case| case["id"].as_str().unwrap().starts_with(prefix)),
            "{prefix} names no case"
        );
    }
}
