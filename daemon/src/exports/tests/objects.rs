//! Objects and pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use rye_core::digest::Digest;
use rye_core::id::RunId;
use rye_core::model::event::{GraphError, StepCompleted, StepStarted};
use rye_core::model::{
    Event, Failure, GraphEvent, RunEvent, StepStatus, SuspendReason, Suspension,
};
use serde_json::{Value, json};

use super::rig::*;
use crate::object::ProjectObjects;
use rye_journal::Change;

/// A step that returned `result`.
fn gave(run: &RunId, step: u32, result: &Value) -> Change {
    let mut event = completed(step, json!(step));
    if let Event::Graph(GraphEvent::StepCompleted(StepCompleted {
        result: slot,
        node_input_hash,
        ..
    })) = &mut event
    {
        *slot = Some(Arc::new(result.clone()));
        *node_input_hash = Some(format!("input-{step}"));
    }
    change(run, event)
}

/// A run that ended after steps with these results.
async fn ended_run(life: &Life, rig: &Rig, name: &str, results: &[Value]) -> RunId {
    let run = id(name);
    life.journal.put(vec![rig.create(&run)]).await;
    life.journal.put(begin(&run)).await;
    for (result, step) in results.iter().zip(1..) {
        let mut changes = vec![gave(&run, step, result)];
        let more = usize::try_from(step).is_ok_and(|step| step < results.len());
        changes.extend(more.then(|| change(&run, started(step + 1))));
        life.journal.put(changes).await;
    }
    life.journal.put(vec![change(&run, finish())]).await;
    run
}

/// Objects reachable from the ref of `run`: snapshot, state, receipts with their results.
async fn retrace(files: &Path, run: &RunId) -> (Value, Value, Vec<(Value, Value)>) {
    let named = snapshot_of(files, run).await;
    let objects = ProjectObjects::open(files).unwrap().unwrap();
    let get = |hash: &Value| {
        let hash = hash.as_str().unwrap().parse().unwrap();
        objects.get(&hash, &[]).unwrap().0
    };
    let (snapshot, of) = objects.get(&named, std::slice::from_ref(run)).unwrap();
    assert_eq!(of.as_ref(), Some(run));
    let state = get(&snapshot["state_hash"]);
    let receipts = snapshot["node_receipts"].as_array().unwrap().iter();
    let receipts = receipts.map(|hash| {
        let receipt = get(hash);
        let result = get(&receipt["node_result_hash"]);
        (receipt, result["result"].clone())
    });
    let receipts = receipts.collect();
    (snapshot, state, receipts)
}

fn lines_of(files: &Path, run: &RunId) -> Vec<String> {
    let path = files.join(format!("state/objects/runs/{run}.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn ended_run_is_traceable_from_ref_by_hashes() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let results = [json!({"a": 1}), json!([2]), json!("three")];
    let run = ended_run(&life, &rig, "run-a", &results).await;
    let (snapshot, state, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(snapshot["kind"], "execution_snapshot");
    assert_eq!(snapshot["graph_run_id"], "run-a");
    assert_eq!(snapshot["status"], "completed");
    assert_eq!(snapshot["step"], 3);
    assert!(snapshot.get("errors").is_none());
    assert_eq!(state["state"], json!({"inputs": {}, "last": 3}));
    let found: Vec<&Value> = receipts.iter().map(|(_, result)| result).collect();
    assert_eq!(found, results.iter().collect::<Vec<_>>());
    for ((receipt, _), step) in receipts.iter().zip(1..) {
        assert_eq!(receipt["node_input_hash"], format!("input-{step}"));
        assert_eq!(receipt["cache_hit"], false);
    }
    let lines = lines_of(&rig.ai(), &run);
    assert_eq!(lines.len(), 8, "two of each step, and two of the end");
    for line in lines {
        let (name, object) = line.split_once(' ').unwrap();
        assert_eq!(Digest::of(object).to_string(), name);
    }
}

#[tokio::test]
async fn long_result_is_an_object_like_any_other() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let long = json!("x".repeat(100_000));
    let run = ended_run(&life, &rig, "run-a", std::slice::from_ref(&long)).await;
    let (_, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(receipts[0].1, long);
}

#[tokio::test]
async fn many_long_results_are_written_over_several_turns() {
    let rig = Rig::with_segments_of(64 << 20);
    let life = Life::begin(&rig).await;
    let long = json!("x".repeat(900_000));
    let run = ended_run(&life, &rig, "run-a", &vec![long; 12]).await;
    let (_, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(receipts.len(), 12);
    check_transcript(&run, &transcript(&rig.transcript_path(&run), 28).await);
}

#[tokio::test]
async fn step_error_is_in_receipt_and_snapshot() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = id("run-a");
    life.journal.put(vec![rig.create(&run)]).await;
    life.journal.put(begin(&run)[..2].to_vec()).await;
    let mut attempt = started(1);
    if let Event::Run(RunEvent::StepStarted(StepStarted {
        node_input_hash, ..
    })) = &mut attempt
    {
        *node_input_hash = Some("input-of-the-attempt".into());
    }
    let failure = || Failure::permanent("node_error", "no such file").at("n");
    let mut failed = completed(1, json!(1));
    if let Event::Graph(GraphEvent::StepCompleted(StepCompleted { status, error, .. })) =
        &mut failed
    {
        *status = StepStatus::Error;
        *error = Some(failure());
    }
    let end = Event::from(GraphError {
        error: failure(),
        steps: 1,
        elapsed_ms: 1,
    });
    let events = [attempt, failed, end].map(|event| change(&run, event));
    life.journal.put(events.to_vec()).await;
    let (snapshot, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(snapshot["status"], "error");
    assert_eq!(
        snapshot["errors"],
        json!([{"step": 1, "node": "n", "error": "no such file"}])
    );
    assert_eq!(receipts[0].0["error"], "no such file");
    assert_eq!(
        receipts[0].0["node_input_hash"], "input-of-the-attempt",
        "a failed step does not name its input, its attempt did"
    );
}

#[tokio::test]
async fn suspended_run_has_latest_snapshot() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 0).await;
    for (result, step) in [json!("one"), json!("two")].iter().zip(1..) {
        let next = change(&run, started(step + 1));
        life.journal.put(vec![gave(&run, step, result), next]).await;
    }
    let suspend = Event::Run(RunEvent::RunSuspended(Suspension::new(SuspendReason::User)));
    life.journal.put(vec![change(&run, suspend)]).await;
    let (suspended, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(
        (&suspended["status"], receipts.len()),
        (&json!("suspended"), 2)
    );
    let first = snapshot_of(&rig.ai(), &run).await;
    let resumed = Event::Run(RunEvent::resumed(life.journal.epoch()));
    life.journal.put(vec![change(&run, resumed)]).await;
    life.journal.put(vec![gave(&run, 3, &json!("three"))]).await;
    life.journal.put(vec![change(&run, finish())]).await;
    eventually(async || (snapshot_of(&rig.ai(), &run).await != first).then_some(())).await;
    let (ended, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!((&ended["status"], receipts.len()), (&json!("completed"), 3));
    for at in 0..2 {
        assert_eq!(ended["node_receipts"][at], suspended["node_receipts"][at]);
    }
    // Nothing is appended twice, and the earlier snapshot stays.
    let mut names: Vec<String> = lines_of(&rig.ai(), &run);
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), count), (10, 10));
    let objects = ProjectObjects::open(&rig.ai()).unwrap().unwrap();
    objects.get(&first, &[]).unwrap();
}

#[tokio::test]
async fn removed_objects_of_live_run_are_identical_after_restart() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 4).await;
    eventually(async || fs::metadata(page_of(&rig.ai(), &run)).ok()).await;
    life.end().await;
    drop(fs::remove_dir_all(rig.ai().join("state/objects")));
    let life = Life::begin(&rig).await;
    let epoch = life.journal.epoch();
    let started = Event::Run(RunEvent::started(epoch));
    life.journal.put(vec![change(&run, started)]).await;
    life.journal.put(vec![change(&run, finish())]).await;
    let (_, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(
        receipts.len(),
        4,
        "those from before the restart are among them"
    );
}

#[tokio::test]
async fn blocked_objects_directory_is_retried() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let in_the_way = rig.ai().join("state/objects/runs");
    fs::create_dir_all(rig.ai().join("state/objects")).unwrap();
    fs::write(&in_the_way, "").unwrap();
    let run = ended_run(&life, &rig, "run-a", &[json!(1)]).await;
    let text = transcript(&rig.transcript_path(&run), 6).await;
    let events = check_transcript(&run, &text).len();
    assert_eq!(events, 6, "the transcript does not wait");
    life.end().await;
    // The checkpoints record the project as behind.
    let life = Life::begin(&rig).await;
    fs::remove_file(&in_the_way).unwrap();
    let (_, _, receipts) = retrace(&rig.ai(), &run).await;
    assert_eq!(receipts.len(), 1);
    life.end().await;
}

#[tokio::test]
async fn objects_link_is_not_followed() {
    let rig = Rig::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(rig.ai().join("state")).unwrap();
    symlink(outside.path(), rig.ai().join("state/objects")).unwrap();
    let life = Life::begin(&rig).await;
    ended_run(&life, &rig, "run-a", &[json!(1)]).await;
    life.end().await;
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn knowledge_page_shows_end_and_is_signed() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = ended_run(&life, &rig, "run-a", &[json!(1), json!(2)]).await;
    let text = eventually(async || {
        let text = fs::read_to_string(page_of(&rig.ai(), &run)).ok()?;
        text.contains("**Status:** completed").then_some(text)
    })
    .await;
    assert!(text.starts_with("<!-- "), "{text}");
    assert!(text.contains("| 1 | n | ✅ | 2 | 1ms |"), "{text}");
    assert!(text.contains("in `input-2`, out `"), "{text}");
    assert!(text.contains("| receipts: 2"), "{text}");
}
