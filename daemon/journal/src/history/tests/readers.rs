//! Readers that read while sections are appended and files change.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rye_core::id::Lsn;

use super::rig::{Rig, assert_holds, assert_same, commits, sections};

#[test]
fn readers_read_while_sections_are_appended_and_files_filled() {
    let sections = sections(&commits(240, 5, 60), &[4; 60]);
    let rig = Rig::new(6_000);
    let (store, _) = rig.open();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut after, mut count) = (Lsn(0), 0);
                    while count < sections.len() {
                        assert!(!is_done.load(Ordering::Relaxed) || store.last() > after);
                        for section in store.sections(after) {
                            assert_same(&section.read().unwrap(), &sections[count]);
                            (after, count) = (section.last(), count + 1);
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for section in &sections {
            store.append(section).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert!(rig.names().len() > 3);
    assert_holds(&store, &sections);
}

#[test]
fn a_reader_keeps_its_file_when_another_takes_its_name() {
    let sections = sections(&commits(8, 3, 30), &[4]);
    let rig = Rig::new(1);
    let store = rig.filled(&sections);
    let section = store.find(Lsn(1)).unwrap();
    let other = rig.dir().join("1.tmp");
    fs::write(&other, "another file").unwrap();
    fs::rename(&other, rig.path(1)).unwrap();
    drop(store);
    assert_same(&section.read().unwrap(), &sections[0]);
}
