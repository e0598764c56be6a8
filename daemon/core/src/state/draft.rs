//! Drafts: a commit applied to copies of the runs it touches, outside the lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, Refused, Standing, Why, key};
use crate::clock::Timestamp;
use crate::id::{RunId, Seq};
use crate::model::{Run, Spec, Status};

/// The runs that a commit is to change, as they stood at one moment.
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
    /// Where it stood before; `None` if the draft creates it.
    pub(super) base: Option<(Seq, Standing)>,
    pub(super) record: Arc<Run>,
    /// The first change that names it.
    pub(super) first: usize,
}

/// What one change of a commit led to.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Which of the runs of the commit, in the order in which it first names them.
    pub run: usize,
    /// The event's position in the run.
    pub seq: Seq,
    /// The record right after the event, if the run was suspended or ended by it.
    pub settled: Option<Arc<Run>>,
}

impl Fact {
    /// The record right after the event, if the run was ended by it.
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
            places: HashMap::new(),
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

/// A draft as it grows.
struct Drafting {
    at: Timestamp,
    /// Runs that no change has named yet.
    base: HashMap<RunId, Arc<Run>>,
    runs: Vec<Drafted>,
    /// Where each of `runs` stands.
    places: HashMap<RunId, usize>,
    /// Start keys of runs that the draft creates.
    keys: HashMap<String, RunId>,
}

impl Drafting {
    fn take(&mut self, number: usize, change: &Change) -> Result<Fact, Why> {
        let place = match self.places.get(&change.run) {
            Some(place) => *place,
            None => self.begin(number, change)?,
        };
        let drafted = &mut self.runs[place];
        let mut settled = None;
        if drafted.first != number || drafted.base.is_some() {
            if change.created().is_some() {
                return Err(Why::Exists);
            }
            let before = drafted.record.status();
            Arc::make_mut(&mut drafted.record)
                .apply(self.at, &change.event)
                .map_err(Why::Illegal)?;
            let after = drafted.record.status();
            let rests = after == Status::Suspended || after.is_terminal();
            settled = (before != after && rests).then(|| Arc::clone(&drafted.record));
        }
        Ok(Fact {
            run: place,
            seq: drafted.record.seq,
            settled,
        })
    }

    /// Begins with the run that `change` is the first to name.
    fn begin(&mut self, number: usize, change: &Change) -> Result<usize, Why> {
        let drafted = match (self.base.remove(&change.run), change.created()) {
            (Some(record), _) => Drafted {
                base: Some((record.seq, Standing::of(&record))),
                record,
                first: number,
            },
            (None, Some(spec)) => {
                if let Some(key) = key(spec)
                    && let Some(taken) = self.keys.insert(key, change.run.clone())
                {
                    return Err(Why::KeyTaken(taken));
                }
                if let Some(most) = self.used_up(spec) {
                    return Err(Why::SpawnsUsedUp(most));
                }
                let run = Run::create(change.run.clone(), self.at, Arc::clone(spec));
                Drafted {
                    base: None,
                    record: Arc::new(run),
                    first: number,
                }
            }
            (None, None) => return Err(Why::NotLive),
        };
        let place = self.runs.len();
        self.places.insert(change.run.clone(), place);
        self.runs.push(drafted);
        Ok(place)
    }
}

impl Drafting {
    /// How many child runs the run that asks for `spec` may start, if those are more by now. The change that announces the child run
    /// stands before the one that creates it.
    fn used_up(&self, spec: &Spec) -> Option<u32> {
        let place = self.places.get(spec.parent.as_ref()?)?;
        let parent = &self.runs[*place].record;
        let most = parent.below.spawns?;
        (parent.spawn_count > most).then_some(most)
    }
}

impl Draft {
    /// When it happens.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The changes with what each would come to.
    pub fn facts(&self) -> impl ExactSizeIterator<Item = (&Change, &Fact)> {
        self.changes.iter().zip(&self.facts)
    }

    /// The changes, to be drafted again.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}
