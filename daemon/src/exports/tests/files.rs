//! Transcripts, records and pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rye_core::model::Event;
use rye_core::model::event::Emitted;
use serde_json::{Value, json};

use super::rig::*;

#[tokio::test]
async fn transcript_is_chained_and_its_heads_are_signed() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 3).await;
    life.journal.put(vec![change(&run, finish())]).await;
    let text = transcript(&rig.transcript_path(&run), 11).await;
    let events = check_transcript(&run, &text);
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    let first = [
        "run_created",
        "run_started",
        "graph_started",
        "step_started",
    ];
    assert_eq!(names[..4], first);
    assert_eq!(names.last(), Some(&"graph_completed"));
    let checkpoints = text.lines().count() - events.len();
    assert_eq!(checkpoints, 4, "three steps and the end");
    let ignored = fs::read_to_string(rig.ai().join("state/.gitignore"));
    assert_eq!(ignored.unwrap(), "*\n");
}

#[tokio::test]
async fn incomplete_transcript_is_completed_after_restart() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 4).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 12).await;
    life.end().await;
    for kept in [0, 1, whole.len() / 3, whole.len() - 1] {
        fs::write(&path, &whole[..kept]).unwrap();
        let life = Life::begin(&rig).await;
        // It was written once: only changed runs are compared.
        life.journal.put(vec![emitted(&run, kept)]).await;
        let text = eventually(async || {
            let text = fs::read_to_string(&path).ok()?;
            text.contains(&format!("\"content\":{kept}"))
                .then_some(text)
        })
        .await;
        assert!(text.starts_with(&whole), "cut at byte {kept}");
        check_transcript(&run, &text);
        life.end().await;
    }
}

/// Removes a directory, even while exports write into it.
fn remove(directory: &Path) {
    let removed = (0..100).any(|_| fs::remove_dir_all(directory).is_ok());
    assert!(removed, "{} is not removed", directory.display());
}

#[tokio::test]
async fn removed_transcript_of_live_run_is_rewritten() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 2).await;
    let path = rig.transcript_path(&run);
    let directory = path.parent().unwrap();
    let away = rig.root.path().join("away");
    let harm: [(&str, &dyn Fn()); 5] = [
        ("removed", &|| remove(directory)),
        ("state removed", &|| remove(&rig.ai().join("state"))),
        ("moved", &|| fs::rename(directory, &away).unwrap()),
        ("cut", &|| {
            let half = fs::metadata(&path).unwrap().len() / 2;
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_len(half).unwrap();
        }),
        ("replaced", &|| {
            fs::remove_file(&path).unwrap();
            fs::write(&path, "mine\n").unwrap();
        }),
    ];
    let mut step = 2;
    for (what, harm) in harm {
        let before = transcript(&path, 4 + 2 * u64::from(step)).await;
        harm();
        step += 1;
        life.journal.put(turn(&run, step)).await;
        let text = transcript(&path, 4 + 2 * u64::from(step)).await;
        assert!(text.starts_with(&before), "{what}");
        check_transcript(&run, &text);
    }
    let aside = directory.join("transcript.aside-1.jsonl");
    assert_eq!(fs::read_to_string(aside).unwrap(), "mine\n");
    life.journal.put(vec![change(&run, finish())]).await;
    has_files(&rig.ai(), &run).await;
}

#[tokio::test]
async fn correct_long_transcript_is_kept() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 1).await;
    // Longer than one piece of the comparison.
    let emitted = Event::from(Emitted {
        name: "x".into(),
        content: json!("x".repeat(60_000)),
    });
    for _ in 0..40 {
        life.journal.put(vec![change(&run, emitted.clone())]).await;
    }
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 46).await;
    life.end().await;
    let life = Life::begin(&rig).await;
    life.journal.put(turn(&run, 2)).await;
    let text = transcript(&path, 48).await;
    assert!(text.starts_with(&whole));
    assert!(!path.with_file_name("transcript.aside-1.jsonl").exists());
}

#[tokio::test]
async fn foreign_lines_are_moved_aside() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 2).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 8).await;
    life.end().await;
    let longer = format!("{whole}{{\"seq\":99}}\n");
    fs::write(&path, &longer).unwrap();
    let life = Life::begin(&rig).await;
    life.journal.put(turn(&run, 3)).await;
    let aside = path.with_file_name("transcript.aside-1.jsonl");
    let kept = eventually(async || fs::read_to_string(&aside).ok()).await;
    assert_eq!(kept, longer);
    check_transcript(&run, &transcript(&path, 10).await);
}

#[tokio::test]
async fn state_page_and_record_show_the_end_and_are_signed() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 2).await;
    life.journal.put(vec![change(&run, finish())]).await;
    let thread = rig.ai().join("state/threads/run-a/thread.json");
    let page = rig.ai().join("knowledge/graphs/demo/graph/run-a.md");
    let (thread, page) = eventually(async || {
        let thread: Value = serde_json::from_slice(&fs::read(&thread).ok()?).ok()?;
        let page = fs::read_to_string(&page).ok()?;
        (thread["status"] == "completed" && page.contains("status: \"completed\""))
            .then_some((thread, page))
    })
    .await;
    assert_eq!(thread["thread_id"], "run-a");
    assert_eq!(thread["seq"], 9);
    assert!(thread["_signature"].is_string());
    assert!(page.starts_with("<!-- "));
    for field in [
        "entry_type: \"graph_state\"",
        "category: \"graphs/demo/graph\"",
        "graph_run_id: \"run-a\"",
        "step_count: 2",
        "seq: 9",
        "tags: [\"graph_state\",\"graph\"]",
    ] {
        assert!(page.contains(field), "{field} is missing in\n{page}");
    }
    let state = page.split("```json\n").nth(1).unwrap();
    let state: Value = serde_json::from_str(state.split("\n```").next().unwrap()).unwrap();
    assert_eq!(state, json!({"inputs": {}, "last": 2}));
}

#[tokio::test]
async fn record_of_busy_run_is_refreshed_within_seconds() {
    let rig = Rig::new();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 1).await;
    let thread = rig.ai().join("state/threads/run-a/thread.json");
    let seq = async || {
        let thread: Value = serde_json::from_slice(&fs::read(&thread).ok()?).ok()?;
        thread["seq"].as_u64()
    };
    eventually(seq).await;
    life.journal.put(turn(&run, 2)).await;
    // No later event triggers this write.
    eventually(async || (seq().await? == 8).then_some(())).await;
}

#[tokio::test]
async fn project_link_is_not_followed() {
    let rig = Rig::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), rig.ai().join("state")).unwrap();
    let life = Life::begin(&rig).await;
    let run = life.journal.put_run(&rig, "run-a", 1).await;
    life.journal.put(vec![change(&run, finish())]).await;
    life.end().await;
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn link_or_pipe_in_place_of_a_file_is_not_written_to() {
    let rig = Rig::new();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    fs::write(&target, "untouched").unwrap();
    let directory = rig.ai().join("state/threads/run-a");
    fs::create_dir_all(&directory).unwrap();
    symlink(&target, directory.join("transcript.jsonl")).unwrap();
    symlink(&target, directory.join("thread.json")).unwrap();
    let directory = rig.ai().join("state/threads/run-b");
    fs::create_dir_all(&directory).unwrap();
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    nix::unistd::mkfifo(&directory.join("transcript.jsonl"), mode).unwrap();
    let life = Life::begin(&rig).await;
    let ai = rig.ai();
    life.ended(&rig, &ai, "run-a").await;
    life.ended(&rig, &ai, "run-b").await;
    let other = life.ended(&rig, &ai, "run-c").await;
    // Neither blocks the files of other runs.
    has_files(&ai, &other).await;
    life.end().await;
    assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
}
