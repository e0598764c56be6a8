//! The clock of the daemon: the time of the host, and waiting for it.
//!
//! **Owns** the only place that reads the host's clocks and its random source. **Never** lets a delay depend on the wall
//! clock, which people and servers set: delays are counted in [`Uptime`]. **Order.** Of two that sleep, the one whose time comes
//! first wakes first. **Failure.** A machine that was suspended wakes its sleepers late, by no more than half a minute.

#[cfg(any(test, feature = "testing"))]
pub mod manual;

use std::time::Duration;

use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use rye_core::clock::{Clock, Timestamp, Uptime};

/// The runtime's timers stand still while the machine is suspended; no sleep relies on them for longer.
const LONGEST: Duration = Duration::from_secs(30);

/// A clock that can be waited for.
pub trait Timer: Clock {
    /// Resolves once it is `up`. Cancel safe.
    fn sleep_until(&self, up: Uptime) -> BoxFuture<'_, ()>;
}

/// The system's time and random source.
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
    async fn the_host_wakes_nobody_too_early() {
        let until = HostClock.up().plus(Duration::from_millis(3));
        HostClock.sleep_until(until).await;
        assert!(HostClock.up() >= until);
    }
}
