//! The clock of the daemon: the time of the host, and timers.
//!
//! **Owns** the only access to the host's clocks and its random source. **Never** lets a delay depend on the wall
//! clock, which people and servers adjust: delays are measured in [`Uptime`]. **Order.** Of two sleeping tasks, the one
//! with the earlier time wakes first. **Failure.** After a suspension of the machine tasks wake late, by at most half a
//! minute.

#[cfg(any(test, feature = "testing"))]
pub mod manual;

use std::time::Duration;

use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use rye_core::clock::{Clock, Timestamp, Uptime};

/// Longest sleep on a timer of the runtime, because these timers stop while the machine is suspended.
const LONGEST: Duration = Duration::from_secs(30);

/// A clock with timers.
pub trait Timer: Clock {
    /// Resolves once the uptime is `up`. Cancel safe.
    fn sleep_until(&self, up: Uptime) -> BoxFuture<'_, ()>;
}

/// The host's time and random source.
#[derive(Debug, Clone, Copy)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(jiff::Timestamp::now().as_millisecond())
    }

    fn up(&self) -> Uptime {
        let up = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
        Uptime::default().plus(up.into())
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the kernel has a random source")
    }
}

impl Timer for HostClock {
    fn sleep_until(&self, up: Uptime) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let left = up.since(self.up());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST)).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn host_clock_never_wakes_early() {
        let until = HostClock.up().plus(Duration::from_millis(3));
        HostClock.sleep_until(until).await;
        assert!(HostClock.up() >= until);
    }
}
