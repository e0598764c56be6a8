//! Signals as the programs under test find them.
//!
//! A shell that starts a command in the background lets it ignore SIGINT and SIGQUIT, and whatever that command starts
//! inherits it. No test may depend on how its caller did that.
#![expect(
    unsafe_code,
    reason = "a disposition is set by a call that may install a handler; this one installs none"
)]

use std::sync::Once;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Gives SIGINT and SIGQUIT their default meaning in this process, once, and so in all that it starts.
pub(crate) fn restore() {
    static RESTORED: Once = Once::new();
    RESTORED.call_once(|| {
        for terminal in [Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: no handler is installed, and no other code of this process sets these dispositions.
            unsafe { signal(terminal, SigHandler::SigDfl) }
                .expect("a known signal has a disposition");
        }
    });
}
