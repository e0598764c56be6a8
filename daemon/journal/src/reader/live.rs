//! The events of one run merged with the deltas of its model.

use std::fmt;
use std::sync::Arc;

use rye_core::id::Seq;

use super::cursor::Cursor;
use crate::error::Error;
use crate::record::Line;
use crate::stream::{Delta, DeltaListeners, DeltaQueue};

/// An item for a listener.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    Line(Line),
    /// A piece of the output of the model.
    Delta(Delta),
}

/// A subscription to the events of one run, and to the deltas of its model.
pub struct Live {
    events: Cursor,
    /// Subscription to the deltas, if the run was in memory.
    deltas: Option<DeltaSubscription>,
    /// An event that waits until the deltas before it are shown.
    held: Option<Line>,
    /// The last event that was shown.
    last: Seq,
}

/// Membership among the listeners of a run; dropping it leaves them.
struct DeltaSubscription {
    listeners: Arc<DeltaListeners>,
    queue: Arc<DeltaQueue>,
}

impl Drop for DeltaSubscription {
    fn drop(&mut self) {
        self.listeners.remove(&self.queue);
    }
}

impl Live {
    /// Merges `events`, the events of the run after `last`, with the deltas of `ears`.
    pub(crate) fn new(events: Cursor, ears: Option<Arc<DeltaListeners>>, last: Seq) -> Self {
        let hears = ears.map(|ears| DeltaSubscription {
            queue: ears.join(),
            listeners: ears,
        });
        Self {
            events,
            deltas: hears,
            held: None,
            last,
        }
    }

    /// Returns the next item; `None` after the event that ended the run. After an error nothing follows. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Shown, Error>> {
        loop {
            if let Some(delta) = self.take() {
                return Some(Ok(Shown::Delta(delta)));
            }
            if let Some(line) = self.held.take() {
                self.last = line.seq;
                return Some(Ok(Shown::Line(line)));
            }
            let hears = self.deltas.as_ref();
            let comes = async {
                match hears {
                    Some(hears) => hears.queue.added.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.events.next() => match read? {
                    // Deltas that were sent before it are in the queue by now.
                    Ok(read) => self.held = read.line(),
                    Err(error) => return Some(Err(error)),
                },
                () = comes => {}
            }
        }
    }

    fn take(&self) -> Option<Delta> {
        let hears = self.deltas.as_ref()?;
        hears.queue.take(self.last)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
