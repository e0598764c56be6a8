//! Variables that a graph requires: checked before its first step, in exactly the environment of its tools.

use std::fs;

use rye_tests::World;
use rye_tests::command::program;
use serde_json::json;

/// Shows the value of `NAME` in a tool, in angle brackets.
fn show(name: &str) -> String {
    format!(
        "action: {{item_id: rye/bash, params: {{command: \"printf '<%s>' \\\"${name}\\\"\"}}}}\n    \
         assign: {{seen: \"${{result.stdout}}\"}}\n    next: done"
    )
}

fn graph(world: &World, id: &str, head: &str, node: &str) {
    world.graph_with(
        id,
        &format!("permissions: [\"rye.execute.tool.*\"]\n{head}"),
        &format!("start: a\nnodes:\n  a:\n    {node}\n  done: {{type: return, output: \"${{state.seen}}\"}}"),
    );
}

/// Asserts that the graph is refused before its first step. Returns the message.
fn missing(world: &World, id: &str) -> String {
    let refused = world.ryectl("run --json").arg(id).run().code(5).json();
    let error = &refused["error"];
    assert_eq!(error["reason"], "missing_environment_variables", "{error}");
    error["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_variable_that_is_not_set_makes_no_run_and_the_refusal_names_the_fix() {
    let world = World::new();
    graph(
        &world,
        "env/both",
        "env_requires: [FIRST, SECOND]",
        &format!("env_requires: [SECOND, THIRD]\n    {}", show("FIRST")),
    );
    let told = missing(&world, "env/both");
    for part in [
        "graph requires 'FIRST'",
        "graph requires 'SECOND'",
        "node 'a' (rye/bash) requires 'THIRD'",
        "`.env`",
        "`env.pass`",
        "RYE_ENV_PASS",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(told.matches("'SECOND'").count(), 1, "each once: {told}");
    // So does a node without an action.
    let gate = "type: gate\n    env_requires: [FOURTH]\n    assign: {seen: 1}\n    next: done";
    graph(&world, "env/gate", "", gate);
    let told = missing(&world, "env/gate");
    assert!(told.contains("node 'a' requires 'FOURTH'"), "{told}");
    // Variables of the caller's environment reach no tool.
    let out = world
        .ryectl("run env/both --json")
        .env("FIRST", "x")
        .env("SECOND", "x")
        .env("THIRD", "x")
        .run();
    let _refused = out.code(5).stderr_contains(&["FIRST"]);
    assert_eq!(world.info()["live_runs"], 0);
}

#[test]
fn env_file_is_read_at_run_start() {
    let world = World::new();
    graph(&world, "env/file", "env_requires: [FIRST]", &show("FIRST"));
    missing(&world, "env/file");
    for (line, seen) in [("FIRST=one", "<one>"), ("FIRST=", "<>")] {
        world.write(".env", line);
        let run = world.ryectl("run env/file --json").ok().json();
        assert_eq!(run["output"], seen, "{run}");
    }
    // Rye sets its own variables in spite of the file. The file cannot set protected ones.
    world.write(".env", "PYTHONPATH=/x\n");
    graph(
        &world,
        "env/own",
        "env_requires: [RYE_RUN_ID, PATH]",
        &show("PATH"),
    );
    let _run = world.ryectl("run env/own").ok();
    graph(
        &world,
        "env/odd",
        "env_requires: [PYTHONPATH]",
        &show("PATH"),
    );
    missing(&world, "env/odd");
}

#[test]
fn variables_the_daemon_passes_on_count_even_if_they_are_empty() {
    let world = World::new();
    graph(
        &world,
        "env/passed",
        "env_requires: [FIRST, SECOND]",
        &show("SECOND"),
    );
    // The client starts the daemon, which inherits the client's environment.
    let start = world
        .ryectl("daemon start")
        .env("RYE_ENV_PASS", "FIRST,SECOND")
        .env("FIRST", "one")
        .env("SECOND", "");
    let _started = start.ok();
    let run = world.ryectl("run env/passed --json").ok().json();
    assert_eq!(run["output"], "<>", "{run}");
}

#[test]
fn required_variable_of_tool_counts_for_node_but_not_graph() {
    let world = World::new();
    world.tool(
        "own/tool.yaml",
        "version: \"1.0.0\"\ncategory: own\nname: tool\ndescription: \"Shows a variable.\"\n\
         executor_id: rye/core/runtimes/bash\n\
         env_config: {env: {FROM_TOOL: \"yes\"}}\n\
         config: {script: \"printf '<%s>' \\\"$FROM_TOOL\\\"\"}\n",
    );
    let node =
        "action: {item_id: own/tool}\n    assign: {seen: \"${result.stdout}\"}\n    next: done";
    graph(
        &world,
        "env/node",
        "",
        &format!("env_requires: [FROM_TOOL]\n    {node}"),
    );
    let run = world.ryectl("run env/node --json").ok().json();
    assert_eq!(run["output"], "<yes>", "{run}");
    graph(&world, "env/graph", "env_requires: [FROM_TOOL]", node);
    let told = missing(&world, "env/graph");
    assert!(told.contains("graph requires 'FROM_TOOL'"), "{told}");
}

#[test]
fn a_planted_env_file_runs_nothing() {
    let world = World::new();
    world.write("planted.sh", "touch planted-ran");
    let planted = world.project().join("planted.sh");
    let lines = ["BASH_ENV", "ENV"].map(|name| format!("{name}={}\n", planted.display()));
    let rest = "SHELLOPTS=xtrace\nPS4=$(touch planted-ran)\nDATA=fine\n";
    world.write(".env", &(lines.concat() + rest));
    let _daemon = world.start("");
    let params = r#"{"command": "echo $DATA"}"#;
    let out = world
        .ryectl("execute tool rye/bash --params")
        .arg(params)
        .ok();
    assert_eq!(out.json()["stdout"], "fine\n");
    world.tool(
        "t/script.yaml",
        "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: script\n\
         description: \"A script.\"\nconfig: {script: \"echo 1\"}\n",
    );
    let _out = world.ryectl("execute tool t/script").ok();
    assert!(!world.project().join("planted-ran").exists());
}

#[test]
fn tools_do_not_inherit_settings_of_shell_that_starts_daemon() {
    let world = World::new();
    let venv = world.root().join("venv");
    let binaries = venv.join("bin");
    fs::create_dir_all(&binaries).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(
        [&binaries]
            .into_iter()
            .cloned()
            .chain(std::env::split_paths(&path)),
    )
    .unwrap();
    let ryectl = world
        .ryectl("daemon start")
        .env("PATH", &path)
        .env("VIRTUAL_ENV", &venv)
        .env("LC_ALL", "C.UTF-8")
        .into_command();
    // A shell with settings of its own.
    let mut shell = program("sh");
    shell.args([
        "-c",
        "umask 077; ulimit -S -t 7; ulimit -S -f 100000; exec \"$@\"",
        "sh",
    ]);
    shell.arg(ryectl.get_program()).args(ryectl.get_args());
    for (name, value) in ryectl.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(world.project());
    assert!(shell.status().unwrap().success());
    let command = "umask; ulimit -S -t; ulimit -S -f; echo \"$PATH\"; echo \"$LC_ALL\"";
    let out = world.ryectl("execute tool rye/bash --json --params -");
    let out = out
        .stdin(json!({"command": command}).to_string())
        .ok()
        .json();
    let stdout = out["data"]["stdout"].as_str().unwrap();
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines[0], "0022");
    assert_ne!(lines[1], "7");
    assert_ne!(lines[2], "100000");
    assert!(!lines[3].contains(binaries.to_str().unwrap()), "{stdout}");
    assert_eq!(lines[4], "C.UTF-8");
    let info = world.info();
    assert_eq!(info["tools"]["umask"], "0022");
    assert_eq!(info["tools"]["nice"], 0);
    let variables = info["tools"]["variables"].as_array().unwrap();
    assert!(variables.contains(&json!("LC_ALL=C.UTF-8")), "{info}");
}
