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

use futures_util::future::BoxFuture;
use rye_core::clock::Uptime;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};

use rye_host::clock::Timer;

/// Upper bound of a pause; a longer one is renewed by the next call.
const MOST_CLOSED: Duration = Duration::from_mins(5);
/// Upper bound of the additional random delay.
const MOST_JITTER: Duration = Duration::from_secs(10);
/// Shorter waits are not reported.
const SHORT: Duration = Duration::from_secs(1);

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

    /// Joins the queue for one of `most` slots.
    pub(super) fn join(&self, key: Key, most: u32) -> Waiter {
        let queue = self.queue(key);
        queue.resize(most);
        let permits = Arc::clone(&queue.permits);
        Waiter {
            slot: Slot::Awaited(Box::pin(permits.acquire_owned())),
            pause: queue.pause.subscribe(),
            own: None,
            since: queue.clock.up(),
            reported: None,
            queue,
        }
    }

    fn queue(&self, key: Key) -> Arc<CallQueue> {
        let now = self.clock.up();
        let mut gates = lock(&self.queues);
        if let Some(gate) = gates.get(&key) {
            return Arc::clone(gate);
        }
        gates.retain(|_, gate| Arc::strong_count(gate) > 1 || gate.pause.borrow().opens > now);
        let gate = Arc::new(CallQueue {
            clock: Arc::clone(&self.clock),
            permits: Arc::new(Semaphore::new(0)),
            state: Mutex::default(),
            pause: watch::Sender::default(),
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
    /// The last pause.
    pause: watch::Sender<Pause>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Number of slots, free or taken.
    size: usize,
    /// Requested number of slots, by the latest caller: two threads may have started with different versions of a file.
    target_size: usize,
}

/// A pause for all callers of a queue.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
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
}

/// A call in a queue. Dropping it leaves the queue.
pub(super) struct Waiter {
    queue: Arc<CallQueue>,
    slot: Slot,
    pause: watch::Receiver<Pause>,
    /// The last pause, and its end for this waiter.
    own: Option<(Uptime, Uptime)>,
    /// Start of the wait for a slot, without pauses.
    since: Uptime,
    /// The wait that was reported last.
    reported: Option<Wait>,
}

enum Slot {
    Awaited(BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>),
    Granted(Pass),
    /// The pass was handed out.
    Taken,
}

/// A wait of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The provider requested a pause, which ends then.
    Until(Uptime),
    /// All slots are in use.
    ForSlot,
}

/// Progress of a [`Waiter`].
#[derive(Debug)]
pub(super) enum Progress {
    /// The call may begin.
    Granted(Pass),
    /// The wait takes longer than [`SHORT`], and is another than the one that was reported before.
    Waiting(Wait),
}

impl Waiter {
    /// Waits for a slot, and for the queue to be open. Cancel safe. Never resolves after [`Progress::Granted`].
    pub(super) async fn next(&mut self) -> Progress {
        let clock = Arc::clone(&self.queue.clock);
        loop {
            let now = clock.up();
            let opens = self.own_opening(now);
            if now >= opens
                && let Some(pass) = self.slot.take()
            {
                return Progress::Granted(pass);
            }
            let (wait, report) = if now < opens {
                let is_long = opens.since(now) >= SHORT;
                (Wait::Until(opens), is_long.then_some(now))
            } else {
                (Wait::ForSlot, Some(self.since.max(opens).plus(SHORT)))
            };
            let report = report.filter(|_| self.reported != Some(wait));
            if report.is_some_and(|due| now >= due) {
                self.reported = Some(wait);
                return Progress::Waiting(wait);
            }
            let opening = (now < opens).then_some(opens);
            let pause = async {
                match report.into_iter().chain(opening).min() {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                permit = self.slot.granted() => {
                    let permit = Some(permit.expect("nobody closes the slots"));
                    let queue = Arc::clone(&self.queue);
                    self.slot = Slot::Granted(Pass { queue, permit });
                }
                Ok(()) = self.pause.changed() => {}
                () = pause => {}
            }
        }
    }

    /// Returns the end of the last pause for this waiter.
    fn own_opening(&mut self, now: Uptime) -> Uptime {
        let Pause { opens, jitter } = *self.pause.borrow_and_update();
        match self.own {
            Some((of, own)) if of == opens => own,
            _ if now >= opens => opens,
            _ => {
                let most = u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX);
                let random = self.queue.clock.random() % most.saturating_add(1);
                let own = opens.plus(Duration::from_millis(random));
                self.own = Some((opens, own));
                own
            }
        }
    }
}

impl Slot {
    /// Resolves when the slot is granted. Cancel safe.
    async fn granted(&mut self) -> Result<OwnedSemaphorePermit, AcquireError> {
        match self {
            Self::Awaited(permit) => permit.await,
            Self::Granted(_) | Self::Taken => std::future::pending().await,
        }
    }

    /// Takes the pass, if the slot is granted.
    fn take(&mut self) -> Option<Pass> {
        match std::mem::replace(self, Self::Taken) {
            Self::Granted(pass) => Some(pass),
            other @ (Self::Awaited(_) | Self::Taken) => {
                *self = other;
                None
            }
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
        self.queue.pause.send_if_modified(|last| {
            let is_longer = opens > last.opens;
            if is_longer {
                let jitter = (pause / 2).min(MOST_JITTER);
                *last = Pause { opens, jitter };
            }
            is_longer
        });
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

    use rye_core::clock::Clock as _;

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

    async fn enter(gates: &CallQueues, key: Key, most: u32) -> Pass {
        let mut waiter = gates.join(key, most);
        loop {
            if let Progress::Granted(pass) = waiter.next().await {
                return pass;
            }
        }
    }

    /// Enters if that is possible without waiting.
    fn try_enter(gates: &CallQueues, key: Key, most: u32) -> Option<Pass> {
        enter(gates, key, most).now_or_never()
    }

    /// Returns the next progress of `waiter`, if there is one without waiting.
    fn progress(waiter: &mut Waiter) -> Option<Progress> {
        waiter.next().now_or_never()
    }

    #[test]
    fn slots_are_granted_in_arrival_order() {
        let (_clock, gates) = queues();
        let first = try_enter(&gates, key("p"), 2).unwrap();
        let second = try_enter(&gates, key("p"), 2).unwrap();
        let mut third = Box::pin(enter(&gates, key("p"), 2));
        let mut fourth = Box::pin(enter(&gates, key("p"), 2));
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
        let mut second = Box::pin(enter(&gates, key("p"), 1));
        let mut third = Box::pin(enter(&gates, key("p"), 1));
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
        let mut one = Box::pin(enter(&gates, key("p"), 9));
        let mut two = Box::pin(enter(&gates, key("p"), 9));
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
        let mut waits = Box::pin(enter(&gates, key("p"), 9));
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
        let mut waits = Box::pin(enter(&gates, key("p"), 1));
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

    #[test]
    fn long_waits_are_reported_once_each() {
        let (clock, gates) = queues();
        let caller = try_enter(&gates, key("p"), 1).unwrap();
        let mut waiter = gates.join(key("p"), 1);
        assert!(progress(&mut waiter).is_none());
        clock.advance(SHORT);
        let for_slot = |progress| matches!(progress, Some(Progress::Waiting(Wait::ForSlot)));
        assert!(for_slot(progress(&mut waiter)));
        clock.advance(Duration::from_mins(1));
        assert!(progress(&mut waiter).is_none());
        // The provider requests a pause: the end of the wait is known now, and again when it moves.
        for pause in [20, 40] {
            let end = clock.up().plus(Duration::from_secs(pause));
            caller.close(Duration::from_secs(pause));
            let Some(Progress::Waiting(Wait::Until(until))) = progress(&mut waiter) else {
                panic!("no report of the pause of {pause} s");
            };
            assert!(until >= end && until <= end.plus(MOST_JITTER));
            assert!(progress(&mut waiter).is_none());
        }
        // It is over, and the slot is still in use.
        clock.advance(Duration::from_secs(40) + Duration::from_millis(10));
        assert!(progress(&mut waiter).is_none());
        clock.advance(SHORT);
        assert!(for_slot(progress(&mut waiter)));
        drop(caller);
        assert!(matches!(progress(&mut waiter), Some(Progress::Granted(_))));
    }

    #[test]
    fn short_pause_is_not_reported() {
        let (clock, gates) = queues();
        let caller = try_enter(&gates, key("p"), 2).unwrap();
        caller.close(SHORT / 2);
        let mut waiter = gates.join(key("p"), 2);
        assert!(progress(&mut waiter).is_none());
        clock.advance(SHORT);
        assert!(matches!(progress(&mut waiter), Some(Progress::Granted(_))));
    }
}
