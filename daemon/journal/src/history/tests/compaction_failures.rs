//! Compactions that fail, and processes that die in one.

use std::fs;
use std::sync::{Arc, Mutex};

use rye_core::clock::Timestamp;

use super::lives::{assert_absent, assert_living, dead, lives};
use super::rig::{Rig, commits, removal};
use crate::history::faults::hooks::{Call, error};
use crate::history::{Scope, Section, Store};

const NOW: Timestamp = Timestamp::from_ms(1_000);

/// Four files, of which the second has no living run, and a section that is not appended yet.
fn filled() -> (Rig, Store, Vec<Section>) {
    let mut sections = lives(&commits(36, 6, 200), &[4; 9]);
    let gone = dead([1, 4]);
    for section in &mut sections[2..4] {
        section.runs.retain(|part| gone.contains(&part.run));
    }
    sections[7].removed = vec![removal(&[1, 4], 0)];
    sections[8].runs.retain(|part| !gone.contains(&part.run));
    let mut rig = Rig::new(2_000);
    let store = rig.filled(&sections[..8]);
    assert!(rig.names().len() > 3, "{:?}", rig.names());
    rig.options.expected = store.end();
    (rig, store, sections)
}

/// The calls of a compaction in which none fails.
fn calls() -> Vec<Call> {
    let (rig, store, _) = filled();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    rig.on_call(move |call| {
        seen.lock().unwrap().push(call);
        Ok(())
    });
    store.compact(&dead([1, 4]), Scope::All, NOW).unwrap();
    rig.clear();
    let calls = calls.lock().unwrap();
    calls.clone()
}

/// A store in which call number `at` of a compaction failed, and its directory at that call.
fn failed(at: usize) -> (Rig, Store, Vec<Section>, Rig) {
    let (rig, store, sections) = filled();
    let mut copy = Rig::new(2_000);
    copy.options = rig.options;
    let (from, to) = (rig.dir(), copy.dir());
    let mut number = 0;
    rig.on_call(move |call| {
        number += 1;
        if number != at + 1 {
            return Ok(());
        }
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        Err(error(call))
    });
    let failed = store.compact(&dead([1, 4]), Scope::All, NOW);
    rig.clear();
    let text = failed.unwrap_err().to_string();
    assert!(text.contains(".his`"), "{text}");
    (rig, store, sections, copy)
}

/// Asserts that history is as before or after the compaction, and that a compaction succeeds now.
fn assert_usable(rig: &Rig, store: &Store, sections: &[Section]) {
    let gone = dead([1, 4]);
    let names = rig.names();
    assert!(!names.iter().any(|name| name.contains("tmp")), "{names:?}");
    assert_living(store, &sections[..8], &gone);
    store.append(&sections[8]).unwrap();
    store.compact(&gone, Scope::All, NOW).unwrap();
    assert_living(store, sections, &gone);
    assert_absent(store, &gone);
    let (store, found) = rig.open();
    assert!(found.notes.is_empty() && found.lost.is_empty(), "{found:?}");
    assert_living(&store, sections, &gone);
    assert_absent(&store, &gone);
}

#[test]
fn a_call_that_fails_leaves_history_readable_and_no_unfinished_file() {
    let calls = calls();
    for call in [Call::Write, Call::Sync, Call::Rename, Call::SyncDir] {
        assert!(calls.contains(&call), "{calls:?}");
    }
    for at in 0..calls.len() {
        let (rig, store, sections, _) = failed(at);
        assert_usable(&rig, &store, &sections);
    }
}

#[test]
fn a_process_that_dies_at_any_call_leaves_history_readable() {
    for at in 0..calls().len() {
        let (_, _, sections, copy) = failed(at);
        let (store, found) = copy.open();
        let is_torn_table = found
            .notes
            .iter()
            .all(|note| note.ends_with("which were cut"));
        assert!(is_torn_table && found.lost.is_empty(), "{found:?}");
        assert_usable(&copy, &store, &sections);
    }
}

#[test]
fn a_file_whose_rename_is_not_synced_is_read_under_its_name() {
    let (rig, store, sections) = filled();
    rig.fail(Call::SyncDir);
    store.compact(&dead([1, 4]), Scope::All, NOW).unwrap_err();
    let on_disk: u64 = rig
        .names()
        .iter()
        .map(|name| fs::metadata(rig.dir().join(name)).unwrap().len())
        .sum();
    assert_eq!(store.bytes(), on_disk);
    assert_usable(&rig, &store, &sections);
}
