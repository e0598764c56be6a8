//! Waiting for what happens outside of this process.

use std::thread;
use std::time::{Duration, Instant};

pub use rye_model_server::PATIENCE;

/// Looks until `look` finds something, with pauses that grow to 20 ms.
///
/// # Panics
/// If nothing was found within [`PATIENCE`]; `what` says what was waited for.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let found = within(PATIENCE, look);
    assert!(found.is_some(), "waited {PATIENCE:?} for {what}");
    found.expect("it was just looked at")
}

/// As [`until`], but for up to `limit`; `None` if nothing was found by then.
pub fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
