//! Programs of runs that call the daemon.

use std::collections::BTreeSet;
use std::fs;

use rye_tests::{World, files_with, until};
use serde_json::{Value, json};

mod attacks;
mod crashes;
mod ordered;

/// The tool of the mission, with the two names that its page leaves undefined.
const BATCH: &str = r#"
def _aggregate(results):
    return [r["data"]["doubled"] for r in results]

def execute(params, project_path):
    """Process the items, each by a call, no LLM involved."""
    from rye.tools.execute import ExecuteTool
    user_space = None
    tool = ExecuteTool(user_space)

    results = []
    for item in params["items"]:
        result = tool.handle(
            item_type="tool",
            item_id="t/single",
            project_path=project_path,
            parameters={"item": item},
        )
        results.append(result)

    return {
        "processed": len(results),
        "successes": sum(1 for r in results if r.get("status") == "success"),
        "summary": _aggregate(results),
    }
"#;

const SINGLE: &str =
    "def execute(params, project_path):\n    return {\"doubled\": 2 * params[\"item\"]}\n";

/// Writes and signs a Python tool with `code`, which defines `execute`.
fn python(world: &World, id: &str, code: &str) {
    world.tool(
        &format!("{id}.py"),
        &format!(
            "__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n__category__ = \
             \"t\"\n__tool_description__ = \"A tool of the tests.\"\n{code}"
        ),
    );
}

/// A graph whose only node calls `item` with `params`.
fn node(world: &World, item: &str, params: &Value, more: &str) {
    world.graph_with(
        "t/g",
        "permissions: [rye.execute.*, rye.fetch.*]",
        &format!(
            "start: a\nnodes:\n  a: {{action: {{item_id: {item}, params: {params}}}, assign: {{out: \"${{result}}\"}}, next: done{more}}}\n  done: \
             {{type: return, output: {{out: \"${{state.out}}\"}}}}"
        ),
    );
}

/// The runs directly below `run`, oldest first.
fn below(world: &World, run: &str) -> Vec<Value> {
    let listed = world.ryectl("ps --all --json").ok().json();
    let runs = listed.as_array().unwrap().iter();
    let mut runs: Vec<Value> = runs
        .filter(|listed| listed["parent_id"] == run)
        .cloned()
        .collect();
    runs.reverse();
    runs
}

#[test]
fn fifty_inner_calls_of_the_original_example_are_runs_below_their_caller() {
    let world = World::new();
    python(&world, "t/single", SINGLE);
    python(&world, "t/batch", BATCH);
    let _daemon = world.start("");
    let items: Vec<u32> = (0..50).collect();
    let params = json!({"items": items});
    node(&world, "t/batch", &params, "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let out = &record["output"]["out"];
    assert_eq!(out["processed"], 50);
    assert_eq!(out["successes"], 50);
    let doubled: Vec<u32> = items.iter().map(|item| 2 * item).collect();
    assert_eq!(out["summary"], json!(doubled));

    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let started = events.iter();
    let started: Vec<&str> = started
        .filter(|event| event["event_type"] == "callback_started")
        .map(|event| event["payload"]["child"].as_str().unwrap())
        .collect();
    assert_eq!(started.len(), 50);
    let runs = below(&world, &run);
    let ids: BTreeSet<&str> = runs
        .iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, started.into_iter().collect());
    assert!(runs.iter().all(|run| run["status"] == "completed"));
    let child = world.record(runs[0]["run_id"].as_str().unwrap());
    assert_eq!(child["item_id"], "t/single");
    assert_eq!(child["parent_attempt"], "a");
    // Only what the program returns is the result of its node.
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    assert_eq!(steps.as_array().unwrap().len(), 2, "{steps}");
}

#[test]
fn helper_executes_fetches_reports_progress_and_raises_errors() {
    let world = World::new();
    python(&world, "t/single", SINGLE);
    python(
        &world,
        "t/fails",
        "def execute(params, project_path):\n    raise ValueError(\"no good\")\n",
    );
    world.graph_with(
        "t/inner",
        "permissions: [\"rye.execute.tool.*\"]\nconfig_schema: {type: object, properties: {text: {type: string}}}",
        "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {text: \"${inputs.text}\"}}, assign: {out: \"${result.text}\"}, next: done}\n  \
         done: {type: return, output: {said: \"${state.out}\"}}",
    );
    python(
        &world,
        "t/caller",
        r#"
def execute(params, project_path):
    import asyncio, threading
    import rye_client
    found = {}
    found["tool"] = rye_client.execute("t/single", item=4)
    found["graph"] = rye_client.execute("tool:t/inner", text="hi")["output"]
    found["fetched"] = rye_client.fetch("t/single")["item_id"]
    try:
        rye_client.execute("t/fails")
    except rye_client.CallError as error:
        found["error"] = error.code
    try:
        rye_client.execute("t/missing")
    except rye_client.CallError as error:
        found["missing"] = error.code
    found["progress"] = [rye_client.progress(0.5, "half"), rye_client.progress(0.6, "more")]
    try:
        rye_client.progress(2)
    except rye_client.CallError as error:
        found["bad"] = error.code
    async def awaited():
        return await rye_client.call("t/single", {"item": 5})
    found["awaited"] = asyncio.run(awaited())["status"]
    lines = []
    def one(n):
        lines.append(rye_client.execute("t/single", item=n)["doubled"])
    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    found["threads"] = sorted(lines)
    return found
"#,
    );
    let _daemon = world.start("");
    node(&world, "t/caller", &json!({}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(
        record["output"]["out"],
        json!({
            "tool": {"doubled": 8},
            "graph": {"said": "hi"},
            "fetched": "t/single",
            "error": "tool_failed",
            "missing": "item_not_found",
            "progress": [true, false],
            "bad": "invalid",
            "awaited": "success",
            "threads": [0, 2, 4, 6, 8, 10, 12, 14],
        }),
        "{record}"
    );
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let progress = events
        .iter()
        .find(|event| event["event_type"] == "tool_call_progress")
        .unwrap();
    assert_eq!(progress["payload"]["fraction"], 0.5);
    assert_eq!(progress["payload"]["message"], "half");
}

#[test]
fn command_calls_items_by_ryectl() {
    let world = World::new();
    python(&world, "t/single", SINGLE);
    let _daemon = world.start("");
    let command = r#""$RYE_CTL" execute tool t/single --params '{"item": 3}' --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["data"]["doubled"])'"#;
    node(&world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(record["output"]["out"]["stdout"], "6\n", "{record}");
    assert_eq!(below(&world, &run).len(), 1);
    // A tool run of a person is a caller, too.
    let out = world
        .ryectl("execute tool rye/bash --json --params")
        .arg(json!({"command": command}).to_string())
        .ok()
        .json();
    assert_eq!(out["data"]["stdout"], "6\n");
}

#[test]
fn calls_of_a_line_protocol_are_answered_by_id_and_bad_lines_by_an_error() {
    let world = World::new();
    python(&world, "t/single", SINGLE);
    let _daemon = world.start("");
    let lines = [
        r#"{"id": "a", "call": "execute", "item_id": "t/single", "params": {"item": 1}}"#,
        "no JSON",
        r#"{"id": 2, "call": "sign", "item_id": "t/single"}"#,
        r#"{"id": 3, "call": "progress", "message": "busy"}"#,
    ];
    world.write("lines", lines.join("\n"));
    let command = "\"$RYE_CTL\" call < lines";
    node(&world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    let out = record["output"]["out"]["stdout"]
        .as_str()
        .unwrap()
        .to_owned();
    let answers: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 4, "{out}");
    let of = |id: &Value| answers.iter().find(|answer| answer["id"] == *id).unwrap();
    assert_eq!(of(&json!("a"))["result"]["data"]["doubled"], 2);
    assert_eq!(of(&json!(3))["result"]["recorded"], true);
    let errors = answers
        .iter()
        .filter(|answer| answer["error"]["code"] == "invalid");
    assert_eq!(errors.count(), 2, "{out}");
}

#[test]
fn authority_of_a_program_is_that_of_its_run_narrowed_by_its_tool() {
    let world = World::new();
    python(&world, "t/single", SINGLE);
    let call = "    import rye_client\n    envelope = rye_client.call(\"t/single\", {\"item\": 1})\n    return {\"code\": envelope.get(\"metadata\", {}).get(\"code\"), \
                \"answer\": envelope[\"status\"]}\n";
    let tool = |id: &str, permissions: &str| {
        let body = format!("{permissions}\ndef execute(params, project_path):\n{call}");
        python(&world, id, &body);
    };
    tool("t/open", "");
    tool("t/narrow", "PERMISSIONS = [\"rye.execute.tool.other.*\"]");
    tool("t/wide", "PERMISSIONS = [\"rye.execute.tool.t.single\"]");
    let _daemon = world.start("");
    let all = "permissions: [rye.execute.*]\n";
    for (item, head, code) in [
        ("t/open", all, Value::Null),
        ("t/wide", all, Value::Null),
        ("t/narrow", all, json!("permission_denied")),
        (
            "t/open",
            "permissions: [rye.execute.tool.t.open]\n",
            json!("permission_denied"),
        ),
    ] {
        world.graph_with(
            "t/g",
            head,
            &format!(
                "start: a\nnodes:\n  a: {{action: {{item_id: {item}}}, assign: {{out: \"${{result}}\"}}, next: done}}\n  done: {{type: return, output: \
                 {{code: \"${{state.out.code}}\"}}}}"
            ),
        );
        let run = world.start_run("t/g");
        let record = world.settled(&run);
        assert_eq!(record["output"]["code"], code, "{item} {head}: {record}");
        let denied = !code.is_null();
        assert_eq!(below(&world, &run).is_empty(), denied, "{item} {head}");
        // The refusal is a warning of the run, as that of an action of its own.
        let events = world.ryectl("events --json").arg(&run).ok().json_lines();
        let warned = events.iter().any(|event| {
            event["event_type"] == "warning"
                && event["payload"]["message"]
                    .as_str()
                    .is_some_and(|text| text.starts_with("permission denied"))
        });
        assert_eq!(warned, denied, "{item} {head}");
    }
}

#[test]
fn calls_are_bound_by_depth_and_spawns_of_the_run() {
    let world = World::new();
    // Each call of the tool calls the tool.
    python(
        &world,
        "t/bomb",
        "def execute(params, project_path):\n    import rye_client\n    envelope = rye_client.call(\"t/bomb\", {})\n    code = envelope.get(\"metadata\", \
         {}).get(\"code\")\n    if envelope[\"status\"] == \"success\":\n        return {\"depth\": 1 + envelope[\"data\"][\"depth\"], \"code\": \
         envelope[\"data\"][\"code\"]}\n    return {\"depth\": 0, \"code\": code}\n",
    );
    let _daemon = world.start("");
    node(&world, "t/bomb", &json!({}), "");
    let started = world.ryectl("run t/g --detach --json --limit depth=3").ok();
    let run = started.json()["run_id"].as_str().unwrap().to_owned();
    let record = world.settled(&run);
    assert_eq!(
        record["output"]["out"],
        json!({"depth": 3, "code": "depth_exceeded"}),
        "{record}"
    );

    python(
        &world,
        "t/many",
        "def execute(params, project_path):\n    import rye_client\n    return {\"codes\": [rye_client.call(\"rye/core/echo\", {\"text\": \
         \"x\"}).get(\"metadata\", {}).get(\"code\") for _ in range(4)]}\n",
    );
    node(&world, "t/many", &json!({}), "");
    let started = world
        .ryectl("run t/g --detach --json --limit spawns=2")
        .ok();
    let run = started.json()["run_id"].as_str().unwrap().to_owned();
    let record = world.settled(&run);
    assert_eq!(
        record["output"]["out"]["codes"],
        json!([null, null, "spawns_exceeded", "spawns_exceeded"]),
        "{record}"
    );
    assert_eq!(below(&world, &run).len(), 2);
}

#[test]
fn run_of_a_program_that_ends_first_is_cancelled_before_its_attempt_ends() {
    let world = World::new();
    let _daemon = world.start("");
    let inner = r#"{"command": "touch begun; sleep 60"}"#;
    world.write("inner.json", inner);
    let command = "\"$RYE_CTL\" execute tool rye/bash --params @inner.json & until [ -e begun ]; do sleep 0.02; done; echo left";
    node(&world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let below = below(&world, &run);
    assert_eq!(below.len(), 1);
    assert_eq!(below[0]["status"], "cancelled");
    let events = world.ryectl("events --json").arg(&run).ok().json_lines();
    let place = |name: &str| events.iter().position(|event| event["event_type"] == name);
    assert!(place("callback_started") < place("step_completed"));
    assert!(
        !world
            .processes()
            .iter()
            .any(|process| process.name == "sleep")
    );
}

#[test]
fn suspended_inner_run_is_answered_with_its_id() {
    let world = World::new();
    world.graph(
        "t/asks",
        "start: a\nnodes:\n  a: {type: approval, message: go, next: done}\n  done: {type: return}",
    );
    python(
        &world,
        "t/caller",
        "def execute(params, project_path):\n    import rye_client\n    envelope = rye_client.call(\"t/asks\", {})\n    return {\"code\": \
         envelope[\"metadata\"][\"code\"], \"data\": envelope[\"data\"]}\n",
    );
    let _daemon = world.start("");
    node(&world, "t/caller", &json!({}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    let out = &record["output"]["out"];
    assert_eq!(out["code"], "child_suspended", "{record}");
    assert_eq!(out["data"]["reason"], "approval");
    let child = out["data"]["run_id"].as_str().unwrap();
    assert_eq!(below(&world, &run)[0]["run_id"], child);
}

#[test]
fn token_is_masked_and_in_no_file() {
    let world = World::new();
    let _daemon = world.start("");
    // The program compares what it prints by a hash that no mask covers.
    let command = "echo \"$RYE_TOKEN\"; echo \"$RYE_TOKEN\" >&2; printf %s \"$RYE_TOKEN\" | sha256sum; cp /proc/$$/environ kept";
    node(&world, "rye/bash", &json!({"command": command}), "");
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    let out = record["output"]["out"]["stdout"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(out.starts_with("[redacted]\n"), "{out}");
    assert_eq!(record["output"]["out"]["stderr"], "[redacted]\n");
    let kept = fs::read(world.project().join("kept")).unwrap();
    fs::remove_file(world.project().join("kept")).unwrap();
    let kept = String::from_utf8_lossy(&kept).into_owned();
    let token = kept
        .split('\0')
        .find_map(|line| line.strip_prefix("RYE_TOKEN="))
        .unwrap();
    assert!(token.starts_with("rye_") && token.len() == 47, "{token}");
    let places = files_with(world.root(), token.as_bytes());
    assert!(places.is_empty(), "{places:?}");
    until("the log of the run", || {
        let log = world.ryectl("logs").arg(&run).ok().stdout();
        log.contains("[redacted]").then_some(())
    });
}
