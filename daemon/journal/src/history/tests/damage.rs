//! Changes each byte of a file: every read returns what was written or reports a loss.

use std::fs;
use std::path::Path;

use rye_core::error::{ErrorKind, Kinded as _};
use rye_core::id::{RunId, Seq};

use super::rig::{Rig, assert_same, commits, merged, notes, run_id, sections};
use crate::history::{Error, Found, Section, Store};

/// Asserts that each read of `section` returns what was written, or fails with its location.
fn assert_right_or_lost(store: &Store, section: &Section, path: &Path) {
    let Some(found) = store.find(section.last) else {
        return;
    };
    let reader = match found.read() {
        Ok(reader) => reader,
        Err(error) => return assert_names(&error, None, path),
    };
    let mut is_damaged = false;
    for part in &section.runs {
        let mut rest = part.events.iter();
        for event in reader.events_of(&part.run, Seq(0)..=Seq(u64::MAX)) {
            match event {
                Ok(event) => assert_eq!(Some(&event), rest.next()),
                Err(error) => {
                    assert_names(&error, Some(&part.run), path);
                    // The file is small: each run has one block.
                    rest = [].iter();
                    is_damaged = true;
                }
            }
        }
        assert_eq!(rest.next(), None);
        match reader.record_of(&part.run) {
            Ok(record) => assert_eq!(record, part.record),
            Err(error) => {
                assert_names(&error, Some(&part.run), path);
                is_damaged = true;
            }
        }
    }
    match reader.events(|_| true) {
        Ok(events) => assert_eq!(events, merged(section, |_| true)),
        Err(error) => assert_names(&error, section.runs.first().map(|part| &part.run), path),
    }
    for entry in reader.entries() {
        match entry {
            Ok((run, entry)) => {
                let part = section.runs.iter().find(|part| part.run == run).unwrap();
                assert_eq!(Some(entry), part.entry);
            }
            Err(error) => {
                assert_names(&error, None, path);
                is_damaged = true;
            }
        }
    }
    if !is_damaged {
        assert_same(&reader, section);
    }
}

fn assert_names(error: &Error, run: Option<&RunId>, path: &Path) {
    assert_eq!(error.kind(), ErrorKind::DataLoss, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(run.is_none_or(|run| text.contains(run.as_str())), "{text}");
}

/// True if `found` reports that `section` is lost.
fn names(found: &Found, section: &Section) -> bool {
    let mut lost = found.lost.iter();
    let mut notes = found.notes.iter();
    if section.first > found.last {
        return notes.any(|note| note.contains(" is damaged at bytes "));
    }
    lost.any(|(first, last)| (*first..=*last).contains(&section.first))
}

/// Changes each byte of the file `number` in turn and reads everything.
fn damage_each_byte(rig: &Rig, number: u32, sections: &[Section], then: impl Fn(&Found, usize)) {
    let path = rig.path(number);
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        let (store, found) = rig.open();
        for section in sections {
            assert_right_or_lost(&store, section, &path);
            let is_named = store.find(section.last).is_some() || names(&found, section);
            assert!(is_named, "byte {at}: {found:?}");
        }
        then(&found, at);
    }
    fs::write(&path, &bytes).unwrap();
}

#[test]
fn a_changed_byte_of_a_full_file_is_an_error_or_changes_nothing() {
    let sections = sections(&commits(5, 2, 4), &[2, 2]);
    let mut rig = Rig::new(1_500);
    let store = rig.filled(&sections);
    assert_eq!(rig.names(), ["1.his", "2.his"]);
    rig.options.expected = store.end();
    damage_each_byte(&rig, 1, &sections, |found, _| {
        assert_eq!(found.last, sections[2].last);
    });
}

#[test]
fn a_changed_byte_of_the_open_file_is_an_error_or_changes_nothing() {
    let sections = sections(&commits(4, 2, 4), &[2]);
    let mut rig = Rig::new(u64::MAX);
    rig.options.expected = rig.filled(&sections).end();
    damage_each_byte(&rig, 1, &sections, |found, at| {
        let is_cut = found.notes.iter().any(|note| note.contains("cut"));
        assert!(!is_cut, "byte {at}: {found:?}");
    });
}

#[test]
fn a_changed_byte_of_the_last_unsynced_section_loses_no_other() {
    let sections = sections(&commits(5, 2, 4), &[2, 2]);
    let mut rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections[..2]);
    let synced = store.end().unwrap();
    store.append(&sections[2]).unwrap();
    drop(store);
    let path = rig.path(1);
    let bytes = fs::read(&path).unwrap();
    rig.options.expected = Some(synced);
    for at in usize::try_from(synced.length).unwrap()..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let (store, found) = rig.open();
        assert_eq!(found.last, sections[1].last, "byte {at}");
        let torn = bytes.len() - usize::try_from(synced.length).unwrap();
        let cut =
            format!("`1.his` ended with {torn} bytes of an unfinished append, which were cut");
        assert_eq!(notes(&found, &rig.dir()), [cut]);
        store.append(&sections[2]).unwrap();
        super::rig::assert_holds(&store, &sections);
    }
}

#[test]
fn an_error_of_a_block_names_runs_positions_file_and_byte() {
    let sections = sections(&commits(4, 2, 20), &[]);
    let mut rig = Rig::new(u64::MAX);
    rig.options.expected = rig.filled(&sections).end();
    let mut bytes = fs::read(rig.path(1)).unwrap();
    bytes[60] ^= 1;
    fs::write(rig.path(1), bytes).unwrap();
    let (store, _) = rig.open();
    let reader = store.find(sections[0].first).unwrap().read().unwrap();
    let error = reader.events(|entry| entry.run == run_id(1)).unwrap_err();
    let text = format!(
        "events 1 to 4 of run work-17-1 cannot be read: the frame at byte 0 of `{}`",
        rig.path(1).display()
    );
    assert_eq!(error.to_string(), text);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "its checksum does not match");
}

#[test]
fn files_of_rubbish_are_no_history_and_do_not_fail_the_start() {
    let rig = Rig::new(u64::MAX);
    drop(rig.open());
    let mut rubbish = b"RyF1".repeat(600);
    for (number, length) in [(1, 0), (2, 7), (3, 2_400)] {
        fs::write(rig.path(number), &rubbish[..length]).unwrap();
    }
    rubbish.reverse();
    fs::write(rig.path(4), &rubbish).unwrap();
    fs::write(rig.dir().join("05.his"), "no number").unwrap();
    fs::write(rig.dir().join("6.his.tmp"), "no file").unwrap();
    fs::create_dir(rig.path(7)).unwrap();
    let (store, found) = rig.open();
    assert_eq!(found.last.0, 0);
    let sections = sections(&commits(3, 2, 20), &[]);
    store.append(&sections[0]).unwrap();
    assert!(rig.path(8).is_file());
    super::rig::assert_holds(&store, &sections);
}
