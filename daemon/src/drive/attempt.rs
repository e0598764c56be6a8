//! One attempt, from its announcement to its end, beside its driver.
//!
//! Nothing the driver waits for keeps its output, its timeouts or a request to stop from being looked after.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rye_core::machine::Call;
use rye_core::model::{KillReceipt, Slot};
use tokio::sync::mpsc;

use super::plan::Planned;
use super::{Ended, Kind, Signal};
use crate::journal::Ticket;
use crate::services::Services;
use crate::stop::{Stop, Urgency};
use crate::task::Group;

/// Attempts in flight.
pub(super) type Attempts = Group<(Box<Call>, Ended)>;

/// Where an attempt reports to before it ends.
pub struct Reports<S> {
    slot: Slot,
    driver: mpsc::Sender<(Slot, S)>,
}

impl<S> Reports<S> {
    pub(super) const fn new(slot: Slot, driver: mpsc::Sender<(Slot, S)>) -> Self {
        Self { slot, driver }
    }

    /// Reports to the machine; waits while the driver has many reports to hear.
    pub async fn tell(&self, signal: S) {
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

/// Whether a commit became durable, once that is known.
pub(super) type Announced = BoxFuture<'static, bool>;

/// The wait for the commit `ticket` of each of the `count` attempts that it announces. They all wait for one and the same, and so begin
/// together; a single one waits by itself, for what is shared wakes also the task that has just been woken by it.
pub(super) fn announced(services: &Arc<Services>, ticket: Ticket, count: usize) -> Vec<Announced> {
    let services = Arc::clone(services);
    let durable = async move { services.journal.durable(ticket).await.is_ok() }.boxed();
    if count <= 1 {
        return vec![durable];
    }
    let durable = durable.shared();
    (0..count).map(|_| durable.clone().boxed()).collect()
}

/// Waits until `announced` is durable, and carries the call out. One whose run was stopped before that, as urgently as `unless`
/// or more, or whose announcement never became durable, has not begun and does not begin.
pub(super) async fn attempt<K: Kind>(
    kind: Arc<K>,
    stop: Stop,
    planned: Planned<K::Plan>,
    announced: Option<Announced>,
    unless: Urgency,
    reports: Reports<Signal<K>>,
) -> (Box<Call>, Ended) {
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
