//! The host's clock and random numbers, as the core's [`Clock`].

use rye_core::clock::{Clock, Timestamp};

/// The system's time and random source.
#[derive(Debug, Clone, Copy)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(jiff::Timestamp::now().as_millisecond())
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the kernel has a random source")
    }
}
