//! Compaction: the files that are rewritten, and their content afterwards.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rye_core::clock::Timestamp;
use rye_core::frame::Frame;
use rye_core::id::{Lsn, RunId};

use super::lives::{assert_absent, assert_living, dead, lives, stored};
use super::rig::{Commit, Rig, assert_same, commits, notes, removal, run_id};
use crate::history::faults::hooks::Call;
use crate::history::{Compacted, FileEnd, Scope, Section, Store};

const NOW: Timestamp = Timestamp::from_ms(1_000);

/// Commits with one event each, of these runs.
fn events(runs: &[usize]) -> Vec<Commit> {
    runs.iter().map(|run| vec![(*run, 400)]).collect()
}

/// Ranges of the sections in `store`.
fn ranges(store: &Store) -> Vec<(u64, u64)> {
    let sections = store.sections(Lsn(0));
    let ranges = sections.map(|section| (section.first().0, section.last().0));
    ranges.collect()
}

fn bytes(rig: &Rig, numbers: &[u32]) -> Vec<Vec<u8>> {
    let files = numbers.iter();
    files
        .map(|file| fs::read(rig.path(*file)).unwrap())
        .collect()
}

/// Three files of one section each. Run 1 has half of the second.
fn three_files() -> (Rig, Store, Vec<Section>) {
    let runs = [0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1];
    let mut sections = lives(&events(&runs), &[4, 4]);
    sections[2].removed = vec![removal(&[1], 0)];
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    (rig, store, sections)
}

#[test]
fn sparse_compaction_takes_full_files_less_than_half_alive() {
    let (rig, store, sections) = three_files();
    let before = bytes(&rig, &[1, 2, 3]);
    let compact = |runs: &[usize]| {
        let dead = dead(runs.iter().copied());
        store.compact(&dead, Scope::Sparse, NOW).unwrap()
    };
    // Run 0 has half of the second file, and most of the first.
    assert_eq!(compact(&[]), Compacted::default());
    assert_eq!(compact(&[5]), Compacted::default());
    let compacted = compact(&[0]);
    let after = bytes(&rig, &[1, 2, 3]);
    assert_eq!(compacted.files, 1);
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1..], before[1..]);
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap();
    let lengths = (length(&before[0]), length(&after[0]));
    assert_eq!((compacted.before, compacted.after), lengths);
    assert!(lengths.1 < lengths.0);
    assert_eq!(compact(&[0]).files, 0);
    assert_eq!(stored(&store)[&run_id(1)].events.len(), 4);
    assert_eq!(ranges(&store), [(1, 4), (5, 8), (9, 12)]);
    drop(sections);
}

#[test]
fn full_compaction_takes_each_file_with_a_removed_run_and_ends_the_last() {
    let runs = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut sections = lives(&[events(&runs), events(&[2, 2])].concat(), &[4, 4, 4]);
    sections[2].removed = vec![removal(&[1], 0)];
    let rig = Rig::new(1);
    let store = rig.filled(&sections[..3]);
    let before = bytes(&rig, &[1, 2, 3]);
    let all = dead([1]);
    assert_eq!(store.compact(&all, Scope::Sparse, NOW).unwrap().files, 0);
    assert_eq!(store.compact(&all, Scope::All, NOW).unwrap().files, 2);
    let after = bytes(&rig, &[1, 2, 3]);
    assert!(after[0] != before[0] && after[1] == before[1] && after[2] != before[2]);
    assert_living(&store, &sections[..3], &all);
    assert_absent(&store, &all);
    store.append(&sections[3]).unwrap();
    assert_eq!(rig.names(), ["1.his", "2.his", "3.his", "4.his"]);
    assert_living(&store, &sections, &all);
    // The last file has no event of a removed run.
    assert_eq!(store.compact(&all, Scope::All, NOW).unwrap().files, 0);
    let end = store.end().unwrap();
    assert_eq!(
        (end.file, end.length),
        (4, fs::metadata(rig.path(4)).unwrap().len())
    );
    drop(store);
    let (store, found) = rig.open();
    assert!(found.notes.is_empty() && found.lost.is_empty(), "{found:?}");
    assert_living(&store, &sections, &all);
}

#[test]
fn a_file_that_takes_sections_takes_more_of_them_after_a_sparse_compaction() {
    let mut sections = lives(&events(&[0, 0, 0, 0, 1, 1]), &[2, 2]);
    sections[1].removed = vec![removal(&[0], 0)];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..2]);
    let all = dead([0]);
    let before = bytes(&rig, &[1]);
    assert_eq!(store.compact(&all, Scope::Sparse, NOW).unwrap().files, 0);
    assert_eq!(bytes(&rig, &[1]), before);
    store.append(&sections[2]).unwrap();
    assert_eq!(rig.names(), ["1.his"]);
    assert_living(&store, &sections, &all);
}

#[test]
fn a_file_without_living_runs_becomes_one_small_section_and_no_gap() {
    let mut sections = lives(&commits(60, 2, 300), &[10; 6]);
    let last = lives(&commits(64, 2, 300), &[60]).remove(1);
    sections.push(Section {
        runs: vec![],
        removed: vec![removal(&[1, 0], 0)],
        ..last
    });
    let mut rig = Rig::new(9_000);
    let store = rig.filled(&sections);
    let count = u32::try_from(rig.names().len()).unwrap();
    assert!(count > 2);
    let all = dead([0, 1]);
    let compacted = store.compact(&all, Scope::All, NOW).unwrap();
    assert!(compacted.files + 1 >= count, "{compacted:?}");
    assert_living(&store, &sections, &all);
    assert_absent(&store, &all);
    for number in 1..count {
        let length = fs::metadata(rig.path(number)).unwrap().len();
        assert!(length < 500, "{length}");
    }
    assert_eq!(ranges(&store).len(), rig.names().len());
    assert_eq!(store.compact(&all, Scope::All, NOW).unwrap().files, 0);
    rig.options.expected = store.end();
    drop(store);
    let (store, found) = rig.open();
    assert_eq!((found.lost, found.notes), (vec![], vec![]));
    assert_living(&store, &sections, &all);
}

#[test]
fn files_without_living_runs_come_first() {
    let mut sections = lives(&events(&[0, 0, 1, 0, 0, 2]), &[3, 2]);
    sections[2].removed = vec![removal(&[0], 0)];
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    rig.fail(Call::Rename);
    let error = store.compact(&dead([0]), Scope::All, NOW).unwrap_err();
    assert!(error.to_string().contains("2.his`"), "{error}");
}

#[test]
fn small_sections_become_one_and_those_next_to_a_gap_stay_apart() {
    let runs = [0, 1, 0, 2, 3, 0, 0, 2, 1, 2, 0, 0];
    let mut sections = lives(&events(&runs), &[2; 6]);
    sections.remove(2);
    sections[4].removed = vec![removal(&[0, 3], 0)];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    let all = dead([0, 3]);
    store.compact(&all, Scope::All, NOW).unwrap();
    assert_eq!(ranges(&store), [(1, 4), (7, 12)]);
    assert_living(&store, &sections, &all);
    assert_absent(&store, &all);
}

#[test]
fn large_sections_stay_and_take_empty_neighbours() {
    let large = |run: usize| (0..25).map(move |_| vec![(run, 90_000)]);
    let large = large(1).chain(large(2)).chain(large(3));
    let commits: Vec<Commit> = events(&[0, 0]).into_iter().chain(large).collect();
    let mut sections = lives(&commits, &[1, 1, 25, 25]);
    sections[4].removed = vec![removal(&[0, 2], 0)];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    let sizes = sections.iter().zip(sections.iter().skip(1));
    assert_eq!(sizes.len(), 4);
    store.compact(&dead([0]), Scope::All, NOW).unwrap();
    assert_eq!(ranges(&store), [(1, 27), (28, 52), (53, 77)]);
    assert_living(&store, &sections, &dead([0]));
    store.compact(&dead([0, 2]), Scope::All, NOW).unwrap();
    assert_eq!(ranges(&store), [(1, 52), (53, 77)]);
    assert_living(&store, &sections, &dead([0, 2]));
    assert_absent(&store, &dead([0, 2]));
}

#[test]
fn a_merged_section_is_no_longer_than_a_reader_may_hold() {
    // A long text that is compressed to few bytes.
    let mut sections = lives(&events(&[0, 1, 1, 1, 1, 1, 1]), &[1, 3, 1, 1, 1]);
    let payload = || serde_json::value::to_raw_value(&"a".repeat(6 << 20)).unwrap();
    for event in sections[1..]
        .iter_mut()
        .flat_map(|section| &mut section.runs[0].events)
    {
        event.payload = payload();
    }
    sections[4].removed = vec![removal(&[0], 0)];
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    store.compact(&dead([0]), Scope::All, NOW).unwrap();
    // The first group is longer, but also takes an adjacent section of which nothing is left.
    assert_eq!(ranges(&store), [(1, 4), (5, 6), (7, 7)]);
    assert_living(&store, &sections, &dead([0]));
}

#[test]
fn a_file_is_synced_before_it_is_renamed_and_its_directory_after() {
    let (rig, store, _) = three_files();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    rig.on_call(move |call| {
        seen.lock().unwrap().push(call);
        Ok(())
    });
    store.compact(&dead([0]), Scope::Sparse, NOW).unwrap();
    rig.clear();
    let mut calls = calls.lock().unwrap().clone();
    calls.dedup();
    assert_eq!(
        calls,
        [Call::Write, Call::Sync, Call::Rename, Call::SyncDir]
    );
}

#[test]
fn blocks_without_removed_runs_are_copied_as_they_are() {
    let large = |run: usize| (0..3).map(move |_| vec![(run, 60_000)]);
    let mut sections = lives(&large(0).chain(large(1)).collect::<Vec<_>>(), &[]);
    sections[0].removed = vec![removal(&[1], 0)];
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    let mut bytes = fs::read(rig.path(1)).unwrap();
    let read = store.find(Lsn(1)).unwrap().read().unwrap();
    let block = read.directory().run(&run_id(0)).unwrap().spans[0].block;
    let frame = read.directory().block(block).frame();
    let start = usize::try_from(frame.offset).unwrap();
    let end = usize::try_from(frame.end()).unwrap();
    // A payload with an unknown codec, under a matching checksum.
    let segment = rye_core::frame::SegmentId(1 << 63 | 1);
    let sound = Frame::decode(segment, &bytes[start..end]).unwrap();
    let mut payload = sound.payload.to_vec();
    payload[0] = 77;
    let mut changed = Vec::new();
    let payload = payload.as_slice();
    Frame { payload, ..sound }.encode(&mut changed);
    bytes.splice(start..end, changed);
    fs::write(rig.path(1), bytes).unwrap();
    let compacted = store.compact(&dead([1]), Scope::All, NOW).unwrap();
    assert_eq!((compacted.files, compacted.notes), (1, vec![]));
    let bytes = fs::read(rig.path(1)).unwrap();
    assert!(bytes.windows(payload.len()).any(|window| window == payload));
}

#[test]
fn a_reader_from_before_reads_all_of_its_section_afterwards() {
    let mut sections = lives(&commits(60, 5, 200), &[6; 10]);
    sections[9].removed = vec![removal(&[1, 3], 0)];
    let rig = Rig::new(6_000);
    let store = rig.filled(&sections);
    for section in &mut sections {
        section.fingerprints.drain(..1);
    }
    let refs: Vec<_> = store.sections(Lsn(0)).collect();
    let readers: Vec<_> = store
        .sections(Lsn(0))
        .map(|section| section.read().unwrap())
        .collect();
    assert!(store.compact(&dead([1, 3]), Scope::All, NOW).unwrap().files > 3);
    assert_absent(&store, &dead([1, 3]));
    drop(store);
    let (store, _) = rig.open();
    drop(store);
    for ((section, reader), written) in refs.iter().zip(&readers).zip(&sections) {
        let mut written = written.clone();
        let key = reader
            .directory()
            .fingerprint(written.last)
            .unwrap()
            .clone();
        written.fingerprints[0].1 = key;
        assert_same(reader, &written);
        assert_same(&section.read().unwrap(), &written);
    }
}

#[test]
fn sections_are_appended_and_read_during_compactions() {
    let mut sections = lives(&commits(360, 9, 60), &[6; 60]);
    let gone = |at: usize| if at < 30 { dead([]) } else { dead([1, 4, 7]) };
    // The runs end in the first half.
    for section in &mut sections[30..] {
        section.runs.retain(|part| !gone(30).contains(&part.run));
    }
    sections[30].removed = vec![removal(&[1, 4, 7], 0)];
    let rig = Rig::new(6_000);
    let store = rig.filled(&sections[..31]);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let compactor = scope.spawn(|| {
            let mut files = 0;
            while !is_done.load(Ordering::Relaxed) {
                files += store.compact(&gone(30), Scope::All, NOW).unwrap().files;
                thread::yield_now();
            }
            files
        });
        let reader = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let lives = stored(&store);
                assert!(lives[&run_id(0)].events.len() >= 12);
            }
        });
        for section in &sections[31..] {
            store.append(section).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(compactor.join().unwrap() > 3);
        reader.join().unwrap();
    });
    store.compact(&gone(30), Scope::All, NOW).unwrap();
    assert_living(&store, &sections, &gone(30));
    assert_absent(&store, &gone(30));
}

#[test]
fn the_appender_does_not_wait_while_files_are_copied() {
    let (rig, store, _) = three_files();
    let store = Arc::new(store);
    let calls = Arc::new(Mutex::new((0, 0)));
    let (seen, other) = (Arc::clone(&calls), Arc::clone(&store));
    rig.on_call(move |_| {
        let is_free = other.writer.try_lock().is_ok() && other.table.try_lock().is_ok();
        let mut seen = seen.lock().unwrap();
        *seen = (seen.0 + 1, seen.1 + u32::from(is_free));
        Ok(())
    });
    assert_eq!(
        store.compact(&dead([0]), Scope::Sparse, NOW).unwrap().files,
        1
    );
    rig.clear();
    let (calls, free) = *calls.lock().unwrap();
    assert!(calls > 4 && calls == free, "{calls} {free}");
}

#[test]
fn the_end_of_history_is_the_new_length_of_its_file() {
    let mut sections = lives(&events(&[0, 0, 1, 0]), &[]);
    sections[0].removed = vec![removal(&[0], 0)];
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    let before = store.end();
    store.compact(&dead([0]), Scope::All, NOW).unwrap();
    let length = fs::metadata(rig.path(1)).unwrap().len();
    let file = 1;
    assert_eq!(store.end(), Some(FileEnd { file, length }));
    drop(store);
    // The process may die before its caller has recorded the new length.
    for expected in [before, Some(FileEnd { file, length })] {
        rig.options.expected = expected;
        let (store, found) = rig.open();
        assert!(found.notes.is_empty(), "{found:?}");
        assert_eq!(store.end(), Some(FileEnd { file, length }));
        assert_living(&store, &sections, &dead([0]));
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .open(rig.path(1))
        .unwrap();
    file.set_len(length - 1).unwrap();
    rig.options.expected = before;
    let (_, found) = rig.open();
    let note = &notes(&found, &rig.dir())[0];
    assert_eq!(
        *note,
        format!(
            "`1.his` has {} bytes of {}",
            length - 1,
            before.unwrap().length
        )
    );
}

#[test]
fn unfinished_files_are_removed_at_the_start() {
    let (rig, store, sections) = three_files();
    drop(store);
    fs::write(rig.dir().join("2.his.tmp"), b"torn").unwrap();
    fs::write(rig.dir().join("9.his.tmp"), b"").unwrap();
    fs::create_dir(rig.dir().join("7.his.tmp")).unwrap();
    fs::write(rig.dir().join("02.his.tmp"), b"of others").unwrap();
    let (store, found) = rig.open();
    let note = &notes(&found, &rig.dir())[0];
    assert!(
        note.starts_with("`7.his.tmp` cannot be removed: "),
        "{note}"
    );
    assert_eq!(found.notes.len(), 1);
    let expected = ["02.his.tmp", "1.his", "2.his", "3.his", "7.his.tmp"];
    assert_eq!(rig.names(), expected);
    assert_living(&store, &sections, &HashSet::<RunId>::new());
}

#[test]
fn bytes_are_those_of_all_files() {
    let (rig, store, _) = three_files();
    let on_disk = || -> u64 {
        let files = rig.names().into_iter().map(|name| rig.dir().join(name));
        files.map(|path| fs::metadata(path).unwrap().len()).sum()
    };
    assert_eq!(store.bytes(), on_disk());
    let before = store.bytes();
    let compacted = store.compact(&dead([0]), Scope::All, NOW).unwrap();
    assert_eq!(store.bytes(), on_disk());
    // The table at the end of the last file is counted in neither.
    assert!(before - store.bytes() < compacted.before - compacted.after + 1);
    drop(store);
    fs::write(rig.path(2), b"rubbish").unwrap();
    assert_eq!(rig.open().0.bytes(), on_disk());
}
