//! Resumes of runs that completed with errors, stop requests that are still pending, and steps that run.

use rye_tests::{World, until};
use serde_json::{Value, json};

const ALL: &str = "permissions: [\"rye.execute.tool.*\"]";

/// Loads three files. One fails until the file `mended` exists; the report fails until then too, and is skipped.
const ETL: &str = r#"start: load
on_error: continue
nodes:
  load:
    type: foreach
    over: ["a.csv", "b.csv", "c.csv"]
    action:
      item_id: rye/bash
      params:
        command: 'echo "$1" >>loaded; [ "$1" != b.csv ] || [ -e mended ]'
        args: ["${item}"]
    on_item_error: collect
    collect: all
    next: report
  report:
    action: {item_id: rye/bash, params: {command: "echo r >>reported; [ -e mended ] && echo sent"}}
    assign: {report: "${result.stdout}"}
    next: note
  note:
    action: {item_id: rye/bash, params: {command: "echo n >>noted"}}
    next: done
  done: {type: return, output: "${state.report}"}"#;

fn lines(world: &World, file: &str) -> Vec<String> {
    world.read(file).lines().map(str::to_owned).collect()
}

#[test]
fn a_run_that_completed_with_errors_is_resumed_with_what_failed_alone() {
    let world = World::new();
    world.graph_with("etl/load", ALL, ETL);
    let first = world.ryectl("run etl/load").run().code(1);
    let _told = first.stderr_contains(&["1 of 3 failed", "load[1] b.csv: bash exited with code 1"]);
    let first = world.ryectl("ps --all --json").ok().json();
    assert_eq!(first[0]["status"], "completed_with_errors");
    let old = first[0]["run_id"].as_str().unwrap();
    // Without a fix, the same items fail again, and nothing else is repeated.
    let second = world.ryectl("resume --json").arg(old).run().code(1).json();
    assert_eq!(second["status"], "completed_with_errors");
    assert_eq!(second["continuation_of"], old);
    world.write("mended", "");
    let third = world.ryectl("resume --json").arg(old).ok().json();
    assert_eq!(
        (&third["status"], &third["output"]),
        (&json!("completed"), &json!("sent\n"))
    );
    assert_eq!(third["continuation_of"], second["run_id"]);
    assert_eq!(third["errors"], json!([]));
    assert_eq!(
        lines(&world, "loaded"),
        ["a.csv", "b.csv", "c.csv", "b.csv", "b.csv"]
    );
    assert_eq!(lines(&world, "reported"), ["r", "r", "r"]);
    assert_eq!(lines(&world, "noted"), ["n"]);
    // No work is left.
    let again = world.ryectl("resume --json").arg(old).ok().json();
    assert_eq!(again["run_id"], third["run_id"]);
    let chain = world.ryectl("chain --json").arg(old).ok().json();
    assert_eq!(chain.as_array().unwrap().len(), 3);
}

#[test]
fn completed_with_errors_of_changed_graph_is_not_resumed() {
    let world = World::new();
    world.graph_with("etl/load", ALL, ETL);
    let run = world.ryectl("run etl/load --json").run().code(1).json();
    let run = run["run_id"].as_str().unwrap();
    world.graph_with("etl/load", ALL, &ETL.replace("\"c.csv\"", "\"d.csv\""));
    let refused = world.ryectl("resume").arg(run).run().code(5);
    let _told = refused.stderr_contains(&["has been changed since", "start a new run"]);
    assert_eq!(lines(&world, "loaded").len(), 3);
}

#[test]
fn cancelled_run_is_shown_as_cancelling_until_it_ends() {
    let world = World::new();
    world.graph_with(
        "t/slow",
        ALL,
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"trap '' TERM; touch in; until [ -e go ]; do sleep 0.01; done\"}}, next: b}\n  b: {type: return}",
    );
    let run = world.start_run("t/slow");
    until("the step to begin", || {
        world.project().join("in").exists().then_some(())
    });
    // The current step has a row of its own.
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    assert_eq!(
        (&steps[0]["node"], &steps[0]["status"]),
        (&json!("a"), &json!("running"))
    );
    let asked = world.ryectl("cancel --json").arg(&run).ok().json();
    if asked["status"] == "running" {
        assert_eq!(
            asked["cancel"]["by"],
            format!("uid:{}", nix::unistd::getuid())
        );
        assert!(asked["cancel"]["at"].is_string(), "{asked}");
    }
    let table = world.ryectl("ps --all").ok().stdout();
    assert!(
        table.contains("cancelling") || table.contains("cancelled"),
        "{table}"
    );
    world.write("go", "");
    let ended = world.settled(&run);
    assert_eq!(ended["status"], "cancelled");
    let record = world.record(&run);
    assert_eq!(record["cancel"]["reason"], Value::Null);
    let steps = world.ryectl("steps --json").arg(&run).ok().json();
    assert!(
        steps
            .as_array()
            .unwrap()
            .iter()
            .all(|step| step["status"] != "running"),
        "{steps}"
    );
}

#[test]
fn suspended_run_is_listed_with_its_question() {
    let world = World::new();
    world.graph_with(
        "t/ask",
        ALL,
        "start: a\nnodes:\n  a: {type: approval, message: \"Ship 1.2?\", next: b}\n  b: {type: return}",
    );
    let _asks = world.ryectl("run t/ask").run().code(75);
    let listed = world.ryectl("ps --json --reason approval").ok().json();
    assert_eq!(listed[0]["suspend"]["reason"], "approval");
    let table = world.ryectl("ps").ok();
    let _shown = table.prints(&["WHY", "approval: Ship 1.2?"]);
}

#[test]
fn child_runs_are_shown_below_their_node() {
    let world = World::new();
    world.graph_with(
        "t/child",
        ALL,
        "start: say\nnodes:\n  say: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {n: 1}, next: done}\n  done: {type: return}",
    );
    world.graph_with(
        "t/parent",
        ALL,
        "start: each\nnodes:\n  each: {type: foreach, over: [1, 2], action: {item_id: t/child}, next: done}\n  done: {type: return}",
    );
    let _daemon = world.start("");
    let shown = world.ryectl("run t/parent").ok().stderr();
    let first = shown.lines().next().unwrap();
    assert!(first.starts_with("run t-parent-"), "{shown}");
    // A slow step shows its time between the two parts.
    for (begin, end) in [
        ("  each[0] [graph:t/child] step 1/2 say ✓ ", "(+n)"),
        ("  each[1] [graph:t/child] step 2/2 done ⏹", ""),
    ] {
        assert!(
            shown
                .lines()
                .any(|line| line.starts_with(begin) && line.ends_with(end)),
            "no {begin:?} in {shown}"
        );
    }
    let at = |part: &str| shown.find(part).unwrap();
    assert!(
        at("each[1] [graph:t/child] step 2/2") < at("each ✓"),
        "{shown}"
    );
    assert!(
        shown.lines().last().unwrap().starts_with("completed in "),
        "{shown}"
    );
}

#[test]
fn files_of_run_may_be_removed_by_hand() {
    let world = World::new();
    world.graph(
        "t/g",
        "start: a\nnodes:\n  \
         a: {action: {item_id: rye/bash, params: {command: \"echo once >> ran\"}}, cache_result: true, next: b}\n  \
         b: {action: {item_id: rye/bash, params: {command: \"[ -e ok ] && echo there\"}}, assign: {said: \"${result.stdout | trim}\"}, next: c}\n  \
         c: {type: return, output: {said: \"${state.said}\"}}",
    );
    let daemon = world.start("");
    let run = world.start_run("t/g");
    assert_eq!(world.settled(&run)["status"], "error");
    let transcript = format!(".ai/state/threads/{run}/transcript.jsonl");
    until("the end in the transcript", || {
        let text = world.read(&transcript);
        text.contains("graph_error").then_some(())
    });
    let _stopped = world.ryectl("daemon stop").ok();
    let _status = daemon.ended();
    let _daemon = world.start("");
    let files = world.project().join(".ai");
    for left in [
        &format!("state/threads/{run}"),
        "state/objects",
        "knowledge",
    ] {
        std::fs::remove_dir_all(files.join(left)).unwrap();
    }
    let record = world.record(&run);
    assert_eq!(
        (&record["status"], &record["error"]["node"]),
        (&json!("error"), &json!("b"))
    );
    let events = world.ryectl("events").arg(&run).ok();
    let _whole = events.prints(&["run_created", "graph_error"]);
    world.write("ok", "");
    let resumed = world.ryectl("resume").arg(&run).ok();
    assert_eq!(resumed.json(), json!({"said": "there"}));
    assert_eq!(world.read("ran"), "once\n");
    // The cache starts empty.
    let again = world.ryectl("run t/g").ok();
    assert_eq!(again.json(), json!({"said": "there"}));
    assert_eq!(world.read("ran"), "once\nonce\n");
}
