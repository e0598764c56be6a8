//! Behaviour of the walker: the nodes it attempts and its end.

mod again;
mod child_runs;
mod ends;
mod foreach;
mod hooks;
mod memory;
mod names;
mod properties;
mod repairs;
mod retry;
mod services;
mod siblings;
mod steps;
mod uncertain;
mod waiting;

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::definition;
use crate::id::{Epoch, ItemId, ItemRef, RunId};
use crate::machine::{Certainty, Observe as _};
use crate::model::event::{CancelRequested, RunResumed, RunStarted, StepCompleted, Warning};
use crate::model::{
    AttemptId, Budget, Effect, Extent, GraphTask, Limits, Object, RunKind, Spec, StartFrom, Status,
    SuspendReason, Task, UnfinishedWork, Verdict,
};
use crate::model::{GraphEvent, RunEvent};

const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n\
                    category: t\npermissions: [\"rye.*\"]\n";

fn graph(config: &str) -> Arc<Graph> {
    let text = format!("{HEAD}config:\n{config}");
    let (graph, _) =
        definition::parse(&text).unwrap_or_else(|findings| panic!("{findings:#?}\n{text}"));
    Arc::new(graph)
}

fn spec(inputs: Value, steps: Option<u32>) -> Spec {
    let id = RunId::new("t-1-a").unwrap();
    let Value::Object(inputs) = inputs else {
        unreachable!()
    };
    Spec {
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        limits: Limits {
            steps,
            ..Limits::default()
        },
        inputs,
        ..Spec::new(
            Task::of(RunKind::Graph),
            ItemRef::tool(ItemId::new("t/g").unwrap()),
            id.clone(),
            Budget::open(id),
        )
    }
}

fn begun(spec: Spec) -> Run {
    let id = RunId::new("t-1-a").unwrap();
    let mut run = Run::create(id, now(0), Arc::new(spec));
    run.apply(now(0), &Event::Run(RunEvent::started(Epoch(1))))
        .unwrap();
    run
}

fn run(inputs: Value, steps: Option<u32>) -> Run {
    begun(spec(inputs, steps))
}

/// A run that begins at `node` with earlier state and unfinished work.
fn seeded(node: &str, (state, left): (GraphState, UnfinishedWork), extent: Extent) -> Run {
    let inputs = state.vars.get("inputs").cloned();
    let start_from = StartFrom {
        node: node.into(),
        state,
        left: Some(left),
        then: None,
        extent,
    };
    begun(Spec {
        task: beginning_at(start_from),
        ..spec(inputs.unwrap_or_else(|| json!({})), None)
    })
}

fn beginning_at(start_from: StartFrom) -> Task {
    Task::Graph(GraphTask {
        start_from: Some(Arc::new(start_from)),
        ..GraphTask::default()
    })
}

fn now(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_700_000_000_000 + ms)
}

fn up(ms: i64) -> Uptime {
    Uptime::default().plus(Duration::from_millis(u64::try_from(ms).unwrap()))
}

/// Both clocks, without any change of the wall clock.
fn tick(ms: i64) -> Tick {
    Tick {
        at: now(ms),
        up: up(ms),
    }
}

fn policy() -> Arc<Policy> {
    Arc::new(Policy::from_config(&json!({})).unwrap())
}

fn answered(result: Value) -> CallOutcome {
    CallOutcome::known(result)
}

/// A tool that answers with its parameters. `fail: why` makes it fail, `below: n` only while `n` is less. `end: never`
/// and `end: unknown` set the certainty, `again: true` makes the failure retryable. `once` makes it at-most-once.
fn echo(call: &Call) -> CallOutcome {
    let result = Value::Object(call.params.clone());
    let spared = call
        .params
        .get("below")
        .is_some_and(|below| result["n"].as_u64() >= below.as_u64());
    let Some(why) = call.params.get("fail").filter(|_| !spared) else {
        return answered(result);
    };
    let certainty = match call.params.get("end").and_then(Value::as_str) {
        Some("never") => Certainty::NeverStarted,
        Some("unknown") => Certainty::Unknown,
        Some(_) | None => Certainty::Known,
    };
    let text = why.as_str().map_or_else(|| why.to_string(), str::to_owned);
    CallOutcome {
        failure: Some(Failure {
            retryable: call.params.contains_key("again"),
            is_decided: false,
            ..Failure::permanent("tool_failed", text)
        }),
        certainty,
        ..answered(json!({"status": "error", "error": why}))
    }
}

/// The reason for which a walk pauses.
#[derive(Debug, Clone, PartialEq)]
enum Rest {
    Waits(Option<Uptime>),
    Suspended,
    Ended,
}

/// A driver without a journal. Calls begin immediately and end when the test requests it; time passes only where the
/// test waits.
struct Stage {
    walker: Walker,
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    /// The record before the first event of `log`.
    born: Run,
    log: Vec<(Timestamp, Event)>,
    /// Milliseconds of uptime.
    clock: i64,
    /// Milliseconds by which the wall clock was set forward.
    wall_is_ahead: i64,
    in_flight: VecDeque<Call>,
    calls: Vec<Call>,
    most_at_once: usize,
}

impl Stage {
    fn of(config: &str, run: Run) -> Self {
        Self::under(config, run, &json!({}))
    }

    fn under(config: &str, run: Run, configuration: &Value) -> Self {
        let graph = graph(config);
        let policy = Arc::new(Policy::from_config(configuration).unwrap());
        Self {
            walker: Walker::new(
                Arc::clone(&graph),
                Arc::clone(&policy),
                Arc::new(run.clone()),
            ),
            graph,
            policy,
            born: run,
            log: Vec::new(),
            clock: 0,
            wall_is_ahead: 0,
            in_flight: VecDeque::new(),
            calls: Vec::new(),
            most_at_once: 0,
        }
    }

    fn now(&self) -> Timestamp {
        now(self.clock + self.wall_is_ahead)
    }

    fn tick(&self) -> Tick {
        Tick {
            at: self.now(),
            up: up(self.clock),
        }
    }

    fn note(&mut self, events: Vec<Event>) {
        let at = self.now();
        self.log.extend(events.into_iter().map(|event| (at, event)));
    }

    /// Continues until nothing more happens without the end of a call, or time.
    fn settle(&mut self) -> Rest {
        for _ in 0..100_000 {
            let at = self.tick();
            match self.walker.next(at) {
                Move::Query(_, query) => panic!("the graph has no service: {query:?}"),
                Move::Note(events) => self.note(events),
                Move::Call(events, mut call) => {
                    self.note(events);
                    if call.undeclared && call.params.contains_key("once") {
                        call.effect = Effect::AtMostOnce;
                    }
                    let announced = self.walker.start(at, &call, None, InputHashes::default());
                    self.note(announced);
                    self.calls.push(Call::clone(&call));
                    self.in_flight.push_back(*call);
                    self.most_at_once = self.most_at_once.max(self.in_flight.len());
                }
                Move::Wait(events, until) => {
                    self.note(events);
                    return Rest::Waits(until);
                }
                Move::Suspended(events) => {
                    self.note(events);
                    return Rest::Suspended;
                }
                Move::End(events) => {
                    self.note(events);
                    return Rest::Ended;
                }
            }
        }
        panic!("the walk does not end: {:?}", self.walker.run().life);
    }

    /// Ends the call in flight that began first.
    fn end_one(&mut self, answer: impl Fn(&Call) -> CallOutcome) -> Call {
        let call = self.in_flight.pop_front().expect("a call in flight");
        self.clock += 1;
        let events = self.walker.conclude(self.tick(), call.slot, &answer(&call));
        self.note(events);
        call
    }

    /// Plays until the run ends or is suspended, with calls that end in the order in which they began.
    fn play(&mut self) -> Rest {
        self.play_with(echo)
    }

    fn play_with(&mut self, answer: impl Fn(&Call) -> CallOutcome) -> Rest {
        loop {
            match self.settle() {
                Rest::Waits(_) if !self.in_flight.is_empty() => {
                    self.end_one(&answer);
                }
                Rest::Waits(Some(until)) => {
                    let left = until.since(up(self.clock)).as_millis();
                    self.clock += i64::try_from(left).unwrap();
                }
                Rest::Waits(None) => panic!("it waits for nothing: {:?}", self.walker.run().life),
                rest @ (Rest::Suspended | Rest::Ended) => {
                    self.check_record();
                    return rest;
                }
            }
        }
    }

    /// Stops the calls that are of no use any more, as the driver does; returns them.
    fn stop_useless(&mut self) -> Vec<Slot> {
        let useless = self.walker.useless();
        for slot in &useless {
            self.in_flight.retain(|call| call.slot != *slot);
            let events = self.walker.stopped(self.tick(), *slot);
            self.note(events);
        }
        useless
    }

    /// Announces the next call without carrying it out.
    fn call(&mut self) -> Call {
        self.settle();
        self.in_flight.back().expect("a call").clone()
    }

    fn observe(&mut self, event: Event) {
        self.walker.observe(self.now(), &event).unwrap();
        self.note(vec![event]);
    }

    /// Returns the warnings for the author, in order.
    fn warnings(&self) -> Vec<&str> {
        let mut told = Vec::new();
        for (_, event) in &self.log {
            if let Event::Run(RunEvent::Warning(Warning { message, .. })) = event {
                told.push(message.as_str());
            }
        }
        told
    }

    fn cancel(&mut self) {
        self.observe(Event::from(CancelRequested {
            cause: "ada".into(),
        }));
    }

    /// Simulates a crash: the daemon loses all calls in flight, and recovers the run from its record.
    fn crash(&mut self) {
        self.check_record();
        self.in_flight.clear();
        let run = Arc::clone(self.walker.run());
        self.walker = Walker::new(Arc::clone(&self.graph), Arc::clone(&self.policy), run);
        let epoch = Epoch(self.walker.run().epoch.0 + 1);
        let suspected = true;
        let fault = false;
        self.observe(Event::from(RunStarted {
            epoch,
            suspected,
            fault,
        }));
    }

    /// Resumes the suspended run.
    fn resume(&mut self, max_steps: Option<u32>) {
        let run = Arc::clone(self.walker.run());
        self.walker = Walker::new(Arc::clone(&self.graph), Arc::clone(&self.policy), run);
        let epoch = Epoch(1);
        let raised = crate::model::Raised {
            max_steps,
            ..Default::default()
        };
        self.observe(Event::from(RunResumed { epoch, raised }));
    }

    /// Checks that the record results from its events.
    fn check_record(&self) {
        let mut replayed = self.born.clone();
        for (at, event) in &self.log {
            replayed.apply(*at, event).expect("a legal event");
        }
        assert_eq!(&replayed, &**self.walker.run());
    }

    fn run(&self) -> &Run {
        self.walker.run()
    }

    /// Returns the nodes in the order of their completion.
    fn path(&self) -> String {
        let done = self.log.iter().filter_map(|(_, event)| {
            let Event::Graph(GraphEvent::StepCompleted(StepCompleted { node, status, .. })) = event
            else {
                return None;
            };
            Some(format!("{node}:{}", status.as_str()))
        });
        done.collect::<Vec<_>>().join(" ")
    }

    /// Returns the names of events since the start of the run.
    fn names(&self) -> Vec<&'static str> {
        self.log.iter().map(|(_, event)| event.name()).collect()
    }

    fn failure(&self) -> &Failure {
        let Some(Outcome::Error { error }) = self.run().outcome() else {
            panic!("no failure: {:?}", self.run().life)
        };
        error
    }

    fn why_suspended(&self) -> &Suspension {
        self.run().suspension().expect("a suspended run")
    }

    fn state(&self) -> Value {
        state(self.run())
    }

    /// Returns the attempted items, in order.
    fn items(&self) -> Vec<u32> {
        let item = |call: &Call| match call.slot {
            Slot::Part(item) => Some(item),
            Slot::Main | Slot::Hook(_) => None,
        };
        self.calls.iter().filter_map(item).collect()
    }

    /// Returns the calls that hooks made.
    fn hooks(&self) -> Vec<&Call> {
        let of_hook = |call: &&Call| matches!(call.slot, Slot::Hook(_));
        self.calls.iter().filter(of_hook).collect()
    }
}

/// Walks to the end; returns the nodes in the order of their completion, and the record.
fn walk(config: &str, run: Run) -> (String, Run) {
    let mut stage = Stage::of(config, run);
    stage.play();
    (stage.path(), stage.run().clone())
}

fn state(run: &Run) -> Value {
    let mut state = run.vars().unwrap().to_value();
    state.as_object_mut().unwrap().shift_remove("inputs");
    state
}
