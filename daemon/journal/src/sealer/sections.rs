//! Builds sections of history from a range of the log.
//!
//! **Owns** the choice of the data of a commit that goes into a section, and the length of a section. **Never** decides
//! when to seal, and writes no file but the objects that hold long texts of records. **Order.** Everything in the range
//! is published: its signatures are in [`Published`]. Its runs are in memory, except those that were removed since,
//! whose events are left out.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, RunId};
use rye_core::seal::Signature;
use rye_host::blobs;
use serde_json::value::RawValue;

use crate::base::{Span, Stored};
use crate::history::{self, RunPart, Section};
use crate::index::Entry;
use crate::jobs::Ended;
use crate::log::Log;
use crate::record::{Body, Record, texts};
use crate::sequencer::Sequencer;
use crate::stream::{EventSpot, Published};

/// Bytes of the log that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of the log after which a section ends.
const SECTION_BYTES: usize = 16 << 20;

/// Sources of sections.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) log: Arc<Log>,
    pub(crate) sequencer: Arc<Sequencer>,
    pub(crate) published: Arc<Published>,
    pub(crate) objects: Arc<blobs::Store>,
}

/// A section, and the index entries of the runs that ended in it.
pub(crate) struct Built {
    pub(crate) section: Section,
    pub(crate) entries: Vec<Entry>,
}

/// Builds the section that begins at `from` and ends at `upto`, or earlier if it is full. `ended` are all runs that
/// ended up to there. Blocks.
pub(crate) fn build(
    material: &Material,
    from: Lsn,
    upto: Lsn,
    ended: &[Ended],
) -> io::Result<Built> {
    let mut builder = Builder::new(material, from, upto);
    while builder.next <= upto && builder.bytes < SECTION_BYTES {
        let frames = material.log.read_many(builder.next, READ_BYTES)?;
        let before = builder.next;
        for (lsn, body) in frames.iter().take_while(|(lsn, _)| *lsn <= upto) {
            builder.frame(lsn, body)?;
        }
        if builder.next == before {
            let why = format!("the log does not hold position {before}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
    let last = builder.last();
    let mut entries = Vec::new();
    for ended in ended.iter().filter(|ended| ended.lsn <= last) {
        entries.extend(builder.end(ended)?);
    }
    let section = builder.section;
    Ok(Built { section, entries })
}

struct Builder<'a> {
    material: &'a Material,
    signatures: HashMap<EventSpot, Signature>,
    /// Index of each run in the section.
    runs: HashMap<RunId, usize>,
    section: Section,
    next: Lsn,
    bytes: usize,
}

impl<'a> Builder<'a> {
    fn new(material: &'a Material, from: Lsn, upto: Lsn) -> Self {
        let (signatures, fingerprints) = material.published.signatures.up_to(upto);
        Self {
            material,
            signatures,
            runs: HashMap::new(),
            section: Section {
                first: from,
                last: from,
                fingerprints,
                runs: Vec::new(),
                removed: Vec::new(),
            },
            next: from,
            bytes: 0,
        }
    }

    const fn last(&self) -> Lsn {
        self.section.last
    }

    fn frame(&mut self, lsn: Lsn, body: &[u8]) -> io::Result<()> {
        match serde_json::from_slice(body)? {
            Body::Epoch { .. } | Body::Closed { .. } => {}
            Body::Removed(removal) => self.section.removed.push(removal),
            Body::Commit { at, records } => {
                let count = records.len();
                for (place, record) in records.into_iter().enumerate() {
                    let at_end = place + 1 == count;
                    self.event(lsn, place, at, at_end, record)?;
                }
            }
        }
        self.section.last = lsn;
        self.next = lsn.next();
        self.bytes += body.len();
        Ok(())
    }
}

impl Builder<'_> {
    fn event(
        &mut self,
        lsn: Lsn,
        place: usize,
        at: Timestamp,
        is_last_of_commit: bool,
        record: Record,
    ) -> io::Result<()> {
        let object = record.event.object();
        let signature = self.signatures.remove(&(lsn, place));
        let payload = RawValue::from_string(record.event.shown().into_owned())?;
        let Some(run) = self.run(&record.run)? else {
            return Ok(());
        };
        run.names.extend(object);
        run.events.push(history::Event {
            seq: record.seq,
            lsn,
            place: u32::try_from(place).map_err(io::Error::other)?,
            at,
            payload,
            event_type: record.event.event_type.into(),
            is_last_of_commit,
            is_object: object.is_some(),
            signature,
        });
        Ok(())
    }

    /// Returns the part of a run in the section; `None` if the run was removed.
    fn run(&mut self, id: &RunId) -> io::Result<Option<&mut RunPart>> {
        let runs = &mut self.section.runs;
        if let Some(known) = self.runs.get(id) {
            return Ok(Some(&mut runs[*known]));
        }
        let Some(stream) = self.material.sequencer.stream(id) else {
            if self.material.sequencer.is_gone(id) {
                return Ok(None);
            }
            let why = format!("run {id} has left memory before history has its events");
            return Err(io::Error::other(why));
        };
        self.runs.insert(id.clone(), runs.len());
        runs.push(RunPart {
            run: id.clone(),
            files: stream.spec.files.as_str().into(),
            names: Vec::new(),
            events: Vec::new(),
            record: None,
            entry: None,
        });
        Ok(runs.last_mut())
    }

    /// Adds the record of a run that ended in the section, and returns its index entry; `None` if the run was removed.
    fn end(&mut self, ended: &Ended) -> io::Result<Option<Entry>> {
        let mut spans = ended.stream.published().spans.clone();
        let objects = &self.material.objects;
        let Some(run) = self.run(&ended.run.id)? else {
            return Ok(None);
        };
        spans.extend(span(run));
        let stored = Stored {
            run: Arc::clone(&ended.run),
            head: ended.head,
            closed: ended.closed.clone(),
            spans,
        };
        let entry = Entry::new(&ended.run, &ended.closed, ended.lsn);
        run.entry = Some(serde_json::to_vec(&entry)?);
        run.record = Some(texts::write(&stored, objects)?);
        Ok(Some(entry))
    }
}

/// Returns the span of a run in a section; `None` if the section has no events of it.
pub(crate) fn span(run: &RunPart) -> Option<Span> {
    let (first, last) = (run.events.first()?, run.events.last()?);
    Some(Span {
        first: first.seq,
        lsn: last.lsn,
    })
}
