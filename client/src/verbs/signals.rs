//! Signals that end a verb early.

use rye_client::exit::Exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::local_error::LocalError;

/// Listens for SIGINT.
pub(super) fn interrupts() -> Result<Signal, LocalError> {
    listen(SignalKind::interrupt())
}

pub(super) fn listen(kind: SignalKind) -> Result<Signal, LocalError> {
    signal(kind)
        .map_err(|error| LocalError::because(Exit::Internal, "cannot listen for Ctrl-C", error))
}
