//! The events of one run and what its model says, together.

use std::fmt;
use std::sync::Arc;

use rye_core::id::Seq;

use super::cursor::Cursor;
use crate::error::Error;
use crate::record::Line;
use crate::stream::{Delta, Ear, Ears};

/// What a listener is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// An event.
    Line(Line),
    /// More of what the model says.
    Delta(Delta),
}

/// A subscription to one run, and to what its model says.
pub struct Live {
    events: Cursor,
    /// What was said, while the run lives.
    hears: Option<Hears>,
    /// An event that waits until what was said before it is shown.
    held: Option<Line>,
    /// The last event that was shown.
    last: Seq,
}

/// A place among the listeners of a run, given back when it is dropped.
struct Hears {
    ears: Arc<Ears>,
    ear: Arc<Ear>,
}

impl Drop for Hears {
    fn drop(&mut self) {
        self.ears.leave(&self.ear);
    }
}

impl Live {
    /// The events of the run after `last`, which `events` reads, and what `ears` hear.
    pub(crate) fn new(events: Cursor, ears: Option<Arc<Ears>>, last: Seq) -> Self {
        let hears = ears.map(|ears| Hears {
            ear: ears.join(),
            ears,
        });
        Self {
            events,
            hears,
            held: None,
            last,
        }
    }

    /// What is shown next; `None` after the event that ended the run. After an error it is over. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Shown, Error>> {
        loop {
            if let Some(delta) = self.take() {
                return Some(Ok(Shown::Delta(delta)));
            }
            if let Some(line) = self.held.take() {
                self.last = line.seq;
                return Some(Ok(Shown::Line(line)));
            }
            let hears = self.hears.as_ref();
            let comes = async {
                match hears {
                    Some(hears) => hears.ear.comes.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.events.next() => match read? {
                    // What was said before it is waiting by now.
                    Ok(read) => self.held = read.line(),
                    Err(error) => return Some(Err(error)),
                },
                () = comes => {}
            }
        }
    }

    fn take(&self) -> Option<Delta> {
        let hears = self.hears.as_ref()?;
        hears.ear.take(self.last)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
