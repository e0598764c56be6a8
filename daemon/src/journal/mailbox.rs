//! A hand-over between threads: whoever posts merges into what already lies there, whoever takes gets all of it.
//! A slow reader thus never holds its writer up; how much may pile up is the content's affair.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::mark::{POISON, lock};

#[derive(Debug, Default)]
pub(super) struct Mailbox<T> {
    content: Mutex<Content<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content<T> {
    value: T,
    posted: bool,
    closed: bool,
}

/// What the reader found.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) value: T,
    /// Nothing will come any more.
    pub(super) closed: bool,
}

impl<T: Default> Mailbox<T> {
    pub(super) fn post(&self, merge: impl FnOnce(&mut T)) {
        let mut content = lock(&self.content);
        merge(&mut content.value);
        content.posted = true;
        self.changed.notify_one();
    }

    /// What is left is still taken; after that [`Taken::closed`] tells the reader to end.
    pub(super) fn close(&self) {
        lock(&self.content).closed = true;
        self.changed.notify_one();
    }

    /// Waits for a post, for the close, or for `timeout`, and takes what is there. Blocks.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Taken<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut content = lock(&self.content);
        while !content.posted && !content.closed {
            content = match deadline {
                None => self.changed.wait(content).expect(POISON),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.changed.wait_timeout(content, left).expect(POISON).0
                }
            };
        }
        content.posted = false;
        Taken {
            value: std::mem::take(&mut content.value),
            closed: content.closed,
        }
    }
}
