//! Reading a transcript: the lines are those that were written, and differences are reported.

use std::fs;

use rye_core::id::RunId;
use serde_json::json;

use crate::Journal;
use crate::testing::{Rig, completed, eventually, finish};
use crate::{Extract, Piece, Verdict, WrittenLine};
use rye_core::state::Change;

/// Reads all lines and the verdict.
pub(super) async fn read(
    journal: &Journal,
    run: &RunId,
    extract: Extract,
) -> (Vec<WrittenLine>, Verdict) {
    let mut reader = journal.transcript(run, extract).await.unwrap();
    let mut lines = Vec::new();
    loop {
        match reader.next().await.expect("a verdict comes last").unwrap() {
            Piece::Lines(more) => lines.extend(more),
            Piece::End(verdict) => {
                assert!(reader.next().await.is_none());
                return (lines, verdict);
            }
        }
    }
}

pub(super) const ALL: Extract = Extract {
    tail: None,
    verify: true,
};

fn text(lines: &[WrittenLine]) -> String {
    let mut text = String::new();
    for line in lines {
        text.extend([line.text.as_str(), "\n"]);
    }
    text
}

/// Writes the transcript of a run into its project, like exports. Returns it.
async fn exported(journal: &Journal, rig: &Rig, run: &RunId) -> String {
    let extract = Extract {
        verify: false,
        ..ALL
    };
    let (lines, _) = read(journal, run, extract).await;
    let (path, whole) = (rig.transcript_path(run), text(&lines));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &whole).unwrap();
    whole
}

#[tokio::test]
async fn transcript_is_rendered_without_its_file() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 20).await;
    let path = rig.transcript_path(&run);
    let whole = exported(&journal, &rig, &run).await;
    let (lines, verdict) = read(&journal, &run, ALL).await;
    assert_eq!(text(&lines), whole);
    assert_eq!((verdict.problem.clone(), verdict.events), (None, 44));
    assert_eq!(usize::try_from(verdict.bytes).unwrap(), whole.len());
    assert_eq!(verdict.checkpoints, 20);
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let (lines, again) = read(&journal, &run, ALL).await;
    assert_eq!(text(&lines), whole, "the log has the rest");
    assert_eq!(again, verdict);
    for (tail, events) in [(0, 0), (1, 1), (3, 3), (44, 44), (100, 44)] {
        let tail = Some(tail);
        let (lines, again) = read(&journal, &run, Extract { tail, ..ALL }).await;
        let all = text(&lines);
        assert!(whole.ends_with(&all), "{tail:?}");
        let checkpoints = all.matches(r#""event_type":"checkpoint""#).count();
        assert_eq!(lines.len() - checkpoints, events, "{tail:?}");
        assert_eq!(again, verdict, "all of it is checked");
    }
}

/// Creates a run that has ended and left memory.
async fn ended(rig: &Rig) -> (Journal, RunId) {
    let journal = rig.open().await;
    let run = journal.put_run(rig, "run-a", 3).await;
    let long = json!("x".repeat(100_000));
    let end = [completed(4, long), finish()];
    let changes = end.map(|event| Change::event(&run, event));
    journal.put(changes.into()).await;
    eventually(async || journal.sequencer.stream(&run).is_none().then_some(())).await;
    (journal, run)
}

#[tokio::test]
async fn verify_reports_differing_file() {
    let rig = Rig::new();
    let (journal, run) = ended(&rig).await;
    let path = rig.transcript_path(&run);
    let whole = exported(&journal, &rig, &run).await;
    let (lines, verdict) = read(&journal, &run, ALL).await;
    assert_eq!((text(&lines), verdict.problem), (whole.clone(), None));
    let long = lines.iter().find_map(|line| line.payload.as_deref());
    assert!(
        long.unwrap().contains("xxxx"),
        "a long payload is told whole"
    );

    let fifth = whole.split_inclusive('\n').take(4).map(str::len).sum();
    let changed = whole.replacen("\"start_node\":\"n\"", "\"start_node\":\"m\"", 1);
    let added = format!("{whole}{{}}\n");
    let harm: [(&str, Option<&str>, Option<&str>); 5] = [
        ("changed", Some(&changed), Some("is not what was written")),
        ("added", Some(&added), Some("more than was written")),
        // An export may be late, or removed.
        ("cut", Some(&whole[..fifth]), None),
        ("torn", Some(&whole[..fifth + 9]), None),
        ("removed", None, None),
    ];
    for (what, file, told) in harm {
        match file {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let (lines, verdict) = read(
            &journal,
            &run,
            Extract {
                verify: false,
                ..ALL
            },
        )
        .await;
        assert_eq!(
            (text(&lines), verdict.problem),
            (whole.clone(), None),
            "{what}"
        );
        let (lines, verdict) = read(&journal, &run, ALL).await;
        let Some(told) = told else {
            assert_eq!(verdict.problem, None, "{what}");
            continue;
        };
        let problem = verdict.problem.unwrap_or_default();
        assert!(problem.contains(told), "{what}: {problem}");
        assert!(problem.contains("transcript.jsonl"), "{problem}");
        assert!(whole.starts_with(&text(&lines)), "{what}");
    }
}

#[tokio::test]
async fn verify_reports_missing_long_payload() {
    let rig = Rig::new();
    let (journal, run) = ended(&rig).await;
    fs::remove_dir_all(rig.state().join("objects")).unwrap();
    for (extract, is_found) in [
        (ALL, true),
        (
            Extract {
                tail: Some(1),
                verify: false,
            },
            false,
        ),
        (
            Extract {
                tail: Some(1),
                verify: true,
            },
            true,
        ),
    ] {
        let (_lines, verdict) = read(&journal, &run, extract).await;
        let problem = verdict.problem.unwrap_or_default();
        assert_eq!(
            problem.contains("payload"),
            is_found,
            "{extract:?}: {problem}"
        );
    }
}

#[tokio::test]
async fn transcript_reader_is_bounded_by_memory_limit() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 20).await;
    let memory = journal.memory();
    let before = memory.taken();
    let mut reader = journal.transcript(&run, ALL).await.unwrap();
    let first = reader.next().await.unwrap().unwrap();
    assert!(matches!(first, Piece::Lines(_)));
    assert!(memory.taken() > before, "{before}");
    drop(reader);
    assert_eq!(memory.taken(), before);

    memory.count(0, memory.most() - before);
    let refused = match journal.transcript(&run, ALL).await {
        Ok(mut reader) => reader.next().await.unwrap().map(drop),
        Err(error) => Err(error),
    };
    assert!(
        matches!(refused, Err(crate::error::Error::MemoryFull { .. })),
        "{refused:?}"
    );
    memory.count(memory.most() - before, 0);
    let (lines, verdict) = read(&journal, &run, ALL).await;
    assert_eq!((lines.is_empty(), verdict.problem), (false, None));
}
