//! Files: full ones and their tables, missing ones, and foreign ones.

use std::fs::{self, OpenOptions};

use rye_core::id::Lsn;

use super::rig::{Rig, assert_holds, assert_same, commits, notes, sections};
use crate::history::faults::hooks::Call;
use crate::history::file::HistoryFile;
use crate::history::{FileEnd, scan};

#[test]
fn full_files_end_with_a_table_and_are_opened_by_it() {
    let sections = sections(&commits(40, 3, 30), &[4; 9]);
    let mut rig = Rig::new(2_500);
    let store = rig.filled(&sections);
    let names = rig.names();
    assert!(names.len() > 3, "{names:?}");
    rig.options.expected = store.end();
    drop(store);
    let options = OpenOptions::new().read(true).clone();
    for number in 1..names.len() {
        let number = u32::try_from(number).unwrap();
        let file = HistoryFile::open(&rig.dir(), number, &options).unwrap();
        let length = file.length().unwrap();
        let rows = scan::table(&file, length).unwrap();
        assert_eq!(rows, scan::sections(&file, length).unwrap().rows);
    }
    let (store, found) = rig.open();
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    assert_holds(&store, &sections);
}

#[test]
fn a_file_without_its_table_is_found_by_its_frames() {
    let sections = sections(&commits(40, 3, 30), &[4; 9]);
    let mut rig = Rig::new(2_500);
    rig.options.expected = rig.filled(&sections).end();
    let file = OpenOptions::new().write(true).open(rig.path(2)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let (store, found) = rig.open();
    assert!(
        found.notes[0].contains("2.his` is damaged at bytes "),
        "{found:?}"
    );
    assert_holds(&store, &sections);
}

#[test]
fn a_table_that_a_crash_tore_is_written_again() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let rig = Rig::new(1);
    let store = rig.filled(&sections[..1]);
    let length = store.end().unwrap().length;
    store.append(&sections[1]).unwrap();
    drop(store);
    fs::remove_file(rig.path(2)).unwrap();
    let bytes = fs::read(rig.path(1)).unwrap();
    for torn in usize::try_from(length).unwrap()..=bytes.len() {
        fs::write(rig.path(1), &bytes[..torn]).unwrap();
        let (store, found) = rig.open();
        assert_eq!(found.last, sections[0].last);
        store.append(&sections[1]).unwrap();
        assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
        assert_holds(&store, &sections);
        drop(store);
        fs::remove_file(rig.path(2)).unwrap();
    }
}

#[test]
fn a_missing_file_is_noted_and_the_others_work() {
    let all = sections(&commits(40, 3, 30), &[4; 9]);
    let mut rig = Rig::new(1);
    let store = rig.filled(&all);
    rig.options.expected = store.end();
    drop(store);
    for number in [1, 5, 6] {
        fs::remove_file(rig.path(number)).unwrap();
    }
    let (store, found) = rig.open();
    assert_eq!(found.lost, [(Lsn(1), Lsn(4)), (Lsn(17), Lsn(24))]);
    assert!(store.find(Lsn(4)).is_none() && store.find(Lsn(20)).is_none());
    let there = store.sections(Lsn(0)).map(|section| section.first().0);
    assert_eq!(there.collect::<Vec<_>>(), [5, 9, 13, 25, 29, 33, 37]);
    for section in [1, 2, 3, 6, 7, 8, 9].map(|at| &all[at]) {
        let reader = store.find(section.first).unwrap().read().unwrap();
        assert_same(&reader, section);
    }
}

#[test]
fn the_end_on_record_stays_that_of_the_last_synced_frame() {
    let sections = sections(&commits(12, 3, 30), &[4, 4]);
    let mut rig = Rig::new(1);
    let (store, _) = rig.open();
    assert_eq!(store.end(), None);
    let end = |number| {
        let length = fs::metadata(rig.path(number)).unwrap().len();
        let file = number;
        Some(FileEnd { file, length })
    };
    store.append(&sections[0]).unwrap();
    assert_eq!(store.end(), end(1));
    rig.fail(Call::Sync);
    store.append(&sections[1]).unwrap_err();
    assert_eq!(store.end(), end(1));
    store.append(&sections[1]).unwrap();
    assert_eq!(store.end(), end(2));
    drop(store);
    fs::remove_file(rig.path(2)).unwrap();
    let (store, _) = rig.open();
    assert_eq!((store.end(), store.last()), (end(1), sections[0].last));
    let cut = end(1);
    rig.options.expected = Some(FileEnd {
        file: 2,
        length: 99,
    });
    let (store, _) = rig.open();
    assert_ne!(store.end(), cut);
    assert_eq!(store.end(), rig.options.expected);
}

#[test]
fn the_number_of_a_missing_last_file_is_not_used_again() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let mut rig = Rig::new(u64::MAX);
    drop(rig.filled(&sections[..1]));
    rig.options.expected = Some(FileEnd {
        file: 3,
        length: 700,
    });
    let (store, found) = rig.open();
    assert_eq!(notes(&found, &rig.dir()), ["`3.his` is missing"]);
    store.append(&sections[1]).unwrap();
    assert_eq!(rig.names(), ["1.his", "4.his"]);
    assert_holds(&store, &sections);
}

#[test]
fn a_file_under_the_name_of_another_is_not_taken_for_it() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let rig = Rig::new(1);
    drop(rig.filled(&sections));
    fs::copy(rig.path(1), rig.path(2)).unwrap();
    let (store, found) = rig.open();
    assert_eq!(found.last, sections[0].last);
    let note = &notes(&found, &rig.dir())[0];
    assert!(note.starts_with("`2.his` ended with "), "{note}");
    assert_holds(&store, &sections[..1]);
}

#[test]
fn a_gap_before_a_section_is_kept() {
    let mut all = sections(&commits(12, 3, 30), &[4, 4]);
    all.remove(1);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&all);
    assert!(store.find(Lsn(6)).is_none());
    rig.options.expected = store.end();
    let (store, found) = rig.open();
    assert_eq!((found.lost, found.notes), (vec![(Lsn(5), Lsn(8))], vec![]));
    assert_holds(&store, &all);
}

#[test]
fn a_damaged_directory_loses_its_section_and_no_other() {
    let all = sections(&commits(16, 3, 30), &[4, 4, 4]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&all[..1]);
    let start = store.end().unwrap().length;
    store.append(&all[1]).unwrap();
    let middle = store.end().unwrap().length;
    store.append(&all[2]).unwrap();
    rig.options.expected = store.end();
    drop(store);
    let mut bytes = fs::read(rig.path(1)).unwrap();
    bytes[usize::try_from(middle).unwrap() - 1] ^= 1;
    fs::write(rig.path(1), bytes).unwrap();
    let note = format!("`1.his` is damaged at bytes {start} to {middle}");
    rig.options.file_bytes = 1;
    let (store, found) = rig.open();
    assert_eq!(notes(&found, &rig.dir()), [note]);
    assert_eq!(found.lost, [(Lsn(5), Lsn(8))]);
    store.append(&all[3]).unwrap();
    rig.options.expected = store.end();
    let (store, found) = rig.open();
    assert_eq!((found.lost, found.notes), (vec![(Lsn(5), Lsn(8))], vec![]));
    assert_eq!(rig.names(), ["1.his", "2.his"]);
    let there: Vec<Lsn> = store
        .sections(Lsn(0))
        .map(|section| section.first())
        .collect();
    assert_eq!(there, [Lsn(1), Lsn(9), Lsn(13)]);
    assert_same(&store.find(Lsn(9)).unwrap().read().unwrap(), &all[2]);
}
