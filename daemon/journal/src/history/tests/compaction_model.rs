//! Compaction of random histories.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use rye_core::clock::Timestamp;
use rye_core::id::RunId;

use super::lives::{assert_absent, assert_living, lives};
use super::rig::{Commit, Rig, removal, run_id};
use crate::history::{Scope, Section};

const RUNS: usize = 9;

fn commit() -> impl Strategy<Value = Commit> {
    let length = prop_oneof![6 => 0..200_usize, 1 => 30_000..70_000_usize];
    proptest::collection::vec((0..RUNS, length), 0..4)
}

/// Steps after a section was appended.
#[derive(Debug, Clone)]
struct Step {
    /// Runs that are removed, unless they have events in later sections.
    removed: [bool; RUNS],
    compacts: Option<Scope>,
    keeps_keys: bool,
    restarts: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let scope = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Scope::Sparse)),
        1 => Just(Some(Scope::All)),
    ];
    let removed = any::<[bool; RUNS]>();
    let step = (removed, scope, any::<bool>(), any::<bool>());
    step.prop_map(|(removed, compacts, keeps_keys, restarts)| Step {
        removed,
        compacts,
        keeps_keys,
        restarts,
    })
}

/// Adds the removals of `steps` to `sections`. Returns the runs that are removed up to each section.
fn remove(sections: &mut [Section], steps: &[Step]) -> Vec<HashSet<RunId>> {
    let mut last: BTreeMap<RunId, usize> = BTreeMap::new();
    for (at, section) in sections.iter().enumerate() {
        last.extend(section.runs.iter().map(|part| (part.run.clone(), at)));
    }
    let mut dead = HashSet::new();
    let removed = sections.iter_mut().zip(steps).enumerate();
    let removed = removed.map(|(at, (section, step))| {
        let runs = (0..RUNS).filter(|run| step.removed[*run]);
        let runs = runs.filter(|run| last.get(&run_id(*run)).is_some_and(|last| *last <= at));
        let runs: Vec<usize> = runs.filter(|run| dead.insert(run_id(*run))).collect();
        if !runs.is_empty() {
            section.removed.push(removal(&runs, 5));
        }
        dead.clone()
    });
    removed.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn compaction_keeps_living_runs_and_positions_and_takes_removed_runs(
        commits in proptest::collection::vec(commit(), 1..40),
        lengths in proptest::collection::vec(1..8_usize, 0..12),
        file_bytes in prop_oneof![Just(1_u64), 2_000..200_000_u64],
        lost in proptest::option::of(0..12_usize),
        steps in proptest::collection::vec(step(), 40),
    ) {
        let mut sections = lives(&commits, &lengths);
        if let Some(lost) = lost.filter(|lost| lost + 1 < sections.len()) {
            sections.remove(lost);
        }
        let dead = remove(&mut sections, &steps);
        let mut rig = Rig::new(file_bytes);
        let (mut store, _) = rig.open();
        for (at, step) in steps.iter().take(sections.len()).enumerate() {
            store.append(&sections[at]).unwrap();
            rig.options.expected = store.end();
            if let Some(scope) = step.compacts {
                let keys_since = Timestamp::from_ms(if step.keeps_keys { 5 } else { 6 });
                let compacted = store.compact(&dead[at], scope, keys_since).unwrap();
                prop_assert!(compacted.notes.is_empty(), "{:?}", compacted);
                assert_living(&store, &sections[..=at], &dead[at]);
                if scope == Scope::All {
                    assert_absent(&store, &dead[at]);
                    prop_assert_eq!(store.compact(&dead[at], scope, keys_since).unwrap().files, 0);
                }
            }
            if step.restarts {
                drop(store);
                let (opened, found) = rig.open();
                prop_assert!(found.notes.is_empty(), "{:?}", found.notes);
                prop_assert_eq!(found.has_removals, opened.removals().next().is_some());
                let mut before = 0;
                let gaps = sections[..=at].iter().filter_map(|section| {
                    let gap = (before + 1, section.first.0 - 1);
                    before = section.last.0;
                    (gap.0 <= gap.1).then_some(gap)
                });
                let gaps: Vec<_> = gaps.collect();
                let lost: Vec<_> = found.lost.iter().map(|(first, last)| (first.0, last.0)).collect();
                prop_assert_eq!(lost, gaps);
                store = opened;
                assert_living(&store, &sections[..=at], &dead[at]);
            }
        }
    }
}
