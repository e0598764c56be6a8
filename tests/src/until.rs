//! Waits for effects outside of this process.

use std::thread;
use std::time::{Duration, Instant};

pub use rye_model_server::PATIENCE;

/// Calls `look` until it returns a value, with pauses that grow to 20 ms.
///
/// # Panics
/// If there is no value within [`PATIENCE`]. `what` names the expectation.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let found = within(PATIENCE, look);
    assert!(found.is_some(), "waited {PATIENCE:?} for {what}");
    found.expect("it was just looked at")
}

/// Works like [`until`], but waits for at most `limit` and then returns `None`.
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
