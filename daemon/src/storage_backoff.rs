//! Waits for disk space.
//!
//! A run whose commit failed with ENOSPC ([`rye_journal::Error::is_out_of_space`]) is suspended, keeps its pending
//! events in memory, and commits them when there is space. **Owns** the pauses between its tries. **Never** commits.
//! **Order.** While the disk of the log is full, nothing is tried. The store of long payloads does not report free
//! space, so it is retried after pauses that grow to 30 seconds.

use std::time::Duration;

use rye_core::model::KillReceipt;

use crate::stop::{DriverExit, Stop, Urgency};
use rye_host::clock::Timer;
use rye_journal::{Journal, Storage};

/// Pause before the first try.
const SHORTEST: Duration = Duration::from_millis(500);
/// Upper bound of a pause.
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses of one run.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Pauses {
    /// Returns the next pause and doubles the one after it.
    fn lengthen(&mut self) -> Duration {
        let longer = (self.next * 2).min(LONGEST);
        std::mem::replace(&mut self.next, longer)
    }

    /// Resolves with `None` when the next try is due, or with the exit of the suspended run if it is stopped before.
    pub async fn pass(
        &mut self,
        journal: &Journal,
        clock: &dyn Timer,
        stop: &Stop,
    ) -> Result<Option<DriverExit>, rye_journal::Error> {
        let pause = self.lengthen();
        let mut storage = journal.storage();
        let space = async {
            let found = storage.wait_for(|storage| *storage == Storage::Ok).await;
            drop(found.map_err(|_gone| rye_journal::Error::Closed)?);
            clock.sleep_until(clock.up().plus(pause)).await;
            Ok(None)
        };
        tokio::select! {
            biased;
            () = stop.at_least(Urgency::Shutdown) => {
                Ok(Some(DriverExit::Interrupted(KillReceipt::default())))
            }
            // The supervisor itself ends a suspended run that is cancelled.
            () = stop.at_least(Urgency::Cancel) => Ok(Some(DriverExit::Ended)),
            space = space => space,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_maximum() {
        let mut pauses = Pauses::default();
        let seconds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0];
        for pause in seconds {
            assert_eq!(pauses.lengthen(), Duration::from_secs_f64(pause));
        }
    }
}
