//! Runs of one project that have moved since their files were last written.
//!
//! **Never** holds lines: what a run did is read when its turn comes. Above [`MAX_RUNS`] runs all are forgotten, and the range in which
//! they moved is scanned instead, once it is in history. **Order**: by the time at which they are due: 25 ms after the last turn of the
//! project, at once after a rest, after a growing pause if they failed. A run stays in the queue until its files are written up to the
//! position that was known when its turn began.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, Name, RunId};
use tokio::sync::{mpsc, oneshot};

use super::common::Rebuilt;
use rye_journal::Touch;

/// Runs that are known one by one.
const MAX_RUNS: usize = 65_536;
/// Shortest time between two turns that nothing is in a hurry for: a turn opens the same files for one event as for a hundred.
const TURN_EVERY: Duration = Duration::from_millis(25);
/// Pause before a run that failed is tried again; it doubles each time.
const RETRY: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Queue {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    runs: HashMap<RunId, Dirty>,
    /// The runs that have no turn now, by the time at which they are due.
    order: BTreeMap<Place, RunId>,
    number: u64,
    /// The range in which runs moved that were forgotten.
    forgotten: Option<Range>,
    /// Everything after this position is being scanned.
    scanning: Option<Lsn>,
    rebuilds: Vec<oneshot::Sender<Rebuilt>>,
    /// True while a rebuild is in progress.
    is_rebuilding: bool,
    last_turn: Option<Instant>,
    /// Beginning of the turn in progress.
    turn: Option<Instant>,
    closing: bool,
}

/// When a run is due, and a number that tells runs of one time apart.
type Place = (Instant, u64);

#[derive(Debug)]
struct Dirty {
    /// The first position that is not written.
    since: Lsn,
    /// The last one.
    upto: Lsn,
    /// `None` while it has its turn.
    place: Option<Place>,
    failures: u32,
    /// Its item, if it was removed.
    removed: Option<Name>,
    /// Dropped when it is done.
    waiting: Vec<Waiting>,
}

/// Kept as long as something of a removal is to be done: who waits for it hears that the last one was dropped.
pub(super) type Waiting = mpsc::Sender<Infallible>;

/// Positions after `after`, up to `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) after: Lsn,
    pub(super) upto: Lsn,
}

/// Why [`Queue::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Something is due.
    Work,
    /// Nothing is to be done.
    Idle,
    /// Nothing is to be done any more, except what failed.
    Closed,
}

/// A run that has its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) run: RunId,
    upto: Lsn,
    /// Its item, if it was removed.
    pub(super) removed: Option<Name>,
}

impl Turn {
    /// The turn of a run that a scan has met.
    pub(super) fn of(touch: &Touch) -> Self {
        Self {
            run: touch.run.clone(),
            upto: touch.lsn,
            removed: touch.item.clone(),
        }
    }
}

impl Queue {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters that `run` moved at `lsn`; `is_urgent` if it came to rest.
    pub(super) fn mark(&self, run: &RunId, lsn: Lsn, is_urgent: bool) {
        let now = Instant::now();
        let mut content = self.content();
        let paced = content.last_turn.map_or(now, |last| last + TURN_EVERY);
        let due = if is_urgent { now } else { paced.max(now) };
        content.enter(run, lsn, due);
        if content.runs.len() > MAX_RUNS {
            content.forget();
        }
        drop(content);
        self.changed.notify_one();
    }

    /// Enters that `run` of `item` was removed at `lsn`.
    pub(super) fn remove(&self, run: &RunId, item: &Name, lsn: Lsn, waiting: Option<Waiting>) {
        let now = Instant::now();
        let mut content = self.content();
        content.enter(run, lsn, now);
        if let Some(dirty) = content.runs.get_mut(run) {
            dirty.removed = Some(Name::clone(item));
            dirty.waiting.extend(waiting);
        }
        drop(content);
        self.changed.notify_one();
    }

    /// Enters that the files of all runs of the project are to be compared. The answer goes to `reply`.
    pub(super) fn rebuild(&self, reply: oneshot::Sender<Rebuilt>) {
        self.content().rebuilds.push(reply);
        self.changed.notify_one();
    }

    /// Lets what waits be done at once, then [`Queue::wait`] return [`Wake::Closed`].
    pub(super) fn close(&self) {
        self.content().closing = true;
        self.changed.notify_one();
    }

    /// True if there are no turns after those of what waits now.
    pub(super) fn is_closing(&self) -> bool {
        self.content().closing
    }

    /// Waits until something is due, at most `idle` if there is nothing at all. Blocks.
    pub(super) fn wait(&self, idle: Duration, sealed: impl Fn() -> Lsn) -> Wake {
        let end = Instant::now() + idle;
        let mut content = self.content();
        loop {
            let now = Instant::now();
            let due = content.due(now, sealed());
            if due.is_some_and(|due| due <= now) {
                return Wake::Work;
            }
            if content.closing {
                return Wake::Closed;
            }
            if content.is_empty() && now >= end {
                return Wake::Idle;
            }
            // What was forgotten becomes due when it is sealed, which nothing announces.
            let until = due.unwrap_or(end).min(now + idle);
            let left = until.saturating_duration_since(now);
            let left = left.max(Duration::from_millis(1));
            let waited = self.changed.wait_timeout(content, left);
            content = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True if there is nothing to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.content().is_empty()
    }

    /// Enters that a turn of the project begins.
    pub(super) fn begin_turn(&self) {
        let now = Instant::now();
        let mut content = self.content();
        content.turn = Some(now);
        content.last_turn = Some(now);
    }

    /// Enters that it has ended.
    pub(super) fn end_turn(&self) {
        self.content().turn = None;
    }

    /// How long the turn in progress has taken.
    pub(super) fn turn_time(&self) -> Option<Duration> {
        self.content().turn.map(|begun| begun.elapsed())
    }

    /// Gives the run that is due first its turn.
    pub(super) fn next(&self) -> Option<Turn> {
        let mut content = self.content();
        let content = &mut *content;
        let first = content.order.first_entry()?;
        let (due, _) = *first.key();
        if due > Instant::now() && !content.closing {
            return None;
        }
        let run = first.remove();
        let dirty = content.runs.get_mut(&run)?;
        dirty.place = None;
        Some(Turn {
            upto: dirty.upto,
            removed: dirty.removed.clone(),
            run,
        })
    }

    /// Enters that the files of a run are written.
    pub(super) fn done(&self, turn: &Turn) {
        let mut content = self.content();
        let Some(dirty) = content.runs.get_mut(&turn.run) else {
            return;
        };
        dirty.failures = 0;
        if dirty.upto > turn.upto || dirty.removed != turn.removed {
            dirty.since = turn.upto.next();
            content.place(&turn.run, Instant::now());
        } else {
            content.runs.remove(&turn.run);
        }
    }

    /// Gives a run another turn at `due`, or earlier if it moves.
    pub(super) fn later(&self, turn: &Turn, due: Instant) {
        let mut content = self.content();
        if let Some(dirty) = content.runs.get_mut(&turn.run) {
            let moved = dirty.upto > turn.upto;
            dirty.failures = 0;
            let due = if moved {
                due.min(Instant::now() + TURN_EVERY)
            } else {
                due
            };
            content.place(&turn.run, due);
        }
    }

    /// Gives a run that failed another turn after a pause. A run of a scan that is not in the queue is entered.
    pub(super) fn failed(&self, turn: &Turn) {
        let mut content = self.content();
        let known = content.runs.entry(turn.run.clone());
        let dirty = known.or_insert(Dirty {
            since: turn.upto,
            upto: turn.upto,
            place: None,
            failures: 0,
            removed: turn.removed.clone(),
            waiting: Vec::new(),
        });
        let pause = RETRY
            .saturating_mul(1 << dirty.failures.min(16))
            .min(LONGEST_RETRY);
        dirty.failures = dirty.failures.saturating_add(1);
        let due = Instant::now() + pause;
        if !content.closing {
            content.place(&turn.run, due);
        }
    }

    /// The range to be scanned, if it is in history, which goes up to `sealed`. From now on the scan counts as in progress.
    pub(super) fn begin_scan(&self, sealed: Lsn) -> Option<Range> {
        let mut content = self.content();
        if content.scanning.is_some() {
            return None;
        }
        let range = content.forgotten.take_if(|range| range.upto <= sealed)?;
        content.scanning = Some(range.after);
        Some(range)
    }

    /// Enters that the scan in progress has ended.
    pub(super) fn scanned(&self) {
        self.content().scanning = None;
    }

    /// The callers that wait for a rebuild. If there are any, it counts as in progress from now on.
    pub(super) fn take_rebuilds(&self) -> Vec<oneshot::Sender<Rebuilt>> {
        let mut content = self.content();
        if !content.is_rebuilding {
            content.is_rebuilding = !content.rebuilds.is_empty();
            return std::mem::take(&mut content.rebuilds);
        }
        Vec::new()
    }

    /// Enters that the rebuild in progress has ended.
    pub(super) fn rebuilt(&self) {
        self.content().is_rebuilding = false;
    }

    /// Position up to which the files of the project are written; `None` if all are.
    pub(super) fn behind(&self) -> Option<Lsn> {
        let content = self.content();
        let before = |lsn: Lsn| Lsn(lsn.0.saturating_sub(1));
        let runs = content.runs.values().map(|dirty| before(dirty.since));
        let forgotten = content.forgotten.map(|range| range.after);
        runs.chain(forgotten).chain(content.scanning).min()
    }
}

impl Content {
    fn is_empty(&self) -> bool {
        let no_scan = self.forgotten.is_none() && self.scanning.is_none();
        let no_rebuild = self.rebuilds.is_empty() && !self.is_rebuilding;
        self.runs.is_empty() && no_scan && no_rebuild
    }

    /// When something is due; `now` if it is at once.
    fn due(&self, now: Instant, sealed: Lsn) -> Option<Instant> {
        let run = self.order.keys().next().map(|(due, _)| *due);
        if self.closing {
            return run.map(|_| now);
        }
        let is_sealed = self.forgotten.is_some_and(|range| range.upto <= sealed);
        let scan = self.scanning.is_some() || is_sealed;
        let rebuild = self.is_rebuilding || !self.rebuilds.is_empty();
        (scan || rebuild)
            .then_some(now)
            .into_iter()
            .chain(run)
            .min()
    }

    fn enter(&mut self, run: &RunId, lsn: Lsn, due: Instant) {
        let Some(dirty) = self.runs.get_mut(run) else {
            let dirty = Dirty {
                since: lsn,
                upto: lsn,
                place: None,
                failures: 0,
                removed: None,
                waiting: Vec::new(),
            };
            self.runs.insert(run.clone(), dirty);
            self.place(run, due);
            return;
        };
        dirty.since = dirty.since.min(lsn);
        dirty.upto = dirty.upto.max(lsn);
        // One that failed keeps its pause, one that has its turn gets another one afterwards.
        let is_earlier = dirty.place.is_some_and(|(known, _)| due < known);
        if is_earlier && dirty.failures == 0 {
            self.place(run, due);
        }
    }

    fn place(&mut self, run: &RunId, due: Instant) {
        let Some(dirty) = self.runs.get_mut(run) else {
            return;
        };
        self.number += 1;
        let place = (due, self.number);
        if let Some(earlier) = dirty.place.replace(place) {
            self.order.remove(&earlier);
        }
        self.order.insert(place, run.clone());
    }

    fn forget(&mut self) {
        let before = |lsn: Lsn| Lsn(lsn.0.saturating_sub(1));
        let earlier = self.forgotten;
        let runs = self.runs.values();
        let after = runs.clone().map(|dirty| before(dirty.since)).min();
        let upto = runs.map(|dirty| dirty.upto).max();
        let after = after
            .into_iter()
            .chain(earlier.map(|range| range.after))
            .min();
        let upto = upto
            .into_iter()
            .chain(earlier.map(|range| range.upto))
            .max();
        self.forgotten = after.zip(upto).map(|(after, upto)| Range { after, upto });
        self.runs.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RunId {
        RunId::new(text).unwrap()
    }

    fn never() -> Lsn {
        Lsn(0)
    }

    #[test]
    fn run_that_moves_during_its_turn_gets_another_one() {
        let queue = Queue::default();
        queue.mark(&id("a"), Lsn(3), true);
        let turn = queue.next().unwrap();
        assert_eq!(queue.next(), None);
        queue.mark(&id("a"), Lsn(5), true);
        assert_eq!(queue.behind(), Some(Lsn(2)));
        queue.done(&turn);
        assert_eq!(queue.behind(), Some(Lsn(3)));
        let turn = queue.next().unwrap();
        queue.done(&turn);
        assert_eq!((queue.behind(), queue.is_empty()), (None, true));
    }

    #[test]
    fn rest_is_due_at_once_and_a_move_after_the_pace_of_the_project() {
        let queue = Queue::default();
        queue.begin_turn();
        queue.mark(&id("moved"), Lsn(1), false);
        assert_eq!(queue.next(), None);
        queue.mark(&id("rested"), Lsn(2), true);
        assert_eq!(queue.next().unwrap().run, id("rested"));
        assert_eq!(queue.next(), None);
        queue.mark(&id("moved"), Lsn(3), true);
        assert_eq!(queue.next().unwrap().run, id("moved"));
    }

    #[test]
    fn run_that_failed_keeps_its_pause_whatever_comes_and_keeps_the_mark() {
        let queue = Queue::default();
        queue.mark(&id("a"), Lsn(4), true);
        let turn = queue.next().unwrap();
        queue.failed(&turn);
        queue.mark(&id("a"), Lsn(6), true);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.behind(), Some(Lsn(3)));
        let begun = Instant::now();
        assert_eq!(queue.wait(Duration::from_mins(1), never), Wake::Work);
        assert!(begun.elapsed() >= RETRY / 2);
        assert!(queue.next().is_some());
    }

    #[test]
    fn pause_after_a_failure_doubles_up_to_its_bound() {
        let queue = Queue::default();
        queue.mark(&id("a"), Lsn(4), true);
        let turn = queue.next().unwrap();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            queue.failed(&turn);
            let (due, _) = *queue.content().order.keys().next().unwrap();
            let pause = due.saturating_duration_since(Instant::now());
            assert!(pause > last || pause + RETRY > LONGEST_RETRY, "{pause:?}");
            assert!(pause <= LONGEST_RETRY);
            last = pause;
        }
    }

    #[test]
    fn too_many_runs_are_forgotten_and_their_range_is_scanned_once_it_is_sealed() {
        let queue = Queue::default();
        for number in 0..=MAX_RUNS {
            let lsn = Lsn(u64::try_from(number).unwrap() + 10);
            queue.mark(&id(&format!("r{number}")), lsn, true);
        }
        assert_eq!(queue.next(), None);
        let upto = Lsn(u64::try_from(MAX_RUNS).unwrap() + 10);
        assert_eq!(queue.behind(), Some(Lsn(9)));
        assert_eq!(queue.begin_scan(Lsn(upto.0 - 1)), None);
        assert_eq!(queue.wait(Duration::from_mins(1), || upto), Wake::Work);
        let after = Lsn(9);
        assert_eq!(queue.begin_scan(upto), Some(Range { after, upto }));
        assert_eq!(queue.behind(), Some(after));
        queue.scanned();
        assert!(queue.is_empty());
    }

    #[test]
    fn closed_queue_hands_out_what_waits_and_not_what_failed() {
        let queue = Queue::default();
        queue.mark(&id("failing"), Lsn(1), true);
        let failing = queue.next().unwrap();
        queue.begin_turn();
        queue.mark(&id("waits"), Lsn(2), false);
        queue.close();
        let idle = Duration::from_mins(1);
        assert_eq!(queue.wait(idle, never), Wake::Work);
        let turn = queue.next().unwrap();
        assert_eq!(turn.run, id("waits"));
        queue.done(&turn);
        queue.failed(&failing);
        assert_eq!(queue.wait(idle, never), Wake::Closed);
        assert_eq!(queue.behind(), Some(Lsn(0)));
    }
}
