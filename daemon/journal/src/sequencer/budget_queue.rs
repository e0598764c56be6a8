//! The queue of callers whose commit was refused because its budget is held by open calls.
//!
//! A caller of [`Journal::commit_or_queue`](crate::journal::Journal::commit_in_line) that is refused for that reason
//! gets a [`BudgetSlot`] under the same lock, so that it misses no budget that is freed. It is woken when there may be
//! budget, and retries with its place. No caller that came later is served before it at the account that lacks budget.
//! Dropping a place leaves the queue.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, MutexGuard};

use rye_core::state::{Arrival, Refused};
use tokio::sync::Notify;

use super::{Order, Sequencer};

/// A place in the queue. Dropping it leaves the queue.
pub struct BudgetSlot {
    sequencer: Arc<Sequencer>,
    arrival: Arrival,
    call: Arc<Notify>,
}

impl BudgetSlot {
    /// Resolves when a retry may succeed. Cancel safe.
    pub async fn woken(&self) {
        self.call.notified().await;
    }

    pub(crate) const fn arrival(&self) -> Arrival {
        self.arrival
    }
}

impl fmt::Debug for BudgetSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.arrival).finish()
    }
}

impl Drop for BudgetSlot {
    fn drop(&mut self) {
        let mut sequencer = self.sequencer.lock();
        sequencer.budget_queue.0.remove(&self.arrival);
        let behind = sequencer.state.stop_waiting(self.arrival);
        sequencer.budget_queue.call(&behind);
    }
}

/// Caller of a commit: `Some` with its place, if it has one, if it prefers to wait; `None` if it prefers to be refused.
pub(crate) type WaitSlot<'a> = Option<&'a mut Option<BudgetSlot>>;

/// Wake-ups of the callers in the queue.
#[derive(Debug, Default)]
pub(crate) struct BudgetQueue(HashMap<Arrival, Arc<Notify>>);

impl BudgetQueue {
    pub(crate) fn call(&self, arrivals: &[Arrival]) {
        for call in arrivals.iter().filter_map(|arrival| self.0.get(arrival)) {
            call.notify_one();
        }
    }
}

impl Sequencer {
    /// Queues `asker`, whose commit was refused under this lock, if it lacks budget and prefers to wait.
    pub(crate) fn wait_for_budget(
        self: &Arc<Self>,
        mut sequencer: MutexGuard<'_, Order>,
        refused: &Refused,
        asker: WaitSlot<'_>,
    ) {
        let (Some(place), Some(lacking)) = (asker, refused.awaited_limit()) else {
            return;
        };
        let (arrival, behind) = sequencer
            .state
            .wait(place.as_ref().map(BudgetSlot::arrival), lacking);
        sequencer.budget_queue.call(&behind);
        if place.is_none() {
            let call = Arc::new(Notify::new());
            sequencer.budget_queue.0.insert(arrival, Arc::clone(&call));
            *place = Some(BudgetSlot {
                sequencer: Arc::clone(self),
                arrival,
                call,
            });
        }
    }
}
