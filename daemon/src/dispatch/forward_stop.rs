//! The stop of a run on its way to the process of a call.

use std::convert::Infallible;
use std::future::Future;

use rye_process::{StopReason, Stopper};

use crate::stop::Stop;

/// Once `due` resolves, forwards the stop signal of the run to the process of its call, and each escalation of it.
pub(super) async fn forward_stop(
    due: impl Future<Output = ()>,
    stop: &Stop,
    stopper: &Stopper,
) -> Infallible {
    due.await;
    let mut signal = stop.changes();
    loop {
        stopper.stop(match stop.grace() {
            Some(grace) => StopReason::Kill { grace },
            None => StopReason::Cancel,
        });
        signal.changed().await;
    }
}
