//! Queues for calls of providers: one for each secret that calls use.
//!
//! **Owns** the limit on concurrent calls, the order of waiting calls, and the pause that a provider requests.
//! **Never** knows what a call is.
//!
//! **Order.** Slots are granted in the order of arrival. If the queue is closed, the holder of a slot waits until it
//! opens, and then for a random fraction of the pause, so that not all calls start at once. **Failure.** A dropped
//! waiter leaves the queue; dropping a [`Pass`] frees its slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rye_core::clock::Uptime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use rye_host::clock::Timer;

/// Upper bound of a pause; a longer one is renewed by the next call.
const MOST_CLOSED: Duration = Duration::from_mins(5);
/// Upper bound of the additional random delay.
const MOST_JITTER: Duration = Duration::from_secs(10);

/// Identifies a queue. Providers of a project do not share one with other projects, even under the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Project whose file names the provider; `None` for the user's.
    pub(super) project: Option<String>,
    pub(super) provider: String,
    /// Name of the secret, if the provider uses one.
    pub(super) secret: Option<String>,
}

/// Queues that are in use or closed.
#[derive(Debug)]
pub(super) struct CallQueues {
    clock: Arc<dyn Timer>,
    queues: Mutex<HashMap<Key, Arc<CallQueue>>>,
}

impl CallQueues {
    pub(super) fn new(clock: Arc<dyn Timer>) -> Self {
        Self {
            clock,
            queues: Mutex::default(),
        }
    }

    /// Waits for one of `most` slots, and for the queue to be open. Cancel safe.
    pub(super) async fn enter(&self, key: Key, most: u32) -> Pass {
        let gate = self.queue(key);
        gate.resize(most);
        let places = Arc::clone(&gate.permits);
        let permit = places.acquire_owned().await;
        let pass = Pass {
            permit: Some(permit.expect("nobody closes the places")),
            queue: gate,
        };
        pass.queue.opened().await;
        pass
    }

    fn queue(&self, key: Key) -> Arc<CallQueue> {
        let now = self.clock.up();
        let mut gates = lock(&self.queues);
        if let Some(gate) = gates.get(&key) {
            return Arc::clone(gate);
        }
        gates.retain(|_, gate| Arc::strong_count(gate) > 1 || lock(&gate.state).opens > now);
        let gate = Arc::new(CallQueue {
            clock: Arc::clone(&self.clock),
            permits: Arc::new(Semaphore::new(0)),
            state: Mutex::default(),
        });
        gates.insert(key, Arc::clone(&gate));
        gate
    }
}

/// One queue.
#[derive(Debug)]
struct CallQueue {
    clock: Arc<dyn Timer>,
    permits: Arc<Semaphore>,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Number of slots, free or taken.
    size: usize,
    /// Requested number of slots, by the latest caller: two threads may have started with different versions of a file.
    target_size: usize,
    /// Time at which the queue opens or opened.
    opens: Uptime,
    /// Upper bound of the additional random delay.
    jitter: Duration,
}

impl CallQueue {
    /// Changes the number of slots to `most`. Excess slots in use are removed when they are freed.
    fn resize(&self, most: u32) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut state = lock(&self.state);
        state.target_size = most.clamp(1, Semaphore::MAX_PERMITS);
        if state.size < state.target_size {
            self.permits.add_permits(state.target_size - state.size);
            state.size = state.target_size;
        } else {
            state.size -= self.permits.forget_permits(state.size - state.target_size);
        }
    }

    /// Resolves when the queue is open.
    async fn opened(&self) {
        loop {
            let (opens, jitter) = {
                let state = lock(&self.state);
                (state.opens, state.jitter)
            };
            if self.clock.up() >= opens {
                return;
            }
            let most = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
            let own = Duration::from_millis(self.clock.random() % most.saturating_add(1));
            self.clock.sleep_until(opens.plus(own)).await;
        }
    }
}

/// A slot, freed when it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    queue: Arc<CallQueue>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Pass {
    /// Closes the queue for all callers. It never shortens an earlier pause.
    pub(super) fn close(&self, pause: Duration) {
        let pause = pause.min(MOST_CLOSED);
        let opens = self.queue.clock.up().plus(pause);
        let mut state = lock(&self.queue.state);
        if opens > state.opens {
            state.opens = opens;
            state.jitter = (pause / 2).min(MOST_JITTER);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        if state.size > state.target_size
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            state.size -= 1;
        }
    }
}

/// A poisoned lock is usable: no code panics while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use rye_host::clock::manual::ManualClock;

    fn key(provider: &str) -> Key {
        Key {
            project: None,
            provider: provider.to_owned(),
            secret: Some("KEY".to_owned()),
        }
    }

    fn queues() -> (Arc<ManualClock>, CallQueues) {
        let clock = Arc::new(ManualClock::default());
        let timer: Arc<dyn Timer> = Arc::<ManualClock>::clone(&clock);
        (clock, CallQueues::new(timer))
    }

    /// Enters if that is possible without waiting.
    fn try_enter(gates: &CallQueues, key: Key, most: u32) -> Option<Pass> {
        gates.enter(key, most).now_or_never()
    }

    #[test]
    fn slots_are_granted_in_arrival_order() {
        let (_clock, gates) = queues();
        let first = try_enter(&gates, key("p"), 2).unwrap();
        let second = try_enter(&gates, key("p"), 2).unwrap();
        let mut third = Box::pin(gates.enter(key("p"), 2));
        let mut fourth = Box::pin(gates.enter(key("p"), 2));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(second);
        assert!(fourth.as_mut().now_or_never().is_none());
        let third = third.as_mut().now_or_never().unwrap();
        drop(first);
        let fourth = fourth.as_mut().now_or_never().unwrap();
        assert!(try_enter(&gates, key("p"), 2).is_none());
        drop((third, fourth));
        assert!(try_enter(&gates, key("p"), 2).is_some());
    }

    #[test]
    fn queues_are_separate_per_secret_and_project() {
        let (_clock, gates) = queues();
        let _first = try_enter(&gates, key("p"), 1).unwrap();
        let other_secret = Key {
            secret: None,
            ..key("p")
        };
        let other_project = Key {
            project: Some("/a".to_owned()),
            ..key("p")
        };
        for other in [key("q"), other_secret, other_project] {
            assert!(try_enter(&gates, other, 1).is_some());
        }
        assert!(try_enter(&gates, key("p"), 1).is_none());
    }

    #[test]
    fn dropped_waiter_leaves_queue() {
        let (_clock, gates) = queues();
        let first = try_enter(&gates, key("p"), 1).unwrap();
        let mut second = Box::pin(gates.enter(key("p"), 1));
        let mut third = Box::pin(gates.enter(key("p"), 1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        drop(first);
        assert!(third.as_mut().now_or_never().is_some());
    }

    #[test]
    fn closed_queue_reopens_with_jitter_per_waiter() {
        let (clock, gates) = queues();
        let caller = try_enter(&gates, key("p"), 9).unwrap();
        caller.close(Duration::from_secs(7));
        // A shorter pause does not open it.
        caller.close(Duration::from_secs(1));
        let mut one = Box::pin(gates.enter(key("p"), 9));
        let mut two = Box::pin(gates.enter(key("p"), 9));
        assert!(one.as_mut().now_or_never().is_none());
        assert!(two.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(7));
        // The clock's random number is 1 for the first, and 2 for the second.
        assert!(one.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!(one.as_mut().now_or_never().is_some());
        assert!(two.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!(two.as_mut().now_or_never().is_some());
        assert!(try_enter(&gates, key("p"), 9).is_some());
    }

    #[test]
    fn queue_closed_again_keeps_waiters() {
        let (clock, gates) = queues();
        let caller = try_enter(&gates, key("p"), 9).unwrap();
        caller.close(Duration::from_secs(2));
        let mut waits = Box::pin(gates.enter(key("p"), 9));
        assert!(waits.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        caller.close(Duration::from_secs(5));
        clock.advance(Duration::from_secs(3));
        assert!(waits.as_mut().now_or_never().is_none());
        // Dropped while it waits for the queue to open, it frees its slot.
        drop(waits);
        assert_eq!(clock.sleepers(), 0);
        clock.advance(Duration::from_mins(1));
        assert!(try_enter(&gates, key("p"), 2).is_some());
    }

    #[test]
    fn queue_closure_is_bounded() {
        let (clock, gates) = queues();
        let caller = try_enter(&gates, key("p"), 1).unwrap();
        caller.close(Duration::MAX);
        drop(caller);
        // Other queues come and go; a closed one is kept.
        assert!(try_enter(&gates, key("q"), 1).is_some());
        assert!(try_enter(&gates, key("p"), 1).is_none());
        clock.advance(MOST_CLOSED);
        assert!(try_enter(&gates, key("r"), 1).is_some());
        assert_eq!(lock(&gates.queues).len(), 1, "only lines in use are kept");
        assert!(try_enter(&gates, key("p"), 1).is_some());
    }

    #[test]
    fn latest_caller_sets_queue_size() {
        let (_clock, gates) = queues();
        let three: Vec<Pass> = std::iter::from_fn(|| try_enter(&gates, key("p"), 3)).collect();
        assert_eq!(three.len(), 3);
        assert!(try_enter(&gates, key("p"), 1).is_none());
        let mut waits = Box::pin(gates.enter(key("p"), 1));
        let mut left = three.into_iter();
        for _ in 0..2 {
            drop(left.next());
            assert!(waits.as_mut().now_or_never().is_none());
        }
        drop(left.next());
        let one = waits.as_mut().now_or_never().unwrap();
        assert!(try_enter(&gates, key("p"), 1).is_none());
        assert!(try_enter(&gates, key("p"), 2).is_some());
        // A queue without slots would block its callers for ever.
        drop(one);
        assert!(try_enter(&gates, key("q"), 0).is_some());
    }
}
