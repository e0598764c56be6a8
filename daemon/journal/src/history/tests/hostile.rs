//! Frames with matching checksums and false content.

use std::fs;

use rye_core::clock::Timestamp;
use rye_core::frame::Frame;
use rye_core::id::{Lsn, Seq};

use super::lives::dead;
use super::rig::{Rig, commits, run_id, sections};
use crate::history::file::{Extent, HistoryFile};
use crate::history::payload::{self, Encoder, MAX_TEXT_BYTES};
use crate::history::{Error, Scope, SectionReader, Store, scan};

/// Stores two sections, changes the directory of the second by `change`, and opens the store again.
fn with_directory(change: impl Fn(&str) -> String) -> (Rig, Store) {
    let sections = sections(&commits(4, 2, 4), &[2]);
    let mut rig = Rig::new(u64::MAX);
    rig.options.expected = rig.filled(&sections).end();
    let options = fs::OpenOptions::new().read(true).clone();
    let file = HistoryFile::open(&rig.dir(), 1, &options).unwrap();
    let rows = scan::sections(&file, file.length().unwrap()).unwrap().rows;
    let Extent { offset, bytes } = rows[1].directory();
    let frame = file.read(Extent { offset, bytes }).unwrap();
    let frame = Frame::decode(file.segment(), &frame).unwrap();
    let text = payload::decode(frame.payload, MAX_TEXT_BYTES).unwrap();
    let changed = change(std::str::from_utf8(&text).unwrap());
    assert_ne!(changed.as_bytes(), text);
    let payload = Encoder::new().unwrap().encode(changed.as_bytes()).unwrap();
    let mut bytes = fs::read(&file.path).unwrap();
    bytes.truncate(usize::try_from(offset).unwrap());
    let payload = payload.as_slice();
    Frame { payload, ..frame }.encode(&mut bytes);
    fs::write(&file.path, bytes).unwrap();
    rig.options.expected.as_mut().unwrap().length = file.length().unwrap();
    let (store, _) = rig.open();
    (rig, store)
}

fn reader(store: &Store) -> Result<SectionReader, Error> {
    store.find(Lsn(3)).unwrap().read()
}

/// Returns `text` with the first item of the list `key` replaced.
fn first_of(text: &str, key: &str, item: &str) -> String {
    let start = text.find(key).unwrap() + key.len();
    let end = start + text[start..].find(']').unwrap() + 1;
    format!("{}{item}{}", &text[..start], &text[end..])
}

#[test]
fn a_directory_that_names_impossible_blocks_fails_their_reads() {
    let max = u32::MAX;
    for (block, reason) in [
        (format!("[0,{max},{max}]"), "the file ends at byte"),
        (format!("[{},{max},9]", u64::MAX), "the file ends at byte"),
        ("[5,100,9]".to_owned(), "its checksum does not match"),
        ("[0,0,0]".to_owned(), "its checksum does not match"),
    ] {
        let (_rig, store) = with_directory(|text| first_of(text, r#""blocks":["#, &block));
        let error = reader(&store).unwrap().events(|_| true).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with(reason), "{block}: {source}");
    }
}

#[test]
fn a_block_of_another_section_is_not_taken() {
    let sections = sections(&commits(4, 2, 4), &[2]);
    let rig = Rig::new(u64::MAX);
    let store = rig.filled(&sections);
    let first = store.find(Lsn(1)).unwrap().read().unwrap();
    let block = serde_json::to_string(&first.directory().block(0)).unwrap();
    let (_rig, store) = with_directory(|text| first_of(text, r#""blocks":["#, &block));
    let error = reader(&store).unwrap().events(|_| true).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "it belongs to position 2");
}

#[test]
fn events_that_are_not_those_of_the_directory_are_damage() {
    for span in [
        "[[0,2,5]]",
        "[[0,3,6]]",
        "[[0,4,4]]",
        "[[0,0,18446744073709551615]]",
    ] {
        let key = format!(r#""{}",0,["#, run_id(0));
        let (_rig, store) = with_directory(|text| first_of(text, &key, &span[1..span.len() - 1]));
        let reader = reader(&store).unwrap();
        let mut events = reader.events_of(&run_id(0), Seq(0)..=Seq(u64::MAX));
        assert!(
            matches!(events.next(), Some(Err(Error::Frame { .. }))),
            "{span}"
        );
        assert!(events.next().is_none());
    }
}

#[test]
fn numbers_of_blocks_and_projects_that_are_not_there_are_errors() {
    let key = format!(r#""{}","#, run_id(0));
    let (_rig, store) =
        with_directory(|text| text.replacen(&format!("{key}0,[[0,"), &format!("{key}77,[[77,"), 1));
    let reader = reader(&store).unwrap();
    let run = reader.directory().run(&run_id(0)).unwrap();
    assert_eq!(reader.directory().files_of(run), None);
    assert!(reader.events(|_| true).is_err());
    let compacted = store.compact(&dead([1]), Scope::All, Timestamp::from_ms(0));
    let compacted = compacted.unwrap();
    assert_eq!((compacted.files, compacted.notes.len()), (0, 1));
}

#[test]
fn a_text_longer_than_its_bound_is_not_decompressed() {
    let text = vec![b'0'; 1 << 20];
    let payload = Encoder::new().unwrap().encode(&text).unwrap();
    assert!(payload.len() < 1_000);
    assert!(payload::decode(&payload, text.len() - 1).is_err());
    assert_eq!(payload::decode(&payload, text.len()).unwrap(), text);
    assert!(payload::decode(b"\0text", 3).is_err());
    assert!(payload::decode(b"\x07text", 9).is_err());
    assert!(payload::decode(b"", 9).is_err());
}
