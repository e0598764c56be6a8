//! The main use: the shipped example on a real directory, from any working directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rye_tests::{World, binaries, until};
use serde_json::json;

const RUN: &str = "run rye/examples/project-stats -i directory=. --json";

/// Writes six lines of Rust in two files, and four of Python in the largest file.
fn fill(world: &World) {
    world.write("src/main.rs", "fn main() {\n}\n");
    world.write("src/lib.rs", "//! a\n//! b\n//! c\n//! d\n");
    world.write("tools/long.py", format!("# {}\n\n\n\n", "x".repeat(500)));
    world.write("target/debug/skipped.rs", "\n".repeat(1000));
}

fn assert_stats(world: &World) {
    let out = world.ryectl(RUN).ok();
    let result = out.json();
    assert_eq!(result["success"], true);
    assert_eq!(result["status"], "completed");
    let output = &result["output"];
    assert_eq!(output["files"], 3);
    assert_eq!(output["lines"], 10);
    assert_eq!(output["size"], "small");
    assert_eq!(
        output["languages"],
        json!([
            {"language": "Rust", "files": 2, "lines": 6},
            {"language": "Python", "files": 1, "lines": 4},
        ])
    );
    assert_eq!(
        output["largest"],
        json!({"path": "tools/long.py", "bytes": 506})
    );
    assert_eq!(result["state"]["report"], output["report"]);
    let _shown = out.stderr_contains(&[
        "[graph:rye/examples/project-stats] step 1/9 count ✓",
        "(+counted)",
        "step 6/9 done ⏹",
    ]);
}

#[test]
fn the_example_runs_in_the_root_of_the_repository() {
    let world = World::bare();
    copy(
        &binaries::clone_root().join(".ai"),
        &world.project().join(".ai"),
    );
    fill(&world);
    assert_stats(&world);
}

#[test]
fn the_example_runs_in_any_other_project() {
    let world = World::bare();
    let _made = world.ryectl("init").ok();
    fill(&world);
    assert_stats(&world);
    let run = world.ryectl("ps --all --json").ok().json()[0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let state = format!(".ai/knowledge/graphs/rye/examples/project-stats/{run}.md");
    let state = until("the state file", || {
        let text = world.read(&state);
        (!text.is_empty()).then_some(text)
    });
    assert!(
        state.contains("```yaml") && state.contains("entry_type: \"graph_state\""),
        "{state}"
    );
    // Lines of the transcript are written before files that show a later state.
    let transcript = world.read(&format!(".ai/state/threads/{run}/transcript.jsonl"));
    let first = transcript.lines().next();
    assert_eq!(first.map(|line| line.contains("run_created")), Some(true));
    assert_ne!(world.read(".ai/state/.gitignore"), "");
}

#[test]
fn in_a_directory_without_a_project_nothing_is_created() {
    let world = World::bare();
    fill(&world);
    let before = listing(&world.project());
    assert_stats(&world);
    assert_eq!(listing(&world.project()), before);
    assert_eq!(
        fs::read_dir(world.state().join("projects"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn an_empty_directory_takes_the_other_branch() {
    let world = World::bare();
    let out = world.ryectl(RUN).ok();
    assert_eq!(out.json()["output"]["size"], "empty");
}

#[test]
fn a_directory_that_is_not_there_fails_the_first_step() {
    let world = World::bare();
    let out = world
        .ryectl("run --json rye/examples/project-stats -i directory=nowhere")
        .run()
        .code(1);
    assert_eq!(out.json()["error"]["node"], "count");
    let _told = out.stderr_contains(&["nowhere"]);
}

fn listing(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for path in listing(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        if path.is_dir() {
            fs::create_dir_all(target).unwrap();
        } else {
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(path, target).unwrap();
        }
    }
}
