//! The life of a run as a table: every phase against every event.

mod death;
mod graph;
mod process;
mod raised;
mod reference;
mod spawns;
mod task;
mod thread;
mod unknown;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::{Epoch, ItemId, ItemRef, RunId, Seq};
use crate::ledger::{AccountId, CallNo, Usage};
use crate::model::event::{
    ApprovalInvalidated, BudgetHeld, BudgetRaised, BudgetSettled, CallbackEnded, CallbackStarted,
    CancelRequested, ChildStarted, Emitted, ForeachCompleted, GraphCancelled, GraphCompleted,
    GraphEnding, GraphError, GraphStarted, HookCompleted, HookStarted, HooksBegun, ItemCompleted,
    ItemSigned, ItemStarted, LimitExtended, ParallelCompleted, ProcessExited, ProcessStarted,
    ProcessWaited, RetryScheduled, RunKilled, RunResumed, RunStarted, ServiceStarted,
    StepCompleted, StepFailed, StepStarted, StepWaiting, ToolCallProgress, ToolCancelled,
    ToolCompleted, UncertainAnswered, Warning,
};
use crate::money::Usd;

fn spec(kind: RunKind) -> Arc<Spec> {
    let id = RunId::new("x-1-a").unwrap();
    Arc::new(Spec {
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        ..Spec::new(
            Task::of(kind),
            ItemRef::tool(ItemId::new("a/b").unwrap()),
            id.clone(),
            Budget::open(id),
        )
    })
}

fn started(attempt: u32) -> Event {
    Event::from(StepStarted {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt,
        action_id: "tool:x".into(),
        effect: Effect::Idempotent,
        key: "k".into(),
        replays: false,
        now: Timestamp::from_ms(5),
        items: None,
        branches: Vec::new(),
        child: None,
        call: None,
        chain: None,
        node_input_hash: None,
    })
}

fn completed(next: Option<&str>) -> Event {
    Event::from(StepCompleted {
        step: 1,
        node: "n".into(),
        status: StepStatus::Ok,
        elapsed_ms: 1,
        next_node: next.map(str::to_owned),
        assigned: Object::from_iter([("a".to_owned(), json!(1))]).into(),
        error: None,
        suppressed: false,
        output: None,
        action_id: None,
        result: None,
        cache_hit: false,
        node_input_hash: None,
    })
}

fn failed(attempt: u32) -> Event {
    Event::from(StepFailed {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt,
        now: Timestamp::from_ms(5),
        error: Failure::permanent("c", "m").at("n"),
        result: Arc::new(json!({"a": 1})),
        classification: json!({"category": "permanent"}),
        repeatable: true,
        unknown: false,
    })
}

fn retried(retries: u32) -> Event {
    Event::from(RetryScheduled {
        item: None,
        error: None,
        step: 1,
        node: "n".into(),
        attempt: retries + 1,
        retries,
        due: Timestamp::from_ms(9),
        by: "node".into(),
    })
}

fn item_started(item: u32, attempt: u32) -> Event {
    Event::from(ItemStarted {
        step: 1,
        node: "n".into(),
        item,
        attempt,
        action_id: "tool:x".into(),
        effect: Effect::AtMostOnce,
        key: "ki".into(),
        child: Some(RunId::new("y-1-a").unwrap()),
        call: None,
        chain: None,
        node_input_hash: Some("h".into()),
    })
}

fn item_completed(item: u32, error: Option<Failure>, suppressed: bool) -> Event {
    Event::from(ItemCompleted {
        step: 1,
        node: "n".into(),
        item,
        status: StepStatus::Ok,
        elapsed_ms: 1,
        result: Arc::new(json!({"i": item})),
        collected: None,
        about: None,
        error,
        never_started: false,
        unknown_below: false,
        uncollected: false,
        suppressed,
        node_input_hash: None,
    })
}

fn hooks_begun(hooks: &[u32]) -> Event {
    Event::from(HooksBegun {
        event: "after_step".into(),
        hooks: hooks.to_vec(),
        context: Arc::new(Object::from_iter([("node".to_owned(), json!("n"))])),
        now: Timestamp::from_ms(5),
    })
}

fn hook_started(index: u32) -> Event {
    Event::from(HookStarted {
        step: 1,
        event: "after_step".into(),
        hook: format!("h{index}"),
        index,
        attempt: 1,
        action_id: "tool:x".into(),
        key: "kh".into(),
        child: None,
        call: None,
        chain: None,
    })
}

fn hook_completed(index: u32, control: Option<Control>) -> Event {
    Event::from(HookCompleted {
        step: 1,
        event: "after_step".into(),
        hook: format!("h{index}"),
        index,
        elapsed_ms: 1,
        control,
        error: None,
    })
}

fn process_of(slot: Slot) -> Event {
    Event::from(ProcessStarted {
        step: 1,
        slot,
        process: ProcessIdentity {
            pid: 7,
            start_time: 1,
            boot_id: "b".into(),
        },
        isolation: None,
        resources: Resources::default(),
    })
}

fn exit_of(slot: Slot) -> Event {
    Event::from(ProcessExited {
        step: 1,
        slot,
        end: ProcessEnd {
            exit_code: Some(0),
            signal: None,
            cause: EndCause::Exited,
            wall_ms: 2,
            cpu_ms: 1,
            max_rss_kib: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            ended: Vec::new(),
        },
    })
}

fn callback_of(slot: Slot) -> Event {
    Event::from(CallbackStarted {
        step: 1,
        slot,
        item: "tool:t/inner".to_owned(),
        child: RunId::new("t-inner-1").unwrap(),
        ordinal: None,
        params_hash: None,
    })
}

fn callback_ended(slot: Slot) -> Event {
    Event::from(CallbackEnded {
        step: 1,
        slot,
        ordinal: 0,
        child: RunId::new("t-inner-1").unwrap(),
        status: Status::Completed,
    })
}

fn progress_of(slot: Slot) -> Event {
    Event::from(ToolCallProgress {
        step: 1,
        slot,
        fraction: Some(0.5),
        message: "half".to_owned(),
    })
}

fn verdict_on(slot: Slot) -> Event {
    Event::from(UncertainAnswered {
        step: 1,
        slot,
        verdict: Verdict::Done,
        result: None,
        by: "ada".into(),
    })
}

fn ending() -> Event {
    Event::from(GraphEnding {
        outcome: Arc::new(Outcome::Completed {
            output: Arc::new(json!(1)),
        }),
    })
}

fn suspended(reason: SuspendReason) -> Event {
    Event::Run(RunEvent::RunSuspended(Suspension::new(reason)))
}

fn resumed(max_steps: Option<u32>) -> Event {
    Event::from(RunResumed {
        epoch: Epoch(1),
        raised: Raised {
            max_steps,
            ..Raised::default()
        },
    })
}

fn graph_started() -> Event {
    Event::from(GraphStarted {
        graph_id: "a/b".into(),
        graph_run_id: RunId::new("x-1-a").unwrap(),
        start_node: "n".into(),
        state: Vars::default(),
    })
}

fn signed() -> Event {
    Event::from(ItemSigned {
        item: "tool:a/b".into(),
        hash: "0".repeat(64),
        key_fp: "0123456789abcdef".into(),
    })
}

/// Events of a kill and of a paid call.
fn of_kill_and_money() -> [(&'static str, Event); 3] {
    [
        (
            "kill",
            Event::Run(RunEvent::KillRequested(Kill::new(
                "uid:0",
                Duration::from_secs(3),
            ))),
        ),
        (
            "hold",
            Event::from(BudgetHeld {
                call: CallNo(1),
                amount: Usd::from_nanos(20),
                model: "m".into(),
                input: 7,
                max_output: 9,
                meters: Vec::new(),
            }),
        ),
        (
            "settle",
            Event::from(BudgetSettled {
                call: CallNo(1),
                amount: Usd::from_nanos(20),
                usage: Usage::default(),
                estimated: false,
                because: Because::NothingSent,
            }),
        ),
    ]
}

/// Every kind of event, some in several forms, each under a unique name.
#[expect(clippy::too_many_lines, reason = "a list, one entry for each event")]
fn every_event() -> Vec<(&'static str, Event)> {
    let error = Failure::permanent("c", "m");
    let mut all = vec![
        (
            "created",
            Event::Run(RunEvent::RunCreated(spec(RunKind::Graph))),
        ),
        ("run", Event::Run(RunEvent::started(Epoch(1)))),
        ("graph", graph_started()),
        ("service", service_started()),
        ("waited", process_waited()),
        ("step", started(1)),
        ("step2", started(2)),
        ("process", process_of(Slot::Main)),
        ("process:item", process_of(Slot::Part(0))),
        ("process:hook", process_of(Slot::Hook(0))),
        ("exit", exit_of(Slot::Main)),
        ("exit:item", exit_of(Slot::Part(0))),
        ("exit:hook", exit_of(Slot::Hook(0))),
        ("callback", callback_of(Slot::Main)),
        ("called", callback_ended(Slot::Main)),
        ("callback:item", callback_of(Slot::Part(0))),
        ("called:item", callback_ended(Slot::Part(0))),
        ("callback:hook", callback_of(Slot::Hook(0))),
        ("called:hook", callback_ended(Slot::Hook(0))),
        ("progress", progress_of(Slot::Main)),
        ("progress:item", progress_of(Slot::Part(0))),
        ("progress:hook", progress_of(Slot::Hook(0))),
        ("failed", failed(1)),
        ("retry", retried(1)),
        ("item", item_started(0, 1)),
        ("item_done", item_completed(0, Some(error), true)),
        (
            "foreach",
            Event::from(ForeachCompleted {
                step: 1,
                node: "n".into(),
                items: 2,
                failed: 1,
                next_node: None,
            }),
        ),
        (
            "parallel",
            Event::from(ParallelCompleted {
                step: 1,
                node: "n".into(),
                branches: 2,
                failed: 1,
                next_node: None,
            }),
        ),
        ("waits", waiting()),
        ("asks", asks()),
        ("answer", answered()),
        ("late", expired()),
        ("changed", invalidated()),
        ("hooks", hooks_begun(&[0, 2])),
        ("hook", hook_started(0)),
        ("hook_done", hook_completed(0, Some(Control::Abort))),
        (
            "limit",
            Event::from(LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
        ),
        ("verdict", verdict_on(Slot::Main)),
        ("verdict:item", verdict_on(Slot::Part(0))),
        (
            "emitted",
            Event::from(Emitted {
                name: "x".into(),
                content: json!({}),
            }),
        ),
        ("signed", signed()),
        (
            "child",
            Event::from(ChildStarted {
                child: RunId::new("y-1-a").unwrap(),
                name: "server".into(),
                is_server: false,
            }),
        ),
        (
            "warning",
            Event::from(Warning {
                node: Some("n".into()),
                message: "x".into(),
            }),
        ),
        ("done", completed(Some("m"))),
        ("left", completed(None)),
        (
            "raise",
            Event::from(BudgetRaised {
                account: AccountId(RunId::new("x-1-a").unwrap()),
                to: Usd::from_nanos(2_000_000_000),
                by: "uid:0".into(),
            }),
        ),
        ("cancel", Event::from(CancelRequested { cause: "u".into() })),
        ("suspended", suspended(SuspendReason::Restart)),
        ("resumed", resumed(Some(3))),
        ("ending", ending()),
    ];
    all.extend(every_end());
    all.extend(of_kill_and_money());
    all
}

/// Every kind of event that ends a run.
fn every_end() -> [(&'static str, Event); 6] {
    let error = Failure::permanent("c", "m");
    [
        (
            "completed",
            Event::from(GraphCompleted {
                status: Status::Completed,
                steps: 1,
                elapsed_ms: 1,
                output: Arc::new(json!({})),
            }),
        ),
        (
            "error",
            Event::from(GraphError {
                error: error.clone(),
                steps: 1,
                elapsed_ms: 1,
            }),
        ),
        (
            "cancelled",
            Event::from(GraphCancelled {
                cause: "u".into(),
                steps: 1,
                elapsed_ms: 1,
            }),
        ),
        (
            "tool",
            Event::from(ToolCompleted {
                result: Arc::new(json!(1)),
                error: Some(error),
                unknown: false,
                elapsed_ms: 1,
            }),
        ),
        (
            "tool_cancelled",
            Event::from(ToolCancelled { cause: "u".into() }),
        ),
        (
            "killed",
            Event::from(RunKilled {
                cause: "u".into(),
                receipt: KillReceipt::default(),
            }),
        ),
    ]
}

/// The node waits for an answer.
fn waiting() -> Event {
    Event::from(StepWaiting {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt: 1,
        now: Timestamp::from_ms(0),
        waits: crate::model::graph::Waits::Answer,
    })
}

fn service_started() -> Event {
    let handle = RunId::new("p-1-a").unwrap();
    ServiceStarted {
        node: "n".into(),
        handle,
    }
    .into()
}

fn process_waited() -> Event {
    let handle = RunId::new("p-1-a").unwrap();
    let cursor = "1.5".into();
    ProcessWaited { handle, cursor }.into()
}

fn asks() -> Event {
    Event::Run(RunEvent::ApprovalRequested(Approval {
        id: "a1".into(),
        kind: ApprovalKind::Node,
        message: "Go on?".into(),
        schema: None,
        node: Some("n".into()),
        step: Some(1),
        created_at: Timestamp::from_ms(0),
        expires_at: None,
        on_expiry: OnExpiry::default(),
        slot: None,
        digest: None,
    }))
}

fn answered() -> Event {
    Event::Run(RunEvent::ApprovalAnswered(ApprovalAnswer {
        id: "a1".into(),
        approved: true,
        answer: None,
        comment: None,
        by: "uid:0".into(),
    }))
}

fn expired() -> Event {
    Event::Run(RunEvent::ApprovalExpired(Expired { id: "a1".into() }))
}

fn invalidated() -> Event {
    let id = "a1".into();
    Event::from(ApprovalInvalidated { id })
}

/// A run that has applied `events`.
fn after(events: &[Event]) -> Run {
    let mut run = walking();
    take(&mut run, events);
    run
}

fn fresh(kind: RunKind) -> Run {
    let id = RunId::new("x-1-a").unwrap();
    Run::create(id, Timestamp::from_ms(0), spec(kind))
}

fn running(kind: RunKind) -> Run {
    let mut run = fresh(kind);
    take(&mut run, &[RunEvent::started(Epoch(1)).into()]);
    run
}

fn suspended_after(events: &[Event]) -> Run {
    let mut run = after(events);
    take(&mut run, &[suspended(SuspendReason::User)]);
    run
}

/// Events that every live run of a kind accepts, and those that every running one accepts in addition.
const GRAPH: &str = "cancel kill raise killed completed error cancelled";
const TOOL: &str = "cancel kill raise killed tool tool_cancelled";
const SERVICES: &str = "service waited";
const RUNNING: &str = "asks run emitted signed child warning suspended hold";

/// Every position of a run, and the events of [`every_event`] that it accepts there.
#[expect(clippy::too_many_lines, reason = "a table, one row for each place")]
fn places() -> Vec<(&'static str, Run, String)> {
    let hooks = "hooks ending";
    let round = "hook hook_done";
    let in_items = "step2 failed done left";
    vec![
        (
            "created",
            fresh(RunKind::Graph),
            format!("{GRAPH} run suspended"),
        ),
        (
            "new",
            running(RunKind::Graph),
            format!("{GRAPH} {RUNNING} {SERVICES} graph ending"),
        ),
        (
            "before n",
            walking(),
            format!("{GRAPH} {RUNNING} {SERVICES} {hooks} step step2 waits failed limit done left"),
        ),
        (
            "before m",
            after(&[started(1), completed(Some("m"))]),
            format!("{GRAPH} {RUNNING} {SERVICES} {hooks} limit"),
        ),
        (
            "asking",
            after(&[hooks_begun(&[0])]),
            format!(
                "{GRAPH} {RUNNING} {SERVICES} {hooks} {round} step step2 waits failed limit done left"
            ),
        ),
        (
            "asked",
            after(&[hooks_begun(&[0]), hook_started(0)]),
            format!(
                "{GRAPH} {RUNNING} {SERVICES} {hooks} {round} process:hook exit:hook callback:hook called:hook progress:hook step step2 waits failed limit done left"
            ),
        ),
        (
            "action",
            after(&[started(1)]),
            format!(
                "{GRAPH} {RUNNING} {SERVICES} ending step2 process exit callback called progress failed done left"
            ),
        ),
        (
            "items",
            after(&[foreach(1, 2)]),
            format!(
                "{GRAPH} {RUNNING} {SERVICES} ending {in_items} item item_done foreach parallel"
            ),
        ),
        (
            "item",
            after(&[foreach(1, 2), item_started(0, 1)]),
            format!(
                "{GRAPH} {RUNNING} {SERVICES} ending {in_items} item item_done foreach parallel process:item exit:item callback:item called:item progress:item"
            ),
        ),
        (
            "failed",
            after(&[started(1), failed(1)]),
            format!("{GRAPH} {RUNNING} {SERVICES} {hooks} retry done left"),
        ),
        (
            "backoff",
            after(&[started(1), failed(1), retried(1)]),
            format!("{GRAPH} {RUNNING} {SERVICES} ending step2 failed done left"),
        ),
        (
            "waiting",
            after(&[waiting()]),
            format!("{GRAPH} {RUNNING} {SERVICES} ending step2 failed done left"),
        ),
        (
            "asking a person",
            after(&[waiting(), asks()]),
            format!("{GRAPH} {RUNNING} {SERVICES} answer changed ending step2 failed done left")
                .replace("asks ", ""),
        ),
        (
            "answered by a person",
            after(&[waiting(), asks(), answered()]),
            format!("{GRAPH} {RUNNING} {SERVICES} changed ending step2 failed done left")
                .replace("asks ", ""),
        ),
        (
            "suspended for an answer",
            suspended_after(&[waiting(), asks()]),
            format!("{GRAPH} resumed answer late"),
        ),
        (
            "over",
            after(&[started(1), completed(None)]),
            format!("{GRAPH} {RUNNING} {SERVICES} {hooks}"),
        ),
        (
            "ending",
            after(&[ending()]),
            format!("{GRAPH} {RUNNING} {SERVICES} hooks"),
        ),
        (
            "suspended in a step",
            suspended_after(&[started(1)]),
            format!("{GRAPH} resumed verdict"),
        ),
        (
            "suspended with an item",
            suspended_after(&[foreach(1, 1), item_started(0, 1)]),
            format!("{GRAPH} resumed verdict:item"),
        ),
        (
            "suspended behind a failure",
            suspended_after(&[started(1), failed(1)]),
            format!("{GRAPH} resumed"),
        ),
        ("ended", after(&[every_end()[0].1.clone()]), String::new()),
        (
            "tool: created",
            fresh(RunKind::Tool),
            format!("{TOOL} run suspended"),
        ),
        (
            "tool: new",
            running(RunKind::Tool),
            format!("{TOOL} {RUNNING} step step2"),
        ),
    ]
}

#[test]
fn run_accepts_exactly_the_events_of_its_state() {
    for (place, run, own) in places() {
        let taken: BTreeSet<_> = every_event()
            .into_iter()
            .filter(|(_, event)| {
                let mut next = run.clone();
                let taken = next.apply(Timestamp::from_ms(20), event).is_ok();
                assert!(taken || next == run, "a refused event changes nothing");
                taken
            })
            .map(|(word, _)| word)
            .collect();
        assert_eq!(taken, own.split_whitespace().collect(), "{place}");
    }
}

const KINDS: [RunKind; 4] = [
    RunKind::Graph,
    RunKind::Thread,
    RunKind::Tool,
    RunKind::Process,
];

#[test]
fn names_of_events_are_unique_and_each_reads_back() {
    let names: Vec<_> = Event::names().collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len(), "{names:?}");
    let seen: BTreeSet<_> = every_event()
        .iter()
        .chain(&thread::events())
        .chain(&process::events())
        .flat_map(|(_, event)| KINDS.map(|kind| event.name_in(kind)))
        .collect();
    assert_eq!(
        seen,
        names.into_iter().collect(),
        "every event is in the table"
    );
    assert!(Event::read("tea_break", "{}").is_err());
}

#[test]
fn suspension_and_resumption_of_a_thread_have_names_of_their_own_and_read_back() {
    let suspended: Event = RunEvent::RunSuspended(Suspension::new(SuspendReason::User)).into();
    let resumed: Event = RunEvent::resumed(Epoch::default()).into();
    for (event, [other, thread]) in [
        (suspended, ["run_suspended", "thread_suspended"]),
        (resumed, ["run_resumed", "thread_resumed"]),
    ] {
        for kind in KINDS {
            let name = event.name_in(kind);
            let expected = if kind == RunKind::Thread {
                thread
            } else {
                other
            };
            assert_eq!(name, expected);
            let payload = serde_json::to_value(&event).unwrap()["payload"].to_string();
            assert_eq!(Event::read(name, &payload).unwrap(), event);
        }
    }
}

#[test]
fn name_of_an_event_ends_the_run_if_the_event_has_an_outcome() {
    let of_all = every_event().into_iter();
    let all = of_all.chain(thread::events()).chain(process::events());
    for (word, event) in all {
        let has_outcome = event.outcome().is_some();
        assert_eq!(Event::ends_run(event.name()), has_outcome, "{word}");
    }
}

#[test]
fn a_step_of_another_number_is_not_this_one() {
    let mut another = completed(None);
    if let Event::Graph(GraphEvent::StepCompleted(StepCompleted { step, .. })) = &mut another {
        *step = 2;
    }
    let mut run = after(&[started(1)]);
    assert!(run.apply(Timestamp::from_ms(20), &another).is_err());
}

/// A run before its step at `n`.
fn walking() -> Run {
    let id = RunId::new("x-1-a").unwrap();
    let mut run = Run::create(id, Timestamp::from_ms(0), spec(RunKind::Graph));
    take(
        &mut run,
        &[Event::Run(RunEvent::started(Epoch(1))), graph_started()],
    );
    run
}

fn take(run: &mut Run, events: &[Event]) {
    for event in events {
        run.apply(Timestamp::from_ms(10), event).unwrap();
    }
}

fn foreach(attempt: u32, count: u32) -> Event {
    let mut event = started(attempt);
    if let Event::Run(RunEvent::StepStarted(StepStarted { items, .. })) = &mut event {
        *items = Some(count);
    }
    event
}

/// The daemon died while computing for the run.
fn suspected(epoch: Epoch) -> RunStarted {
    let suspected = true;
    let fault = false;
    RunStarted {
        epoch,
        suspected,
        fault,
    }
}

#[test]
fn time_counts_from_the_first_start_and_anew_from_a_resumption() {
    let mut run = walking();
    let at = |ms| Timestamp::from_ms(ms);
    run.apply(at(50), &Event::from(suspected(Epoch(2))))
        .unwrap();
    assert_eq!((run.active_since, run.suspicions), (Some(at(10)), 1));
    run.apply(at(60), &suspended(SuspendReason::User)).unwrap();
    run.apply(at(70), &resumed(None)).unwrap();
    assert_eq!((run.active_since, run.suspicions), (Some(at(70)), 0));
}

#[test]
fn a_repeated_attempt_keeps_the_time_of_the_step_and_forgets_its_process() {
    let process = process_of(Slot::Main);
    let run = after(&[started(1), process, started(2)]);
    let now = run.graph().unwrap().at.step().unwrap().now;
    let attempt = run.attempts().next().unwrap();
    assert_eq!(
        (attempt.id.number, now.ms(), &attempt.process),
        (2, 5, &None)
    );
}

#[test]
fn repeated_attempt_keeps_its_start_and_retry_does_not() {
    let since = |run: &Run| run.attempts().next().unwrap().since.ms();
    let at = Timestamp::from_ms(900);
    let foreach = foreach(1, 2);
    let places = [
        (vec![started(1)], started(2)),
        (vec![foreach, item_started(0, 1)], item_started(0, 2)),
        (
            vec![
                started(1),
                completed(Some("n")),
                hooks_begun(&[0]),
                hook_started(0),
            ],
            hook_started(0),
        ),
    ];
    for (before, again) in places {
        let mut run = after(&before);
        assert_eq!(since(&run), 10);
        run.apply(at, &again).unwrap();
        assert_eq!(since(&run), 10, "{again:?}");
    }
    let mut run = after(&[started(1), failed(1), retried(1)]);
    run.apply(at, &started(2)).unwrap();
    assert_eq!(since(&run), 900);
}

#[test]
fn a_run_is_not_suspended_for_an_answer_that_it_has() {
    let asked = suspended(SuspendReason::Approval);
    let mut run = after(&[waiting(), asks(), answered()]);
    assert!(run.apply(Timestamp::from_ms(20), &asked).is_err());
    take(&mut run, &[suspended(SuspendReason::User)]);
    let mut run = after(&[waiting(), asks()]);
    take(&mut run, &[asked]);
}

fn read(tagged: &Value) -> Event {
    let name = tagged["event_type"].as_str().unwrap();
    Event::read(name, &tagged["payload"].to_string()).unwrap()
}

#[test]
fn events_survive_their_serialised_form() {
    for (_, event) in every_event() {
        let text = serde_json::to_string(&event).unwrap();
        assert!(
            text.contains(&format!("\"event_type\":\"{}\"", event.name())),
            "{text}"
        );
        assert_eq!(read(&serde_json::from_str(&text).unwrap()), event);
    }
}

#[test]
fn record_counts_its_events() {
    let mut run = Run::create(
        RunId::new("x-1-a").unwrap(),
        Timestamp::from_ms(0),
        spec(RunKind::Graph),
    );
    let again = Event::from(suspected(Epoch(1)));
    let script = [
        again.clone(),
        graph_started(),
        started(1),
        process_of(Slot::Main),
        again,
        started(2),
    ];
    take(&mut run, &script);
    take(&mut run, &[completed(Some("m"))]);
    assert_eq!(run.seq, Seq(8));
    assert_eq!(
        (run.steps(), run.suspicions),
        (1, 0),
        "a finished step clears the run of suspicion"
    );
    assert_eq!(
        run.vars().unwrap().to_value(),
        json!({"inputs": {}, "a": 1})
    );
    assert_eq!(run.graph().unwrap().visits["n"], 1);
    let end = Event::from(GraphCompleted {
        status: Status::Completed,
        steps: 1,
        elapsed_ms: 1,
        output: Arc::new(json!({})),
    });
    run.apply(Timestamp::from_ms(20), &end).unwrap();
    assert_eq!(
        (run.status(), run.ended_at),
        (Status::Completed, Some(Timestamp::from_ms(20)))
    );
    let before = run.clone();
    assert!(run.apply(Timestamp::from_ms(30), &end).is_err());
    assert_eq!(run, before, "a refused event changes nothing");
}

#[test]
fn records_round_trip_in_every_state() {
    let mut run = walking();
    let why = Some(Failure::permanent("c", "m"));
    let script = [
        hooks_begun(&[0]),
        hook_started(0),
        hook_completed(0, Some(Control::Escalate)),
        foreach(1, 2),
        item_started(0, 1),
        item_completed(0, why, true),
        failed(1),
        retried(1),
        foreach(2, 2),
        item_started(0, 2),
        suspended(SuspendReason::Uncertain),
        verdict_on(Slot::Part(0)),
        resumed(Some(4)),
        completed(None),
        ending(),
    ];
    for event in script {
        take(&mut run, &[event]);
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run, "{text}");
    }
}

#[test]
fn directories_are_distinct_within_one_boot() {
    let identity = |boot: &str, device, inode| DirectoryIdentity {
        boot_id: boot.to_owned(),
        device,
        inode,
    };
    let known = identity("boot", 1, 2);
    assert!(!known.is_other(&identity("boot", 1, 2)));
    assert!(known.is_other(&identity("boot", 1, 3)));
    assert!(known.is_other(&identity("boot", 2, 2)));
    assert!(!known.is_other(&identity("next", 7, 8)), "over a reboot");
}
