//! Drafts: a commit applied to copies of the runs that it touches, without the lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, IndexedFacts, RefusalReason, Refused, key};
use crate::clock::Timestamp;
use crate::id::{RunId, Seq};
use crate::model::{Run, Spec, Status};

/// Records of the runs that a commit changes, at one moment.
#[derive(Debug)]
pub struct Base {
    pub(super) runs: HashMap<RunId, Arc<Run>>,
}

/// A commit applied to copies.
#[derive(Debug)]
pub struct Draft {
    pub(super) at: Timestamp,
    pub(super) changes: Vec<Change>,
    pub(super) facts: Vec<Fact>,
    pub(super) runs: Vec<Drafted>,
}

/// One run of a draft.
#[derive(Debug)]
pub(super) struct Drafted {
    /// Position and properties before the draft; `None` if the draft creates the run.
    pub(super) base: Option<(Seq, IndexedFacts)>,
    pub(super) record: Arc<Run>,
    /// Index of the first change of this run.
    pub(super) first: usize,
}

/// Result of one change of a commit.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Index of the run among the runs of the commit, in order of their first change.
    pub run: usize,
    /// Position of the event in the run.
    pub seq: Seq,
    /// Name of the event in a run of this kind.
    pub name: &'static str,
    /// Record directly after the event, if the event suspended or ended the run.
    pub settled: Option<Arc<Run>>,
}

impl Fact {
    /// Returns the record directly after the event, if the event ended the run.
    pub(super) fn ended(&self) -> Option<&Run> {
        let settled = self.settled.as_deref();
        settled.filter(|run| run.status().is_terminal())
    }
}

impl Base {
    /// Applies `changes`, which happen at the time `at`, to copies of the runs.
    pub fn draft(self, at: Timestamp, changes: Vec<Change>) -> Result<Draft, Refused> {
        let mut drafting = Drafting {
            at,
            base: self.runs,
            runs: Vec::new(),
            indexes: HashMap::new(),
            keys: HashMap::new(),
        };
        let mut facts = Vec::with_capacity(changes.len());
        for (number, change) in changes.iter().enumerate() {
            let fact = drafting.take(number, change).map_err(|why| Refused {
                change: number,
                run: change.run.clone(),
                why,
            });
            facts.push(fact?);
        }
        Ok(Draft {
            at,
            changes,
            facts,
            runs: drafting.runs,
        })
    }
}

/// A draft under construction.
struct Drafting {
    at: Timestamp,
    /// Runs that no change has named yet.
    base: HashMap<RunId, Arc<Run>>,
    runs: Vec<Drafted>,
    /// Index in `runs` by id.
    indexes: HashMap<RunId, usize>,
    /// Start keys of runs that the draft creates.
    keys: HashMap<String, RunId>,
}

impl Drafting {
    fn take(&mut self, number: usize, change: &Change) -> Result<Fact, RefusalReason> {
        let place = match self.indexes.get(&change.run) {
            Some(place) => *place,
            None => self.begin(number, change)?,
        };
        let drafted = &mut self.runs[place];
        let mut settled = None;
        if drafted.first != number || drafted.base.is_some() {
            if change.created().is_some() {
                return Err(RefusalReason::Exists);
            }
            let before = drafted.record.status();
            Arc::make_mut(&mut drafted.record)
                .apply(self.at, &change.event)
                .map_err(RefusalReason::Illegal)?;
            let after = drafted.record.status();
            let rests = after == Status::Suspended || after.is_terminal();
            settled = (before != after && rests).then(|| Arc::clone(&drafted.record));
        }
        Ok(Fact {
            run: place,
            seq: drafted.record.seq,
            name: change.event.name_in(drafted.record.spec.kind()),
            settled,
        })
    }

    /// Adds the run of `change`, the first change that names it.
    fn begin(&mut self, number: usize, change: &Change) -> Result<usize, RefusalReason> {
        let drafted = match (self.base.remove(&change.run), change.created()) {
            (Some(record), _) => Drafted {
                base: Some((record.seq, IndexedFacts::of(&record))),
                record,
                first: number,
            },
            (None, Some(spec)) => {
                if let Some(key) = key(spec)
                    && let Some(taken) = self.keys.insert(key, change.run.clone())
                {
                    return Err(RefusalReason::KeyTaken(taken));
                }
                if let Some(most) = self.used_up(spec) {
                    return Err(RefusalReason::SpawnsUsedUp(most));
                }
                let run = Run::create(change.run.clone(), self.at, Arc::clone(spec));
                Drafted {
                    base: None,
                    record: Arc::new(run),
                    first: number,
                }
            }
            (None, None) => return Err(RefusalReason::NotLive),
        };
        let place = self.runs.len();
        self.indexes.insert(change.run.clone(), place);
        self.runs.push(drafted);
        Ok(place)
    }
}

impl Drafting {
    /// Returns the limit of child runs of the parent, if this draft exceeds it. The change that announces a child run
    /// precedes the one that creates it, so the count includes it.
    fn used_up(&self, spec: &Spec) -> Option<u32> {
        let place = self.indexes.get(spec.parent.as_ref()?)?;
        let parent = &self.runs[*place].record;
        let most = parent.below.spawns?;
        (parent.spawn_count > most).then_some(most)
    }
}

impl Draft {
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the changes with their facts.
    pub fn facts(&self) -> impl ExactSizeIterator<Item = (&Change, &Fact)> {
        self.changes.iter().zip(&self.facts)
    }

    /// Returns the changes, to draft them again.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}
