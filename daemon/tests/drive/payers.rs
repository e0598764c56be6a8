//! Runs that pay: money is held before anything is sent and settled afterwards, and no crash loses a cent.
//!
//! A payer makes one paid call after the other through the real driver and the real journal. A sent call is a line in a
//! file, written only while the call is executed. The file acts as the provider, which knows all calls it received,
//! whatever happens to the daemon.

#![expect(
    clippy::disallowed_methods,
    reason = "the process that dies is this program, and how often it does is up to who runs it"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rye_core::cas::InputHashes;
use rye_core::clock::{Tick, Timestamp};
use rye_core::id::{ItemId, ItemRef, RunId};
use rye_core::ledger::{AccountId, CallNo, Caps, Usage};
use rye_core::machine::{Call, CallOutcome, Machine, Move};
use rye_core::model::event::{BudgetHeld, BudgetRaised, BudgetSettled};
use rye_core::model::{
    Because, Budget, Event, Funding, Life, Object, Outcome, Run, RunEvent, Slot, Spec,
    SuspendReason, Suspension,
};
use rye_core::money::Usd;
use rye_core::state::{Change, RefusalReason};
use rye_host::task::Group;
use rye_journal::{self, Of, Since, Until};
use ryed::drive::{self, Job, Kind, Reports};
use ryed::services::{Ended, Services};
use ryed::stop::Stop;
use ryed::supervisor::settle_open_calls;
use serde_json::Value;
use tempfile::TempDir;

use super::bare::{begin, done, in_time, recovered, spec};

/// Name of the test that runs as the dying process, and the variable with its directory.
const WORKER: &str = "payers::paying_process";
const DIRECTORY: &str = "RYE_TEST_PAYERS";
/// Length of a log segment in bytes.
pub(crate) const SEGMENT: u64 = 4 << 20;
/// Variable with the number of deaths.
const DEATHS: &str = "RYE_PAYER_DEATHS";

pub(crate) fn usd(text: &str) -> Usd {
    Usd::parse(text).unwrap()
}

/// Makes a number of paid calls, and ends; is suspended if one cannot be paid for.
#[derive(Clone)]
pub(crate) struct Payer {
    run: Arc<Run>,
    next: CallNo,
    left: u32,
    open: bool,
    caps: Caps,
}

impl Payer {
    fn record(&mut self, now: Tick, event: impl Into<Event>) -> Event {
        let event = event.into();
        Arc::make_mut(&mut self.run).apply(now.at, &event).unwrap();
        event
    }
}

impl Machine for Payer {
    type Signal = Infallible;
    type Query = Infallible;
    type Answer = Infallible;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
    }

    fn next(&mut self, now: Tick) -> Move {
        match &self.run.life {
            Life::Running => {}
            Life::Suspended(_) => return Move::Suspended(Vec::new()),
            Life::Created | Life::Ended(_) => return Move::End(Vec::new()),
        }
        if self.open {
            return Move::Wait(Vec::new(), None);
        }
        if let Some(cause) = self.run.cancel.clone() {
            let end = self.run.ending(now.at, Outcome::Cancelled { cause });
            return Move::End(vec![self.record(now, end)]);
        }
        if self.left == 0 {
            let output = Arc::new(Value::Null);
            let end = self.run.ending(now.at, Outcome::Completed { output });
            return Move::End(vec![self.record(now, end)]);
        }
        let item = ItemRef::tool(ItemId::new("t/provider").unwrap());
        let call = Call {
            node: "n".into(),
            attempt: self.next.0,
            ..Call::new(Slot::Main, item, Object::new(), Timestamp::default())
        };
        Move::Call(Vec::new(), Box::new(call))
    }

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        vec![self.record(now, Event::from(event))]
    }

    fn start(
        &mut self,
        now: Tick,
        _call: &Call,
        _child: Option<RunId>,
        _hashes: InputHashes,
    ) -> Vec<Event> {
        self.open = true;
        let held = BudgetHeld {
            call: self.next,
            amount: usd("0.25"),
            model: "scripted".to_owned(),
            input: 10,
            max_output: 20,
            meters: self.caps.in_force(now.at),
        };
        vec![self.record(now, held)]
    }

    fn conclude(&mut self, now: Tick, _slot: Slot, _outcome: &CallOutcome) -> Vec<Event> {
        let settled = BudgetSettled {
            call: self.next,
            amount: usd("0.25"),
            usage: Usage {
                money: usd("0.01"),
                calls: 1,
                turns: 1,
                output: 7,
                ..Usage::default()
            },
            estimated: false,
            because: Because::Usage,
        };
        self.open = false;
        self.next = CallNo(self.next.0 + 1);
        self.left -= 1;
        vec![self.record(now, settled)]
    }

    fn on_signal(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn answered(&mut self, _now: Tick, answer: Infallible) -> Vec<Event> {
        match answer {}
    }

    fn refused(&mut self, now: Tick, _call: &Call, why: &RefusalReason) -> Vec<Event> {
        assert!(matches!(why, RefusalReason::Budget(_)), "{why:?}");
        let suspended = RunEvent::RunSuspended(Suspension::new(SuspendReason::Budget));
        vec![self.record(now, suspended)]
    }

    fn abandon(&mut self, _slot: Slot) {
        self.open = false;
    }
}

/// Behaviour of a provider before its answer to a call.
type Provider = Box<dyn Fn(&Call) -> BoxFuture<'static, ()> + Send + Sync>;

/// Kind of a payer.
pub(crate) struct Pays {
    /// Number of its next call.
    next: CallNo,
    calls: u32,
    /// Limits of the node.
    pub(crate) caps: Caps,
    provider: Provider,
}

impl Pays {
    /// Makes `calls` calls.
    pub(crate) fn new(
        calls: u32,
        provider: impl Fn(&Call) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            next: CallNo(1),
            calls,
            caps: Caps::default(),
            provider: Box::new(provider),
        }
    }
}

impl Kind for Pays {
    type Machine = Payer;
    type Plan = ();

    fn machine(&self, run: Arc<Run>) -> Payer {
        Payer {
            run,
            next: self.next,
            left: self.calls,
            open: false,
            caps: self.caps,
        }
    }

    async fn look_up(&self, _run: &Run, calls: &[&Call]) -> Vec<Job<()>> {
        calls.iter().map(|_| begin()).collect()
    }

    async fn answer(
        &self,
        _run: &Run,
        query: &Infallible,
    ) -> Result<Infallible, rye_journal::Error> {
        match *query {}
    }

    async fn carry_out(
        &self,
        call: &Call,
        _plan: (),
        _stop: &Stop,
        _reports: &Reports<Infallible>,
    ) -> Ended {
        (self.provider)(call).await;
        done()
    }
}

/// A provider that records the numbers of its calls in a file.
fn keeping(sent: PathBuf) -> impl Fn(&Call) -> BoxFuture<'static, ()> + Send + Sync + 'static {
    move |call| {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&sent)
            .unwrap();
        // One write: a line exists completely or not at all, whenever the process dies.
        let line = format!("{}\n", call.attempt);
        file.write_all(line.as_bytes()).unwrap();
        Box::pin(tokio::task::yield_now())
    }
}

/// A project, and a directory for the calls that the provider has received.
pub(crate) fn project() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in [".ai", "sent"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    directory
}

pub(crate) fn account(run: &RunId) -> AccountId {
    AccountId(run.clone())
}

/// Creation of a payer below `parent`.
pub(crate) fn payer(
    name: &str,
    directory: &Path,
    parent: Option<&RunId>,
    limit: Option<&str>,
) -> (RunId, Change) {
    let id = RunId::new(format!("{name}-1-a")).unwrap();
    let spec = Spec {
        parent: parent.cloned(),
        depth: parent.map_or(0, |_| 1),
        budget: Budget {
            account: account(&id),
            funding: Funding::Open {
                parent: parent.map(account),
                limit: limit.map(usd),
            },
        },
        ..spec(&id, directory)
    };
    let change = Change::create(&id, Arc::new(spec));
    (id, change)
}

/// Drives `run` through `calls` calls.
async fn pay(services: Arc<Services>, directory: PathBuf, run: RunId, calls: u32) {
    let row = services.journal.account(&account(&run)).await.unwrap();
    let made = row.unwrap().account.calls;
    let record = services.journal.run(&run).await.unwrap().unwrap();
    let sent = directory.join("sent").join(run.as_str());
    let kind = Pays {
        next: CallNo(made.0 + 1),
        ..Pays::new(calls, keeping(sent))
    };
    let stop = Stop::new();
    drive::drive(&services, Arc::new(kind), &record, &stop)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn call_cost_is_held_before_send_and_settled_after() {
    let directory = project();
    let (services, _) = recovered(directory.path(), SEGMENT).await;
    let (run, change) = payer("a", directory.path(), None, Some("1"));
    services.journal.commit(vec![change]).await.unwrap();
    let path = directory.path().to_owned();
    in_time(pay(Arc::clone(&services), path, run.clone(), 3)).await;
    let row = services
        .journal
        .account(&account(&run))
        .await
        .unwrap()
        .unwrap();
    assert!(row.closed);
    assert_eq!(row.account.own.money, usd("0.03"));
    assert_eq!((row.account.own.turns, row.account.own.output), (3, 21));
    assert_eq!(row.account.estimated, Usd::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn unaffordable_call_is_not_sent_and_suspends_run() {
    let directory = project();
    let (services, _) = recovered(directory.path(), SEGMENT).await;
    let (run, change) = payer("a", directory.path(), None, Some("0.255"));
    services.journal.commit(vec![change]).await.unwrap();
    let path = directory.path().to_owned();
    in_time(pay(Arc::clone(&services), path, run.clone(), 3)).await;
    let record = services.journal.run(&run).await.unwrap().unwrap();
    assert_eq!(
        record.suspension().unwrap().reason,
        SuspendReason::Budget,
        "the second one finds 0.245 left"
    );
    let sent = fs::read_to_string(directory.path().join("sent").join(run.as_str())).unwrap();
    assert_eq!(sent, "1\n");
}

/// One root, seven payers with a limit of their own below it, and eight without one below each of those.
fn tree(directory: &Path) -> Vec<(RunId, Change)> {
    let root = payer("root", directory, None, Some("100000"));
    let mut all = vec![root];
    for number in 0..7 {
        let above = all[0].0.clone();
        let share = payer(
            &format!("share{number}"),
            directory,
            Some(&above),
            Some("10000"),
        );
        let above = share.0.clone();
        all.push(share);
        let pooled = (0..8).map(|below| {
            let name = format!("pooled{number}x{below}");
            payer(&name, directory, Some(&above), None)
        });
        all.extend(pooled);
    }
    all
}

/// Calls of a run according to its events, each with its settled amount.
async fn settled(services: &Services, run: &RunId) -> BTreeMap<u32, Option<Usd>> {
    let mut calls = BTreeMap::new();
    let of = Of::Run(run.clone());
    let events = services.journal.read(of, Since::Begin, Until::Now);
    let mut events = events.await.unwrap();
    while let Some(read) = events.next().await {
        let line = read.unwrap().line().unwrap();
        match Event::read(&line.event_type, &line.payload).unwrap() {
            Event::Run(RunEvent::BudgetHeld(BudgetHeld { call, .. })) => {
                assert!(calls.insert(call.0, None).is_none(), "{run}: {call} twice");
            }
            Event::Run(RunEvent::BudgetSettled(BudgetSettled { call, usage, .. })) => {
                let earlier = calls.insert(call.0, Some(usage.money));
                assert_eq!(earlier, Some(None), "{run}: {call}");
            }
            Event::Run(_)
            | Event::Graph(_)
            | Event::Tool(_)
            | Event::Thread(_)
            | Event::Process(_) => {}
        }
    }
    calls
}

/// Recounts from the events of the runs and from the calls that the provider received.
async fn recount(services: &Services, directory: &Path, runs: &[RunId]) {
    let mut all = Usd::ZERO;
    for run in runs {
        let calls = settled(services, run).await;
        let sent = fs::read_to_string(directory.join("sent").join(run.as_str()));
        let mut seen = Vec::new();
        for call in sent.unwrap_or_default().lines() {
            let call: u32 = call.parse().unwrap();
            assert!(!seen.contains(&call), "{run}: call {call} was sent twice");
            let money = calls.get(&call).copied().flatten();
            assert!(money > Some(Usd::ZERO), "{run}: call {call} is forgotten");
            seen.push(call);
        }
        let own = calls
            .values()
            .map(|money| money.expect("no call is open"))
            .fold(Usd::ZERO, |sum, money| sum.checked_add(money).unwrap());
        let last = calls.keys().next_back().copied().unwrap_or_default();
        let row = services.journal.account(&account(run)).await.unwrap();
        let row = row.unwrap();
        assert_eq!(row.account.own.money, own, "{run}");
        assert_eq!(row.account.hold, None, "{run}");
        assert_eq!(row.account.calls, CallNo(last), "{run}");
        all = all.checked_add(own).unwrap();
    }
    let root = account(&runs[0]);
    let cost = services.journal.cost(&root).await.unwrap();
    assert_eq!(cost.usage.money, all);
}

/// Not a test by itself: the process of the test below, which pays until it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn paying_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let (services, live) = recovered(&directory, SEGMENT).await;
    settle_open_calls(&services.journal, &live).await.unwrap();
    let tree = tree(&directory);
    let runs: Vec<RunId> = tree.iter().map(|(run, _)| run.clone()).collect();
    let changes = if live.is_empty() {
        tree.into_iter().map(|(_, change)| change).collect()
    } else {
        let more = Usd::from_nanos(usd("100000").nanos() + services.epoch.0);
        let raised = BudgetRaised {
            account: account(&runs[0]),
            to: more,
            by: "a test".to_owned(),
        };
        vec![Change::event(&runs[0], raised.into())]
    };
    // Once this is published, so is everything that earlier processes wrote.
    let last = services.journal.commit(changes).await.unwrap();
    services.journal.published(last.ticket).await.unwrap();
    recount(&services, &directory, &runs).await;
    println!("\ncounted");
    let calls = if directory.join("last").exists() {
        1
    } else {
        u32::MAX
    };
    let mut payers = Group::new();
    for run in runs.clone() {
        payers.spawn(pay(Arc::clone(&services), directory.clone(), run, calls));
    }
    while payers.next().await.is_some() {}
    for run in &runs {
        services.journal.ended(run).await.unwrap();
    }
    recount(&services, &directory, &runs).await;
    for run in &runs {
        let row = services.journal.account(&account(run)).await.unwrap();
        assert!(row.unwrap().closed, "{run}");
    }
    println!("\ndone");
}

/// Runs the process once. Waits for the line `word`, then kills it `after` that time, or lets it end by itself if there
/// is none.
fn live(directory: &Path, word: &str, after: Option<Duration>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([WORKER, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        let is_word = line == word;
        said.push(line);
        if is_word {
            break;
        }
    }
    assert_eq!(said.last().map(String::as_str), Some(word), "{said:#?}");
    if let Some(after) = after {
        std::thread::sleep(after);
        process.kill().unwrap();
    }
    // Read to its end: a write to a closed pipe would end the process.
    while lines.next().is_some() {}
    let status = process.wait().unwrap();
    assert_eq!(status.success(), after.is_none());
}

#[test]
fn costs_survive_daemon_crash_at_any_time() {
    let deaths = std::env::var(DEATHS).map_or(10, |deaths| deaths.parse().unwrap());
    let directory = project();
    for death in 0..deaths {
        // A pseudo-random moment, from the first hold on.
        let after = Duration::from_micros(500 + (death * 7919) % 30_000);
        live(directory.path(), "counted", Some(after));
    }
    fs::write(directory.path().join("last"), "").unwrap();
    live(directory.path(), "done", None);
    let sent = fs::read_dir(directory.path().join("sent")).unwrap();
    assert!(sent.count() > 32, "hardly anybody has paid");
}
