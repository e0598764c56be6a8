//! Removal of ended runs: what is removed, kept and refused, and what a crash leaves.

use std::fs;
use std::sync::Arc;

use crate::history::Removal;
use rye_core::id::{Lsn, RunId};
use rye_core::model::Spec;

use crate::Filter;
use crate::Journal;
use crate::error::Error;
use crate::history::RemovedRun;
use crate::index::KeyOwner;
use crate::testing::*;
use crate::tests::accounts::{account, opened};
use crate::{Of, Read, Since, Spot, Until};
use rye_core::state::{Change, RefusalReason, Refused};

/// The changes that create and begin `name` with a start key.
fn keyed(rig: &Rig, name: &str) -> Vec<Change> {
    let spec = Spec {
        start_key: Some(format!("key-{name}")),
        chain_root: id(name),
        ..rig.spec(&id(name))
    };
    let created = Change::create(&id(name), Arc::new(spec));
    [vec![created], begin(&id(name))].concat()
}

/// Creates a run that has ended.
async fn ended(rig: &Rig, journal: &Journal, name: &str) -> RunId {
    journal.put(keyed(rig, name)).await;
    journal.put(vec![change(&id(name), finish())]).await;
    id(name)
}

/// Changes a spec so that it names another run.
type Naming = fn(RunId, Spec) -> Spec;

async fn remove(journal: &Journal, runs: &[RunId]) -> Vec<RunId> {
    let removed = journal.remove(runs, "uid:0").await.unwrap();
    removed.into_iter().map(|removed| removed.run).collect()
}

pub(super) fn why(removed: Result<Vec<RemovedRun>, Error>) -> RefusalReason {
    match removed {
        Err(Error::Refused(Refused { why, .. })) => why,
        other => panic!("{other:?}"),
    }
}

/// The runs whose events a reader of all runs gets.
async fn runs_of_all(journal: &Journal) -> Vec<RunId> {
    let of = Of::All(Box::new(|_| true));
    let since = Since::Spot(Spot {
        commit: Lsn(0),
        more: 0,
    });
    let mut cursor = journal.read(of, since, Until::Now).await.unwrap();
    let mut runs = Vec::new();
    while let Some(read) = cursor.next().await {
        if let Read::Event { run, .. } = read.unwrap()
            && !runs.contains(&run)
        {
            runs.push(run);
        }
    }
    runs
}

async fn assert_gone(journal: &Journal, run: &RunId) {
    assert_eq!(journal.run(run).await.unwrap(), None);
    let read = journal.read(Of::Run(run.clone()), Since::Begin, Until::Now);
    assert!(matches!(read.await, Err(Error::Unknown { .. })));
    let listed = journal.list(&Filter::default(), None, 100).await.unwrap();
    assert!(listed.runs.iter().all(|listed| listed.id != *run));
    assert!(!runs_of_all(journal).await.contains(run));
    let key = format!("key-{run}");
    let owner = journal.by_start_key("uid:0", &key).await.unwrap();
    assert!(matches!(owner, Some(KeyOwner::Removed(of, _)) if of == *run));
}

#[tokio::test]
async fn removed_run_is_absent_for_every_reader_in_this_life_and_the_next() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let (gone, kept) = (
        ended(&rig, &journal, "gone").await,
        ended(&rig, &journal, "kept").await,
    );
    let twice = [gone.clone(), gone.clone()];
    assert_eq!(remove(&journal, &twice).await, twice[..1]);
    assert_eq!(remove(&journal, std::slice::from_ref(&gone)).await, []);
    assert_gone(&journal, &gone).await;
    drop(journal);
    let journal = rig.open().await;
    assert_gone(&journal, &gone).await;
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    assert_gone(&journal, &gone).await;
    assert_eq!(journal.record(&kept).await.id, kept);
    assert_eq!(runs_of_all(&journal).await, [kept]);
}

#[tokio::test]
async fn run_that_has_not_ended_or_is_needed_by_one_is_not_removed() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let live = id("live");
    journal.put(keyed(&rig, "live")).await;
    let removed = journal.remove(std::slice::from_ref(&live), "uid:0").await;
    assert_eq!(why(removed), RefusalReason::Live);
    let names: [(&str, Naming); 3] = [
        ("parent", |of, spec| Spec {
            parent: Some(of),
            ..spec
        }),
        ("continues", |of, spec| Spec {
            continuation_of: Some(of),
            ..spec
        }),
        ("chain", |of, spec| Spec {
            chain_root: of,
            ..spec
        }),
    ];
    for (how, naming) in names {
        let needed = ended(&rig, &journal, &format!("needed-{how}")).await;
        let user = id(&format!("user-{how}"));
        let spec = Spec {
            chain_root: user.clone(),
            ..rig.spec(&user)
        };
        let created = Change::create(&user, Arc::new(naming(needed.clone(), spec)));
        journal.put([vec![created], begin(&user)].concat()).await;
        let removed = journal.remove(std::slice::from_ref(&needed), "uid:0").await;
        assert_eq!(why(removed), RefusalReason::Named(user.clone()), "{how}");
        assert!(journal.run(&needed).await.unwrap().is_some());
        journal.put(vec![change(&user, finish())]).await;
        assert_eq!(
            remove(&journal, std::slice::from_ref(&needed)).await,
            [needed]
        );
    }
}

#[tokio::test]
async fn run_that_names_a_removed_one_is_refused_also_after_a_restart() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended(&rig, &journal, "gone").await;
    let user = id("user");
    let spec = Spec {
        continuation_of: Some(gone.clone()),
        chain_root: gone.clone(),
        ..rig.spec(&user)
    };
    let created = Change::create(&user, Arc::new(spec));
    remove(&journal, std::slice::from_ref(&gone)).await;
    let refused = refusal(journal.commit(vec![created.clone()]).await);
    assert_eq!(refused.why, RefusalReason::Gone(gone.clone()));
    drop(journal);
    let journal = rig.open().await;
    let refused = refusal(journal.commit(vec![created]).await);
    assert_eq!(refused.why, RefusalReason::Gone(gone));
}

#[tokio::test]
async fn account_of_another_run_survives_the_removal_of_the_run_whose_record_has_it() {
    let rig = Rig::new();
    let journal = rig.open().await;
    journal.put(opened(&rig, "root", None, Some("2"))).await;
    journal
        .put(opened(&rig, "below", Some("root"), Some("1")))
        .await;
    journal.put(vec![change(&id("root"), finish())]).await;
    journal.put(vec![change(&id("below"), finish())]).await;
    journal.seal().await;
    let before = journal.account(&account("root")).await.unwrap().unwrap();
    assert!(before.closed);
    remove(&journal, &[id("below")]).await;
    assert_eq!(journal.account(&account("below")).await.unwrap(), None);
    assert_eq!(
        journal.account(&account("root")).await.unwrap().unwrap(),
        before
    );
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    assert_eq!(
        journal.account(&account("root")).await.unwrap().unwrap(),
        before
    );
    remove(&journal, &[id("root")]).await;
    assert_eq!(journal.account(&account("root")).await.unwrap(), None);
}

#[tokio::test]
async fn removal_is_finished_by_the_next_life_whatever_came_after_its_frame() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended(&rig, &journal, "gone").await;
    assert!(journal.seal().await);
    let before = image(&rig.state().join("history"));
    let index = image(&rig.state().join("index"));
    remove(&journal, std::slice::from_ref(&gone)).await;
    drop(journal);
    // Only the log has the removal.
    restore(&rig.state().join("history"), &before);
    restore(&rig.state().join("index"), &index);
    let journal = rig.open().await;
    assert_gone(&journal, &gone).await;
}

#[tokio::test]
async fn purge_takes_the_bytes_of_removed_runs_off_the_disk_and_leaves_all_others() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let bytes = || {
        let files = image(&rig.state().join("history"));
        files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    let names: Vec<String> = (0..30).map(|number| format!("run-{number}")).collect();
    let runs: Vec<RunId> = names.iter().map(|name| id(name)).collect();
    // Each run has events in two sections.
    for name in &names {
        journal.put(keyed(&rig, name)).await;
    }
    journal.seal().await;
    for run in &runs {
        journal.put(vec![change(run, finish())]).await;
    }
    journal.seal().await;
    let before = bytes();
    let (gone, kept) = runs.split_at(20);
    remove(&journal, gone).await;
    journal.purge().await.unwrap();
    assert!(bytes() < before * 2 / 3, "{before} {}", bytes());
    for run in gone {
        assert_gone(&journal, run).await;
    }
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    for run in gone {
        assert_gone(&journal, run).await;
    }
    for run in kept {
        assert_eq!(journal.history(run).await.unwrap().len(), 5);
    }
    assert_eq!(runs_of_all(&journal).await, kept);
}

#[tokio::test]
async fn run_that_ends_in_the_section_of_a_removal_stays_through_compaction_and_a_new_index() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let gone = ended(&rig, &journal, "gone").await;
    journal.put(keyed(&rig, "kept")).await;
    journal.seal().await;
    let removal = Removal {
        runs: vec![RemovedRun {
            run: gone.clone(),
            files: rig.ai().display().to_string().into(),
            item: "demo/graph".into(),
            start_key: None,
        }],
        kept: Vec::new(),
        at: journal.now(),
        by: "uid:0".into(),
    };
    let permit = journal.sequencer.backlog.place().await.unwrap();
    journal.sequencer.append_removal(removal, permit).unwrap();
    journal.put(vec![change(&id("kept"), finish())]).await;
    assert!(journal.seal().await);
    for is_purged in [false, true] {
        if is_purged {
            journal.purge().await.unwrap();
        }
        assert_eq!(journal.run(&gone).await.unwrap(), None, "{is_purged}");
        assert_eq!(journal.history(&id("kept")).await.unwrap().len(), 5);
    }
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    assert_eq!(journal.history(&id("kept")).await.unwrap().len(), 5);
    assert_eq!(journal.run(&gone).await.unwrap(), None);
}
