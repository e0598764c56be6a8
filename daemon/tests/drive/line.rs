//! Runs that wait for money: calls in flight hold it, and it is freed as they settle.

use std::sync::Arc;

use futures_util::future::join_all;
use rye_core::id::RunId;
use rye_core::ledger::{CallNo, Caps, Denied, Operation};
use rye_core::model::event::CancelRequested;
use rye_core::model::{Status, SuspendReason};
use rye_core::money::Usd;
use rye_core::state::Change;
use ryed::drive;
use ryed::services::Services;
use ryed::stop::{CancelMode, Stop};
use tempfile::TempDir;
use tokio::sync::watch;

use super::bare::{in_time, recovered};
use super::payers::{Pays, SEGMENT, account, payer, project, usd};

/// A provider that answers no call before `enough` calls were open at once.
struct Counter {
    open: watch::Sender<(usize, usize)>,
    enough: usize,
}

impl Counter {
    fn new(enough: usize) -> Arc<Self> {
        let open = watch::Sender::new((0, 0));
        Arc::new(Self { open, enough })
    }

    async fn answer(self: Arc<Self>) {
        self.open.send_modify(|(now, most)| {
            *now += 1;
            *most = (*most).max(*now);
        });
        let enough = self.enough;
        let mut open = self.open.subscribe();
        open.wait_for(|(_, most)| *most >= enough).await.unwrap();
        self.open.send_modify(|(now, _)| *now -= 1);
    }

    fn most(&self) -> usize {
        self.open.borrow().1
    }
}

/// Makes `calls` calls, answered by `provider`.
async fn pay(
    services: &Arc<Services>,
    run: &RunId,
    calls: u32,
    provider: &Arc<Counter>,
    stop: &Stop,
) {
    let provider = Arc::clone(provider);
    let kind = Pays::new(calls, move |_| Box::pin(Arc::clone(&provider).answer()));
    let record = services.journal.run(run).await.unwrap().unwrap();
    drive::drive(services, Arc::new(kind), &record, stop)
        .await
        .unwrap();
}

/// Checks if `run` could hold 0.01 USD now.
fn afford(services: &Services, run: &RunId) -> Result<(), Denied> {
    let hold = Operation::Hold {
        call: CallNo(1),
        amount: usd("0.01"),
        meters: Vec::new(),
    };
    services.journal.try_on_accounts(&account(run), &hold)
}

/// A root that may spend 1.05 USD, and `children` runs that draw on it.
async fn family(directory: &TempDir, children: usize) -> (Arc<Services>, Vec<RunId>) {
    let (services, _) = recovered(directory.path(), SEGMENT).await;
    let (root, created) = payer("root", directory.path(), None, Some("1.05"));
    let mut changes = vec![created];
    let mut runs = Vec::new();
    for number in 0..children {
        let name = format!("pooled{number}");
        let (run, created) = payer(&name, directory.path(), Some(&root), None);
        runs.push(run);
        changes.push(created);
    }
    services.journal.commit(changes).await.unwrap();
    (services, runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_quarter_reservations_complete_with_budget_for_four() {
    let directory = project();
    let (services, runs) = family(&directory, 10).await;
    let (provider, stop) = (Counter::new(4), Stop::new());
    let paying = runs
        .iter()
        .map(|run| pay(&services, run, 3, &provider, &stop));
    in_time(join_all(paying)).await;
    assert_eq!(provider.most(), 4, "there is room for four");
    let mut all = Usd::ZERO;
    for run in &runs {
        let row = services
            .journal
            .account(&account(run))
            .await
            .unwrap()
            .unwrap();
        assert!(row.closed, "{run}");
        all = all.checked_add(row.account.own.money).unwrap();
    }
    assert_eq!(all, usd("0.30"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_can_be_cancelled_without_blocking_others() {
    let directory = project();
    let (services, runs) = family(&directory, 6).await;
    // Four calls are open and a fifth never comes: the test releases them.
    let (provider, stop) = (Counter::new(5), Stop::new());
    let cancelled = Stop::new();
    let (waits, paying) = runs.split_last().unwrap();
    let (later, paying) = paying.split_last().unwrap();
    let paying = join_all(
        paying
            .iter()
            .map(|run| pay(&services, run, 1, &provider, &stop)),
    );
    let waits = async {
        let mut open = provider.open.subscribe();
        open.wait_for(|(now, _)| *now == 4).await.unwrap();
        let asking = pay(&services, waits, 1, &provider, &cancelled);
        let cancelling = async {
            // 0.01 USD is left, and it is not for a run that queues after a waiting one.
            while let Ok(()) = afford(&services, later) {
                tokio::task::yield_now().await;
            }
            let asked = CancelRequested {
                cause: "a test".to_owned(),
            };
            let asked = Change::event(waits, asked.into());
            services.journal.commit(vec![asked]).await.unwrap();
            cancelled.cancel("a test", CancelMode::Graceful);
        };
        tokio::join!(asking, cancelling);
        let record = services.journal.run(waits).await.unwrap().unwrap();
        assert_eq!(record.status(), Status::Cancelled);
        // The queue is empty again. This call and the four open ones make five, so all are answered.
        provider.open.send_modify(|(_, most)| *most = 5);
        pay(&services, later, 1, &provider, &stop).await;
    };
    in_time(async { tokio::join!(paying, waits) }).await;
    assert_eq!(provider.open.borrow().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_budget_bounds_all_trees() {
    let directory = project();
    let (services, _) = recovered(directory.path(), SEGMENT).await;
    let caps = Caps {
        month: Some(usd("0.28")),
        ..Caps::default()
    };
    let (stop, mut runs) = (Stop::new(), Vec::new());
    for name in ["one", "other"] {
        let (run, created) = payer(name, directory.path(), None, Some("1"));
        services.journal.commit(vec![created]).await.unwrap();
        runs.push(run);
    }
    let paying = runs.iter().map(async |run| {
        let mut kind = Pays::new(3, |_| Box::pin(tokio::task::yield_now()));
        kind.caps = caps;
        let record = services.journal.run(run).await.unwrap().unwrap();
        drive::drive(&services, Arc::new(kind), &record, &stop)
            .await
            .unwrap();
    });
    in_time(join_all(paying)).await;
    // One hold of 0.25 USD at a time: the second run waits. The fifth call finds 0.24 USD left, which is never enough.
    let (meter, spent) = services.journal.meters().pop().unwrap();
    assert!(meter.0.starts_with("month/"), "{meter}");
    assert_eq!((spent.spent, spent.held), (usd("0.04"), Usd::ZERO));
    let mut suspended = 0;
    for run in &runs {
        let record = services.journal.run(run).await.unwrap().unwrap();
        let why = record.suspension().map(|why| why.reason);
        suspended += usize::from(why == Some(SuspendReason::Budget));
    }
    assert!(suspended >= 1);
}
