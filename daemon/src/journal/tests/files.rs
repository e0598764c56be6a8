use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rye_core::model::{Event, RunEvent};
use serde_json::{Value, json};

use super::rig::*;

#[tokio::test]
async fn a_transcript_is_chained_and_its_heads_are_signed() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 3).await;
    journal.put(vec![change(&run, finish())]).await;
    let text = transcript(&rig.transcript_path(&run), 11).await;
    let events = check_transcript(&run, &text);
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(
        names[..4],
        [
            "run_created",
            "run_started",
            "graph_started",
            "step_started"
        ]
    );
    assert_eq!(names.last(), Some(&"graph_completed"));
    let checkpoints = text.lines().count() - events.len();
    assert_eq!(checkpoints, 4, "three steps and the end");
    assert_eq!(
        fs::read_to_string(rig.ai().join("state/.gitignore")).unwrap(),
        "*\n"
    );
}

#[tokio::test]
async fn a_transcript_that_is_behind_comes_back_byte_for_byte() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 4).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 12).await;
    drop(journal);
    for kept in [0, 1, whole.len() / 3, whole.len() - 1] {
        fs::write(&path, &whole[..kept]).unwrap();
        let journal = rig.open().await;
        assert_eq!(transcript(&path, 12).await, whole, "cut at byte {kept}");
        drop(journal);
    }
    fs::remove_dir_all(rig.ai().join("state")).unwrap();
    let journal = rig.open().await;
    assert_eq!(transcript(&path, 12).await, whole);
    drop(journal);
}

/// Removes a directory into which the journal may be writing.
fn remove(directory: &Path) {
    let removed = (0..100).any(|_| fs::remove_dir_all(directory).is_ok());
    assert!(removed, "{} is not removed", directory.display());
}

#[tokio::test]
async fn a_transcript_that_is_taken_away_under_a_live_run_comes_back_whole() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
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
        journal.put(turn(&run, step)).await;
        let text = transcript(&path, 4 + 2 * u64::from(step)).await;
        assert!(text.starts_with(&before), "{what}");
        check_transcript(&run, &text);
    }
    let aside = directory.join("transcript.lost-1.jsonl");
    assert_eq!(fs::read_to_string(aside).unwrap(), "mine\n");
}

#[tokio::test]
async fn a_long_transcript_that_is_right_is_left_alone() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 1).await;
    // Longer than what is compared in one piece.
    let emitted = Event::Run(RunEvent::Emitted {
        name: "x".into(),
        content: json!("x".repeat(60_000)),
    });
    for _ in 0..40 {
        journal.put(vec![change(&run, emitted.clone())]).await;
    }
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 46).await;
    drop(journal);
    let journal = rig.open().await;
    journal.put(turn(&run, 2)).await;
    let text = transcript(&path, 48).await;
    assert!(text.starts_with(&whole));
    assert!(!path.with_file_name("transcript.lost-1.jsonl").exists());
}

#[tokio::test]
async fn lines_the_log_does_not_know_are_moved_aside() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 8).await;
    journal.close().await.unwrap();
    drop(journal);
    fs::write(&path, format!("{whole}{{\"seq\":99}}\n")).unwrap();
    let journal = rig.open().await;
    let lost = path.with_file_name("transcript.lost-1.jsonl");
    eventually(async || {
        (fs::read_to_string(&lost).ok()? == "{\"seq\":99}\n"
            && fs::read_to_string(&path).ok()? == whole)
            .then_some(())
    })
    .await;
    journal.put(turn(&run, 3)).await;
    check_transcript(&run, &transcript(&path, 10).await);
}

#[tokio::test]
async fn events_are_whole_whatever_becomes_of_the_transcript() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 4).await;
    journal.put(vec![change(&run, finish())]).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 13).await;
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(journal.history(&run).await.unwrap().len(), 13);

    let lines: Vec<&str> = whole.lines().collect();
    let without = |gone: &dyn Fn(usize, &str) -> bool| {
        let kept: Vec<&str> = lines
            .iter()
            .enumerate()
            .filter(|(place, line)| !gone(*place, line))
            .map(|(_, line)| *line)
            .collect();
        kept.join("\n") + "\n"
    };
    let cases = [
        ("cut short", whole[..whole.len() / 2].to_owned()),
        (
            "last line gone",
            without(&|place, _| place == lines.len() - 1),
        ),
        ("a line spliced out", without(&|place, _| place == 3)),
        (
            "no checkpoints",
            without(&|_, line| line.contains("\"checkpoint\"")),
        ),
        (
            "a value changed",
            whole.replacen("tool:rye/core/echo", "tool:rye/core/evil", 1),
        ),
        ("empty", String::new()),
    ];
    for (what, text) in cases {
        fs::write(&path, text).unwrap();
        assert_eq!(journal.history(&run).await.unwrap().len(), 13, "{what}");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(journal.history(&run).await.unwrap().len(), 13);
    let pipe = nix::sys::stat::Mode::from_bits_truncate(0o600);
    nix::unistd::mkfifo(&path, pipe).unwrap();
    assert_eq!(journal.history(&run).await.unwrap().len(), 13);
}

#[tokio::test]
async fn state_page_and_thread_file_tell_the_end_and_are_signed() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    journal.put(vec![change(&run, finish())]).await;
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
async fn a_project_that_is_gone_delays_its_files_and_not_its_run() {
    let rig = Rig::new();
    let journal = rig.open().await;
    fs::remove_dir(rig.ai()).unwrap();
    let run = journal.put_run(&rig, "run-a", 3).await;
    journal.put(vec![change(&run, finish())]).await;
    assert_eq!(journal.history(&run).await.unwrap().len(), 11);
    fs::create_dir(rig.ai()).unwrap();
    let text = transcript(&rig.transcript_path(&run), 11).await;
    assert_eq!(check_transcript(&run, &text).len(), 11);
}

#[tokio::test]
async fn a_link_in_the_project_is_not_followed() {
    let rig = Rig::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), rig.ai().join("state")).unwrap();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 1).await;
    journal.put(vec![change(&run, finish())]).await;
    journal.ended(&run).await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
