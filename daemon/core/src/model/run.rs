//! The record of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::approval::Approval;
use super::approvals::Approvals;
use super::attempt::{Attempt, AttemptId, Slot, Unknown, attempt_name};
use super::budget::{Because, OpenCall};
use super::chunks::Chunks;
use super::event::{
    BudgetSettled, Event, GraphEvent, RunEvent, RunKilled, RunResumed, RunStarted, ThreadEvent,
    UncertainAnswered, While,
};
use super::failure::Failure;
use super::graph::{SuppressedError, UnfinishedWork};
use super::kill::{Kill, KillReceipt};
use super::life::{Illegal, Life, Outcome, Status};
use super::limits::{Below, is_zero};
use super::round::Round;
use super::spec::Spec;
use super::suspension::Suspension;
use super::work::Work;
use super::{event, graph, process, thread};
use crate::bounds;
use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::{Epoch, RunId, Seq};
use crate::ledger::Usage;

/// The record of a run. A copy shares all parts that may be large.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub spec: Arc<Spec>,
    /// Time at which it was accepted.
    pub created_at: Timestamp,
    /// Time at which a task first owned it.
    pub started_at: Option<Timestamp>,
    /// Time at which it last began to run, or was resumed.
    pub active_since: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Number of its last event.
    pub seq: Seq,
    /// The daemon's life that owns it.
    pub epoch: Epoch,
    /// Number of deaths of the daemon while it was computing for this run, since a part of the run last ended, and
    /// since the daemon last stopped in good order.
    pub suspicions: u32,
    /// Times at which the run was owned again after the daemon had died by its own fault while computing for it: those
    /// of the last ten minutes, since it was last resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Timestamp>,
    /// Number of child runs that its chain has started, detached ones included. A call that is tried again counts once:
    /// it has the child run of its earlier try, or one that continues or replaces that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawn_count: u32,
    /// The limits of child runs in force.
    #[serde(default, skip_serializing_if = "Below::is_unlimited")]
    pub below: Below,
    /// The requester of its cancellation, if there is one.
    pub cancel: Option<String>,
    /// Time at which that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// Its questions to people, and the answers that are not handled yet.
    #[serde(default, skip_serializing_if = "Approvals::is_empty")]
    pub approvals: Approvals,
    /// Its paid call in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_call: Option<OpenCall>,
    pub life: Life,
    pub work: Work,
}

impl Run {
    /// The record right after `run_created`.
    pub fn create(id: RunId, at: Timestamp, spec: Arc<Spec>) -> Self {
        Self {
            id,
            created_at: at,
            started_at: None,
            active_since: None,
            updated_at: at,
            ended_at: None,
            seq: Seq(1),
            epoch: Epoch::default(),
            suspicions: 0,
            faults: Vec::new(),
            spawn_count: spec.spawned,
            below: Below::of(&spec.limits),
            cancel: None,
            cancelled_at: None,
            kill: None,
            approvals: Approvals::default(),
            open_call: None,
            life: Life::Created,
            work: Work::create(&spec),
            spec,
        }
    }

    pub fn status(&self) -> Status {
        self.life.status()
    }

    pub fn suspension(&self) -> Option<&Suspension> {
        match &self.life {
            Life::Suspended(why) => Some(why),
            Life::Created | Life::Running | Life::Ended(_) => None,
        }
    }

    /// Returns the wait that delays the next turn of a thread.
    pub fn waiting(&self) -> Option<&thread::TurnWait> {
        let is_running = matches!(self.life, Life::Running);
        self.thread().filter(|_| is_running)?.waiting()
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.life {
            Life::Ended(outcome) => Some(outcome),
            Life::Created | Life::Running | Life::Suspended(_) => None,
        }
    }

    /// Returns the processes that were ended, if it was killed.
    pub fn receipt(&self) -> Option<&KillReceipt> {
        match self.outcome()? {
            Outcome::Killed { receipt, .. } => Some(receipt),
            Outcome::Completed { .. }
            | Outcome::CompletedWithErrors { .. }
            | Outcome::Error { .. }
            | Outcome::Cancelled { .. } => None,
        }
    }

    /// Returns the walk of a graph run.
    pub const fn graph(&self) -> Option<&graph::GraphState> {
        if let Work::Graph(state) = &self.work {
            Some(state)
        } else {
            None
        }
    }

    /// Returns the state of a thread.
    pub const fn thread(&self) -> Option<&thread::ThreadState> {
        if let Work::Thread(state) = &self.work {
            Some(state)
        } else {
            None
        }
    }

    /// Returns the state of a managed process.
    pub const fn process(&self) -> Option<&process::ProcessState> {
        if let Work::Process(state) = &self.work {
            Some(state)
        } else {
            None
        }
    }

    /// Returns the state variables of a graph run.
    pub fn vars(&self) -> Option<&Vars> {
        self.graph().map(|state| &state.vars)
    }

    /// Returns the approximate memory use of its values in bytes: its inputs before it begins, and the values of its
    /// work after.
    pub fn held(&self) -> usize {
        match self.life {
            Life::Created => {
                let sizes = self.spec.inputs.iter();
                sizes
                    .map(|(name, value)| name.len() + bounds::size(value))
                    .sum()
            }
            Life::Running | Life::Suspended(_) | Life::Ended(_) => self.work.state().held(),
        }
    }

    pub fn steps(&self) -> u32 {
        self.graph().map_or(0, |state| state.steps)
    }

    /// Returns the errors after which it continued; `None` if there are none.
    pub fn suppressed(&self) -> Option<&Chunks<SuppressedError>> {
        let errors = self.graph().map(|state| &state.suppressed);
        errors.filter(|errors| !errors.is_empty())
    }

    /// Returns its questions that a person may answer: none, if its walk is over.
    pub fn open_approvals(&self) -> impl Iterator<Item = &Approval> {
        let at = self.graph().map(|state| &state.at);
        let is_over = self.status().is_terminal() || matches!(at, Some(graph::At::Ending { .. }));
        let open = (!is_over).then(|| self.approvals.open());
        open.into_iter().flatten()
    }

    /// Returns the current node of a live run; the item of a tool run whose call is in flight.
    pub fn current_node(&self) -> Option<&str> {
        match &self.life {
            Life::Running | Life::Suspended(_) => self.location(),
            Life::Created | Life::Ended(_) => None,
        }
    }

    /// Returns the node at which the run was when its walk was over.
    pub fn stood_at(&self) -> Option<&str> {
        let is_over = match &self.life {
            Life::Ended(_) => true,
            Life::Created | Life::Running | Life::Suspended(_) => {
                let at = self.graph().map(|state| &state.at);
                matches!(at, Some(graph::At::Ending { .. }))
            }
        };
        self.last_location().filter(|_| is_over)
    }

    /// Returns the node to name for a graph run: the current one, or the one at which it ended without success. A
    /// completed run has none.
    pub fn last_node(&self) -> Option<&str> {
        if let Some(node) = self.current_node() {
            return Some(node);
        }
        let ending = match &self.graph()?.at {
            graph::At::Ending { outcome, .. } => Some(&**outcome),
            graph::At::New
            | graph::At::Between { .. }
            | graph::At::Step(_)
            | graph::At::Failed { .. }
            | graph::At::Backoff { .. } => None,
        };
        match self.outcome().or(ending)? {
            Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => None,
            Outcome::Error { error } => error.node.as_deref().or_else(|| self.stood_at()),
            Outcome::Cancelled { .. } | Outcome::Killed { .. } => self.stood_at(),
        }
    }

    fn location(&self) -> Option<&str> {
        self.work.state().location(&self.spec)
    }

    fn last_location(&self) -> Option<&str> {
        self.work.state().last_location(&self.spec)
    }

    pub fn step(&self) -> Option<u32> {
        self.work.state().step()
    }

    /// Returns every attempt in flight; a run that has ended has none.
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let is_live = !self.status().is_terminal();
        is_live
            .then(|| self.work.state().attempts())
            .into_iter()
            .flatten()
    }

    /// Returns the at-most-once attempts in flight without a known or stated outcome: the node, with the position of an
    /// item (`fan[3]`). Attempts of child runs are in the records of those.
    pub fn uncertain(&self) -> Vec<(String, AttemptId)> {
        let node = self.current_node().unwrap_or_default();
        let uncertain = self.attempts().filter(|attempt| {
            attempt.is_unknown() && attempt.verdict.is_none() && attempt.child.is_none()
        });
        uncertain
            .map(|attempt| (self.name_of(node, attempt.id.slot), attempt.id))
            .collect()
    }

    /// Returns the name of the attempt `slot` of the current node, for people.
    pub fn name_of(&self, node: &str, slot: Slot) -> String {
        let items = self.graph().and_then(|state| state.at.items());
        items.map_or_else(|| attempt_name(node, slot), |items| items.name(node, slot))
    }

    /// Returns the attempts at its position, or at its end, whose outcome this record does not know. These are
    /// at-most-once ones that are in flight without a verdict or failed after they had started, and those that child
    /// runs carried out without success.
    pub fn unknown(&self) -> Vec<Unknown> {
        let unknown = if self.is_repairable() || self.failed_after_failures() {
            graph::GraphState::unknown_of_repairs
        } else {
            graph::GraphState::unknown
        };
        self.graph().map(unknown).unwrap_or_default()
    }

    /// True if it is an ended tool run whose at-most-once call may have taken effect.
    pub fn is_call_unknown(&self) -> bool {
        let is_unknown = matches!(&self.work, Work::Tool(call) if call.is_unknown());
        is_unknown && self.status().is_terminal()
    }

    /// True if it completed and a part of it failed, so that a run that continues it repeats that part.
    pub fn is_repairable(&self) -> bool {
        let outcome = self.outcome();
        matches!(outcome, Some(Outcome::CompletedWithErrors { .. }))
            && self
                .graph()
                .is_some_and(|state| !state.unrepaired.is_empty())
    }

    /// True if it is suspended after a failure about which no further hook is called: resuming it is another try.
    pub fn resume_retries_failed_step(&self) -> bool {
        let at = self.graph().map(|state| &state.at);
        self.suspension().is_some() && matches!(at, Some(graph::At::Failed { round: None, .. }))
    }

    /// Returns the node at which a run that continues this one begins: the one that failed, or the current one.
    pub fn resumption_node(&self) -> Option<&str> {
        let failed = match self.outcome() {
            Some(Outcome::Error { error }) => error.node.as_deref(),
            Some(_) | None => None,
        };
        failed.or_else(|| self.stood_at())
    }

    /// Returns the state and the unfinished work that a graph run takes over when it continues this one.
    pub fn inherited(&self) -> Option<(graph::GraphState, UnfinishedWork)> {
        let state = self.graph()?;
        let (inherited, left) = state.inherited();
        let never_begun = matches!(state.stood(), graph::At::New);
        let earlier = self.spec.start_from().filter(|_| never_begun);
        let earlier = earlier.and_then(|start| start.left.clone());
        Some((inherited, earlier.unwrap_or(left)))
    }

    /// Returns the initial state of a thread that continues this one; `None` if this is no thread, or has not ended.
    pub fn carried(&self) -> Option<thread::ThreadState> {
        let mut state = self.thread()?.clone();
        state.count_time(self.ended_at?);
        Some(state.carried())
    }

    /// Returns the initial state of a thread that continues this one from its last finished turn, whatever followed it.
    /// The record must be as the `step_finish` of that turn left it, which is the result of replaying its events up to
    /// there; otherwise `None`.
    pub fn carried_from_turn(&self) -> Option<thread::ThreadState> {
        let state = self.thread()?;
        state.is_between_turns().then(|| state.clone().carried())
    }

    /// Returns the event by which it ends with `outcome` at `now`, in any state.
    pub fn ending(&self, now: Timestamp, outcome: Outcome) -> Event {
        if let Outcome::Killed { cause, receipt } = outcome {
            return RunKilled { cause, receipt }.into();
        }
        let elapsed_ms = now.ms_since(self.created_at);
        let ending = self.work.state().ending(outcome, elapsed_ms);
        ending.expect("every kind of run may end in every way")
    }

    /// Returns the event that settles its paid call in flight at the held amount, as an estimate. It precedes every
    /// event that suspends or ends the run, in the same commit.
    pub fn settlement(&self, because: Because) -> Option<Event> {
        let OpenCall { call, amount } = self.open_call?;
        let usage = Usage {
            money: amount,
            calls: 1,
            ..Usage::default()
        };
        let settled = BudgetSettled {
            call,
            amount,
            usage,
            estimated: true,
            because,
        };
        Some(settled.into())
    }

    /// Returns `event`, which suspends or ends it, after the settlement of its paid call in flight.
    pub fn with_settlement(&self, event: Event) -> Vec<Event> {
        let settled = self.settlement(Because::Stopped);
        settled.into_iter().chain([event]).collect()
    }

    /// Returns the event by which it fails with `error` at `now`.
    pub fn end_by_failure(&self, now: Timestamp, error: Failure) -> Event {
        self.ending(now, Outcome::Error { error })
    }

    /// Returns the event by which it is cancelled at `now`.
    pub fn end_by_cancel(&self, now: Timestamp, cause: &str) -> Event {
        let cause = cause.to_owned();
        self.ending(now, Outcome::Cancelled { cause })
    }

    /// The only transition: applies `event`, which becomes its last one. A refused event changes nothing.
    pub fn apply(&mut self, at: Timestamp, event: &Event) -> Result<(), Illegal> {
        let spawns = self.spawns(event);
        if !self.take(at, event) {
            return Err(Illegal {
                phase: self.describe(),
                event: event.name(),
            });
        }
        self.spawn_count += u32::from(spawns);
        self.seq = self.seq.next();
        self.updated_at = at;
        if event.facets().progress {
            self.suspicions = 0;
        }
        Ok(())
    }

    /// True if `event` announces a child run where there was none before.
    fn spawns(&self, event: &Event) -> bool {
        let (slot, child) = match event {
            Event::Run(RunEvent::ChildStarted(started)) => return !started.is_server,
            Event::Run(RunEvent::CallbackStarted(_)) => return true,
            Event::Run(RunEvent::StepStarted(started)) => (Slot::Main, &started.child),
            Event::Run(RunEvent::HookStarted(started)) => {
                (Slot::Hook(started.index), &started.child)
            }
            Event::Graph(GraphEvent::ItemStarted(started)) => {
                (Slot::Part(started.item), &started.child)
            }
            Event::Thread(ThreadEvent::ToolCallStart(started)) => {
                (Slot::Part(started.position), &started.child)
            }
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => return false,
        };
        child.is_some() && self.work.state().child(slot).is_none()
    }

    fn take(&mut self, at: Timestamp, event: &Event) -> bool {
        let allowed = match (event.facets().allowed, &self.life) {
            (_, Life::Ended(_)) => false,
            (While::NotCancelled, Life::Running) => self.cancel.is_none(),
            (While::Live, _)
            | (While::Running, Life::Running)
            | (While::Suspended, Life::Suspended(_))
            | (While::Active, Life::Created | Life::Running) => true,
            (While::Running | While::NotCancelled | While::Suspended | While::Active, _) => false,
        };
        let ends = event.facets().ends;
        let rests = ends || matches!(event, Event::Run(RunEvent::RunSuspended(_)));
        let taken = allowed
            && !(rests && self.open_call.is_some())
            && !self.approvals.has_answer_for(event)
            && if let Event::Run(event) = event {
                self.take_in(at, event)
            } else {
                self.work.apply(at, &self.spec, event)
            };
        if taken && let Some(outcome) = event.outcome() {
            self.work.state_mut().end();
            self.life = Life::Ended(Arc::new(outcome));
            self.ended_at = Some(at);
        }
        if taken {
            self.approvals.clear_after(event, ends);
        }
        taken
    }

    /// Applies an event of runs of every kind.
    fn take_in(&mut self, at: Timestamp, event: &RunEvent) -> bool {
        match event {
            RunEvent::RunCreated(_) => return false,
            RunEvent::RunStarted(started) => self.start(at, started),
            RunEvent::RunSuspended(why) => {
                self.work.state_mut().suspend(at, why);
                self.life = Life::Suspended(Arc::new(why.clone()));
            }
            RunEvent::RunResumed(resumed) => self.resume(at, resumed),
            RunEvent::CancelRequested(asked) => {
                self.cancel.get_or_insert_with(|| asked.cause.clone());
                self.cancelled_at.get_or_insert(at);
            }
            RunEvent::KillRequested(asked) => match &mut self.kill {
                Some(kill) => kill.merge(asked),
                None => self.kill = Some(asked.clone()),
            },
            RunEvent::StepStarted(started) => {
                return self.work.state_mut().start_step(at, started);
            }
            RunEvent::ProcessStarted(started) => {
                let work = self.work.state_mut();
                let attempt = work.attempt_mut(started.step, started.slot);
                let process = Some(started.process.clone());
                return attempt.map(|attempt| attempt.process = process).is_some();
            }
            RunEvent::ProcessExited(exited) => {
                let work = self.work.state_mut();
                if work.attempt_mut(exited.step, exited.slot).is_none() {
                    return false;
                }
                work.exited(&exited.end);
            }
            RunEvent::CallbackStarted(event::CallbackStarted { step, slot, .. })
            | RunEvent::CallbackEnded(event::CallbackEnded { step, slot, .. })
            | RunEvent::ToolCallProgress(event::ToolCallProgress { step, slot, .. }) => {
                return self.work.state_mut().attempt_mut(*step, *slot).is_some();
            }
            RunEvent::UncertainAnswered(answered) => return self.take_verdict(answered),
            RunEvent::ApprovalRequested(approval) => {
                return self.approvals.ask(self.epoch, approval);
            }
            RunEvent::ApprovalAnswered(answer) => {
                return self.approvals.close(&answer.id, Some((answer, at)));
            }
            RunEvent::ApprovalInvalidated(old) => return self.approvals.drop_one(&old.id),
            RunEvent::ApprovalExpired(expired) => return self.approvals.close(&expired.id, None),
            RunEvent::HooksBegun(begun) => {
                let Some(round) = self.work.state_mut().round_mut() else {
                    return false;
                };
                *round = Some(Round::begin(begun));
            }
            RunEvent::HookStarted(started) => {
                return self.change_round(|round| round.start(at, started));
            }
            RunEvent::HookCompleted(completed) => {
                return self.change_round(|round| round.complete(completed));
            }
            RunEvent::BudgetHeld(held) => {
                let (call, amount) = (held.call, held.amount);
                return self.change_call(None, Some(OpenCall { call, amount }));
            }
            RunEvent::BudgetSettled(settled) => {
                let (call, amount) = (settled.call, settled.amount);
                return self.change_call(Some(OpenCall { call, amount }), None);
            }
            RunEvent::Emitted(_)
            | RunEvent::ItemSigned(_)
            | RunEvent::Warning(_)
            | RunEvent::BudgetRaised(_)
            | RunEvent::ChildStarted(_)
            | RunEvent::RunKilled(_) => {}
        }
        true
    }

    fn take_verdict(&mut self, answered: &UncertainAnswered) -> bool {
        let work = self.work.state_mut();
        let Some(attempt) = work.attempt_mut(answered.step, answered.slot) else {
            return false;
        };
        attempt.verdict = Some(answered.verdict);
        attempt.declared.clone_from(&answered.result);
        true
    }

    /// Records that the daemon owns the run from now on.
    fn start(&mut self, at: Timestamp, started: &RunStarted) {
        if started.suspected {
            self.suspect(at, started.fault);
        }
        self.started_at.get_or_insert(at);
        self.active_since.get_or_insert(at);
        self.epoch = started.epoch;
        self.life = Life::Running;
    }

    fn resume(&mut self, at: Timestamp, resumed: &RunResumed) {
        self.started_at.get_or_insert(at);
        self.active_since = Some(at);
        self.epoch = resumed.epoch;
        self.suspicions = 0;
        self.faults.clear();
        self.below.raise(&resumed.raised);
        self.work.state_mut().resume(at, &resumed.raised);
        self.life = Life::Running;
    }

    /// Changes the current round of hooks; `false` if there is none.
    fn change_round(&mut self, change: impl FnOnce(&mut Round)) -> bool {
        let round = self.work.state_mut().round_mut();
        round.and_then(Option::as_mut).map(change).is_some()
    }

    /// Sets the paid call in flight to `after`, if it is `before`.
    fn change_call(&mut self, before: Option<OpenCall>, after: Option<OpenCall>) -> bool {
        if self.open_call != before {
            return false;
        }
        self.open_call = after;
        true
    }
}
