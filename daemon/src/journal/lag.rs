//! How far the files of a project are behind its runs, and who waits for them.
//!
//! **Owns** the count of what the lane of one project has not written: the publisher adds to it, the lane takes from it; and since
//! when it has not moved, which begins anew for one that had nothing to do.
//! **Never** counts what could not be written and is tried again, and holds nobody up for a project that does not move at all:
//! that is not slow, and the log is kept for it up to a bound. **Order.** A driver looks before each move of its run, and
//! the start of a run before it exists; so what waits passes the bound by a move of each run at most.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::watermark::lock;

/// How far the files of a project may be behind before its runs wait.
#[derive(Debug, Clone, Copy)]
pub struct LagBounds {
    /// Runs of which something is not written: each takes some 5 KB of memory.
    pub runs: usize,
    /// Bytes of transcripts: the log has to hold them meanwhile.
    pub bytes: u64,
    /// A lane that has written nothing for so long does not move.
    pub still: Duration,
}

impl LagBounds {
    /// Those of a log with segments of so many bytes: far less than is kept for a project that does not move.
    pub(super) const fn of_segments(segment_bytes: u64) -> Self {
        Self {
            runs: 4096,
            bytes: 2 * segment_bytes,
            still: Duration::from_secs(10),
        }
    }
}

/// What the lane of a project has still to write.
#[derive(Debug)]
pub struct Lag {
    bounds: LagBounds,
    owed: Mutex<Owed>,
    shrunk: Notify,
}

#[derive(Debug)]
struct Owed {
    /// Runs with lines that are not in their transcripts.
    unwritten: usize,
    /// Bytes of these.
    bytes: u64,
    /// Runs that have come to rest, and whose other files are not made.
    unfinished: usize,
    /// Whether it was asked for a checkpoint and has not answered.
    marked: bool,
    /// When it last wrote something, or got something to do and had nothing.
    moved: Instant,
    /// Whether it is past its bounds; who waits is notified when it is not any more.
    behind: bool,
}

impl Lag {
    pub(super) fn new(bounds: LagBounds) -> Self {
        Self {
            bounds,
            owed: Mutex::new(Owed {
                unwritten: 0,
                bytes: 0,
                unfinished: 0,
                marked: false,
                moved: Instant::now(),
                behind: false,
            }),
            shrunk: Notify::new(),
        }
    }

    /// There are further bytes to be written, of a further run if it `is_new`.
    pub(super) fn add(&self, bytes: u64, is_new: bool) {
        self.change(|owed| {
            owed.wake();
            owed.unwritten += usize::from(is_new);
            owed.bytes += bytes;
        });
    }

    /// So many bytes of one run are written, or are tried again later.
    pub(super) fn written(&self, bytes: u64) {
        self.change(|owed| {
            owed.unwritten -= 1;
            owed.bytes -= bytes;
            owed.moved = Instant::now();
        });
    }

    /// Something else was written, and so many runs wait for the rest of their files.
    pub(super) fn finishing(&self, runs: usize) {
        self.change(|owed| {
            owed.unfinished = runs;
            owed.moved = Instant::now();
        });
    }

    /// A checkpoint waits for it.
    pub(super) fn mark(&self) {
        self.change(|owed| {
            owed.wake();
            owed.marked = true;
        });
    }

    /// It has answered that.
    pub(super) fn answered(&self) {
        self.change(|owed| {
            owed.marked = false;
            owed.moved = Instant::now();
        });
    }

    /// Whether something was written lately.
    pub(super) fn is_moving(&self) -> bool {
        lock(&self.owed).moved.elapsed() < self.bounds.still
    }

    /// Whether runs have to wait.
    pub fn is_behind(&self) -> bool {
        let owed = lock(&self.owed);
        owed.behind && owed.moved.elapsed() < self.bounds.still
    }

    /// Resolves as soon as runs need not wait. Cancel safe.
    pub async fn caught_up(&self) {
        loop {
            let mut shrunk = std::pin::pin!(self.shrunk.notified());
            // What shrinks between the look and the wait is not missed.
            shrunk.as_mut().enable();
            if !self.is_behind() {
                return;
            }
            tokio::select! {
                () = shrunk => {}
                // It may have stopped moving.
                () = tokio::time::sleep(self.bounds.still) => {}
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Owed)) {
        let was_behind = {
            let mut owed = lock(&self.owed);
            change(&mut owed);
            let behind = owed.unwritten + owed.unfinished > self.bounds.runs
                || owed.bytes > self.bounds.bytes;
            std::mem::replace(&mut owed.behind, behind) && !behind
        };
        if was_behind {
            self.shrunk.notify_waiters();
        }
    }
}

impl Owed {
    /// There is something to do: who had nothing has not stood still until now.
    fn wake(&mut self) {
        if self.unwritten + self.unfinished == 0 && !self.marked {
            self.moved = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn lag(still: Duration) -> Lag {
        Lag::new(LagBounds {
            runs: 2,
            bytes: 100,
            still,
        })
    }

    #[tokio::test]
    async fn runs_wait_while_too_many_or_too_much_is_unwritten() {
        let lag = lag(Duration::from_mins(1));
        lag.add(60, true);
        lag.add(40, false);
        lag.add(0, true);
        assert!(lag.caught_up().now_or_never().is_some());
        lag.add(1, false);
        let mut waits = Box::pin(lag.caught_up());
        assert!(waits.as_mut().now_or_never().is_none());
        lag.written(101);
        assert!(waits.now_or_never().is_some());
        // A run whose transcript is written is not finished yet.
        lag.finishing(2);
        let mut waits = Box::pin(lag.caught_up());
        assert!(waits.as_mut().now_or_never().is_none());
        lag.finishing(1);
        assert!(waits.now_or_never().is_some());
    }

    #[tokio::test]
    async fn nobody_waits_for_what_does_not_move() {
        let lag = lag(Duration::ZERO);
        lag.add(1000, true);
        assert!(!lag.is_moving());
        assert!(lag.caught_up().now_or_never().is_some());
    }

    #[test]
    fn a_lane_that_had_nothing_to_do_has_not_stood_still_until_now() {
        const STILL: Duration = Duration::from_mins(10);
        let lag = lag(STILL);
        let stands_still = || {
            lock(&lag.owed).moved = Instant::now().checked_sub(STILL).unwrap();
            assert!(!lag.is_moving());
        };
        stands_still();
        lag.mark();
        assert!(lag.is_moving());
        // Further work does not make one move that has neither answered nor written.
        stands_still();
        lag.mark();
        lag.add(1, true);
        assert!(!lag.is_moving());
        lag.answered();
        assert!(lag.is_moving());
        stands_still();
        lag.mark();
        assert!(!lag.is_moving());
        lag.written(1);
        lag.answered();
        stands_still();
        lag.add(1, true);
        assert!(lag.is_moving());
    }

    #[tokio::test]
    async fn who_waits_notices_that_it_has_stopped_moving() {
        let lag = lag(Duration::from_millis(20));
        lag.add(1000, true);
        lag.finishing(0);
        lag.caught_up().await;
        assert!(!lag.is_moving());
    }
}
