//! Attempts and plans of the driver, with a scripted machine and kind.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rye_core::cas::InputHashes;
use rye_core::clock::{Tick, Timestamp};
use rye_core::id::{Epoch, ItemId, ItemRef, RunId};
use rye_core::machine::{Call, CallOutcome, Machine, Move};
use rye_core::model::event::{RunKilled, UncertainAnswered};
use rye_core::model::{Event, KillReceipt, Object, Outcome, Run, RunEvent, Slot, Status, Verdict};
use rye_core::state::Change;
use rye_host::task::Group;
use rye_journal::Error;
use ryed::drive::{self, Job, Kind, Reports};
use ryed::services::Ended;
use ryed::stop::{DriverExit, Stop};
use serde_json::json;
use tokio::sync::Notify;

use super::bare::{begin, done, in_time, run, services, spec};

/// Makes the given calls, each as soon as possible, and ends the run when all have ended.
#[derive(Clone)]
struct Script {
    run: Arc<Run>,
    /// Calls not made yet, each with the number of calls that must have ended before.
    calls: Vec<(u32, usize)>,
    ended: usize,
    open: usize,
    /// Called before the first move.
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
    type Query = Infallible;
    type Answer = Infallible;

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

    fn note(&mut self, now: Tick, event: RunEvent) -> Vec<Event> {
        let event = Event::from(event);
        Arc::make_mut(&mut self.run).apply(now.at, &event).unwrap();
        vec![event]
    }

    fn start(
        &mut self,
        _now: Tick,
        _call: &Call,
        _child: Option<RunId>,
        _hashes: InputHashes,
    ) -> Vec<Event> {
        Vec::new()
    }

    fn conclude(&mut self, _now: Tick, _slot: Slot, _outcome: &CallOutcome) -> Vec<Event> {
        self.ended += 1;
        Vec::new()
    }

    fn on_signal(&mut self, _now: Tick, _slot: Slot, signal: Infallible) -> Vec<Event> {
        match signal {}
    }

    fn answered(&mut self, _now: Tick, answer: Infallible) -> Vec<Event> {
        match answer {}
    }

    fn abandon(&mut self, _slot: Slot) {
        self.ended += 1;
    }
}

/// Part 0 ends only after the lookup of part 2 has begun, and part 2 is looked up only once part 0 has ended. Parts 10
/// and 11 are looked up only together.
struct Entangled {
    looks: Notify,
    ended: Notify,
    calls: Vec<(u32, usize)>,
    first: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Entangled {
    fn default() -> Self {
        Self {
            looks: Notify::new(),
            ended: Notify::new(),
            calls: Vec::new(),
            first: None,
        }
    }
}

/// A call whose child run would begin with an answer to a question that does not exist.
fn misshapen_child() -> Job<()> {
    let child = RunId::new("t-2-b").unwrap();
    let answered = UncertainAnswered {
        step: 1,
        slot: Slot::Main,
        verdict: Verdict::Retry,
        result: None,
        by: "a test".to_owned(),
    };
    Job::Begin {
        plan: (),
        creates: vec![
            Change::create(&child, Arc::new(spec(&child, Path::new("/nowhere")))),
            Change::event(&child, answered.into()),
        ],
        child: Some(child),
        hashes: InputHashes::default(),
    }
}

/// Receipt of the call 30, which ends in the moment in which its run is killed.
fn receipt() -> KillReceipt {
    KillReceipt {
        survivors: vec![7],
        ..KillReceipt::default()
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

    async fn look_up(&self, _run: &Run, calls: &[&Call]) -> Vec<Job<()>> {
        let slots: Vec<Slot> = calls.iter().map(|call| call.slot).collect();
        if slots.contains(&Slot::Part(2)) {
            self.looks.notify_one();
            self.ended.notified().await;
        }
        if slots.contains(&Slot::Part(10)) != slots.contains(&Slot::Part(11)) {
            std::future::pending::<()>().await;
        }
        let look_up = |call: &&Call| match call.slot {
            Slot::Part(20) => misshapen_child(),
            Slot::Main | Slot::Part(_) | Slot::Hook(_) => begin(),
        };
        calls.iter().map(look_up).collect()
    }

    async fn answer(&self, _run: &Run, query: &Infallible) -> Result<Infallible, Error> {
        match *query {}
    }

    async fn carry_out(
        &self,
        call: &Call,
        _plan: (),
        stop: &Stop,
        _reports: &Reports<Infallible>,
    ) -> Ended {
        if call.slot == Slot::Part(30) {
            stop.kill("a test", Duration::ZERO);
            return Ended::Stopped(receipt());
        }
        if call.slot == Slot::Part(0) {
            self.looks.notified().await;
            self.ended.notify_one();
        }
        done()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_continue_while_driver_waits() {
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
async fn receipt_of_call_that_ends_before_the_driver_sees_the_kill_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    let kind = Entangled {
        calls: vec![(30, 0)],
        ..Entangled::default()
    };
    let driven = drive::drive(&services, Arc::new(kind), &run, &Stop::new()).await;
    assert_eq!(driven.unwrap(), DriverExit::Interrupted(receipt()));
}

#[tokio::test(flavor = "multi_thread")]
async fn startable_items_are_looked_up_together() {
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
async fn invalid_child_record_fails_call_without_retry() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    let kind = Entangled {
        calls: vec![(20, 0), (12, 1)],
        ..Entangled::default()
    };
    let stop = Stop::new();
    // A separate task: an endless loop in the driver would block the timeout.
    let mut group = Group::new();
    let services = Arc::clone(&services);
    group.spawn(async move { drive::drive(&services, Arc::new(kind), &run, &stop).await });
    let left = in_time(group.next()).await.unwrap();
    assert_eq!(left.unwrap(), DriverExit::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn recovered_run_is_recorded_before_first_move() {
    let directory = tempfile::tempdir().unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), Epoch(0)).await;
    assert_ne!(run.epoch, services.epoch);
    let epoch = services.epoch;
    let (journal, id) = (Arc::clone(&services.journal), run.id.clone());
    let look = move || {
        // The journal returns the record once its last event is durable.
        let record = journal.run(&id).now_or_never();
        let record = record.expect("its last event is durable").unwrap().unwrap();
        assert_eq!(record.epoch, epoch, "this life has claimed it");
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
async fn driver_of_evicted_ended_run_ends() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join(".ai")).unwrap();
    let services = services(directory.path()).await;
    let run = run(&services, directory.path(), services.epoch).await;
    // Its one call waits for a lookup that never ends.
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
    let killed = RunKilled {
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
    // A separate task: an endless loop in the driver would block the timeout.
    let mut group = Group::new();
    group.spawn(driven);
    let left = in_time(group.next()).await.unwrap().unwrap_err();
    assert!(matches!(left, Error::Unknown { run } if run == id));
}
