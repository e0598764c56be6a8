//! Signal dispositions of the programs under test.
//!
//! A shell that starts a command in the background makes it ignore SIGINT and SIGQUIT, `nohup` SIGHUP, and the children
//! of the command inherit that. The tests must not depend on their caller, so they restore the defaults.
#![expect(
    unsafe_code,
    reason = "a disposition is set by a call that may install a handler; this one installs none"
)]

use std::sync::Once;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Restores the default disposition of SIGINT, SIGQUIT and SIGHUP in this process, once. All children inherit it.
pub(crate) fn restore() {
    static RESTORED: Once = Once::new();
    RESTORED.call_once(|| {
        for terminal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
            // SAFETY: no handler is installed, and no other code of this process sets these dispositions.
            unsafe { signal(terminal, SigHandler::SigDfl) }
                .expect("a known signal has a disposition");
        }
    });
}
