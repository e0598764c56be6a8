//! Writes and syncs that fail.

use std::fs;

use super::rig::{Rig, assert_holds, commits, notes, sections};
use crate::history::Error;
use crate::history::faults::hooks::Call;

#[test]
fn after_a_failed_write_or_sync_the_file_is_cut_and_the_section_goes_to_a_new_one() {
    for fail in [Call::Write, Call::Sync] {
        let sections = sections(&commits(12, 3, 30), &[4, 4]);
        let rig = Rig::new(u64::MAX);
        let store = rig.filled(&sections[..1]);
        let bytes = fs::read(rig.path(1)).unwrap();
        rig.fail(fail);
        let error = store.append(&sections[1]).unwrap_err();
        assert!(matches!(error, Error::Files { .. }), "{error:?}");
        assert!(error.to_string().contains("1.his"), "{error}");
        assert_holds(&store, &sections[..1]);
        assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
        store.append(&sections[1]).unwrap();
        store.append(&sections[2]).unwrap();
        assert_eq!(
            (rig.names(), fs::read(rig.path(1)).unwrap()),
            (vec!["1.his".to_owned(), "2.his".to_owned()], bytes)
        );
        assert_holds(&store, &sections);
        drop(store);
        let (store, found) = rig.open();
        assert!(found.notes.is_empty(), "{found:?}");
        assert_holds(&store, &sections);
    }
}

#[test]
fn failed_appends_to_new_files_leave_none() {
    let sections = sections(&commits(4, 3, 30), &[]);
    let rig = Rig::new(u64::MAX);
    let (store, _) = rig.open();
    for fail in [Call::Write, Call::Sync, Call::Write] {
        rig.fail(fail);
        assert!(store.append(&sections[0]).is_err());
        assert!(rig.names().is_empty());
    }
    store.append(&sections[0]).unwrap();
    assert_eq!(rig.names(), ["1.his"]);
    assert_holds(&store, &sections);
}

#[test]
fn a_table_that_cannot_be_written_fails_one_append_and_loses_nothing() {
    for fail in [Call::Write, Call::Sync] {
        let sections = sections(&commits(8, 3, 30), &[4]);
        let rig = Rig::new(1);
        let store = rig.filled(&sections[..1]);
        let bytes = fs::read(rig.path(1)).unwrap();
        rig.fail(fail);
        assert!(store.append(&sections[1]).is_err());
        assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
        store.append(&sections[1]).unwrap();
        assert_holds(&store, &sections);
        let (store, _) = rig.open();
        assert_holds(&store, &sections);
    }
}

#[test]
fn rest_of_failed_append_is_replaced_by_next_section() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    let bytes = fs::read(rig.path(1)).unwrap();
    drop(store);
    fs::remove_file(rig.path(1)).unwrap();
    let store = rig.filled(&sections[..1]);
    rig.fail(Call::Sync);
    store.append(&sections[1]).unwrap_err();
    store.append(&sections[1]).unwrap();
    // As if the cut had not reached the disk.
    fs::write(rig.path(1), bytes).unwrap();
    let (store, _) = rig.open();
    assert_holds(&store, &sections);
    let file = store.find(sections[1].last).unwrap();
    assert!(format!("{file:?}").contains("2.his"), "{file:?}");
}

#[test]
fn failed_sync_at_start_drops_unsynced_section() {
    let all = sections(&commits(8, 3, 30), &[4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&all[..1]);
    rig.options.expected = store.end();
    store.append(&all[1]).unwrap();
    drop(store);
    rig.fail(Call::Sync);
    let (store, found) = rig.open();
    assert_eq!(found.last, all[0].last);
    let start = rig.options.expected.unwrap().length;
    let length = fs::metadata(rig.path(1)).unwrap().len();
    let expected = [
        "`1.his` cannot be written: a sync that fails on purpose".to_owned(),
        format!("`1.his` is damaged at bytes {start} to {length}"),
    ];
    assert_eq!(notes(&found, &rig.dir()), expected);
    store.append(&all[1]).unwrap();
    assert_eq!(rig.names(), ["1.his", "2.his"]);
    assert_holds(&store, &all);
    let (store, _) = rig.open();
    assert_holds(&store, &all);
}
