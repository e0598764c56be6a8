//! Two concurrent runs of one graph never write each other's files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rye_tests::transcript::check;
use rye_tests::{World, until};
use serde_json::Value;

/// Loops until the file with its name exists. Each round writes a step, an item and a nested run.
const ROUND: &str = r#"start: look
max_steps: 1000000
state: {n: 0}
nodes:
  look:
    action:
      item_id: rye/bash
      params:
        env: {NAME: "${inputs.name}", N: "${state.n}"}
        command: 'if [ -e "stop-$NAME" ]; then more=false; else more=true; fi; echo "{\"n\": $((N + 1)), \"more\": $more}"'
    assign: {seen: "${result.stdout | from_json}", n: "${state.seen.n}"}
    next: each
  each:
    type: foreach
    over: [1, 2]
    parallel: true
    action: {item_id: rye/core/echo, params: {name: "${inputs.name}", n: "${state.n}"}}
    collect: echoed
    next:
      - {to: look, when: {path: state.seen.more, op: eq, value: true}}
      - {to: done}
  done: {type: return, output: {name: "${inputs.name}", n: "${state.n}"}}"#;

/// Inode, length and change time of every file whose path contains the run id.
type Prints = BTreeMap<PathBuf, (u64, u64, i64, i64)>;

fn prints(world: &World, run: &str) -> Prints {
    let mut prints = Prints::new();
    gather(&world.project().join(".ai"), run, &mut prints);
    prints
}

fn gather(folder: &Path, run: &str, prints: &mut Prints) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(data) = fs::symlink_metadata(&path) else {
            continue;
        };
        if data.is_dir() {
            gather(&path, run, prints);
        } else if path.to_string_lossy().contains(run) {
            let print = (data.ino(), data.len(), data.ctime(), data.ctime_nsec());
            prints.insert(path, print);
        }
    }
}

fn start(world: &World, name: &str) -> String {
    let input = format!("name={name}");
    let started = world.ryectl("run --detach t/round -i").arg(input).ok();
    started.line()
}

#[test]
fn two_runs_of_one_graph_at_once_keep_to_their_own_files() {
    let world = World::new();
    world.graph("t/round", ROUND);
    let _daemon = world.start("");
    let (one, other) = (start(&world, "one"), start(&world, "other"));
    assert_ne!(one, other);
    let rounds = |run: &str| world.record(run)["state"]["n"].as_u64().unwrap_or_default();
    until("both to be under way", || {
        (rounds(&one) > 3 && rounds(&other) > 3).then_some(())
    });

    world.write("stop-one", "");
    let ended = world.settled(&one);
    assert_eq!(ended["status"], "completed");
    let continues = || {
        let then = rounds(&other);
        until("the other to continue", || {
            (rounds(&other) > then + 5).then_some(())
        });
    };
    // The files of the ended run get their last texts while the other one works. Then none of them changes.
    let kept = until("no file of the ended run to change", || {
        let before = prints(&world, &one);
        continues();
        (prints(&world, &one) == before).then_some(before)
    });
    assert!(kept.len() >= 3, "{kept:?}");

    world.write("stop-other", "");
    assert_eq!(world.settled(&other)["status"], "completed");
    for (run, name) in [(&one, "one"), (&other, "other")] {
        let path = format!(".ai/state/threads/{run}/transcript.jsonl");
        let text = until("the whole transcript", || {
            let text = world.read(&path);
            text.contains("\"graph_completed\"").then_some(text)
        });
        let checked = check(text.trim_end(), run, &world.node_key()).unwrap();
        let mut names = checked
            .events
            .iter()
            .filter(|event| event["event_type"] == "item_completed")
            .map(|event| &event["payload"]["result"]["name"]);
        assert!(
            names.all(|seen: &Value| seen == name),
            "{run} did the work of the other"
        );
        assert_eq!(world.record(run)["output"]["name"], name);
    }
}
