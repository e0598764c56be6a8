//! Every event of a managed process, against every stage.

use super::*;
use crate::model::event::{
    ProcessEnded, ProcessFrozen, ProcessLaunched, ProcessReady, ProcessRestartRequested,
    ProcessRestartScheduled, ProcessThawed, ProcessUnready, ProcessWatchChanged, ProcessWatched,
};
use crate::process::ProcessView;

fn launched(attempt: u32) -> Event {
    let key = "k".to_owned();
    let ports = [("http".to_owned(), 20_000)].into();
    ProcessLaunched {
        attempt,
        key,
        ports,
    }
    .into()
}

fn ready(attempt: u32) -> Event {
    let by = ReadySign::Pattern;
    let after_ms = 7;
    ProcessReady {
        attempt,
        by,
        after_ms,
    }
    .into()
}

fn unready(attempt: u32) -> Event {
    let why = Unready::at(UnreadyCode::PortClosed, 20_000);
    ProcessUnready { attempt, why }.into()
}

fn asked() -> Event {
    ProcessRestartRequested { by: "uid:0".into() }.into()
}

fn frozen(attempt: u32) -> Event {
    let by = "uid:0".to_owned();
    ProcessFrozen { attempt, by }.into()
}

fn thawed(attempt: u32) -> Event {
    let by = "uid:0".to_owned();
    ProcessThawed { attempt, by }.into()
}

fn scheduled(attempt: u32) -> Event {
    ProcessRestartScheduled {
        attempt,
        because: RestartReason::Failed,
        failures: 1,
        due: Timestamp::from_ms(9),
        error: Some(Failure::permanent("c", "m")),
    }
    .into()
}

fn watch() -> Event {
    let rule = WatchRule {
        id: "r".into(),
        pattern: "x".into(),
        once: false,
        max_per_minute: 1,
    };
    ProcessWatchChanged {
        rules: vec![rule],
        from: LogCursor::default(),
    }
    .into()
}

fn watched() -> Event {
    let from = Timestamp::from_ms(1);
    ProcessWatched {
        rule: "r".into(),
        from: LogCursor::default(),
        to: LogCursor::at_attempt(1),
        lines: 1,
        matched: 1,
        suppressed: 0,
        minute: WatchMinute { from, matched: 1 },
    }
    .into()
}

fn ended() -> Event {
    ProcessEnded {
        restarts: 1,
        end: None,
        error: Some(Failure::permanent("c", "m")),
        cancelled: None,
        elapsed_ms: 1,
    }
    .into()
}

pub(super) fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("launched", launched(1)),
        ("launched2", launched(2)),
        ("ready", ready(1)),
        ("unready", unready(1)),
        ("asked", asked()),
        ("watch", watch()),
        ("watched", watched()),
        ("frozen", frozen(1)),
        ("thawed", thawed(1)),
        ("scheduled2", scheduled(2)),
        ("over", ended()),
    ]
}

fn after(events: &[Event]) -> Run {
    let mut run = running(RunKind::Process);
    take(&mut run, events);
    run
}

#[test]
fn process_accepts_exactly_the_events_of_its_stage() {
    for (stage, run, own) in [
        ("created", fresh(RunKind::Process), "over"),
        (
            "new",
            running(RunKind::Process),
            "launched asked watch over",
        ),
        (
            "starting",
            after(&[launched(1)]),
            "ready unready asked watch frozen scheduled2 over",
        ),
        (
            "frozen",
            after(&[launched(1), frozen(1)]),
            "ready unready asked watch thawed scheduled2 over",
        ),
        (
            "unready",
            after(&[launched(1), unready(1)]),
            "ready unready asked watch frozen scheduled2 over",
        ),
        (
            "up",
            after(&[launched(1), ready(1)]),
            "asked watch frozen scheduled2 over",
        ),
        (
            "paused",
            after(&[launched(1), scheduled(2)]),
            "launched2 asked watch over",
        ),
        (
            "watching",
            after(&[watch(), launched(1)]),
            "ready unready asked watch watched frozen scheduled2 over",
        ),
        ("ended", after(&[watch(), launched(1), ended()]), ""),
    ] {
        let taken: Vec<_> = events()
            .into_iter()
            .filter(|(_, event)| {
                let mut next = run.clone();
                let taken = next.apply(Timestamp::from_ms(20), event).is_ok();
                assert!(taken || next == run, "a refused event changes nothing");
                taken
            })
            .map(|(word, _)| word)
            .collect();
        assert_eq!(taken, own.split_whitespace().collect::<Vec<_>>(), "{stage}");
    }
}

#[test]
fn freeze_belongs_to_the_attempt_and_ends_with_a_stop() {
    let status = |events: &[Event]| {
        let run = after(events);
        let view = ProcessView::of(&run, Timestamp::from_ms(20)).unwrap();
        (view.status.as_str(), run.process().unwrap().is_frozen)
    };
    let (launched, frozen) = (launched(1), frozen(1));
    let cancelled = Event::from(CancelRequested { cause: "u".into() });
    for (then, expected) in [
        (vec![], ("frozen", true)),
        (vec![ready(1)], ("frozen", true)),
        (vec![thawed(1)], ("running", false)),
        (vec![asked()], ("running", true)),
        (vec![cancelled], ("running", true)),
        (vec![scheduled(2)], ("restarting", false)),
        (vec![ended()], ("failed", false)),
    ] {
        let events = [vec![launched.clone(), frozen.clone()], then.clone()].concat();
        assert_eq!(status(&events), expected, "{then:?}");
    }
}

#[test]
fn reason_and_ports_belong_to_the_attempt() {
    let reason = |run: &Run| run.process().unwrap().unready.as_deref().cloned();
    let run = after(&[launched(1), unready(1)]);
    assert_eq!(
        reason(&run),
        Some(Unready::at(UnreadyCode::PortClosed, 20_000))
    );
    for event in [ready(1), scheduled(2)] {
        let mut run = run.clone();
        take(&mut run, &[event]);
        assert_eq!(reason(&run), None);
        let state = run.process().unwrap();
        assert_eq!((state.ports["http"], state.has_moved), (20_000, false));
    }
    let mut moved = run;
    let Event::Process(ProcessEvent::ProcessRestartScheduled(scheduled)) = scheduled(2) else {
        unreachable!();
    };
    let because = RestartReason::PortForeign;
    let scheduled = ProcessRestartScheduled {
        because,
        ..scheduled
    };
    take(&mut moved, &[scheduled.into()]);
    let state = moved.process().unwrap();
    assert!(state.has_moved && state.ports.is_empty());
}

#[test]
fn no_attempt_and_no_restart_follows_a_stop() {
    let cancelled = Event::from(CancelRequested { cause: "u".into() });
    for before in [vec![], vec![launched(1), scheduled(2)]] {
        let mut run = after(&before);
        take(&mut run, std::slice::from_ref(&cancelled));
        for event in [launched(1), launched(2), asked()] {
            let taken = run.clone().apply(Timestamp::from_ms(20), &event);
            assert!(taken.is_err(), "{event:?}");
        }
    }
}

#[test]
fn process_and_its_end_belong_to_the_attempt_in_flight() {
    let mut run = after(&[launched(1), process_of(Slot::Main)]);
    assert_eq!(run.current_node(), Some(""));
    assert_eq!(run.step(), Some(1));
    let attempt = run.process().and_then(ProcessState::attempt).unwrap();
    assert!(attempt.process.is_some());
    take(&mut run, &[exit_of(Slot::Main)]);
    assert!(run.process().unwrap().last_end.is_some());
    take(&mut run, &[scheduled(2), launched(2)]);
    assert!(
        run.apply(Timestamp::from_ms(9), &exit_of(Slot::Main))
            .is_err()
    );
}

#[test]
fn each_end_of_a_process_is_an_outcome() {
    let run = after(&[launched(1), exit_of(Slot::Main)]);
    let error = Failure::permanent("c", "m");
    for (outcome, status) in [
        (
            Outcome::Completed {
                output: Arc::default(),
            },
            Status::Completed,
        ),
        (Outcome::Error { error }, Status::Error),
        (Outcome::Cancelled { cause: "u".into() }, Status::Cancelled),
    ] {
        let event = run.ending(Timestamp::from_ms(9), outcome);
        let mut ended = run.clone();
        take(&mut ended, &[event]);
        assert_eq!(ended.status(), status);
        assert_eq!(ended.attempts().count(), 0);
    }
}

#[test]
fn policy_is_read_by_the_word_that_names_it() {
    for policy in RestartPolicy::ALL {
        assert_eq!(RestartPolicy::parse(policy.as_str()), Some(policy));
    }
    assert_eq!(RestartPolicy::parse("always"), None);
}
