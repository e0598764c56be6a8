//! Plan of the next moves, made on a copy of the machine and committed completely or not at all.

use std::ops::Range;
use std::time::Duration;

use rye_core::clock::{Tick, Uptime};
use rye_core::id::RunId;
use rye_core::machine::{Call, CallOutcome, Gate, Machine, Move, gate};
use rye_core::model::{Effect, Event, Failure, RunEvent, Slot};
use rye_core::state::{RefusalReason, Refused};

use super::{Drive, Job, Kind, Query};
use rye_host::task;
use rye_journal::Change;

pub(super) struct Plan<K: Kind> {
    run: RunId,
    /// Machine after the commit.
    pub(super) machine: K::Machine,
    pub(super) changes: Vec<Change>,
    /// Calls that begin when the commit is durable.
    pub(super) calls: Vec<Planned<K::Plan>>,
}

/// A call that the plan announces.
pub(super) struct Planned<P> {
    pub(super) call: Box<Call>,
    pub(super) plan: P,
    /// Indices of the changes that announce it.
    announces: Range<usize>,
    /// Indices of the changes that create its child run.
    creates: Range<usize>,
}

/// Next step of the driver after a plan.
pub(super) enum Then {
    /// Asks the machine for another move.
    Continue,
    /// Waits for an end, a report, a request, or this time.
    Wait(Option<Uptime>),
    /// Returns, because the run is suspended or has ended.
    Rest,
}

impl<K: Kind> Plan<K> {
    /// Returns an empty plan on a copy of `machine`.
    pub(super) fn on(machine: &K::Machine) -> Self {
        Self {
            run: machine.run().id.clone(),
            machine: machine.clone(),
            changes: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub(super) async fn next(&mut self, now: Tick) -> Move<Query<K>> {
        let is_heavy = self.machine.is_heavy(None);
        apart(is_heavy, &mut self.machine, move |machine| {
            machine.next(now)
        })
        .await
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.calls.is_empty()
    }

    pub(super) fn note(&mut self, events: Vec<Event>) {
        let changes = events
            .into_iter()
            .map(|event| Change::event(&self.run, event));
        self.changes.extend(changes);
    }

    /// Adds the question to a person that a call waits for.
    fn ask(&mut self, now: Tick, events: Vec<RunEvent>) {
        for event in events {
            let events = self.machine.note(now, event);
            self.note(events);
        }
    }

    /// Adds a call that was looked up: its announcement, or its end if it has no effect. A call that turns out not to
    /// be startable here is left out.
    pub(super) async fn admit(&mut self, now: Tick, mut call: Box<Call>, mut job: Job<K::Plan>) {
        if let Job::Begin {
            plan,
            hashes,
            creates,
            ..
        } = &job
        {
            let found = K::effect(plan).filter(|_| call.undeclared);
            if let Some(effect) = found {
                (call.effect, call.undeclared) = (effect, false);
            }
            call.replays = K::replays(plan);
            call.result_text = K::result_text(plan);
            if !self.machine.looked_up(&call) {
                return;
            }
            let created = creates.iter().find_map(Change::created_item);
            match gate(self.machine.run(), &call, created, hashes, now.at) {
                Gate::Start => {}
                Gate::Wait => return,
                Gate::Ask(events) => return self.ask(now, events),
                Gate::End(outcome) => job = Job::Known(outcome, None),
            }
        }
        match job {
            Job::Exhausted(_) => {}
            Job::Known(outcome, announced) => {
                if let Some(hashes) = announced {
                    let events = self.machine.start(now, &call, None, hashes);
                    self.note(events);
                }
                let events = conclude(&mut self.machine, now, call.slot, outcome).await;
                self.note(events);
            }
            Job::Begin {
                plan,
                child,
                creates,
                hashes,
            } => {
                let first = self.changes.len();
                let events = self.machine.start(now, &call, child, hashes);
                self.note(events);
                let second = self.changes.len();
                self.changes.extend(creates);
                self.calls.push(Planned {
                    call,
                    plan,
                    announces: first..second,
                    creates: second..self.changes.len(),
                });
            }
        }
    }
}

/// Limits the time of a call to the time `left` of its run.
pub(super) fn limit(call: &mut Call, left: Option<Duration>) {
    if let Some(left) = left {
        call.timeout = Some(call.timeout.map_or(left, |timeout| timeout.min(left)));
    }
}

/// Passes the outcome of a call to the machine.
pub(super) async fn conclude<M: Machine>(
    machine: &mut M,
    now: Tick,
    slot: Slot,
    outcome: Box<CallOutcome>,
) -> Vec<Event> {
    let is_heavy = machine.is_heavy(Some(&outcome));
    let take_in = move |machine: &mut M| machine.conclude(now, slot, &outcome);
    apart(is_heavy, machine, take_in).await
}

/// Applies `work` to the machine. Heavy work runs on a blocking thread, so that it delays no other run.
async fn apart<M: Clone + Send + 'static, T: Send + 'static>(
    is_heavy: bool,
    machine: &mut M,
    work: impl FnOnce(&mut M) -> T + Send + 'static,
) -> T {
    if !is_heavy {
        return work(machine);
    }
    let mut moved = machine.clone();
    let work = move || {
        let made = work(&mut moved);
        (moved, made)
    };
    let (moved, made) = task::blocking("walk on", work).await;
    *machine = moved;
    made
}

/// Returns the failure of a call whose child run is refused, or `None` if the call has to be looked up again. Causes of
/// a refusal: budget, the limit of children of the parent, the limits of live runs, or an invalid record.
pub fn refused_child(refused: &Refused) -> Option<Failure> {
    let (code, retryable) = match &refused.why {
        RefusalReason::Budget(_) => ("hierarchical_budget_exceeded", false),
        RefusalReason::SpawnsUsedUp(_) => ("spawns_exceeded", false),
        RefusalReason::TooManyChildren(_) => ("too_many_children", false),
        RefusalReason::TreeFull(_)
        | RefusalReason::ThreadsFull(_)
        | RefusalReason::MemoryFull(_) => ("resource_exhausted", true),
        // The same child run would be refused again.
        RefusalReason::Illegal(_) | RefusalReason::Gone(_) => ("internal", false),
        RefusalReason::NotLive
        | RefusalReason::Exists
        | RefusalReason::KeyTaken(_)
        | RefusalReason::Full
        | RefusalReason::Stopping(_)
        | RefusalReason::Live
        | RefusalReason::Unsealed
        | RefusalReason::Named(_)
        | RefusalReason::Stale => return None,
    };
    Some(Failure {
        retryable,
        ..Failure::permanent(code, refused.to_string())
    })
}

impl<P> Planned<P> {
    /// True if `change` of the plan is part of the announcement of this call.
    pub(super) fn announces(&self, change: Option<usize>) -> bool {
        change.is_some_and(|change| self.announces.contains(&change))
    }

    /// True if `change` of the plan is part of the creation of this call's child run.
    pub(super) fn creates(&self, change: Option<usize>) -> bool {
        change.is_some_and(|change| self.creates.contains(&change))
    }

    /// A call that was announced earlier.
    pub(super) const fn again(call: Box<Call>, plan: P) -> Self {
        Self {
            call,
            plan,
            announces: 0..0,
            creates: 0..0,
        }
    }

    /// True if the call begins only after its announcement is durable.
    pub(super) fn waits(&self, strict: bool) -> bool {
        strict || self.call.effect == Effect::AtMostOnce
    }
}

impl<K: Kind> Drive<'_, K> {
    /// Concludes or refuses a call whose child run is refused. No other call is affected.
    pub(super) fn refuse_child(&mut self, call: &Call, refused: &Refused) {
        self.budget_wait.clear_if(call.slot);
        if let Some(failure) = refused_child(refused) {
            let outcome = CallOutcome::never_started(failure);
            tracing::info!(run = %self.id, %refused, "a child run is refused");
            self.childless.insert(call.slot, Box::new(outcome));
            return;
        }
        self.refuse(call, refused);
    }

    /// Passes the refusal of a call to the machine.
    pub(super) fn refuse(&mut self, call: &Call, refused: &Refused) {
        self.budget_wait.clear_if(call.slot);
        tracing::info!(run = %self.id, %refused, "a call is refused");
        let now = self.services.clock.tick();
        let events = self.machine.refused(now, call, &refused.why);
        self.facts.extend(events);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn heavy_machine_work_runs_on_blocking_thread() {
        let worker = thread::current().id();
        for is_heavy in [false, true] {
            let mut machine = 1;
            let at = apart(is_heavy, &mut machine, |machine| {
                *machine += 1;
                thread::current().id()
            });
            assert_eq!(at.await != worker, is_heavy);
            assert_eq!(machine, 2);
        }
    }
}
