//! Calls that end, by themselves or because they are of no use any more.

use rye_core::machine::{Call, Machine as _};

use super::{Drive, Kind, plan};
use crate::services::Ended;
use crate::stop::Urgency;
use crate::storage_backoff;

impl<K: Kind> Drive<'_, K> {
    /// Stops calls whose outcome is of no use any more.
    pub(super) fn stop_useless(&self) {
        for slot in self.machine.useless() {
            self.stop.stop_call(slot);
        }
    }

    /// Takes the end of a call. A call that was stopped because of a cancel leaves no fact, since it did not complete.
    pub(super) async fn take(&mut self, call: Box<Call>, ended: Ended) {
        self.take_reports();
        let now = self.services.clock.tick();
        let is_useless = self.stop.release_call(call.slot);
        match ended {
            Ended::Stopped(_) if is_useless && self.stop.urgency() == Urgency::None => {
                let events = self.machine.stopped(now, call.slot);
                self.facts.extend(events);
            }
            Ended::Stopped(ended) => {
                self.receipt.merge(ended);
                self.machine.abandon(call.slot);
            }
            Ended::Suspended(child) => self.machine.suspend_for(call.slot, child),
            Ended::Exhausted(lack) => {
                self.shortage = Some(lack);
                self.unstarted.push(*call);
            }
            Ended::Outcome(outcome) => {
                self.tries = storage_backoff::Pauses::default();
                self.charges.push(outcome.charge.clone());
                let events = plan::conclude(&mut self.machine, now, call.slot, outcome).await;
                self.facts.extend(events);
            }
        }
    }
}
