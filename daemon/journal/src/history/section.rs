//! A section in memory: the events of one range of the log, grouped by run, as the sealer passes them to the store.

use std::collections::HashSet;

use rye_core::clock::Timestamp;
use rye_core::digest::Digest;
use rye_core::id::{Lsn, Name, RunId, Seq};
use rye_core::seal::{Fingerprint, Signature};
use serde_json::value::RawValue;

use super::error::Error;
use super::removal::Removal;

#[derive(Debug, Clone)]
pub struct Event {
    /// Position in the run.
    pub seq: Seq,
    /// Position of its commit in the log.
    pub lsn: Lsn,
    /// Index in its commit, from 0.
    pub place: u32,
    /// Time of its commit.
    pub at: Timestamp,
    /// Name of its type, as in the log.
    pub event_type: Name,
    /// Its content without line feeds; of a long payload the reference to the object that holds it.
    pub payload: Box<RawValue>,
    /// True if an object holds its content.
    pub is_object: bool,
    /// True if no event follows in its commit.
    pub is_last_of_commit: bool,
    /// Signature of the checkpoint that follows it in the transcript.
    pub signature: Option<Signature>,
}

#[derive(Debug, Clone)]
pub struct RunPart {
    pub run: RunId,
    /// Directory with the files of its project.
    pub files: Name,
    /// Digests of the objects that its events in this section name.
    pub names: Vec<Digest>,
    /// Its events in this section, without gaps.
    pub events: Vec<Event>,
    /// Its final record as one line of text, if it ended in this section.
    pub record: Option<Vec<u8>>,
    /// Its entry in the index as one line of text, if it ended in this section.
    pub entry: Option<Vec<u8>>,
}

/// A range of the log that is to be stored.
#[derive(Debug, Clone)]
pub struct Section {
    /// Position of its first commit.
    pub first: Lsn,
    /// Position of its last commit.
    pub last: Lsn,
    /// Fingerprints of the signing keys, each with the position from which the key signed, in order.
    pub fingerprints: Vec<(Lsn, Fingerprint)>,
    /// Parts of the runs: each run at most once, in any order.
    pub runs: Vec<RunPart>,
    /// Removals in its range.
    pub removed: Vec<Removal>,
}

impl Section {
    /// Fails if the section could not be read back, or does not begin after `end`, the end of history.
    pub(super) fn check(&self, end: Lsn) -> Result<(), Error> {
        let Self { first, last, .. } = self;
        if *first <= end || last < first {
            let reason = format!("positions {first} to {last} do not follow {end}");
            return Err(Error::Refused(reason));
        }
        let mut ids = HashSet::new();
        for part in &self.runs {
            let events = || part.events.iter();
            let mut pairs = events().zip(events().skip(1));
            let fault = if !ids.insert(&part.run) {
                "is in it twice"
            } else if !pairs.all(|(event, next)| next.seq.0.checked_sub(1) == Some(event.seq.0)) {
                "has gaps between its events"
            } else if !events().all(|event| (first..=last).contains(&&event.lsn)) {
                "has an event outside of the range"
            } else {
                continue;
            };
            return Err(Error::Refused(format!("run {} {fault}", part.run)));
        }
        Ok(())
    }
}
