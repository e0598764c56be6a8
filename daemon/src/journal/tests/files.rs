use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::Seq;
use rye_core::model::Spec;
use rye_core::model::{Event, RunEvent};
use serde_json::{Value, json};

use super::super::{Change, Error, Journal};
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
async fn the_log_is_not_shortened_for_a_transcript_that_was_taken_away() {
    let rig = Rig::with_segments_of(256 * 1024);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 20).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 44).await;
    remove(path.parent().unwrap());
    // Nothing is appended to it any more: only the checkpoint looks.
    journal.close().await.unwrap();
    drop(journal);
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    let journal = rig.open().await;
    assert_eq!(journal.history(&run).await.unwrap().len(), 44);
}

#[tokio::test]
async fn what_neither_file_nor_log_holds_is_lost_and_the_place_is_told() {
    for kept in [0, 1, 2] {
        let rig = Rig::new();
        let journal = rig.open().await;
        let run = journal.put_run(&rig, "run-a", 20).await;
        let path = rig.transcript_path(&run);
        let whole = transcript(&path, 44).await;
        journal.close().await.unwrap();
        drop(journal);
        // The log holds none of this any more.
        let journal = rig.open().await;
        let there = &whole[..whole.len() * kept / 3];
        if kept == 0 {
            remove(path.parent().unwrap());
        } else {
            let part = rig.root.path().join("part");
            fs::write(&part, there).unwrap();
            fs::rename(&part, &path).unwrap();
        }
        for step in 21..=23 {
            journal.put(turn(&run, step)).await;
        }
        let text = eventually(async || {
            let text = fs::read_to_string(&path).ok()?;
            text.contains(r#""step":24,"#).then_some(text)
        })
        .await;
        // What was still there is kept, and what came later stands where it belongs.
        let lines = there.rfind('\n').map_or(0, |end| end + 1);
        assert_eq!(text[..lines], there[..lines]);
        assert!(text[lines..whole.len()].bytes().all(|byte| byte == 0));
        assert!(text[whole.len()..].starts_with("{\"seq\":45,"));

        let mut later = journal.subscribe(&run, Seq(45)).await.unwrap();
        assert_eq!(later.next().await.unwrap().unwrap().seq, Seq(45));
        let assert_told = async |journal: &Journal| {
            let lost = journal.history(&run).await.unwrap_err();
            assert_eq!(lost.kind(), ErrorKind::DataLoss);
            let told = rye_core::error::with_sources(&lost);
            let place = format!("byte {lines} ");
            assert!(
                told.contains(&place) && told.contains(path.to_str().unwrap()),
                "{told}"
            );
            assert!(matches!(
                journal.steps(&run).await,
                Err(Error::DataLoss { .. })
            ));
        };
        assert_told(&journal).await;
        journal.put(vec![change(&run, finish())]).await;
        journal.close().await.unwrap();
        drop(journal);
        assert_told(&rig.open().await).await;
    }
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
async fn a_changed_transcript_is_data_loss_once_the_log_is_gone() {
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
        assert!(
            matches!(journal.history(&run).await, Err(Error::DataLoss { .. })),
            "{what}"
        );
        assert!(journal.subscribe(&run, Seq(1)).await.is_err(), "{what}");
    }
    fs::remove_file(&path).unwrap();
    assert!(journal.history(&run).await.is_err());
    let pipe = nix::sys::stat::Mode::from_bits_truncate(0o600);
    nix::unistd::mkfifo(&path, pipe).unwrap();
    assert!(journal.history(&run).await.is_err());
    fs::remove_file(&path).unwrap();
    fs::write(&path, whole).unwrap();
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

#[tokio::test]
async fn the_log_is_kept_until_a_transcript_that_could_not_be_synced_is_on_disk() {
    let rig = Rig::with_segments_of(16 << 10);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 2).await;
    let path = rig.transcript_path(&run);
    let whole = transcript(&path, 8).await;
    // The directory of a new transcript is synced by name, and the name is somebody else's.
    let (threads, away) = (rig.ai().join("state/threads"), rig.ai().join("away"));
    fs::rename(&threads, &away).unwrap();
    fs::write(&threads, "").unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let other = id("run-b");
    let spec = Spec {
        files: elsewhere.path().display().to_string(),
        ..rig.spec(&other)
    };
    let created = Change::create(&other, Arc::new(spec));
    journal.put([vec![created], begin(&other)].concat()).await;
    let others = (elsewhere.path().join("state/threads/run-b")).join("transcript.jsonl");
    let mut steps = 1_u32..;
    let mut turn_other = async || {
        let step = steps.next().unwrap();
        let text = json!("y".repeat(6000));
        let events = [completed(step, text), started(step + 1)];
        let changes = events.map(|event| change(&other, event));
        journal.put(changes.to_vec()).await;
        eventually(async || {
            let text = fs::read_to_string(&others).ok()?;
            text.contains(&format!("\"step\":{}", step + 1))
                .then_some(())
        })
        .await;
    };
    // At each new segment what is on disk may leave the log; of the first run nothing is.
    for _ in 0..12 {
        turn_other().await;
    }
    let segments = || journal.shared.log.segments();
    assert!((5..8).contains(&segments()), "{}", segments());

    fs::remove_file(&threads).unwrap();
    fs::rename(&away, &threads).unwrap();
    for _ in 0..4 {
        turn_other().await;
    }
    eventually(async || (segments() <= 3).then_some(())).await;
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
}
