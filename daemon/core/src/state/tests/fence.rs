//! Refusals because of a recorded kill.

use std::time::Duration;

use super::*;
use crate::model::{Fate, Kill, ParentEnd};

/// Creates a run below `parent` with this policy for the parent's end.
fn below(run: &str, parent: &str, parent_end: ParentEnd) -> Change {
    let spec = Spec {
        parent: Some(id(parent)),
        depth: if parent == "a" { 1 } else { 3 },
        parent_end,
        ..spec(run)
    };
    Change::create(&id(run), Arc::new(spec))
}

fn ask(run: &str, tree: bool) -> Change {
    let asked = Kill {
        tree,
        ..Kill::new("a test", Duration::from_secs(3))
    };
    Change::event(&id(run), Event::Run(RunEvent::KillRequested(asked)))
}

/// Every end of the parent except a kill leaves the run alone.
const LEAVE: ParentEnd = ParentEnd::Follow {
    on_complete: Fate::Leave,
    on_error: Fate::Leave,
    on_cancel: Fate::Leave,
};

/// Creates `a` with child `b`, and `b` with the children `c`, which it leaves alone, and `d`, which is detached. `e` is
/// independent of them.
fn state() -> State {
    let mut state = State::default();
    let changes = vec![
        create("a"),
        below("b", "a", ParentEnd::Wait),
        below("c", "b", LEAVE),
        below("d", "b", ParentEnd::Detach),
        create("e"),
        start("a"),
        start("b"),
    ];
    let _applied = state.commit(1, changes).unwrap();
    state
}

/// Returns the run whose kill refuses `change`, if one does.
fn stopped_by(state: &mut State, change: Change) -> Option<RunId> {
    let refused = state.commit(9, vec![change]).err()?;
    assert!(
        matches!(refused.why, RefusalReason::Stopping(_)),
        "{refused:?}"
    );
    if let RefusalReason::Stopping(killed) = refused.why {
        Some(killed)
    } else {
        None
    }
}

#[test]
fn kill_refuses_starts_in_run_and_below() {
    let mut state = state();
    let _applied = state.commit(2, vec![ask("b", false)]).unwrap();
    let by_b = Some(id("b"));
    assert_eq!(stopped_by(&mut state, start("b")), by_b);
    assert_eq!(stopped_by(&mut state, start("c")), by_b);
    assert_eq!(
        stopped_by(&mut state, below("f", "c", ParentEnd::Wait)),
        by_b
    );
    assert_eq!(
        stopped_by(&mut state, below("f", "b", ParentEnd::Wait)),
        by_b
    );
    // Ancestors, siblings and detached runs continue.
    assert_eq!(stopped_by(&mut state, start("a")), None);
    assert_eq!(stopped_by(&mut state, start("e")), None);
    assert_eq!(stopped_by(&mut state, start("d")), None);
    assert_eq!(
        stopped_by(&mut state, below("f", "b", ParentEnd::Detach)),
        None
    );
    // Runs may still be stopped and ended.
    let ends = vec![kill("c"), cancel("b"), suspend("b"), kill("b")];
    assert!(state.commit(9, ends).is_ok());
}

#[test]
fn the_kill_of_a_tree_covers_detached_runs() {
    let mut state = state();
    let _applied = state.commit(2, vec![ask("a", false)]).unwrap();
    assert_eq!(stopped_by(&mut state, start("d")), None);
    assert_eq!(stopped_by(&mut state, suspend("d")), None);
    let _applied = state.commit(3, vec![ask("a", true)]).unwrap();
    let by_a = Some(id("a"));
    assert_eq!(stopped_by(&mut state, resume("d")), by_a);
    assert_eq!(
        stopped_by(&mut state, below("f", "d", ParentEnd::Wait)),
        by_a
    );
}

#[test]
fn second_kill_only_shortens_grace() {
    let mut state = state();
    let second = Kill::new("somebody else", Duration::from_secs(1));
    let second = Change::event(&id("a"), Event::Run(RunEvent::KillRequested(second)));
    let _applied = state.commit(2, vec![ask("a", true), second]).unwrap();
    let kill = state.run(&id("a")).unwrap().kill.clone().unwrap();
    assert_eq!(
        (&*kill.by, kill.grace_ms, kill.tree),
        ("a test", 1000, true)
    );
}
