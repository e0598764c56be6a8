//! Accounts are preserved wherever runs are: in the log, in the base, in history, and with a rebuilt index.

use std::fs;
use std::sync::Arc;

use rye_core::ledger::{Account, AccountId, CallNo, MeterId, Metered, Usage};
use rye_core::model::event::{BudgetHeld, BudgetRaised, BudgetSettled};
use rye_core::model::{Because, Budget, Event, Funding, Spec};
use rye_core::money::Usd;

use crate::testing::*;
use crate::{AccountRow, Journal};
use rye_core::state::Change;

pub(crate) fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

pub(crate) fn account(run: &str) -> AccountId {
    AccountId(id(run))
}

/// Creates and begins `run` with an account below `parent` and with this limit.
pub(crate) fn opened(
    rig: &Rig,
    run: &str,
    parent: Option<&str>,
    limit: Option<&str>,
) -> Vec<Change> {
    let spec = Spec {
        budget: Budget {
            account: account(run),
            funding: Funding::Open {
                parent: parent.map(account),
                limit: limit.map(usd),
            },
        },
        ..rig.spec(&id(run))
    };
    let created = Change::create(&id(run), Arc::new(spec));
    [vec![created], begin(&id(run))].concat()
}

pub(crate) fn raised(run: &str, to: &str) -> Change {
    let event = BudgetRaised {
        account: account(run),
        to: usd(to),
        by: "uid:0".to_owned(),
    };
    change(&id(run), event.into())
}

pub(crate) fn held(call: u32, amount: &str, meters: &[(&str, &str)]) -> Event {
    let meters = meters.iter().map(|(meter, limit)| Metered {
        id: MeterId((*meter).to_owned()),
        limit: usd(limit),
    });
    Event::from(BudgetHeld {
        call: CallNo(call),
        amount: usd(amount),
        model: "scripted".to_owned(),
        input: 10,
        max_output: 20,
        meters: meters.collect(),
    })
}

pub(crate) fn settled(call: u32, amount: &str, money: &str) -> Event {
    Event::from(BudgetSettled {
        call: CallNo(call),
        amount: usd(amount),
        usage: Usage {
            money: usd(money),
            calls: 1,
            turns: 1,
            output: 7,
            ..Usage::default()
        },
        estimated: false,
        because: Because::Usage,
    })
}

/// Events of a paid call of a run that cost `money` and produced 7 tokens.
fn paid(run: &str, call: u32, money: &str) -> Vec<Change> {
    let events = [held(call, "0.1", &[]), settled(call, "0.1", money)].into_iter();
    events.map(|event| change(&id(run), event)).collect()
}

/// A root whose limit was raised, with one child that has a share and one that has ended.
async fn family(rig: &Rig, journal: &Journal) {
    journal.put(opened(rig, "run-root", None, Some("1"))).await;
    journal
        .put(opened(rig, "run-child", Some("run-root"), Some("0.4")))
        .await;
    journal
        .put(opened(rig, "run-over", Some("run-root"), Some("0.3")))
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
async fn accounts_recover_from_log() {
    let rig = Rig::new();
    let journal = rig.open().await;
    family(&rig, &journal).await;
    assert_family(&journal).await;
    drop(journal);
    assert_family(&rig.open().await).await;
}

#[tokio::test]
async fn accounts_recover_from_base_history_and_index() {
    let rig = Rig::new();
    let journal = rig.open().await;
    family(&rig, &journal).await;
    let over = id("run-over");
    eventually(async || journal.sequencer.stream(&over).is_none().then_some(())).await;
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
    // The changes below are based on the recovered state.
    journal.put(vec![change(&id("run-root"), finish())]).await;
    let root = row(&journal, "run-root").await.account;
    assert_eq!((root.ended, root.below), (true, 1));
    journal.put(vec![change(&id("run-child"), finish())]).await;
    let root = row(&journal, "run-root").await;
    assert!(root.closed);
    let total = Account::total(&root.account).unwrap();
    assert_eq!(total.money, Usd::ZERO);
}

#[tokio::test]
async fn spendable_is_bounded_by_nearest_limit_and_raisable_by_next() {
    let rig = Rig::new();
    let journal = rig.open().await;
    let left = |run: &str| {
        let (call, left) = journal.spendable(&account(run)).unwrap();
        let left = left.map(|left| {
            (
                left.account,
                left.amount,
                left.used,
                left.limit,
                left.bearable,
            )
        });
        (call.0, left)
    };
    // A root of its own, a child with a share, a child of that without a share, and a sibling that pays from the root.
    journal.put(opened(&rig, "run-root", None, Some("1"))).await;
    let below = |run, parent, limit| opened(&rig, run, Some(parent), limit);
    journal
        .put(below("run-share", "run-root", Some("0.3")))
        .await;
    journal.put(below("run-pooled", "run-share", None)).await;
    journal.put(below("run-sibling", "run-root", None)).await;
    journal.put(paid("run-pooled", 1, "0.1")).await;
    let own = |bearable| {
        let amounts = (usd("0.2"), usd("0.1"), usd("0.3"), Some(usd(bearable)));
        Some((
            account("run-share"),
            amounts.0,
            amounts.1,
            amounts.2,
            amounts.3,
        ))
    };
    assert_eq!(
        left("run-pooled"),
        (2, own("1")),
        "0.3, and the 0.7 that the root has not set aside"
    );
    assert_eq!(left("run-share"), (1, own("1")));
    journal.put(paid("run-sibling", 1, "0.6")).await;
    assert_eq!(
        left("run-pooled"),
        (2, own("0.4")),
        "what the sibling has spent is not there for it"
    );
    let root = Some((account("run-root"), usd("0.1"), usd("0.9"), usd("1"), None));
    assert_eq!(
        left("run-sibling"),
        (2, root),
        "a root may be raised to anything"
    );
    journal.put(opened(&rig, "run-free", None, None)).await;
    assert_eq!(left("run-free"), (1, None));
    assert_eq!(journal.spendable(&account("run-none")), None);
}

async fn cost(journal: &Journal, run: &str) -> (String, u32, u64) {
    let cost = journal.cost(&account(run)).await.unwrap();
    let usage = cost.usage;
    (usage.money.to_string(), usage.turns, usage.output)
}

fn of(money: &str, turns: u32) -> (String, u32, u64) {
    (money.to_owned(), turns, 7 * u64::from(turns))
}

#[tokio::test]
async fn costs_are_read_from_memory_and_index() {
    let rig = Rig::new();
    let journal = rig.open().await;
    family(&rig, &journal).await;
    assert_eq!(cost(&journal, "run-root").await, of("0.000000000", 0));
    journal.put(paid("run-root", 1, "0.01")).await;
    journal.put(paid("run-child", 1, "0.02")).await;
    journal.put(paid("run-child", 2, "0.03")).await;
    assert_eq!(cost(&journal, "run-child").await, of("0.050000000", 2));
    assert_eq!(cost(&journal, "run-root").await, of("0.060000000", 3));
    journal.put(vec![change(&id("run-child"), finish())]).await;
    assert_eq!(cost(&journal, "run-root").await, of("0.060000000", 3));
    let child = id("run-child");
    eventually(async || journal.sequencer.stream(&child).is_none().then_some(())).await;
    assert_eq!(cost(&journal, "run-child").await, of("0.050000000", 2));
    journal.close().await.unwrap();
    drop(journal);
    fs::remove_dir_all(rig.state().join("index")).unwrap();
    let journal = rig.open().await;
    assert_eq!(cost(&journal, "run-child").await, of("0.050000000", 2));
    assert_eq!(cost(&journal, "run-root").await, of("0.060000000", 3));
    assert_eq!(cost(&journal, "run-none").await, of("0.000000000", 0));
}

/// The warnings of a run, each with the event before it.
async fn warnings(journal: &Journal, run: &str) -> Vec<(String, String)> {
    let history = journal.history(&id(run)).await.unwrap();
    let pairs = history.windows(2);
    let warned = pairs.filter(|pair| pair[1].event_type == "warning");
    warned
        .map(|pair| {
            let message = payload(&pair[1])["message"].as_str().unwrap().to_owned();
            (pair[0].event_type.clone(), message)
        })
        .collect()
}

#[tokio::test]
async fn limit_warning_at_80_percent_is_in_settling_commit_once() {
    let rig = Rig::new();
    let journal = rig.open().await;
    journal.put(opened(&rig, "run-root", None, Some("1"))).await;
    journal
        .put(opened(&rig, "run-child", Some("run-root"), Some("0.1")))
        .await;
    // Three quarters of the limit count because of the share of the child.
    journal.put(paid("run-root", 1, "0.65")).await;
    let behind = |event: &str, message: &str| (event.to_owned(), message.to_owned());
    let dear = behind(
        "budget_settled",
        "call 1 cost 0.650000000 USD, more than the 0.100000000 that were held for it",
    );
    assert_eq!(
        warnings(&journal, "run-root").await,
        std::slice::from_ref(&dear)
    );
    // It costs more than was reserved, and its run ends in the commit that settles it.
    let last = [
        paid("run-child", 1, "0.16"),
        vec![change(&id("run-child"), finish())],
    ];
    journal.put(last.concat()).await;
    let told = warnings(&journal, "run-child").await;
    let expected = [
        behind(
            "budget_settled",
            "call 1 cost 0.160000000 USD, more than the 0.100000000 that were held for it; \
             that is beyond what run `run-child` may spend",
        ),
        behind(
            "warning",
            "80 % or more of what run `run-child` may spend are used: 0.160000000 of 0.100000000 USD",
        ),
        behind(
            "warning",
            "80 % or more of what run `run-root` may spend are used: 0.810000000 of 1.000000000 USD",
        ),
    ];
    assert_eq!(told, expected);
    journal.put(paid("run-root", 2, "0.1")).await;
    assert_eq!(
        warnings(&journal, "run-root").await,
        std::slice::from_ref(&dear),
        "it was crossed before"
    );
    journal.put(vec![raised("run-root", "1.05")]).await;
    journal.put(paid("run-root", 3, "0.2")).await;
    let overrun = behind(
        "budget_settled",
        "call 3 cost 0.200000000 USD, more than the 0.100000000 that were held for it; \
         that is beyond what run `run-root` may spend",
    );
    assert_eq!(warnings(&journal, "run-root").await, [dear, overrun]);
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(warnings(&journal, "run-child").await, told, "not again");
}

#[tokio::test]
async fn overrun_warning_is_in_settling_commit_without_limit() {
    let rig = Rig::new();
    let journal = rig.open().await;
    journal.put_run(&rig, "run-free", 0).await;
    journal.put(paid("run-free", 1, "0.1")).await;
    assert!(warnings(&journal, "run-free").await.is_empty());
    let last = || journal.sequencer.lock().last;
    let before = last();
    journal.put(paid("run-free", 2, "0.3")).await;
    let told = warnings(&journal, "run-free").await;
    let overrun =
        "call 2 cost 0.300000000 USD, more than the 0.100000000 that were held for it".to_owned();
    assert_eq!(told, [("budget_settled".to_owned(), overrun)]);
    assert_eq!(
        last(),
        before.next(),
        "the warning has no commit of its own"
    );
    drop(journal);
    let journal = rig.open().await;
    assert_eq!(warnings(&journal, "run-free").await, told, "not again");
}
