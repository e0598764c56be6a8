//! Tool → runtime → primitive: what a chain may be made of, and what is said when it may not.

use rye_tests::World;
use serde_json::{Value, json};

/// The text of a YAML tool `t/<name>` that rests on `executor`; `more` are further keys.
fn element(name: &str, executor: &str, more: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: tool\nexecutor_id: {executor}\ncategory: t\nname: {name}\n\
         description: \"Part of a chain.\"\n{more}\n"
    )
}

fn write(world: &World, name: &str, executor: &str, more: &str) {
    world.tool(&format!("t/{name}.yaml"), &element(name, executor, more));
}

const BASH: &str = "rye/core/runtimes/bash";
const EXECUTE: &str = "rye/core/primitives/execute";

#[test]
fn a_chain_that_cannot_be_made_is_refused_with_what_is_wrong_and_leaves_no_run() {
    let world = World::new();
    write(&world, "round", "t/about", "");
    write(&world, "about", "t/round", "");
    for n in 0..10 {
        write(&world, &format!("deep{n}"), &format!("t/deep{}", n + 1), "");
    }
    write(&world, "deep10", EXECUTE, "");
    write(&world, "dead", "null", "");
    write(&world, "astray", "t/nowhere", "");
    write(&world, "climbing", "../secret", "");
    write(
        &world,
        "anchored",
        BASH,
        "anchor: {enabled: true}\nconfig: {script: cat}",
    );
    let cases: [(&str, i32, &[&str]); 6] = [
        ("round", 2, &["circular", "t/round", "about.yaml"]),
        ("deep0", 2, &["longer than 10"]),
        (
            "dead",
            2,
            &[
                "dead.yaml",
                "executor_id",
                "rye/core/runtimes/python/function",
            ],
        ),
        ("astray", 3, &["t/nowhere", "does not exist"]),
        ("climbing", 2, &["climbing.yaml", "executor_id", ".."]),
        (
            "anchored",
            2,
            &["anchored.yaml", "`anchor`", "not supported"],
        ),
    ];
    for (tool, code, told) in cases {
        let id = format!("t/{tool}");
        let _refused = world
            .ryectl("execute tool")
            .arg(id)
            .run()
            .code(code)
            .tells(told);
    }
    assert_eq!(world.ryectl("ps --all --json").ok().json(), json!([]));
}

#[test]
fn what_only_the_plan_shows_ends_the_run_before_anything_is_started() {
    let world = World::new();
    for (name, executor, more) in [
        ("odd", EXECUTE, "config: {command: /bin/cat, umask: 7}"),
        ("on-odd", "t/odd", ""),
        ("slotless", BASH, ""),
        ("late", BASH, "config: {script: cat, timeout: soon}"),
        (
            "listless",
            EXECUTE,
            "config: {command: /bin/echo, args: [1]}",
        ),
        (
            "no-tongue",
            EXECUTE,
            "env_config: {interpreter: {type: local_binary, binary: no-such-tongue, search_paths: [.venv/bin], var: RYE_TONGUE, fallback: no-tongue-3}}\n\
             config: {command: \"${RYE_TONGUE}\", args: [\"{tool_path}\"]}",
        ),
        (
            "newer",
            EXECUTE,
            "env_config: {interpreter: {type: command, var: X}}\nconfig: {command: \"${X}\"}",
        ),
    ] {
        write(&world, name, executor, more);
    }
    let cases: [(&str, &[&str]); 6] = [
        ("on-odd", &["odd.yaml", "config.umask", "not supported"]),
        ("slotless", &["config.script"]),
        ("late", &["config.timeout", "seconds"]),
        ("listless", &["config.args", "list of texts"]),
        (
            "no-tongue",
            &["no-such-tongue", "no-tongue-3", ".venv/bin", "PATH"],
        ),
        ("newer", &["env_config.interpreter.type", "local_binary"]),
    ];
    for (tool, told) in cases {
        let id = format!("t/{tool}");
        let _failed = world
            .ryectl("execute tool")
            .arg(id)
            .run()
            .code(1)
            .tells(told);
    }
}

#[test]
fn the_tool_wins_over_its_runtime() {
    let world = World::new();
    write(
        &world,
        "base",
        EXECUTE,
        "env_config: {env: {A: base, B: base}}\n\
         config:\n  command: /bin/bash\n  args: [\"-c\", \"{script}\", bash, \"{project_path}\"]\n  input_data: \"{params_json}\"\n  timeout: 20",
    );
    write(
        &world,
        "mine",
        "t/base",
        "env_config: {env: {B: mine}}\nconfig:\n  script: |\n    printf '{\"a\": \"%s\", \"b\": \"%s\", \"project\": \"%s\", \"stdin\": %s}' \"$A\" \"$B\" \"$1\" \"$(cat)\"",
    );
    let out = world
        .ryectl("execute tool t/mine --json --params -")
        .stdin(r#"{"x": "{script}"}"#)
        .ok()
        .json();
    assert_eq!(
        out["data"],
        json!({"a": "base", "b": "mine", "project": world.project(), "stdin": {"x": "{script}"}})
    );
    let chain: Vec<_> = out["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|element| element["item_id"].as_str().unwrap())
        .collect();
    assert_eq!(chain, ["t/mine", "t/base", EXECUTE]);
}

#[test]
fn a_trace_tells_the_files_what_they_shadow_and_who_signed() {
    let world = World::new();
    write(&world, "mine", BASH, "config: {script: cat}");
    let out = world
        .ryectl("execute tool t/mine --json --trace")
        .ok()
        .json();
    let trace = out["trace"].as_array().unwrap();
    let steps: Vec<_> = trace
        .iter()
        .map(|step| {
            format!(
                "{} {}",
                step["step"].as_str().unwrap(),
                step["item_id"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        steps,
        [
            "resolve t/mine",
            "verify_integrity t/mine",
            &format!("resolve {BASH}"),
            &format!("verify_integrity {BASH}"),
            &format!("resolve {EXECUTE}"),
            &format!("verify_integrity {EXECUTE}"),
        ]
    );
    assert_eq!(trace[0]["space"], "project");
    assert!(trace[1]["key_fp"].is_string());
}

#[test]
fn the_envelope_of_a_graph_tells_its_chain_and_with_trace_how_it_was_found() {
    let world = World::new();
    world.graph("t/g", "start: a\nnodes:\n  a: {type: return}");
    let runtime = "rye/core/runtimes/state-graph/runtime";
    for params in ["{}", r#"{"async": true}"#, r#"{"validate": true}"#] {
        let execute = world.ryectl("execute tool t/g --json --trace --params");
        let out = execute.arg(params).ok().json();
        let named = |list: &Value, wanted: &str| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.filter(|entry| wanted.is_empty() || entry["step"] == wanted)
                .map(|entry| entry["item_id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(named(&out["chain"], ""), ["t/g", runtime], "{params}");
        assert_eq!(
            named(&out["trace"], "resolve"),
            ["t/g", runtime],
            "{params}"
        );
        let execute = world.ryectl("execute tool t/g --json --params");
        assert!(execute.arg(params).ok().json().get("trace").is_none());
    }
}

#[test]
fn a_caller_cannot_steer_the_loader_an_interpreter_or_rye_by_environment() {
    let world = World::new();
    for name in [
        "PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "RYE_RUN_ID",
        "USER_SPACE",
        "NOT A NAME",
    ] {
        let _refused = world
            .ryectl("execute tool rye/bash --params -")
            .stdin(json!({"command": "env", "env": {name: "x"}}).to_string())
            .run()
            .code(1)
            .tells(&[name, "env"]);
    }
}

#[test]
fn an_item_of_the_project_is_never_taken_for_a_part_of_the_daemon() {
    let world = World::new();
    world.tool(
        "rye/core/echo.yaml",
        &element("echo", BASH, "config: {script: \"echo 7\"}")
            .replace("category: t", "category: rye/core"),
    );
    let out = world
        .ryectl("execute tool rye/core/echo --json --params -")
        .stdin(r#"{"x": 1}"#)
        .ok();
    assert_eq!(out.json()["data"], json!(7));
    assert_eq!(out.json()["chain"][0]["space"], "project");
}
