//! Accounts survive what runs survive: in the log, in the base, in the archive, and behind an index that is built again.

use std::fs;
use std::sync::Arc;

use rye_core::ledger::{Account, AccountId};
use rye_core::model::{Budget, Event, Funding, RunEvent, Spec};
use rye_core::money::Usd;

use super::super::{AccountRow, Change, Journal};
use super::rig::*;

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

fn account(run: &str) -> AccountId {
    AccountId(id(run))
}

/// Creates and begins `run` with such an account.
fn opened(rig: &Rig, run: &str, parent: Option<&str>, limit: &str) -> Vec<Change> {
    let spec = Spec {
        budget: Budget {
            account: account(run),
            funding: Funding::Open {
                parent: parent.map(account),
                limit: Some(usd(limit)),
            },
        },
        ..rig.spec(&id(run))
    };
    let created = Change::create(&id(run), Arc::new(spec));
    [vec![created], begin(&id(run))].concat()
}

fn raised(run: &str, to: &str) -> Change {
    let event = RunEvent::BudgetRaised {
        account: account(run),
        to: usd(to),
        by: "uid:0".to_owned(),
    };
    change(&id(run), Event::Run(event))
}

/// A root that was raised, with a child that has a share and one that has ended.
async fn family(rig: &Rig, journal: &Journal) {
    journal.put(opened(rig, "run-root", None, "1")).await;
    journal
        .put(opened(rig, "run-child", Some("run-root"), "0.4"))
        .await;
    journal
        .put(opened(rig, "run-over", Some("run-root"), "0.3"))
        .await;
    journal.put(vec![raised("run-root", "2")]).await;
    journal.put(vec![raised("run-over", "0.35")]).await;
    journal.put(vec![change(&id("run-over"), finish())]).await;
}

async fn row(journal: &Journal, run: &str) -> AccountRow {
    let row = journal.account(&account(run)).await.unwrap();
    row.expect("an account")
}

async fn assert_family(journal: &Journal) {
    let root = row(journal, "run-root").await;
    assert!(!root.closed);
    assert_eq!(root.account.limit, Some(usd("2")));
    assert_eq!((root.account.used(), root.account.below), (usd("0.4"), 1));
    let child = row(journal, "run-child").await;
    assert_eq!(
        (child.closed, child.account.reserved()),
        (false, usd("0.4"))
    );
    let over = row(journal, "run-over").await;
    assert_eq!((over.closed, over.account.limit), (true, Some(usd("0.35"))));
    let path = journal.account_path(&account("run-over")).await.unwrap();
    let path: Vec<_> = path.into_iter().map(|(id, _)| id).collect();
    assert_eq!(path, [account("run-over"), account("run-root")]);
    assert_eq!(journal.account(&account("run-none")).await.unwrap(), None);
}

#[tokio::test]
async fn accounts_come_back_from_the_log() {
    let rig = Rig::new();
    let journal = rig.open().await;
    family(&rig, &journal).await;
    assert_family(&journal).await;
    drop(journal);
    assert_family(&rig.open().await).await;
}

#[tokio::test]
async fn accounts_come_back_from_base_archive_and_index() {
    let rig = Rig::new();
    let journal = rig.open().await;
    family(&rig, &journal).await;
    let over = id("run-over");
    eventually(async || journal.shared.stream(&over).is_none().then_some(())).await;
    assert_family(&journal).await;
    journal.close().await.unwrap();
    drop(journal);
    let journal = rig.open().await;
    assert_family(&journal).await;
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    assert_family(&journal).await;
    // What follows builds on what came back.
    journal.put(vec![change(&id("run-root"), finish())]).await;
    let root = row(&journal, "run-root").await.account;
    assert_eq!((root.ended, root.below), (true, 1));
    journal.put(vec![change(&id("run-child"), finish())]).await;
    let root = row(&journal, "run-root").await;
    assert!(root.closed);
    let total = Account::total(&root.account).unwrap();
    assert_eq!(total.money, Usd::ZERO);
}
