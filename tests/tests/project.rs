//! A user's project: init, run, edit, refuse, sign, run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rye_tests::{World, until};
use serde_json::{Value, json};

fn initialised() -> World {
    let world = World::bare();
    let _made = world.ryectl("init").ok();
    world
}

/// Returns the files of the project's tools with this extension that contain `text`.
fn tool_files(world: &World, extension: &str, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![world.project().join(".ai/tools")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension)
                && fs::read_to_string(&path).unwrap().contains(text)
            {
                found.push(path);
            }
        }
    }
    found
}

const NEW: &str = "version: \"1.0.0\"\ntool_type: bash\nexecutor_id: rye/core/runtimes/bash\ncategory: t\nname: evil\n\
                   description: \"A tool.\"\nconfig:\n  script: \"echo 1\"\n";

fn sample_graph(world: &World) -> String {
    let graph = tool_files(world, "yaml", "tool_type: graph")
        .pop()
        .expect("init writes a sample graph");
    let relative = graph
        .strip_prefix(world.project().join(".ai/tools"))
        .unwrap();
    relative.with_extension("").to_str().unwrap().to_owned()
}

fn sample_python_tool(world: &World) -> PathBuf {
    tool_files(world, "py", "def execute")
        .pop()
        .expect("init writes a Python tool")
}

fn edit(path: &PathBuf) {
    let mut text = fs::read_to_string(path).unwrap();
    text.push_str("\n# one more line\n");
    fs::write(path, text).unwrap();
}

#[test]
fn init_writes_a_signed_sample_that_runs() {
    let world = initialised();
    let out = world.ryectl("run --json").arg(sample_graph(&world)).ok();
    assert_eq!(out.json()["status"], "completed");
    assert!(!tool_files(&world, "py", "rye:signed:").is_empty());
    assert!(
        !tool_files(&world, "yaml", "rye/bash").is_empty()
            || !tool_files(&world, "yaml", "runtimes/bash").is_empty()
    );
}

#[test]
fn an_edited_tool_is_refused_until_it_is_signed_again() {
    let world = initialised();
    let graph = sample_graph(&world);
    let tool = sample_python_tool(&world);
    edit(&tool);
    let _refused = world
        .ryectl("run")
        .arg(&graph)
        .run()
        .code(4)
        .stderr_contains(&[tool.file_name().unwrap().to_str().unwrap(), "ryectl sign"]);
    let _signed = world.ryectl("sign").arg(&tool).ok();
    let _ran = world.ryectl("run").arg(&graph).ok();
}

#[test]
fn sign_shows_changes_since_former_signature() {
    let world = initialised();
    let path = world.project().join(".ai/tools/sample/hello.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let wider = text.replace(
        "permissions:\n",
        "permissions:\n  - rye.execute.tool.rye.file-system.*\n",
    );
    assert_ne!(wider, text);
    fs::write(&path, &wider).unwrap();
    let signed = world
        .ryectl("sign tool:sample/hello")
        .ok()
        .stderr_contains(&[
            "+1 -0 lines; changed: permissions",
            "+  - rye.execute.tool.rye.file-system.*",
        ]);
    assert_eq!(
        signed.line(),
        format!("signed tool:sample/hello ({})", path.display())
    );
    // Nothing is noted for an item that is already signed. A change back is shown again.
    let same = world.ryectl("sign tool:sample/hello").ok();
    assert!(same.stderr().is_empty(), "{same:?}");
    let now = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        now.replace("  - rye.execute.tool.rye.file-system.*\n", ""),
    )
    .unwrap();
    let done = world.ryectl("sign --json tool:sample/hello").ok().json();
    assert_eq!(
        (&done[0]["changes"]["removed"], &done[0]["changes"]["keys"]),
        (&json!(1), &json!(["permissions"])),
        "{done}"
    );
    assert_eq!(done[0]["before"]["fingerprint"], done[0]["fingerprint"]);
    // A new item and a text without a kept copy are reported as such.
    world.write(".ai/tools/t/evil.yaml", NEW);
    let _new = world
        .ryectl("sign tool:t/evil")
        .ok()
        .stderr_contains(&["new: 8 lines"]);
    fs::remove_dir_all(world.home().join(".ai/cache")).unwrap();
    let evil = world
        .read(".ai/tools/t/evil.yaml")
        .replace("echo 1", "echo \u{202e}2");
    world.write(".ai/tools/t/evil.yaml", evil);
    let _unknown = world
        .ryectl("sign tool:t/evil")
        .ok()
        .stderr_contains(&["is not kept here"]);
    let evil = world
        .read(".ai/tools/t/evil.yaml")
        .replace("\u{202e}2", "\u{202e}3");
    world.write(".ai/tools/t/evil.yaml", evil);
    // The text of a file must not control the terminal.
    let shown = world.ryectl("sign tool:t/evil").ok();
    let _shown = shown
        .stderr_contains(&["\\u{202e}3"])
        .stderr_lacks("\u{202e}");
}

#[test]
fn a_refused_start_leaves_no_run() {
    let world = initialised();
    let graph = tool_files(&world, "yaml", "tool_type: graph")
        .pop()
        .unwrap();
    edit(&graph);
    let _refused = world
        .ryectl("run")
        .arg(sample_graph(&world))
        .run()
        .code(4)
        .stderr_contains(&["ryectl sign"]);
    assert_eq!(
        world.ryectl("ps --all --json").ok().json(),
        Value::Array(Vec::new())
    );
}

#[test]
fn init_keeps_what_is_there() {
    let world = initialised();
    let tool = sample_python_tool(&world);
    edit(&tool);
    let edited = fs::read_to_string(&tool).unwrap();
    let _again = world.ryectl("init").run();
    assert_eq!(fs::read_to_string(&tool).unwrap(), edited);
}

#[test]
fn the_users_key_is_private_and_made_once() {
    let world = initialised();
    let shown = world.ryectl("key show --json").ok().json();
    let _again = world.ryectl("init").run();
    assert_eq!(world.ryectl("key show --json").ok().json(), shown);
    let mut open = vec![world.home().join(".ai")];
    let mut private = 0;
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                private += 1;
                assert_eq!(
                    fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{}",
                    path.display()
                );
            }
        }
    }
    assert_eq!(private, 1);
}

#[test]
fn local_verbs_start_no_daemon() {
    let world = initialised();
    let _listed = world.ryectl("key list").ok();
    let _signed = world.ryectl("sign tool:*").run();
    let _verified = world
        .ryectl("verify")
        .arg(format!("tool:{}", sample_graph(&world)))
        .ok();
    assert!(!world.socket().exists());
    assert_eq!(world.processes(), []);
}

#[test]
fn step_that_fails_because_its_project_moved_is_repeated_when_the_project_is_back() {
    let world = World::new();
    let away = world.root().join("away");
    let command = format!(
        "if test -e moved; then echo back; else touch moved; mv \\\"$PWD\\\" {}; exit 3; fi",
        away.display()
    );
    let once = |effect: &str| {
        format!(
            "start: a\nnodes:\n  a: {{{effect}action: {{item_id: rye/bash, params: {{command: \"{command}\"}}}}, \
             assign: {{said: \"${{result.stdout}}\"}}, next: b}}\n  b: {{type: return, output: {{said: \"${{state.said}}\"}}}}"
        )
    };
    world.graph("t/again", &once(""));
    world.graph("t/once", &once("effect: at_most_once, "));
    let _daemon = world.start("");
    let get = |run: &str| {
        let get = world.ryectl("get --json").arg(run);
        get.within(&world.home()).ok().json()
    };
    let run = world.start_run("t/again");
    until("the run to be suspended", || {
        (get(&run)["suspend"]["code"] == "project_gone").then_some(())
    });
    fs::rename(&away, world.project()).unwrap();
    let ended = until("the run to end", || {
        let record = get(&run);
        record["ended_at"].is_string().then_some(record)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["output"]["said"], "back\n");
    // What began and may happen only once is not repeated.
    fs::remove_file(world.project().join("moved")).unwrap();
    let run = world.start_run("t/once");
    let ended = until("the run to end", || {
        let record = get(&run);
        record["ended_at"].is_string().then_some(record)
    });
    assert_eq!(ended["error"]["exit_code"], 3, "{ended}");
    fs::rename(&away, world.project()).unwrap();
}
