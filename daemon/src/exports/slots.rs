//! Limit on concurrent turns over all projects: two at once.
//!
//! **Never** lets a hanging project block others: a turn longer than [`LONGEST`] no longer counts.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of concurrent turns.
const MAX_CONCURRENT: usize = 2;
/// Time after which a turn loses its slot.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Slots {
    turns: Mutex<Turns>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// Number and start of each turn that counts.
    begun: Vec<(u64, Instant)>,
    number: u64,
}

/// A turn; dropping it frees its slot.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    number: u64,
}

impl Slots {
    /// Waits for a free slot. Blocks.
    pub(super) fn enter(&self) -> Slot<'_> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            turns.begun.retain(|(_, begun)| now < *begun + LONGEST);
            if turns.begun.len() < MAX_CONCURRENT {
                turns.number += 1;
                let number = turns.number;
                turns.begun.push((number, now));
                return Slot {
                    slots: self,
                    number,
                };
            }
            let oldest = turns.begun.iter().map(|(_, begun)| *begun).min();
            let left = oldest.map_or(LONGEST, |oldest| (oldest + LONGEST) - now);
            let waited = self.freed.wait_timeout(turns, left);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let turns = self.slots.turns.lock();
        let mut turns = turns.unwrap_or_else(PoisonError::into_inner);
        turns.begun.retain(|(number, _)| *number != self.number);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn third_turn_waits_for_free_slot() {
        let slots = Slots::default();
        let (first, _second) = (slots.enter(), slots.enter());
        let (sender, entered) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _third = slots.enter();
                sender.send(()).unwrap();
            });
            assert!(entered.recv_timeout(LONGEST / 4).is_err());
            drop(first);
            entered.recv_timeout(LONGEST / 4).unwrap();
        });
    }

    #[test]
    fn slow_turn_releases_its_slot_once() {
        let slots = Slots::default();
        let (first, second) = (slots.enter(), slots.enter());
        let begun = Instant::now();
        let third = slots.enter();
        assert!(begun.elapsed() >= LONGEST / 2);
        let _fourth = slots.enter();
        drop((first, second));
        assert_eq!(slots.turns.lock().unwrap().begun.len(), 2);
        drop(third);
        assert_eq!(slots.turns.lock().unwrap().begun.len(), 1);
    }
}
