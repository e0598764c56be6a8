//! Appends that a crash interrupted.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use rye_core::id::Lsn;

use super::rig::{Rig, assert_holds, assert_same, commits, notes, sections};
use crate::history::{Error, FileEnd};

#[test]
fn an_append_torn_at_any_byte_is_cut_and_sealed_again() {
    let sections = sections(&commits(4, 2, 4), &[2]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let whole = store.end().unwrap().length;
    store.append(&sections[1]).unwrap();
    drop(store);
    let bytes = fs::read(rig.path(1)).unwrap();
    for length in usize::try_from(whole).unwrap()..bytes.len() {
        fs::write(rig.path(1), &bytes[..length]).unwrap();
        let (store, found) = rig.open();
        assert_eq!(found.last, sections[0].last, "cut at {length}");
        let torn = u64::try_from(length).unwrap() - whole;
        let cut =
            format!("`1.his` ended with {torn} bytes of an unfinished append, which were cut");
        let expected = if torn == 0 { vec![] } else { vec![cut] };
        assert_eq!(notes(&found, &rig.dir()), expected);
        assert_eq!(fs::metadata(rig.path(1)).unwrap().len(), whole);
        store.append(&sections[1]).unwrap();
        assert_holds(&store, &sections);
        drop(store);
        assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
    }
}

#[test]
fn a_first_append_torn_at_any_byte_leaves_an_empty_history() {
    let sections = sections(&commits(2, 2, 10), &[]);
    let rig = Rig::new(u64::MAX);
    drop(rig.filled(&sections));
    let bytes = fs::read(rig.path(1)).unwrap();
    for length in 0..bytes.len() {
        fs::write(rig.path(1), &bytes[..length]).unwrap();
        let (store, found) = rig.open();
        assert_eq!(found.last, Lsn(0));
        store.append(&sections[0]).unwrap();
        assert_holds(&store, &sections);
    }
}

#[test]
fn an_unsynced_section_with_a_lost_block_is_cut_though_its_directory_is_whole() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let synced = store.end().unwrap();
    store.append(&sections[1]).unwrap();
    drop(store);
    let file = OpenOptions::new().write(true).open(rig.path(1)).unwrap();
    file.write_all_at(&[0; 100], synced.length).unwrap();
    rig.options.expected = Some(synced);
    let (store, found) = rig.open();
    assert_eq!(found.last, sections[0].last);
    assert!(found.notes[0].ends_with("which were cut"), "{found:?}");
    store.append(&sections[1]).unwrap();
    assert_holds(&store, &sections);
}

#[test]
fn a_synced_section_with_a_lost_block_stays_and_its_reads_fail() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let start = store.end().unwrap().length;
    store.append(&sections[1]).unwrap();
    rig.options.expected = store.end();
    drop(store);
    let file = OpenOptions::new().write(true).open(rig.path(1)).unwrap();
    file.write_all_at(&[0; 100], start).unwrap();
    let (store, found) = rig.open();
    assert_eq!(found.last, sections[1].last);
    let damaged = format!("`1.his` is damaged at bytes {start} to ");
    assert!(
        notes(&found, &rig.dir())[0].starts_with(&damaged),
        "{found:?}"
    );
    let reader = store.find(sections[1].last).unwrap().read().unwrap();
    assert!(matches!(reader.events(|_| true), Err(Error::Frame { .. })));
}

#[test]
fn a_damaged_end_that_was_synced_stays_and_the_next_section_goes_to_a_new_file() {
    let all = sections(&commits(12, 3, 30), &[4, 4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&all[..1]);
    let start = store.end().unwrap().length;
    store.append(&all[1]).unwrap();
    let whole = store.end().unwrap();
    drop(store);
    let file = OpenOptions::new().write(true).open(rig.path(1)).unwrap();
    file.write_all_at(&[0; 10], whole.length - 10).unwrap();
    rig.options.expected = Some(whole);
    let (store, found) = rig.open();
    let note = format!("`1.his` is damaged at bytes {start} to {}", whole.length);
    assert_eq!(notes(&found, &rig.dir()), std::slice::from_ref(&note));
    assert_eq!((found.last, found.lost), (all[0].last, vec![]));
    store.append(&all[2]).unwrap();
    assert_eq!(
        (rig.names(), fs::metadata(rig.path(1)).unwrap().len()),
        (vec!["1.his".to_owned(), "2.his".to_owned()], whole.length)
    );
    rig.options.expected = store.end();
    let (store, found) = rig.open();
    assert_eq!(notes(&found, &rig.dir()), [note]);
    assert_eq!(found.lost, [(Lsn(5), Lsn(8))]);
    assert!(store.find(Lsn(6)).is_none());
    assert_same(&store.find(Lsn(9)).unwrap().read().unwrap(), &all[2]);
}

#[test]
fn a_file_shorter_than_on_record_is_noted_and_not_appended_to() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..1]);
    let length = store.end().unwrap().length;
    drop(store);
    rig.options.expected = Some(FileEnd {
        file: 1,
        length: length + 99,
    });
    let (store, found) = rig.open();
    let note = format!("`1.his` has {length} bytes of {}", length + 99);
    assert_eq!(notes(&found, &rig.dir()), vec![note]);
    store.append(&sections[1]).unwrap();
    assert_eq!(rig.names(), ["1.his", "2.his"]);
    assert_holds(&store, &sections);
}
