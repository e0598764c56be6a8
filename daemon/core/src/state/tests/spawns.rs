//! Limits on the number of child runs.

use super::*;
use crate::model::event::{GraphStarted, ItemStarted, StepStarted};
use crate::model::{ChildTerms, Effect, Limits, Object};

/// A run that may start `most` child runs and has begun three items without any attempt.
fn at_items(most: Option<u32>) -> State {
    let limited = Spec {
        limits: Limits {
            spawns: most,
            ..Limits::default()
        },
        ..spec("a")
    };
    let begun = Event::from(GraphStarted {
        graph_id: "a/b".into(),
        graph_run_id: id("a"),
        start_node: "n".into(),
        state: Object::new().into(),
    });
    let step = Event::from(StepStarted {
        step: 1,
        node: "n".into(),
        visit: 0,
        attempt: 1,
        action_id: "tool:a/c".into(),
        effect: Effect::Idempotent,
        key: "k".into(),
        replays: false,
        now: at(0),
        items: Some(3),
        branches: Vec::new(),
        child: None,
        call: None,
        chain: None,
        node_input_hash: None,
    });
    let changes = vec![
        Change::create(&id("a"), Arc::new(limited)),
        start("a"),
        Change::event(&id("a"), begun),
        Change::event(&id("a"), step),
    ];
    let mut state = State::default();
    let _applied = state.commit(1, changes).unwrap();
    state
}

/// Attempt `attempt` of an item by the new run `child`.
fn item(item: u32, attempt: u32, child: &str) -> Vec<Change> {
    let announced = Event::from(ItemStarted {
        step: 1,
        node: "n".into(),
        item,
        attempt,
        action_id: "tool:a/c".into(),
        effect: Effect::Idempotent,
        key: "k".into(),
        child: Some(id(child)),
        call: None,
        chain: None,
        node_input_hash: None,
    });
    let created = Spec {
        parent: Some(id("a")),
        ..spec(child)
    };
    vec![
        Change::event(&id("a"), announced),
        Change::create(&id(child), Arc::new(created)),
    ]
}

#[test]
fn spawn_limit_is_enforced() {
    let mut state = at_items(Some(2));
    let _applied = state.commit(2, item(0, 1, "b")).unwrap();
    let both = [item(1, 1, "c"), item(2, 1, "d")].concat();
    let refused = state.commit(3, both).unwrap_err();
    assert_eq!((refused.change, refused.run), (3, id("d")));
    assert_eq!(refused.why, RefusalReason::SpawnsUsedUp(2));
    assert!(state.run(&id("c")).is_none(), "all or nothing");
    let _applied = state.commit(4, item(1, 1, "c")).unwrap();
    let refused = state.commit(5, item(2, 1, "d")).unwrap_err();
    assert_eq!(refused.why, RefusalReason::SpawnsUsedUp(2));
    // A retry of a call is not a new start.
    let _applied = state.commit(6, item(0, 2, "e")).unwrap();
    assert_eq!(state.run(&id("a")).unwrap().spawn_count, 2);
}

#[test]
fn spawn_limit_zero_allows_none_and_missing_allows_any() {
    let refused = at_items(Some(0)).commit(2, item(0, 1, "b")).unwrap_err();
    assert_eq!(refused.why, RefusalReason::SpawnsUsedUp(0));
    let all = [item(0, 1, "b"), item(1, 1, "c"), item(2, 1, "d")].concat();
    assert!(at_items(None).commit(2, all).is_ok());
}

/// A new child run of `a`.
fn below_a(name: &str) -> Change {
    let spec = Spec {
        parent: Some(id("a")),
        ..spec(name)
    };
    Change::create(&id(name), Arc::new(spec))
}

#[test]
fn live_child_limit_is_enforced() {
    let terms = ChildTerms {
        most: Some(2),
        ..ChildTerms::default()
    };
    let limited = Spec {
        children: terms,
        ..spec("a")
    };
    let mut state = State::default();
    let first = vec![Change::create(&id("a"), Arc::new(limited)), start("a")];
    let _applied = state.commit(1, first).unwrap();
    let three = vec![below_a("b"), below_a("c"), below_a("d")];
    let refused = state.commit(2, three).unwrap_err();
    assert_eq!(
        (refused.change, refused.why),
        (2, RefusalReason::TooManyChildren(2))
    );
    let _applied = state.commit(3, vec![below_a("b"), below_a("c")]).unwrap();
    let _applied = state.commit(4, vec![start("b"), suspend("b")]).unwrap();
    let refused = state.commit(5, vec![below_a("d")]).unwrap_err();
    assert_eq!(
        refused.why,
        RefusalReason::TooManyChildren(2),
        "one that is suspended is not over"
    );
    // Runs that end in the same commit still count, but no longer in the next one.
    let refused = state.commit(6, vec![kill("b"), below_a("d")]).unwrap_err();
    assert_eq!(refused.why, RefusalReason::TooManyChildren(2));
    let _applied = state.commit(7, vec![kill("b")]).unwrap();
    let _applied = state.commit(8, vec![below_a("d")]).unwrap();
    let _gone = state.evict(&id("b"));
    let refused = state.commit(9, vec![below_a("e")]).unwrap_err();
    assert_eq!(
        refused.why,
        RefusalReason::TooManyChildren(2),
        "an end is counted once"
    );
    let others = Spec {
        parent: Some(id("d")),
        ..spec("e")
    };
    let elsewhere = vec![Change::create(&id("e"), Arc::new(others))];
    assert!(state.commit(10, elsewhere).is_ok(), "each run has its own");
}
