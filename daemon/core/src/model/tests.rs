//! The life of a run as a table: every phase against every event.

use super::*;
use crate::clock::Timestamp;
use crate::id::{Epoch, ItemId, Seq};

fn birth(kind: RunKind) -> Arc<Birth> {
    let id = RunId::new("x-1-a").unwrap();
    Arc::new(Birth {
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
    })
}

fn started(attempt: u32) -> Event {
    Event::StepStarted {
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
    }
}

fn completed(next: Option<&str>) -> Event {
    Event::StepCompleted {
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
    }
}

fn every_event() -> Vec<Event> {
    let process = ProcessIdentity {
        pid: 7,
        start_time: 1,
        boot_id: "b".into(),
    };
    let why = Suspension::new(SuspendReason::Restart);
    let error = Failure::permanent("c", "m");
    vec![
        Event::RunCreated(birth(RunKind::Graph)),
        Event::RunStarted { epoch: Epoch(1) },
        Event::GraphStarted {
            graph_id: "a/b".into(),
            graph_run_id: RunId::new("x-1-a").unwrap(),
            start_node: "n".into(),
            state: Object::new(),
        },
        started(1),
        started(2),
        Event::ProcessStarted {
            step: 1,
            slot: Slot::Action,
            process,
        },
        completed(Some("m")),
        completed(None),
        Event::CancelRequested { cause: "u".into() },
        Event::RunSuspended(why),
        Event::RunResumed {
            epoch: Epoch(1),
            max_steps: None,
        },
        Event::GraphCompleted {
            status: Status::Completed,
            steps: 1,
            elapsed_ms: 1,
            output: json!({}),
        },
        Event::GraphError {
            error: error.clone(),
            steps: 1,
            elapsed_ms: 1,
        },
        Event::GraphCancelled {
            cause: "u".into(),
            steps: 1,
            elapsed_ms: 1,
        },
        Event::ToolCompleted {
            result: json!(1),
            error: Some(error),
            elapsed_ms: 1,
        },
        Event::ToolCancelled { cause: "u".into() },
        Event::RunKilled {
            cause: "u".into(),
            receipt: KillReceipt::default(),
        },
    ]
}

fn in_step() -> Phase {
    let idle = Phase::Running { at: Activity::Idle };
    idle.next(&started(1)).unwrap()
}

/// For each phase, which of [`every_event`] it takes: `1` yes, `.` no.
#[test]
fn every_phase_takes_exactly_its_events() {
    let before = |node: &str| Phase::Running {
        at: Activity::Before { node: node.into() },
    };
    let suspended = Phase::Suspended {
        why: Suspension::new(SuspendReason::Restart),
        at: Activity::Leaving,
    };
    let ended = Phase::Ended {
        outcome: Outcome::Cancelled { cause: "u".into() },
    };
    for (phase, expected) in [
        (Phase::Created, ".1......11.111111"),
        (Phase::Running { at: Activity::Idle }, ".1111...11.111111"),
        (before("n"), ".1.11.1111.111111"),
        (before("other"), ".1......11.111111"),
        (in_step(), ".1..111111.111111"),
        (
            Phase::Running {
                at: Activity::Leaving,
            },
            ".1......11.111111",
        ),
        (suspended, "........1.1111111"),
        (ended, "................."),
    ] {
        let taken: String = every_event()
            .iter()
            .map(|event| if phase.next(event).is_ok() { '1' } else { '.' })
            .collect();
        assert_eq!(taken, expected, "{phase:?}");
    }
}

#[test]
fn a_repeated_attempt_keeps_the_time_of_the_step_and_forgets_its_process() {
    let identity = ProcessIdentity {
        pid: 7,
        start_time: 1,
        boot_id: "b".into(),
    };
    let process = Event::ProcessStarted {
        step: 1,
        slot: Slot::Action,
        process: identity,
    };
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

#[test]
fn events_survive_their_serialised_form() {
    for event in every_event() {
        let text = serde_json::to_string(&event).unwrap();
        assert!(
            text.contains(&format!("\"event_type\":\"{}\"", event.name())),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}

#[test]
fn a_record_counts_what_its_events_say() {
    let mut run = Run::create(
        RunId::new("x-1-a").unwrap(),
        Timestamp::from_ms(0),
        birth(RunKind::Graph),
    );
    let script = every_event();
    for index in [1, 2, 3, 5, 1, 4, 6] {
        run.apply(Timestamp::from_ms(10), &script[index]).unwrap();
    }
    assert_eq!(run.seq, Seq(8));
    assert_eq!(
        (run.progress.steps, run.revivals),
        (1, 0),
        "a finished step forgives the restart before it"
    );
    assert_eq!(run.progress.state, json!({"inputs": {}, "a": 1}));
    assert_eq!(run.progress.visits["n"], 1);
    run.apply(Timestamp::from_ms(20), &script[11]).unwrap();
    assert_eq!(
        (run.status(), run.ended_at),
        (Status::Completed, Some(Timestamp::from_ms(20)))
    );
    let before = run.clone();
    assert!(run.apply(Timestamp::from_ms(30), &script[16]).is_err());
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
fn the_list_of_names_holds_every_event() {
    let unknown = json!({"event_type": "?", "payload": null});
    let told = serde_json::from_value::<Event>(unknown)
        .unwrap_err()
        .to_string();
    // serde names every variant it knows.
    let known = told.matches('`').count() / 2 - 1;
    assert_eq!(known, Event::NAMES.len(), "{told}");
    for name in Event::NAMES {
        assert!(told.contains(&format!("`{name}`")), "{name}: {told}");
    }
    for event in every_event() {
        assert!(Event::NAMES.contains(&event.name()), "{}", event.name());
    }
}
