//! Graphs whose behaviour was recorded from the original, walked by ours.
//!
//! `data/golden/graphs.json` holds what was observed; `data/golden/rulings.json` what we do otherwise on purpose, and why;
//! `LATER` names what belongs to features that are not there yet. Every recorded case is in exactly one of the three, and
//! `data/golden/README.md` tells people which.
//!
//! A call with control parameters (`resume`, `node`, `validate` …) goes through `ryectl execute`, as an action would; any
//! other through `ryectl run`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rye_tests::{World, binaries, until};
use serde_json::{Value, json};

/// Cases of later releases.
const LATER: &[(&str, &str)] = &[
    (
        "thread_child",
        "LLM threads: what a thread learns of its parent",
    ),
    (
        "continuation",
        "LLM threads: rows of a registry of threads, made by hand; chains of graph runs are followed in a test of their own",
    ),
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

/// What the original's validator says, by how it begins or what it holds, and our code for it.
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

/// Parameters that say how a graph runs.
const CONTROL: &[&str] = &[
    "resume",
    "graph_run_id",
    "resume_run_id",
    "node",
    "inject_state",
    "validate",
];

/// The built-in retry of the recorded cases, without its seconds.
const NO_BACKOFF: &str = "version: \"1.0.0\"
category: agent
name: error_classification
description: \"As shipped, without pauses.\"
patterns:
  - id: network_timeout
    category: transient
    match: {path: error.message, op: regex, value: \"timeout|timed out\"}
    retry_policy: {type: fixed, delay: 0.01}
";

/// How many cases are walked at once.
const WALKERS: usize = 3;

type Facts = BTreeMap<&'static str, Value>;

fn data(name: &str) -> PathBuf {
    binaries::data().join("golden").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

fn later(case: &str) -> bool {
    LATER.iter().any(|(id, _)| case == *id)
}

/// Whether `text` begins with the words `part`; one word alone is all of it.
fn begins(text: &str, part: &str) -> bool {
    text == part || part.contains([' ', '/']) && text.starts_with(part)
}

/// Puts the code in the place of every text in `value` that one of the wordings begins.
fn by_code(value: &mut Value) {
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

/// What a call must come to: the record, with our rulings laid over it.
fn expected(run: &Value, ruling: Option<&Value>) -> Facts {
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
    if let Some(ruling) = ruling {
        if let Some(instead) = ruling.get("instead") {
            facts.clear();
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
const KEYS: [&str; 16] = [
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
        // Limits and refusals of the original name no node; ours say where the run stood.
        if let Some(node) = result.get("node") {
            facts.insert("node", node.clone());
        }
    }
    if let Some(steps) = result.get("steps") {
        facts.insert("steps", steps.clone());
    }
    facts
}

/// Findings of the original by our codes, each once.
fn recorded_findings(result: &Value) -> Facts {
    let codes = |list: &Value| {
        // The original tells some findings twice.
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

fn our_findings(report: &Value) -> Facts {
    let codes = |list: &Value| {
        let mut codes: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["code"].as_str().unwrap())
            .collect();
        codes.sort_unstable();
        json!(codes)
    };
    Facts::from([
        ("success", report["success"].clone()),
        ("errors", codes(&report["errors"])),
        ("warnings", codes(&report["warnings"])),
        ("node_count", report["node_count"].clone()),
    ])
}

/// What a run of ours came to, in the same terms.
fn our_end(world: &World, run: &Value) -> Facts {
    let error = |field: &str| run["error"].get(field).cloned().unwrap_or(Value::Null);
    Facts::from([
        ("status", run["status"].clone()),
        ("nodes", walked(world, run["run_id"].as_str().unwrap())),
        ("state", run["state"].clone()),
        ("suppressed", run["errors"].clone()),
        ("error", error("message")),
        ("node", error("node")),
        ("code", error("code")),
        ("output", run["output"].clone()),
        ("steps", run["steps"].clone()),
    ])
}

/// The nodes in the order in which they were begun, tries after the first included.
fn walked(world: &World, run: &str) -> Value {
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let of = |name: &str| -> Vec<&Value> {
        let named = events.iter().filter(|event| event["event_type"] == name);
        named.map(|event| &event["payload"]).collect()
    };
    let retries = of("retry_scheduled");
    let steps = of("step_completed");
    let tries = |step: &Value| 1 + retries.iter().filter(|r| r["step"] == step["step"]).count();
    let nodes = steps
        .iter()
        .flat_map(|step| vec![step["node"].clone(); tries(step)]);
    Value::Array(nodes.collect())
}

/// One recorded case in a project of its own.
struct Case<'a> {
    world: &'a World,
    project: PathBuf,
    graph: &'a str,
    /// Ids of the runs so far.
    runs: Vec<String>,
}

impl Case<'_> {
    /// Does what a recorded call does, and answers what came of it.
    fn call(&mut self, recorded: &Value) -> Facts {
        self.prepare(recorded);
        let params = self.with_ids(&recorded["params"]);
        let mut facts = if CONTROL.iter().any(|key| params.get(key).is_some()) {
            self.execute(&params)
        } else {
            let run = self.run(params);
            self.note(run)
        };
        facts.values_mut().for_each(by_code);
        facts
    }

    fn prepare(&self, recorded: &Value) {
        if let Some(env) = recorded["env"].as_object() {
            let lines = env
                .iter()
                .map(|(name, value)| format!("{name}={}\n", value.as_str().unwrap()));
            fs::write(self.project.join(".env"), lines.collect::<String>()).unwrap();
        }
        for step in recorded["before"].as_array().into_iter().flatten() {
            let run = &self.runs[0];
            match step["op"].as_str().unwrap() {
                "tamper_transcript" => {
                    let path = format!(".ai/state/threads/{run}/transcript.jsonl");
                    let path = self.project.join(path);
                    let text = fs::read_to_string(&path).unwrap();
                    fs::write(&path, text.replacen("run_created", "run_creatid", 1)).unwrap();
                }
                "delete_ref" => {
                    let path = format!(".ai/state/objects/refs/graphs/{run}.json");
                    drop(fs::remove_file(self.project.join(path)));
                }
                other => panic!("the case wants `{other}` to be done before"),
            }
        }
    }

    /// The parameters with ids of our runs in the place of the recorded ones.
    fn with_ids(&self, params: &Value) -> Value {
        let first = self.runs.first();
        let first = first.map_or("golden-nothing-1-aaaaaaaaaa", String::as_str);
        serde_json::from_str(&params.to_string().replace("<RUN1>", first)).unwrap()
    }

    fn note(&mut self, mut run: Value) -> Facts {
        let Some(id) = run["run_id"].as_str().map(str::to_owned) else {
            return Facts::from([("refused", run)]);
        };
        self.runs.push(id);
        if self.graph == "builtins" {
            freeze_clock(&mut run);
        }
        our_end(self.world, &run)
    }

    /// Calls the graph as an action does.
    fn execute(&mut self, params: &Value) -> Facts {
        let command = self.world.ryectl("execute tool --json");
        let out = command
            .within(&self.project)
            .arg(format!("golden/{}", self.graph))
            .arg("--params")
            .arg(params.to_string())
            .into_command()
            .output()
            .unwrap();
        let Ok(envelope) = serde_json::from_slice::<Value>(&out.stdout) else {
            let told = String::from_utf8_lossy(&out.stderr);
            let told = told.lines().next().unwrap_or_default().to_owned();
            let told = match self.runs.first() {
                Some(run) => told.replace(run, "<RUN1>"),
                None => told,
            };
            return Facts::from([("refused", json!(told))]);
        };
        let data = &envelope["data"];
        if let Some(run) = data["graph_run_id"].as_str() {
            let record = self.world.record(run);
            return self.note(record);
        }
        if data.get("node_count").is_some() {
            return our_findings(data);
        }
        Facts::from([
            ("success", data["success"].clone()),
            ("state", data["state"].clone()),
            ("executed_node", data["executed_node"].clone()),
            ("next_node", data["next_node"].clone()),
            ("steps", data["step_count"].clone()),
            ("error", data["error"].clone()),
            ("code", data["code"].clone()),
        ])
    }

    /// Runs the graph and answers its record, or what `ryectl` said if there is no run.
    fn run(&self, mut inputs: Value) -> Value {
        let mut command = self
            .world
            .ryectl("run --json --quiet")
            .within(&self.project);
        let given = inputs.as_object_mut();
        if let Some(caps) = given.and_then(|inputs| inputs.remove("capabilities")) {
            for cap in caps.as_array().unwrap() {
                command = command.arg("--cap").arg(cap.as_str().unwrap());
            }
        }
        let child = command
            .arg(format!("golden/{}", self.graph))
            .arg("--input")
            .arg(inputs.to_string())
            .into_command();
        thread::scope(|scope| {
            let mut child = child;
            let ended = scope.spawn(move || child.output().unwrap());
            if self.graph.starts_with("cancel") {
                self.cancel();
            }
            let output = ended.join().unwrap();
            serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|_| json!(String::from_utf8_lossy(&output.stderr)))
        })
    }

    /// A step that wants the run to be cancelled says so, and goes on when it has been.
    fn cancel(&self) {
        until("the step that is to be cancelled", || {
            self.project.join(".stub/cancel").exists().then_some(())
        });
        let runs = self.world.ryectl("ps --json").ok().json();
        let item = format!("golden/{}", self.graph);
        let runs = runs.as_array().unwrap();
        let run = runs.iter().find(|run| run["item_id"] == item).unwrap();
        let run = run["run_id"].as_str().unwrap();
        let _asked = self.world.ryectl("cancel").arg(run).ok();
        fs::write(self.project.join(".stub/cancelled"), "").unwrap();
    }
}

fn disagreements(
    world: &World,
    signed: &Path,
    recorded: &Value,
    ruling: Option<&Value>,
) -> Vec<String> {
    let id = recorded["id"].as_str().unwrap();
    let mut case = Case {
        world,
        project: world.home().join("cases").join(id),
        graph: recorded["graph"].as_str().unwrap(),
        runs: Vec::new(),
    };
    copy(signed, &case.project.join(".ai"));
    let mut wrong = Vec::new();
    let runs = recorded["runs"].as_array().unwrap();
    for (number, run) in (1..).zip(runs) {
        let observed = case.call(run);
        // A ruling on a case of several calls names the call.
        let ruling = match ruling.and_then(|ruling| ruling.get("runs")) {
            Some(each) => each.get(number.to_string()),
            None => ruling.filter(|_| number == runs.len()),
        };
        for (key, value) in expected(run, ruling) {
            let ours = observed.get(key).unwrap_or(&Value::Null);
            if *ours != value {
                wrong.push(format!("{id} {number}: {key}: expected {value}"));
                wrong.push(format!("{id} {number}: {key}: observed {ours}"));
            }
        }
        if let (Some(refused), false) = (
            observed.get("refused"),
            ruling.is_some_and(|ruling| ruling["instead"].get("refused").is_some()),
        ) {
            wrong.push(format!("{id} {number}: refused: {refused}"));
        }
    }
    wrong
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

/// A project with the recorded graphs and tools, signed.
fn signed_project() -> World {
    let world = World::new();
    let tools = world.project().join(".ai/tools");
    copy(&data("tools"), &tools);
    teach_echo_to_cancel(&tools);
    // Stands for the item of LLM threads: it answers what its caller wants, or that a run of the project goes on elsewhere.
    world.python(
        "rye/agent/threads/thread_directive",
        "import os\n\
         path = os.path.join(project_path, 'continued')\n\
         answer = dict(params['__answer__'])\n\
         if os.path.exists(path):\n\
         \x20   answer['continuation_thread_id'] = open(path).read()\n\
         return answer\n",
    );
    world.write(".ai/config/agent/error_classification.yaml", NO_BACKOFF);
    let _signed = world
        .ryectl("sign tool:golden/* tool:stub/* config:agent/error_classification")
        .ok();
    world
}

#[test]
fn recorded_graphs_come_to_the_recorded_end_or_to_ours() {
    let world = signed_project();
    let _daemon = world.start("env:\n  pass: [GOLDEN_LEAK]\n");
    let signed = world.project().join(".ai");

    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    let cases = cases.as_array().unwrap();
    let now: Vec<&Value> = cases
        .iter()
        .filter(|case| !later(case["id"].as_str().unwrap()))
        .collect();
    assert_eq!(now.len() + LATER.len(), cases.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while let Some(case) = now.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let ruling = rulings.get(case["id"].as_str().unwrap());
                        wrong.extend(disagreements(&world, &signed, case, ruling));
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_node_whose_work_was_continued_takes_the_result_of_the_last_run() {
    let world = signed_project();
    let _daemon = world.start("");
    let failed = world
        .ryectl("run --json --quiet golden/resumable -i who=Ann")
        .run();
    let failed = failed.code(1).json();
    let last = world
        .ryectl("resume --json --quiet")
        .arg(failed["run_id"].as_str().unwrap())
        .ok()
        .json();
    assert_ne!(last["run_id"], failed["run_id"]);
    world.write("continued", failed["run_id"].as_str().unwrap());

    let run = world
        .ryectl("run --json --quiet golden/continuation")
        .ok()
        .json();
    let taken = &run["state"]["r"];
    assert_eq!(taken["thread_id"], last["run_id"]);
    assert_eq!(taken["status"], "completed");
    assert_eq!(taken["output"], last["output"]);
    assert_eq!(
        run["output"]["note"],
        Value::Null,
        "the first result is gone"
    );
}

#[test]
fn every_ruling_is_about_a_case_that_is_walked_and_gives_its_reason() {
    let cases = read("graphs.json");
    let rulings = read("rulings.json");
    let known = |id: &str| {
        let cases = cases.as_array().unwrap();
        cases.iter().any(|case| case["id"] == id)
    };
    for (id, ruling) in rulings.as_object().unwrap() {
        assert!(known(id), "{id} is not recorded");
        assert!(!later(id), "{id} is ruled on and left for later");
        assert!(
            ruling["because"]
                .as_str()
                .is_some_and(|because| because.len() > 10),
            "{id} gives no reason"
        );
    }
    for (id, _) in LATER {
        assert!(known(id), "{id} names no case");
    }
}

#[test]
fn the_table_of_differences_tells_all_of_them() {
    let path = data("README.md");
    let table = table_of_differences();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text == table),
        "{} is out of date: run `UPDATE_GOLDEN=1 cargo test -p rye-tests golden`",
        path.display()
    );
}

fn table_of_differences() -> String {
    let cases = read("graphs.json");
    let cases = cases.as_array().unwrap();
    let rulings = read("rulings.json");
    let rulings = rulings.as_object().unwrap();
    let mut text = format!(
        "# Recorded cases\n\n\
         `graphs.json` holds {} cases: graphs, calls, and what the original walker made of them. The tests walk them with the\n\
         daemon and compare status, result, state, walked nodes and errors. {} come to the recorded end; {} differ on\n\
         purpose, {} wait for a feature. Written from `rulings.json` and `tests/tests/golden.rs` by\n\
         `UPDATE_GOLDEN=1 cargo test -p rye-tests golden`, and checked by that test.\n\n\
         ## Where we differ on purpose\n\n\
         What we do instead stands in `rulings.json`. *Recorded as*: whether the original meant what it did there, or did it\n\
         by accident.\n\n\
         | case | recorded as | why we differ |\n| --- | --- | --- |\n",
        cases.len(),
        cases.len() - rulings.len() - LATER.len(),
        rulings.len(),
        LATER.len()
    );
    for case in cases {
        let id = case["id"].as_str().unwrap();
        if let Some(ruling) = rulings.get(id) {
            let verdict = case["verdict"].as_str().unwrap();
            let because = ruling["because"].as_str().unwrap();
            writeln!(text, "| `{id}` | {verdict} | {because} |").unwrap();
        }
    }
    text.push_str("\n## For later\n\n| case | waits for |\n| --- | --- |\n");
    for (id, reason) in LATER {
        writeln!(text, "| `{id}` | {reason} |").unwrap();
    }
    text
}
