//! Projects that hang, reject writes, are missing, or were replaced; and rebuilds.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rye_core::id::RunId;
use rye_core::model::{DirectoryIdentity, Spec};

use super::rig::*;
use rye_host::safe_path;
use rye_journal::{Change, Faults};

#[tokio::test]
async fn hanging_project_delays_only_its_files() {
    let rig = Rig::with_segments_of(16 << 10);
    let life = Life::begin(&rig).await;
    let alive = project(&rig, "alive");
    let dead: Vec<_> = ["dead-1", "dead-2", "dead-3"]
        .map(|name| project(&rig, name))
        .into();
    let mut stuck = Vec::new();
    for files in &dead {
        rig.faults.inner.hang(&files.display().to_string());
        let name = format!("stuck-{}", stuck.len());
        stuck.push(life.ended(&rig, files, &name).await);
    }
    // More than the concurrent turns: each loses its slot.
    eventually(async || (rig.faults.inner.hung() == 3).then_some(())).await;
    for number in 0..5 {
        let other = life.ended(&rig, &alive, &format!("other-{number}")).await;
        has_files(&alive, &other).await;
    }
    for files in &dead {
        assert!(!files.join("state").exists());
    }
    rig.faults.inner.release();
    for (files, run) in dead.iter().zip(&stuck) {
        has_files(files, run).await;
    }
    life.end().await;
}

#[tokio::test]
async fn stop_waits_bounded_time_for_hanging_project() {
    let mut rig = Rig::new();
    let life = Life::begin(&rig).await;
    let dead = project(&rig, "dead");
    rig.faults.inner.hang(&dead.display().to_string());
    let stuck = life.ended(&rig, &dead, "stuck").await;
    eventually(async || (rig.faults.inner.hung() > 0).then_some(())).await;
    let begun = Instant::now();
    life.stop(Duration::from_millis(300)).await;
    assert!(begun.elapsed() < Duration::from_millis(1500));
    life.end().await;
    assert!(!dead.join("state").exists());
    rig.faults = Faults::default();
    let life = Life::begin(&rig).await;
    has_files(&dead, &stuck).await;
    life.end().await;
}

#[tokio::test]
async fn unwritable_project_is_retried_until_writable() {
    for kind in [
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::StorageFull,
    ] {
        let rig = Rig::new();
        let life = Life::begin(&rig).await;
        let files = rig.ai();
        let name = files.display().to_string();
        rig.faults.inner.refuse_after(0, &name, kind);
        let run = life.ended(&rig, &files, "run-a").await;
        eventually(async || (rig.faults.inner.refused() > 0).then_some(())).await;
        let written = fs::read(rig.transcript_path(&run)).unwrap_or_default();
        assert!(written.is_empty());
        rig.faults.inner.refuse_nothing();
        has_files(&files, &run).await;
        life.end().await;
    }
}

#[tokio::test]
async fn unwritten_files_are_written_after_restart() {
    let rig = Rig::new();
    let files = rig.ai();
    let name = files.display().to_string();
    let life = Life::begin(&rig).await;
    rig.faults
        .inner
        .refuse_after(0, &name, io::ErrorKind::StorageFull);
    let run = life.ended(&rig, &files, "run-a").await;
    eventually(async || (rig.faults.inner.refused() > 0).then_some(())).await;
    life.end().await;
    rig.faults.inner.refuse_nothing();
    let life = Life::begin(&rig).await;
    has_files(&files, &run).await;
    life.end().await;
}

#[tokio::test]
async fn missing_project_is_skipped_and_rebuild_writes_files() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let (files, other) = (project(&rig, "gone"), project(&rig, "other"));
    fs::remove_dir(&files).unwrap();
    let run = life.ended(&rig, &files, "run-a").await;
    let last = life.ended(&rig, &other, "run-b").await;
    has_files(&other, &last).await;
    // The stop does not wait for the project.
    life.close().await;
    fs::create_dir(&files).unwrap();
    let life = Life::begin(&rig).await;
    let rebuilt = life.rebuild(&files).await;
    assert_eq!((rebuilt.runs, rebuilt.written, rebuilt.failed), (1, 1, 0));
    has_files(&files, &run).await;
    life.end().await;
}

fn page_is_complete(files: &Path, run: &RunId) -> bool {
    let page = fs::read_to_string(page_of(files, run)).unwrap_or_default();
    page.contains("**Status:** completed")
}

/// Creates and ends a run that began in the directory now at the project's path.
async fn ended_in_place(life: &Life, rig: &Rig, name: &str) -> RunId {
    let found = fs::metadata(rig.root.path()).unwrap();
    let identity: DirectoryIdentity = safe_path::identity(&found);
    let run = id(name);
    let spec = Spec {
        directory: Some(identity),
        chain_root: run.clone(),
        ..rig.spec(&run)
    };
    let created = Change::create(&run, std::sync::Arc::new(spec));
    let finished = vec![change(&run, finish())];
    let changes = [vec![created], begin(&run)].concat();
    life.journal.put(changes).await;
    life.journal
        .put(vec![change(&run, completed(1, 1.into()))])
        .await;
    life.journal.put(finished).await;
    run
}

#[tokio::test]
async fn foreign_directory_gets_no_files() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let before = ended_in_place(&life, &rig, "run-a").await;
    has_files(&rig.ai(), &before).await;
    let other = tempfile::tempdir().unwrap();
    let found = fs::metadata(other.path()).unwrap();
    let run = id("run-b");
    let spec = Spec {
        directory: Some(safe_path::identity(&found)),
        chain_root: run.clone(),
        ..rig.spec(&run)
    };
    let created = Change::create(&run, std::sync::Arc::new(spec));
    life.journal
        .put([vec![created], begin(&run)].concat())
        .await;
    life.journal.put(vec![change(&run, finish())]).await;
    let last = ended_in_place(&life, &rig, "run-c").await;
    has_files(&rig.ai(), &last).await;
    assert!(!rig.transcript_path(&run).exists());
    life.end().await;
}

#[tokio::test]
async fn rebuild_replaces_what_differs_and_leaves_what_is_right() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let files = rig.ai();
    let mut runs = Vec::new();
    for number in 0..4 {
        let run = life.ended(&rig, &files, &format!("run-{number}")).await;
        has_files(&files, &run).await;
        runs.push(run);
    }
    let running = life.begun(&rig, &files, "running").await;
    let running_text = transcript(&transcript_of(&files, &running), 4).await;
    // Its record follows within a second.
    eventually(async || {
        life.exports
            .table
            .written_positions()
            .is_empty()
            .then_some(())
    })
    .await;
    life.end().await;
    let before = image(&files);
    let life = Life::begin(&rig).await;
    let rebuilt = life.rebuild(&files).await;
    assert_eq!(
        (rebuilt.runs, rebuilt.written, rebuilt.replaced),
        (5, 0, 0),
        "{rebuilt:?}"
    );
    let changed = transcript_of(&files, &runs[0]);
    let text = fs::read_to_string(&changed).unwrap();
    fs::write(&changed, text.replace("echo", "evil")).unwrap();
    fs::remove_dir_all(transcript_of(&files, &runs[1]).parent().unwrap()).unwrap();
    fs::write(page_of(&files, &runs[2]), "changed").unwrap();
    fs::write(transcript_of(&files, &running), "").unwrap();
    let rebuilt = life.rebuild(&files).await;
    assert_eq!((rebuilt.runs, rebuilt.failed), (5, 0), "{rebuilt:?}");
    assert_eq!((rebuilt.written, rebuilt.replaced), (2, 2), "{rebuilt:?}");
    let aside = changed.with_file_name("transcript.aside-1.jsonl");
    fs::remove_file(aside).unwrap();
    assert_eq!(image(&files), before);
    assert_eq!(
        fs::read_to_string(transcript_of(&files, &running)).unwrap(),
        running_text
    );
    life.end().await;
}

#[tokio::test]
async fn idle_project_thread_ends_and_next_continues() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 1).await;
    for step in 2..=3 {
        eventually(async || (life.exports.table.threads() == 0).then_some(())).await;
        life.journal.put(turn(&run, step)).await;
        let text = transcript(&rig.transcript_path(&run), 4 + 2 * u64::from(step)).await;
        check_transcript(&run, &text);
    }
    life.journal.put(vec![change(&run, finish())]).await;
    has_files(&rig.ai(), &run).await;
}

#[tokio::test]
async fn more_runs_than_open_files_are_written_concurrently() {
    let rig = Rig::with_segments_of(8 << 20);
    let life = Life::begin(&rig).await;
    let files = rig.ai();
    let mut runs = Vec::new();
    for number in 0..100 {
        runs.push(life.begun(&rig, &files, &format!("run-{number}")).await);
    }
    for step in 1..=3 {
        for run in &runs {
            life.journal.put(turn(run, step)).await;
        }
    }
    for run in &runs {
        check_transcript(run, &transcript(&transcript_of(&files, run), 10).await);
    }
    let open = life
        .exports
        .shared
        .open
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=64).contains(&open), "{open}");
    life.end().await;
}

#[tokio::test]
async fn files_are_complete_after_crash_at_any_write() {
    let mut writes = 0;
    loop {
        let rig = Rig::new();
        let files = rig.ai();
        let name = files.display().to_string();
        let life = Life::begin(&rig).await;
        rig.faults
            .inner
            .refuse_after(writes, &name, io::ErrorKind::StorageFull);
        let run = life.ended(&rig, &files, "run-a").await;
        let is_whole = || page_is_complete(&files, &run);
        let refused = || rig.faults.inner.refused() > 0;
        eventually(async || (refused() || is_whole()).then_some(())).await;
        life.end().await;
        let had_all_writes = !refused();
        rig.faults.inner.refuse_nothing();
        let life = Life::begin(&rig).await;
        has_files(&files, &run).await;
        snapshot_of(&files, &run).await;
        let rebuilt = life.rebuild(&files).await;
        let (same, changed) = (rebuilt.runs, rebuilt.written + rebuilt.replaced);
        assert_eq!(
            (same, changed, rebuilt.failed),
            (1, 0, 0),
            "after {writes} writes"
        );
        life.end().await;
        if had_all_writes {
            break;
        }
        writes += 1;
    }
    assert!(writes >= 8, "{writes}");
}
