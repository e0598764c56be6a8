//! A project as users of the original have it: its formats are read, and what has no effect is reported.

use rye_core::id::ItemKind;
use rye_tests::World;
use rye_tests::model_server::ModelServer;
use serde_json::{Value, json};

/// Writes and signs a Python tool of the original, which has no name.
fn python(world: &World, id: &str, runtime: &str, text: &str) {
    let head = format!(
        "__version__ = \"1.0.0\"\n__tool_type__ = \"python\"\n__executor_id__ = \"{runtime}\"\n\
         __category__ = \"t\"\n__tool_description__ = \"d\"\n"
    );
    world.tool(&format!("{id}.py"), &format!("{head}{text}"));
}

const FUNCTION: &str = "rye/core/runtimes/python/function";

/// Executes a tool. Returns its result.
fn execute(world: &World, id: &str, params: &Value) -> Value {
    let call = world.ryectl("execute tool").arg(id);
    call.arg("--params").arg(params.to_string()).ok().json()
}

/// Returns the findings of `ryectl VERB validate ITEM`, as `severity code`.
fn findings(world: &World, verb: &str, item: &str) -> Vec<String> {
    let out = world.ryectl(&format!("{verb} validate --json")).arg(item);
    let report = out.run().code_among(&[0, 1]).json();
    let of = |list: &str| {
        let found = report[list].as_array().cloned().unwrap_or_default();
        let line = move |one: &Value| format!("{list} {}", one["code"].as_str().unwrap());
        found.iter().map(line).collect::<Vec<_>>()
    };
    let mut found = [of("errors"), of("warnings")].concat();
    found.sort();
    found
}

fn config(world: &World, name: &str, head: &str, body: &str) -> std::path::PathBuf {
    let text = format!("category: agent\nversion: \"1.0.0\"\n{head}{body}\n");
    world.write(&format!(".ai/config/agent/{name}.yaml"), text)
}

/// A directive and a graph that have no finding of their own.
fn plain_items(world: &World) {
    let permission =
        "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    world.directive("t/plain", permission, "", "Do it.");
    world.graph("t/gate", "start: z\nnodes:\n  z: {type: return}");
}

#[test]
fn configuration_of_the_original_is_signed_validated_and_used() {
    let world = World::new();
    plain_items(&world);
    for (name, body, ignored) in [
        (
            "agent",
            "schema_version: \"1.0.0\"\nprovider: {default: anthropic}",
            true,
        ),
        (
            "resilience",
            "tool_type: config\nretry: {max_retries: 2}",
            true,
        ),
        (
            "coordination",
            "coordination:\n  wait_threads: {default_timeout: 60}",
            false,
        ),
        (
            "error_classification",
            "patterns: []\noperators: [eq]",
            true,
        ),
    ] {
        let path = config(&world, name, "", body);
        let signed = world.ryectl("sign").arg(&path).ok();
        let is_told = signed.stderr().contains("has no effect");
        assert_eq!(is_told, ignored, "{}", signed.stderr());
        let used = execute(&world, "rye/bash", &json!({"command": "echo used"}));
        assert_eq!(used["stdout"], "used\n");
        let found = findings(&world, "thread", "t/plain");
        assert!(
            found.iter().all(|one| one.starts_with("warnings")),
            "{name}: {found:?}"
        );
        assert_eq!(found.is_empty(), !ignored, "{name}: {found:?}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn sign_validate_and_run_agree_about_configuration() {
    let world = World::new();
    plain_items(&world);
    // Neither validates while the file lacks a signature, since no run starts.
    let path = config(
        &world,
        "agent",
        "name: agent\n",
        "provider: {default: anthropic}",
    );
    for (verb, item) in [("graph", "t/gate"), ("thread", "t/plain")] {
        let found = findings(&world, verb, item);
        assert!(
            found.iter().any(|one| one.starts_with("errors")),
            "{verb}: {found:?}"
        );
    }
    let _refused = world.ryectl("run t/gate").run().code(4);
    // What runs refuse is not signed, with the reason that runs give.
    std::fs::remove_file(path).unwrap();
    let path = config(
        &world,
        "resilience",
        "name: resilience\n",
        "retry: {max_retries: many}",
    );
    let reason = "`retry.max_retries` is a whole number";
    let refused = world.ryectl("sign").arg(&path).run().code(1);
    let _told = refused.stderr_contains(&["failed to sign", reason]);
    world.sign_unchecked(ItemKind::Config, &path);
    let _told = world
        .ryectl("run t/gate")
        .run()
        .code(2)
        .stderr_contains(&[reason]);
    for (verb, item) in [("graph", "t/gate"), ("thread", "t/plain")] {
        let out = world.ryectl(&format!("{verb} validate")).arg(item).run();
        let told = out.code(1);
        assert!(told.stdout().contains(reason), "{verb}: {}", told.stdout());
    }
}

#[test]
fn tools_of_the_original_run_as_they_are() {
    let world = World::new();
    let body = "def execute(params, project_path):\n    return {\"ok\": True}\n";
    let constants = "KINDS = [\"a\", \"b\"]\nCONFIG_SCHEMA = {\"type\": \"object\", \"properties\": \
                     {\"kind\": {\"type\": \"string\", \"enum\": KINDS}}}\n";
    python(
        &world,
        "t/constant",
        FUNCTION,
        &format!("{constants}{body}"),
    );
    assert_eq!(
        execute(&world, "t/constant", &json!({"kind": "a"}))["ok"],
        true
    );
    let wrong = world.ryectl("execute tool t/constant --params {\"kind\":\"c\"}");
    let _refused = wrong.run().code(2);
    python(
        &world,
        "t/older",
        "rye/core/runtimes/python_tool_runtime",
        body,
    );
    assert_eq!(execute(&world, "t/older", &json!({}))["ok"], true);
    let beside = "from pathlib import Path\ndef execute(params, project_path):\n    \
                  return {\"beside\": sorted(p.name for p in Path(__file__).resolve().parent.iterdir())}\n";
    python(&world, "t/place", FUNCTION, beside);
    let beside = execute(&world, "t/place", &json!({}));
    assert_eq!(
        beside["beside"],
        json!(["constant.py", "older.py", "place.py"])
    );
    // The package of the original is not part of Rye.
    python(
        &world,
        "t/imports",
        FUNCTION,
        &format!("from rye.constants import AI_DIR\n{body}"),
    );
    let failed = world.ryectl("execute tool t/imports").run().code(1);
    let _told = failed.stderr_contains(&["No module named 'rye.constants'"]);
    // Parameters that the original ignores.
    let write = json!({"path": "o/x", "content": "x", "create_dirs": true});
    assert_eq!(
        execute(&world, "rye/file-system/write", &write)["created"],
        true
    );
    assert_eq!(world.read("o/x"), "x");
}

#[test]
fn runtime_of_the_original_names_its_interpreter_in_its_environment() {
    let world = World::new();
    let runtime = "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/primitives/subprocess\n\
                   category: t/m\ndescription: d\nenv_config:\n  \
                   interpreter: {type: system_binary, binary: sh, var: RYE_SH}\n  \
                   env: {WHO: \"${RYE_SH}\", AGAIN: \"${WHO}\"}\n\
                   anchor: {enabled: true, mode: auto, markers_any: [mark.yaml], root: tool_dir}\n\
                   verify_deps: {enabled: true, scope: anchor, recursive: true, extensions: [.sh], exclude_dirs: [.git]}\n\
                   config: {command: \"${RYE_SH}\", args: [\"{tool_path}\"], input_data: \"{params_json}\"}\n";
    world.tool("t/m/rt.yaml", runtime);
    world.tool(
        "t/m/mark.yaml",
        "version: \"1.0.0\"\ntool_type: library\ncategory: t/m\n",
    );
    let tool = "#!/bin/sh\n# ---\n# version: \"1.0.0\"\n# executor_id: t/m/rt\n# category: t/m\n# ---\n\
                printf '{\"who\": \"%s\", \"again\": \"%s\", \"own\": \"%s\"}' \"$WHO\" \"$AGAIN\" \"$RYE_SH\"\n";
    world.tool("t/m/show.sh", tool);
    let shown = execute(&world, "t/m/show", &json!({}));
    let who = shown["who"].as_str().unwrap();
    assert!(who.starts_with('/') && who.ends_with("/sh"), "{shown}");
    assert_eq!(
        (&shown["again"], &shown["own"]),
        (&shown["who"], &json!(""))
    );
    let run = world.ryectl("run --json t/m/show").ok().json();
    let events = world
        .ryectl("events")
        .arg(run["run_id"].as_str().unwrap())
        .ok();
    let told = "tool:t/m/rt sets `verify_deps.recursive`";
    assert!(events.stdout().contains(told), "{}", events.stdout());
    // A PATH of the runtime that leads to another program contradicts this.
    let other = world.write("bin/sh", "#!/bin/sh\n");
    let folder = other.parent().unwrap().display().to_string();
    world.tool(
        "t/m/rt.yaml",
        &runtime.replace("AGAIN: \"${WHO}\"", &format!("PATH: \"{folder}\"")),
    );
    let refused = world.ryectl("execute tool t/m/show").run().code(1);
    let _told = refused.stderr_contains(&["rt.yaml", "${RYE_SH}", "leave out one of both"]);
}

#[test]
fn server_file_of_the_originals_discovery_is_signed() {
    let world = World::new();
    let server = "tool_type: mcp_server\nexecutor_id: null\ncategory: mcp/servers\nversion: 1.0.0\ndescription: d\n\
                  config: {transport: http, url: 'https://x.invalid/mcp'}\ncache: {tool_count: 1}\n";
    let path = world.write(".ai/tools/mcp/servers/docs.yaml", server);
    let signed = world.ryectl("sign").arg(path).ok();
    let _told = signed.stderr_contains(&["`cache` has no effect"]);
    let tool = "version: \"1.0.0\"\ntool_type: mcp\nexecutor_id: rye/core/runtimes/mcp/http\ncategory: mcp/docs\n\
                description: d\nconfig: {server: docs, tool_name: a}\n";
    world.tool("mcp/docs/a.yaml", tool);
    // It is read up to the call of the server.
    let planned = world.ryectl("execute tool mcp/docs/a --dry-run").run();
    let _planned = planned.code(0);
}

#[test]
fn validation_warns_of_permissions_that_start_and_reach_nothing() {
    let server = ModelServer::start("- reply: {text: Hi.}");
    let world = World::with_models(&server);
    let tools =
        |tool: &str| format!("<permissions><execute><tool>{tool}</tool></execute></permissions>");
    world.directive("t/bash", &tools("rye.bash.*"), "", "Do it.");
    let found = findings(&world, "thread", "t/bash");
    assert_eq!(found, ["warnings old_spelling", "warnings risk"]);
    let shown = world.ryectl("thread show t/bash").ok();
    assert!(shown.stdout().contains("rye_bash"), "{}", shown.stdout());
    world.directive(
        "t/child",
        &tools("rye.agent.threads.thread_directive"),
        "",
        "Do it.",
    );
    let found = findings(&world, "thread", "t/child");
    assert!(
        found.contains(&"warnings not_permitted".to_owned()),
        "{found:?}"
    );
    world.directive("t/nothing", &tools("nowhere.*"), "", "Do it.");
    let found = findings(&world, "thread", "t/nothing");
    assert_eq!(found, ["warnings not_offered"]);
    let graph = "start: a\nnodes:\n  a:\n    cache: true\n    action: {item_id: rye/agent/threads/thread_directive, params: \
                 {directive_id: t/child, inputs: {}}}\n    next: z\n  z: {type: return}";
    world.graph("t/starts", graph);
    let found = findings(&world, "graph", "t/starts");
    assert_eq!(found, ["warnings no_effect", "warnings not_permitted"]);
}

#[test]
fn tier_is_used_if_named_model_does_not_exist() {
    let world = World::new();
    let permission =
        "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    for (name, model, expected) in [
        (
            "id",
            "<model tier=\"fast\" id=\"claude-3-5-haiku-20241022\"/>",
            &["warnings other_model"][..],
        ),
        (
            "provider",
            "<model tier=\"fast\" provider=\"zen/zen\"/>",
            &["warnings other_model"],
        ),
        ("standard", "<model tier=\"standard\"/>", &[]),
        (
            "alone",
            "<model id=\"claude-3-5-haiku-20241022\"/>",
            &["errors unknown_model"],
        ),
    ] {
        let id = format!("t/{name}");
        world.directive(&id, &format!("{model}{permission}"), "", "Do it.");
        assert_eq!(findings(&world, "thread", &id), expected, "{name}");
    }
}

/// Returns outputs, after some words.
const RETURNS: &str = "
- when: {directive: child, turn: 1}
  reply:
    text: It went well.
    calls: [{name: directive_return, input: {status: fine, return_status: success}}]
    usage: {input: 100, output: 10}
";

#[test]
fn result_of_thread_with_outputs_is_its_text() {
    let server = ModelServer::start(RETURNS);
    let world = World::with_models(&server);
    let outputs = "<outputs><output name=\"status\">how it went</output></outputs>";
    world.directive("t/child", "<model tier=\"fast\"/>", outputs, "Do it.");
    let permissions = "permissions: [\"rye.execute.tool.*\", \"rye.execute.directive.*\"]";
    let graph = "start: a\nnodes:\n  a:\n    action: {item_id: rye/agent/threads/thread_directive, params: \
                 {directive_id: t/child, inputs: {}}}\n    assign: {said: \"${result.result}\", \
                 went: \"${result.outputs.status}\"}\n    next: z\n  \
                 z: {type: return, output: {said: \"${state.said}\", went: \"${state.went}\"}}";
    world.graph_with("t/starts", permissions, graph);
    let output = world.ryectl("run t/starts").ok().json();
    assert_eq!(output, json!({"said": "It went well.", "went": "fine"}));
}
