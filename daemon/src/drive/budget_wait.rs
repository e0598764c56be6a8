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
    pub(super) slot_in_queue: Option<BudgetSlot>,
    waiting: Option<WaitingCall>,
}

#[derive(Debug)]
struct WaitingCall {
    slot: Slot,
    since: Uptime,
    /// Missing budget, for people.
    missing: String,
    /// True if the call may retry.
    may_retry: bool,
    /// True if the warning was recorded.
    warned: bool,
}

impl BudgetWait {
    /// True if a call waits that may not retry yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting
            .as_ref()
            .is_some_and(|waiting| !waiting.may_retry)
    }

    /// True if `call` may not retry yet.
    pub(super) fn blocks(&self, call: &Call) -> bool {
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
    pub(super) fn enqueue(&mut self, slot: Slot, now: Uptime, refused: &Refused) {
        if self.is_waiting() {
            return self.clear();
        }
        let waiting = self.waiting.take().filter(|waiting| waiting.slot == slot);
        let (since, told) = waiting.map_or((now, false), |before| (before.since, before.warned));
        self.waiting = Some(WaitingCall {
            slot,
            since,
            missing: refused.to_string(),
            may_retry: false,
            warned: told,
        });
    }

    /// Resolves when the waiting call may retry, and never if no call waits. Cancel safe.
    pub(super) async fn woken(&self) {
        match &self.slot_in_queue {
            Some(place) if self.is_waiting() => place.woken().await,
            Some(_) | None => std::future::pending().await,
        }
    }

    /// Allows the waiting call to retry.
    pub(super) const fn allow_retry(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.may_retry = true;
        }
    }

    /// Returns the time at which to record the warning that `call` waits, or the warning if it is due. Both are `None`
    /// after that.
    pub(super) fn warning(&mut self, call: &Call, now: Uptime) -> (Option<Uptime>, Option<Event>) {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| !waiting.warned) else {
            return (None, None);
        };
        let due = waiting.since.plus(PATIENCE);
        if now < due {
            return (Some(due), None);
        }
        waiting.warned = true;
        let warning = Warning {
            node: (!call.node.is_empty()).then(|| call.node.clone()),
            message: format!(
                "waits for money that paid calls in flight hold: {}",
                waiting.missing
            ),
        };
        (None, Some(warning.into()))
    }

    /// Leaves the queue if the waiting call has this slot.
    pub(super) fn clear_if(&mut self, slot: Slot) {
        if self.is_for(slot) {
            self.clear();
        }
    }

    /// Leaves the queue.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<K: Kind> Drive<'_, K> {
    /// Commits the facts, followed by `plans`, in one commit. If the plan lacks budget that open calls hold, the run
    /// joins the queue.
    pub(super) async fn commit_or_queue(
        &mut self,
        plans: Vec<Change>,
    ) -> Result<Committed, rye_journal::Error> {
        if self.budget_wait.is_waiting() {
            return self.commit(plans).await;
        }
        let mut changes = self.changes(self.facts.iter().cloned());
        changes.extend(plans);
        let place = &mut self.budget_wait.slot_in_queue;
        let journal = &self.services.journal;
        let committed = journal.commit_or_queue(changes, place).await?;
        self.budget_wait.clear();
        self.note_committed(&committed);
        Ok(committed)
    }

    /// Lets the next call and all later ones wait for budget. Returns the latest time to check again. Adds the warning
    /// to `plan` when it is due.
    pub(super) fn wait_for_budget(&mut self, plan: &mut Plan<K>, call: &Call) -> Option<Uptime> {
        let now = self.services.clock.up();
        let (due, warning) = self.budget_wait.warning(call, now);
        if let Some(warning) = warning {
            plan.note(vec![warning]);
            let delayed = plan.machine.delayed(self.services.clock.tick(), call);
            plan.note(delayed);
        }
        let deadline = plan.machine.time_left().map(|left| now.plus(left));
        due.into_iter().chain(deadline).min()
    }

    /// Leaves the queue unless `plan` contains the waiting call. The machine offers no further call, so a call outside
    /// `plan` no longer waits.
    pub(super) fn stop_waiting_for_budget(&mut self, plan: &Plan<K>) {
        if !plan
            .calls
            .iter()
            .any(|planned| self.budget_wait.is_for(planned.call.slot))
        {
            self.budget_wait.clear();
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
                requested: Usd::parse("0.5").unwrap(),
                at: LimitId::Account(AccountId(run)),
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
        line.enqueue(Slot::Main, begin, &refused());
        assert_eq!(line.warning(&call(), begin), (Some(due), None));
        // A second refusal does not restart the waiting time.
        line.allow_retry();
        let later = begin.plus(Duration::from_secs(4));
        line.enqueue(Slot::Main, later, &refused());
        assert_eq!(line.warning(&call(), later), (Some(due), None));
        let (next, said) = line.warning(&call(), due);
        let Some(Event::Run(RunEvent::Warning(Warning { node, message }))) = said else {
            panic!("{said:?}");
        };
        assert_eq!((next, node.as_deref()), (None, Some("n")));
        assert!(
            message.contains("`t-1-a` may spend 1.000000000 USD"),
            "{message}"
        );
        assert_eq!(line.warning(&call(), due.plus(PATIENCE)), (None, None));
    }

    #[test]
    fn waiting_call_is_blocked_until_woken() {
        let mut line = BudgetWait::default();
        assert!(!line.blocks(&call()));
        line.enqueue(Slot::Main, Uptime::default(), &refused());
        assert!(line.blocks(&call()));
        let other = Call {
            slot: Slot::Hook(1),
            ..call()
        };
        assert!(!line.blocks(&other));
        line.clear_if(Slot::Hook(1));
        line.allow_retry();
        assert!(!line.blocks(&call()));
        assert!(line.is_for(Slot::Main));
        line.clear_if(Slot::Main);
        assert!(!line.is_for(Slot::Main));
    }

    #[test]
    fn second_refused_call_lets_both_retry() {
        let mut line = BudgetWait::default();
        line.enqueue(Slot::Part(3), Uptime::default(), &refused());
        line.enqueue(Slot::Part(1), Uptime::default(), &refused());
        assert!(!line.is_for(Slot::Part(3)) && !line.is_for(Slot::Part(1)));
        line.enqueue(Slot::Part(1), Uptime::default(), &refused());
        assert!(line.is_for(Slot::Part(1)));
    }
}
