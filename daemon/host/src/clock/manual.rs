//! A clock for tests: its time changes only by [`ManualClock::advance`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rye_core::clock::{Clock, Timestamp, Uptime};
use tokio::sync::watch;

use super::Timer;

/// Start of the wall clock, in November 2023.
const START: Timestamp = Timestamp::from_ms(1_700_000_000_000);

#[derive(Debug)]
pub struct ManualClock {
    passed: watch::Sender<Duration>,
    /// Offset of the wall clock in milliseconds.
    stepped: AtomicI64,
    drawn: AtomicU64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self {
            passed: watch::Sender::new(Duration::ZERO),
            stepped: AtomicI64::new(0),
            drawn: AtomicU64::new(0),
        }
    }
}

impl ManualClock {
    /// Advances the time, and wakes the tasks whose time has come.
    pub fn advance(&self, by: Duration) {
        self.passed.send_modify(|passed| *passed += by);
    }

    /// Adjusts the wall clock by `by` milliseconds. The uptime does not change.
    pub fn step(&self, by: i64) {
        self.stepped.fetch_add(by, Ordering::Relaxed);
    }

    /// Number of tasks that sleep now.
    pub fn sleepers(&self) -> usize {
        self.passed.receiver_count()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let now = START.plus(*self.passed.borrow());
        Timestamp::from_ms(now.ms() + self.stepped.load(Ordering::Relaxed))
    }

    fn up(&self) -> Uptime {
        Uptime::default().plus(*self.passed.borrow())
    }

    /// Returns 1, 2, 3 and so on.
    fn random(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Timer for ManualClock {
    fn sleep_until(&self, up: Uptime) -> BoxFuture<'_, ()> {
        let mut passed = self.passed.subscribe();
        Box::pin(async move {
            let due = passed.wait_for(|passed| Uptime::default().plus(*passed) >= up);
            // The sender is part of this clock, which is borrowed.
            drop(due.await.expect("the clock is there"));
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn manual_clock_wakes_only_due_sleepers() {
        let clock = ManualClock::default();
        let start = clock.up();
        let mut soon = clock.sleep_until(start.plus(Duration::from_secs(1)));
        let mut late = clock.sleep_until(start.plus(Duration::from_hours(1)));
        assert_eq!(soon.as_mut().now_or_never(), None);
        clock.advance(Duration::from_millis(999));
        assert_eq!(soon.as_mut().now_or_never(), None);
        clock.advance(Duration::from_millis(1));
        assert_eq!(soon.as_mut().now_or_never(), Some(()));
        assert_eq!(late.as_mut().now_or_never(), None);
        drop(soon);
        assert_eq!(clock.sleepers(), 1);
        clock.advance(Duration::from_hours(1));
        assert_eq!(late.as_mut().now_or_never(), Some(()));
        assert_eq!(clock.now().ms_since(START), 3_601_000);
    }

    #[tokio::test]
    async fn manual_clock_advance_wakes_sleeping_task() {
        let clock = std::sync::Arc::new(ManualClock::default());
        let mut tasks = crate::task::Scope::new();
        let sleeper = std::sync::Arc::clone(&clock);
        tasks.spawn("sleeper", |_| async move {
            sleeper
                .sleep_until(Uptime::default().plus(Duration::from_mins(1)))
                .await;
        });
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_mins(1));
        assert!(tasks.next_ended().await.is_some());
    }
}
