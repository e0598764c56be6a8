use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rye_core::id::{Epoch, Lsn, Seq};
use rye_core::model::{Event, RunEvent, Status, SuspendReason, Suspension};
use serde_json::json;
use tokio::sync::oneshot;

use crate::Journal;
use crate::backlog::{COMMITS, NOTES};
use crate::error::Error;
use crate::faults::hooks::{SEALER, Sync};
use crate::log::Storage;
use crate::options::Options;
use crate::testing::*;
use crate::watermark::Failure;
use rye_core::state::RefusalReason;

#[tokio::test]
async fn a_commit_applies_all_of_its_events_or_none() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let a = journal.put_run(&rig, "run-a", 0).await;
    let b = id("run-b");
    let mixed = vec![
        rig.create(&b),
        change(&a, completed(1, json!(1))),
        change(&a, completed(2, json!(2))),
        change(&a, Event::Run(RunEvent::started(Epoch(9)))),
        // Refused, because the run has not begun.
        change(&b, completed(1, json!(1))),
    ];
    let refused = refusal(journal.commit(mixed).await);
    assert_eq!((refused.change, &refused.run), (4, &b));
    assert!(matches!(refused.why, RefusalReason::Illegal(_)));
    assert_eq!(journal.run(&b).await.unwrap(), None);
    assert_eq!(journal.record(&a).await.steps(), 0);

    journal
        .put(vec![rig.create(&b), change(&b, finish())])
        .await;
    assert_eq!(journal.record(&b).await.status(), Status::Completed);
    let refused = refusal(journal.commit(vec![rig.create(&b)]).await);
    assert_eq!(refused.why, RefusalReason::Exists);
}

#[tokio::test]
async fn event_is_shown_only_after_sync() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 1).await;
    let shown = journal.history(&run).await.unwrap();
    let mut feed = journal.subscribe(&run, Seq(7)).await.unwrap();

    rig.faults.inner.sync(Sync::Hangs);
    let ticket = journal.commit(turn(&run, 2)).await.unwrap().ticket;
    let soon = Duration::from_millis(50);
    assert!(
        tokio::time::timeout(soon, journal.durable(ticket))
            .await
            .is_err()
    );
    assert!(
        tokio::time::timeout(soon, journal.run(&run)).await.is_err(),
        "a read showed what is not durable"
    );
    assert!(tokio::time::timeout(soon, feed.next()).await.is_err());
    assert_eq!(journal.history(&run).await.unwrap(), shown);

    rig.faults.inner.sync(Sync::Works);
    journal.durable(ticket).await.unwrap();
    assert_eq!(feed.next().await.unwrap().unwrap().seq, Seq(7));
    assert_eq!(journal.record(&run).await.steps(), 2);
}

/// True if the log holds `text`, synced or not.
fn is_written(rig: &Rig, text: &str) -> bool {
    let files = fs::read_dir(rig.state().join("log")).unwrap();
    // A segment that is no longer needed may be removed during the search.
    files
        .filter_map(|file| fs::read(file.ok()?.path()).ok())
        .any(|bytes| String::from_utf8_lossy(&bytes).contains(text))
}

#[tokio::test]
async fn process_identity_is_written_immediately_and_shares_next_sync() {
    // Short segments are searched quickly.
    let rig = Rig::with_segments_of(64 << 10);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let hooks = &rig.faults.inner;
    let mut step = 0;
    // Repeated if the machine was so slow that the delay ended between the two.
    eventually(async || {
        step += 1;
        let before = hooks.syncs();
        let name = format!("boot of step {step}");
        journal.note(&run, process_started(step, &name)).unwrap();
        eventually(async || is_written(&rig, &name).then_some(())).await;
        let ticket = journal.commit(turn(&run, step)).await.unwrap().ticket;
        journal.durable(ticket).await.unwrap();
        (hooks.syncs() == before + 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn process_identity_is_synced_within_linger() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let ticket = journal
        .note(&run, process_started(1, "boot"))
        .unwrap()
        .ticket;
    let patience = Duration::from_mins(1);
    let durable = tokio::time::timeout(patience, journal.durable(ticket)).await;
    durable.expect("it is synced without company").unwrap();
}

#[tokio::test]
async fn a_failed_sync_is_final() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    rig.faults.inner.sync(Sync::Fails);
    let ticket = journal.commit(turn(&run, 1)).await.unwrap().ticket;
    assert!(matches!(
        journal.durable(ticket).await,
        Err(Error::Failed(Failure::Write(_)))
    ));
    assert!(matches!(journal.failed().await, Failure::Write(_)));
    rig.faults.inner.sync(Sync::Works);
    assert!(matches!(
        journal.commit(turn(&run, 2)).await,
        Err(Error::Failed(_))
    ));
    assert!(matches!(journal.run(&run).await, Err(Error::Failed(_))));
}

#[tokio::test]
async fn full_disk_refuses_new_work_but_allows_endings() {
    let rig = Rig::with_segments_of(4096);
    let journal = rig.open().await;
    let (a, b) = (
        journal.put_run(&rig, "run-a", 0).await,
        journal.put_run(&rig, "run-b", 0).await,
    );
    let mut storage = journal.storage();
    rig.faults.inner.full(true);
    let mut step = 1;
    while *storage.borrow_and_update() == Storage::Ok {
        match journal.commit(turn(&a, step)).await {
            Ok(committed) => {
                journal.durable(committed.ticket).await.unwrap();
                step += 1;
            }
            Err(error) if error.is_out_of_space() => break,
            Err(other) => panic!("{other}"),
        }
    }
    let refused = vec![rig.create(&id("run-c"))];
    let refused = refusal(journal.commit(refused).await);
    assert_eq!((refused.change, refused.why), (0, RefusalReason::Full));
    // The end of the step could be committed, but the start of the next one is refused.
    let refused = refusal(journal.commit(turn(&a, step)).await);
    assert_eq!((refused.change, refused.why), (1, RefusalReason::Full));
    let suspended = Event::Run(RunEvent::RunSuspended(Suspension::new(
        SuspendReason::Storage,
    )));
    journal
        .put(vec![
            change(&a, completed(step, json!(0))),
            change(&a, suspended),
        ])
        .await;
    journal.put(vec![change(&b, finish())]).await;

    rig.faults.inner.full(false);
    storage
        .wait_for(|storage| *storage == Storage::Ok)
        .await
        .unwrap();
    let epoch = journal.epoch();
    journal
        .put(vec![
            rig.create(&id("run-c")),
            change(&a, Event::Run(RunEvent::resumed(epoch))),
        ])
        .await;
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(journal.record(&a).await.steps(), step);
    assert_eq!(journal.record(&b).await.status(), Status::Completed);
}

#[tokio::test]
async fn a_start_on_a_full_disk_continues_the_last_segment_in_place() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    journal.put(turn(&run, 1)).await;
    drop(journal);
    for entry in fs::read_dir(rig.state().join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("spare-") {
            fs::remove_file(path).unwrap();
        }
    }
    rig.faults.inner.full(true);
    for life in 0..2 {
        let journal = rig.open().await;
        assert_eq!(journal.record(&run).await.steps(), 1, "{life}");
        drop(journal);
    }
    rig.faults.inner.full(false);
    let journal = rig.open().await;
    journal.put(turn(&run, 2)).await;
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(journal.record(&run).await.steps(), 2);
}

#[tokio::test]
async fn a_frame_larger_than_a_segment_gets_one_of_its_own() {
    let rig = Rig::with_segments_of(4096);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let big = json!("x".repeat(20_000));
    journal
        .put(vec![
            change(&run, completed(1, big.clone())),
            change(&run, started(2)),
        ])
        .await;
    journal.put(turn(&run, 2)).await;
    drop(journal);
    let journal = rig.open().await;
    let lines = journal.history(&run).await.unwrap();
    let found = lines
        .iter()
        .find(|line| payload(line)["assigned"]["last"] == big);
    assert!(found.is_some());
}

#[tokio::test]
async fn long_payloads_round_trip_through_objects() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let long = json!("y".repeat(300_000));
    journal
        .put(vec![change(&run, completed(1, long.clone()))])
        .await;
    let line = journal.history(&run).await.unwrap().pop().unwrap();
    assert!(payload(&line)["bytes"].as_u64().unwrap() > 300_000);
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(
        journal
            .record(&run)
            .await
            .vars()
            .unwrap()
            .get("last")
            .cloned()
            .unwrap(),
        long
    );
    assert_eq!(journal.history(&run).await.unwrap().pop().unwrap(), line);
    drop(journal);

    fs::remove_dir_all(rig.state().join("objects")).unwrap();
    let before = image(&rig.state().join("log"));
    assert!(matches!(
        rig.try_open().await,
        Err(Error::Unreadable { .. })
    ));
    assert_eq!(image(&rig.state().join("log")), before);
}

#[tokio::test]
async fn positions_are_dense_and_tickets_are_in_order() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let mut last = Lsn(1);
    for number in 0..20 {
        let run = id(&format!("run-{number}"));
        let ticket = journal.commit(vec![rig.create(&run)]).await.unwrap().ticket;
        assert_eq!(ticket.lsn, last.next());
        last = ticket.lsn;
    }
    journal
        .durable(crate::sequencer::Ticket { lsn: last })
        .await
        .unwrap();
}

#[tokio::test]
async fn refused_commit_leaves_no_object() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    let long = json!("y".repeat(300_000));
    let resumed = Event::Run(RunEvent::resumed(journal.epoch()));
    let changes = vec![change(&run, completed(1, long)), change(&run, resumed)];
    assert_eq!(refusal(journal.commit(changes).await).change, 1);
    assert!(!rig.state().join("objects").exists());
}

#[tokio::test]
async fn committed_record_equals_recovered_record() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let (a, b) = (id("run-a"), id("run-b"));
    let mut changes = vec![rig.create(&a)];
    changes.extend(begin(&a));
    changes.push(rig.create(&b));
    let committed = journal.commit(changes).await.unwrap();
    journal.durable(committed.ticket).await.unwrap();
    for run in [&a, &b] {
        assert_eq!(committed.run(run), journal.snapshot(run).as_ref());
    }
    assert_eq!(committed.run(&id("run-c")), None);
    drop(journal);
    let (journal, recovered) = rig.try_open().await.unwrap();
    for run in &recovered.live {
        assert_eq!(committed.run(&run.id), Some(run));
    }
    assert_eq!(recovered.live.len(), 2);
    drop(journal);
}

#[tokio::test]
async fn hanging_disk_delays_commits_but_not_notes() {
    let rig = Rig::with_segments_of(64 << 20);
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 0).await;
    rig.faults.inner.sync(Sync::Hangs);
    // The publisher has taken at most one of them.
    for number in 0..COMMITS {
        journal.commit(vec![emitted(&run, number)]).await.unwrap();
    }
    let soon = Duration::from_millis(50);
    let mut held_up = 0;
    let late = loop {
        let mut late = Box::pin(journal.commit(vec![emitted(&run, COMMITS)]));
        match tokio::time::timeout(soon, &mut late).await {
            Ok(committed) => drop(committed.unwrap()),
            Err(_) => break late,
        }
        held_up += 1;
        assert!(held_up <= 1, "nothing holds up commits");
    };
    for number in 0..NOTES {
        let event = process_started(1, &format!("boot {number}"));
        journal.note(&run, event).unwrap();
    }
    let one_more = journal.note(&run, process_started(1, "boot"));
    assert!(matches!(one_more, Err(Error::DiskOverloaded)));
    // Waiting commits do not block a caller that reads or ends a run.
    assert!(journal.snapshot(&run).is_some());
    rig.faults.inner.sync(Sync::Works);
    let committed = late.await.unwrap();
    journal.published(committed.ticket).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_commits_to_one_run_are_atomic_and_ordered() {
    const EACH: usize = 200;
    let rig = Rig::new();
    let journal = Arc::new(rig.open().await);
    let run = journal.put_run(&rig, "run-a", 0).await;
    let other = journal.put_run(&rig, "run-b", 0).await;
    let before = journal.record(&run).await.seq;
    let mut scope = rye_host::task::Scope::new();
    for writer in 0..4 {
        let journal = Arc::clone(&journal);
        let (run, other) = (run.clone(), other.clone());
        scope.spawn("writer", move |_| async move {
            for number in 0..EACH {
                let number = writer * EACH + number;
                let changes = vec![
                    emitted(&run, number),
                    emitted(&other, number),
                    emitted(&run, number),
                ];
                let committed = journal.commit(changes).await.unwrap();
                journal.durable(committed.ticket).await.unwrap();
            }
        });
    }
    while let Some(ended) = scope.next_ended().await {
        assert_eq!(ended.end, rye_host::task::End::Returned);
    }
    let history = journal.history(&run).await.unwrap();
    let lines: Vec<_> = history.iter().filter(|line| line.seq > before).collect();
    assert_eq!(lines.len(), 4 * EACH * 2);
    let mut numbers = std::collections::BTreeSet::new();
    for (pair, seq) in lines.chunks(2).zip((before.0 + 1..).step_by(2)) {
        assert_eq!((pair[0].seq, pair[1].seq), (Seq(seq), Seq(seq + 1)));
        assert_eq!(pair[0].lsn, pair[1].lsn, "a commit was torn");
        assert_eq!(pair[0].timestamp, pair[1].timestamp);
        assert_eq!(pair[0].payload, pair[1].payload);
        assert!(numbers.insert(payload(pair[0])["content"].as_u64()));
    }
    assert!(lines.windows(2).all(|pair| pair[0].lsn <= pair[1].lsn));
    assert!(
        lines
            .windows(2)
            .all(|pair| pair[0].timestamp <= pair[1].timestamp)
    );
}

#[tokio::test]
async fn run_that_ends_while_history_is_sealed_has_its_record_there() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let run = journal.put_run(&rig, "run-a", 1).await;
    // The sealer hangs between its first take of ended runs and its read of the published position.
    rig.faults.inner.hang(SEALER);
    let (caller, sealed) = oneshot::channel();
    let inbox = &journal.sealer;
    inbox.post(|inbox| inbox.waiting.push(caller));
    eventually(async || (rig.faults.inner.hung() > 0).then_some(())).await;
    let committed = journal.commit(vec![change(&run, finish())]).await.unwrap();
    journal.published(committed.ticket).await.unwrap();
    rig.faults.inner.release();
    assert!(sealed.await.unwrap());
    assert!(
        journal.sequencer.stream(&run).is_none(),
        "it has left memory"
    );
    assert_eq!(journal.record(&run).await.id, run);
}

#[tokio::test]
async fn storage_is_full_while_history_cannot_be_written_and_the_log_holds_many_segments() {
    let rig = Rig::new();
    let options = Options {
        segment_bytes: 4 << 10,
        ..rig.options()
    };
    let (journal, _) = Journal::open_with(options, rig.faults.clone())
        .await
        .unwrap();
    let (history, away) = (rig.state().join("history"), rig.state().join("away"));
    fs::rename(&history, &away).unwrap();
    fs::write(&history, "no directory").unwrap();
    let mut storage = journal.storage();
    let run = journal.put_run(&rig, "run-a", 0).await;
    let mut steps = 1;
    while *storage.borrow_and_update() == Storage::Ok {
        // The last commit may be refused.
        let committed = journal.commit(turn(&run, steps)).await;
        if let Ok(committed) = committed {
            journal.durable(committed.ticket).await.unwrap();
        }
        steps += 1;
        assert!(steps < 10_000, "nothing bounds the log");
    }
    assert!(journal.log.segments() > 8);
    let refused = refusal(journal.commit(vec![rig.create(&id("run-b"))]).await);
    assert_eq!(refused.why, RefusalReason::Full);
    fs::remove_file(&history).unwrap();
    fs::rename(&away, &history).unwrap();
    eventually(async || (*journal.storage().borrow() == Storage::Ok).then_some(())).await;
    journal.put(vec![rig.create(&id("run-b"))]).await;
}
