//! The queue of callers that wait for budget: the order in which they are served, and callers that do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use rye_core::ledger::{AccountId, CallNo, Usage};
use rye_core::model::event::{BudgetHeld, BudgetRaised, BudgetSettled};
use rye_core::model::{Because, Budget, Event, Funding, Spec};
use rye_core::money::Usd;

use crate::Journal;
use crate::error::Error;
use crate::sequencer::BudgetSlot;
use crate::testing::*;
use rye_core::state::Change;
use rye_host::task::Group;

fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

fn account(run: &str) -> AccountId {
    AccountId(id(run))
}

/// Creates and begins `run` below `parent`, with this limit.
async fn open(rig: &Rig, journal: &Journal, run: &str, parent: Option<&str>, limit: Option<&str>) {
    journal.put(opened(rig, run, parent, limit)).await;
}

fn opened(rig: &Rig, run: &str, parent: Option<&str>, limit: Option<&str>) -> Vec<Change> {
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

fn hold(run: &str, amount: &str) -> Vec<Change> {
    let event = BudgetHeld {
        call: CallNo(1),
        amount: usd(amount),
        model: "scripted".to_owned(),
        input: 1,
        max_output: 1,
        meters: Vec::new(),
    };
    vec![change(&id(run), Event::from(event))]
}

/// Settles the first call of `run`, for which `amount` was reserved, at `cost`.
fn settle(run: &str, amount: &str, cost: &str) -> Vec<Change> {
    let event = BudgetSettled {
        call: CallNo(1),
        amount: usd(amount),
        usage: Usage {
            money: usd(cost),
            calls: 1,
            ..Usage::default()
        },
        estimated: false,
        because: Because::Usage,
    };
    vec![change(&id(run), Event::from(event))]
}

/// Requests `amount` for `run`. Returns true if it was granted.
async fn request(
    journal: &Journal,
    run: &str,
    amount: &str,
    place: &mut Option<BudgetSlot>,
) -> bool {
    match journal.commit_or_queue(hold(run, amount), place).await {
        Ok(_) => true,
        Err(Error::Refused(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

fn is_woken(place: Option<&BudgetSlot>) -> bool {
    place.unwrap().woken().now_or_never().is_some()
}

/// A root with a limit of 1 USD, of which `a` has reserved 0.9, and from which `b` and `c` pay too.
async fn family(rig: &Rig) -> Journal {
    let journal = rig.open().await;
    open(rig, &journal, "run-root", None, Some("1")).await;
    for run in ["run-a", "run-b", "run-c"] {
        open(rig, &journal, run, Some("run-root"), None).await;
    }
    journal.put(hold("run-a", "0.9")).await;
    journal
}

#[tokio::test]
async fn budget_queue_is_first_come_first_served() {
    let rig = Rig::new();
    let journal = family(&rig).await;
    let (mut b, mut c) = (None, None);
    assert!(!request(&journal, "run-b", "0.5", &mut b).await);
    assert!(
        !request(&journal, "run-c", "0.05", &mut c).await,
        "it would fit"
    );
    assert!(
        !is_woken(b.as_ref()) && !is_woken(c.as_ref()),
        "nothing has changed"
    );
    // A caller that does not wait is not served before those that do.
    assert!(journal.commit(hold("run-c", "0.05")).await.is_err());
    journal.put(settle("run-a", "0.9", "0.6")).await;
    assert!(is_woken(b.as_ref()) && is_woken(c.as_ref()));
    assert!(
        !request(&journal, "run-c", "0.05", &mut c).await,
        "b is first"
    );
    assert!(
        !request(&journal, "run-b", "0.5", &mut b).await,
        "0.4 are left"
    );
    // The amount left can only decrease, because no call is open any more.
    assert!(b.is_some());
    drop(b);
    assert!(is_woken(c.as_ref()));
    assert!(request(&journal, "run-c", "0.05", &mut c).await);
    assert!(c.is_none(), "who was served has left");
}

#[tokio::test]
async fn budget_queue_wakes_next_after_grant() {
    let rig = Rig::new();
    let journal = family(&rig).await;
    let (mut b, mut c) = (None, None);
    assert!(!request(&journal, "run-b", "0.5", &mut b).await);
    assert!(!request(&journal, "run-c", "0.05", &mut c).await);
    journal.put(settle("run-a", "0.9", "0.01")).await;
    assert!(is_woken(b.as_ref()) && is_woken(c.as_ref()));
    assert!(!request(&journal, "run-c", "0.05", &mut c).await);
    assert!(request(&journal, "run-b", "0.5", &mut b).await);
    assert!(is_woken(c.as_ref()));
    assert!(request(&journal, "run-c", "0.05", &mut c).await);
}

#[tokio::test]
async fn budget_queue_refuses_amount_above_limit() {
    let rig = Rig::new();
    let journal = family(&rig).await;
    let (mut b, mut c) = (None, None);
    assert!(!request(&journal, "run-b", "0.5", &mut b).await);
    assert!(!request(&journal, "run-c", "1.01", &mut c).await);
    assert!(c.is_none(), "there is nothing to wait for");
}

#[tokio::test]
async fn run_with_own_share_skips_budget_queue() {
    let rig = Rig::new();
    let journal = rig.open().await;
    open(&rig, &journal, "run-root", None, Some("1")).await;
    open(&rig, &journal, "run-share", Some("run-root"), Some("0.1")).await;
    for run in ["run-a", "run-b"] {
        open(&rig, &journal, run, Some("run-root"), None).await;
    }
    journal.put(hold("run-a", "0.8")).await;
    let (mut b, mut share) = (None, None);
    assert!(!request(&journal, "run-b", "0.5", &mut b).await);
    assert!(request(&journal, "run-share", "0.1", &mut share).await);
    journal.put(settle("run-share", "0.1", "0.02")).await;
    assert!(!is_woken(b.as_ref()), "nothing was freed where it lacks");
}

#[tokio::test]
async fn budget_raise_wakes_queue() {
    let rig = Rig::new();
    let journal = family(&rig).await;
    let mut b = None;
    assert!(!request(&journal, "run-b", "0.5", &mut b).await);
    let event = BudgetRaised {
        account: account("run-root"),
        to: usd("2"),
        by: "uid:0".to_owned(),
    };
    journal
        .put(vec![change(&id("run-root"), Event::from(event))])
        .await;
    assert!(is_woken(b.as_ref()));
    assert!(request(&journal, "run-b", "0.5", &mut b).await);
}

#[tokio::test]
async fn end_of_run_frees_its_share() {
    let rig = Rig::new();
    let journal = rig.open().await;
    open(&rig, &journal, "run-root", None, Some("1")).await;
    open(&rig, &journal, "run-share", Some("run-root"), Some("0.5")).await;
    for run in ["run-a", "run-b"] {
        open(&rig, &journal, run, Some("run-root"), None).await;
    }
    journal.put(hold("run-a", "0.4")).await;
    let mut b = None;
    assert!(!request(&journal, "run-b", "0.3", &mut b).await);
    assert!(b.is_some(), "0.5 are free once the call of a is settled");
    journal.put(vec![change(&id("run-share"), finish())]).await;
    assert!(is_woken(b.as_ref()));
    assert!(request(&journal, "run-b", "0.3", &mut b).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_concurrent_requests_never_exceed_budget() {
    let rig = Rig::new();
    let journal = Arc::new(rig.open().await);
    open(&rig, &journal, "run-root", None, Some("1")).await;
    let runs: Vec<_> = (0..999).map(|number| format!("run-{number}")).collect();
    let all = runs
        .iter()
        .flat_map(|run| opened(&rig, run, Some("run-root"), None));
    journal.put(all.collect()).await;
    let granted = Arc::new(AtomicUsize::new(0));
    let mut asking = Group::new();
    // The root is one of the callers, with a call of its own.
    let middle = runs.len() / 2;
    let (before, after) = runs.split_at(middle);
    let root = ["run-root".to_owned()];
    for run in [before, &root, after].concat() {
        let (journal, granted) = (Arc::clone(&journal), Arc::clone(&granted));
        asking.spawn(async move {
            if journal.commit(hold(&run, "0.003")).await.is_ok() {
                granted.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while asking.next().await.is_some() {}
    assert_eq!(granted.load(Ordering::Relaxed), 333);
    let root = journal.account(&account("run-root")).await.unwrap();
    let root = root.unwrap().account;
    assert_eq!(root.remaining(), Some(usd("0.001")));
    assert_eq!(root.held().checked_add(root.open), Some(usd("0.999")));
}
