//! Sections are read back as written: by run, merged, by position, before and after a restart.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rye_core::id::{Lsn, Seq};
use serde_json::value::RawValue;

use super::rig::{Commit, Rig, assert_holds, commits, fingerprint, sections};
use crate::history::Error;
use crate::history::block::BLOCK_BYTES;

fn commit() -> impl Strategy<Value = Commit> {
    let length = prop_oneof![4 => 0..200_usize, 1 => 30_000..70_000_usize];
    proptest::collection::vec((0..6_usize, length), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sections_read_back_equal_before_and_after_a_start(
        commits in proptest::collection::vec(commit(), 1..40),
        lengths in proptest::collection::vec(1..12_usize, 0..12),
        file_bytes in prop_oneof![Just(1_u64), 2_000..200_000_u64],
        restarts in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let sections = sections(&commits, &lengths);
        let mut rig = Rig::new(file_bytes);
        let (mut store, _) = rig.open();
        for (at, section) in sections.iter().enumerate() {
            store.append(section).unwrap();
            if restarts[at] {
                rig.options.expected = store.end();
                drop(store);
                let (opened, found) = rig.open();
                prop_assert!(found.notes.is_empty(), "{:?}", found.notes);
                prop_assert_eq!(found.last, section.last);
                store = opened;
            }
        }
        assert_holds(&store, &sections);
    }
}

#[test]
fn a_run_that_spans_blocks_is_read_whole_and_in_part() {
    let commits: Vec<Commit> = (0..9).map(|_| vec![(0, 60_000), (1, 10)]).collect();
    let sections = sections(&commits, &[]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    assert_holds(&store, &sections);
    let reader = store.find(Lsn(1)).unwrap().read().unwrap();
    let run = &sections[0].runs[0];
    assert!(reader.directory().run(&run.run).unwrap().spans.len() > 2);
    let some = reader.events_of(&run.run, Seq(4)..=Seq(6));
    let some: Vec<_> = some.map(Result::unwrap).collect();
    assert_eq!(some, run.events[3..6]);
}

#[test]
fn blocks_are_bounded_and_small_runs_of_a_project_share_them() {
    let section = &sections(&commits(2_000, 40, 200), &[])[0];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(std::slice::from_ref(section));
    let reader = store.find(Lsn(1)).unwrap().read().unwrap();
    let directory = reader.directory();
    let raw: Vec<usize> = directory.blocks.iter().map(|block| block.raw()).collect();
    assert!(raw.iter().all(|raw| *raw <= BLOCK_BYTES), "{raw:?}");
    let events: usize = raw.iter().filter(|raw| **raw > BLOCK_BYTES / 2).count();
    assert!(
        directory.blocks.len() < 40 && events + 4 > directory.blocks.len(),
        "{raw:?}"
    );
    let order: Vec<_> = directory
        .runs
        .iter()
        .map(|run| directory.files_of(run).unwrap().to_string())
        .collect();
    assert!(order.is_sorted());
    let shared: BTreeSet<u32> = directory
        .runs
        .iter()
        .map(|run| run.spans[0].block)
        .collect();
    assert!(shared.len() < directory.runs.len());
}

#[test]
fn a_long_record_has_a_block_of_its_own_and_reads_back() {
    let mut section = sections(&commits(3, 4, 10), &[]).remove(0);
    let long = format!("\"{}\"", "r".repeat(5 << 20)).into_bytes();
    section.runs[1].record = Some(long.clone());
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(std::slice::from_ref(&section));
    let reader = store.find(Lsn(1)).unwrap().read().unwrap();
    assert_eq!(reader.record_of(&section.runs[1].run).unwrap(), Some(long));
    assert_holds(&store, &[section]);
}

#[test]
fn the_key_that_signed_is_found_by_position() {
    let mut section = sections(&commits(6, 2, 10), &[]).remove(0);
    section.fingerprints.push((Lsn(4), fingerprint(9)));
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(std::slice::from_ref(&section));
    let reader = store.find(Lsn(1)).unwrap().read().unwrap();
    for (lsn, key) in [(1, 7), (3, 7), (4, 9), (6, 9)] {
        assert_eq!(
            reader.directory().fingerprint(Lsn(lsn)),
            Some(&fingerprint(key))
        );
    }
    assert_eq!(reader.directory().fingerprint(Lsn(0)), None);
}

#[test]
fn sections_that_could_not_be_read_back_are_refused() {
    let sections = sections(&commits(8, 2, 10), &[4]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let mut changed = [(); 5].map(|()| sections[1].clone());
    changed[0].first = Lsn(4);
    changed[1].last = Lsn(4);
    let twice = changed[2].runs[0].clone();
    changed[2].runs.push(twice);
    drop(changed[3].runs[0].events.remove(1));
    changed[4].runs[0].events[0].lsn = Lsn(9);
    let reasons = [
        "positions 4 to 8 do not follow 4",
        "positions 5 to 4 do not follow 4",
        "run work-17-0 is in it twice",
        "run work-17-0 has gaps between its events",
        "run work-17-0 has an event outside of the range",
    ];
    for (section, reason) in changed.iter().zip(reasons) {
        let error = store.append(section).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(error.to_string().ends_with(reason), "{error}");
    }
    store.append(&sections[1]).unwrap();
    assert_holds(&store, &sections);
}

#[test]
fn a_text_that_is_too_long_or_not_one_line_fails_its_append_only() {
    let sections = sections(&commits(8, 2, 10), &[4]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let raw = || RawValue::from_string("{\n}".to_owned()).unwrap();
    let mut changed = [(); 3].map(|()| sections[1].clone());
    changed[0].runs[0].events[0].payload = raw();
    changed[1].runs[0].record = Some(b"{\n}".to_vec());
    changed[2].runs[0].entry = Some(vec![b'1'; 97 << 20]);
    for section in &changed {
        let error = store.append(section).unwrap_err();
        assert!(matches!(error, Error::Files { .. }), "{error:?}");
        assert_holds(&store, &sections[..1]);
    }
    store.append(&sections[1]).unwrap();
    assert_holds(&store, &sections);
}
