//! Tools of servers of the Model Context Protocol: their answers, the lifetime of their servers, and hostile servers.

mod foreign;
mod hostile;
mod remote;

use rye_tests::{World, until};
use serde_json::{Value, json};
use std::fmt::Write as _;

const SERVER: &str = include_str!("mcp/server.py");

/// Writes a server of the tests with the behaviour `mode`, and one unpinned tool of it for each of `tools`. `extra` is
/// YAML below `config` of the server.
fn server(world: &World, mode: &str, extra: &str, tools: &[&str]) {
    world.write("server.py", SERVER);
    world.tool(
        &format!("mcp/servers/{mode}.yaml"),
        &format!(
            "version: \"1.0.0\"\ntool_type: mcp_server\nexecutor_id: null\ncategory: mcp/servers\nname: {mode}\n\
             description: \"A server of the tests.\"\nconfig:\n  transport: stdio\n  command: python3\n  \
             args: [\"-u\", \"{{project_path}}/server.py\", {mode}]\n{extra}"
        ),
    );
    for name in tools {
        tool(world, mode, name, "", "");
    }
}

/// Writes the tool `name` of the server. `pin` is YAML below `config`, `rest` next to it.
fn tool(world: &World, server: &str, name: &str, pin: &str, rest: &str) {
    world.tool(
        &format!("mcp/{server}/{name}.yaml"),
        &format!(
            "version: \"1.0.0\"\ntool_type: mcp\nexecutor_id: rye/core/runtimes/mcp/stdio\ncategory: mcp/{server}\nname: {name}\n\
             description: \"A tool of the tests.\"\nconfig:\n  server: mcp/servers/{server}\n  tool_name: {name}\n{pin}{rest}"
        ),
    );
}

fn execute(world: &World, tool: &str, params: &Value) -> Value {
    let command = world.ryectl("execute tool").arg(tool).arg("--json");
    command.arg("--params").arg(params.to_string()).run().json()
}

/// Waits until no server of the world is left.
fn until_none_is_left(world: &World) {
    until("the servers to end", || {
        let left = world.processes();
        let is_server = |name: &str| name.starts_with("python") || name == "sleep";
        (!left.iter().any(|process| is_server(&process.name))).then_some(())
    });
}

#[test]
fn mcp_result_is_data_and_server_ends_with_run() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["boom", "env", "roots"]);
    tool(
        &world,
        "good",
        "add",
        "",
        "input_schema: {type: object, properties: {a: {type: number}, b: {type: number}}, required: [a, b]}\n",
    );
    let out = execute(&world, "mcp/good/add", &json!({"a": 1, "b": 2}));
    assert_eq!(out["status"], "success", "{out}");
    assert_eq!(out["data"]["sum"], 3);
    assert_eq!(out["data"]["parsed"], json!({"sum": 3}));
    assert_eq!(out["data"]["tool"], "add");
    let last = out["chain"].as_array().unwrap().last().unwrap();
    assert_eq!(last["item_id"], "mcp/servers/good");
    // Parameters are checked before anything starts.
    let refused = world.ryectl("execute tool mcp/good/add --params {\"a\":1}");
    let _refused = refused.run().code(2).stderr_contains(&["`b`"]);
    let failed = execute(&world, "mcp/good/boom", &json!({}));
    assert_eq!(failed["status"], "error");
    assert_eq!(failed["error"], "no such row");
    assert_eq!(failed["data"]["isError"], true);
    let env = execute(&world, "mcp/good/env", &json!({}));
    let env = env["data"]["parsed"].as_object().unwrap();
    let ours = env.keys().filter(|key| key.starts_with("RYE_"));
    assert_eq!(ours.collect::<Vec<_>>(), ["RYE_ATTEMPT"]);
    let roots = execute(&world, "mcp/good/roots", &json!({}));
    let root = format!("file://{}/", world.project().display());
    assert_eq!(roots["data"]["content"][0]["text"], root, "{roots}");
    until_none_is_left(&world);
    until("the server to see the end of its input", || {
        world
            .read("heard.txt")
            .contains("end of input")
            .then_some(())
    });
}

#[test]
fn long_mcp_blob_is_object_and_short_one_is_inline() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["picture"]);
    let out = execute(&world, "mcp/good/picture", &json!({"bytes": 100_000}));
    let block = &out["data"]["content"][0];
    let hash = block["object"].as_str().unwrap();
    let expected =
        json!({"type": "image", "mimeType": "image/png", "object": hash, "bytes": 100_000});
    assert_eq!(*block, expected, "{out}");
    assert_eq!(out["data"]["content"][1]["text"], "look");
    let object = world.ryectl("objects get").arg(hash).ok().json();
    let text = object.as_str().unwrap();
    assert!(
        text.starts_with("eHh4") && text.len() == 133_336,
        "{}",
        text.len()
    );
    let out = execute(&world, "mcp/good/picture", &json!({"bytes": 3}));
    assert_eq!(out["data"]["content"][0]["data"], "eHh4", "{out}");
}

/// Writes a graph that calls a server, waits for the file `go`, and calls it again.
fn asks_twice(world: &World) {
    let ask = "action: {item_id: mcp/good/pid}, assign";
    world.graph(
        "t/g",
        &format!(
            "start: a\nnodes:\n  a: {{{ask}: {{one: \"${{result.parsed}}\"}}, next: b}}\n  \
             b: {{action: {{item_id: rye/bash, params: {{command: \"touch begun; until [ -e go ]; do sleep 0.05; done\"}}}}, next: c}}\n  \
             c: {{{ask}: {{two: \"${{result.parsed}}\"}}, next: d}}\n  \
             d: {{type: return, output: {{one: \"${{state.one}}\", two: \"${{state.two}}\"}}}}"
        ),
    );
}

/// The MCP servers that `proc ls` shows.
fn servers(world: &World, all: &str) -> Vec<Value> {
    let listed = world.ryectl(&format!("proc ls --json {all}"));
    let mut listed = listed.ok().json().as_array().cloned().unwrap();
    listed.retain(|process| process["server"] == "mcp/servers/good");
    listed
}

#[test]
fn mcp_server_is_managed_process_of_its_root_run() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["pid"]);
    asks_twice(&world);
    // A server is no child run that counts.
    let started = world.ryectl("run t/g --detach --json --limit spawns=0");
    let run = started.ok().json()["run_id"].as_str().unwrap().to_owned();
    until("the second step", || {
        world.project().join("begun").exists().then_some(())
    });
    let up = servers(&world, "");
    assert_eq!(up.len(), 1, "{up:?}");
    assert_eq!(up[0]["owner"], run.as_str());
    assert_eq!(
        (&up[0]["name"], &up[0]["running"]),
        (&json!("good"), &json!(true))
    );
    let handle = up[0]["handle"].as_str().unwrap();
    let logs = world.ryectl("proc logs").arg(handle).ok().stdout();
    assert!(logs.contains("ready to serve"), "{logs}");
    let restart = world.ryectl("proc restart").arg(handle).run();
    let _refused = restart.code(5).stderr_contains(&["MCP server", "stop it"]);
    let _stopped = world.ryectl("proc stop").arg(handle).ok();
    world.write("go", "");
    let record = world.settled(&run);
    let output = &record["output"];
    assert_eq!(output["one"], up[0]["pid"], "{record}");
    assert!(
        output["two"].is_number() && output["one"] != output["two"],
        "{record}"
    );
    until_none_is_left(&world);
    let all = until("both servers to be over", || {
        let all = servers(&world, "--all");
        all.iter()
            .all(|process| process["running"] == false)
            .then_some(all)
    });
    let ends: Vec<_> = all
        .iter()
        .map(|process| process["status"].as_str().unwrap())
        .collect();
    assert_eq!(ends, ["stopped", "stopped"], "{all:?}");
}

#[test]
fn a_server_is_named_by_its_id_or_as_the_original_names_it() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["pid"]);
    let text = world.read(".ai/tools/mcp/good/pid.yaml");
    for named in [
        "server: good",
        "server_config_path: \"{project_path}/.ai/tools/mcp/servers/good.yaml\"",
    ] {
        let text = text.replace("server: mcp/servers/good", named);
        world.tool("mcp/good/pid.yaml", &text);
        let out = execute(&world, "mcp/good/pid", &json!({}));
        assert_eq!(out["status"], "success", "{named}: {out}");
    }
}

#[test]
fn a_run_has_sixteen_servers_at_a_time_and_no_more() {
    let world = World::new();
    let _daemon = world.start("");
    let mut nodes = String::new();
    for number in 0..17 {
        let next = number + 1;
        server(&world, &format!("s{number}"), "", &["pid"]);
        writeln!(
            nodes,
            "  n{number}: {{action: {{item_id: mcp/s{number}/pid}}, retry: 0, next: n{next}}}"
        )
        .unwrap();
    }
    world.graph(
        "t/g",
        &format!("start: n0\nnodes:\n{nodes}  n17: {{type: return}}"),
    );
    let run = world.start_run("t/g");
    let record = world.settled(&run);
    assert_eq!(record["error"]["code"], "mcp_too_many_servers", "{record}");
    assert_eq!(record["error"]["node"], "n16", "{record}");
    until_none_is_left(&world);
}

#[test]
fn one_server_serves_a_whole_run_and_its_child_runs() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["pid"]);
    let ask = "action: {item_id: mcp/good/pid}, assign";
    world.graph(
        "t/child",
        &format!("start: a\nnodes:\n  a: {{{ask}: {{pid: \"${{result.parsed}}\"}}, next: b}}\n  b: {{type: return, output: {{pid: \"${{state.pid}}\"}}}}"),
    );
    world.graph(
        "t/root",
        &format!(
            "start: a\nnodes:\n  a: {{{ask}: {{one: \"${{result.parsed}}\"}}, next: b}}\n  \
             b: {{action: {{item_id: t/child}}, assign: {{two: \"${{result.output.pid}}\"}}, next: c}}\n  \
             c: {{type: return, output: {{one: \"${{state.one}}\", two: \"${{state.two}}\"}}}}"
        ),
    );
    let run = world.start_run("t/root");
    let output = world.settled(&run)["output"].clone();
    assert!(output["one"].is_number(), "{output}");
    assert_eq!(output["one"], output["two"]);
    assert_eq!(world.read("heard.txt").matches("initialize").count(), 1);
    until_none_is_left(&world);
    // A tool that nothing pins is reported.
    let events = world.ryectl("events").arg(&run).ok();
    assert!(events.stdout().contains("nothing pins the tool `pid`"));
}

#[test]
fn recovered_run_uses_new_mcp_server_without_repeating_calls() {
    let world = World::new();
    let daemon = world.start("");
    server(&world, "good", "", &["pid"]);
    asks_twice(&world);
    let run = world.start_run("t/g");
    until("the second step", || {
        world.project().join("begun").exists().then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    let _again = world.start("");
    world.write("go", "");
    let output = world.settled(&run)["output"].clone();
    assert!(
        output["one"].is_number() && output["two"].is_number(),
        "{output}"
    );
    assert_ne!(output["one"], output["two"]);
    let heard = world.read("heard.txt");
    assert_eq!(heard.matches("initialize").count(), 2, "{heard}");
    until_none_is_left(&world);
    let ends = servers(&world, "--all");
    assert!(
        ends.iter().any(|process| process["status"] == "stale"),
        "{ends:?}"
    );
}

#[test]
fn tools_are_imported_signed_and_pinned_and_one_that_changes_is_refused() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &[]);
    let shown = world.ryectl("mcp import mcp/servers/good").ok();
    assert!(shown.stdout().contains("Adds two numbers."));
    assert_eq!(world.read(".ai/tools/mcp/good/add.yaml"), "");
    let import = || world.ryectl("mcp import mcp/servers/good --tools a* --yes --json");
    let written = import().ok().json();
    let items: Vec<_> = written.as_array().unwrap().iter().collect();
    assert_eq!(items.len(), 2, "{written}");
    assert_eq!(items[0]["item"], "tool:mcp/good/add");
    assert_eq!(import().ok().json()[0]["done"], "is as it was in");
    let sum = execute(&world, "mcp/good/add", &json!({"a": 2, "b": 2}));
    assert_eq!(sum["data"]["sum"], 4, "{sum}");
    world.write("changed", "");
    let refused = execute(&world, "mcp/good/add", &json!({"a": 2, "b": 2}));
    assert_eq!(refused["metadata"]["code"], "mcp_tool_changed", "{refused}");
    let told = refused["error"].as_str().unwrap();
    assert!(
        told.contains("ryectl mcp import mcp/servers/good --tools 'add' --replace"),
        "{told}"
    );
    let kept = import().run().code(5);
    let _told = kept.stderr_contains(&["good/add.yaml` is there already", "`--replace`"]);
    let _replaced = import().arg("--replace").ok();
    let sum = execute(&world, "mcp/good/add", &json!({"a": 2, "b": 3}));
    assert_eq!(sum["data"]["sum"], 5, "{sum}");
}

#[test]
fn mcp_tools_with_similar_names_are_imported_as_different_items() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "names", "", &[]);
    let import = world.ryectl("mcp import mcp/servers/names --yes --json --replace");
    let written = import.ok().stderr_contains(&["a tool without a name"]);
    let written = written.json();
    let written = written.as_array().unwrap();
    assert_eq!(written.len(), 4, "{written:?}");
    for tool in written {
        let id = tool["item"]
            .as_str()
            .unwrap()
            .strip_prefix("tool:")
            .unwrap();
        let out = execute(&world, id, &json!({}));
        assert_eq!(
            out["data"]["content"][0]["text"], tool["tool"],
            "{id}: {out}"
        );
    }
    assert_eq!(written[1]["item"], "tool:mcp/names/a_b");
}

#[test]
fn mcp_server_item_is_verified_and_permitted_like_any_item() {
    let world = World::new();
    let _daemon = world.start("");
    server(&world, "good", "", &["pid"]);
    let refused = |words: &[&str], code| {
        let out = world.ryectl("execute tool mcp/good/pid").run();
        let _refused = out.code(code).stderr_contains(words);
    };
    let file = ".ai/tools/mcp/servers/good.yaml";
    let text = world.read(file);
    world.write(file, text.replace("python3", "python4"));
    refused(&["servers/good.yaml", "changed after"], 4);
    for (from, to, words, code) in [
        (
            "transport: stdio",
            "transport: pipe",
            "`stdio` or `http`",
            2,
        ),
        ("  command", "  comand", "config.comand", 2),
        (
            "  transport",
            "  timeout: soon\n  transport",
            "config.timeout",
            2,
        ),
        ("mcp_server", "python", "must be `mcp_server`", 2),
        ("python3", "no-such-program", "no-such-program", 1),
    ] {
        world.tool("mcp/servers/good.yaml", &text.replace(from, to));
        // The error is the same for a tool of the server and for the server itself.
        for call in ["execute tool mcp/good/pid", "mcp import mcp/servers/good"] {
            let _refused = world
                .ryectl(call)
                .run()
                .code(code)
                .stderr_contains(&[words]);
        }
    }
    let import = |server: &str| world.ryectl("mcp import").arg(server).run();
    let _missing = import("mcp/servers/none")
        .code(3)
        .stderr_contains(&["mcp/servers/none"]);
    world.write(file, text.replace("python3", "python4"));
    let _changed = import("mcp/servers/good")
        .code(4)
        .stderr_contains(&["changed after"]);
    world.tool("mcp/servers/good.yaml", &text);
    let other = world.read(".ai/tools/mcp/good/pid.yaml");
    world.tool("mcp/good/pid.yaml", &other.replace("mcp/stdio", "mcp/http"));
    refused(&["pid.yaml", "rye/core/runtimes/mcp/stdio"], 2);
    world.tool(
        "mcp/good/pid.yaml",
        &other.replace("  tool_name: pid\n", ""),
    );
    refused(&["pid.yaml", "config.tool_name"], 2);
    // Listing the tools of a server executes it, so it needs the permission.
    world.graph_with(
        "t/list",
        "permissions: [\"rye.execute.tool.rye.core.mcp.tools\"]",
        "start: a\nnodes:\n  a: {action: {item_id: rye/core/mcp/tools, params: {server: mcp/servers/good}}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/list");
    let record = world.settled(&run);
    assert_eq!(record["status"], "error", "{record}");
    assert!(
        record["error"].to_string().contains("mcp.servers.good"),
        "{record}"
    );
}
