//! A hand-over between threads: a sender merges into what already lies there, the receiver takes all of it.
//! A slow reader thus never holds its writer up; how much may pile up is the content's affair.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::watermark::{POISON, lock};

/// How long what is in no hurry may lie. A reader that comes for each piece alone spends most of its time on coming.
pub(crate) const LINGER: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(crate) struct Mailbox<T> {
    content: Mutex<Content<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content<T> {
    value: T,
    /// When the reader is to come, if something was posted or left.
    due: Option<Instant>,
    closed: bool,
}

/// What the reader found.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) value: T,
    /// Nothing will come any more.
    pub(crate) closed: bool,
}

impl<T: Default> Mailbox<T> {
    /// The reader comes at once.
    pub(crate) fn post(&self, merge: impl FnOnce(&mut T)) {
        self.put(merge, Duration::ZERO);
    }

    /// The reader comes within [`LINGER`], or for what is posted before.
    pub(crate) fn leave(&self, merge: impl FnOnce(&mut T)) {
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
        // Not under the lock, which is the first thing the reader will want.
        if sooner {
            self.changed.notify_one();
        }
    }

    /// What is left is still taken; after that [`Taken::closed`] tells the reader to end.
    pub(crate) fn close(&self) {
        lock(&self.content).closed = true;
        self.changed.notify_one();
    }

    /// Waits until something is due, for the close, or for `timeout`, and takes what is there. Blocks.
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
    fn what_is_left_waits_for_what_is_posted_but_not_for_ever() {
        let mailbox = Mailbox::<Vec<u8>>::default();
        mailbox.leave(|letters| letters.push(1));
        mailbox.post(|letters| letters.push(2));
        let began = Instant::now();
        assert_eq!(mailbox.take(None).value, [1, 2]);
        mailbox.leave(|letters| letters.push(3));
        assert_eq!(mailbox.take(None).value, [3]);
        assert!(began.elapsed() >= LINGER);
        mailbox.leave(|letters| letters.push(4));
        mailbox.close();
        let last = mailbox.take(None);
        assert_eq!((last.value, last.closed), (vec![4], true));
    }
}
