//! Memory that the values of all runs together may take.
//!
//! **Owns** one number. Recorded values are counted even if they do not fit ([`Memory::count`]). A task that is about
//! to make something large reserves memory first ([`Memory::take`]) and keeps the charge until the result is counted.
//! **Never** waits. **Order.** Large charges leave the last part to small ones ([`Memory::of_all_runs`]): a run that
//! fills the memory does not keep other runs from small results. **Failure.** A charge that does not fit is refused
//! without any change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Charges below this size, in bytes, are checked but not reserved. They are counted before many of them can add up.
const SMALL: usize = 64 << 10;
/// Divisor of the part of the memory that is left to charges of at most [`SMALL`] bytes.
const SPARED: usize = 8;

/// Counter of bytes. See the module.
#[derive(Debug)]
pub struct Memory {
    most: usize,
    /// Limit, in bytes, for charges of more than [`SMALL`] bytes.
    most_of_large: usize,
    taken: AtomicUsize,
}

/// Reservation of bytes; dropping it releases them.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            most_of_large: most,
            taken: AtomicUsize::new(0),
        }
    }

    /// Creates a limit of `most` bytes, an eighth of which is left to small charges.
    pub const fn of_all_runs(most: usize) -> Self {
        Self {
            most_of_large: most - most / SPARED,
            ..Self::new(most)
        }
    }

    /// Creates a limit for the texts that are sent to clients, as large as the part left to small charges. It is beside
    /// that of runs, so that a client that reads never makes a run fail.
    #[must_use]
    pub const fn of_answers(&self) -> Self {
        Self::new(self.most / SPARED)
    }

    /// Returns the total up to which a charge of `bytes` may fill the memory.
    const fn most_of(&self, bytes: usize) -> usize {
        if bytes > SMALL {
            self.most_of_large
        } else {
            self.most
        }
    }

    /// Returns the limit in bytes.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of bytes in use.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns true if `bytes` more bytes would fit.
    pub fn fits(&self, bytes: usize) -> bool {
        self.taken()
            .checked_add(bytes)
            .is_some_and(|sum| sum <= self.most)
    }

    /// Reserves `bytes` as long as the charge lives; returns `None` if they do not fit.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let reserved = if bytes < SMALL { 0 } else { bytes };
        let more = |taken: usize| {
            let sum = taken.checked_add(bytes)?;
            (sum <= self.most_of(bytes)).then(|| taken + reserved)
        };
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, more).ok()?;
        Some(Charge {
            memory: Arc::clone(self),
            bytes: reserved,
        })
    }

    /// Returns an empty charge, which can grow.
    pub fn open(self: &Arc<Self>) -> Charge {
        Charge {
            memory: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Replaces `before` bytes of recorded values by `after` bytes. It never refuses.
    pub fn count(&self, before: usize, after: usize) {
        self.taken.fetch_add(after, Ordering::Relaxed);
        self.taken.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Charge {
    /// Reserves `bytes` more. Returns `false` without any change if they do not fit.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let most = self.memory.most_of(self.bytes.saturating_add(bytes));
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        let fits = self.memory.taken.fetch_update(order, order, more).is_ok();
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    pub const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets the size of the charge to `bytes`. Returns `false` without any change if that does not fit.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.shrink(self.bytes - bytes);
            return true;
        };
        self.grow(more)
    }

    /// Takes over the reservation of `other`, a charge on the same memory.
    pub fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Releases `bytes` of the charge, at most all of it.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for Memory {
    /// Returns a counter without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_is_released_and_refusal_changes_nothing() {
        let memory = Arc::new(Memory::new(10 * SMALL));
        let first = memory.take(6 * SMALL).unwrap();
        assert!(memory.take(5 * SMALL).is_none());
        assert_eq!(memory.taken(), 6 * SMALL);
        let second = memory.take(4 * SMALL).unwrap();
        assert!(memory.take(1).is_none() && !memory.fits(1) && memory.fits(0));
        drop((first, second));
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn charge_grows_within_limit_and_is_released() {
        let memory = Arc::new(Memory::new(100));
        let mut charge = memory.open();
        assert!(charge.grow(60) && charge.grow(40) && !charge.grow(1));
        charge.shrink(30);
        assert_eq!(memory.taken(), 70);
        assert!(charge.grow(30) && !memory.fits(1));
        drop(charge);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn large_charges_leave_an_eighth_to_small_ones() {
        let memory = Arc::new(Memory::of_all_runs(80 * SMALL));
        let mut large = memory.open();
        assert!(large.grow(SMALL) && large.grow(69 * SMALL) && !large.grow(1));
        assert!(memory.take(SMALL + 1).is_none());
        let small: Vec<_> = (0..10).map(|_| memory.take(SMALL).unwrap()).collect();
        assert!(memory.take(1).is_none());
        drop(small);
        assert!(memory.open().grow(SMALL));
    }

    #[test]
    fn a_charge_is_resized_and_joined_and_given_back_once() {
        let memory = Arc::new(Memory::new(100));
        let mut charge = memory.open();
        assert!(charge.resize(60) && !charge.resize(101) && charge.resize(20));
        let mut other = memory.open();
        assert!(other.grow(30));
        charge.join(other);
        assert_eq!(memory.taken(), 50);
        drop(charge);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn recorded_values_count_beyond_limit() {
        let memory = Arc::new(Memory::new(SMALL));
        memory.count(0, 3 * SMALL);
        assert!(memory.take(1).is_none());
        memory.count(3 * SMALL, 5);
        assert_eq!(memory.taken(), 5);
        let small = memory.take(7).unwrap();
        assert_eq!(memory.taken(), 5);
        drop(small);
        assert_eq!(memory.taken(), 5);
    }
}
