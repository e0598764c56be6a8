//! The file `base`: long records in several frames, and damage.

use std::fs;
use std::io;
use std::path::Path;

use rye_core::id::Lsn;
use rye_core::model::Task;
use serde_json::json;

use super::stored::{event, owned, run, walked};
use crate::base::{Base, BaseHead, Stored};

/// The record of a graph run whose state holds `text`.
fn holding(text: &str) -> Stored {
    let payload = json!({
        "graph_id": "demo/graph", "graph_run_id": "run-a", "start_node": "n", "state": {"text": text},
    });
    run(walked(None), &[owned(), event("graph_started", &payload)])
}

fn write(state: &Path, runs: &[Stored]) {
    let head = BaseHead {
        lsn: Lsn(9),
        runs: runs.len(),
        ..BaseHead::default()
    };
    Base::write(state, &head, runs.iter().cloned()).unwrap();
}

fn long_records() -> [Stored; 4] {
    let short = run(Task::Tool, &[owned()]);
    [
        short.clone(),
        holding(&"\u{1}\n\"é".repeat(50_000)),
        short,
        holding(&"x".repeat(1_200_000)),
    ]
}

#[test]
fn records_of_any_length_round_trip() {
    let state = tempfile::tempdir().unwrap();
    let mut records = long_records().to_vec();
    // Their text ends before, at and after the end of a frame.
    let frame = 256 << 10;
    let most = frame + 3 - serde_json::to_string(&holding("")).unwrap().len();
    records.extend((most - 40..most).map(|length| holding(&"x".repeat(length))));
    write(state.path(), &records);
    let read = Base::read(state.path()).unwrap().unwrap();
    assert_eq!((read.head.lsn, read.head.runs), (Lsn(9), records.len()));
    assert!(format!("{:?}", read.runs) == format!("{records:?}"));
}

#[test]
fn damage_of_a_long_record_is_invalid_data() {
    let state = tempfile::tempdir().unwrap();
    write(state.path(), &long_records());
    let path = state.path().join("base");
    let whole = fs::read(&path).unwrap();
    let frames: Vec<usize> = memchr::memmem::find_iter(&whole, b"RyF1").collect();
    assert!(frames.len() > 8, "{}", frames.len());
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let error = Base::read(state.path()).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}");
    };
    for (number, &at) in frames.iter().enumerate() {
        refused(&whole[..at], &format!("cut before frame {number}"));
        let mut flipped = whole.clone();
        flipped[at + 50] ^= 1;
        refused(&flipped, &format!("a flipped bit in frame {number}"));
        let end = frames.get(number + 1).copied().unwrap_or(whole.len());
        let without = [&whole[..at], &whole[end..]].concat();
        refused(&without, &format!("without frame {number}"));
    }
}
