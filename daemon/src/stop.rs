//! Stop signal of one run, and the response of its driver.
//!
//! **Owns** the urgency of a stop, and its cause. **Never** stops anything itself: the driver checks the signal between
//! steps, and a call in flight is notified by [`Stop::at_least`]. **Order.** Urgency only escalates, and a grace period
//! only shrinks; the first cause is kept.

use std::sync::Arc;
use std::time::Duration;

use rye_core::model::KillReceipt;
use tokio::sync::watch;

/// Grace period of the call in flight of a cancelled run: long enough for a tool to clean up, short enough to wait for.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

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

#[derive(Debug, Clone, Default)]
struct Signal {
    urgency: Urgency,
    cause: Option<String>,
    killer: Option<String>,
    grace: Option<Duration>,
    held: bool,
}

impl Signal {
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
        }
    }

    /// True if both handles share one signal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.signal, &other.signal)
    }

    /// Requests a stop before the next step.
    pub fn cancel(&self, cause: &str) {
        self.raise(Urgency::Cancel, |signal| {
            signal.cause.get_or_insert_with(|| cause.to_owned());
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
        self.signal.borrow().urgency
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
            .wait_for(|signal| signal.urgency >= urgency)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the call in flight must be ended: at once if the daemon stops, after the grace period if the run
    /// is cancelled. Cancel safe.
    pub async fn due(&self) {
        let cancelled = async {
            self.at_least(Urgency::Cancel).await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            () = cancelled => {}
            () = self.at_least(Urgency::Shutdown) => {}
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
        stop.cancel("uid:7");
        stop.cancel("uid:8");
        stop.shut_down(Duration::from_secs(3));
        assert_eq!(stop.urgency(), Urgency::Kill);
        assert_eq!(stop.cancel_cause().as_deref(), Some("uid:7"));
        assert_eq!(stop.killer().as_deref(), Some("uid:6"));
        assert_eq!(stop.grace(), Some(Duration::from_secs(1)));
        stop.at_least(Urgency::Cancel).await;
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
