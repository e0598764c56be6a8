//! The count of child runs that a chain of runs has started.

use super::*;
use crate::model::event::{CancelRequested, HookStarted, ItemStarted, StepCompleted, StepStarted};

fn below(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// The announcement `event` with the child run `name`; without one if the name is empty.
fn carried(mut event: Event, name: &str) -> Event {
    let carrier = (!name.is_empty()).then(|| below(name));
    if let Event::Run(
        RunEvent::StepStarted(StepStarted { child, .. })
        | RunEvent::HookStarted(HookStarted { child, .. }),
    )
    | Event::Graph(GraphEvent::ItemStarted(ItemStarted { child, .. })) = &mut event
    {
        *child = carrier;
    }
    event
}

/// The next step, at `n` again.
fn next(name: &str) -> Event {
    let mut event = carried(started(1), name);
    if let Event::Run(RunEvent::StepStarted(StepStarted { step, visit, .. })) = &mut event {
        (*step, *visit) = (2, 1);
    }
    event
}

/// The step failed, and that ends the run.
fn given_up() -> [Event; 2] {
    let mut event = completed(None);
    let failure = Failure::permanent("c", "m").at("n");
    if let Event::Graph(GraphEvent::StepCompleted(StepCompleted { error, .. })) = &mut event {
        *error = Some(failure.clone());
    }
    [event, Event::never_started(failure)]
}

/// The count of a run at `n` after `events`.
fn count(events: &[Event]) -> u32 {
    let mut run = walking();
    take(&mut run, events);
    run.spawn_count
}

#[test]
fn a_step_counts_the_child_run_that_carries_it_out() {
    let first = carried(started(1), "y-1-a");
    assert_eq!(count(&[started(1)]), 0);
    assert_eq!(count(std::slice::from_ref(&first)), 1);
    // The node is entered once more: another call, another run.
    let back = completed(Some("n"));
    assert_eq!(count(&[first.clone(), back.clone(), next("y-2-a")]), 2);
    assert_eq!(count(&[first, back, next("")]), 1);
}

#[test]
fn a_call_that_is_tried_again_counts_once() {
    let first = carried(started(1), "y-1-a");
    // After a crash the same child run is attached.
    assert_eq!(count(&[first.clone(), carried(started(2), "y-1-a")]), 1);
    // After a failure another run continues it.
    for second in ["y-1-a", "y-2-a"] {
        let second = carried(started(2), second);
        assert_eq!(count(&[first.clone(), failed(1), retried(1), second]), 1);
    }
    // A first try that was refused started none.
    let refused = [
        started(1),
        failed(1),
        retried(1),
        carried(started(2), "y-1-a"),
    ];
    assert_eq!(count(&refused), 1);
}

#[test]
fn each_item_counts_once_however_often_it_is_tried() {
    let item = |item, attempt, name: &str| carried(item_started(item, attempt), name);
    let why = || Some(Failure::permanent("c", "m"));
    let mut events = vec![
        foreach(1, 3),
        item(0, 1, "y-1-a"),
        item(1, 1, "y-2-a"),
        item(2, 1, ""),
        item(1, 2, "y-2-a"),
        item_completed(0, None, false),
        item_completed(1, why(), true),
        item_completed(2, None, false),
    ];
    assert_eq!(count(&events), 2);
    events.extend([failed(1), retried(1), foreach(2, 3), item(1, 3, "y-3-a")]);
    assert_eq!(count(&events), 2, "it continues that of the earlier try");
    // Another list has other items.
    events.extend([
        item_completed(1, why(), true),
        failed(2),
        retried(2),
        foreach(3, 4),
    ]);
    events.push(item(1, 1, "y-4-a"));
    assert_eq!(count(&events), 3);
}

#[test]
fn each_hook_counts_once() {
    let first = carried(hook_started(0), "y-1-a");
    let mut events = vec![hooks_begun(&[0, 1]), first.clone(), first];
    assert_eq!(count(&events), 1, "behind a crash it is announced again");
    events.push(hook_completed(0, None));
    events.push(carried(hook_started(1), "y-2-a"));
    assert_eq!(count(&events), 2);
}

#[test]
fn a_run_that_continues_another_counts_from_there_on() {
    let mut run = walking();
    take(&mut run, &[carried(started(1), "y-1-a")]);
    take(&mut run, &given_up());
    let (state, left) = run.inherited().unwrap();
    let continuation = Spec {
        continuation_of: Some(run.id.clone()),
        spawned: run.spawn_count,
        task: Task::Graph(GraphTask {
            start_from: Some(Arc::new(StartFrom {
                node: "n".into(),
                state,
                left: Some(left),
                then: None,
                extent: Extent::Rest,
            })),
            ..GraphTask::default()
        }),
        ..Spec::clone(&spec(RunKind::Graph))
    };
    let mut next_run = Run::create(
        below("x-2-a"),
        Timestamp::from_ms(0),
        Arc::new(continuation),
    );
    assert_eq!(next_run.spawn_count, 1);
    let begins = [Event::Run(RunEvent::started(Epoch(1))), graph_started()];
    take(&mut next_run, &begins);
    take(&mut next_run, &[carried(started(1), "y-2-a")]);
    assert_eq!(next_run.spawn_count, 1, "the step continues its child run");
    take(&mut next_run, &[completed(Some("n")), next("y-3-a")]);
    assert_eq!(next_run.spawn_count, 2);
}

#[test]
fn refused_spawn_starts_nothing() {
    let mut run = walking();
    let cancel = Event::from(CancelRequested { cause: "u".into() });
    take(&mut run, &[cancel]);
    let late = carried(started(1), "y-1-a");
    assert!(run.apply(Timestamp::from_ms(20), &late).is_err());
    assert_eq!(run.spawn_count, 0);
}
