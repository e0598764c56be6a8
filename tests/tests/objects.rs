//! Objects of a run can be followed by hashes alone, and cached results are not computed again.

use std::fs;
use std::path::PathBuf;

use rye_core::seal::{PublicKey, sha256_hex, verify_json};
use rye_tests::{World, until};
use serde_json::{Value, json};

/// Appends to the file `ran` on each execution, and returns its parameter.
const COUNTED: &str = "start: a\nnodes:\n  a:\n    cache_result: true\n    action: {item_id: t/count, params: {n: \"${inputs.n}\"}}\n    assign: {got: \"${result.n}\"}\n    next: done\n  done: {type: return, output: \"${state.got}\"}";

/// Body of `t/count`.
const COUNT: &str = "with open(project_path + '/ran', 'a') as file:\n    file.write('x')\nif params.get('n') == 13:\n    return {'success': False, 'error': 'bad luck'}\nreturn {'n': params.get('n')}";

fn world() -> World {
    let world = World::new();
    world.python("t/count", COUNT);
    world.graph("t/cached", COUNTED);
    world
}

/// Runs `graph` with input `n` to its end. Returns its id.
fn run(world: &World, graph: &str, n: u32) -> String {
    let started = world
        .ryectl("run --detach")
        .arg(graph)
        .arg("-i")
        .arg(format!("n:={n}"));
    let run = started.ok().line();
    let _record = world.settled(&run);
    run
}

/// Returns the number of executions of `t/count`.
fn ran(world: &World) -> usize {
    world.read("ran").len()
}

/// Returns the only step of `run` at node `a`.
fn step(world: &World, run: &str) -> Value {
    let steps = world.ryectl("steps --json").arg(run).ok().json();
    let steps = steps.as_array().unwrap().iter();
    steps
        .into_iter()
        .find(|step| step["node"] == "a")
        .unwrap()
        .clone()
}

/// Returns the object with this hash in the file of `run`, and asserts that its content matches the hash.
fn object(world: &World, run: &str, hash: &Value) -> Value {
    let hash = hash.as_str().unwrap();
    let text = world.read(&file_of(run));
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(hash)).unwrap();
    let (_, object) = line.split_once(' ').unwrap();
    assert_eq!(sha256_hex(object), hash, "{object}");
    serde_json::from_str(object).unwrap()
}

fn file_of(run: &str) -> String {
    format!(".ai/state/objects/runs/{run}.jsonl")
}

/// Returns the snapshot of `run`, once its signed ref exists.
fn snapshot(world: &World, run: &str) -> Value {
    let path = format!(".ai/state/objects/refs/graphs/{run}.json");
    let text = until("the ref of the run", || {
        let text = world.read(&path);
        (!text.is_empty()).then_some(text)
    });
    let pointer: Value = serde_json::from_str(&text).unwrap();
    let token = verify_json(pointer.as_object().unwrap()).unwrap();
    token
        .verify(&PublicKey::from_pem(&world.node_key()).unwrap())
        .unwrap();
    assert_eq!(pointer["graph_run_id"], run);
    object(world, run, &pointer["hash"])
}

/// Returns the receipts of `run` with their results.
fn receipts(world: &World, run: &str) -> Vec<(Value, Value)> {
    let snapshot = snapshot(world, run);
    let receipts = snapshot["node_receipts"].as_array().unwrap().iter();
    receipts
        .map(|hash| {
            let receipt = object(world, run, hash);
            let result = object(world, run, &receipt["node_result_hash"]);
            (receipt, result["result"].clone())
        })
        .collect()
}

/// Returns the file of the only cache entry.
fn pointer(world: &World) -> PathBuf {
    let nodes = world.project().join(".ai/state/objects/cache/nodes");
    let mut found: Vec<_> = fs::read_dir(nodes)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_run_can_be_followed_from_its_ref_to_every_result_and_its_state() {
    let world = World::new();
    world.graph(
        "t/many",
        "start: a\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: 1}}, assign: {a: \"${result.n}\"}, next: each}\n  each:\n    type: foreach\n    over: [10, 20]\n    as: x\n    action: {item_id: rye/core/echo, params: {x: \"${x}\"}}\n    collect: all\n    next: gate\n  gate: {type: gate, assign: {b: \"${state.a}\"}, next: done}\n  done: {type: return, output: \"${state.all}\"}",
    );
    let run = world.start_run("t/many");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let snapshot = snapshot(&world, &run);
    assert_eq!(snapshot["kind"], "execution_snapshot");
    assert_eq!(
        (&snapshot["graph_id"], &snapshot["status"]),
        (&json!("t/many"), &json!("completed"))
    );
    assert_eq!(snapshot["step"], 4);
    let state = object(&world, &run, &snapshot["state_hash"]);
    assert_eq!(state["state"]["b"], 1);
    assert_eq!(state["state"]["all"], json!([{"x": 10}, {"x": 20}]));
    let receipts = receipts(&world, &run);
    let results: Vec<&Value> = receipts.iter().map(|(_, result)| result).collect();
    let empty = json!({});
    assert_eq!(
        results,
        [
            &json!({"n": 1}),
            &json!({"x": 10}),
            &json!({"x": 20}),
            &empty,
            &empty,
            &record["output"]
        ],
        "that of a return node is the output of the run"
    );
    let inputs: Vec<usize> = receipts
        .iter()
        .map(|(receipt, _)| receipt["node_input_hash"].as_str().unwrap().len())
        .collect();
    assert_eq!(
        inputs,
        [64, 64, 64, 0, 0, 0],
        "nodes that call something name what they depend on"
    );
    assert_ne!(
        receipts[1].0["node_input_hash"],
        receipts[2].0["node_input_hash"]
    );
}

#[test]
fn a_result_of_the_same_inputs_is_taken_from_an_earlier_run() {
    let world = world();
    let first = run(&world, "t/cached", 1);
    let second = run(&world, "t/cached", 1);
    assert_eq!(ran(&world), 1);
    assert_eq!(world.record(&second)["output"], 1);
    assert_eq!(step(&world, &first)["cache_hit"], false);
    let step = step(&world, &second);
    assert_eq!(
        (&step["cache_hit"], &step["status"]),
        (&json!(true), &json!("cached"))
    );
    let (of_first, of_second) = (receipts(&world, &first), receipts(&world, &second));
    assert_eq!(of_first[0].0["cache_hit"], false);
    assert_eq!(of_second[0].0["cache_hit"], true);
    for field in ["node_input_hash", "node_result_hash"] {
        assert_eq!(of_first[0].0[field], of_second[0].0[field], "{field}");
    }
    let events = world.ryectl("events --json").arg(&second).ok().json_lines();
    let hits = events
        .iter()
        .filter(|event| event["payload"]["cache_hit"] == true);
    assert_eq!(hits.count(), 1);
    let page = format!(".ai/knowledge/agent/threads/t/cached/{second}.md");
    until("the page to tell the hit", || {
        world.read(&page).contains("cached, in `").then_some(())
    });
    let _other = run(&world, "t/cached", 2);
    assert_eq!(ran(&world), 2, "other inputs are another key");
}

#[test]
fn edited_tool_misses_cached_result() {
    let world = world();
    let _first = run(&world, "t/cached", 1);
    world.python("t/count", &COUNT.replace("params.get('n')}", "100}"));
    let second = run(&world, "t/cached", 1);
    assert_eq!(world.record(&second)["output"], 100);
    assert_eq!(step(&world, &second)["cache_hit"], false);
    world.python("t/count", COUNT);
    let third = run(&world, "t/cached", 1);
    assert_eq!(
        step(&world, &third)["cache_hit"],
        true,
        "it is the first one again"
    );
}

#[test]
fn a_failure_is_never_taken_from_an_earlier_run() {
    let world = world();
    for times in 1..=2 {
        let failed = run(&world, "t/cached", 13);
        assert_eq!(world.record(&failed)["status"], "error");
        assert_eq!(ran(&world), times);
        let receipts = receipts(&world, &failed);
        assert_eq!(receipts[0].0["error"], "bad luck");
        assert_eq!(receipts[0].0["node_input_hash"].as_str().unwrap().len(), 64);
    }
    assert!(!world.project().join(".ai/state/objects/cache").exists());
}

#[test]
fn foreign_cache_entry_is_ignored() {
    let world = world();
    let _first = run(&world, "t/cached", 1);
    let path = pointer(&world);
    let good = fs::read_to_string(&path).unwrap();
    let evil = world.project().join("evil.json");
    fs::write(
        &evil,
        r#"{"kind":"node_result","result":{"n":666},"schema":1}"#,
    )
    .unwrap();
    let hash = sha256_hex(fs::read(&evil).unwrap());
    let place = world.project().join(format!(
        ".ai/state/objects/objects/{}/{}",
        &hash[..2],
        &hash[2..4]
    ));
    fs::create_dir_all(&place).unwrap();
    fs::rename(&evil, place.join(format!("{hash}.json"))).unwrap();
    let mut forged: Value = serde_json::from_str(&good).unwrap();
    let ours = forged["node_result_hash"].as_str().unwrap().to_owned();
    forged["node_result_hash"] = json!(hash);
    fs::write(&path, forged.to_string()).unwrap();
    let second = run(&world, "t/cached", 1);
    assert_eq!(
        (&world.record(&second)["output"], ran(&world)),
        (&json!(1), 2)
    );
    assert!(
        world.log().contains("not one this node stored"),
        "{}",
        world.log()
    );

    // The pointer is ours again; now its object is not.
    assert!(fs::read_to_string(&path).unwrap().contains(&ours));
    let object = world.project().join(format!(
        ".ai/state/objects/objects/{}/{}/{ours}.json",
        &ours[..2],
        &ours[2..4]
    ));
    let text = fs::read_to_string(&object).unwrap();
    fs::write(&object, text.replace(":1}", ":6}")).unwrap();
    let third = run(&world, "t/cached", 1);
    assert_eq!(
        (&world.record(&third)["output"], ran(&world)),
        (&json!(1), 3)
    );
    assert!(
        world.log().contains("was changed after it was written"),
        "{}",
        world.log()
    );
}

#[test]
fn cached_result_needs_permission_for_its_tool() {
    let world = world();
    let _first = run(&world, "t/cached", 1);
    let denied = world
        .ryectl("run --detach --cap rye.execute.tool.t.cached --cap rye.execute.tool.rye.* t/cached -i n:=1")
        .ok()
        .line();
    let record = world.settled(&denied);
    assert_eq!(record["status"], "error", "{record}");
    assert!(record.to_string().contains("permission denied"), "{record}");
}

#[test]
fn a_node_without_cache_result_is_carried_out_every_time() {
    let world = world();
    world.graph("t/plain", &COUNTED.replace("    cache_result: true\n", ""));
    let first = run(&world, "t/plain", 1);
    let second = run(&world, "t/plain", 1);
    assert_eq!(ran(&world), 2);
    let (first, second) = (receipts(&world, &first), receipts(&world, &second));
    assert_eq!(
        first[0].0["node_input_hash"],
        second[0].0["node_input_hash"]
    );
}

#[test]
fn items_of_a_foreach_node_are_cached_one_by_one() {
    let world = world();
    world.graph(
        "t/each",
        "start: a\nnodes:\n  a:\n    type: foreach\n    over: \"${inputs.list}\"\n    as: x\n    cache_result: true\n    action: {item_id: t/count, params: {n: \"${x}\"}}\n    collect: all\n    next: done\n  done: {type: return, output: \"${state.all}\"}",
    );
    for (list, times) in [("[1,2]", 2), ("[2,3,1]", 3)] {
        let run = world
            .ryectl("run --detach t/each -i")
            .arg(format!("list:={list}"))
            .ok()
            .line();
        let record = world.settled(&run);
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(ran(&world), times, "{record}");
    }
    // The step reports how many of its items were cached, and counts as cached if all were.
    for (list, told, all) in [
        ("[1,9]", "(foreach, 1 cached)", false),
        ("[9,1]", "(foreach, 2 cached)", true),
    ] {
        let run = world.ryectl("run t/each -i").arg(format!("list:={list}"));
        let _run = run.ok().stderr_contains(&[told]);
        let steps = world.ryectl("steps @last --json").ok().json();
        assert_eq!(
            (&steps[0]["status"], &steps[0]["cache_hit"]),
            (&json!("foreach"), &json!(all))
        );
    }
}

#[test]
fn object_of_a_run_that_was_changed_is_not_found_until_a_rebuild() {
    let world = world();
    let run = run(&world, "t/cached", 1);
    let hash = snapshot(&world, &run)["state_hash"]
        .as_str()
        .unwrap()
        .to_owned();
    let get = || world.ryectl("objects get").arg(&hash).run();
    assert_eq!(get().code(0).json()["kind"], "state_snapshot");
    let text = world.read(&file_of(&run));
    world.write(&file_of(&run), text.replace("\"got\":1", "\"got\":2"));
    let _refused = get().code(3).stderr_contains(&[&hash]);
    let rebuilt = world.shell(&[], "ryed rebuild --project .").output();
    let printed = String::from_utf8(rebuilt.unwrap().stdout).unwrap();
    assert!(printed.contains(" 1 replaced, 0 failed"), "{printed}");
    assert_eq!(get().code(0).json()["kind"], "state_snapshot");
}

#[test]
fn shared_object_that_was_changed_is_refused() {
    let world = world();
    let run = run(&world, "t/cached", 1);
    let receipts = receipts(&world, &run);
    let hash = receipts[0].0["node_result_hash"].as_str().unwrap();
    fs::remove_file(world.project().join(file_of(&run))).unwrap();
    let (high, low) = (&hash[..2], &hash[2..4]);
    let file = format!(".ai/state/objects/objects/{high}/{low}/{hash}.json");
    let text = world.read(&file);
    world.write(&file, text.replace(":1}", ":6}"));
    let refused = world.ryectl("objects get").arg(hash).run().code(4);
    let _told =
        refused.stderr_contains(&[hash, "was changed after it was written", "outside of Rye"]);
}

#[test]
fn exported_objects_are_single_files_named_by_their_hash() {
    let world = world();
    let run = run(&world, "t/cached", 1);
    let snapshot = snapshot(&world, &run);
    let _stopped = world.ryectl("daemon stop").ok();
    let _exported = world.ryectl("objects export out").ok();
    let hash = snapshot["state_hash"].as_str().unwrap();
    let text = world.read(&format!("out/{}/{}/{hash}.json", &hash[..2], &hash[2..4]));
    assert_eq!(sha256_hex(text), hash);
}

#[test]
fn the_objects_of_a_run_are_whole_after_kill_9() {
    let world = World::new();
    world.graph(
        "t/loop",
        "start: a\nmax_steps: 1000\nnodes:\n  a: {action: {item_id: rye/core/echo, params: {n: \"${state.n}\"}}, assign: {n: \"${result.n}\"}, next: b}\n  b:\n    action: {item_id: rye/bash, params: {command: \"if [ -e stop ]; then echo yes; else echo no; fi\"}}\n    assign: {stop: \"${result.stdout}\"}\n    next: [{to: done, when: {path: state.stop, op: contains, value: \"yes\"}}, {to: a}]\n  done: {type: return}",
    );
    let mut daemon = world.start("");
    let run = world.start_run("t/loop");
    for _ in 0..3 {
        let before = world.record(&run)["steps"].as_u64().unwrap();
        until("the run to resume", || {
            (world.record(&run)["steps"].as_u64().unwrap() > before + 10).then_some(())
        });
        daemon.kill_both();
        let _status = daemon.ended();
        daemon = world.start("");
    }
    world.write("stop", "");
    let record = world.settled(&run);
    assert_eq!(record["status"], "completed", "{record}");
    let receipts = receipts(&world, &run);
    assert_eq!(json!(receipts.len()), record["steps"]);
    drop(daemon);
}

/// Waits until the log of `run` has `text`. It is written after the run, as all files of the project are.
fn log_has(world: &World, run: &str, text: &str) {
    let log = world
        .project()
        .join(format!(".ai/state/threads/{run}/async.log"));
    until(&format!("{text:?} in {}", log.display()), || {
        fs::read_to_string(&log)
            .is_ok_and(|log| log.contains(text))
            .then_some(())
    });
}

#[test]
fn stderr_of_tools_is_kept_in_async_log() {
    let world = World::new();
    world.graph(
        "t/child",
        "start: a\nnodes:\n  a: {action: {item_id: rye/bash, params: {command: \"echo oh dear >&2\"}}, next: done}\n  done: {type: return}",
    );
    world.graph(
        "t/parent",
        "start: a\nnodes:\n  a: {action: {item_id: t/child, params: {async: true}}, assign: {child: \"${result.graph_run_id}\"}, next: b}\n  b: {action: {item_id: rye/bash, params: {command: \"echo and here >&2\"}}, next: done}\n  done: {type: return, output: \"${state.child}\"}",
    );
    let parent = world.start_run("t/parent");
    let record = world.settled(&parent);
    let child = record["output"].as_str().unwrap();
    let _record = world.settled(child);
    log_has(&world, child, "== step 1 a ==\noh dear\n");
    log_has(&world, &parent, "== step 2 b ==\nand here\n");

    world.python("t/prints", "print('to whom it may concern')");
    let _printed = world.ryectl("run t/prints").ok();
    let params = r#"{"async": true}"#;
    let out = world
        .ryectl("execute tool t/child --json --params")
        .arg(params)
        .ok();
    let child = out.json()["data"]["graph_run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let _record = world.settled(&child);
    log_has(&world, &child, "oh dear\n");
    let listed = world.ryectl("ps --all --json").ok().json();
    let of_tool = |run: &&Value| run["item_id"] == "tool:t/prints" || run["item_id"] == "t/prints";
    let run = listed.as_array().unwrap().iter().find(of_tool).unwrap()["run_id"].clone();
    log_has(
        &world,
        run.as_str().unwrap(),
        "== t/prints ==\nto whom it may concern\n",
    );
}
