//! Stop signal of one run, and the response of its driver.
//!
//! **Owns** the urgency of a stop, and its cause. **Never** stops anything itself: the driver checks the signal between
//! steps, and a call in flight is notified by [`Stop::at_least`]. **Order.** Urgency only escalates, and a grace period
//! only shrinks; the first cause is kept.
//!
//! Each call has a handle of its own on the signal of its run ([`Stop::for_call`]), so that one call can be stopped. It
//! depends on the effect of the call what a stop of useless work means: an at-most-once call ends by itself.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rye_core::model::{Effect, KillReceipt, Slot};
use rye_process::{StopReason, Stopper};
use tokio::sync::watch;

/// Grace period of the call in flight of a cancelled run: long enough for a tool to clean up, short enough to wait for.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Cause of a cancel because of another run, or another item of a node, that failed.
pub const SIBLING_FAILURE: &str = "sibling_failure";

/// Urgency of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Urgency {
    /// No stop is requested.
    #[default]
    None,
    /// End before the next step; the call in flight may end by itself within its grace period.
    Cancel,
    /// The daemon stops: leave the call in flight, to be repeated after the next start.
    Shutdown,
    /// End now.
    Kill,
}

/// Treatment of the calls in flight of a cancelled run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelMode {
    /// Each may end by itself within a grace period.
    Graceful,
    /// The run is of no use any more: its calls end at once, at-most-once ones by themselves, however long they take.
    Useless,
}

#[derive(Debug, Clone, Default)]
struct Signal {
    urgency: Urgency,
    cause: Option<String>,
    killer: Option<String>,
    grace: Option<Duration>,
    held: bool,
    /// Requested modes of the cancel.
    is_graceful: bool,
    is_useless: bool,
    /// The calls that are stopped alone.
    stopped: BTreeSet<Slot>,
}

/// The call that has a handle.
#[derive(Debug, Clone, Copy)]
struct StoppableCall {
    slot: Slot,
    effect: Effect,
}

impl Signal {
    /// Returns the urgency for the run, or for one call of it.
    fn urgency_for(&self, call: Option<StoppableCall>) -> Urgency {
        match call {
            Some(call) if self.urgency <= Urgency::Cancel => {
                let once = call.effect == Effect::AtMostOnce;
                let cancelled = self.is_graceful || (self.is_useless && !once);
                if cancelled || self.stopped.contains(&call.slot) {
                    Urgency::Cancel
                } else {
                    Urgency::None
                }
            }
            Some(_) | None => self.urgency,
        }
    }

    /// True if the call must end at once, without being killed. Hooks have a grace period.
    fn ends_at_once(&self, call: Option<StoppableCall>) -> bool {
        call.is_some_and(|call| {
            let may_end = call.effect != Effect::AtMostOnce && !matches!(call.slot, Slot::Hook(_));
            (self.is_useless && may_end) || self.stopped.contains(&call.slot)
        })
    }

    fn shorten(&mut self, grace: Duration) {
        self.grace = Some(self.grace.map_or(grace, |before| before.min(grace)));
    }
}

/// Result of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverExit {
    /// The run has its terminal event.
    Ended,
    /// The run is being killed, or the daemon stops and its next start recovers the run. The receipt lists the ended
    /// parts of the call in flight.
    Interrupted(KillReceipt),
}

impl DriverExit {
    /// Receipt of the parts that had to be ended.
    pub fn into_receipt(self) -> KillReceipt {
        match self {
            Self::Ended => KillReceipt::default(),
            Self::Interrupted(receipt) => receipt,
        }
    }
}

/// Handle on a signal; clones share the signal.
#[derive(Debug, Clone)]
pub struct Stop {
    signal: Arc<watch::Sender<Signal>>,
    /// The call to which the handle belongs; without one it is that of the run.
    call: Option<StoppableCall>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    pub fn new() -> Self {
        Self {
            signal: Arc::new(watch::Sender::new(Signal::default())),
            call: None,
        }
    }

    /// Returns the handle of a call with that effect.
    #[must_use]
    pub fn for_call(&self, slot: Slot, effect: Effect) -> Self {
        Self {
            signal: Arc::clone(&self.signal),
            call: Some(StoppableCall { slot, effect }),
        }
    }

    /// Stops one call at once, until [`Stop::release_call`].
    pub fn stop_call(&self, slot: Slot) {
        self.signal
            .send_if_modified(|signal| signal.stopped.insert(slot));
    }

    /// Ends the stop of a call, which has ended. Returns true if it was stopped alone.
    pub fn release_call(&self, slot: Slot) -> bool {
        let mut was_stopped = false;
        self.signal.send_if_modified(|signal| {
            was_stopped = signal.stopped.remove(&slot);
            false
        });
        was_stopped
    }

    /// True if both handles share one signal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.signal, &other.signal)
    }

    /// Requests a stop before the next step.
    pub fn cancel(&self, cause: &str, mode: CancelMode) {
        self.raise(Urgency::Cancel, |signal| {
            signal.cause.get_or_insert_with(|| cause.to_owned());
            match mode {
                CancelMode::Graceful => signal.is_graceful = true,
                CancelMode::Useless => signal.is_useless = true,
            }
        });
    }

    /// Requests a suspension before the next attempt.
    pub fn hold(&self) {
        self.raise(Urgency::None, |signal| signal.held = true);
    }

    /// True if a suspension before the next attempt is requested.
    pub fn is_held(&self) -> bool {
        self.signal.borrow().held
    }

    /// Notifies the run that the daemon stops; its processes get `grace` between TERM and KILL.
    pub fn shut_down(&self, grace: Duration) {
        self.raise(Urgency::Shutdown, |signal| signal.shorten(grace));
    }

    /// Ends the run now, for `cause`; its processes get `grace` between TERM and KILL.
    pub fn kill(&self, cause: &str, grace: Duration) {
        self.raise(Urgency::Kill, |signal| {
            signal.killer.get_or_insert_with(|| cause.to_owned());
            signal.shorten(grace);
        });
    }

    fn raise(&self, urgency: Urgency, note: impl FnOnce(&mut Signal)) {
        self.signal.send_modify(|signal| {
            signal.urgency = signal.urgency.max(urgency);
            note(signal);
        });
    }

    pub fn urgency(&self) -> Urgency {
        self.signal.borrow().urgency_for(self.call)
    }

    /// Returns the mode in which runs below are cancelled.
    pub fn mode(&self) -> CancelMode {
        let signal = self.signal.borrow();
        if !signal.is_graceful && (signal.is_useless || signal.ends_at_once(self.call)) {
            CancelMode::Useless
        } else {
            CancelMode::Graceful
        }
    }

    /// Source of the cancel request.
    pub fn cancel_cause(&self) -> Option<String> {
        self.signal.borrow().cause.clone()
    }

    /// Source of the kill request.
    pub fn killer(&self) -> Option<String> {
        self.signal.borrow().killer.clone()
    }

    /// Shortest requested time between TERM and KILL.
    pub fn grace(&self) -> Option<Duration> {
        self.signal.borrow().grace
    }

    /// True if the driver must leave its run: the daemon stops, or the run is being killed.
    pub fn is_shutdown(&self) -> bool {
        self.urgency() >= Urgency::Shutdown
    }

    /// Subscribes to changes from now on. Subscribe before reading the signal, or a change in between is missed.
    pub fn changes(&self) -> Changes {
        Changes(self.signal.subscribe())
    }

    /// Resolves once the urgency has reached `urgency`. Cancel safe.
    pub async fn at_least(&self, urgency: Urgency) {
        let mut signal = self.signal.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        if signal
            .wait_for(|signal| signal.urgency_for(self.call) >= urgency)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the call in flight must be ended: at once if the daemon stops or the call is of no use, after the
    /// grace period if the run is cancelled. Cancel safe.
    pub async fn due(&self) {
        let mut signal = self.signal.subscribe();
        let useless = async {
            // The sender lives as long as `self`, so waiting cannot fail.
            let ends = signal.wait_for(|signal| signal.ends_at_once(self.call));
            if ends.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let cancelled = async {
            self.at_least(Urgency::Cancel).await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            () = cancelled => {}
            () = useless => {}
            () = self.at_least(Urgency::Shutdown) => {}
        }
    }

    /// Once `due` resolves, forwards this signal to the process that `stopper` stops, and each escalation of it.
    pub async fn forward(&self, due: impl Future<Output = ()>, stopper: &Stopper) -> Infallible {
        due.await;
        let mut signal = self.changes();
        loop {
            stopper.stop(match self.grace() {
                Some(grace) => StopReason::Kill { grace },
                None => StopReason::Cancel,
            });
            signal.changed().await;
        }
    }
}

/// Subscription to a stop signal.
#[derive(Debug)]
pub struct Changes(watch::Receiver<Signal>);

impl Changes {
    /// Resolves at the next change; never if no handle on the signal is left. Cancel safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn stop_urgency_escalates_and_keeps_first_cause() {
        let stop = Stop::new();
        stop.kill("uid:6", Duration::from_secs(1));
        stop.kill("uid:5", Duration::from_secs(2));
        stop.cancel("uid:7", CancelMode::Graceful);
        stop.cancel("uid:8", CancelMode::Graceful);
        stop.shut_down(Duration::from_secs(3));
        assert_eq!(stop.urgency(), Urgency::Kill);
        assert_eq!(stop.cancel_cause().as_deref(), Some("uid:7"));
        assert_eq!(stop.killer().as_deref(), Some("uid:6"));
        assert_eq!(stop.grace(), Some(Duration::from_secs(1)));
        stop.at_least(Urgency::Cancel).await;
    }

    #[tokio::test]
    async fn useless_work_ends_at_once_unless_it_is_at_most_once() {
        let stop = Stop::new();
        let [first, second] = [1, 2].map(|item| stop.for_call(Slot::Part(item), Effect::Pure));
        let once = stop.for_call(Slot::Part(3), Effect::AtMostOnce);
        stop.stop_call(Slot::Part(1));
        assert_eq!(first.due().now_or_never(), Some(()));
        assert_eq!(first.urgency(), Urgency::Cancel);
        assert_eq!(second.due().now_or_never(), None);
        assert_eq!(stop.urgency(), Urgency::None, "the run continues");
        assert!(stop.release_call(Slot::Part(1)) && !stop.release_call(Slot::Part(2)));
        assert_eq!(first.due().now_or_never(), None, "another call of the item");

        stop.cancel("its parent", CancelMode::Useless);
        assert_eq!(second.due().now_or_never(), Some(()));
        assert_eq!(once.due().now_or_never(), None);
        assert_eq!(once.urgency(), Urgency::None);
        assert_eq!(stop.urgency(), Urgency::Cancel, "nothing starts");
        stop.cancel("uid:7", CancelMode::Graceful);
        assert_eq!(once.urgency(), Urgency::Cancel, "within its grace period");
        stop.kill("uid:7", Duration::ZERO);
        assert_eq!(once.due().now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn stop_raised_before_wait_is_delivered_once() {
        let stop = Stop::new();
        let mut changes = stop.changes();
        stop.hold();
        changes.changed().await;
        assert_eq!(changes.changed().now_or_never(), None);
    }
}
