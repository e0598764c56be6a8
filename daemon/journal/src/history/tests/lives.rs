//! Runs over many sections, and comparison of a compacted store with them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rye_core::digest::Digest;
use rye_core::id::{Lsn, Name, RunId, Seq};
use rye_core::seal::Fingerprint;

use super::rig::{Commit, fingerprint, run_id, sections};
use crate::history::{Event, Section, Store};

/// Sections like [`sections`] without removals. Two of three runs end, in their last section. Their texts name another
/// run. The key changes in each section.
pub(super) fn lives(commits: &[Commit], lengths: &[usize]) -> Vec<Section> {
    let mut all = sections(commits, lengths);
    let mut ended = BTreeSet::new();
    for (at, section) in all.iter_mut().enumerate().rev() {
        for part in &mut section.runs {
            let is_end = ended.insert(part.run.clone());
            let ends = is_end && !part.run.as_str().ends_with(['2', '5', '8']);
            let line = |kind: &str| {
                let text = format!(r#"{{"run":"{}","{kind}":"{}, {at}"}}"#, run_id(0), part.run);
                ends.then(|| text.into_bytes())
            };
            (part.record, part.entry) = (line("record"), line("entry"));
            part.names.dedup();
        }
        section.removed.clear();
        section.fingerprints = keys(section, at);
    }
    all
}

/// One key from before the section, one from its middle, and one from after it.
fn keys(section: &Section, at: usize) -> Vec<(Lsn, Fingerprint)> {
    let key = |at: usize| fingerprint(u8::try_from(at % 4).unwrap());
    let (Lsn(first), Lsn(last)) = (section.first, section.last);
    vec![
        (Lsn(first.saturating_sub(3).max(1)), key(at)),
        (Lsn(u64::midpoint(first, last)), key(at + 1)),
        (Lsn(last + 2), fingerprint(99)),
    ]
}

pub(super) fn dead(runs: impl IntoIterator<Item = usize>) -> HashSet<RunId> {
    runs.into_iter().map(run_id).collect()
}

/// All data of a run in history.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Life {
    files: Option<Name>,
    pub(super) events: Vec<Event>,
    names: BTreeSet<Digest>,
    record: Option<Vec<u8>>,
    entry: Option<Vec<u8>>,
}

fn written(sections: &[Section]) -> BTreeMap<RunId, Life> {
    let mut lives: BTreeMap<RunId, Life> = BTreeMap::new();
    for part in sections.iter().flat_map(|section| &section.runs) {
        let life = lives.entry(part.run.clone()).or_default();
        life.files = Some(Name::clone(&part.files));
        life.events.extend(part.events.iter().cloned());
        life.names.extend(&part.names);
        life.record = part.record.clone().or(life.record.take());
        life.entry = part.entry.clone().or(life.entry.take());
    }
    lives
}

/// All runs in `store`, read by each function for reading.
pub(super) fn stored(store: &Store) -> BTreeMap<RunId, Life> {
    let mut lives: BTreeMap<RunId, Life> = BTreeMap::new();
    for section in store.sections(Lsn(0)) {
        let reader = section.read().unwrap();
        let directory = reader.directory();
        let mut merged = Vec::new();
        for entry in &directory.runs {
            let life = lives.entry(entry.run.clone()).or_default();
            life.files = directory.files_of(entry).cloned();
            assert!(life.files.is_some());
            let events = reader.events_of(&entry.run, Seq(0)..=Seq(u64::MAX));
            for event in events.map(Result::unwrap) {
                merged.push((entry.run.clone(), event.clone()));
                life.events.push(event);
            }
            let names: BTreeSet<_> = entry.names.iter().copied().collect();
            assert_eq!(names.len(), entry.names.len());
            life.names.extend(names);
            life.record = reader.record_of(&entry.run).unwrap().or(life.record.take());
        }
        merged.sort_by_key(|(_, event)| (event.lsn, event.place));
        assert_eq!(reader.events(|_| true).unwrap(), merged);
        for entry in reader.entries() {
            let (run, entry) = entry.unwrap();
            lives.entry(run).or_default().entry = Some(entry);
        }
        let records = reader.records().map(|record| record.unwrap().0);
        let ended = directory.runs.iter().filter(|run| run.is_ended());
        let ended: BTreeSet<_> = ended.map(|run| run.run.clone()).collect();
        assert_eq!(records.collect::<BTreeSet<_>>(), ended);
        let projects = directory.runs.iter().map(|run| directory.files_of(run));
        assert!(projects.is_sorted());
    }
    lives
}

/// The runs of all removals in `store`.
pub(super) fn removed(store: &Store) -> Vec<RunId> {
    let removals = store.removals().map(|removal| removal.unwrap().1);
    let runs = removals.flat_map(|removal| removal.runs);
    runs.map(|removed| removed.run).collect()
}

/// Asserts that `store` has all positions of `sections` and all data of each run that is not in `dead`. A run in `dead`
/// may have some events left; then it has a removal too.
pub(super) fn assert_living(store: &Store, sections: &[Section], dead: &HashSet<RunId>) {
    let (mut written, mut stored) = (written(sections), stored(store));
    let on_record: HashSet<RunId> = removed(store).into_iter().collect();
    for run in dead {
        let all = written.remove(run).unwrap_or_default();
        let Some(some) = stored.remove(run) else {
            continue;
        };
        assert!(some.events.iter().all(|event| all.events.contains(event)));
        assert!(on_record.contains(run), "{run} of {on_record:?}");
    }
    assert_eq!(stored, written);
    assert_positions(store, sections);
}

/// Asserts that `store` has no data of `dead`.
pub(super) fn assert_absent(store: &Store, dead: &HashSet<RunId>) {
    let stored = stored(store);
    let left: Vec<_> = stored.keys().filter(|run| dead.contains(*run)).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn assert_positions(store: &Store, sections: &[Section]) {
    let last = sections.last().map_or(Lsn(0), |section| section.last);
    assert_eq!(store.last(), last);
    let mut is_covered = BTreeSet::new();
    for section in sections {
        for lsn in (section.first.0..=section.last.0).map(Lsn) {
            is_covered.insert(lsn);
            let found = store.find(lsn).unwrap();
            assert!(found.first() <= lsn && lsn <= found.last());
            let directory = found.read().unwrap().into_directory();
            let mut keys = section.fingerprints.iter().rev();
            let key = keys.find(|(from, _)| *from <= lsn).map(|(_, key)| key);
            assert_eq!(directory.fingerprint(lsn), key, "at {lsn}");
        }
        for event in section.runs.iter().flat_map(|part| &part.events) {
            assert!(is_covered.contains(&event.lsn));
        }
    }
    let gaps = (1..last.0).map(Lsn).filter(|lsn| !is_covered.contains(lsn));
    for gap in gaps {
        assert!(store.find(gap).is_none(), "{gap}");
    }
    let ranges: Vec<_> = store.sections(Lsn(0)).collect();
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    assert!(pairs.all(|(one, next)| one.last() < next.first()));
}
