//! Queue of the runs of one project whose files are out of date.
//!
//! **Never** holds lines: the events of a run are read during its turn. Above [`MAX_RUNS`] runs the queue is cleared,
//! and the range of their changes is scanned instead once it is in history. **Order**: by due time. A run is due 25 ms
//! after the last turn of the project, at once when it is suspended or ended, and after a growing pause when its export
//! failed. A run stays in the queue until its files are written up to the position that was known when its turn began.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rye_core::id::{Lsn, Name, RunId};
use tokio::sync::{mpsc, oneshot};

use super::common::Rebuilt;
use rye_journal::Touch;

/// Maximum number of runs in the queue.
const MAX_RUNS: usize = 65_536;
/// Minimum time between two turns without urgent work: a turn opens the same files for one event as for a hundred.
const TURN_EVERY: Duration = Duration::from_millis(25);
/// Pause before the first retry of a failed run; it doubles each time.
const RETRY: Duration = Duration::from_secs(1);
/// Upper bound of this pause.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Queue {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    runs: HashMap<RunId, Dirty>,
    /// Runs without a turn in progress, by due time.
    order: BTreeMap<DueKey, RunId>,
    number: u64,
    /// Range in which cleared runs changed.
    forgotten: Option<Range>,
    /// All positions after this one are being scanned.
    scanning: Option<Lsn>,
    rebuilds: Vec<oneshot::Sender<Rebuilt>>,
    /// True while a rebuild is in progress.
    is_rebuilding: bool,
    last_turn: Option<Instant>,
    /// Start of the turn in progress.
    turn: Option<Instant>,
    closing: bool,
}

/// Due time of a run, and a number that makes the key unique.
type DueKey = (Instant, u64);

#[derive(Debug)]
struct Dirty {
    /// First position that is not written.
    since: Lsn,
    /// Last position that is not written.
    upto: Lsn,
    /// `None` during its turn.
    key: Option<DueKey>,
    failures: u32,
    /// Item of the run, if the run was removed.
    removed: Option<Name>,
    /// Dropped when the run is done.
    waiting: Vec<Waiting>,
}

/// Held while a removal is incomplete; its waiter is woken when the last clone is dropped.
pub(super) type Waiting = mpsc::Sender<Infallible>;

/// Positions after `after`, up to `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) after: Lsn,
    pub(super) upto: Lsn,
}

/// Reason why [`Queue::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Work is due.
    Work,
    /// The queue is empty.
    Idle,
    /// The queue is closed, and only failed runs remain.
    Closed,
}

/// A run whose turn is in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) run: RunId,
    upto: Lsn,
    /// Item of the run, if the run was removed.
    pub(super) removed: Option<Name>,
}

impl Turn {
    /// Turn of a run that a scan found.
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

    /// Records that `run` changed at `lsn`; `is_urgent` if it is suspended or ended.
    pub(super) fn enqueue(&self, run: &RunId, lsn: Lsn, is_urgent: bool) {
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

    /// Records that `run` of `item` was removed at `lsn`.
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

    /// Requests a comparison of the files of all runs of the project. The result goes to `reply`.
    pub(super) fn rebuild(&self, reply: oneshot::Sender<Rebuilt>) {
        self.content().rebuilds.push(reply);
        self.changed.notify_one();
    }

    /// Makes all queued runs due at once; then [`Queue::wait`] returns [`Wake::Closed`].
    pub(super) fn close(&self) {
        self.content().closing = true;
        self.changed.notify_one();
    }

    /// True if no turns follow those of the queued runs.
    pub(super) fn is_closing(&self) -> bool {
        self.content().closing
    }

    /// Waits until work is due; at most `idle` if the queue is empty. Blocks.
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
            // A cleared range becomes due when it is sealed, which is not announced.
            let until = due.unwrap_or(end).min(now + idle);
            let left = until.saturating_duration_since(now);
            let left = left.max(Duration::from_millis(1));
            let waited = self.changed.wait_timeout(content, left);
            content = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True if there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.content().is_empty()
    }

    /// Records the start of a turn of the project.
    pub(super) fn begin_turn(&self) {
        let now = Instant::now();
        let mut content = self.content();
        content.turn = Some(now);
        content.last_turn = Some(now);
    }

    /// Records its end.
    pub(super) fn end_turn(&self) {
        self.content().turn = None;
    }

    /// Duration of the turn in progress.
    pub(super) fn turn_time(&self) -> Option<Duration> {
        self.content().turn.map(|begun| begun.elapsed())
    }

    /// Starts the turn of the run that is due first.
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
        dirty.key = None;
        Some(Turn {
            upto: dirty.upto,
            removed: dirty.removed.clone(),
            run,
        })
    }

    /// Records that the files of a run are written.
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

    /// Queues a run again for `due`, or earlier if it changes.
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

    /// Queues a failed run again after a pause. Adds a run of a scan that is not in the queue.
    pub(super) fn failed(&self, turn: &Turn) {
        let mut content = self.content();
        let known = content.runs.entry(turn.run.clone());
        let dirty = known.or_insert(Dirty {
            since: turn.upto,
            upto: turn.upto,
            key: None,
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

    /// Starts the scan of the cleared range, if it is in history, which ends at `sealed`.
    pub(super) fn begin_scan(&self, sealed: Lsn) -> Option<Range> {
        let mut content = self.content();
        if content.scanning.is_some() {
            return None;
        }
        let range = content.forgotten.take_if(|range| range.upto <= sealed)?;
        content.scanning = Some(range.after);
        Some(range)
    }

    /// Records the end of the scan in progress.
    pub(super) fn scanned(&self) {
        self.content().scanning = None;
    }

    /// Callers that wait for a rebuild. If there are any, this starts one.
    pub(super) fn take_rebuilds(&self) -> Vec<oneshot::Sender<Rebuilt>> {
        let mut content = self.content();
        if !content.is_rebuilding {
            content.is_rebuilding = !content.rebuilds.is_empty();
            return std::mem::take(&mut content.rebuilds);
        }
        Vec::new()
    }

    /// Records the end of the rebuild in progress.
    pub(super) fn rebuilt(&self) {
        self.content().is_rebuilding = false;
    }

    /// Position up to which the files of the project are written; `None` if all are.
    pub(super) fn written_up_to(&self) -> Option<Lsn> {
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

    /// Time at which work is due next; `now` if it is due already.
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
                key: None,
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
        // A failed run keeps its pause. A run whose turn is in progress gets another turn afterwards.
        let is_earlier = dirty.key.is_some_and(|(known, _)| due < known);
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
        if let Some(earlier) = dirty.key.replace(place) {
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
    fn run_touched_during_turn_is_queued_again() {
        let queue = Queue::default();
        queue.enqueue(&id("a"), Lsn(3), true);
        let turn = queue.next().unwrap();
        assert_eq!(queue.next(), None);
        queue.enqueue(&id("a"), Lsn(5), true);
        assert_eq!(queue.written_up_to(), Some(Lsn(2)));
        queue.done(&turn);
        assert_eq!(queue.written_up_to(), Some(Lsn(3)));
        let turn = queue.next().unwrap();
        queue.done(&turn);
        assert_eq!((queue.written_up_to(), queue.is_empty()), (None, true));
    }

    #[test]
    fn urgent_touch_is_due_now_and_others_after_interval() {
        let queue = Queue::default();
        queue.begin_turn();
        queue.enqueue(&id("moved"), Lsn(1), false);
        assert_eq!(queue.next(), None);
        queue.enqueue(&id("rested"), Lsn(2), true);
        assert_eq!(queue.next().unwrap().run, id("rested"));
        assert_eq!(queue.next(), None);
        queue.enqueue(&id("moved"), Lsn(3), true);
        assert_eq!(queue.next().unwrap().run, id("moved"));
    }

    #[test]
    fn failed_run_keeps_backoff_and_holds_checkpoint() {
        let queue = Queue::default();
        queue.enqueue(&id("a"), Lsn(4), true);
        let turn = queue.next().unwrap();
        queue.failed(&turn);
        queue.enqueue(&id("a"), Lsn(6), true);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.written_up_to(), Some(Lsn(3)));
        let begun = Instant::now();
        assert_eq!(queue.wait(Duration::from_mins(1), never), Wake::Work);
        assert!(begun.elapsed() >= RETRY / 2);
        assert!(queue.next().is_some());
    }

    #[test]
    fn failure_backoff_doubles_up_to_maximum() {
        let queue = Queue::default();
        queue.enqueue(&id("a"), Lsn(4), true);
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
    fn overflowing_queue_is_replaced_by_scan() {
        let queue = Queue::default();
        for number in 0..=MAX_RUNS {
            let lsn = Lsn(u64::try_from(number).unwrap() + 10);
            queue.enqueue(&id(&format!("r{number}")), lsn, true);
        }
        assert_eq!(queue.next(), None);
        let upto = Lsn(u64::try_from(MAX_RUNS).unwrap() + 10);
        assert_eq!(queue.written_up_to(), Some(Lsn(9)));
        assert_eq!(queue.begin_scan(Lsn(upto.0 - 1)), None);
        assert_eq!(queue.wait(Duration::from_mins(1), || upto), Wake::Work);
        let after = Lsn(9);
        assert_eq!(queue.begin_scan(upto), Some(Range { after, upto }));
        assert_eq!(queue.written_up_to(), Some(after));
        queue.scanned();
        assert!(queue.is_empty());
    }

    #[test]
    fn closed_queue_returns_waiting_runs_not_failed_ones() {
        let queue = Queue::default();
        queue.enqueue(&id("failing"), Lsn(1), true);
        let failing = queue.next().unwrap();
        queue.begin_turn();
        queue.enqueue(&id("waits"), Lsn(2), false);
        queue.close();
        let idle = Duration::from_mins(1);
        assert_eq!(queue.wait(idle, never), Wake::Work);
        let turn = queue.next().unwrap();
        assert_eq!(turn.run, id("waits"));
        queue.done(&turn);
        queue.failed(&failing);
        assert_eq!(queue.wait(idle, never), Wake::Closed);
        assert_eq!(queue.written_up_to(), Some(Lsn(0)));
    }
}
