use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use rye_core::digest::Digest;
use rye_core::id::RunId;
use rye_core::model::{
    Event, Failure, GraphEvent, Run, RunEvent, StepStatus, SuspendReason, Suspension,
};
use serde_json::{Value, json};

use super::super::artifacts::{ArtifactLane, Artifacts, Money, Note, Reading, Transcripts};
use super::super::faults::Faults;
use super::super::{Change, Journal, Options};
use super::rig::*;
use crate::object::ProjectObjects;

/// A step that gave `result` back.
fn gave(run: &RunId, step: u32, result: &Value) -> Change {
    let mut event = completed(step, json!(step));
    if let Event::Graph(GraphEvent::StepCompleted {
        result: slot,
        node_input_hash,
        ..
    }) = &mut event
    {
        *slot = Some(Arc::new(result.clone()));
        *node_input_hash = Some(format!("input-{step}"));
    }
    change(run, event)
}

/// A run that has ended after steps with these results.
async fn ended_run(journal: &Journal, rig: &Rig, name: &str, results: &[Value]) -> RunId {
    let run = id(name);
    journal.put(vec![rig.create(&run)]).await;
    journal.put(begin(&run)).await;
    for (result, step) in results.iter().zip(1..) {
        let mut changes = vec![gave(&run, step, result)];
        let more = usize::try_from(step).is_ok_and(|step| step < results.len());
        changes.extend(more.then(|| change(&run, started(step + 1))));
        journal.put(changes).await;
    }
    journal.put(vec![change(&run, finish())]).await;
    run
}

/// The hash that the ref of `run` names, once there is one.
async fn snapshot_of(rig: &Rig, run: &RunId) -> Digest {
    eventually(async || {
        let vault = ProjectObjects::open(&rig.ai()).ok()??;
        let pointer: Value = serde_json::from_slice(&vault.get_ref(run).ok()??).ok()?;
        assert_eq!(pointer["graph_run_id"], json!(run));
        pointer["hash"].as_str()?.parse().ok()
    })
    .await
}

/// The objects that the ref of `run` leads to: snapshot, state, receipts with their results.
async fn retrace(rig: &Rig, run: &RunId) -> (Value, Value, Vec<(Value, Value)>) {
    let named = snapshot_of(rig, run).await;
    let vault = ProjectObjects::open(&rig.ai()).unwrap().unwrap();
    let get = |hash: &Value| vault.get(&hash.as_str().unwrap().parse().unwrap()).unwrap();
    let snapshot = vault.get(&named).unwrap();
    let state = get(&snapshot["state_hash"]);
    let receipts = snapshot["node_receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hash| {
            let receipt = get(hash);
            let result = get(&receipt["node_result_hash"]);
            (receipt, result["result"].clone())
        });
    let receipts = receipts.collect();
    (snapshot, state, receipts)
}

fn objects(rig: &Rig) -> Vec<(PathBuf, Vec<u8>)> {
    image(&rig.ai().join("state/objects"))
}

#[tokio::test]
async fn an_ended_run_can_be_retraced_from_its_ref_by_hashes_alone() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = ended_run(
        &journal,
        &rig,
        "run-a",
        &[json!({"a": 1}), json!([2]), json!("three")],
    )
    .await;
    let (snapshot, state, receipts) = retrace(&rig, &run).await;
    assert_eq!(snapshot["kind"], "execution_snapshot");
    assert_eq!(snapshot["graph_run_id"], "run-a");
    assert_eq!(snapshot["status"], "completed");
    assert_eq!(snapshot["step"], 3);
    assert!(snapshot.get("errors").is_none());
    assert_eq!(state["state"], json!({"inputs": {}, "last": 3}));
    let results: Vec<&Value> = receipts.iter().map(|(_, result)| result).collect();
    assert_eq!(results, [&json!({"a": 1}), &json!([2]), &json!("three")]);
    for ((receipt, _), step) in receipts.iter().zip(1..) {
        assert_eq!(receipt["node_input_hash"], format!("input-{step}"));
        assert_eq!(receipt["cache_hit"], false);
    }
}

#[tokio::test]
async fn a_long_result_is_an_object_like_any_other() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let long = json!("x".repeat(100_000));
    let run = ended_run(&journal, &rig, "run-a", std::slice::from_ref(&long)).await;
    let (_, _, receipts) = retrace(&rig, &run).await;
    assert_eq!(receipts[0].1, long);
}

type Handle = dyn Fn(&Transcripts, &Note) + Send + Sync;

/// Lanes that hand each note to a function, a moment after it came.
struct Later(Arc<Handle>);

struct LaterLane {
    handle: Arc<Handle>,
    transcripts: Transcripts,
    notes: Vec<Note>,
    due: Option<Instant>,
}

impl Later {
    fn new(handle: impl Fn(&Transcripts, &Note) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self(Arc::new(handle)))
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

impl Artifacts for Later {
    fn lane(&self, _files: &str, transcripts: Transcripts) -> Box<dyn ArtifactLane> {
        Box::new(LaterLane {
            handle: Arc::clone(&self.0),
            transcripts,
            notes: Vec::new(),
            due: None,
        })
    }
}

impl ArtifactLane for LaterLane {
    fn add(&mut self, note: Note) {
        self.due = Some(Instant::now() + Duration::from_millis(1));
        self.notes.push(note);
    }

    fn record(&mut self, _run: &Run, _money: &Money) -> io::Result<()> {
        Ok(())
    }

    fn work(&mut self) {
        if self.due.take_if(|due| *due <= Instant::now()).is_some() {
            for note in self.notes.drain(..) {
                (self.handle)(&self.transcripts, &note);
            }
        }
    }

    fn pause(&self) -> Option<Duration> {
        Some(self.due?.saturating_duration_since(Instant::now()))
    }

    fn unfinished(&self) -> usize {
        0
    }

    fn finish(&mut self, _left: &dyn Fn(usize)) -> bool {
        true
    }

    fn is_unsynced(&self) -> bool {
        false
    }

    fn synced(&mut self) {}

    fn give_up(&mut self) {}
}

/// Counts the lanes that there have been.
#[derive(Debug)]
struct Counted {
    lanes: AtomicUsize,
    artifacts: Arc<dyn Artifacts>,
}

impl Counted {
    fn new(artifacts: Arc<dyn Artifacts>) -> Arc<Self> {
        let lanes = AtomicUsize::new(0);
        Arc::new(Self { lanes, artifacts })
    }

    fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }
}

impl Artifacts for Counted {
    fn lane(&self, files: &str, transcripts: Transcripts) -> Box<dyn ArtifactLane> {
        self.lanes.fetch_add(1, Ordering::Relaxed);
        self.artifacts.lane(files, transcripts)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_results_are_read_a_few_at_a_time() {
    let rig = Rig::with_segments_of(64 << 20);
    let (sender, pieces) = mpsc::channel();
    // How many events each piece of the transcript of an ended run has.
    let artifacts = Later::new(move |transcripts, note| {
        if note.settled.is_none() {
            return;
        }
        let mut reading = Reading::default();
        let mut pieces = Vec::new();
        while !reading.is_at(&note.upto) {
            let mut events = 0;
            let count = |_, _, _: &_| events += 1;
            transcripts.read(note, &mut reading, count).unwrap();
            pieces.push(events);
        }
        sender.send(pieces).unwrap();
    });
    let options = Options {
        artifacts,
        ..rig.options()
    };
    let (journal, _recovered) = Journal::open_with(options, Faults::default())
        .await
        .unwrap();
    let long = json!("x".repeat(900_000));
    let _run = ended_run(&journal, &rig, "run-a", &vec![long; 12]).await;
    let pieces = pieces.recv_timeout(Duration::from_secs(30)).unwrap();
    // Two events a step, of which one is long; five of these are enough.
    assert!(pieces.len() >= 3, "{pieces:?}");
    assert!(pieces.iter().all(|events| *events < 16), "{pieces:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_does_not_end_between_the_steps_of_its_runs() {
    let rig = Rig::new();
    let (sender, done) = mpsc::channel();
    let artifacts = Counted::new(Later::new(move |_, _| {
        // Nobody listens any more when the test is over.
        let _gone = sender.send(());
    }));
    let options = Options {
        artifacts: Arc::<Counted>::clone(&artifacts),
        ..rig.options()
    };
    let (journal, _recovered) = Journal::open_with(options, Faults::default())
        .await
        .unwrap();
    let run = journal.put_run(&rig, "run-a", 1).await;
    for step in 2..20 {
        journal.put(turn(&run, step)).await;
        // The lane has done all it had to do when the next step comes.
        done.recv_timeout(Duration::from_secs(30)).unwrap();
        while done.try_recv().is_ok() {}
    }
    assert_eq!(artifacts.lanes(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_was_idle_ends_and_the_next_one_misses_nothing() {
    let rig = Rig::new();
    let artifacts = Counted::new(rig.options().artifacts);
    let options = Options {
        artifacts: Arc::<Counted>::clone(&artifacts),
        lane_idle: Duration::from_millis(1),
        ..rig.options()
    };
    let (journal, _recovered) = Journal::open_with(options, Faults::default())
        .await
        .unwrap();
    let run = journal.put_run(&rig, "run-a", 1).await;
    for (before, step) in (1..).zip(2..=4) {
        eventually(async || {
            let have_ended = journal.shared.lanes.count() == 0;
            (have_ended && artifacts.lanes() >= before).then_some(())
        })
        .await;
        journal.put(turn(&run, step)).await;
    }
    journal.put(vec![change(&run, finish())]).await;
    let (_, _, receipts) = retrace(&rig, &run).await;
    assert_eq!(receipts.len(), 4);
    assert!(artifacts.lanes() >= 4, "{artifacts:?}");
}

#[tokio::test]
async fn what_went_wrong_is_in_the_receipt_and_in_the_snapshot() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = id("run-a");
    journal.put(vec![rig.create(&run)]).await;
    journal.put(begin(&run)[..2].to_vec()).await;
    let mut attempt = started(1);
    if let Event::Run(RunEvent::StepStarted {
        node_input_hash, ..
    }) = &mut attempt
    {
        *node_input_hash = Some("input-of-the-attempt".into());
    }
    let mut failed = completed(1, json!(1));
    if let Event::Graph(GraphEvent::StepCompleted { status, error, .. }) = &mut failed {
        *status = StepStatus::Error;
        *error = Some(Failure::permanent("node_error", "no such file").at("n"));
    }
    let end = Event::Graph(GraphEvent::GraphError {
        error: Failure::permanent("node_error", "no such file").at("n"),
        steps: 1,
        elapsed_ms: 1,
    });
    journal
        .put(
            [attempt, failed, end]
                .map(|event| change(&run, event))
                .to_vec(),
        )
        .await;
    let (snapshot, _, receipts) = retrace(&rig, &run).await;
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
async fn a_suspended_run_has_a_snapshot_and_a_later_one_takes_its_place() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    let suspend = Event::Run(RunEvent::RunSuspended(Suspension::new(SuspendReason::User)));
    journal.put(vec![change(&run, suspend)]).await;
    let (suspended, _, receipts) = retrace(&rig, &run).await;
    assert_eq!(
        (&suspended["status"], receipts.len()),
        (&json!("suspended"), 2)
    );
    let first = snapshot_of(&rig, &run).await;
    let resumed = Event::Run(RunEvent::resumed(journal.epoch()));
    journal.put(vec![change(&run, resumed)]).await;
    journal.put(turn(&run, 3)).await;
    journal.put(vec![change(&run, finish())]).await;
    eventually(async || (snapshot_of(&rig, &run).await != first).then_some(())).await;
    let (ended, _, receipts) = retrace(&rig, &run).await;
    assert_eq!((&ended["status"], receipts.len()), (&json!("completed"), 3));
    for at in 0..2 {
        assert_eq!(ended["node_receipts"][at], suspended["node_receipts"][at]);
    }
}

#[tokio::test]
async fn objects_of_a_live_run_that_are_gone_come_back_the_same_after_a_restart() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 4).await;
    let page = rig.ai().join("knowledge/agent/threads/demo/graph/run-a.md");
    eventually(async || fs::metadata(&page).ok()).await;
    journal.close().await.unwrap();
    drop(journal);
    drop(fs::remove_dir_all(rig.ai().join("state/objects")));
    let journal = rig.open().await;
    let epoch = journal.epoch();
    journal
        .put(vec![change(&run, Event::Run(RunEvent::started(epoch)))])
        .await;
    journal.put(vec![change(&run, finish())]).await;
    let (_, _, receipts) = retrace(&rig, &run).await;
    assert_eq!(
        receipts.len(),
        4,
        "those from before the restart are among them"
    );
}

#[tokio::test]
async fn the_same_events_give_the_same_objects_byte_for_byte() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = ended_run(&journal, &rig, "run-a", &[json!(1), json!(2)]).await;
    snapshot_of(&rig, &run).await;
    drop(journal);
    let before = objects(&rig);
    fs::remove_dir_all(rig.ai().join("state/objects")).unwrap();
    let journal = rig.open().await;
    snapshot_of(&rig, &run).await;
    drop(journal);
    assert_eq!(objects(&rig), before);
}

#[tokio::test]
async fn the_log_of_an_ended_run_is_kept_until_its_objects_are_there() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let in_the_way = rig.ai().join("state/objects/objects");
    fs::create_dir_all(rig.ai().join("state/objects")).unwrap();
    fs::write(&in_the_way, "").unwrap();
    let run = ended_run(&journal, &rig, "run-a", &[json!(1)]).await;
    let text = transcript(&rig.transcript_path(&run), 6).await;
    assert_eq!(
        check_transcript(&run, &text).len(),
        6,
        "the transcript does not wait"
    );
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    fs::remove_file(&in_the_way).unwrap();
    let (_, _, receipts) = retrace(&rig, &run).await;
    assert_eq!(receipts.len(), 1);
    drop(journal);
}

#[tokio::test]
async fn a_transcript_that_was_changed_gives_no_objects_and_holds_nobody_up() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 3).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 10).await;
    journal.close().await.unwrap();
    drop(journal);
    drop(fs::remove_dir_all(rig.ai().join("state/objects")));
    fs::write(
        &path,
        whole.replacen("tool:rye/core/echo", "tool:rye/core/evil", 1),
    )
    .unwrap();
    let journal = rig.open().await;
    let epoch = journal.epoch();
    journal
        .put(vec![change(&run, Event::Run(RunEvent::started(epoch)))])
        .await;
    journal.put(vec![change(&run, finish())]).await;
    journal.close().await.unwrap();
    drop(journal);
    assert!(!rig.ai().join("state/objects/refs").exists());
    let journal = rig.open().await;
    assert!(journal.shared.stream(&run).is_none(), "it has left memory");
}

#[tokio::test]
async fn a_link_in_place_of_the_objects_is_not_followed() {
    let rig = Rig::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(rig.ai().join("state")).unwrap();
    symlink(outside.path(), rig.ai().join("state/objects")).unwrap();
    let journal = rig.open().await;
    ended_run(&journal, &rig, "run-a", &[json!(1)]).await;
    journal.close().await.unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_page_for_people_tells_the_end_and_is_signed() {
    let rig = Rig::new();
    let journal = rig.open().await;
    ended_run(&journal, &rig, "run-a", &[json!(1), json!(2)]).await;
    let path = rig.ai().join("knowledge/agent/threads/demo/graph/run-a.md");
    let text = eventually(async || {
        let text = fs::read_to_string(&path).ok()?;
        text.contains("**Status:** completed").then_some(text)
    })
    .await;
    assert!(text.starts_with("<!-- "), "{text}");
    assert!(text.contains("| 1 | n | ✅ | 2 | 1ms |"), "{text}");
    assert!(text.contains("in `input-2`, out `"), "{text}");
    assert!(text.contains("| receipts: 2"), "{text}");
}
