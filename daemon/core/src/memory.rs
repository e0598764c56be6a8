//! The memory that the values of all runs together may take.
//!
//! **Owns** one number. What stands in records is counted as it is, whether or not it fits ([`Memory::count`]); a task that is about to make
//! something large asks first ([`Memory::take`]) and keeps the answer until what was made is counted. **Never** waits. **Order.** Large
//! charges leave the last part to small ones ([`Memory::of_all_runs`]): a run that fills the memory does not keep others from small
//! results. **Failure.** What does not fit is refused, and nothing has changed then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Growth below this is not reserved, only looked at: it is counted before much of it can come together.
const SMALL: usize = 64 << 10;
/// The part of the memory that is left to charges of at most [`SMALL`] bytes, as a divisor.
const SPARED: usize = 8;

/// Counts bytes. See the module.
#[derive(Debug)]
pub struct Memory {
    most: usize,
    /// What charges of more than [`SMALL`] bytes may take of it.
    most_of_large: usize,
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
            most_of_large: most,
            taken: AtomicUsize::new(0),
        }
    }

    /// At most `most` bytes, an eighth of which is left to small charges.
    pub const fn of_all_runs(most: usize) -> Self {
        Self {
            most_of_large: most - most / SPARED,
            ..Self::new(most)
        }
    }

    /// What a charge of `bytes` may fill the memory up to.
    const fn most_of(&self, bytes: usize) -> usize {
        if bytes > SMALL {
            self.most_of_large
        } else {
            self.most
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
            (sum <= self.most_of(bytes)).then(|| taken + reserved)
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
        let most = self.memory.most_of(self.bytes.saturating_add(bytes));
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        let fits = self.memory.taken.fetch_update(order, order, more).is_ok();
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// The memory that it is a part of.
    pub const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Makes it `bytes`; `false` if that does not fit, and then nothing has changed.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.shrink(self.bytes - bytes);
            return true;
        };
        self.grow(more)
    }

    /// Takes over what `other`, a charge on the same memory, has reserved.
    pub fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
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
