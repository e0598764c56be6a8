//! Commits over several runs: their results, their refusals, and the indexes after them.

use proptest::prelude::*;

use super::*;
use crate::error::{ErrorKind, Kinded as _};
use crate::id::{Epoch, ItemId, ItemRef, Seq};
use crate::model::event::{CancelRequested, RunKilled, RunStarted};
use crate::model::{Budget, KillReceipt, ParentEnd, RunKind, SuspendReason, Suspension, Task};

fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

mod budget;
mod fence;
mod spawns;

fn spec(run: &str) -> Spec {
    Spec {
        project: "/p".into(),
        files: "/p/.ai".into(),
        principal: "uid:0".into(),
        ..Spec::new(
            Task::of(RunKind::Graph),
            ItemRef::tool(ItemId::new("a/b").unwrap()),
            id(run),
            Budget::open(id(run)),
        )
    }
}

fn create(run: &str) -> Change {
    Change::create(&id(run), Arc::new(spec(run)))
}

fn keyed(run: &str, key: &str) -> Change {
    let spec = Spec {
        start_key: Some(key.to_owned()),
        ..spec(run)
    };
    Change::create(&id(run), Arc::new(spec))
}

fn start(run: &str) -> Change {
    let epoch = Epoch(1);
    Change::event(&id(run), Event::Run(RunEvent::started(epoch)))
}

fn suspend(run: &str) -> Change {
    let why = Suspension::new(SuspendReason::User);
    Change::event(&id(run), Event::Run(RunEvent::RunSuspended(why)))
}

fn resume(run: &str) -> Change {
    let event = RunEvent::resumed(Epoch(1));
    Change::event(&id(run), Event::Run(event))
}

fn cancel(run: &str) -> Change {
    let cause = "a test".to_owned();
    Change::event(&id(run), Event::from(CancelRequested { cause }))
}

fn kill(run: &str) -> Change {
    let event = RunKilled {
        cause: "a test".to_owned(),
        receipt: KillReceipt::default(),
    };
    Change::event(&id(run), Event::from(event))
}

const ROOM: Conditions = Conditions {
    full: false,
    most_in_tree: 4,
    arrival: None,
};

impl State {
    fn commit(&mut self, ms: i64, changes: Vec<Change>) -> Result<Applied, Refused> {
        let draft = self.base(&changes).draft(at(ms), changes)?;
        let rows = self.check(&draft, &ROOM)?;
        Ok(self.apply(draft, rows))
    }

    /// Compares the indexes with a recount from the records.
    fn assert_indexes(&self) {
        let mut ages: Vec<Age> = self.runs().map(|run| age(run)).collect();
        ages.sort();
        ages.reverse();
        let listed: Vec<Age> = self.newest_first(None, None).map(|run| age(run)).collect();
        assert_eq!(listed, ages);
        for before in &ages {
            let older: Vec<Age> = self
                .newest_first(None, Some(before))
                .map(|run| age(run))
                .collect();
            assert_eq!(older, ages[ages.len() - older.len()..], "before {before:?}");
            assert!(older.iter().all(|age| age < before));
        }
        let parents = self.runs().filter_map(|run| run.spec.parent.clone());
        let parents: BTreeSet<RunId> = parents.chain(self.children.keys().cloned()).collect();
        for parent in parents {
            let below = |age: &&Age| self.runs[&age.1].spec.parent.as_ref() == Some(&parent);
            let recount: Vec<&RunId> = ages.iter().filter(below).map(|(_, id)| id).collect();
            assert!(!recount.is_empty(), "{parent} has no children left");
            assert_eq!(self.children(&parent).collect::<Vec<_>>(), recount);
        }
        let open: BTreeSet<&RunId> = self
            .runs()
            .filter(|run| !run.status().is_terminal() && run.cancel.is_none())
            .map(|run| &run.id)
            .collect();
        let listed: Vec<&RunId> = self.cancellable(None).map(|run| &run.id).collect();
        assert_eq!(listed, open.iter().copied().collect::<Vec<_>>());
        for after in open {
            let rest: Vec<&RunId> = self.cancellable(Some(after)).map(|run| &run.id).collect();
            assert_eq!(rest, listed[listed.len() - rest.len()..]);
            assert!(rest.iter().all(|id| *id > after));
        }
        let held: usize = self.runs().map(|run| run.held()).sum();
        assert_eq!(self.memory.taken(), held);
        let active = |run: &&Arc<Run>| matches!(run.status(), Status::Created | Status::Running);
        assert_eq!(self.active(), self.runs().filter(active).count());
    }

    fn records(&self) -> Vec<Arc<Run>> {
        self.newest_first(None, None).map(Arc::clone).collect()
    }
}

#[test]
fn a_commit_leads_to_one_record_for_each_run_and_one_fact_for_each_change() {
    let mut state = State::default();
    let changes = vec![
        create("a"),
        create("b"),
        start("a"),
        suspend("a"),
        cancel("b"),
        kill("a"),
    ];
    let applied = state.commit(5, changes.clone()).unwrap();
    assert_eq!(applied.changes, changes);
    let names: Vec<&str> = applied.runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let facts: Vec<(usize, u64)> = applied
        .facts
        .iter()
        .map(|fact| (fact.run, fact.seq.0))
        .collect();
    assert_eq!(facts, [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2), (0, 4)]);
    let settled: Vec<Option<Status>> = applied
        .facts
        .iter()
        .map(|fact| Some(fact.settled.as_ref()?.status()))
        .collect();
    let (suspended, killed) = (Some(Status::Suspended), Some(Status::Killed));
    assert_eq!(settled, [None, None, None, suspended, None, killed]);
    for run in &applied.runs {
        assert!(Arc::ptr_eq(run, state.run(&run.id).unwrap()));
        assert_eq!(run.created_at, at(5));
    }
    assert!(applied.replaced.is_empty());
}

type Test = Box<dyn Fn(&RefusalReason) -> bool>;

#[test]
fn a_refusal_names_the_change_that_cannot_happen() {
    let illegal = |why: &RefusalReason| matches!(why, RefusalReason::Illegal(_));
    let is = |expected: RefusalReason| move |why: &RefusalReason| *why == expected;
    let cases: Vec<(Vec<Change>, usize, Test)> = vec![
        (
            vec![start("a"), create("a")],
            1,
            Box::new(is(RefusalReason::Exists)),
        ),
        (
            vec![create("n"), start("n"), create("n")],
            2,
            Box::new(is(RefusalReason::Exists)),
        ),
        (vec![start("n")], 0, Box::new(is(RefusalReason::NotLive))),
        (
            vec![start("a"), start("n"), create("n")],
            1,
            Box::new(is(RefusalReason::NotLive)),
        ),
        (vec![start("a"), resume("a")], 1, Box::new(illegal)),
        (
            vec![create("n"), kill("n"), start("a"), start("n")],
            3,
            Box::new(illegal),
        ),
        (
            vec![start("a"), keyed("n", "taken")],
            1,
            Box::new(is(RefusalReason::KeyTaken(id("k")))),
        ),
        (
            vec![keyed("n", "new"), start("a"), keyed("m", "new")],
            2,
            Box::new(is(RefusalReason::KeyTaken(id("n")))),
        ),
    ];
    let mut state = State::default();
    let _applied = state
        .commit(1, vec![create("a"), keyed("k", "taken")])
        .unwrap();
    let before = state.records();
    for (changes, number, expected) in cases {
        let refused = state.commit(2, changes.clone()).unwrap_err();
        assert_eq!(refused.change, number, "{changes:?}");
        assert_eq!(refused.run, changes[number].run);
        assert!(expected(&refused.why), "{refused:?}");
        assert_eq!(state.records(), before, "something happened");
        state.assert_indexes();
    }
}

#[test]
fn full_disk_refuses_starts_but_not_ends() {
    let mut state = State::default();
    let changes = vec![create("a"), start("a"), create("b")];
    let _applied = state.commit(1, changes).unwrap();
    let check = |changes: Vec<Change>| {
        let draft = state.base(&changes).draft(at(2), changes).unwrap();
        state
            .check(&draft, &Conditions { full: true, ..ROOM })
            .map(drop)
    };
    let refused = |change, run| {
        Err(Refused {
            change,
            run: id(run),
            why: RefusalReason::Full,
        })
    };
    assert_eq!(check(vec![suspend("a"), kill("b")]), Ok(()));
    assert_eq!(check(vec![suspend("a"), resume("a")]), refused(1, "a"));
    assert_eq!(check(vec![kill("a"), create("n")]), refused(1, "n"));
    assert_eq!(check(vec![start("b"), kill("a")]), refused(0, "b"));
}

#[test]
fn draft_is_stale_after_change_of_its_runs() {
    let mut state = State::default();
    let changes = vec![create("a"), start("a"), create("b")];
    let _applied = state.commit(1, changes).unwrap();
    let draft = |state: &State, changes: Vec<Change>| {
        let base = state.base(&changes);
        base.draft(at(2), changes).unwrap()
    };
    let both = draft(&state, vec![start("b"), suspend("a")]);
    let other = draft(&state, vec![start("b")]);
    let fresh = draft(&state, vec![create("n")]);
    let _applied = state.commit(3, vec![cancel("a")]).unwrap();
    // The run that is not part of the draft may change freely.
    assert!(state.check(&other, &ROOM).is_ok());
    let refused = state.check(&both, &ROOM).unwrap_err();
    assert_eq!((refused.change, &refused.run), (1, &id("a")));
    assert_eq!(refused.why, RefusalReason::Stale);
    // A second draft includes the events in between.
    let again = draft(&state, both.into_changes());
    let rows = state.check(&again, &ROOM).unwrap();
    let _applied = state.apply(again, rows);
    let run = state.run(&id("a")).unwrap();
    assert_eq!((run.status(), run.seq), (Status::Suspended, Seq(4)));
    assert!(run.cancel.is_some());
    let _applied = state.commit(4, vec![create("n")]).unwrap();
    assert_eq!(
        state.check(&fresh, &ROOM).unwrap_err().why,
        RefusalReason::Exists
    );
    assert!(state.evict(&id("b")).is_some());
    assert_eq!(
        state.check(&other, &ROOM).unwrap_err().why,
        RefusalReason::Stale
    );
}

#[test]
fn apply_swaps_pointers_only() {
    let mut state = State::default();
    let _applied = state.commit(1, vec![create("a"), start("a")]).unwrap();
    let reader = Arc::clone(state.run(&id("a")).unwrap());
    let seen = Run::clone(&reader);
    let changes = vec![suspend("a")];
    let base = state.base(&changes);
    assert!(Arc::ptr_eq(&base.runs[&id("a")], &reader));
    let draft = base.draft(at(2), changes).unwrap();
    let copy = Arc::as_ptr(&draft.runs[0].record);
    let applied = state.apply(draft, Rows::default());
    // The draft's copy is the record now. The former record is returned, to be freed elsewhere.
    assert_eq!(Arc::as_ptr(state.run(&id("a")).unwrap()), copy);
    assert!(Arc::ptr_eq(&applied.replaced[0], &reader));
    assert_eq!(*reader, seen);
}

#[test]
fn a_replay_copies_nothing() {
    let mut state = State::new(
        [Arc::new(Run::create(id("a"), at(1), Arc::new(spec("a"))))],
        Rows::default(),
        Arc::default(),
    );
    let record = Arc::as_ptr(state.run(&id("a")).unwrap());
    let applied = state.replay(at(2), vec![start("a"), cancel("a")]).unwrap();
    assert_eq!(Arc::as_ptr(&applied.runs[0]), record);
    assert_eq!(state.run(&id("a")).unwrap().seq, Seq(3));
}

#[test]
fn start_key_outlives_eviction() {
    let mut state = State::default();
    let _applied = state.commit(1, vec![keyed("a", "first")]).unwrap();
    assert_eq!(state.by_key("uid:0", "first"), Some(&id("a")));
    assert_eq!(state.by_key("uid:1", "first"), None);
    assert!(state.evict(&id("a")).is_some());
    assert!(state.evict(&id("a")).is_none());
    for number in 0..LATE_KEYS {
        let refused = state.commit(2, vec![keyed("late", "first")]).unwrap_err();
        assert_eq!(
            refused.why,
            RefusalReason::KeyTaken(id("a")),
            "after {number}"
        );
        let name = format!("b{number}");
        let _applied = state.commit(2, vec![keyed(&name, &name)]).unwrap();
        assert!(state.evict(&id(&name)).is_some());
    }
    assert_eq!(state.by_key("uid:0", "first"), None);
    assert!(state.commit(3, vec![keyed("late", "first")]).is_ok());
}

#[test]
fn clean_shutdown_clears_suspicions() {
    let mut state = State::default();
    let (epoch, suspected) = (Epoch(2), true);
    let again = Event::from(RunStarted {
        epoch,
        suspected,
        fault: false,
    });
    let again = Change::event(&id("a"), again);
    let changes = vec![create("a"), start("a"), again, create("b")];
    let _applied = state.commit(1, changes).unwrap();
    assert_eq!(state.run(&id("a")).unwrap().suspicions, 1);
    state.clear_suspicions();
    assert_eq!(state.run(&id("a")).unwrap().suspicions, 0);
}

/// Names of the runs that are created and evicted.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn any_change() -> impl Strategy<Value = Change> {
    let name = || prop::sample::select(&NAMES[..]);
    let created = (
        name(),
        prop::option::of(name()),
        prop::sample::select(vec![ParentEnd::Wait, ParentEnd::Detach]),
        prop::option::of(0..3_u8),
    );
    let created = created.prop_map(|(run, parent, parent_end, key)| {
        let spec = Spec {
            parent: parent.map(id),
            parent_end,
            start_key: key.map(|key| format!("key-{key}")),
            ..spec(run)
        };
        Change::create(&id(run), Arc::new(spec))
    });
    let event = prop::sample::select(vec![start, suspend, resume, cancel, kill]);
    prop_oneof![
        1 => created,
        3 => (name(), event).prop_map(|(run, event)| event(run)),
    ]
}

#[derive(Debug, Clone)]
enum Act {
    Commit(Vec<Change>),
    /// Two commits drafted at one moment and made one after the other.
    Race(Vec<Change>, Vec<Change>),
    Evict(&'static str),
}

fn any_act() -> impl Strategy<Value = Act> {
    let changes = || prop::collection::vec(any_change(), 1..4);
    prop_oneof![
        4 => changes().prop_map(Act::Commit),
        2 => (changes(), changes()).prop_map(|(one, other)| Act::Race(one, other)),
        1 => prop::sample::select(&NAMES[..]).prop_map(Act::Evict),
    ]
}

fn runs_of(changes: &[Change]) -> BTreeSet<&RunId> {
    changes.iter().map(|change| &change.run).collect()
}

proptest! {
    #[test]
    fn commits_are_atomic_and_indexes_follow(acts in prop::collection::vec(any_act(), 1..40)) {
        let mut state = State::default();
        let mut log: Vec<(Timestamp, Vec<Change>)> = Vec::new();
        let mut evicted = BTreeSet::new();
        for (ms, act) in (1..).zip(acts) {
            match act {
                Act::Commit(changes) => {
                    let before = state.records();
                    match state.commit(ms, changes.clone()) {
                        Ok(_) => log.push((at(ms), changes)),
                        Err(refused) => {
                            prop_assert_ne!(&refused.why, &RefusalReason::Stale);
                            prop_assert_eq!(&refused.run, &changes[refused.change].run);
                            prop_assert_eq!(state.records(), before);
                            // The changes after the refused one have no effect on the refusal.
                            let rest = changes[..=refused.change].to_vec();
                            let draft = state.base(&rest).draft(at(ms), rest);
                            let again = draft.and_then(|draft| state.check(&draft, &ROOM).map(drop));
                            prop_assert_eq!(again, Err(refused));
                        }
                    }
                }
                Act::Race(one, other) => {
                    let first = state.base(&one).draft(at(ms), one.clone());
                    let second = state.base(&other).draft(at(ms), other.clone());
                    let first = first.and_then(|draft| {
                        state.check(&draft, &ROOM).map(|rows| (draft, rows))
                    });
                    if let Ok((draft, rows)) = first {
                        let _applied = state.apply(draft, rows);
                        log.push((at(ms), one.clone()));
                        if let Ok(draft) = second {
                            let shared = runs_of(&one).intersection(&runs_of(&other)).count() > 0;
                            let checked = state.check(&draft, &ROOM);
                            // The draft is valid if its runs and its keys are unchanged.
                            prop_assert!(!shared || checked.is_err());
                            if let Ok(rows) = checked {
                                let _applied = state.apply(draft, rows);
                                log.push((at(ms), other));
                            }
                        }
                    }
                }
                Act::Evict(name) => {
                    let ended = state.run(&id(name)).is_some_and(|run| run.status().is_terminal());
                    if ended {
                        prop_assert!(state.evict(&id(name)).is_some());
                        evicted.insert(id(name));
                    }
                }
            }
            state.assert_indexes();
        }
        // A replay of the log results in the same records. It cannot distinguish runs with a reused id.
        if evicted.is_empty() {
            let mut again = State::default();
            for (at, changes) in log {
                let replayed = again.replay(at, changes);
                prop_assert!(replayed.is_ok());
            }
            again.assert_indexes();
            prop_assert_eq!(again.records(), state.records());
        }
    }
}

#[test]
fn run_is_refused_until_its_inputs_fit() {
    let large = |run: &str| {
        let mut spec = spec(run);
        spec.inputs
            .insert("text".to_owned(), "x".repeat(600).into());
        Change::create(&id(run), Arc::new(spec))
    };
    let memory = Arc::new(Memory::new(1000));
    let mut state = State::new([], Rows::default(), Arc::clone(&memory));
    state.commit(1, vec![large("a")]).unwrap();
    let refused = state.commit(2, vec![create("b"), large("c")]).unwrap_err();
    assert_eq!(
        (refused.change, &refused.why),
        (1, &RefusalReason::MemoryFull(1000))
    );
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    state.assert_indexes();
    state
        .commit(3, vec![create("b"), start("a"), kill("a")])
        .unwrap();
    state.evict(&id("a")).unwrap();
    state.commit(4, vec![large("c")]).unwrap();
    state.assert_indexes();
}
