//! The line of those whose commit was refused because money lacks that only open calls hold.
//!
//! Who asks with [`Journal::commit_in_line`](crate::journal::Journal::commit_in_line) and is refused for that reason gets a [`Place`] in the same
//! moment, so that nothing freed meanwhile is missed. It is called when money may be there, and asks again with its place; nobody who
//! came later is served before it at the account where it lacks money. A place that is dropped is left.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, MutexGuard};

use rye_core::state::{Arrival, Refused};
use tokio::sync::Notify;

use super::{Order, Sequencer};

/// A place in the line.
pub struct Place {
    sequencer: Arc<Sequencer>,
    arrival: Arrival,
    call: Arc<Notify>,
}

impl Place {
    /// Resolves when it is worth asking again. Cancel safe.
    pub async fn called(&self) {
        self.call.notified().await;
    }

    pub(crate) const fn arrival(&self) -> Arrival {
        self.arrival
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.arrival).finish()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sequencer = self.sequencer.lock();
        sequencer.line.0.remove(&self.arrival);
        let behind = sequencer.state.leave(self.arrival);
        sequencer.line.call(&behind);
    }
}

/// Who asks for a commit: somebody who would rather wait than be refused, with the place it has, or somebody who would not.
pub(crate) type Asker<'a> = Option<&'a mut Option<Place>>;

/// How those who wait are called.
#[derive(Debug, Default)]
pub(crate) struct Line(HashMap<Arrival, Arc<Notify>>);

impl Line {
    pub(crate) fn call(&self, arrivals: &[Arrival]) {
        for call in arrivals.iter().filter_map(|arrival| self.0.get(arrival)) {
            call.notify_one();
        }
    }
}

impl Sequencer {
    /// Lets `asker`, whose commit was refused under this very lock, wait if that is worth it.
    pub(crate) fn stand_in_line(
        self: &Arc<Self>,
        mut sequencer: MutexGuard<'_, Order>,
        refused: &Refused,
        asker: Asker<'_>,
    ) {
        let (Some(place), Some(lacking)) = (asker, refused.lacking()) else {
            return;
        };
        let (arrival, behind) = sequencer
            .state
            .wait(place.as_ref().map(Place::arrival), lacking);
        sequencer.line.call(&behind);
        if place.is_none() {
            let call = Arc::new(Notify::new());
            sequencer.line.0.insert(arrival, Arc::clone(&call));
            *place = Some(Place {
                sequencer: Arc::clone(self),
                arrival,
                call,
            });
        }
    }
}
