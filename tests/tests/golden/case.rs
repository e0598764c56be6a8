//! Calls of the recorded cases with Rye's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rye_tests::{World, until};
use serde_json::{Value, json};

use super::data;
use super::recorded::{Facts, by_code};
use super::trace::{self, Call};

/// Parameters that control how a graph runs.
const CONTROL: &[&str] = &[
    "resume",
    "graph_run_id",
    "resume_run_id",
    "node",
    "inject_state",
    "validate",
];

/// The built-in retry of the recorded cases without pauses.
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

/// Returns the outcome of a run in the terms of the record.
fn our_end(run: &Value, events: &[Value]) -> Facts {
    let error = |field: &str| run["error"].get(field).cloned().unwrap_or(Value::Null);
    Facts::from([
        ("status", run["status"].clone()),
        ("nodes", walked(events)),
        ("state", run["state"].clone()),
        ("suppressed", run["errors"].clone()),
        ("error", error("message")),
        ("node", error("node")),
        ("code", error("code")),
        ("output", run["output"].clone()),
        ("steps", run["steps"].clone()),
    ])
}

/// Returns the nodes in the order of their starts, retries included.
fn walked(events: &[Value]) -> Value {
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

/// Returns the facts that the original reports for a run that cannot begin, which Rye does not create. `refused` has
/// the refusal and the inputs.
fn never_begun(refused: &Value) -> Option<Facts> {
    let error = refused
        .get("error")
        .filter(|_| refused.get("run_id").is_none())?;
    if !NEVER_BEGUN.contains(&error["reason"].as_str()?) {
        return None;
    }
    Some(Facts::from([
        ("status", json!("error")),
        ("nodes", json!([])),
        ("state", json!({"inputs": refused["inputs"]})),
        ("suppressed", json!([])),
        ("error", error["message"].clone()),
        ("node", Value::Null),
        ("code", error["reason"].clone()),
        ("output", Value::Null),
        ("steps", json!(0)),
    ]))
}

/// Refusals for which the original creates a run and fails it.
const NEVER_BEGUN: [&str; 5] = [
    "graph_validation_failed",
    "input_validation_failed",
    "missing_environment_variables",
    "target_node_not_found",
    "invalid_inject_state",
];

/// One recorded case in a project of its own.
pub(super) struct Case<'a> {
    pub(super) world: &'a World,
    pub(super) project: PathBuf,
    pub(super) graph: &'a str,
    /// Ids of the runs so far.
    pub(super) runs: Vec<String>,
}

impl Case<'_> {
    /// Makes a recorded call. Returns its facts.
    pub(super) fn call(&mut self, recorded: &Value) -> Facts {
        self.prepare(recorded);
        let params = self.with_ids(&recorded["params"]);
        drop(fs::remove_file(self.recorded_calls_file()));
        let mut call = Call::default();
        let mut facts = if CONTROL.iter().any(|key| params.get(key).is_some()) {
            self.execute(&params, &mut call)
        } else {
            let run = self.run(params, &mut call);
            self.note(run, &mut call)
        };
        let told = fs::read_to_string(self.recorded_calls_file()).unwrap_or_default();
        let told = told.lines().map(|line| serde_json::from_str(line).unwrap());
        call.recorded_calls = told.collect();
        let log = self.project.join(".stub/log.txt");
        call.log = fs::read_to_string(log).unwrap_or_default();
        facts.extend(trace::observed(self.graph, &call));
        facts.values_mut().for_each(by_code);
        without_details(&mut facts);
        facts
    }

    /// Returns the file in which the tools record their parameters.
    fn recorded_calls_file(&self) -> PathBuf {
        self.project.join(".stub/calls.jsonl")
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
                    let text = until("the end in the transcript", || {
                        let text = fs::read_to_string(&path).ok()?;
                        text.contains("\"graph_error\"").then_some(text)
                    });
                    fs::write(&path, text.replacen("run_created", "run_creatid", 1)).unwrap();
                }
                "delete_ref" => {
                    let path = format!(".ai/state/objects/refs/graphs/{run}.json");
                    until("the ref to go", || {
                        fs::remove_file(self.project.join(&path)).ok()
                    });
                }
                other => panic!("the case wants `{other}` to be done before"),
            }
        }
    }

    /// Replaces recorded run ids in the parameters by those of our runs.
    fn with_ids(&self, params: &Value) -> Value {
        let first = self.runs.first();
        let first = first.map_or("golden-nothing-1-aaaaaaaaaa", String::as_str);
        serde_json::from_str(&params.to_string().replace("<RUN1>", first)).unwrap()
    }

    fn note(&mut self, mut run: Value, call: &mut Call) -> Facts {
        if let Some(refused) = never_begun(&run) {
            return refused;
        }
        let Some(id) = run["run_id"].as_str().map(str::to_owned) else {
            return Facts::from([("refused", run)]);
        };
        let events = self.world.ryectl("events --json").arg(&id);
        call.events = events.ok().json_lines();
        self.runs.push(id);
        if self.graph == "builtins" {
            freeze_clock(&mut run);
        }
        our_end(&run, &call.events)
    }

    /// Calls the graph as an action does.
    fn execute(&mut self, params: &Value, call: &mut Call) -> Facts {
        let command = self.world.ryectl("execute tool --json");
        let out = command
            .within(&self.project)
            .arg(format!("golden/{}", self.graph))
            .arg("--params")
            .arg(params.to_string())
            .into_command()
            .output()
            .unwrap();
        let envelope = serde_json::from_slice::<Value>(&out.stdout).unwrap_or_default();
        let Some(data) = envelope.get("data") else {
            let mut given = params.clone();
            if let Some(given) = given.as_object_mut() {
                given.retain(|key, _| !CONTROL.contains(&key.as_str()));
            }
            let mut refused = envelope;
            if refused.is_object() {
                refused["inputs"] = given;
            }
            if let Some(mut facts) = never_begun(&refused) {
                if params.get("node").is_some() {
                    // The answer to a single step has another shape.
                    facts.retain(|fact, _| ["state", "error", "code", "steps"].contains(fact));
                    let none = [("executed_node", Value::Null), ("next_node", Value::Null)];
                    facts.extend(none.into_iter().chain([("success", json!(false))]));
                }
                return facts;
            }
            let told = String::from_utf8_lossy(&out.stderr);
            let told = told.lines().next().unwrap_or_default().to_owned();
            let told = match self.runs.first() {
                Some(run) => told.replace(run, "<RUN1>"),
                None => told,
            };
            return Facts::from([("refused", json!(told))]);
        };
        if let Some(run) = data["graph_run_id"].as_str() {
            let record = self.world.record(run);
            return self.note(record, call);
        }
        if data.get("node_count").is_some() {
            return our_findings(data);
        }
        // A single step is a run, but its answer has no run id.
        let listed = self.world.ryectl("ps --all --json").within(&self.project);
        let listed = listed.ok().json();
        let project = self.project.to_str().unwrap();
        let newest = listed.as_array().unwrap().iter().find(|run| {
            let id = run["run_id"].as_str().unwrap();
            run["project"] == project && !self.runs.iter().any(|known| known == id)
        });
        if let Some(run) = newest.and_then(|run| run["run_id"].as_str()) {
            call.events = self
                .world
                .ryectl("events --json")
                .arg(run)
                .ok()
                .json_lines();
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

    /// Runs the graph. Returns its record, or the error of `ryectl` if there is no run.
    fn run(&self, mut inputs: Value, call: &mut Call) -> Value {
        let mut command = self.world.ryectl("run --json").within(&self.project);
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
            let lines = String::from_utf8_lossy(&output.stderr).into_owned();
            let mut run: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if run.get("run_id").is_none() {
                run["inputs"] = inputs;
                if never_begun(&run).is_none() {
                    run = json!(lines);
                }
            }
            call.lines = Some(lines);
            run
        })
    }

    /// Cancels the run when its step requests that. The step continues afterwards.
    fn cancel(&self) {
        until("the step that is to be cancelled", || {
            self.project.join(".stub/cancel").exists().then_some(())
        });
        let runs = self.world.ryectl("ps --json").within(&self.project);
        let runs = runs.ok().json();
        let item = format!("golden/{}", self.graph);
        let runs = runs.as_array().unwrap();
        let run = runs.iter().find(|run| run["item_id"] == item).unwrap();
        let run = run["run_id"].as_str().unwrap();
        let _asked = self.world.ryectl("cancel").arg(run).ok();
        fs::write(self.project.join(".stub/cancelled"), "").unwrap();
    }
}

/// Removes node and error of the last failure, which only the original reports, from the state and the output.
fn without_details(facts: &mut Facts) {
    let last = facts
        .get("state")
        .and_then(|state| state.get("_last_error"));
    let Some(last) = last.cloned() else {
        return;
    };
    let mut told = last.clone();
    if let Some(told) = told.as_object_mut() {
        told.retain(|key, _| key == "node" || key == "error");
    }
    for fact in ["state", "output"] {
        let fields = facts.get_mut(fact).and_then(Value::as_object_mut);
        let fields = fields.into_iter().flat_map(|fields| fields.values_mut());
        fields
            .filter(|value| **value == last)
            .for_each(|value| value.clone_from(&told));
    }
}

/// Replaces the time of this run by the recorded one, after a check of its format.
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

pub(super) fn copy(from: &Path, to: &Path) {
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

/// Makes the tool of the recorded cancellation request it; the recording harness did that from outside.
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

/// Makes the Python tool `item` record its parameters before it does anything else.
fn teach_to_record(tools: &Path, item: &str) {
    let path = tools.join(format!("{item}.py"));
    let text = fs::read_to_string(&path).unwrap();
    let telling = format!(
        "def execute(params, project_path):\n\
         \x20   import json, os\n\
         \x20   stub = os.path.join(project_path, \".stub\")\n\
         \x20   os.makedirs(stub, exist_ok=True)\n\
         \x20   line = json.dumps({{\"item_id\": \"{item}\", \"params\": params}}) + \"\\n\"\n\
         \x20   with open(os.path.join(stub, \"calls.jsonl\"), \"a\") as calls:\n\
         \x20       calls.write(line)\n\
         \x20   return answer(params, project_path)\n"
    );
    let text = text.replace("def execute(", "def answer(");
    fs::write(path, format!("{text}\n\n{telling}")).unwrap();
}

/// Makes a project with the recorded graphs and tools, signed.
pub(super) fn signed_project() -> World {
    let world = World::new();
    let tools = world.project().join(".ai/tools");
    copy(&data("tools"), &tools);
    teach_echo_to_cancel(&tools);
    for entry in fs::read_dir(tools.join("stub")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        teach_to_record(&tools, &format!("stub/{name}"));
    }
    // Replaces the item of LLM threads. It returns the answer that its caller passes, or reports that a run of the
    // project continues elsewhere.
    world.python(
        "rye/agent/threads/thread_directive",
        "import os\n\
         path = os.path.join(project_path, 'continued')\n\
         answer = dict(params['__answer__'])\n\
         if os.path.exists(path):\n\
         \x20   answer['continuation_thread_id'] = open(path).read()\n\
         return answer\n",
    );
    teach_to_record(&tools, "rye/agent/threads/thread_directive");
    world.write(".ai/config/agent/error_classification.yaml", NO_BACKOFF);
    let _signed = world
        .ryectl("sign tool:golden/* tool:stub/* tool:rye/agent/threads/thread_directive config:agent/error_classification")
        .ok();
    world
}
