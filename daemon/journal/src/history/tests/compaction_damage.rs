//! Compaction of damaged files.

use std::fs::{self, OpenOptions};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::{Lsn, Seq};

use super::lives::{assert_absent, assert_living, dead, lives};
use super::rig::{Commit, Rig, notes, removal, run_id};
use crate::history::directory::Directory;
use crate::history::faults::hooks::Call;
use crate::history::file::Extent;
use crate::history::{Scope, Section, Store};

const NOW: Timestamp = Timestamp::from_ms(1_000);

/// Runs that are removed.
const DEAD: [usize; 2] = [2, 3];

/// Two sections. In each, run 0 shares a block with run 2, and runs 5 and 3 have a block of their own.
fn filled(file_bytes: u64) -> (Rig, Store, Vec<Section>) {
    let section = [
        vec![(0, 40), (3, 60_000)],
        vec![(2, 40), (5, 60_000)],
        vec![(3, 60_000); 4],
        vec![(5, 60_000), (5, 60_000)],
    ];
    let commits: Vec<Commit> = [section.clone(), section].concat();
    let mut sections = lives(&commits, &[4, 4]);
    sections[1].removed = vec![removal(&DEAD, 0)];
    let rig = Rig::new(file_bytes);
    let store = rig.filled(&sections);
    (rig, store, sections)
}

fn flip(rig: &Rig, number: u32, at: u64) {
    let mut bytes = fs::read(rig.path(number)).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 1;
    fs::write(rig.path(number), bytes).unwrap();
}

fn directory(store: &Store, lsn: u64) -> Directory {
    store
        .find(Lsn(lsn))
        .unwrap()
        .read()
        .unwrap()
        .into_directory()
}

/// The frames of the blocks with events of `run` in the first section.
fn frames_of(store: &Store, run: usize) -> Vec<Extent> {
    let directory = directory(store, 1);
    let spans = directory.run(&run_id(run)).unwrap().spans.iter();
    spans
        .map(|span| directory.block(span.block).frame())
        .collect()
}

/// Asserts that events of `run` are lost, and those of the other living run are not.
fn assert_lost(store: &Store, run: usize, other: usize) {
    let reader = store.find(Lsn(1)).unwrap().read().unwrap();
    let events = |run| reader.events_of(&run_id(run), Seq(0)..=Seq(u64::MAX));
    let error = events(run).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::DataLoss);
    assert!(error.to_string().contains("1.his"), "{error}");
    assert!(events(other).all(|event| event.is_ok()));
    assert!(reader.directory().run(&run_id(2)).is_none());
}

#[test]
fn a_damaged_block_with_a_living_run_is_copied_and_stays_damaged() {
    for (run, other) in [(5, 0), (0, 5)] {
        // Bytes of the checksum, the payload, and the position.
        for at in [33, 50, 13] {
            let (mut rig, store, sections) = filled(u64::MAX);
            let Extent { offset, bytes } = *frames_of(&store, run).last().unwrap();
            flip(&rig, 1, offset + at);
            let compacted = store.compact(&dead(DEAD), Scope::All, NOW).unwrap();
            assert_eq!((compacted.files, compacted.notes.len()), (1, 1));
            let note = &compacted.notes[0];
            let place =
                format!("1.his` stays with the runs in it, for its frame at byte {offset} ");
            assert!(note.contains(&place), "{note}");
            assert_lost(&store, run, other);
            drop(store);
            let (store, found) = rig.open();
            assert!(found.notes.is_empty(), "{found:?}");
            assert_lost(&store, run, other);
            rig.options.expected = store.end();
            drop(store);
            // Without its table the sections are found too.
            let file = OpenOptions::new().write(true).open(rig.path(1)).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
            let (store, found) = rig.open();
            assert_eq!((found.lost, found.last), (vec![], sections[1].last));
            assert_lost(&store, run, other);
            assert!(u64::from(bytes) < store.bytes());
        }
    }
}

#[test]
fn damaged_block_of_removed_runs_is_dropped() {
    let (rig, store, sections) = filled(u64::MAX);
    let Extent { offset, .. } = frames_of(&store, 3)[1];
    flip(&rig, 1, offset + 50);
    let compacted = store.compact(&dead(DEAD), Scope::All, NOW).unwrap();
    assert_eq!((compacted.files, compacted.notes), (1, vec![]));
    assert_living(&store, &sections, &dead(DEAD));
    assert_absent(&store, &dead(DEAD));
}

#[test]
fn damaged_index_entries_of_a_living_run_are_copied() {
    let (rig, store, sections) = filled(u64::MAX);
    let entries = directory(&store, 5).entries[0];
    let Extent { offset, .. } = directory(&store, 5).block(entries).frame();
    flip(&rig, 1, offset + 40);
    let compacted = store.compact(&dead(DEAD), Scope::All, NOW).unwrap();
    assert_eq!(compacted.notes.len(), 1);
    let reader = store.find(Lsn(5)).unwrap().read().unwrap();
    assert!(reader.entries().all(|entry| entry.is_err()));
    let record = &sections[1].runs[0].record;
    assert!(record.is_some() && reader.record_of(&run_id(0)).unwrap() == *record);
}

#[test]
fn a_file_with_a_damaged_directory_stays_and_the_others_are_compacted() {
    let (rig, store, _) = filled(1);
    let end = store.find(Lsn(1)).unwrap().row.directory().end();
    flip(&rig, 1, end - 1);
    let bytes = fs::read(rig.path(1)).unwrap();
    let compacted = store.compact(&dead(DEAD), Scope::All, NOW).unwrap();
    assert_eq!((compacted.files, compacted.notes.len()), (1, 1));
    let note = &compacted.notes[0];
    assert!(
        note.contains("1.his` stays with all that is in it: positions 1 to 4"),
        "{note}"
    );
    assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
    let runs = directory(&store, 5).runs;
    let runs: Vec<_> = runs.into_iter().map(|entry| entry.run).collect();
    assert_eq!(runs, [run_id(0), run_id(5)]);
}

/// Asserts that the damaged file 1 stays unchanged.
fn assert_stays(rig: &Rig, store: &Store) {
    let bytes = fs::read(rig.path(1)).unwrap();
    let compacted = store.compact(&dead(DEAD), Scope::Sparse, NOW).unwrap();
    assert_eq!((compacted.files, compacted.notes), (0, vec![]));
    let compacted = store.compact(&dead(0..9), Scope::All, NOW).unwrap();
    let reason = "1.his` stays with all that is in it: its directories do not match its bytes";
    assert!(compacted.notes[0].ends_with(reason), "{compacted:?}");
    assert_eq!(compacted.notes.len(), 1);
    assert_eq!(fs::read(rig.path(1)).unwrap(), bytes);
}

#[test]
fn a_file_with_bytes_in_no_section_stays() {
    // The directory of the first or the last section.
    for lost in [0, 1] {
        let (mut rig, store, mut sections) = filled(u64::MAX);
        rig.options.expected = store.end();
        let end = store.find(sections[lost].last).unwrap();
        let end = end.row.directory().end();
        drop(store);
        flip(&rig, 1, end - 1);
        let (store, found) = rig.open();
        let note = &notes(&found, &rig.dir())[0];
        assert!(note.starts_with("`1.his` is damaged at bytes "), "{note}");
        let mut next = sections.remove(1);
        let length = next.last.0 - next.first.0 + 1;
        (next.first, next.last) = (Lsn(next.first.0 + length), Lsn(next.last.0 + length));
        next.runs.clear();
        // A file without a table to which no section is appended any more.
        rig.fail(Call::Write);
        store.append(&next).unwrap_err();
        store.append(&next).unwrap();
        assert_eq!(rig.names(), ["1.his", "2.his"]);
        assert_stays(&rig, &store);
    }
}
