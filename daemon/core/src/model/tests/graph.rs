//! The state that results from the events of a walk.

use super::*;
use crate::model::event::{GraphCancelled, GraphEnding, GraphError, LimitExtended, StepCompleted};
use crate::model::graph::At;

#[test]
fn items_are_counted_as_they_start_and_end() {
    let mut run = walking();
    take(
        &mut run,
        &[foreach(1, 3), item_started(0, 1), item_started(1, 1)],
    );
    let slots = |run: &Run| {
        run.attempts()
            .map(|attempt| attempt.id.slot)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        slots(&run),
        [Slot::Part(0), Slot::Part(1)],
        "not the node itself"
    );
    take(
        &mut run,
        &[process_of(Slot::Part(0)), item_completed(1, None, false)],
    );
    let items = run.graph().unwrap().at.items().unwrap();
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
    assert_eq!(slots(&run), [Slot::Part(0)]);
    let why = Failure::permanent("c", "m");
    take(&mut run, &[item_completed(0, Some(why), true)]);
    assert_eq!(run.graph().unwrap().at.items().unwrap().failed, 1);
    assert_eq!(run.suppressed().unwrap().get(0).unwrap().error, "n[0]: m");
    take(&mut run, &[completed(None)]);
    assert_eq!(run.graph().unwrap().at.items(), None);
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
    let items = run.graph().unwrap().at.items().unwrap();
    assert_eq!((items.next, items.failed), (0, 0));
    assert_eq!((items.is_done(0), items.is_done(1)), (true, false));
    let next: Vec<_> = (1..3).map(|item| items.next_attempt(item)).collect();
    assert_eq!(next, [3, 1]);
    assert!(run.suppressed().is_none(), "it may still succeed");
    take(&mut run, &[failed(2), retried(2), foreach(3, 4)]);
    let items = run.graph().unwrap().at.items().unwrap();
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
        .attempts()
        .map(|attempt| (attempt.id.slot, attempt.process.is_some()))
        .collect();
    assert_eq!(slots, [(Slot::Hook(0), true)]);
    take(&mut run, &[hook_completed(0, None)]);
    assert_eq!(run.attempts().count(), 0);
    take(
        &mut run,
        &[
            hook_completed(2, Some(Control::Skip)),
            hook_completed(3, Some(Control::Abort)),
        ],
    );
    let round = run.graph().unwrap().at.round().unwrap();
    assert!(round.is_over());
    assert_eq!(round.answer, Some((Control::Skip, "h2".into())));
}

#[test]
fn hook_round_ends_with_its_consequence() {
    let asks = |answer| [hooks_begun(&[0]), hook_completed(0, Some(answer))];
    let user = Control::Suspend {
        reason: Some(SuspendReason::User),
        message: None,
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
            Event::from(LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
            true,
        ),
    ] {
        let mut run = walking();
        take(&mut run, &asks(answer));
        take(&mut run, std::slice::from_ref(&event));
        assert_eq!(
            run.graph().unwrap().at.round().is_none(),
            over,
            "{}",
            event.name()
        );
    }
    let mut unfinished = walking();
    take(
        &mut unfinished,
        &[hooks_begun(&[0]), suspended(SuspendReason::User)],
    );
    assert!(unfinished.graph().unwrap().at.round().is_some());
}

#[test]
fn retries_are_counted_by_node_and_shown_until_an_edge_leads_there() {
    let mut run = walking();
    take(&mut run, &[started(1), failed(1)]);
    assert!(matches!(&run.graph().unwrap().at, At::Failed { failure, .. } if failure.repeatable));
    take(&mut run, &[retried(1)]);
    assert!(matches!(run.graph().unwrap().at, At::Backoff { .. }));
    take(&mut run, &[started(2)]);
    assert_eq!(
        (
            run.graph().unwrap().retries["n"],
            run.vars().unwrap().get("_retries")
        ),
        (1, Some(&json!({"n": 1})))
    );
    let mut elsewhere = run.clone();
    take(&mut elsewhere, &[completed(Some("m"))]);
    assert_eq!(elsewhere.graph().unwrap().retries["n"], 1);
    take(&mut run, &[completed(Some("n"))]);
    assert_eq!(
        (
            run.graph().unwrap().retries.get("n"),
            run.vars().unwrap().get("_retries")
        ),
        (None, Some(&json!({})))
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
        if let Event::Graph(GraphEvent::StepCompleted(StepCompleted {
            error: why,
            suppressed: goes_on,
            ..
        })) = &mut event
        {
            *why = error.then(|| Failure::permanent("c", "m"));
            *goes_on = suppressed;
        }
        take(&mut run, &[started(1), event]);
        assert_eq!(
            run.graph().unwrap().visits.get("n").copied().unwrap_or(0),
            visits
        );
        assert_eq!(
            run.suppressed().map_or(0, Chunks::len),
            usize::from(suppressed)
        );
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
            verdict_on(Slot::Main),
            resumed(None),
        ],
    );
    let verdict = |run: &Run| run.attempts().next().unwrap().verdict;
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
            verdict_on(Slot::Part(0)),
        ],
    );
    assert_eq!(verdict(&items), Some(Verdict::Done));
}

#[test]
fn ended_run_keeps_last_node_and_no_work() {
    let end = || {
        Event::from(GraphCancelled {
            cause: "u".into(),
            steps: 0,
            elapsed_ms: 1,
        })
    };
    for ends in [vec![end()], vec![ending(), hooks_begun(&[0]), end()]] {
        let mut run = walking();
        take(&mut run, &[foreach(1, 2), item_started(0, 1)]);
        take(&mut run, &ends);
        assert_eq!(run.stood_at(), Some("n"));
        assert_eq!(
            (run.current_node(), run.graph().unwrap().at.round()),
            (None, None)
        );
        assert_eq!(run.attempts().count(), 0);
    }
}

#[test]
fn a_run_names_the_node_where_it_ended_and_none_once_it_is_completed() {
    let failure = || Failure::permanent("c", "m").at("n");
    let cause = || "u".to_owned();
    let ends: [(Outcome, Option<&str>); 5] = [
        (Outcome::Error { error: failure() }, Some("n")),
        (Outcome::Cancelled { cause: cause() }, Some("n")),
        (
            Outcome::Killed {
                cause: cause(),
                receipt: KillReceipt::default(),
            },
            Some("n"),
        ),
        (
            Outcome::Completed {
                output: Arc::default(),
            },
            None,
        ),
        (
            Outcome::CompletedWithErrors {
                output: Arc::default(),
            },
            None,
        ),
    ];
    for (outcome, node) in ends {
        let mut run = walking();
        take(&mut run, &[started(1)]);
        assert_eq!(run.last_node(), Some("n"));
        let ending = Event::from(GraphEnding {
            outcome: Arc::new(outcome.clone()),
        });
        take(&mut run, &[ending]);
        assert_eq!(run.last_node(), node, "while hooks are asked: {outcome:?}");
        let end = run.ending(Timestamp::default(), outcome.clone());
        take(&mut run, &[end]);
        assert_eq!(run.last_node(), node, "{outcome:?}");
    }
    let mut failed_for_good = walking();
    take(
        &mut failed_for_good,
        &[started(1), failed(1), completed(None)],
    );
    take(
        &mut failed_for_good,
        &[Event::from(GraphError {
            error: failure(),
            steps: 1,
            elapsed_ms: 1,
        })],
    );
    assert_eq!(failed_for_good.last_node(), Some("n"));
}

#[test]
fn continuation_takes_over_state() {
    let mut run = walking();
    take(
        &mut run,
        &[
            started(1),
            failed(1),
            retried(1),
            started(2),
            completed(Some("m")),
            Event::from(LimitExtended {
                max_steps: 9,
                by: "h".into(),
            }),
            Event::from(GraphError {
                error: Failure::permanent("c", "m"),
                steps: 1,
                elapsed_ms: 1,
            }),
        ],
    );
    let (inherited, left) = run.inherited().unwrap();
    assert_eq!(left, UnfinishedWork::default());
    assert_eq!(
        inherited.vars.to_value(),
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
        (inherited.max_steps, inherited.at, inherited.last),
        (None, At::New, None)
    );
}

#[test]
fn raised_limit_replaces_previous_one() {
    let mut run = walking();
    take(
        &mut run,
        &[suspended(SuspendReason::Limit), resumed(Some(7))],
    );
    assert_eq!(run.graph().unwrap().max_steps, Some(7));
    take(&mut run, &[suspended(SuspendReason::Limit), resumed(None)]);
    assert_eq!(run.graph().unwrap().max_steps, Some(7));
    take(
        &mut run,
        &[Event::from(LimitExtended {
            max_steps: 57,
            by: "h".into(),
        })],
    );
    assert_eq!(run.graph().unwrap().max_steps, Some(57));
}
