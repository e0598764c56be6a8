//! The life of a run as a table: every phase against every event.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::clock::Timestamp;
use crate::id::{Epoch, ItemId, Seq};
use crate::model::{GraphEvent, RunEvent};

fn spec(kind: RunKind) -> Arc<Spec> {
    let id = RunId::new("x-1-a").unwrap();
    Arc::new(Spec {
        item: ItemRef::tool(ItemId::new("a/b").unwrap()),
        kind,
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        parent: None,
        depth: 0,
        detached: false,
        effect_scope: None,
        seed: None,
        chain_root: id,
        continuation_of: None,
        limits: Limits::default(),
        layers: Vec::new(),
        durability: Durability::Strict,
        recovery: Recovery::Resume,
        inputs: Object::new(),
        content_hash: String::new(),
        graph: None,
        start_key: None,
        start_digest: None,
    })
}

fn started(attempt: u32) -> Event {
    Event::Run(RunEvent::StepStarted {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt,
        action_id: "tool:x".into(),
        effect: Effect::Idempotent,
        key: "k".into(),
        now: Timestamp::from_ms(5),
        items: None,
        child: None,
        node_input_hash: None,
    })
}

fn completed(next: Option<&str>) -> Event {
    Event::Graph(GraphEvent::StepCompleted {
        step: 1,
        node: "n".into(),
        status: StepStatus::Ok,
        elapsed_ms: 1,
        next_node: next.map(str::to_owned),
        assigned: Object::from_iter([("a".to_owned(), json!(1))]),
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
    Event::Graph(GraphEvent::StepFailed {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt,
        now: Timestamp::from_ms(5),
        error: Failure::permanent("c", "m").at("n"),
        result: json!({"a": 1}),
        classification: json!({"category": "permanent"}),
        repeatable: true,
        spent: false,
    })
}

fn retried(retries: u32) -> Event {
    Event::Graph(GraphEvent::RetryScheduled {
        step: 1,
        node: "n".into(),
        attempt: retries + 1,
        retries,
        due: Timestamp::from_ms(9),
        by: "node".into(),
    })
}

fn item_started(item: u32, attempt: u32) -> Event {
    Event::Graph(GraphEvent::ItemStarted {
        step: 1,
        node: "n".into(),
        item,
        attempt,
        action_id: "tool:x".into(),
        effect: Effect::AtMostOnce,
        key: "ki".into(),
        child: Some(RunId::new("y-1-a").unwrap()),
        node_input_hash: Some("h".into()),
    })
}

fn item_completed(item: u32, error: Option<Failure>, suppressed: bool) -> Event {
    Event::Graph(GraphEvent::ItemCompleted {
        step: 1,
        node: "n".into(),
        item,
        status: StepStatus::Ok,
        elapsed_ms: 1,
        result: json!({"i": item}),
        collected: None,
        error,
        never_began: false,
        cut_off: false,
        suppressed,
        node_input_hash: None,
    })
}

fn hooks_begun(hooks: &[u32]) -> Event {
    Event::Run(RunEvent::HooksBegun {
        event: "after_step".into(),
        hooks: hooks.to_vec(),
        context: Object::from_iter([("node".to_owned(), json!("n"))]),
        now: Timestamp::from_ms(5),
    })
}

fn hook_started(index: u32) -> Event {
    Event::Run(RunEvent::HookStarted {
        step: 1,
        event: "after_step".into(),
        hook: format!("h{index}"),
        index,
        attempt: 1,
        action_id: "tool:x".into(),
        key: "kh".into(),
        child: None,
    })
}

fn hook_completed(index: u32, control: Option<Control>) -> Event {
    Event::Run(RunEvent::HookCompleted {
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
    Event::Run(RunEvent::ProcessStarted {
        step: 1,
        slot,
        process: ProcessIdentity {
            pid: 7,
            start_time: 1,
            boot_id: "b".into(),
        },
    })
}

fn verdict_on(slot: Slot) -> Event {
    Event::Run(RunEvent::UncertainAnswered {
        step: 1,
        slot,
        verdict: Verdict::Done,
        by: "ada".into(),
    })
}

fn ending() -> Event {
    Event::Graph(GraphEvent::GraphEnding {
        outcome: Outcome::Completed { output: json!(1) },
    })
}

fn suspended(reason: SuspendReason) -> Event {
    Event::Run(RunEvent::RunSuspended(Suspension::new(reason)))
}

fn resumed(max_steps: Option<u32>) -> Event {
    Event::Run(RunEvent::RunResumed {
        epoch: Epoch(1),
        max_steps,
    })
}

fn graph_started() -> Event {
    Event::Graph(GraphEvent::GraphStarted {
        graph_id: "a/b".into(),
        graph_run_id: RunId::new("x-1-a").unwrap(),
        start_node: "n".into(),
        state: Object::new(),
    })
}

/// Every kind of event, some in several forms, under a word of its own.
fn every_event() -> Vec<(&'static str, Event)> {
    let error = Failure::permanent("c", "m");
    let mut all = vec![
        (
            "created",
            Event::Run(RunEvent::RunCreated(spec(RunKind::Graph))),
        ),
        ("run", Event::Run(RunEvent::RunStarted { epoch: Epoch(1) })),
        ("graph", graph_started()),
        ("step", started(1)),
        ("step2", started(2)),
        ("process", process_of(Slot::Action)),
        ("process:item", process_of(Slot::Item(0))),
        ("process:hook", process_of(Slot::Hook(0))),
        ("failed", failed(1)),
        ("retry", retried(1)),
        ("item", item_started(0, 1)),
        ("item_done", item_completed(0, Some(error), true)),
        (
            "foreach",
            Event::Graph(GraphEvent::ForeachCompleted {
                step: 1,
                node: "n".into(),
                items: 2,
                failed: 1,
                next_node: None,
            }),
        ),
        ("hooks", hooks_begun(&[0, 2])),
        ("hook", hook_started(0)),
        ("hook_done", hook_completed(0, Some(Control::Abort))),
        (
            "limit",
            Event::Graph(GraphEvent::LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
        ),
        ("verdict", verdict_on(Slot::Action)),
        ("verdict:item", verdict_on(Slot::Item(0))),
        (
            "emitted",
            Event::Run(RunEvent::Emitted {
                name: "x".into(),
                content: json!({}),
            }),
        ),
        (
            "warning",
            Event::Run(RunEvent::Warning {
                node: Some("n".into()),
                message: "x".into(),
            }),
        ),
        ("done", completed(Some("m"))),
        ("left", completed(None)),
        (
            "cancel",
            Event::Run(RunEvent::CancelRequested { cause: "u".into() }),
        ),
        ("parked", suspended(SuspendReason::Restart)),
        ("resumed", resumed(Some(3))),
        ("ending", ending()),
    ];
    all.extend(every_end());
    all
}

/// Every kind of event that ends a run.
fn every_end() -> [(&'static str, Event); 6] {
    let error = Failure::permanent("c", "m");
    [
        (
            "completed",
            Event::Graph(GraphEvent::GraphCompleted {
                status: Status::Completed,
                steps: 1,
                elapsed_ms: 1,
                output: json!({}),
            }),
        ),
        (
            "error",
            Event::Graph(GraphEvent::GraphError {
                error: error.clone(),
                steps: 1,
                elapsed_ms: 1,
            }),
        ),
        (
            "cancelled",
            Event::Graph(GraphEvent::GraphCancelled {
                cause: "u".into(),
                steps: 1,
                elapsed_ms: 1,
            }),
        ),
        (
            "tool",
            Event::Tool(ToolEvent::ToolCompleted {
                result: json!(1),
                error: Some(error),
                elapsed_ms: 1,
            }),
        ),
        (
            "tool_cancelled",
            Event::Tool(ToolEvent::ToolCancelled { cause: "u".into() }),
        ),
        (
            "killed",
            Event::Run(RunEvent::RunKilled {
                cause: "u".into(),
                receipt: KillReceipt::default(),
            }),
        ),
    ]
}

fn in_step() -> Phase {
    let idle = Phase::Running { at: Activity::Idle };
    idle.next(&started(1)).unwrap()
}

fn running(at: Activity) -> Phase {
    Phase::Running { at }
}

fn before(node: &str) -> Phase {
    running(Activity::Before { node: node.into() })
}

fn parked_in(phase: &Phase) -> Phase {
    phase.next(&suspended(SuspendReason::User)).unwrap()
}

/// What every live run takes, and what every running one takes besides.
const LIVE: &str = "cancel completed error cancelled tool tool_cancelled killed";
const RUNNING: &str = "run emitted warning parked ending";

/// For each phase, which of [`every_event`] it takes.
#[test]
fn every_phase_takes_exactly_its_events() {
    let failed = in_step().next(&failed(1)).unwrap();
    let waiting = failed.next(&retried(1)).unwrap();
    let over = running(Activity::Idle).next(&ending()).unwrap();
    let ended = Phase::Ended {
        outcome: Outcome::Cancelled { cause: "u".into() },
    };
    let hooks = "hooks hook hook_done process:hook";
    let in_step_takes = "step2 process process:item failed item item_done foreach done left";
    for (phase, own) in [
        (Phase::Created, format!("{LIVE} run parked")),
        (
            running(Activity::Idle),
            format!("{LIVE} {RUNNING} graph step step2"),
        ),
        (
            before("n"),
            format!("{LIVE} {RUNNING} {hooks} step step2 failed limit done left"),
        ),
        (before("other"), format!("{LIVE} {RUNNING} {hooks} limit")),
        (in_step(), format!("{LIVE} {RUNNING} {in_step_takes}")),
        (
            failed.clone(),
            format!("{LIVE} {RUNNING} {hooks} retry done left"),
        ),
        (
            waiting.clone(),
            format!("{LIVE} {RUNNING} step2 failed done left"),
        ),
        (
            running(Activity::Leaving),
            format!("{LIVE} {RUNNING} {hooks}"),
        ),
        (
            over.clone(),
            format!("{LIVE} {hooks} run emitted warning parked"),
        ),
        (
            parked_in(&in_step()),
            format!("{LIVE} resumed verdict verdict:item"),
        ),
        (parked_in(&failed), format!("{LIVE} resumed")),
        (parked_in(&waiting), format!("{LIVE} resumed")),
        (parked_in(&over), format!("{LIVE} resumed")),
        (ended, String::new()),
    ] {
        let taken: BTreeSet<_> = every_event()
            .into_iter()
            .filter(|(_, event)| phase.next(event).is_ok())
            .map(|(word, _)| word)
            .collect();
        assert_eq!(taken, own.split_whitespace().collect(), "{phase:?}");
    }
}

#[test]
fn a_step_of_another_number_is_not_this_one() {
    let mut another = completed(None);
    if let Event::Graph(GraphEvent::StepCompleted { step, .. }) = &mut another {
        *step = 2;
    }
    assert!(in_step().next(&another).is_err());
}

/// A run that stands before `n`.
fn walking() -> Run {
    let id = RunId::new("x-1-a").unwrap();
    let mut run = Run::create(id, Timestamp::from_ms(0), spec(RunKind::Graph));
    take(
        &mut run,
        &[
            Event::Run(RunEvent::RunStarted { epoch: Epoch(1) }),
            graph_started(),
        ],
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
    if let Event::Run(RunEvent::StepStarted { items, .. }) = &mut event {
        *items = Some(count);
    }
    event
}

#[test]
fn items_are_counted_as_they_start_and_end() {
    let mut run = walking();
    take(
        &mut run,
        &[foreach(1, 3), item_started(0, 1), item_started(1, 1)],
    );
    let slots = |run: &Run| run.in_flight().map(|(slot, _)| slot).collect::<Vec<_>>();
    assert_eq!(
        slots(&run),
        [Slot::Item(0), Slot::Item(1)],
        "not the node itself"
    );
    take(
        &mut run,
        &[process_of(Slot::Item(0)), item_completed(1, None, false)],
    );
    let items = run.progress.items.as_ref().unwrap();
    assert_eq!((items.count(), items.next, items.failed), (3, 2, 0));
    assert_eq!(
        (items.is_done(0), items.is_done(1), items.is_done(7)),
        (false, true, false)
    );
    assert_eq!(
        items.running[&0]
            .process
            .as_ref()
            .map(|process| process.pid),
        Some(7)
    );
    assert_eq!(slots(&run), [Slot::Item(0)]);
    let why = Failure::permanent("c", "m");
    take(&mut run, &[item_completed(0, Some(why), true)]);
    assert_eq!(run.progress.items.as_ref().unwrap().failed, 1);
    assert_eq!(run.progress.suppressed[0].error, "item 0: m");
    take(&mut run, &[completed(None)]);
    assert_eq!(run.progress.items, None);
}

#[test]
fn a_retried_foreach_forgets_its_failed_items_and_counts_their_tries_on() {
    let why = || Some(Failure::permanent("c", "m"));
    let mut run = walking();
    take(
        &mut run,
        &[
            foreach(1, 3),
            item_started(0, 1),
            item_completed(0, None, false),
            item_started(1, 1),
            item_started(1, 2),
            item_completed(1, why(), true),
            failed(1),
            retried(1),
            foreach(2, 3),
        ],
    );
    let items = run.progress.items.as_ref().unwrap();
    assert_eq!((items.next, items.failed), (0, 0));
    assert_eq!((items.is_done(0), items.is_done(1)), (true, false));
    let next: Vec<_> = (1..3).map(|item| items.next_attempt(item)).collect();
    assert_eq!(next, [3, 1]);
    assert!(run.progress.suppressed.is_empty(), "it may still succeed");
    take(&mut run, &[failed(2), retried(2), foreach(3, 4)]);
    let items = run.progress.items.as_ref().unwrap();
    assert_eq!(
        (items.count(), items.is_done(0)),
        (4, false),
        "another list is begun anew"
    );
}

#[test]
fn hooks_answer_in_turn_and_the_first_answer_stays() {
    let mut run = walking();
    take(
        &mut run,
        &[
            hooks_begun(&[0, 2, 3]),
            hook_started(0),
            process_of(Slot::Hook(0)),
        ],
    );
    let slots: Vec<_> = run
        .in_flight()
        .map(|(slot, work)| (slot, work.process.is_some()))
        .collect();
    assert_eq!(slots, [(Slot::Hook(0), true)]);
    take(&mut run, &[hook_completed(0, None)]);
    assert_eq!(run.in_flight().count(), 0);
    take(
        &mut run,
        &[
            hook_completed(2, Some(Control::Skip)),
            hook_completed(3, Some(Control::Abort)),
        ],
    );
    let round = run.progress.hooks.as_ref().unwrap();
    assert!(round.is_over());
    assert_eq!(
        (round.answer.as_ref(), round.by.as_deref()),
        (Some(&Control::Skip), Some("h2"))
    );
}

#[test]
fn a_round_ends_with_what_follows_from_it() {
    let asks = |answer| [hooks_begun(&[0]), hook_completed(0, Some(answer))];
    let user = Control::Suspend {
        reason: Some(SuspendReason::User),
    };
    for (answer, event, over) in [
        (user.clone(), suspended(SuspendReason::User), true),
        (user, suspended(SuspendReason::Storage), false),
        (Control::Escalate, suspended(SuspendReason::Limit), true),
        (Control::Skip, suspended(SuspendReason::User), false),
        (Control::Skip, started(1), true),
        (Control::Skip, failed(1), true),
        (Control::Skip, completed(None), true),
        (Control::Skip, ending(), true),
        (
            Control::Skip,
            Event::Graph(GraphEvent::LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
            true,
        ),
    ] {
        let mut run = walking();
        take(&mut run, &asks(answer));
        take(&mut run, std::slice::from_ref(&event));
        assert_eq!(run.progress.hooks.is_none(), over, "{}", event.name());
    }
    let mut unfinished = walking();
    take(
        &mut unfinished,
        &[hooks_begun(&[0]), suspended(SuspendReason::User)],
    );
    assert!(unfinished.progress.hooks.is_some());
}

#[test]
fn retries_are_counted_by_node_and_shown_until_an_edge_leads_there() {
    let mut run = walking();
    take(&mut run, &[started(1), failed(1)]);
    assert_eq!(
        run.progress.failed.as_ref().map(|failed| failed.repeatable),
        Some(true)
    );
    take(&mut run, &[retried(1)]);
    assert_eq!(run.progress.failed, None);
    take(&mut run, &[started(2)]);
    assert_eq!(
        (run.progress.retries["n"], &run.progress.state["_retries"]),
        (1, &json!({"n": 1}))
    );
    let mut elsewhere = run.clone();
    take(&mut elsewhere, &[completed(Some("m"))]);
    assert_eq!(elsewhere.progress.retries["n"], 1);
    take(&mut run, &[completed(Some("n"))]);
    assert_eq!(
        (
            run.progress.retries.get("n"),
            &run.progress.state["_retries"]
        ),
        (None, &json!({}))
    );
}

#[test]
fn a_visit_counts_unless_the_run_ended_at_it() {
    for (error, suppressed, next, visits) in [
        (false, false, None, 1),
        (true, true, None, 1),
        (true, false, Some("m"), 1),
        (true, false, None, 0),
    ] {
        let mut run = walking();
        let mut event = completed(next);
        if let Event::Graph(GraphEvent::StepCompleted {
            error: why,
            suppressed: goes_on,
            ..
        }) = &mut event
        {
            *why = error.then(|| Failure::permanent("c", "m"));
            *goes_on = suppressed;
        }
        take(&mut run, &[started(1), event]);
        assert_eq!(run.progress.visits.get("n").copied().unwrap_or(0), visits);
        assert_eq!(run.progress.suppressed.len(), usize::from(suppressed));
    }
}

#[test]
fn a_verdict_is_kept_with_its_attempt_until_that_is_repeated() {
    let mut run = walking();
    take(
        &mut run,
        &[
            started(1),
            suspended(SuspendReason::Uncertain),
            verdict_on(Slot::Action),
            resumed(None),
        ],
    );
    let verdict = |run: &Run| run.in_flight().next().unwrap().1.verdict;
    assert_eq!(verdict(&run), Some(Verdict::Done));
    take(&mut run, &[started(2)]);
    assert_eq!(verdict(&run), None);
    let mut items = walking();
    take(
        &mut items,
        &[
            foreach(1, 1),
            item_started(0, 1),
            suspended(SuspendReason::Uncertain),
            verdict_on(Slot::Item(0)),
        ],
    );
    assert_eq!(verdict(&items), Some(Verdict::Done));
}

#[test]
fn an_ended_run_knows_where_it_stood_and_holds_nothing_in_hand() {
    let end = || {
        Event::Graph(GraphEvent::GraphCancelled {
            cause: "u".into(),
            steps: 0,
            elapsed_ms: 1,
        })
    };
    for ends in [vec![end()], vec![ending(), hooks_begun(&[0]), end()]] {
        let mut run = walking();
        take(&mut run, &[foreach(1, 2), item_started(0, 1)]);
        take(&mut run, &ends);
        assert_eq!(run.progress.stood_at.as_deref(), Some("n"));
        let progress = &run.progress;
        assert!(progress.items.is_none() && progress.hooks.is_none() && progress.failed.is_none());
        assert_eq!(run.in_flight().count(), 0);
    }
}

#[test]
fn what_a_continuation_takes_over() {
    let mut run = walking();
    take(
        &mut run,
        &[
            started(1),
            failed(1),
            retried(1),
            started(2),
            completed(Some("m")),
            Event::Graph(GraphEvent::LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
            Event::Graph(GraphEvent::GraphError {
                error: Failure::permanent("c", "m"),
                steps: 1,
                elapsed_ms: 1,
            }),
        ],
    );
    let inherited = run.progress.inherited();
    assert_eq!(
        inherited.state,
        json!({"inputs": {}, "_retries": {"n": 1}, "a": 1})
    );
    assert_eq!(
        (
            inherited.steps,
            inherited.visits["n"],
            inherited.retries["n"]
        ),
        (1, 1, 1)
    );
    assert_eq!(
        (inherited.max_steps, inherited.stood_at, inherited.last_step),
        (None, None, None)
    );
}

#[test]
fn a_raised_limit_replaces_the_one_before() {
    let mut run = walking();
    take(
        &mut run,
        &[suspended(SuspendReason::Limit), resumed(Some(7))],
    );
    assert_eq!(run.progress.max_steps, Some(7));
    take(&mut run, &[suspended(SuspendReason::Limit), resumed(None)]);
    assert_eq!(run.progress.max_steps, Some(7));
    take(
        &mut run,
        &[Event::Graph(GraphEvent::LimitExtended {
            max_steps: 57,
            by: "h".into(),
        })],
    );
    assert_eq!(run.progress.max_steps, Some(57));
}

#[test]
fn time_counts_from_the_first_start_and_anew_from_a_resumption() {
    let mut run = walking();
    let at = |ms| Timestamp::from_ms(ms);
    run.apply(
        at(50),
        &Event::Run(RunEvent::RunStarted { epoch: Epoch(2) }),
    )
    .unwrap();
    assert_eq!((run.active_since, run.revivals), (Some(at(10)), 1));
    run.apply(at(60), &suspended(SuspendReason::User)).unwrap();
    run.apply(at(70), &resumed(None)).unwrap();
    assert_eq!((run.active_since, run.revivals), (Some(at(70)), 0));
}

#[test]
fn a_repeated_attempt_keeps_the_time_of_the_step_and_forgets_its_process() {
    let process = process_of(Slot::Action);
    let again = in_step().next(&process).unwrap().next(&started(2)).unwrap();
    let Phase::Running {
        at: Activity::InStep(step),
    } = again
    else {
        unreachable!("{again:?}")
    };
    assert_eq!(
        (step.work.attempt, step.now.ms(), step.work.process),
        (2, 5, None)
    );
}

fn read(tagged: &Value) -> Event {
    let name = tagged["event_type"].as_str().unwrap();
    Event::read(name, &tagged["payload"]).unwrap()
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
fn a_record_counts_what_its_events_say() {
    let mut run = Run::create(
        RunId::new("x-1-a").unwrap(),
        Timestamp::from_ms(0),
        spec(RunKind::Graph),
    );
    let again = Event::Run(RunEvent::RunStarted { epoch: Epoch(1) });
    let script = [
        again.clone(),
        graph_started(),
        started(1),
        process_of(Slot::Action),
        again,
        started(2),
    ];
    take(&mut run, &script);
    take(&mut run, &[completed(Some("m"))]);
    assert_eq!(run.seq, Seq(8));
    assert_eq!(
        (run.progress.steps, run.revivals),
        (1, 0),
        "a finished step forgives the restart before it"
    );
    assert_eq!(run.progress.state, json!({"inputs": {}, "a": 1}));
    assert_eq!(run.progress.visits["n"], 1);
    let end = Event::Graph(GraphEvent::GraphCompleted {
        status: Status::Completed,
        steps: 1,
        elapsed_ms: 1,
        output: json!({}),
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
fn a_graph_of_a_record_without_configuration_is_read() {
    let old = json!({"text": "t", "category": "c", "version": "1.0.0", "nodes": 1});
    let source: GraphSource = serde_json::from_value(old).unwrap();
    assert_eq!(
        (source.policy.as_str(), source.config_hash.as_str()),
        ("", "")
    );
}

#[test]
fn records_and_events_without_later_fields_are_read() {
    let mut run = walking();
    take(&mut run, &[started(1)]);
    let mut old = serde_json::to_value(&run).unwrap();
    let record = old.as_object_mut().unwrap();
    record.shift_remove("active_since");
    let spec = record["spec"].as_object_mut().unwrap();
    spec.shift_remove("depth");
    let progress = record["progress"].as_object_mut().unwrap();
    let later = [
        "retries",
        "max_steps",
        "items",
        "failed",
        "hooks",
        "stood_at",
        "last_step",
    ];
    assert!(
        later.iter().all(|key| !progress.contains_key(*key)),
        "what is empty is not written"
    );
    run.active_since = None;
    assert_eq!(serde_json::from_value::<Run>(old).unwrap(), run);

    let done = json!({"event_type": "step_completed", "payload":
        {"step": 1, "node": "n", "status": "ok", "elapsed_ms": 1, "next_node": null, "assigned": {"a": 1}}});
    assert_eq!(read(&done), completed(None));
    assert_eq!(serde_json::to_value(completed(None)).unwrap(), done);
    let resume = json!({"event_type": "run_resumed", "payload": {"epoch": 1}});
    assert_eq!(read(&resume), resumed(None));
    let parked = json!({"event_type": "run_suspended", "payload": {"reason": "restart", "code": null, "node": null}});
    assert_eq!(read(&parked), suspended(SuspendReason::Restart));
}

#[test]
fn records_survive_their_serialised_form_wherever_they_stand() {
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
        verdict_on(Slot::Item(0)),
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
