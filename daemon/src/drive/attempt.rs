//! One attempt, from its announcement to its end, concurrent with its driver.
//!
//! Its output, its timeouts and its stop requests are handled at any time, even while the driver waits.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::bounds::{self, MOST_BYTES};
use rye_core::machine::Call;
use rye_core::memory::Memory;
use rye_core::model::{KillReceipt, Slot};
use tokio::sync::mpsc;

use super::plan::Planned;
use super::{Kind, Signal};
use crate::services::{Ended, Services, memory_exceeded};
use crate::stop::{Stop, Urgency};
use rye_host::task::Group;
use rye_journal::Ticket;

pub(super) type Attempts = Group<Finished>;

/// A call and its end.
pub(super) type Finished = (Box<Call>, Ended);

/// Carries out `attempt`. Charges the result, unless it is charged already. A result over the memory limit of all runs
/// becomes a failure.
pub(super) async fn charged(
    memory: Arc<Memory>,
    attempt: impl Future<Output = Finished>,
) -> Finished {
    let (call, mut ended) = attempt.await;
    if let Ended::Outcome(outcome) = &mut ended
        && !outcome.charge.is_open()
    {
        let mut charge = memory.open();
        if !charge.grow(bounds::check(&outcome.result).unwrap_or(MOST_BYTES)) {
            outcome.result = Arc::default();
            outcome
                .failure
                .get_or_insert_with(|| memory_exceeded(&memory));
        }
        outcome.charge = charge.into();
    }
    (call, ended)
}

/// Channel for the reports of an attempt before its end.
pub struct Reports<S> {
    slot: Slot,
    driver: mpsc::Sender<(Slot, S)>,
}

impl<S> Reports<S> {
    pub(super) const fn new(slot: Slot, driver: mpsc::Sender<(Slot, S)>) -> Self {
        Self { slot, driver }
    }

    /// Sends a report to the machine. Waits while the queue of the driver is full.
    pub async fn send(&self, signal: S) {
        if self.driver.send((self.slot, signal)).await.is_err() {
            tracing::debug!("the driver of the run is gone");
        }
    }
}

impl<S> fmt::Debug for Reports<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").field(&self.slot).finish()
    }
}

/// Resolves to true if a commit is durable, to false if it never will be.
pub(super) type Announced = BoxFuture<'static, bool>;

/// Returns a wait for the commit `ticket` for each of the `count` attempts it announces. Several attempts share one
/// wait, so they begin together. A single attempt has its own, because a shared one would wake its task twice.
pub(super) fn announced(services: &Arc<Services>, ticket: Ticket, count: usize) -> Vec<Announced> {
    let services = Arc::clone(services);
    let durable = async move { services.journal.durable(ticket).await.is_ok() }.boxed();
    if count <= 1 {
        return vec![durable];
    }
    let durable = durable.shared();
    (0..count).map(|_| durable.clone().boxed()).collect()
}

/// Waits until `announced` is durable, then carries the call out. The call does not begin if its announcement never
/// becomes durable, or if its run is stopped before, with an urgency of at least `unless`.
pub(super) async fn attempt<K: Kind>(
    kind: Arc<K>,
    stop: Stop,
    planned: Planned<K::Plan>,
    announced: Option<Announced>,
    unless: Urgency,
    reports: Reports<Signal<K>>,
) -> Finished {
    let Planned { call, plan, .. } = planned;
    if let Some(announced) = announced {
        let durable = tokio::select! {
            biased;
            () = stop.at_least(unless) => false,
            durable = announced => durable,
        };
        if !durable {
            return (call, Ended::Stopped(KillReceipt::default()));
        }
    }
    let ended = kind.carry_out(&call, plan, &stop, &reports).await;
    (call, ended)
}

#[cfg(test)]
mod tests {
    use rye_core::clock::Timestamp;
    use rye_core::id::{ItemId, ItemRef};
    use rye_core::machine::{CallOutcome, Held};
    use rye_core::model::Object;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn result_is_charged_until_dropped_or_fails_without_memory() {
        let memory = Arc::new(Memory::new(1000));
        let finish = async |result: Arc<serde_json::Value>, charge: Held| {
            let item = ItemRef::tool(ItemId::new("t/t").unwrap());
            let call = Call::new(Slot::Main, item, Object::new(), Timestamp::default());
            let outcome = CallOutcome {
                charge,
                ..CallOutcome::known(result)
            };
            let ended = Ended::Outcome(Box::new(outcome));
            let attempt = async { (Box::new(call), ended) };
            let (_, ended) = charged(Arc::clone(&memory), attempt).await;
            let Ended::Outcome(outcome) = ended else {
                unreachable!("it had one")
            };
            outcome
        };
        let text = Arc::new(json!("x".repeat(600)));
        let first = finish(Arc::clone(&text), Held::default()).await;
        assert_eq!((&*first.result, &first.failure), (&*text, &None));
        let taken = memory.taken();
        assert!(taken > 600);
        let second = finish(Arc::clone(&text), Held::default()).await;
        let code = second.failure.map(|failure| failure.code);
        assert_eq!(code.as_deref(), Some("memory_exceeded"));
        assert!(second.result.is_null());
        // An existing charge is not made again.
        let third = finish(Arc::clone(&text), first.charge).await;
        assert_eq!((third.failure, memory.taken()), (None, taken));
        drop(third.charge);
        assert_eq!(memory.taken(), 0);
        let fourth = finish(text, Held::default()).await;
        assert_eq!(fourth.failure, None);
    }
}
