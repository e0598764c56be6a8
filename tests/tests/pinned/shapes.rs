//! The JSON of every verb, and the files that a run writes for people and programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rye_tests::World;
use serde_json::Value;

use super::normal::Normal;
use super::pin;

/// Two steps and a return; the second step fails unless the file `ok` exists.
const WORK: &str = "start: a\nnodes:\n  a: {cache_result: true, action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: \"${result.n}\"}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"echo told >&2; [ -e ok ]\"}}, next: c}\n  c: {type: return, output: {n: \"${state.n}\", who: \"${inputs.who}\"}}";
/// Is suspended at its limit.
const PARKS: &str = "start: a\nmax_steps: 1\nhooks:\n  - {event: limit, action: {item_id: rye/agent/threads/internal/control, params: {action: escalate}}}\nnodes:\n  a: {assign: {a: 1}, next: b}\n  b: {type: return, output: 7}";

/// Verbs in the order of their calls. `$1` has failed and is continued, `$2` is suspended, `$3` is like `$1`.
const VERBS: &[&str] = &[
    "run t/work --json -i who=Ada",
    "run t/parks --json",
    "run t/work --detach --json",
    "get $1 --json",
    "ps --json",
    "ps --all --json",
    "ps --all --tree --json",
    "steps $1 --json",
    "state $1 --json",
    "wait $1 $2 --json",
    "tree $1 --json",
    "chain $1 --json",
    "graph validate t/work --json",
    "graph validate t/broken --json",
    "graph show t/work --json",
    "graph show t/work --format mermaid",
    "graph show t/work --format dot",
    "graph show t/work --format text",
    "graph show t/work --run $1",
    "graph step t/work --node a --json",
    "execute tool rye/core/echo --params {\"n\":1} --json",
    "execute tool rye/bash --params {\"command\":\"exit%3\"} --json",
    "execute tool t/parks --json",
    "cache ls --json",
    "verify tool:t/work --json",
    "sign tool:t/work --json",
    "key list --json",
    "key show --json",
    "daemon info --json",
    "daemon status --json",
    "suspend $2 --json",
    "cancel $2 --json",
    "resume $2 --json",
    "get $1",
    "steps $1",
    "state $1",
    "tree $1",
    "chain $1",
];

#[test]
fn json_of_every_verb() {
    let world = World::new();
    world.graph("t/work", WORK);
    world.graph("t/parks", PARKS);
    world.write(
        ".ai/tools/t/broken.yaml",
        rye_tests::world::graph_text("t/broken", "", "start: x\nnodes:\n  a: {type: brew}"),
    );
    let daemon = world.start("");
    let mut normal = normal(&world);
    let mut runs: Vec<String> = Vec::new();
    let mut text = String::new();
    for verb in VERBS {
        let command = verb
            .split_whitespace()
            .fold(world.ryectl(""), |command, word| {
                match word.strip_prefix('$') {
                    Some(number) => command.arg(&runs[number.parse::<usize>().unwrap() - 1]),
                    None => command.arg(word.replace('%', " ")),
                }
            });
        let out = command.env("COLUMNS", "100").run();
        if verb.starts_with("run ") {
            runs.push(out.json()["run_id"].as_str().unwrap().to_owned());
            let _settled = world.settled(runs.last().unwrap());
        }
        writeln!(text, "$ ryectl {verb} → {}", out.exit()).unwrap();
        for line in out.stdout().lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(value) => {
                    let mut value = normal.json(&value);
                    if *verb == "key list --json" {
                        // The order is that of the fingerprints, which differ each time.
                        value
                            .as_array_mut()
                            .unwrap()
                            .sort_by_key(ToString::to_string);
                    }
                    if verb.contains("--detach") {
                        // The progress of the run is a race.
                        let keys = value.as_object().unwrap().keys().cloned();
                        value = keys.collect();
                    }
                    writeln!(text, "{value:#}").unwrap();
                }
                Err(_) => writeln!(text, "{}", normal.text(line)).unwrap(),
            }
        }
        text.push('\n');
    }
    drop(daemon);
    pin("shapes", &text);
}

#[test]
fn pages_and_files_of_a_run() {
    let world = World::new();
    world.graph("t/work", WORK);
    world.graph("t/parks", PARKS);
    let daemon = world.start("");
    let failed = world.start_run("t/work");
    let _failed = world.settled(&failed);
    world.write("ok", "");
    let completed = world.start_run("t/work");
    let _completed = world.settled(&completed);
    let suspended = world.start_run("t/parks");
    let _suspended = world.settled(&suspended);
    // Files are written after the answers. A daemon that exits has written all of them.
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let _status = daemon.ended();
    for (name, id, run) in [
        ("failed", "work", failed),
        ("completed", "work", completed),
        ("suspended", "parks", suspended),
    ] {
        let mut normal = normal(&world);
        let mut text = String::new();
        let threads = world.project().join(".ai/state/threads").join(&run);
        let page = world
            .project()
            .join(format!(".ai/knowledge/agent/threads/t/{id}/{run}.md"));
        for path in [threads.join("thread.json"), threads.join("async.log"), page] {
            let shown = path
                .strip_prefix(world.project())
                .unwrap()
                .display()
                .to_string();
            writeln!(
                text,
                "== {}\n{}\n",
                normal.text(&shown),
                file(&mut normal, &path)
            )
            .unwrap();
        }
        let transcript = fs::read_to_string(threads.join("transcript.jsonl")).unwrap();
        writeln!(text, "== transcript.jsonl").unwrap();
        for line in transcript.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            writeln!(text, "{}", normal.json(&line)).unwrap();
        }
        pin(&format!("files_{name}"), &text);
    }
}

fn file(normal: &mut Normal, path: &Path) -> String {
    let Ok(text) = fs::read_to_string(path) else {
        return "(none)".to_owned();
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => format!("{:#}", normal.json(&value)),
        Err(_) => normal.text(&text),
    }
}

fn normal(world: &World) -> Normal {
    Normal::default()
        .call(&world.project(), "<project>")
        .call(world.root(), "<world>")
}
