//! Sections to store, and comparison of a store with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::digest::Digest;
use rye_core::id::{Lsn, Name, RunId, Seq};
use rye_core::seal::{Fingerprint, SecretKey};
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::history::faults::Faults;
use crate::history::faults::hooks::Call;
use crate::history::{
    Event, Found, Options, Removal, RemovedRun, RunPart, Section, SectionReader, Store,
};

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// A commit: the run of each event, with the length of the text in its payload.
pub(super) type Commit = Vec<(usize, usize)>;

pub(super) fn run_id(run: usize) -> RunId {
    RunId::new(format!("work-17-{run}")).unwrap()
}

fn files(run: usize) -> Name {
    format!("/project-{}/.ai/state", run % 2).into()
}

pub(super) fn fingerprint(key: u8) -> Fingerprint {
    SecretKey::from_seed(&[key; 32])
        .public()
        .fingerprint()
        .clone()
}

/// A text of `length` letters that is hardly compressible.
fn text(length: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letters = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state % 26).unwrap())
    });
    letters.collect()
}

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap()
}

fn event(lsn: u64, (place, count): (usize, usize), seq: u64, length: usize) -> Event {
    let is_object = seq % 5 == 4;
    let text = text(length, lsn * 100 + seq);
    let digest = Digest::of(&text);
    let payload = if is_object {
        format!(r#"{{"object":"{digest}","bytes":{length}}}"#)
    } else {
        format!(r#"{{"text":"{text}","tab":"\t"}}"#)
    };
    let key = SecretKey::from_seed(&[7; 32]);
    Event {
        seq: Seq(seq),
        lsn: Lsn(lsn),
        place: u32::try_from(place).unwrap(),
        at: Timestamp::from_ms(1_771_840_801_234 + i64::try_from(lsn).unwrap()),
        event_type: "step_completed".into(),
        payload: raw(payload),
        is_object,
        is_last_of_commit: place + 1 == count,
        signature: seq
            .is_multiple_of(3)
            .then(|| key.sign_hex(&digest.to_string())),
    }
}

/// Sections of these commits, which begin at position 1. Each takes the next of `lengths` commits, and the last one the
/// rest.
pub(super) fn sections(commits: &[Commit], lengths: &[usize]) -> Vec<Section> {
    let mut seqs: BTreeMap<usize, u64> = BTreeMap::new();
    let mut sections = Vec::new();
    let mut rest = commits;
    let mut lengths = lengths.iter();
    let mut lsn = 0;
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| *length);
        let (commits, behind) = rest.split_at(length.clamp(1, rest.len()));
        rest = behind;
        let first = lsn + 1;
        let mut parts: BTreeMap<usize, RunPart> = BTreeMap::new();
        for commit in commits {
            lsn += 1;
            for (place, (run, length)) in commit.iter().enumerate() {
                let seq = seqs.entry(*run).or_insert(0);
                *seq += 1;
                let event = event(lsn, (place, commit.len()), *seq, *length);
                let part = parts.entry(*run).or_insert_with(|| part(*run, lsn));
                part.events.push(event);
            }
        }
        sections.push(Section {
            first: Lsn(first),
            last: Lsn(lsn),
            fingerprints: vec![(Lsn(first), fingerprint(7))],
            runs: parts.into_values().collect(),
            removed: vec![removal(&[usize::try_from(first).unwrap() + 1_000], 0)],
        });
    }
    sections
}

/// A removal of `runs` at `ms`. Runs with even numbers have a start key.
pub(super) fn removal(runs: &[usize], ms: i64) -> Removal {
    let removed = |run: &usize| RemovedRun {
        run: run_id(*run),
        files: files(*run),
        item: format!("mission:{run}").into(),
        start_key: run
            .is_multiple_of(2)
            .then(|| format!("ann\0key-{run}").into()),
    };
    Removal {
        runs: runs.iter().map(removed).collect(),
        kept: Vec::new(),
        at: Timestamp::from_ms(ms),
        by: "ann".into(),
    }
}

/// A run ends in its section if the sum of its number and position is even.
fn part(run: usize, lsn: u64) -> RunPart {
    let id = run_id(run);
    let has_ended = (u64::try_from(run).unwrap() + lsn).is_multiple_of(2);
    let line = |kind: &str, length: usize| {
        let text = text(length, lsn);
        has_ended.then(|| format!(r#"{{"run":"{id}","{kind}":"{text}"}}"#).into_bytes())
    };
    RunPart {
        files: files(run),
        names: vec![Digest::of(format!("{run}")), Digest::of(format!("{lsn}"))],
        events: Vec::new(),
        record: line("record", 300),
        entry: line("entry", 40),
        run: id,
    }
}

/// Commits with two events each of `runs` runs in turn, with payloads of `length` and half of `length` letters.
pub(super) fn commits(count: usize, runs: usize, length: usize) -> Vec<Commit> {
    let commit = |at: usize| vec![(at % runs, length), ((at + 1) % runs, length / 2)];
    (0..count).map(commit).collect()
}

/// A state directory with a history.
pub(super) struct Rig {
    state: TempDir,
    pub(super) options: Options,
    faults: Faults,
}

impl Rig {
    /// Creates one whose files are full at `file_bytes`.
    pub(super) fn new(file_bytes: u64) -> Self {
        let expected = None;
        Self {
            state: tempfile::tempdir().unwrap(),
            options: Options {
                file_bytes,
                expected,
            },
            faults: Faults::default(),
        }
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.state.path().join("history")
    }

    pub(super) fn path(&self, number: u32) -> PathBuf {
        self.dir().join(format!("{number}.his"))
    }

    pub(super) fn open(&self) -> (Store, Found) {
        Store::open_with(&self.dir(), self.options, self.faults.clone()).unwrap()
    }

    /// Creates a store with these sections, in one file unless it is full earlier.
    pub(super) fn filled(&self, sections: &[Section]) -> Store {
        let (store, _) = self.open();
        for section in sections {
            store.append(section).unwrap();
        }
        store
    }

    pub(super) fn on_call(&self, hook: impl FnMut(Call) -> io::Result<()> + Send + 'static) {
        self.faults.hooks.set(hook);
    }

    pub(super) fn clear(&self) {
        self.faults.hooks.clear();
    }

    pub(super) fn fail(&self, call: Call) {
        self.faults.hooks.fail(call);
    }

    /// Names of the files of history, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// The messages without the directory.
pub(super) fn notes(found: &Found, dir: &Path) -> Vec<String> {
    let dir = format!("{}/", dir.display());
    let notes = found.notes.iter();
    notes.map(|note| note.replace(&dir, "")).collect()
}

/// The events of `section` in the order of the log.
pub(super) fn merged(section: &Section, wanted: impl Fn(&RunPart) -> bool) -> Vec<(RunId, Event)> {
    let parts = section.runs.iter().filter(|part| wanted(part));
    let events = parts.flat_map(|part| part.events.iter().map(|event| (part.run.clone(), event)));
    let mut events: Vec<_> = events.map(|(run, event)| (run, event.clone())).collect();
    events.sort_by_key(|(_, event)| (event.lsn, event.place));
    events
}

/// Asserts that `store` holds exactly `sections`.
pub(super) fn assert_holds(store: &Store, sections: &[Section]) {
    let ranges: Vec<(Lsn, Lsn)> = sections
        .iter()
        .map(|section| (section.first, section.last))
        .collect();
    let found = store.sections(Lsn(0));
    let found: Vec<(Lsn, Lsn)> = found
        .map(|section| (section.first(), section.last()))
        .collect();
    assert_eq!(found, ranges);
    let last = sections.last().map_or(Lsn(0), |section| section.last);
    assert_eq!(store.last(), last);
    assert!(store.find(last.next()).is_none() && store.find(Lsn(0)).is_none());
    for section in sections {
        for lsn in section.first.0..=section.last.0 {
            let found = store.find(Lsn(lsn)).unwrap();
            assert_eq!((found.first(), found.last()), (section.first, section.last));
        }
        let reader = store.find(section.last).unwrap().read().unwrap();
        assert_same(&reader, section);
    }
}

/// Asserts that `reader` reads `section`, by each function for reading.
pub(super) fn assert_same(reader: &SectionReader, section: &Section) {
    let directory = reader.directory();
    assert_eq!(
        (directory.first, directory.last),
        (section.first, section.last)
    );
    assert_eq!(
        directory.fingerprint(section.last),
        Some(&section.fingerprints[0].1)
    );
    let removed = |removed: &[Removal]| serde_json::to_string(removed).unwrap();
    assert_eq!(removed(&directory.removed), removed(&section.removed));
    assert_eq!(directory.runs.len(), section.runs.len());
    for part in &section.runs {
        let entry = directory.run(&part.run).unwrap();
        assert_eq!(directory.files_of(entry), Some(&part.files));
        assert_eq!(entry.names, part.names);
        let (first, last) = entry.seqs().unwrap();
        let read = |seqs| {
            reader
                .events_of(&part.run, seqs)
                .map(Result::unwrap)
                .collect::<Vec<_>>()
        };
        assert_eq!(read(Seq(0)..=Seq(u64::MAX)), part.events);
        let inner = read(first.next()..=last);
        assert_eq!(inner, part.events[1..]);
        assert_eq!(reader.record_of(&part.run).unwrap(), part.record);
    }
    assert_eq!(reader.events(|_| true).unwrap(), merged(section, |_| true));
    let of_one = |files: &Name| files.contains("project-1");
    let wanted = merged(section, |part| of_one(&part.files));
    assert_eq!(
        reader
            .events(|entry| directory.files_of(entry).is_some_and(of_one))
            .unwrap(),
        wanted
    );
    let texts = |text: fn(&RunPart) -> &Option<Vec<u8>>| -> BTreeSet<(String, Vec<u8>)> {
        let parts = section.runs.iter();
        let texts = parts.filter_map(|part| Some((part.run.to_string(), text(part).clone()?)));
        texts.collect()
    };
    let read = |(run, text): (RunId, Vec<u8>)| (run.to_string(), text);
    let records: BTreeSet<_> = reader
        .records()
        .map(|record| read(record.unwrap()))
        .collect();
    assert_eq!(records, texts(|part| &part.record));
    let entries: BTreeSet<_> = reader.entries().map(|entry| read(entry.unwrap())).collect();
    assert_eq!(entries, texts(|part| &part.entry));
}
