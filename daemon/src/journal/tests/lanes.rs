//! Projects whose files hang.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::id::RunId;
use rye_core::memory::Memory;
use rye_core::model::{Pages, Spec, Status};
use rye_core::transcript::Head;
use serde_json::json;

use super::super::faults::Faults;
use super::super::projector::{Inbox, OWN_BYTES, Pending, RETAINED};
use super::super::run_stream::RunStream;
use super::super::{Change, Journal};
use super::rig::*;

/// The `.ai` of another project.
fn project(rig: &Rig, name: &str) -> PathBuf {
    let files = rig.root.path().join(name).join(".ai");
    fs::create_dir_all(&files).unwrap();
    files
}

/// Creates and begins a run whose files lie in `files`.
async fn begun(journal: &Journal, rig: &Rig, files: &Path, name: &str) -> RunId {
    let run = id(name);
    let spec = Spec {
        files: files.display().to_string(),
        chain_root: run.clone(),
        ..rig.spec(&run)
    };
    let created = Change::create(&run, Arc::new(spec));
    journal.put([vec![created], begin(&run)].concat()).await;
    run
}

async fn ended(journal: &Journal, rig: &Rig, files: &Path, name: &str) -> RunId {
    let run = begun(journal, rig, files, name).await;
    journal
        .put(vec![change(&run, completed(1, json!(1)))])
        .await;
    journal.put(vec![change(&run, finish())]).await;
    run
}

/// Resolves when the files of an ended run are there, its page the last of them.
async fn has_files(files: &Path, run: &RunId) {
    let page = format!("knowledge/agent/threads/demo/graph/{run}.md");
    let pointer = format!("state/objects/refs/graphs/{run}.json");
    eventually(async || {
        let text = fs::read_to_string(files.join(&page)).ok()?;
        (text.contains("completed") && files.join(&pointer).exists()).then_some(())
    })
    .await;
}

async fn left_memory(journal: &Journal, run: &RunId) {
    eventually(async || journal.shared.stream(run).is_none().then_some(())).await;
}

fn base(rig: &Rig) -> Vec<u8> {
    fs::read(rig.state().join("base")).unwrap_or_default()
}

#[tokio::test]
async fn a_project_that_hangs_holds_up_its_own_files_and_nothing_else() {
    let rig = Rig::with_segments_of(8 << 10);
    let journal = rig.open().await;
    let (dead, alive) = (project(&rig, "dead"), project(&rig, "alive"));
    rig.faults.inner.hang(&dead.display().to_string());
    let stuck = ended(&journal, &rig, &dead, "stuck-1").await;
    eventually(async || (rig.faults.inner.hung() > 0).then_some(())).await;

    // The files of other projects are written, and their runs leave memory.
    let other = ended(&journal, &rig, &alive, "other-1").await;
    has_files(&alive, &other).await;
    left_memory(&journal, &other).await;
    // That of the project that hangs has nothing but the log.
    assert!(!dead.join("state").exists());
    assert_eq!(journal.history(&stuck).await.unwrap().len(), 6);

    // The log is kept for its sake up to a bound; then base, archive and memory continue without it.
    let before = base(&rig);
    let busy = begun(&journal, &rig, &alive, "busy-1").await;
    for step in 1..200 {
        journal.put(turn(&busy, step)).await;
    }
    left_memory(&journal, &stuck).await;
    eventually(async || (journal.shared.log.segments() < RETAINED).then_some(())).await;
    assert!(base(&rig) != before);
    assert_eq!(journal.record(&stuck).await.status(), Status::Completed);

    // What lay in memory is written when the project moves again.
    rig.faults.inner.release();
    has_files(&dead, &stuck).await;
    assert_eq!(journal.history(&stuck).await.unwrap().len(), 6);
    journal.close().await.unwrap();
}

#[tokio::test]
async fn a_project_that_is_slower_than_its_runs_keeps_their_history() {
    let mut rig = Rig::with_segments_of(8 << 10);
    // It is slow, and not stuck.
    rig.lag.still = Duration::from_mins(10);
    let journal = rig.open().await;
    let slow = project(&rig, "slow");
    rig.faults.inner.hang(&slow.display().to_string());
    let mut runs = Vec::new();
    while journal.shared.log.segments() < 2 * RETAINED {
        let name = format!("run-{}", runs.len());
        runs.push(ended(&journal, &rig, &slow, &name).await);
    }
    rig.faults.inner.release();
    for run in &runs {
        has_files(&slow, run).await;
        left_memory(&journal, run).await;
        assert_eq!(journal.history(run).await.unwrap().len(), 6);
    }
    eventually(async || (journal.shared.log.segments() < RETAINED).then_some(())).await;
}

#[tokio::test]
async fn a_project_that_is_behind_all_the_time_lets_the_log_be_shortened() {
    let mut rig = Rig::with_segments_of(8 << 10);
    rig.lag.still = Duration::from_mins(10);
    let journal = rig.open().await;
    let slow = project(&rig, "slow");
    rig.faults.inner.hang(&slow.display().to_string());
    let before = base(&rig);
    let mut shortened = false;
    let mut number = 0;
    while !shortened && journal.shared.log.segments() < 4 * RETAINED {
        number += 1;
        let _run = ended(&journal, &rig, &slow, &format!("run-{number}")).await;
        // Each run takes more than one piece of work.
        rig.faults.inner.let_through(1);
        eventually(async || (rig.faults.inner.passes() == 0).then_some(())).await;
        shortened = base(&rig) != before;
    }
    assert!(shortened, "the log is kept for ever");
    rig.faults.inner.release();
}

#[tokio::test]
async fn many_transcripts_are_on_disk_once_their_file_system_is_synced_and_not_before() {
    let rig = Rig::with_segments_of(8 << 10);
    let journal = rig.open().await;
    rig.faults.inner.no_sync(true);
    let busy = project(&rig, "busy");
    let before = base(&rig);
    for number in 0..12 {
        let run = ended(&journal, &rig, &busy, &format!("run-{number}")).await;
        has_files(&busy, &run).await;
    }
    let segments = journal.shared.log.segments();
    assert!((2..RETAINED).contains(&segments), "{segments}");
    assert_eq!(base(&rig), before);
    rig.faults.inner.no_sync(false);
    let last = begun(&journal, &rig, &busy, "last").await;
    let mut steps = 1..;
    eventually(async || {
        journal.put(turn(&last, steps.next().unwrap())).await;
        (journal.shared.log.segments() < segments && base(&rig) != before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_a_project_that_hangs_has_not_taken_comes_back_in_the_next_life() {
    let mut rig = Rig::new();
    let dead = project(&rig, "dead");
    let journal = rig.open().await;
    rig.faults.inner.hang(&dead.display().to_string());
    let stuck = ended(&journal, &rig, &dead, "stuck-1").await;
    eventually(async || (rig.faults.inner.hung() > 0).then_some(())).await;
    // Neither end waits for the project.
    drop(journal);
    let journal = rig.open().await;
    eventually(async || (rig.faults.inner.hung() > 1).then_some(())).await;
    journal.close().await.unwrap();
    drop(journal);
    assert!(!dead.join("state").exists());

    rig.faults = Faults::default();
    let journal = rig.open().await;
    has_files(&dead, &stuck).await;
    left_memory(&journal, &stuck).await;
    assert_eq!(journal.history(&stuck).await.unwrap().len(), 6);
    journal.close().await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_journal_waits_for_a_project_that_hangs_no_longer_than_it_may() {
    let rig = Rig::new();
    let dead = project(&rig, "dead");
    let journal = rig.open().await;
    rig.faults.inner.hang(&dead.display().to_string());
    let _stuck = ended(&journal, &rig, &dead, "stuck-1").await;
    eventually(async || (rig.faults.inner.hung() > 0).then_some(())).await;
    let begun = Instant::now();
    let closed = journal.close_within(Duration::from_millis(300)).await;
    closed.unwrap();
    // Less than it would wait of itself for projects that do not move.
    assert!(begun.elapsed() < Duration::from_millis(1500));
    rig.faults.inner.release();
}

#[tokio::test]
async fn a_project_that_is_removed_when_all_is_written_keeps_no_log() {
    let rig = Rig::with_segments_of(8 << 10);
    let journal = rig.open().await;
    let (gone, alive) = (project(&rig, "gone"), project(&rig, "alive"));
    let run = ended(&journal, &rig, &gone, "run-1").await;
    has_files(&gone, &run).await;
    left_memory(&journal, &run).await;
    fs::remove_dir_all(&gone).unwrap();
    let before = base(&rig);
    let busy = begun(&journal, &rig, &alive, "busy-1").await;
    for step in 1..200 {
        journal.put(turn(&busy, step)).await;
        if journal.shared.log.segments() > 2 {
            break;
        }
    }
    assert!(journal.shared.log.segments() < RETAINED);
    eventually(async || (base(&rig) != before).then_some(())).await;
    journal.close().await.unwrap();
}

#[test]
fn lines_beyond_what_a_mailbox_may_hold_are_lent_room_and_then_left_to_the_log() {
    let rig = Rig::new();
    let shared = Arc::new(Memory::new(1000));
    let add = |inbox: &mut Inbox, name: &str, bytes: usize| {
        let run = id(name);
        let spec = Arc::new(rig.spec(&run));
        let lines = Pending {
            stream: Arc::new(RunStream::new(
                run.clone(),
                spec,
                Head::default(),
                Vec::new(),
            )),
            start: Head::default(),
            end: Head::default(),
            lines: Some(vec![b' '; bytes]),
            pages: Pages::Keep,
            money: None,
            settled: None,
        };
        let _first = inbox.add(lines, &shared);
        inbox.runs[&run].lines.is_some()
    };
    let (mut inbox, mut other) = (Inbox::default(), Inbox::default());
    assert!(add(&mut inbox, "own", OWN_BYTES));
    assert_eq!(shared.taken(), 0);
    assert!(add(&mut inbox, "lent", 600));
    assert!(!add(&mut inbox, "left", 600));
    assert_eq!(shared.taken(), 600);
    // What one project was lent, another lacks only beyond its own.
    assert!(add(&mut other, "own", OWN_BYTES - 600));
    assert!(add(&mut other, "own-too", 600));
    assert!(!add(&mut other, "left", 600));
    drop(inbox);
    assert_eq!(shared.taken(), 0);
    assert!(add(&mut other, "lent", 600));
}
