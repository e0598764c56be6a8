//! Events without gaps or duplicates, and a transcript that a third party can check.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use rye_tests::transcript::check;
use rye_tests::{Outcome, Ryectl, World, binaries, until};
use serde_json::Value;

/// Six steps; the third waits for the file `go`.
const LONG: &str = r#"start: a
nodes:
  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {a: "${result.n}"}, next: b}
  b: {assign: {b: 2}, next: c}
  c:
    action: {item_id: rye/bash, params: {command: "touch in; until [ -e go ]; do sleep 0.01; done"}}
    next: d
  d: {action: {item_id: rye/core/echo, params: {n: 4}}, assign: {d: "${result.n}"}, next: e}
  e: {action: {item_id: rye/bash, params: {command: "true"}}, next: done}
  done: {type: return, output: "${state.d}"}"#;

fn transcript(world: &World, run: &str) -> String {
    world.read(&format!(".ai/state/threads/{run}/transcript.jsonl"))
}

fn finished() -> (World, String) {
    let world = World::new();
    world.graph("t/long", LONG);
    world.write("go", "");
    let run = world.ryectl("run t/long --json").ok().json()["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    (world, run)
}

/// Returns the transcript of an ended run once it is complete on disk.
fn whole_transcript(world: &World, run: &str) -> String {
    until("the transcript to be whole", || {
        let text = transcript(world, run);
        (text.contains("\"graph_completed\"")
            && text.trim_end().lines().last()?.contains("\"checkpoint\""))
        .then_some(text)
    })
}

#[test]
fn a_follower_of_a_daemon_that_is_away_is_notified_once() {
    const AWAY: &str = "the daemon is away; waiting for it to come back";
    let world = World::new();
    world.graph("t/long", LONG);
    let daemon = world.start("");
    let run = world.start_run("t/long");
    let mut follower = world.ryectl("events --follow").arg(&run).spawn();
    let mut seen = BufReader::new(follower.stdout.take().unwrap()).lines();
    let first = seen.next().unwrap().unwrap();
    assert!(first.contains("run_created"), "{first}");
    daemon.kill();
    let _status = daemon.ended();
    // The daemon stays away until the outage is reported, and longer than the pauses between two tries.
    let mut told = BufReader::new(follower.stderr.take().unwrap()).lines();
    assert_eq!(told.next().unwrap().unwrap(), AWAY);
    let away = Instant::now();
    until("some more tries", || {
        (away.elapsed() > Duration::from_secs(2)).then_some(())
    });
    world.write("go", "");
    let _daemon = world.start("");
    assert!(seen.any(|line| line.unwrap().contains("graph_completed")));
    drop(seen);
    let more: Vec<String> = told.map(Result::unwrap).collect();
    assert_eq!(more, [""; 0]);
    assert!(follower.wait().unwrap().success());
}

#[test]
fn following_survives_kill_9_without_gap_or_duplicate() {
    let world = World::new();
    world.graph("t/long", LONG);
    let daemon = world.start("");
    let run = world.start_run("t/long");
    let follower = world.ryectl("events --follow --json").arg(&run).spawn();
    until("the third step", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill();
    let _status = daemon.ended();
    fs::remove_file(world.project().join("in")).unwrap();
    let daemon = world.start("");
    until("the third step again", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    let _daemon = world.start("");
    world.write("go", "");
    let seen = Outcome::of(follower).code(0).json_lines();
    let seqs: Vec<u64> = seen
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.iter().copied().eq((1..).take(seqs.len())), "{seqs:?}");
    let names: Vec<&str> = seen
        .iter()
        .filter_map(|event| event["event_type"].as_str())
        .collect();
    assert_eq!(names.first(), Some(&"run_created"));
    assert_eq!(names.last(), Some(&"graph_completed"));
    assert_eq!(
        names.iter().filter(|name| **name == "run_started").count(),
        3
    );
    assert_eq!(
        world.ryectl("events --json").arg(&run).ok().json_lines(),
        seen
    );
    assert_eq!(world.settled(&run)["output"], 4);
}

#[test]
fn transcript_is_chained_signed_and_equals_stream() {
    let (world, run) = finished();
    let text = whole_transcript(&world, &run);
    let checked = check(&text, &run, &world.node_key()).unwrap();
    // One checkpoint for each of the six steps, and one for the end.
    assert_eq!(checked.checkpoints, 7);
    let streamed = world.ryectl("events --json").arg(&run).ok().json_lines();
    assert_eq!(streamed.len(), checked.events.len());
    for (event, line) in streamed.iter().zip(&checked.events) {
        for field in ["seq", "run_id", "timestamp", "event_type", "payload"] {
            assert_eq!(event[field], line[field]);
        }
    }
}

#[test]
fn a_transcript_stays_whole_over_kill_9() {
    let world = World::new();
    world.graph("t/long", LONG);
    let daemon = world.start("");
    let run = world.start_run("t/long");
    until("the third step", || {
        world.project().join("in").exists().then_some(())
    });
    daemon.kill_both();
    let _status = daemon.ended();
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
    let text = whole_transcript(&world, &run);
    check(&text, &run, &world.node_key()).unwrap();
}

#[test]
fn transcript_check_detects_each_change() {
    let (world, run) = finished();
    let key = world.node_key();
    let text = whole_transcript(&world, &run);
    let lines: Vec<&str> = text.lines().collect();
    let without = |left_out: usize| {
        let kept: Vec<&str> = lines
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != left_out)
            .map(|(_, line)| *line)
            .collect();
        kept.join("\n")
    };
    for left_out in 0..lines.len() - 1 {
        assert!(
            check(&without(left_out), &run, &key).is_err(),
            "line {left_out} is not missed"
        );
    }
    assert!(check(&text.replacen("{\"d\":4}", "{\"d\":5}", 1), &run, &key).is_err());
    assert!(check(&text, "another-run", &key).is_err());
    let stranger = World::new();
    let _daemon = stranger.start("");
    assert!(check(&text, &run, &stranger.node_key()).is_err());
}

#[test]
fn a_lost_transcript_is_written_again_byte_for_byte() {
    let world = World::new();
    world.graph("t/long", LONG);
    let daemon = world.start("");
    let run = world.start_run("t/long");
    until("the third step", || {
        world.project().join("in").exists().then_some(())
    });
    let before = until("the second step in the transcript", || {
        let text = transcript(&world, &run);
        (text.matches("\"step_completed\"").count() >= 2).then_some(text)
    });
    daemon.kill_both();
    let _status = daemon.ended();
    let path = world
        .project()
        .join(format!(".ai/state/threads/{run}/transcript.jsonl"));
    fs::remove_file(&path).unwrap();
    world.write("go", "");
    assert_eq!(world.settled(&run)["status"], "completed");
    let after = whole_transcript(&world, &run);
    assert!(
        after.starts_with(before.trim_end()),
        "before:\n{before}\nafter:\n{after}"
    );
    check(&after, &run, &world.node_key()).unwrap();
}

#[test]
fn the_state_file_is_signed_and_holds_the_final_state() {
    let (world, run) = finished();
    let path = format!(".ai/knowledge/graphs/t/long/{run}.md");
    let text = until("the final state file", || {
        let text = world.read(&path);
        text.contains("status: \"completed\"").then_some(text)
    });
    let (fields, state) = front_and_state(&text);
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    for name in [
        "id",
        "title",
        "entry_type",
        "category",
        "version",
        "graph_id",
        "graph_run_id",
        "parent_thread_id",
        "status",
        "current_node",
        "step_count",
        "started_at",
        "updated_at",
        "tags",
    ] {
        assert!(names.contains(&name), "no `{name}` in {names:?}");
    }
    let field = |name: &str| {
        fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.clone())
    };
    assert_eq!(field("entry_type").as_deref(), Some("\"graph_state\""));
    assert_eq!(field("graph_run_id"), Some(format!("\"{run}\"")));
    assert_eq!(field("step_count").as_deref(), Some("6"));
    assert_eq!(state, world.ryectl("state").arg(&run).ok().json());

    let file = world.project().join(&path);
    let out = world.ryectl("verify --json").arg(&file).ok();
    assert_eq!(out.json()[0]["verdict"], "full");
    fs::write(&file, text.replacen("step_count: 6", "step_count: 7", 1)).unwrap();
    let out = world.ryectl("verify --json").arg(&file).run().code(1);
    assert_eq!(out.json()[0]["verdict"], "modified");
}

/// Parses the fields of the YAML fence and the JSON of a state file.
fn front_and_state(text: &str) -> (Vec<(String, String)>, Value) {
    let fence = |kind: &str| {
        let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("\n```").unwrap().0
    };
    let fields = fence("yaml")
        .lines()
        .filter_map(|line| line.split_once(": "));
    let fields = fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    (fields, serde_json::from_str(fence("json")).unwrap())
}

#[test]
fn thread_file_has_run_and_its_end() {
    let (world, run) = finished();
    let thread = world.thread_file(&run, "completed");
    assert!(thread.to_string().contains(&run), "{thread}");
}

#[test]
fn unresolved_path_is_shown_and_recorded() {
    let world = World::new();
    let daemon = world.start("");
    world.graph(
        "t/vain",
        "start: a\nnodes:\n  a: {assign: {x: \"${state.nowhere}\"}, next: [{to: b, when: {path: state.x, op: eq, value: 1}}]}\n  b: {type: return}",
    );
    let out = world.ryectl("run --json t/vain").ok().stderr_contains(&[
        "warning: a: interpolation resolved to null: state.nowhere",
        "warning: a: the condition of no edge holds, so the run ends here",
    ]);
    let run = out.json()["run_id"].as_str().unwrap().to_owned();
    let events = world.ryectl("events --json").arg(run).ok().json_lines();
    let warnings: Vec<_> = events
        .iter()
        .filter(|event| event["event_type"] == "warning")
        .map(|event| event["payload"]["node"].clone())
        .collect();
    assert_eq!(warnings, ["a", "a"]);
    drop(daemon);
}

#[test]
fn transcript_verb_prints_exact_lines_and_detects_changes() {
    let (world, run) = finished();
    let text = whole_transcript(&world, &run);
    let printed = |words: &str| world.ryectl(&format!("transcript {words}")).arg(&run);
    assert_eq!(printed("--json").ok().stdout(), text);
    let shown = printed("").ok().stdout();
    assert!(shown.contains("graph_completed"), "{shown}");
    assert!(!shown.contains("checkpoint"), "{shown}");
    let last = printed("--tail 1").ok().stdout();
    assert!(last.contains("graph_completed"), "{last}");
    assert_eq!(last.lines().filter(|line| line.contains("  20")).count(), 1);
    let _sound = printed("--verify --tail 0")
        .ok()
        .stderr_contains(&["are what was written"]);
    let path = format!(".ai/state/threads/{run}/transcript.jsonl");
    // The daemon does not read a finished file again, so the change shows only on request.
    world.write(
        &path,
        text.replacen("\"status\":\"ok\"", "\"status\":\"no\"", 1),
    );
    let changed = printed("--verify").run().code(1);
    let changed = changed.stderr_contains(&["is not what was written", "transcript.jsonl", "byte"]);
    assert!(
        changed.stdout().contains("graph_started"),
        "what is before it is shown"
    );
    assert_eq!(
        printed("--json").ok().stdout(),
        text,
        "the daemon has it whole"
    );
    let _unknown = world.ryectl("transcript nobody-1-aaaaaaaaaa").run().code(3);
}

#[test]
fn transcript_file_is_verified_without_a_daemon_anywhere() {
    let (world, run) = finished();
    let text = whole_transcript(&world, &run);
    let key = world.write("../node.pem", world.node_key());
    let _stopped = world.ryectl("daemon stop").ok();
    let file = format!(".ai/state/threads/{run}/transcript.jsonl");
    let verify = |file: &str| world.ryectl("transcript --verify").arg(file);
    let passed = verify(&file).ok();
    let lines = text.lines();
    let events = lines.filter(|line| !line.contains("\"event_type\":\"checkpoint\""));
    let _told = passed.prints(&[
        &run,
        &format!("as it was written: {} events", events.count()),
    ]);

    // A third party has the text and the public key.
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("t");
    fs::write(&path, &text).unwrap();
    let elsewhere = |key: &Path| {
        let home = copy.path();
        let ryectl = Ryectl::at(&binaries::ryectl(), home, home);
        ryectl.words("transcript --verify ./t --key").arg(key)
    };
    let _passed = elsewhere(&key).ok();
    let mut changed = text.clone().into_bytes();
    let at = text.find("step_completed").unwrap();
    changed[at] ^= 1;
    fs::write(&path, &changed).unwrap();
    let line = text[..at].rfind('\n').unwrap() + 1;
    let failed = elsewhere(&key).run().code(1);
    let _told = failed.stderr_contains(&[&format!("the line at byte {line}")]);
    let before = text[..text.len() - 1].rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..before]).unwrap();
    let failed = elsewhere(&key).run().code(1);
    let _told = failed.stderr_contains(&[&format!("what follows byte {before} is missing")]);

    // Another node did not carry out this run.
    let other = World::new();
    let _started = other.ryectl("daemon start").ok();
    let key = world.write("../other.pem", other.node_key());
    fs::write(&path, &text).unwrap();
    let failed = elsewhere(&key).run().code(1);
    let _told = failed.stderr_contains(&["is signed by the key", "--key PEM"]);
    assert!(world.processes().is_empty(), "no daemon was started");
}

#[test]
fn attempt_events_have_call_chain_and_cache_hashes() {
    let world = World::new();
    let graph = r#"start: a
hooks:
  - {id: after, event: after_step, condition: {path: node, op: eq, value: a}, action: {item_id: t/says, params: {n: 0}}}
nodes:
  a: {action: {item_id: t/says, params: {n: "${inputs.n}"}}, next: each}
  each:
    type: foreach
    over: ["1", "2"]
    action: {item_id: t/says, params: {n: "${item}"}}
    collect: out
    next: done
  done: {type: return, output: 1}"#;
    world.python("t/says", "return params");
    world.graph("t/g", graph);
    let _daemon = world.start("");
    // Maps each attempt to the hashes of its call, its chain and its cache key.
    let hashes = |n: u32| {
        let run = world
            .ryectl("run --detach t/g -i")
            .arg(format!("n={n}"))
            .ok()
            .line();
        let record = world.settled(&run);
        assert_eq!(record["status"], "completed", "{record}");
        let events = world.ryectl("events --json").arg(&run).ok().json_lines();
        let of = |event: &Value| {
            let payload = &event["payload"];
            let name = match event["event_type"].as_str()? {
                "step_started" if payload.get("items").is_none() => "step".to_owned(),
                "item_started" => format!("item {}", payload["item"]),
                "hook_started" => "hook".to_owned(),
                _ => return None,
            };
            let hash = |key: &str| payload[key].as_str().map(str::to_owned);
            Some((name, [hash("call"), hash("chain"), hash("node_input_hash")]))
        };
        let all: std::collections::BTreeMap<_, _> = events.iter().filter_map(of).collect();
        assert_eq!(all.len(), 4, "{all:?}");
        all
    };
    let first = hashes(1);
    for (name, [call, chain, key]) in &first {
        assert!(call.is_some() && chain.is_some(), "{name}");
        // The answer of a hook is never cached.
        assert_eq!(key.is_none(), name == "hook", "{name}");
        assert_eq!(chain, &first["step"][1], "they all call one tool");
    }
    // Equal calls have equal hashes at any place; the cache key depends on the node.
    assert_eq!(first["step"][0], first["item 0"][0]);
    assert_ne!(first["step"][2], first["item 0"][2]);
    assert_ne!(first["item 0"][0], first["item 1"][0]);
    assert_eq!(hashes(1), first);
    let other_input = hashes(2);
    assert_eq!(other_input["step"][0], first["item 1"][0]);
    assert_eq!(other_input["step"][1], first["step"][1]);
    assert_ne!(other_input["step"][2], first["step"][2]);
    world.python("t/says", "return dict(params)");
    let other_tool = hashes(1);
    assert_eq!(other_tool["step"][0], first["step"][0]);
    assert_ne!(other_tool["step"][1], first["step"][1]);
    assert_ne!(other_tool["step"][2], first["step"][2]);
}
