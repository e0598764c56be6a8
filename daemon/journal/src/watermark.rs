//! A position that only grows, with the tasks and threads that wait for it, or a final failure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rye_core::id::Lsn;
use tokio::sync::{oneshot, watch};

/// Reason why the journal has failed. It answers no request afterwards; the daemon ends its processes and exits.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The log could not be written or synced: from here on the content of the disk is unknown.
    #[error("failed to write the log")]
    Write(#[source] Arc<std::io::Error>),
    /// A thread of the journal panicked.
    #[error("the journal's {0} panicked")]
    Panicked(&'static str),
    /// The journal was dropped while a caller waited.
    #[error("the journal was closed")]
    Closed,
}

/// A position that tasks and threads wait for. Each task is woken once, when its position is reached: an advance does
/// not wake the tasks that wait for later positions.
pub(crate) struct Watermark {
    reached: Mutex<Reached>,
    /// Condition variable for threads that wait.
    changed: Condvar,
    /// Copy of the failure, so that an advance does not wake those that wait for the failure alone.
    failed: watch::Sender<Option<Failure>>,
}

struct Reached {
    lsn: Lsn,
    failure: Option<Failure>,
    /// Waiting tasks by position; the number distinguishes those of one position.
    waiting: BTreeMap<(Lsn, u64), oneshot::Sender<()>>,
    /// Number of the next waiting task.
    next: u64,
    /// Number of waiting threads: if there are none, the system call of a notification is saved.
    threads: usize,
}

impl Reached {
    /// Returns the result of a wait for `lsn`, or `None` while it may still be reached.
    fn judge(&self, lsn: Lsn) -> Option<Result<(), Failure>> {
        if self.lsn >= lsn {
            return Some(Ok(()));
        }
        self.failure.clone().map(Err)
    }
}

/// Registration of a waiting task. Dropping it removes it from the map.
struct Waiting<'a> {
    watermark: &'a Watermark,
    key: (Lsn, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.watermark.reached).waiting.remove(&self.key);
    }
}

impl Watermark {
    pub(crate) fn new(lsn: Lsn) -> Self {
        Self {
            reached: Mutex::new(Reached {
                lsn,
                failure: None,
                waiting: BTreeMap::new(),
                next: 0,
                threads: 0,
            }),
            changed: Condvar::new(),
            failed: watch::Sender::new(None),
        }
    }

    pub(crate) fn get(&self) -> Lsn {
        lock(&self.reached).lsn
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failed.borrow().clone()
    }

    pub(crate) fn advance(&self, lsn: Lsn) {
        let (called, threads) = {
            let mut reached = lock(&self.reached);
            reached.lsn = reached.lsn.max(lsn);
            let later = reached.waiting.split_off(&(lsn.next(), 0));
            let called = std::mem::replace(&mut reached.waiting, later);
            (called, reached.threads)
        };
        self.wake(called, threads);
    }

    /// Fails the watermark for all who wait for later positions. The first failure stays.
    pub(crate) fn fail(&self, failure: Failure) {
        let (called, threads) = {
            let mut reached = lock(&self.reached);
            let first = reached.failure.get_or_insert(failure).clone();
            self.failed.send_replace(Some(first));
            (std::mem::take(&mut reached.waiting), reached.threads)
        };
        self.wake(called, threads);
    }

    /// Called without the lock, which each of them takes first. Tasks are woken before threads: a run continues before
    /// its listeners are notified.
    fn wake(&self, called: BTreeMap<(Lsn, u64), oneshot::Sender<()>>, threads: usize) {
        for waiting in called.into_values() {
            // The task may have stopped waiting.
            let _gone = waiting.send(());
        }
        if threads > 0 {
            self.changed.notify_all();
        }
    }

    pub(crate) async fn reach(&self, lsn: Lsn) -> Result<(), Failure> {
        let (call, called) = oneshot::channel();
        let waiting = {
            let mut reached = lock(&self.reached);
            if let Some(judged) = reached.judge(lsn) {
                return judged;
            }
            let place = (lsn, reached.next);
            reached.next += 1;
            reached.waiting.insert(place, call);
            Waiting {
                watermark: self,
                key: place,
            }
        };
        // The sender is dropped only after it has sent.
        let _called = called.await;
        drop(waiting);
        let judged = lock(&self.reached).judge(lsn);
        judged.unwrap_or(Err(Failure::Closed))
    }

    pub(crate) async fn failed(&self) -> Failure {
        let mut receiver = self.failed.subscribe();
        match receiver.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().unwrap_or(Failure::Closed),
            Err(_) => Failure::Closed,
        }
    }

    /// Blocks until `lsn` is reached, for threads of the journal.
    pub(crate) fn reach_blocking(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut reached = lock(&self.reached);
        loop {
            if let Some(judged) = reached.judge(lsn) {
                return judged;
            }
            reached.threads += 1;
            reached = self.changed.wait(reached).expect(POISON);
            reached.threads -= 1;
        }
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watermark").field(&self.get()).finish()
    }
}

pub(crate) const POISON: &str = "a lock is poisoned only by a panic, which ends the journal";

/// Locks `mutex`. A poisoned lock means that a thread of the journal panicked while it held it, so the content cannot
/// be trusted.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use rye_host::task;

    #[tokio::test]
    async fn watermark_wakes_task_at_its_position_and_drops_registration() {
        let mark = Watermark::new(Lsn(1));
        assert!(mark.reach(Lsn(1)).now_or_never().unwrap().is_ok());
        let mut second = Box::pin(mark.reach(Lsn(2)));
        let mut twin = Box::pin(mark.reach(Lsn(2)));
        let mut third = Box::pin(mark.reach(Lsn(3)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(twin.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        mark.advance(Lsn(2));
        assert_eq!(lock(&mark.reached).waiting.len(), 1);
        assert!(second.now_or_never().unwrap().is_ok());
        assert!(twin.now_or_never().unwrap().is_ok());
        assert!(third.as_mut().now_or_never().is_none());
        drop(third);
        assert!(lock(&mark.reached).waiting.is_empty());
    }

    #[tokio::test]
    async fn watermark_failure_ends_waits_for_later_positions() {
        let mark = Watermark::new(Lsn(1));
        let mut waits = Box::pin(mark.reach(Lsn(2)));
        assert!(waits.as_mut().now_or_never().is_none());
        mark.fail(Failure::Panicked("writer"));
        mark.fail(Failure::Closed);
        let failed = |end: Option<Result<(), Failure>>| {
            matches!(end, Some(Err(Failure::Panicked("writer"))))
        };
        assert!(failed(waits.now_or_never()));
        assert!(failed(mark.reach(Lsn(9)).now_or_never()));
        assert!(failed(Some(mark.reach_blocking(Lsn(2)))));
        assert!(mark.reach_blocking(Lsn(1)).is_ok());
    }

    #[test]
    fn watermark_wakes_thread_at_its_position() {
        let mark = Arc::new(Watermark::new(Lsn(1)));
        let (tell, told) = mpsc::channel();
        let waiting = Arc::clone(&mark);
        let _thread = task::worker("waits", move || {
            let reached = waiting.reach_blocking(Lsn(3)).is_ok();
            tell.send(reached).expect("the test waits");
        });
        for position in [2, 3] {
            while lock(&mark.reached).threads == 0 {
                thread::yield_now();
            }
            assert!(told.try_recv().is_err());
            mark.advance(Lsn(position));
        }
        assert_eq!(told.recv_timeout(Duration::from_mins(1)), Ok(true));
    }
}
