//! A queue of one item between threads: senders merge into it, and the receiver takes all of it. A slow receiver thus
//! never blocks a sender; the type of the content bounds its size.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::watermark::{POISON, lock};

/// Longest delay of a post that is not urgent. Waking the receiver for every single post would cost more than the work
/// itself.
pub(crate) const LINGER: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(crate) struct CoalescingQueue<T> {
    content: Mutex<Content<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content<T> {
    value: T,
    /// Time at which the receiver is due; `None` if nothing was posted.
    due: Option<Instant>,
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) value: T,
    /// True if nothing will be posted any more.
    pub(crate) closed: bool,
}

impl<T: Default> CoalescingQueue<T> {
    /// Merges a post and wakes the receiver immediately.
    pub(crate) fn post(&self, merge: impl FnOnce(&mut T)) {
        self.put(merge, Duration::ZERO);
    }

    /// Merges a post that the receiver takes within [`LINGER`], or earlier with an urgent one.
    pub(crate) fn post_lazily(&self, merge: impl FnOnce(&mut T)) {
        self.put(merge, LINGER);
    }

    fn put(&self, merge: impl FnOnce(&mut T), patience: Duration) {
        let due = Instant::now() + patience;
        let sooner = {
            let mut content = lock(&self.content);
            merge(&mut content.value);
            let sooner = content.due.is_none_or(|known| due < known);
            if sooner {
                content.due = Some(due);
            }
            sooner
        };
        // After the lock is released, which the woken receiver takes first.
        if sooner {
            self.changed.notify_one();
        }
    }

    /// Closes the queue. Its content is still taken; then [`Taken::closed`] makes the receiver end.
    pub(crate) fn close(&self) {
        lock(&self.content).closed = true;
        self.changed.notify_one();
    }

    /// Waits until a post is due, the queue is closed or `timeout` is over, and takes the content. Blocks.
    pub(crate) fn take(&self, timeout: Option<Duration>) -> Taken<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut content = lock(&self.content);
        while !content.closed {
            content = match content.due.into_iter().chain(deadline).min() {
                None => self.changed.wait(content).expect(POISON),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.changed.wait_timeout(content, left).expect(POISON).0
                }
            };
        }
        content.due = None;
        Taken {
            value: std::mem::take(&mut content.value),
            closed: content.closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_post_waits_for_urgent_post_or_timeout() {
        let mailbox = CoalescingQueue::<Vec<u8>>::default();
        mailbox.post_lazily(|letters| letters.push(1));
        mailbox.post(|letters| letters.push(2));
        let began = Instant::now();
        assert_eq!(mailbox.take(None).value, [1, 2]);
        mailbox.post_lazily(|letters| letters.push(3));
        assert_eq!(mailbox.take(None).value, [3]);
        assert!(began.elapsed() >= LINGER);
        mailbox.post_lazily(|letters| letters.push(4));
        mailbox.close();
        let last = mailbox.take(None);
        assert_eq!((last.value, last.closed), (vec![4], true));
    }
}
