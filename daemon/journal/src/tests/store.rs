use std::fs;
use std::path::Path;
use std::sync::Arc;

use rye_core::id::{Epoch, RunId};
use rye_core::model::event::{CancelRequested, ToolCompleted};
use rye_core::model::{Event, RunEvent, Spec, Status, Task};
use serde_json::json;

use crate::Filter;
use crate::Journal;
use crate::error::Error;
use crate::index::IndexError;
use crate::index::{IndexState, KeyOwner};
use crate::sequencer::SLICE;
use crate::testing::*;
use rye_core::state::{Change, RefusalReason};

/// Ends `count` runs, each with a start key, and waits until they have left memory.
async fn end_runs(rig: &Rig, journal: &Journal, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for number in 0..count {
        let run = id(&format!("run-{number}"));
        // The parent is one run for even numbers, and another for odd ones.
        let parent = ["run-live", "run-live2"][number % 2];
        let spec = Arc::new(Spec {
            parent: Some(id(parent)),
            start_key: Some(format!("key-{number}")),
            ..rig.spec(&run)
        });
        let mut changes = vec![Change::create(&run, spec)];
        changes.extend(begin(&run));
        changes.push(change(&run, finish()));
        journal.put(changes).await;
        runs.push(run);
    }
    for run in &runs {
        eventually(async || journal.sequencer.stream(run).is_none().then_some(())).await;
    }
    runs
}

async fn assert_found(journal: &Journal, runs: &[RunId]) {
    for (number, run) in runs.iter().enumerate() {
        let record = journal.record(run).await;
        assert_eq!(record.status(), Status::Completed);
        assert_eq!(journal.history(run).await.unwrap().len(), 5);
        let key = format!("key-{number}");
        assert_eq!(
            journal.by_start_key("uid:0", &key).await.unwrap(),
            Some(KeyOwner::Run(run.clone()))
        );
    }
    let listed = journal.list(&Filter::default(), None, 100).await.unwrap();
    let ids: Vec<&RunId> = listed.runs.iter().map(|run| &run.id).collect();
    assert_eq!(ids, runs.iter().rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn ended_runs_leave_memory_and_stay_findable() {
    let rig = Rig::with_segments_of(8 * 1024);
    let journal = rig.open().await;
    let runs = end_runs(&rig, &journal, 20).await;
    assert_found(&journal, &runs).await;
    assert_eq!(journal.by_start_key("uid:1", "key-1").await.unwrap(), None);
    assert_eq!(journal.run(&id("nobody")).await.unwrap(), None);
    drop(journal);
    let journal = rig.open().await;
    assert_found(&journal, &runs).await;
    journal.close().await.unwrap();
    drop(journal);
    assert_found(&rig.open().await, &runs).await;
}

#[tokio::test]
async fn missing_or_broken_index_is_rebuilt() {
    let rig = Rig::with_segments_of(8 * 1024);
    let journal = rig.open().await;
    let runs = end_runs(&rig, &journal, 12).await;
    drop(journal);
    let index = rig.state().join("index");
    let older = image(&index);
    let damages: [(&str, &dyn Fn()); 5] = [
        ("of an older layout", &|| {
            let db = sled::open(&index).unwrap();
            let new = db.scan_prefix(b"p/").keys().map(Result::unwrap);
            new.for_each(|key| assert!(db.remove(key).unwrap().is_some()));
            let applied = db.remove(b"applied/6").unwrap().unwrap();
            db.insert(b"applied", applied).unwrap();
            db.flush().unwrap();
        }),
        ("gone", &|| fs::remove_dir_all(&index).unwrap()),
        ("empty", &|| {
            fs::remove_dir_all(&index).unwrap();
            fs::create_dir(&index).unwrap();
        }),
        ("emptied files", &|| {
            for (path, _) in &older {
                fs::write(path, b"").unwrap();
            }
        }),
        ("garbage", &|| {
            for (path, content) in &older {
                fs::write(path, vec![0x5a; content.len()]).unwrap();
            }
        }),
    ];
    for (what, damage) in damages {
        damage();
        let journal = rig.open().await;
        tracing::info!(what);
        assert_found(&journal, &runs).await;
        let below = Filter {
            parent: Some(id("run-live")),
            ..Filter::default()
        };
        let below = journal.list(&below, None, 50).await.unwrap();
        assert_eq!(below.runs.len(), 6, "{what}");
        journal.close().await.unwrap();
    }
}

/// Returns `content` with half of its pages zeroed, as if they had never reached the disk. `seed` selects them.
fn without_pages(content: &[u8], seed: u64) -> Vec<u8> {
    let mut content = content.to_vec();
    let mut random = seed;
    for page in content.chunks_mut(4096) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if random >> 63 == 1 {
            page.fill(0);
        }
    }
    content
}

#[tokio::test]
async fn index_with_lost_pages_is_rebuilt() {
    let rig = Rig::with_segments_of(8 * 1024);
    let journal = rig.open().await;
    let runs = end_runs(&rig, &journal, 12).await;
    drop(journal);
    let older = image(&rig.state().join("index"));
    for seed in 1..=12 {
        println!("seed {seed}");
        for (path, content) in &older {
            fs::write(path, without_pages(content, seed)).unwrap();
        }
        let journal = rig.open().await;
        assert_found(&journal, &runs).await;
        journal.close().await.unwrap();
    }
}

/// Makes the sealer open the index again.
fn reopen_index(journal: &Journal) {
    journal.runs.index.send_replace(IndexState::Opening);
    journal.sealer.post(|inbox| inbox.suspect = true);
}

#[tokio::test]
async fn memory_index_serves_while_disk_index_fails() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let mut runs = end_runs(&rig, &journal, 3).await;
    let held = journal.memory().taken();
    rig.faults.inner.no_index(true);
    reopen_index(&journal);
    assert_found(&journal, &runs).await;
    assert_eq!(journal.run(&id("nobody")).await.unwrap(), None);
    assert_eq!(journal.by_start_key("uid:1", "key-1").await.unwrap(), None);
    journal.ended(&runs[1]).await.unwrap();
    let below = Filter {
        parent: Some(id("run-live")),
        ..Filter::default()
    };
    let first = journal.list(&below, None, 1).await.unwrap();
    assert_eq!(first.runs[0].id, runs[2]);
    let rest = journal.list(&below, first.next.as_deref(), 5);
    let rest = rest.await.unwrap();
    assert_eq!((rest.runs.len(), &rest.runs[0].id), (1, &runs[0]));
    // A run that ends in the meantime leaves memory and is found too.
    let late = id("run-3");
    let mut changes = vec![rig.create(&late)];
    changes.extend(begin(&late));
    changes.push(change(&late, finish()));
    journal.put(changes).await;
    eventually(async || journal.sequencer.stream(&late).is_none().then_some(())).await;
    assert!(journal.run(&late).await.unwrap().is_some());
    assert!(journal.memory().taken() > held, "it stands in memory");
    // The index on disk is brought up to date, and replaces the one in memory.
    rig.faults.inner.no_index(false);
    eventually(async || (journal.memory().taken() == held).then_some(())).await;
    runs.push(late);
    let listed = journal.list(&Filter::default(), None, 100).await.unwrap();
    let ids: Vec<&RunId> = listed.runs.iter().map(|run| &run.id).collect();
    assert_eq!(ids, runs.iter().rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn query_during_long_index_build_fails_with_reason() {
    let rig = Rig::new();
    let journal = rig.open().await;
    end_runs(&rig, &journal, 1).await;
    journal.runs.index.send_replace(IndexState::Opening);
    tokio::time::pause();
    let listed = journal.list(&Filter::default(), None, 10).await;
    tokio::time::resume();
    let Err(Error::Index(why)) = listed else {
        panic!("it was listed: {listed:?}")
    };
    assert!(matches!(*why, IndexError::Building), "{why}");
    // Live runs need no index.
    let live = Filter {
        statuses: vec![Status::Running],
        ..Filter::default()
    };
    assert_eq!(journal.list(&live, None, 10).await.unwrap().runs, []);
}

/// Bytes of the files below `dir`.
fn bytes_below(dir: &Path) -> usize {
    image(dir).iter().map(|(_, content)| content.len()).sum()
}

/// Ends a tool run with the output `text` and waits until it has left memory. Returns the growth of history and objects
/// in bytes.
async fn end_tool(rig: &Rig, journal: &Journal, name: &str, text: &str) -> (usize, usize) {
    let history = || bytes_below(&rig.state().join("history"));
    let objects = || {
        let objects = rig.state().join("objects");
        if objects.exists() {
            bytes_below(&objects)
        } else {
            0
        }
    };
    let before = (history(), objects());
    let run = id(name);
    let spec = Spec {
        task: Task::Tool,
        ..rig.spec(&run)
    };
    let completed = ToolCompleted {
        result: Arc::new(json!({"stdout": text})),
        error: None,
        unknown: false,
        elapsed_ms: 1,
    };
    journal
        .put(vec![
            Change::create(&run, Arc::new(spec)),
            change(&run, RunEvent::started(Epoch(1)).into()),
            change(&run, completed.into()),
        ])
        .await;
    eventually(async || journal.sequencer.stream(&run).is_none().then_some(())).await;
    let record = journal.record(&run).await;
    assert_eq!(record.output().unwrap()["stdout"], text);
    (history() - before.0, objects() - before.1)
}

#[tokio::test]
async fn tool_output_is_stored_once() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let (history, objects) = end_tool(&rig, &journal, "run-short", &"x".repeat(10_000)).await;
    assert!(history < 3_000, "it is compressed: {history}");
    assert_eq!(objects, 0);
    // The payload of its last event is an object too, as JSON, which takes six bytes for each of these characters.
    let control = "\u{1}".repeat(100_000);
    let (history, objects) = end_tool(&rig, &journal, "run-long", &control).await;
    assert!(history < 3_000, "{history}");
    assert!((700_000..701_000).contains(&objects), "{objects}");
    // A second run with the same output takes no more space.
    let (history, objects) = end_tool(&rig, &journal, "run-same", &control).await;
    assert!(history < 3_000, "{history}");
    assert_eq!(objects, 0);
}

#[tokio::test]
async fn truncated_history_loses_events_but_starts() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let live = journal.put_run(&rig, "run-live", 1).await;
    journal.close().await.unwrap();
    drop(journal);
    let files = image(&rig.state().join("history"));
    let (path, bytes) = files.last().unwrap();
    fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    let journal = rig.open().await;
    let events = journal.history(&live).await;
    assert!(matches!(events, Err(Error::DataLoss { .. })), "{events:?}");
    journal.put(turn(&live, 2)).await;
    let late = journal.put_run(&rig, "run-late", 1).await;
    journal.put(vec![change(&late, finish())]).await;
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(journal.history(&late).await.unwrap().len(), 7);
}

#[tokio::test]
async fn lists_are_filtered_and_come_in_pages() {
    let rig = Rig::new();
    let journal = rig.open().await;
    end_runs(&rig, &journal, 7).await;
    journal.put_run(&rig, "run-live", 1).await;
    let mut child = rig.spec(&id("run-child"));
    child.parent = Some(id("run-live"));
    child.project = "/elsewhere".into();
    journal
        .put(vec![Change::create(&id("run-child"), Arc::new(child))])
        .await;
    let names = async |filter: Filter, limit: usize| {
        let page = journal.list(&filter, None, limit).await.unwrap();
        assert!(page.runs.len() <= limit);
        let all = journal.list_all(&filter, limit).await.unwrap();
        assert_eq!(page.next.is_some(), page.runs.len() < all.len());
        let names = all.iter().map(|run| run.id.as_str().to_owned());
        names.collect::<Vec<_>>()
    };
    let all = [
        "run-child",
        "run-live",
        "run-6",
        "run-5",
        "run-4",
        "run-3",
        "run-2",
        "run-1",
        "run-0",
    ];
    for limit in [1, 2, 4, 9, 50] {
        assert_eq!(names(Filter::default(), limit).await, all);
    }
    let filter = Filter {
        statuses: vec![Status::Running, Status::Created],
        ..Filter::default()
    };
    assert_eq!(names(filter, 5).await, ["run-child", "run-live"]);
    let below = |parent: &str| Filter {
        parent: Some(id(parent)),
        ..Filter::default()
    };
    for limit in [1, 2, 5] {
        assert_eq!(
            names(below("run-live"), limit).await,
            ["run-child", "run-6", "run-4", "run-2", "run-0"]
        );
    }
    assert_eq!(
        names(below("run-live2"), 2).await,
        ["run-5", "run-3", "run-1"]
    );
    let filter = Filter {
        project: Some("/elsewhere".into()),
        ..Filter::default()
    };
    assert_eq!(names(filter, 5).await, ["run-child"]);
    let filter = Filter {
        principal: Some("uid:nobody".into()),
        ..Filter::default()
    };
    assert!(names(filter, 5).await.is_empty());
    let page = journal.list(&Filter::default(), Some("x"), 1).await;
    assert!(matches!(page, Err(Error::PageToken { .. })));
}

#[tokio::test]
async fn a_start_key_is_used_once() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let keyed = |name: &str| {
        let spec = Spec {
            start_key: Some("again".into()),
            ..rig.spec(&id(name))
        };
        Change::create(&id(name), Arc::new(spec))
    };
    journal.put(vec![keyed("run-a")]).await;
    let taken = RefusalReason::KeyTaken(id("run-a"));
    let refused = refusal(journal.commit(vec![keyed("run-b")]).await);
    assert_eq!(refused.why, taken);
    drop(journal);
    let journal = rig.open().await;
    let refused = refusal(journal.commit(vec![keyed("run-b")]).await);
    assert_eq!(refused.why, taken);
}

#[tokio::test]
async fn start_key_is_used_once_across_eviction() {
    let rig = Rig::new();
    let journal = rig.open().await;
    assert_eq!(journal.by_start_key("uid:0", "key-0").await.unwrap(), None);
    let runs = end_runs(&rig, &journal, 1).await;
    let spec = Spec {
        start_key: Some("key-0".into()),
        ..rig.spec(&id("run-late"))
    };
    let late = Change::create(&id("run-late"), Arc::new(spec));
    let refused = refusal(journal.commit(vec![late]).await);
    assert_eq!(refused.why, RefusalReason::KeyTaken(runs[0].clone()));
}

#[tokio::test]
async fn the_log_is_shortened_and_a_long_run_keeps_its_history() {
    let rig = Rig::with_segments_of(8 * 1024);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 200).await;
    let segments = || {
        fs::read_dir(rig.state().join("log"))
            .unwrap()
            .filter(|entry| {
                let path = entry.as_ref().unwrap().path();
                path.extension().is_some_and(|end| end == "seg")
            })
            .count()
    };
    eventually(async || (segments() <= 2).then_some(())).await;
    let lines = journal.history(&run).await.unwrap();
    let seqs: Vec<u64> = lines.iter().map(|line| line.seq.0).collect();
    assert_eq!(seqs, (1..=404).collect::<Vec<_>>());
    let before = journal.record(&run).await;
    drop(journal);
    let (journal, recovered) = rig.try_open().await.unwrap();
    assert_eq!(recovered.live, [before]);
    let again = journal.history(&run).await.unwrap();
    assert_eq!(again.len(), lines.len());
}

#[tokio::test]
async fn listing_finds_runs_of_all_slices() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let parent = journal.put_run(&rig, "run-parent", 0).await;
    let count = 2 * SLICE + 3;
    let mut names = Vec::new();
    for number in 0..count {
        let run = id(&format!("run-{number:04}"));
        let spec = Spec {
            // Every third run has no parent.
            parent: (number % 3 != 0).then(|| parent.clone()),
            ..rig.spec(&run)
        };
        let mut changes = vec![Change::create(&run, Arc::new(spec))];
        if number % 5 == 0 {
            let cause = "a test".to_owned();
            changes.push(change(&run, Event::from(CancelRequested { cause })));
        }
        journal.commit(changes).await.unwrap();
        names.push(run);
    }
    let all = journal.list_all(&Filter::default(), 100).await.unwrap();
    let listed: Vec<&RunId> = all.iter().map(|run| &run.id).collect();
    let newest_first: Vec<&RunId> = names.iter().rev().chain([&parent]).collect();
    assert_eq!(listed, newest_first);
    let children = journal.children(&parent);
    let children: Vec<&RunId> = children.iter().map(|run| &run.id).collect();
    let expected: Vec<&RunId> = (0..count)
        .rev()
        .filter(|number| number % 3 != 0)
        .map(|number| &names[number])
        .collect();
    assert_eq!(children, expected);
    let cancellable = journal.cancellable();
    let cancellable: Vec<&RunId> = cancellable.iter().map(|run| &run.id).collect();
    let expected: Vec<&RunId> = (0..count)
        .filter(|number| number % 5 != 0)
        .map(|number| &names[number])
        .chain([&parent])
        .collect();
    assert_eq!(cancellable, expected);
    assert_eq!(journal.active(), count + 1);
    // An ended child is no longer listed, wherever its record is.
    journal.put(vec![change(&names[1], finish())]).await;
    assert!(
        journal
            .children(&parent)
            .iter()
            .all(|run| run.id != names[1])
    );
    assert_eq!(journal.active(), count);
}
