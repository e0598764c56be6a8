//! Runs that have changed, for the consumer that exports them to files.
//!
//! **Owns** one touch for each run that changed since the consumer last took them: its project, its position and the
//! kind of change; no lines. **Never** blocks the publisher. Beyond [`MAX_RUNS`] touches all are dropped, and the
//! consumer gets the range of positions in which they were recorded. **Order**: a touch is recorded when its event is
//! published, so that the events that the consumer reads afterwards include it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::history::{Removal, RemovedRun};
use rye_core::id::{Lsn, Name, RunId};

use crate::coalescing_queue::{CoalescingQueue, Taken};

/// Most touches that are stored.
const MAX_RUNS: usize = 65_536;

/// Kind of a change of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TouchKind {
    /// It has a new event.
    Moved,
    Rested,
    Ended,
    Removed,
}

/// A run that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Directory with the files of its project.
    pub files: Name,
    pub run: RunId,
    /// Position of its last event, or of a later commit without an event of it.
    pub lsn: Lsn,
    pub kind: TouchKind,
    /// Its item, if it was removed: its record no longer exists.
    pub item: Option<Name>,
}

impl Touch {
    /// Returns the touch of a run that was removed at `lsn`.
    pub(crate) fn of_removal(removed: &RemovedRun, lsn: Lsn) -> Self {
        let RemovedRun {
            run, files, item, ..
        } = removed;
        Self {
            files: Name::clone(files),
            run: run.clone(),
            lsn,
            kind: TouchKind::Removed,
            item: Some(Name::clone(item)),
        }
    }
}

/// Positions after `after`, up to `upto`, in which runs changed that are not reported one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Position before the first.
    pub after: Lsn,
    pub upto: Lsn,
}

/// Changes that are reported together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The runs that changed, each once.
    pub touches: Vec<Touch>,
    /// Range that the consumer has to read in history.
    pub missed: Option<Missed>,
    /// Position up to which everything is reported; 0 if there is nothing new.
    pub upto: Lsn,
    /// True if nothing will be reported any more.
    pub is_closed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Touches(CoalescingQueue<Content>);

#[derive(Debug, Default)]
struct Content {
    runs: HashMap<RunId, Touch>,
    projects: HashSet<Name>,
    missed: Option<Missed>,
    /// Position of the first touch that is stored.
    first: Lsn,
    upto: Lsn,
}

impl Touches {
    /// Records the changes of the commit at `lsn`: the runs, each with the directory of its project's files.
    pub(crate) fn record<'a>(
        &self,
        lsn: Lsn,
        moved: impl Iterator<Item = (&'a RunId, &'a str, TouchKind)> + Clone,
    ) {
        let rests = moved.clone().any(|(_, _, kind)| kind != TouchKind::Moved);
        let enter = |content: &mut Content| {
            for (run, files, kind) in moved {
                let files = content.files(files);
                content.enter(Touch {
                    files,
                    run: run.clone(),
                    lsn,
                    kind,
                    item: None,
                });
            }
            content.upto = lsn;
        };
        if rests {
            self.0.post(enter);
        } else {
            self.0.post_lazily(enter);
        }
    }

    /// Records the removals at `lsn`.
    pub(crate) fn remove(&self, lsn: Lsn, removal: &Removal) {
        self.0.post(|content| {
            for removed in &removal.runs {
                content.enter(Touch::of_removal(removed, lsn));
            }
            content.upto = lsn;
        });
    }

    /// Ends the reports after the stored touches.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Waits at most `patience` for touches, and takes them. Blocks.
    pub(crate) fn take(&self, patience: Duration) -> Reported {
        let Taken { value, closed } = self.0.take(Some(patience));
        Reported {
            touches: value.runs.into_values().collect(),
            missed: value.missed,
            upto: value.upto,
            is_closed: closed,
        }
    }
}

impl Content {
    fn files(&mut self, files: &str) -> Name {
        if let Some(known) = self.projects.get(files) {
            return Name::clone(known);
        }
        let files = Name::from(files);
        self.projects.insert(Name::clone(&files));
        files
    }

    fn enter(&mut self, touch: Touch) {
        let lsn = touch.lsn;
        if self.runs.is_empty() {
            self.first = lsn;
        }
        if let Some(known) = self.runs.get_mut(&touch.run) {
            let kind = known.kind.max(touch.kind);
            *known = Touch { kind, ..touch };
            return;
        }
        if self.runs.len() >= MAX_RUNS {
            self.forget(lsn);
            self.first = lsn;
        }
        self.runs.insert(touch.run.clone(), touch);
    }

    fn forget(&mut self, upto: Lsn) {
        let before = Lsn(self.first.0.saturating_sub(1));
        self.missed = Some(Missed {
            after: self.missed.map_or(before, |missed| missed.after),
            upto,
        });
        self.runs.clear();
        self.projects.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::coalescing_queue::LINGER;

    const WAIT: Duration = Duration::from_mins(1);

    fn record(touches: &Touches, lsn: u64, run: &str, kind: TouchKind) {
        let run = RunId::new(run).unwrap();
        touches.record(Lsn(lsn), [(&run, "/p/.ai", kind)].into_iter());
    }

    #[test]
    fn touches_of_one_run_merge_and_rest_is_reported_immediately() {
        let touches = Touches::default();
        record(&touches, 3, "a", TouchKind::Moved);
        record(&touches, 4, "a", TouchKind::Rested);
        record(&touches, 5, "a", TouchKind::Moved);
        let taken = touches.take(WAIT);
        let [touch] = &taken.touches[..] else {
            panic!("{taken:?}");
        };
        assert_eq!((touch.lsn, touch.kind), (Lsn(5), TouchKind::Rested));
        assert_eq!(
            (taken.upto, taken.missed, taken.is_closed),
            (Lsn(5), None, false)
        );
    }

    #[test]
    fn moves_are_delayed_and_close_ends_wait() {
        let touches = Touches::default();
        let begun = Instant::now();
        record(&touches, 1, "a", TouchKind::Moved);
        assert_eq!(touches.take(WAIT).touches.len(), 1);
        assert!(begun.elapsed() >= LINGER);
        record(&touches, 2, "a", TouchKind::Moved);
        touches.close();
        let last = touches.take(WAIT);
        assert_eq!((last.touches.len(), last.is_closed), (1, true));
    }

    #[test]
    fn too_many_touches_become_a_range() {
        let touches = Touches::default();
        let most = u64::try_from(MAX_RUNS).unwrap();
        for number in 0..=most {
            record(
                &touches,
                10 + number,
                &format!("r{number}"),
                TouchKind::Moved,
            );
        }
        let taken = touches.take(WAIT);
        let (after, upto) = (Lsn(9), Lsn(10 + most));
        assert_eq!(taken.missed, Some(Missed { after, upto }));
        assert_eq!(taken.touches.len(), 1);
        assert_eq!(taken.upto, Lsn(10 + most));
    }
}
