//! Removals: how long they stay on record, and the directories that are read for them.

use std::fs::{self, OpenOptions};

use rye_core::clock::Timestamp;
use rye_core::id::Lsn;
use serde_json::value::RawValue;

use super::lives::{dead, lives, removed};
use super::rig::{Rig, commits, removal, run_id};
use crate::history::{Removal, Scope, Section, Store};

const OLD: Timestamp = Timestamp::from_ms(0);
const NOW: Timestamp = Timestamp::from_ms(1_000);

fn json(removals: &[Removal]) -> String {
    serde_json::to_string(removals).unwrap()
}

fn all(store: &Store) -> Vec<Removal> {
    store.removals().map(|removal| removal.unwrap().1).collect()
}

/// One file for each of four sections, the last of which has `removed`.
fn filled(removed: Vec<Removal>) -> (Rig, Store, Vec<Section>) {
    let mut sections = lives(&commits(16, 6, 200), &[4; 4]);
    sections[3].removed = removed;
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    (rig, store, sections)
}

#[test]
fn a_run_stays_on_record_while_a_section_has_it() {
    let (_rig, store, _) = filled(vec![removal(&[1, 3], 0)]);
    // The file with the removal is rewritten; another run of the removal is still in the other files.
    store.compact(&dead([1]), Scope::All, NOW).unwrap();
    assert_eq!(removed(&store), [run_id(3)]);
    store.compact(&dead([1, 3]), Scope::All, NOW).unwrap();
    assert!(removed(&store).is_empty() && store.removals().next().is_none());
}

#[test]
fn a_run_stays_on_record_if_the_file_of_its_removal_comes_first() {
    let mut sections = lives(&commits(8, 2, 200), &[4]);
    sections[0]
        .runs
        .retain(|part| part.run == run_id(0) || part.run == run_id(1));
    sections[1].runs.retain(|part| part.run == run_id(1));
    sections[1].removed = vec![removal(&[1], 0)];
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    // The second file has no living run, so it comes first.
    assert_eq!(store.compact(&dead([1]), Scope::All, NOW).unwrap().files, 2);
    assert_eq!(removed(&store), [run_id(1)]);
}

#[test]
fn start_keys_stay_until_their_time() {
    let (_rig, store, _) = filled(vec![removal(&[1, 2], 10), removal(&[4], 20)]);
    let gone = dead([1, 2, 4]);
    store
        .compact(&gone, Scope::All, Timestamp::from_ms(10))
        .unwrap();
    // Run 1 has no key.
    assert_eq!(removed(&store), [run_id(2), run_id(4)]);
    for (keys_since, expected) in [(20, vec![run_id(4)]), (21, vec![])] {
        let (_rig, store, _) = filled(vec![removal(&[1, 2], 10), removal(&[4], 20)]);
        store
            .compact(&gone, Scope::All, Timestamp::from_ms(keys_since))
            .unwrap();
        assert_eq!(removed(&store), expected);
    }
}

#[test]
fn removal_keeps_accounts_of_other_runs() {
    let kept = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
    let mut removal = removal(&[1, 3], 0);
    removal.kept = vec![kept(r#"{"id":"work-17-9"}"#)];
    let (rig, store, _) = filled(vec![removal.clone()]);
    store.compact(&dead([1, 3]), Scope::All, NOW).unwrap();
    removal.runs.clear();
    assert_eq!(json(&all(&store)), json(&[removal.clone()]));
    drop(store);
    let (store, found) = rig.open();
    assert!(found.has_removals);
    assert_eq!(json(&all(&store)), json(&[removal]));
}

#[test]
fn runs_that_the_caller_does_not_name_stay_on_record_while_a_section_has_them() {
    let (_rig, store, _) = filled(vec![removal(&[1, 3, 77], 0)]);
    store.compact(&dead([1]), Scope::All, NOW).unwrap();
    // Run 77 is in no section.
    assert_eq!(removed(&store), [run_id(3)]);
}

#[test]
fn no_run_goes_off_the_record_while_a_directory_cannot_be_read() {
    let (rig, store, _) = filled(vec![removal(&[1, 3], 0)]);
    let directory = store.find(Lsn(1)).unwrap();
    let end = usize::try_from(directory.row.directory().end()).unwrap();
    let mut bytes = fs::read(rig.path(1)).unwrap();
    bytes[end - 1] ^= 1;
    fs::write(rig.path(1), bytes).unwrap();
    let compacted = store.compact(&dead([1, 3]), Scope::All, NOW).unwrap();
    assert!(
        compacted.files > 1 && compacted.notes.len() == 1,
        "{compacted:?}"
    );
    assert_eq!(removed(&store), [run_id(1), run_id(3)]);
}

#[test]
fn removals_are_read_in_order_with_the_end_of_their_section() {
    let mut sections = lives(&commits(16, 6, 200), &[4; 4]);
    sections[1].removed = vec![removal(&[7], 1), removal(&[8, 9], 2)];
    sections[3].removed = vec![removal(&[10], 3)];
    for file_bytes in [1, u64::MAX] {
        let rig = Rig::new(file_bytes);
        let store = rig.filled(&sections);
        let assert_read = |store: &Store| {
            let removals = store.removals().map(Result::unwrap);
            let removals: Vec<_> = removals
                .map(|(lsn, removal)| (lsn.0, removal.at.ms()))
                .collect();
            assert_eq!(removals, [(8, 1), (8, 2), (16, 3)]);
        };
        assert_read(&store);
        drop(store);
        let (store, found) = rig.open();
        assert!(found.has_removals);
        assert_read(&store);
    }
}

#[test]
fn only_directories_with_removals_are_read_for_them() {
    let mut sections = lives(&commits(16, 6, 200), &[4; 4]);
    for file_bytes in [1, u64::MAX] {
        for with_removal in [false, true] {
            sections[2].removed = vec![removal(&[7], 1)];
            sections[2].removed.truncate(usize::from(with_removal));
            let mut rig = Rig::new(file_bytes);
            rig.options.expected = rig.filled(&sections).end();
            let (store, found) = rig.open();
            assert_eq!(found.has_removals, with_removal);
            for name in rig.names() {
                let file = OpenOptions::new().write(true).open(rig.dir().join(name));
                file.unwrap().set_len(0).unwrap();
            }
            let read: Vec<_> = store.removals().collect();
            assert_eq!(read.len(), usize::from(with_removal));
            assert!(read.iter().all(Result::is_err));
        }
    }
}

#[test]
fn compaction_keeps_the_order_of_the_removals_that_it_merges() {
    let mut sections = lives(&commits(16, 6, 200), &[4; 4]);
    sections[1].removed = vec![removal(&[2], 1), removal(&[4], 2)];
    sections[3].removed = vec![removal(&[0], 3)];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    store.compact(&dead([0, 2, 4]), Scope::All, OLD).unwrap();
    let expected = [&sections[1].removed[..], &sections[3].removed[..]].concat();
    assert_eq!(json(&all(&store)), json(&expected));
    drop(store);
    assert_eq!(json(&all(&rig.open().0)), json(&expected));
}
