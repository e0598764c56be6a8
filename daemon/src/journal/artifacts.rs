//! The port to what is made of transcripts and records for people and auditors, which stands above the journal.
//!
//! **Order.** A lane says what there is by a [`Note`] when the transcript is written that far, and asks for files of records
//! ([`ArtifactLane::record`]) when what they show is durable. **Never** does a lane of one project wait for that of another.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use rye_core::clock::Timestamp;
use rye_core::id::{RunId, Seq};
use rye_core::ledger::Cost;
use rye_core::model::{Event, Run, Spec};
use rye_core::money::Usd;
use rye_core::transcript::{Cursor, Fault, Head};

use super::transcript_file::existing_transcript;
use super::{Line, Shared};

/// Bytes of a transcript that are read in one go; more than one line.
const PIECE_BYTES: u64 = 512 << 10;
/// Bytes of payloads that lie elsewhere, after which that is enough in one go.
const MOST_SPILLED: usize = 4 << 20;

/// What is made of the runs of all projects.
pub trait Artifacts: fmt::Debug + Send + Sync {
    /// For the runs whose files lie below `files`.
    fn lane(&self, files: &str, transcripts: Transcripts) -> Box<dyn ArtifactLane>;
}

/// What files show of the money of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Money {
    /// What its chain and all below it have cost.
    pub cost: Cost,
    /// What its account may spend; `None` without a limit of its own.
    pub limit: Option<Usd>,
}

/// What is made of the runs of one project. All of it blocks.
pub trait ArtifactLane: Send {
    /// Writes the files that show the record of a run as it is now, and its money.
    fn record(&mut self, run: &Run, money: &Money) -> io::Result<()>;

    /// Takes in that there is more to be made.
    fn add(&mut self, note: Note);

    /// Does a piece of it, which takes some milliseconds.
    fn work(&mut self);

    /// When there is more to do, if there is.
    fn pause(&self) -> Option<Duration>;

    /// How many runs were suspended or ended, and are to be finished; without those that are tried again.
    fn unfinished(&self) -> usize;

    /// Finishes them, and notifies after each how many are left; whether all are finished.
    fn finish(&mut self, left: &dyn Fn(usize)) -> bool;

    /// Whether there are files that a power cut would take.
    fn is_unsynced(&self) -> bool;

    /// The file system was synced.
    fn synced(&mut self);

    /// Leaves what could not be written as it is: the log is not kept for it any more.
    fn give_up(&mut self);
}

/// What is to be made of a run whose transcript is written.
#[derive(Debug)]
pub struct Note {
    /// The run.
    pub run: RunId,
    /// Everything that is fixed about it.
    pub spec: Arc<Spec>,
    /// How far the transcript goes.
    pub upto: Head,
    /// Whether its page is to be rendered.
    pub page: bool,
    /// The record, if the run is suspended or ended.
    pub settled: Option<Arc<Run>>,
    /// Whether the transcript is not written any more.
    pub given_up: bool,
}

/// Why a transcript cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// May pass.
    #[error("its files cannot be read")]
    Project(#[source] io::Error),
    /// It is not what was written.
    #[error("its transcript cannot be used")]
    Transcript(#[source] Box<dyn Error + Send + Sync>),
}

impl From<Fault> for Unusable {
    fn from(fault: Fault) -> Self {
        if let Fault::Read(source) = fault {
            return Self::Project(source);
        }
        Self::Transcript(Box::new(fault))
    }
}

/// The events of one run, read from its transcript and checked on the way.
#[derive(Debug, Default)]
pub struct Reading(Cursor);

impl Reading {
    /// Whether it has come to the end of what a note names.
    pub const fn is_at(&self, upto: &Head) -> bool {
        self.0.at >= upto.bytes
    }
}

/// The transcripts of a project, to be read.
#[derive(Debug, Clone)]
pub struct Transcripts(Arc<Shared>);

impl Transcripts {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Hands the next events of what `note` names to `take`, one by one: each may be as large as a run may be, and a few of them
    /// are enough then.
    pub fn read(
        &self,
        note: &Note,
        reading: &mut Reading,
        mut take: impl FnMut(Seq, Timestamp, &Event),
    ) -> Result<(), Unusable> {
        let (run, Reading(cursor)) = (&note.run, reading);
        let file = existing_transcript(&note.spec.files, run).map_err(Unusable::Project)?;
        let from = cursor.at;
        let length = PIECE_BYTES.min(note.upto.bytes - from);
        let length = usize::try_from(length).expect("a piece fits the memory");
        let mut bytes = vec![0; length];
        match file.read_exact_at(&mut bytes, from) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Fault::Short(from).into());
            }
            read => read.map_err(Unusable::Project)?,
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return Err(Fault::Broken(from).into());
        };
        let mut spilled = 0;
        for text in bytes[..end].split(|byte| *byte == b'\n') {
            let Some(line) = Line::of_transcript(cursor.pass(run, text)?) else {
                continue;
            };
            let event = line
                .event(&self.0.objects)
                .map_err(|source| Unusable::Transcript(Box::new(source)))?;
            take(line.seq, line.timestamp, &event);
            spilled += line.spilled_bytes().unwrap_or_default();
            if spilled > MOST_SPILLED {
                break;
            }
        }
        if cursor.at >= note.upto.bytes {
            cursor.meet(&note.upto)?;
        }
        Ok(())
    }
}
