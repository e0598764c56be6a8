//! The driver over the real journal, with a machine and a kind that tests script.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue says where")]

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ed25519_dalek::{Signer as _, SigningKey};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::clock::{Clock, Tick, Timestamp};
use rye_core::id::{Epoch, ItemId, ItemRef, RunId};
use rye_core::ledger::Denied;
use rye_core::machine::{Call, CallOutcome, Certainty, Machine, Move};
use rye_core::model::{
    Budget, Event, Failure, KillReceipt, Object, Outcome, Run, RunEvent, RunKind, Slot, Spec,
    Status,
};
use rye_core::money::Usd;
use rye_core::state::Change;
use ryed::artifacts::Artifacts;
use ryed::clock::HostClock;
use ryed::config::{Args, Environment, load};
use ryed::drive::{self, Ended, Job, Kind, Reports};
use ryed::graphs::Graphs;
use ryed::journal::{Error, Filter, Journal, Options, Signer, Summary};
use ryed::port::{AccountView, Nest, Nested, Refusal, Resume, Runs};
use ryed::projects::Projects;
use ryed::services::{AttemptCtx, Dispatch, Order, Prepared, Reply, Services};
use ryed::stop::{DriverExit, Stop};
use ryed::task::Group;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

/// Longest time a test takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

struct Key(SigningKey);

impl Signer for Key {
    fn sign_hex(&self, hash_hex: &str, _at: Timestamp) -> String {
        format!("{hash_hex}:{}", self.0.sign(hash_hex.as_bytes()))
    }

    fn sign_text(&self, body: &str, _at: Timestamp) -> String {
        body.to_owned()
    }

    fn sign_json(&self, object: &Object, _at: Timestamp) -> Object {
        object.clone()
    }

    fn verify_hex(&self, token: &str, hash_hex: &str) -> bool {
        token.starts_with(hash_hex)
    }
}

/// No call of these tests has an effect of its own.
#[derive(Debug)]
struct Nothing;

impl Dispatch for Nothing {
    fn prepare(&self, _orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>> {
        unreachable!("the kind of these tests looks nothing up")
    }

    fn carry_out<'a>(&'a self, _prepared: Prepared, _cx: &'a AttemptCtx) -> BoxFuture<'a, Reply> {
        unreachable!("the kind of these tests carries its calls out")
    }
}

/// The owner of all runs, which no call of these tests asks.
#[derive(Debug)]
struct Nobody;

type Answer<'a, T> = BoxFuture<'a, Result<T, Refusal>>;

const NOBODY: &str = "no call of these tests asks for other runs";

impl Runs for Nobody {
    fn nest<'a>(&'a self, _order: Nest<'a>) -> BoxFuture<'a, Result<Nested, Failure>> {
        unreachable!("{NOBODY}")
    }

    fn launch(&self, _run: RunId) -> BoxFuture<'_, ()> {
        unreachable!("{NOBODY}")
    }

    fn settled(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn get(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn list(&self, _filter: Filter) -> Answer<'_, Vec<Summary>> {
        unreachable!("{NOBODY}")
    }

    fn steps(&self, _run: RunId) -> Answer<'_, Vec<Value>> {
        unreachable!("{NOBODY}")
    }

    fn newest(&self, _run: RunId) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn has_unknown(&self, _run: Arc<Run>) -> BoxFuture<'_, bool> {
        unreachable!("{NOBODY}")
    }

    fn cancel(&self, _run: RunId, _cause: String) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn kill(
        &self,
        _run: RunId,
        _cause: String,
        _grace: Duration,
    ) -> Answer<'_, (Arc<Run>, KillReceipt)> {
        unreachable!("{NOBODY}")
    }

    fn emit(&self, _run: RunId, _name: String, _content: Value) -> Answer<'_, ()> {
        unreachable!("{NOBODY}")
    }

    fn resume(&self, _run: RunId, _request: Resume) -> Answer<'_, Arc<Run>> {
        unreachable!("{NOBODY}")
    }

    fn budget_path(&self, _run: Arc<Run>) -> Answer<'_, Vec<AccountView>> {
        unreachable!("{NOBODY}")
    }

    fn budget_tree(&self, _run: Arc<Run>) -> Answer<'_, Vec<(u32, AccountView)>> {
        unreachable!("{NOBODY}")
    }

    fn affords(&self, _run: &Run, _share: Usd) -> Result<(), Denied> {
        unreachable!("{NOBODY}")
    }
}

async fn services(directory: &Path) -> Arc<Services> {
    let home = ("HOME".into(), directory.as_os_str().to_owned());
    let state = ("RYE_STATE_DIR".into(), directory.join("state").into());
    let config = load(&Args::default(), &Environment::of([home, state])).unwrap();
    let config = Arc::new(config.config);
    std::fs::create_dir_all(&config.state_dir).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let key: Arc<dyn Signer> = Arc::new(Key(SigningKey::from_bytes(&[7; 32])));
    let options = Options {
        segment_bytes: 1 << 16,
        ..Options::new(
            config.state_dir.clone(),
            Arc::clone(&clock),
            Arc::clone(&key),
            Artifacts::new(key),
        )
    };
    let (journal, recovered) = Journal::open(options).await.unwrap();
    Arc::new(Services {
        journal: Arc::new(journal),
        dispatch: Arc::new(Nothing),
        projects: Arc::new(Projects::new(config, clock)),
        graphs: Graphs::default(),
        runs: Weak::<Nobody>::new(),
        clock: Arc::new(HostClock),
        epoch: recovered.epoch,
    })
}

fn spec(id: &RunId, directory: &Path) -> Spec {
    Spec {
        project: directory.display().to_string(),
        files: directory.join(".ai").display().to_string(),
        principal: "uid:0".into(),
        ..Spec::new(
            RunKind::Tool,
            ItemRef::tool(ItemId::new("t/scripted").unwrap()),
            id.clone(),
            Budget::open(id.clone()),
        )
    }
}

/// A run that `epoch` owns; that is durable.
async fn run(services: &Services, directory: &Path, epoch: Epoch) -> Arc<Run> {
    let id = RunId::new("t-1-a").unwrap();
    let started = RunEvent::RunStarted { epoch };
    let changes = vec![
        Change::create(&id, Arc::new(spec(&id, directory))),
        Change::event(&id, started.into()),
    ];
    let committed = services.journal.commit(changes).await.unwrap();
    services.journal.durable(committed.ticket).await.unwrap();
    services.journal.run(&id).await.unwrap().unwrap()
}

/// Makes the calls it was given, each as soon as it may, and ends the run when all have ended.
#[derive(Clone)]
struct Script {
    run: Arc<Run>,
    /// Calls not made yet: each waits until so many have ended.
    calls: Vec<(u32, usize)>,
    ended: usize,
    open: usize,
    /// Looks at the world before the first move.
    first: Option<Arc<dyn Fn() + Send + Sync>>,
}

fn call(part: u32) -> Call {
    let item = ItemRef::tool(ItemId::new("t/scripted").unwrap());
    Call {
        node: "n".into(),
        ..Call::new(Slot::Part(part), item, Object::new(), Timestamp::default())
    }
}

impl Machine for Script {
    type Signal = Infallible;

    fn run(&self) -> &Arc<Run> {
        &self.run
    }

    fn rebase(&mut self, run: Arc<Run>) {
        self.run = run;
    }

    fn next(&mut self, now: Tick) -> Move {
        if let Some(look) = self.first.take() {
            look();
        }
        let due = self
            .calls
            .iter()
            .position(|(_, after)| *after <= self.ended);
        if let Some(due) = due {
            let (part, _) = self.calls.remove(due);
            self.open += 1;
            return Move::Call(Vec::new(), Box::new(call(part)));
        }
        if self.ended < self.open {
            return Move::Wait(Vec::new(), None);
        }
        let output = Arc::new(json!({}));
        let end = self.run.ending(now.at, Outcome::Completed { output });
        Arc::make_mut(&mut self.run).apply(now.at, &end).unwrap();
        Move::End(vec![end])
    }

    fn start(
        &mut self,
        _now: Tick,
        _call: &Call,
        _child: Option<RunId>,
        _node_input_hash: Option<String>,
    ) -> Vec<Event> {
        Vec::new()
    }

    fn conclude(&mut self, _now: Tick, _slot: Slot, _outcome: &CallOutcome) -> Vec<Event> {
        self.ended += 1;
        Vec::new()
    }

    fn heard(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn abandon(&mut self, _slot: Slot) {
        self.ended += 1;
    }
}

/// Part 0 ends only after part 2 has begun to be looked up, and part 2 is looked up only once part 0 has ended. Parts 10 and 11
/// are looked up only together.
struct Entangled {
    pair: Barrier,
    looks: Notify,
    ended: Notify,
    calls: Vec<(u32, usize)>,
    first: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Entangled {
    fn default() -> Self {
        Self {
            pair: Barrier::new(2),
            looks: Notify::new(),
            ended: Notify::new(),
            calls: Vec::new(),
            first: None,
        }
    }
}

impl Kind for Entangled {
    type Machine = Script;
    type Plan = ();

    fn machine(&self, run: Arc<Run>) -> Script {
        Script {
            run,
            calls: self.calls.clone(),
            ended: 0,
            open: 0,
            first: self.first.clone(),
        }
    }

    async fn look_up(&self, _run: &Run, call: &Call) -> Job<()> {
        if call.slot == Slot::Part(2) {
            self.looks.notify_one();
            self.ended.notified().await;
        }
        if matches!(call.slot, Slot::Part(10 | 11)) {
            self.pair.wait().await;
        }
        Job::Begin {
            plan: (),
            child: None,
            creates: Vec::new(),
            node_input_hash: None,
        }
    }

    async fn carry_out(
        &self,
        call: &Call,
        _plan: (),
        _stop: &Stop,
        _reports: &Reports<Infallible>,
    ) -> Ended {
        if call.slot == Slot::Part(0) {
            self.looks.notified().await;
            self.ended.notify_one();
        }
        Ended::Outcome(Box::new(CallOutcome {
            result: Arc::new(Value::Null),
            failure: None,
            certainty: Certainty::Known,
            cached: false,
            node_input_hash: None,
        }))
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("nothing waits for what waits for it")
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_continue_while_the_driver_waits_for_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    let kind = Entangled {
        calls: vec![(0, 0), (1, 0), (2, 1)],
        ..Entangled::default()
    };
    let stop = Stop::new();
    let driven = drive::drive(&services, Arc::new(kind), &run, &stop);
    let exit = in_time(driven).await.unwrap();
    assert_eq!(exit, DriverExit::Ended);
    let record = services.journal.run(&run.id).await.unwrap().unwrap();
    assert_eq!(record.status(), Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_may_begin_at_once_are_looked_up_together() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    let kind = Entangled {
        calls: vec![(10, 0), (11, 0), (12, 1)],
        ..Entangled::default()
    };
    let stop = Stop::new();
    let driven = drive::drive(&services, Arc::new(kind), &run, &stop);
    assert_eq!(in_time(driven).await.unwrap(), DriverExit::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovered_run_is_on_record_before_its_first_move() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), Epoch(0)).await;
    assert_eq!(run.revivals, 0);
    let (journal, id) = (Arc::clone(&services.journal), run.id.clone());
    let look = move || {
        // The record is given out once its last event is durable.
        let record = journal.run(&id).now_or_never();
        let record = record.expect("its last event is durable").unwrap().unwrap();
        assert_eq!(record.revivals, 1, "this life has claimed it");
    };
    let kind = Entangled {
        first: Some(Arc::new(look)),
        ..Entangled::default()
    };
    let stop = Stop::new();
    let driven = drive::drive(&services, Arc::new(kind), &run, &stop);
    assert_eq!(in_time(driven).await.unwrap(), DriverExit::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_whose_run_was_ended_and_has_left_memory_ends() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join(".ai")).unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    // Its one call waits for a look-up that never comes.
    let kind = Entangled {
        calls: vec![(0, 0)],
        ..Entangled::default()
    };
    let (journal, id) = (Arc::clone(&services.journal), run.id.clone());
    let mut driven = Box::pin(async move {
        let stop = Stop::new();
        drive::drive(&services, Arc::new(kind), &run, &stop).await
    });
    for _ in 0..64 {
        assert!(driven.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let killed = RunEvent::RunKilled {
        cause: "a test".to_owned(),
        receipt: KillReceipt::default(),
    };
    let killed = Change::event(&id, killed.into());
    journal.commit(vec![killed]).await.unwrap();
    in_time(async {
        while journal.snapshot(&id).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A task of its own: one that runs in circles would not let the time run out.
    let mut group = Group::new();
    group.spawn(driven);
    let left = in_time(group.next()).await.unwrap().unwrap_err();
    assert!(matches!(left, Error::Unknown { run } if run == id));
}
