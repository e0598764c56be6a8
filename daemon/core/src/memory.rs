//! The memory that the values of all runs together may take.
//!
//! **Owns** one number. What stands in records is counted as it is, whether or not it fits ([`Memory::count`]); a task that is about to make
//! something large asks first ([`Memory::take`]) and keeps the answer until what was made is counted. **Never** waits. **Failure.** What
//! does not fit is refused, and nothing has changed then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Growth below this is not reserved, only looked at: it is counted before much of it can come together.
const SMALL: usize = 64 << 10;

/// Counts bytes. See the module.
#[derive(Debug)]
pub struct Memory {
    most: usize,
    taken: AtomicUsize,
}

/// Bytes that are about to be used; they are given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    /// At most `most` bytes.
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    /// The limit.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// What is taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more would fit.
    pub fn fits(&self, bytes: usize) -> bool {
        self.taken()
            .checked_add(bytes)
            .is_some_and(|sum| sum <= self.most)
    }

    /// Reserves `bytes`, as long as the charge is kept; `None` if they do not fit.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let reserved = if bytes < SMALL { 0 } else { bytes };
        let more = |taken: usize| {
            let sum = taken.checked_add(bytes)?;
            (sum <= self.most).then(|| taken + reserved)
        };
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, more).ok()?;
        Some(Charge {
            memory: Arc::clone(self),
            bytes: reserved,
        })
    }

    /// A charge of nothing, which grows.
    pub fn open(self: &Arc<Self>) -> Charge {
        Charge {
            memory: Arc::clone(self),
            bytes: 0,
        }
    }

    /// What stands on record takes `after` bytes now, where it took `before`.
    pub fn count(&self, before: usize, after: usize) {
        self.taken.fetch_add(after, Ordering::Relaxed);
        self.taken.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Charge {
    /// Reserves `bytes` more; `false` if they do not fit, and then nothing has changed.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = |taken: usize| {
            taken
                .checked_add(bytes)
                .filter(|sum| *sum <= self.memory.most)
        };
        let order = Ordering::Relaxed;
        let fits = self.memory.taken.fetch_update(order, order, more).is_ok();
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Gives `bytes` of it back.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for Memory {
    /// Without a limit.
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
    fn what_is_taken_is_given_back_and_what_does_not_fit_changes_nothing() {
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
    fn a_charge_grows_as_far_as_there_is_room_and_gives_all_of_it_back() {
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
    fn what_is_on_record_counts_even_if_it_does_not_fit() {
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
