//! Properties of every graph, in any order of answers, over crashes and requests to stop.

use std::collections::BTreeMap;

use super::*;
use crate::model::event::{
    CancelRequested, HookCompleted, HookStarted, ItemCompleted, ItemStarted, StepCompleted,
    StepStarted, UncertainAnswered,
};
use crate::model::{ApprovalAnswer, GraphEvent, RunEvent};

/// One node of an arbitrary graph.
#[derive(Debug, Clone)]
struct Shape {
    kind: u8,
    next: Option<usize>,
    rescue: Option<usize>,
    retry: Option<u32>,
    once: bool,
    items: Vec<u8>,
    at_once: Option<u32>,
    collects: bool,
}

const NODES: usize = 5;

fn any_shape() -> impl Strategy<Value = Shape> {
    (
        0..10_u8,
        proptest::option::weighted(0.8, 0..NODES),
        proptest::option::of(0..NODES),
        proptest::option::of(0..3_u32),
        proptest::bool::weighted(0.2),
        proptest::collection::vec(0..6_u8, 0..6),
        proptest::option::of(1..4_u32),
        any::<bool>(),
    )
        .prop_map(
            |(kind, next, rescue, retry, once, items, at_once, collects)| Shape {
                kind,
                next,
                rescue,
                retry,
                once,
                items,
                at_once,
                collects,
            },
        )
}

impl Shape {
    /// Lets all items but one succeed if the failure of one stops the others: which one fails first is chance.
    fn one_failing(&self, kinds: Vec<u8>) -> impl Iterator<Item = u8> {
        let (collects, mut failed) = (self.collects, false);
        kinds.into_iter().map(move |kind| {
            let fails = kind < 3;
            let kept = collects || !(fails && failed);
            failed |= fails;
            if kept { kind } else { 3 }
        })
    }

    fn text(&self, index: usize) -> String {
        let trace = format!("trace: '${{state.trace}} n{index}'");
        let tries = format!("n: '${{state._retries.n{index}}}'");
        let mut keys = match self.kind {
            0 => vec![format!("assign: {{{trace}}}")],
            5 => {
                let items: Vec<String> = self
                    .one_failing(self.items.clone())
                    .map(|kind| item(kind, self.once))
                    .collect();
                let mut keys = vec![
                    "type: foreach".to_owned(),
                    format!("over: [{}]", items.join(", ")),
                    format!(
                        "action: {{item_id: rye/core/echo, params: {{v: '${{item.v}}', fail: '${{item.fail}}', \
                         below: '${{item.below}}', end: '${{item.end}}', {tries}}}}}"
                    ),
                    format!("collect: c{index}"),
                    format!("assign: {{{trace}}}"),
                ];
                keys.extend(
                    self.at_once
                        .map(|most| format!("parallel: true, max_concurrency: {most}")),
                );
                keys.extend(self.collects.then(|| "on_item_error: collect".to_owned()));
                keys
            }
            6 => {
                // At least one branch.
                let kinds = [&self.items[..], &[3]].concat();
                let branches: Vec<String> = self
                    .one_failing(kinds)
                    .enumerate()
                    .map(|(at, kind)| {
                        let params = item(kind, self.once);
                        let params = params.trim_end_matches('}');
                        format!("b{at}: {{item_id: rye/core/echo, params: {params}, {tries}}}}}")
                    })
                    .collect();
                let mut keys = vec![
                    "type: parallel".to_owned(),
                    format!("branches: {{{}}}", branches.join(", ")),
                    format!("assign: {{{trace}, v: '${{result.b0.v}}'}}"),
                ];
                keys.extend(self.at_once.map(|most| format!("max_concurrency: {most}")));
                keys.extend(self.collects.then(|| "on_item_error: collect".to_owned()));
                keys
            }
            7 => vec![
                "type: wait, for: 3".to_owned(),
                format!("assign: {{{trace}}}"),
            ],
            8 => vec![
                format!("type: approval, message: 'n{index}?'"),
                format!("assign: {{{trace}, v: '${{result.answer}}'}}"),
            ],
            9 => vec!["type: fail, message: enough, code: enough".to_owned()],
            kind => {
                let params = match kind {
                    1 => "v: 1".to_owned(),
                    2 => "fail: boom".to_owned(),
                    3 => format!("fail: boom, below: 2, {tries}"),
                    _ => format!("fail: never, end: never, again: true, below: 1, {tries}"),
                };
                vec![
                    format!("action: {{item_id: rye/core/echo, params: {{{params}}}}}"),
                    format!("assign: {{{trace}, v: '${{result.v}}'}}"),
                ]
            }
        };
        if self.kind < 9 {
            keys.extend(self.next.map(|to| format!("next: n{to}")));
        }
        if (1..9).contains(&self.kind) {
            keys.extend(self.rescue.map(|to| format!("on_error: n{to}")));
        }
        if (1..7).contains(&self.kind) {
            keys.extend(self.retry.map(|max| format!("retry: {max}")));
            keys.extend(self.once.then(|| "effect: at_most_once".to_owned()));
        }
        format!("    n{index}: {{{}}}\n", keys.join(", "))
    }
}

/// The items that begin next to a failing one depend on the order of answers. An at-most-once node is retried only if
/// none of its items began, so its items are equal in that respect.
fn item(kind: u8, once: bool) -> String {
    match kind {
        0 => "{fail: boom}".to_owned(),
        1 => "{fail: boom, below: 1}".to_owned(),
        2 if !once => "{fail: never, end: never}".to_owned(),
        v => format!("{{v: {v}}}"),
    }
}

const HOOKS: [&str; 8] = [
    "{event: error, action: {retry: true, max_retries: 1}}",
    "{event: error, condition: {path: node, op: eq, value: n1}, action: {item_id: rye/core/echo, params: {action: skip}}}",
    "{event: error, condition: {path: node, op: eq, value: n2}, action: {item_id: rye/agent/threads/internal/control, params: {action: continue}}}",
    "{event: after_step, action: {item_id: rye/core/echo, params: {v: '${node}'}}}",
    "{event: after_step, condition: {path: step_count, op: eq, value: 3}, action: {item_id: rye/core/echo, params: {fail: x}}}",
    "{event: limit, condition: {path: current_max, op: lt, value: 20}, action: {item_id: rye/core/echo, params: {action: continue, additional_steps: 4}}}",
    "{event: graph_started, action: {item_id: rye/core/echo}}",
    "{event: graph_completed, action: {item_id: rye/core/echo}}",
];

fn any_graph() -> impl Strategy<Value = String> {
    (
        proptest::collection::vec(any_shape(), NODES),
        1..16_u32,
        any::<bool>(),
        proptest::collection::vec(any::<bool>(), HOOKS.len()),
    )
        .prop_map(|(shapes, max, lenient, chosen)| {
            let nodes: String = (0..)
                .zip(&shapes)
                .map(|(at, shape)| shape.text(at))
                .collect();
            let policy = if lenient { "continue" } else { "fail" };
            let chosen = HOOKS.iter().zip(chosen).filter(|(_, chosen)| *chosen);
            let hooks: Vec<String> = chosen.map(|(hook, _)| format!("    - {hook}\n")).collect();
            let hooks = hooks.concat();
            let hooks = if hooks.is_empty() {
                hooks
            } else {
                format!("  hooks:\n{hooks}")
            };
            format!(
                "  start: n0\n  on_error: {policy}\n  max_steps: {max}\n  nodes:\n{nodes}{hooks}"
            )
        })
}

/// Like [`echo`], without the try in which an item began: that depends on the order of answers.
fn steady(call: &Call) -> CallOutcome {
    let mut answer = echo(call);
    if let Value::Object(result) = Arc::make_mut(&mut answer.result) {
        result.shift_remove("n");
    }
    answer
}

/// No graph of [`any_graph`] takes more steps: a limit below 20 is raised by 4.
const MOST_STEPS: u32 = 24;

/// A driver with a journal, in which things happen in the order of `dice`.
struct Chance {
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    walker: Walker,
    /// The durable record.
    record: Run,
    log: Vec<Event>,
    /// Events that are not durable yet.
    planned: Vec<(Timestamp, Event)>,
    in_flight: Vec<Call>,
    dice: Vec<u8>,
    rolled: usize,
    crashes: u32,
    clock: i64,
    cancels: bool,
}

impl Chance {
    fn new(config: &str, dice: &[u8]) -> Self {
        let (graph, policy, run) = (graph(config), policy(), run(json!({}), None));
        Self {
            walker: Walker::new(
                Arc::clone(&graph),
                Arc::clone(&policy),
                Arc::new(run.clone()),
            ),
            graph,
            policy,
            record: run,
            log: Vec::new(),
            planned: Vec::new(),
            in_flight: Vec::new(),
            dice: dice.to_vec(),
            rolled: 0,
            crashes: 0,
            clock: 0,
            cancels: false,
        }
    }

    /// Returns a number below `sides`; always 0 without dice.
    fn roll(&mut self, sides: usize) -> usize {
        self.rolled += 1;
        let die = self.dice.get(self.rolled % self.dice.len().max(1));
        die.map_or(0, |die| usize::from(*die) % sides)
    }

    fn now(&self) -> Timestamp {
        now(self.clock)
    }

    fn plan(&mut self, events: Vec<Event>) {
        let at = self.now();
        self.planned
            .extend(events.into_iter().map(|event| (at, event)));
    }

    fn commit(&mut self) {
        for (at, event) in self.planned.drain(..) {
            self.record
                .apply(at, &event)
                .expect("the journal takes what the walker emits");
            self.log.push(event);
        }
    }

    fn deliver(&mut self, event: Event) {
        self.walker
            .observe(self.now(), &event)
            .expect("a legal event");
        self.plan(vec![event]);
        self.commit();
    }

    /// Simulates a crash: events that are not durable are lost.
    fn crash(&mut self) {
        self.crashes += 1;
        self.planned.clear();
        self.in_flight.clear();
        self.recover(Event::Run(RunEvent::started(Epoch(2))));
    }

    fn recover(&mut self, event: Event) {
        let (graph, policy) = (Arc::clone(&self.graph), Arc::clone(&self.policy));
        self.walker = Walker::new(graph, policy, Arc::new(self.record.clone()));
        self.deliver(event);
    }

    fn maybe_crash(&mut self) -> bool {
        let ended = self.record.status().is_terminal();
        let crashes = !self.dice.is_empty() && !ended && self.crashes < 8 && self.roll(4) == 1;
        if crashes {
            self.crash();
        }
        crashes
    }

    /// Declares every attempt of unknown outcome as not executed, and answers questions: those of node 1 always with
    /// no.
    fn proceed(&mut self) {
        let asked: Vec<_> = self.record.approvals.open().cloned().collect();
        for asked in asked {
            let approved = asked.message != "n1?";
            self.plan(vec![Event::Run(RunEvent::ApprovalAnswered(
                ApprovalAnswer {
                    id: asked.id,
                    approved,
                    answer: approved.then(|| Arc::new(json!(7))),
                    comment: None,
                    by: "ada".into(),
                },
            ))]);
        }
        let lost = self.record.attempts().map(|attempt| attempt.id);
        for AttemptId { step, slot, .. } in lost.collect::<Vec<_>>() {
            let verdict = Event::from(UncertainAnswered {
                step,
                slot,
                verdict: Verdict::Retry,
                result: None,
                by: "ada".into(),
            });
            self.plan(vec![verdict]);
        }
        self.commit();
        self.recover(Event::Run(RunEvent::resumed(Epoch(2))));
    }

    fn play(mut self) -> Self {
        for _ in 0..20_000 {
            self.clock += 1;
            if self.cancels && self.walker.run().cancel.is_none() && self.roll(9) == 1 {
                let request = Event::from(CancelRequested { cause: "u".into() });
                if !self.walker.run().status().is_terminal() {
                    self.deliver(request);
                }
            }
            let at = tick(self.clock);
            match self.walker.next(at) {
                Move::Query(_, query) => panic!("the graph has no service: {query:?}"),
                Move::Note(events) => {
                    self.plan(events);
                    if !self.maybe_crash() {
                        self.commit();
                    }
                }
                Move::Call(events, call) => {
                    self.plan(events);
                    if self.roll(5) == 1 {
                        let answer = steady(&call);
                        let events = self.walker.conclude(at, call.slot, &answer);
                        self.plan(events);
                    } else {
                        let events = self.walker.start(at, &call, None, InputHashes::default());
                        self.plan(events);
                        self.in_flight.push(*call);
                    }
                }
                Move::Wait(events, until) => {
                    self.plan(events);
                    if self.maybe_crash() {
                        continue;
                    }
                    self.commit();
                    assert_eq!(&self.record, &**self.walker.run());
                    if self.in_flight.is_empty() {
                        let until = until.expect("it waits for something");
                        self.clock += i64::try_from(until.since(at.up).as_millis()).unwrap();
                        continue;
                    }
                    let which = self.roll(self.in_flight.len());
                    let call = self.in_flight.remove(which);
                    let answer = steady(&call);
                    let events = self.walker.conclude(at, call.slot, &answer);
                    self.plan(events);
                    if self.roll(3) == 1 {
                        // An orderly end of the daemon: finished work is recorded, nothing new begins.
                        self.commit();
                        self.maybe_crash();
                    }
                }
                Move::Suspended(events) => {
                    self.plan(events);
                    self.commit();
                    self.proceed();
                }
                Move::End(events) => {
                    self.plan(events);
                    if self.maybe_crash() {
                        continue;
                    }
                    self.commit();
                    assert_eq!(&self.record, &**self.walker.run());
                    return self;
                }
            }
        }
        panic!("the walk does not end: {:?}", self.walker.run().life);
    }

    /// Checks that no ended attempt is started again, except a failed one that is retried.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a look at some events of many"
    )]
    fn check_starts(&self) {
        let mut steps = BTreeSet::new();
        let mut items: BTreeMap<(u32, u32), bool> = BTreeMap::new();
        let mut attempts: BTreeMap<(u32, Slot), u32> = BTreeMap::new();
        let mut answered = BTreeSet::new();
        for event in &self.log {
            match event {
                Event::Run(RunEvent::StepStarted(StepStarted { step, attempt, .. })) => {
                    assert!(!steps.contains(step), "step {step} again");
                    let before = attempts.insert((*step, Slot::Main), *attempt);
                    assert!(before.unwrap_or(0) < *attempt);
                }
                Event::Graph(GraphEvent::StepCompleted(StepCompleted { step, .. })) => {
                    assert!(steps.insert(*step), "step {step} ended twice");
                }
                Event::Graph(GraphEvent::ItemStarted(ItemStarted {
                    step,
                    item,
                    attempt,
                    ..
                })) => {
                    assert!(!items.contains_key(&(*step, *item)), "item {item} again");
                    let before = attempts.insert((*step, Slot::Part(*item)), *attempt);
                    assert!(before.unwrap_or(0) < *attempt);
                }
                Event::Graph(GraphEvent::ItemCompleted(ItemCompleted {
                    step,
                    item,
                    error,
                    ..
                })) => {
                    let before = items.insert((*step, *item), error.is_some());
                    assert_eq!(before, None, "item {item} ended twice");
                }
                Event::Graph(GraphEvent::RetryScheduled(retry)) => match retry.item {
                    None => items.retain(|_, failed| !*failed),
                    Some(item) => assert!(!items.contains_key(&(retry.step, item))),
                },
                Event::Run(RunEvent::HooksBegun(_)) => answered.clear(),
                Event::Run(RunEvent::HookStarted(HookStarted { index, .. })) => {
                    assert!(!answered.contains(index));
                }
                Event::Run(RunEvent::HookCompleted(HookCompleted { index, .. })) => {
                    assert!(answered.insert(*index));
                }
                _ => {}
            }
        }
    }

    /// Checks that keys are equal for the same action over all tries, and different for different ones.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a look at some events of many"
    )]
    fn check_keys(&self) {
        let mut keys: BTreeMap<String, &str> = BTreeMap::new();
        let mut visits = BTreeMap::new();
        for event in &self.log {
            let (what, key) = match event {
                Event::Run(RunEvent::StepStarted(StepStarted {
                    step,
                    node,
                    visit,
                    key,
                    ..
                })) => {
                    visits.insert(*step, *visit);
                    (format!("{node} {visit}"), key)
                }
                Event::Graph(GraphEvent::ItemStarted(ItemStarted {
                    step,
                    node,
                    item,
                    key,
                    ..
                })) => (format!("{node} {} {item}", visits[step]), key),
                Event::Run(RunEvent::HookStarted(HookStarted {
                    step,
                    event,
                    hook,
                    key,
                    ..
                })) => (format!("{step} {event} {hook}"), key),
                _ => continue,
            };
            let before = keys.insert(what, key);
            assert!(before.is_none_or(|before| before == key));
        }
        let different: BTreeSet<_> = keys.values().collect();
        assert_eq!(different.len(), keys.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn crashes_and_answer_order_do_not_change_results(
        config in any_graph(),
        dice in proptest::collection::vec(any::<u8>(), 1..120),
    ) {
        let still = Chance::new(&config, &[]).play();
        let shaken = Chance::new(&config, &dice).play();
        for walked in [&still, &shaken] {
            prop_assert!(walked.record.status().is_terminal());
            prop_assert!(walked.record.steps() <= MOST_STEPS);
            walked.check_starts();
            walked.check_keys();
        }
        let told = |run: &Run| (run.life.clone(), run.vars().cloned(), run.steps(), Arc::clone(&run.graph().unwrap().visits));
        prop_assert_eq!(told(&shaken.record), told(&still.record));
    }

    #[test]
    fn a_request_to_stop_ends_a_run_at_any_time(
        config in any_graph(),
        dice in proptest::collection::vec(any::<u8>(), 1..120),
    ) {
        let mut chance = Chance::new(&config, &dice);
        chance.cancels = true;
        let walked = chance.play();
        prop_assert!(walked.record.status().is_terminal());
        let text = serde_json::to_string(&walked.record).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Run>(&text).unwrap(), &walked.record);
        walked.check_starts();
    }
}
