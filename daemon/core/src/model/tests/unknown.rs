//! Records of attempts of unknown outcome.

use super::*;
use crate::model::event::{
    HookStarted, ItemCompleted, RunKilled, StepCompleted, StepFailed, StepStarted,
};

fn below() -> RunId {
    RunId::new("y-1-a").unwrap()
}

/// The action of `n`, with the child run `child` if one carries it out.
fn once(child: Option<RunId>) -> Event {
    let mut event = started(1);
    if let Event::Run(RunEvent::StepStarted(StepStarted {
        effect,
        child: carrier,
        ..
    })) = &mut event
    {
        (*effect, *carrier) = (Effect::AtMostOnce, child);
    }
    event
}

fn failed_unknown() -> Event {
    let mut event = failed(1);
    if let Event::Graph(GraphEvent::StepFailed(StepFailed { unknown, .. })) = &mut event {
        *unknown = true;
    }
    event
}

fn killed() -> Event {
    Event::from(RunKilled {
        cause: "u".into(),
        receipt: KillReceipt::default(),
    })
}

/// The step failed, and that ends the run.
fn given_up() -> Event {
    let mut event = completed(None);
    if let Event::Graph(GraphEvent::StepCompleted(StepCompleted { error, .. })) = &mut event {
        *error = Some(Failure::permanent("c", "m").at("n"));
    }
    event
}

/// Unknown attempts after `events`: name, true if it is at-most-once itself, and true if a child run carried it out.
fn unknown(events: &[Event]) -> Vec<(String, bool, bool)> {
    let mut run = walking();
    take(&mut run, events);
    let unknown = run.unknown().into_iter();
    unknown
        .map(|unknown| (unknown.name, unknown.once, unknown.child.is_some()))
        .collect()
}

#[test]
fn an_action_is_unknown_while_it_is_in_flight_and_after_it_failed_or_was_cut_off() {
    let own = [("n".to_owned(), true, false)];
    assert_eq!(unknown(&[once(None)]), own);
    assert_eq!(unknown(&[once(None), killed()]), own);
    assert_eq!(unknown(&[once(None), failed_unknown()]), own);
    assert_eq!(unknown(&[once(None), failed_unknown(), given_up()]), own);
    let carried = [("n".to_owned(), true, true)];
    assert_eq!(unknown(&[once(Some(below())), killed()]), carried);
    for known in [
        vec![],
        vec![started(1), killed()],
        vec![once(None), failed(1)],
        vec![once(None), completed(Some("m")), killed()],
        vec![once(Some(below())), completed(None)],
    ] {
        assert_eq!(unknown(&known), [], "{known:?}");
    }
}

#[test]
fn interrupted_action_is_listed_with_key_and_time() {
    let cut_off = |events: &[Event]| {
        let mut run = walking();
        take(&mut run, events);
        let unknown = run.unknown().into_iter();
        let keys = unknown.map(|unknown| unknown.cut_off.map(|(key, _)| key.to_string()));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(cut_off(&[once(None), killed()]), [Some("k".to_owned())]);
    assert_eq!(cut_off(&[once(None), failed_unknown(), given_up()]), [None]);
}

#[test]
fn the_node_is_named_wherever_the_run_was_ended() {
    let failure = [once(None), failed_unknown(), given_up()];
    let own = [("n".to_owned(), true, false)];
    for end in [vec![killed()], vec![ending(), hooks_begun(&[0]), killed()]] {
        assert_eq!(unknown(&[failure.to_vec(), end].concat()), own);
    }
}

#[test]
fn an_item_is_unknown_unless_it_succeeded_or_never_started() {
    let why = || Some(Failure::permanent("c", "m"));
    let mut refused = item_completed(3, why(), true);
    if let Event::Graph(GraphEvent::ItemCompleted(ItemCompleted { never_started, .. })) =
        &mut refused
    {
        *never_started = true;
    }
    let mut events = vec![
        foreach(1, 5),
        item_started(0, 1),
        item_started(1, 1),
        item_started(2, 1),
        item_started(3, 1),
        item_completed(0, None, false),
        item_completed(1, why(), true),
        refused,
    ];
    let found = [
        ("n[1]".to_owned(), true, true),
        ("n[2]".to_owned(), true, true),
        ("n[3]".to_owned(), false, true),
    ];
    assert_eq!(unknown(&events), found);
    events.push(killed());
    assert_eq!(unknown(&events), found);
    // The caller who continues the run has answered: it repeats all but the one that succeeded, and continues the child
    // runs.
    let mut run = walking();
    take(&mut run, &events);
    let (_, left) = run.inherited().unwrap();
    let items = left.items.unwrap();
    let done: Vec<u32> = (0..5).filter(|item| items.is_done(*item)).collect();
    let tries: Vec<u32> = (0..5).map(|item| items.next_attempt(item)).collect();
    assert_eq!((done, tries), (vec![0], vec![1, 2, 2, 2, 1]));
    assert_eq!(items.child(2), Some(&below()));
}

#[test]
fn a_hook_is_as_unknown_as_the_child_run_that_carries_it_out() {
    let mut asked = hook_started(0);
    if let Event::Run(RunEvent::HookStarted(HookStarted { child, .. })) = &mut asked {
        *child = Some(below());
    }
    let hook = |name: &str| [(name.to_owned(), false, true)];
    let asks = [hooks_begun(&[0]), asked.clone()];
    assert_eq!(unknown(&asks), hook("n"));
    assert_eq!(unknown(&[&asks[..], &[killed()]].concat()), hook("n"));
    // A cancel ends the walk while the hook is in flight.
    let cancelled = [&asks[..], &[ending(), killed()]].concat();
    assert_eq!(unknown(&cancelled), hook("n"));
    let answered = [&asks[..], &[hook_completed(0, None), killed()]].concat();
    assert_eq!(unknown(&answered), []);
    let last = [
        completed(None),
        ending(),
        hooks_begun(&[0]),
        asked,
        killed(),
    ];
    assert_eq!(unknown(&[&[started(1)], &last[..]].concat()), hook("n"));
}
