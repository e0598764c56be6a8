//! Refusals of calls are the same, whoever makes them.

use rye_tests::{Ryectl, World};
use serde_json::{Value, json};

use super::python;

/// A refusal, and what causes it.
struct Row {
    code: &'static str,
    /// Permissions and other keys above the graph.
    permissions: &'static str,
    item: &'static str,
    params: Value,
    /// Flags of `run`.
    flags: &'static str,
}

fn rows() -> Vec<Row> {
    let all = "rye.execute.*";
    let row = |code, permissions, item, params, flags| Row {
        code,
        permissions,
        item,
        params,
        flags,
    };
    vec![
        row(
            "permission_denied",
            "rye.execute.tool.t.caller",
            "t/inner",
            json!({}),
            "",
        ),
        row("caller_not_allowed", all, "t/people", json!({}), ""),
        row("item_not_found", all, "t/missing", json!({}), ""),
        row(
            "input_validation_failed",
            all,
            "t/typed",
            json!({"n": "text"}),
            "",
        ),
        row(
            "depth_exceeded",
            all,
            "t/inner",
            json!({}),
            "--limit depth=1",
        ),
        row(
            "spawns_exceeded",
            all,
            "t/inner",
            json!({}),
            "--limit spawns=1",
        ),
        row("isolation_unavailable", all, "t/user", json!({}), ""),
        row("limits_unavailable", all, "t/limited", json!({}), ""),
    ]
}

/// Runs a graph whose last node makes the call of `row`, or lets a program make it. Returns the code of the failure, and
/// the warnings.
fn play(world: &World, row: &Row, by_program: bool) -> (Value, Vec<String>) {
    let call = json!({"item_id": row.item, "params": row.params});
    let last = if by_program {
        json!({"item_id": "t/caller", "params": {"item": row.item, "params": row.params}})
    } else {
        call
    };
    // The first node uses the one child run that the limit of spawns leaves.
    let first = match row.code {
        "spawns_exceeded" => "first: {action: {item_id: t/inner}, next: last}",
        _ => "first: {type: gate, next: last}",
    };
    let is_nested = row.code == "depth_exceeded";
    let graph = |id: &str, first: &str, last: &Value| {
        world.graph_with(
            id,
            &format!("permissions: [\"{}\"]", row.permissions),
            &format!(
                "start: first\nnodes:\n  {first}\n  last: {{action: {last}, assign: {{out: \"${{result}}\"}}, next: done}}\n  done: {{type: return, output: {{out: \
                 \"${{state.out}}\"}}}}"
            ),
        );
    };
    if is_nested {
        // The call is made one level below the run.
        graph("t/nested", "first: {type: gate, next: last}", &last);
        graph(
            "t/g",
            "first: {type: gate, next: last}",
            &json!({"item_id": "t/nested"}),
        );
    } else {
        graph("t/g", first, &last);
    }
    let started = world.ryectl("run --detach --json").arg("t/g");
    let started = row.flags.split_whitespace().fold(started, Ryectl::arg);
    let started = started.ok().json();
    let run = started["run_id"].as_str().unwrap();
    let record = world.settled(run);
    let mut tree = world
        .ryectl("events --tree --json")
        .arg(run)
        .ok()
        .json_lines();
    tree.retain(|event| event["event_type"] == "warning");
    let warnings = tree
        .iter()
        .map(|event| event["payload"]["message"].as_str().unwrap());
    // The kind of the caller follows.
    let warnings = warnings.map(|text| text.split(" by ").next().unwrap().to_owned());
    let warnings = warnings.collect();
    let code = if by_program {
        // The output of the graph below is that of its program.
        let out = &record["output"]["out"];
        let out = if is_nested {
            &out["output"]["out"]
        } else {
            out
        };
        out["code"].clone()
    } else {
        record["error"]["code"].clone()
    };
    (code, warnings)
}

#[test]
fn refused_calls_of_programs_have_code_and_warning_of_direct_calls() {
    let world = World::new();
    world.graph("t/inner", "start: a\nnodes:\n  a: {type: return}");
    python(
        &world,
        "t/people",
        "__callers__ = [\"person\"]\ndef execute(params, project_path):\n    return {}\n",
    );
    python(
        &world,
        "t/typed",
        "CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}}\ndef execute(params, project_path):\n    return {}\n",
    );
    python(
        &world,
        "t/user",
        "__isolation__ = \"user\"\ndef execute(params, project_path):\n    return {}\n",
    );
    python(
        &world,
        "t/limited",
        "__resources__ = {\"pids\": 100}\ndef execute(params, project_path):\n    return {}\n",
    );
    python(
        &world,
        "t/caller",
        "def execute(params, project_path):\n    import rye_client\n    envelope = rye_client.call(params[\"item\"], params[\"params\"])\n    return {\"code\": \
         envelope.get(\"metadata\", {}).get(\"code\")}\n",
    );
    // No host enforces limits without cgroups.
    let _daemon = world.start("resources: {required: true}\ncontainment: {cgroup: off}");
    for row in rows() {
        let (direct, direct_warnings) = play(&world, &row, false);
        let (by_program, program_warnings) = play(&world, &row, true);
        assert_eq!(direct, row.code, "a direct call");
        assert_eq!(by_program, row.code, "a call of a program");
        assert_eq!(program_warnings, direct_warnings, "{}", row.code);
    }
}
