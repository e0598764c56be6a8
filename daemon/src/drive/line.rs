//! A call whose start waits for budget that only open calls hold.
//!
//! Until it is woken, the run begins no later call. Calls in flight, the deadlines of the run and stop requests
//! continue. The run holds only a position in the queue. After a crash it requests the budget again.

use std::time::Duration;

use rye_core::clock::Uptime;
use rye_core::machine::{Call, Machine as _};
use rye_core::model::event::Warning;
use rye_core::model::{Event, Slot};
use rye_core::state::Refused;

use super::plan::Plan;
use super::{Drive, Kind};
use rye_journal::{BudgetSlot, Change, Committed};

/// Waiting time after which a warning is recorded.
const PATIENCE: Duration = Duration::from_secs(5);

/// The run's position in the budget queue, and the call that waits.
#[derive(Debug, Default)]
pub(super) struct BudgetWait {
    pub(super) place: Option<BudgetSlot>,
    waiting: Option<WaitingCall>,
}

#[derive(Debug)]
struct WaitingCall {
    slot: Slot,
    since: Uptime,
    /// Missing budget, for people.
    lacks: String,
    /// True if the call may retry.
    called: bool,
    /// True if the warning was recorded.
    told: bool,
}

impl BudgetWait {
    /// True if a call waits that may not retry yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.called)
    }

    /// True if `call` may not retry yet.
    pub(super) fn holds_up(&self, call: &Call) -> bool {
        self.is_waiting() && self.is_for(call.slot)
    }

    /// True if the waiting call has this slot.
    pub(super) fn is_for(&self, slot: Slot) -> bool {
        self.waiting
            .as_ref()
            .is_some_and(|waiting| waiting.slot == slot)
    }

    /// Records that the call `slot` was refused and is queued. If another call is waiting in the queue, both leave it
    /// and retry.
    pub(super) fn stand(&mut self, slot: Slot, now: Uptime, refused: &Refused) {
        if self.is_waiting() {
            return self.leave();
        }
        let waiting = self.waiting.take().filter(|waiting| waiting.slot == slot);
        let (since, told) = waiting.map_or((now, false), |before| (before.since, before.told));
        self.waiting = Some(WaitingCall {
            slot,
            since,
            lacks: refused.to_string(),
            called: false,
            told,
        });
    }

    /// Resolves when the waiting call may retry, and never if no call waits. Cancel safe.
    pub(super) async fn called(&self) {
        match &self.place {
            Some(place) if self.is_waiting() => place.called().await,
            Some(_) | None => std::future::pending().await,
        }
    }

    /// Allows the waiting call to retry.
    pub(super) const fn ask(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.called = true;
        }
    }

    /// Returns the time at which to record the warning that `call` waits, or the warning if it is due. Both are `None`
    /// after that.
    pub(super) fn say(&mut self, call: &Call, now: Uptime) -> (Option<Uptime>, Option<Event>) {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| !waiting.told) else {
            return (None, None);
        };
        let due = waiting.since.plus(PATIENCE);
        if now < due {
            return (Some(due), None);
        }
        waiting.told = true;
        let warning = Warning {
            node: (!call.node.is_empty()).then(|| call.node.clone()),
            message: format!(
                "waits for money that paid calls in flight hold: {}",
                waiting.lacks
            ),
        };
        (None, Some(warning.into()))
    }

    /// Leaves the queue if the waiting call has this slot.
    pub(super) fn give_up(&mut self, slot: Slot) {
        if self.is_for(slot) {
            self.leave();
        }
    }

    /// Leaves the queue.
    pub(super) fn leave(&mut self) {
        *self = Self::default();
    }
}

impl<K: Kind> Drive<'_, K> {
    /// Commits the facts, followed by `plans`, in one commit. If the plan lacks budget that open calls hold, the run
    /// joins the queue.
    pub(super) async fn commit_in_line(
        &mut self,
        plans: Vec<Change>,
    ) -> Result<Committed, rye_journal::Error> {
        if self.line.is_waiting() {
            return self.commit(plans).await;
        }
        let mut changes = self.changes(self.facts.iter().cloned());
        changes.extend(plans);
        let place = &mut self.line.place;
        let journal = &self.services.journal;
        let committed = journal.commit_in_line(changes, place).await?;
        self.line.leave();
        self.note_committed(&committed);
        Ok(committed)
    }

    /// Lets the next call and all later ones wait for budget. Returns the latest time to check again. Adds the warning
    /// to `plan` when it is due.
    pub(super) fn stand_in_line(&mut self, plan: &mut Plan<K>, call: &Call) -> Option<Uptime> {
        let now = self.services.clock.up();
        let (due, warning) = self.line.say(call, now);
        plan.note(warning.into_iter().collect());
        let deadline = plan.machine.time_left().map(|left| now.plus(left));
        due.into_iter().chain(deadline).min()
    }

    /// Leaves the queue unless `plan` contains the waiting call. The machine offers no further call, so a call outside
    /// `plan` no longer waits.
    pub(super) fn leave_line(&mut self, plan: &Plan<K>) {
        if !plan
            .calls
            .iter()
            .any(|planned| self.line.is_for(planned.call.slot))
        {
            self.line.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use rye_core::clock::Timestamp;
    use rye_core::id::{ItemId, ItemRef, RunId};
    use rye_core::ledger::{AccountId, Denied, LimitId, Shortfall};
    use rye_core::model::{Object, RunEvent};
    use rye_core::money::Usd;
    use rye_core::state::RefusalReason;

    use super::*;

    fn call() -> Call {
        let item = ItemRef::tool(ItemId::new("t/tool").unwrap());
        let call = Call::new(Slot::Main, item, Object::new(), Timestamp::default());
        Call {
            node: "n".into(),
            ..call
        }
    }

    fn refused() -> Refused {
        let run = RunId::new("t-1-a").unwrap();
        Refused {
            change: 0,
            run: run.clone(),
            why: RefusalReason::Budget(Denied::Short(Shortfall {
                asked: Usd::parse("0.5").unwrap(),
                lacking: LimitId::Account(AccountId(run)),
                limit: Usd::parse("1").unwrap(),
                used: Usd::parse("0.75").unwrap(),
                wait: true,
            })),
        }
    }

    #[test]
    fn long_budget_wait_warns_once() {
        let begin = Uptime::default();
        let due = begin.plus(PATIENCE);
        let mut line = BudgetWait::default();
        line.stand(Slot::Main, begin, &refused());
        assert_eq!(line.say(&call(), begin), (Some(due), None));
        // A second refusal does not restart the waiting time.
        line.ask();
        let later = begin.plus(Duration::from_secs(4));
        line.stand(Slot::Main, later, &refused());
        assert_eq!(line.say(&call(), later), (Some(due), None));
        let (next, said) = line.say(&call(), due);
        let Some(Event::Run(RunEvent::Warning(Warning { node, message }))) = said else {
            panic!("{said:?}");
        };
        assert_eq!((next, node.as_deref()), (None, Some("n")));
        assert!(
            message.contains("`t-1-a` may spend 1.000000000 USD"),
            "{message}"
        );
        assert_eq!(line.say(&call(), due.plus(PATIENCE)), (None, None));
    }

    #[test]
    fn waiting_call_is_blocked_until_woken() {
        let mut line = BudgetWait::default();
        assert!(!line.holds_up(&call()));
        line.stand(Slot::Main, Uptime::default(), &refused());
        assert!(line.holds_up(&call()));
        let other = Call {
            slot: Slot::Hook(1),
            ..call()
        };
        assert!(!line.holds_up(&other));
        line.give_up(Slot::Hook(1));
        line.ask();
        assert!(!line.holds_up(&call()));
        assert!(line.is_for(Slot::Main));
        line.give_up(Slot::Main);
        assert!(!line.is_for(Slot::Main));
    }

    #[test]
    fn second_refused_call_lets_both_retry() {
        let mut line = BudgetWait::default();
        line.stand(Slot::Part(3), Uptime::default(), &refused());
        line.stand(Slot::Part(1), Uptime::default(), &refused());
        assert!(!line.is_for(Slot::Part(3)) && !line.is_for(Slot::Part(1)));
        line.stand(Slot::Part(1), Uptime::default(), &refused());
        assert!(line.is_for(Slot::Part(1)));
    }
}
