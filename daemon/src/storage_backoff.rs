//! Waiting for a place to write to.
//!
//! A run whose commit was refused for lack of space ([`journal::Error::is_out_of_space`]) parks, keeps what it has to say in
//! memory, and says it again when there is room. **Owns** the pauses between its tries. **Never** commits. **Order.** While
//! the disk that holds the log is full, nothing is tried. The store of long payloads does not tell when it has room, so it
//! is tried again and again, after pauses that grow to half a minute.

use std::time::Duration;

use rye_core::model::KillReceipt;

use crate::journal::{self, Journal, Storage};
use crate::stop::{DriverExit, Stop, Urgency};

/// Pause before the first try.
const SHORTEST: Duration = Duration::from_millis(500);
/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The pauses of one run.
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
    /// The next pause; each is twice as long as the one before.
    fn lengthen(&mut self) -> Duration {
        let longer = (self.next * 2).min(LONGEST);
        std::mem::replace(&mut self.next, longer)
    }

    /// Resolves when the next try is due; with how the run, which is parked, was left if it was stopped before.
    pub async fn pass(
        &mut self,
        journal: &Journal,
        stop: &Stop,
    ) -> Result<Option<DriverExit>, journal::Error> {
        let pause = self.lengthen();
        let mut storage = journal.storage();
        let room = async {
            let space = storage.wait_for(|storage| *storage == Storage::Ok).await;
            drop(space.map_err(|_gone| journal::Error::Closed)?);
            tokio::time::sleep(pause).await;
            Ok(None)
        };
        tokio::select! {
            biased;
            () = stop.at_least(Urgency::Shutdown) => {
                Ok(Some(DriverExit::Interrupted(KillReceipt::default())))
            }
            // The supervisor ends a parked run itself when it is cancelled.
            () = stop.at_least(Urgency::Cancel) => Ok(Some(DriverExit::Ended)),
            room = room => room,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::default();
        let seconds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0];
        for pause in seconds {
            assert_eq!(pauses.lengthen(), Duration::from_secs_f64(pause));
        }
    }
}
