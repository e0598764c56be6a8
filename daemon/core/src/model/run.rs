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
    While,
};
use super::failure::Failure;
use super::graph::{SuppressedError, UnfinishedWork};
use super::kill::{Kill, KillReceipt};
use super::life::{Illegal, Life, Outcome, Status};
use super::limits::{Below, is_zero};
use super::round::Round;
use super::spec::Spec;
use super::suspension::{SuspendReason, Suspension};
use super::work::Work;
use super::{graph, thread};
use crate::bounds;
use crate::clock::Timestamp;
use crate::expr::Vars;
use crate::id::{Epoch, RunId, Seq};
use crate::ledger::Usage;

/// The record of a run. A copy shares everything that may be large.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// What is fixed about it.
    pub spec: Arc<Spec>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When a task first owned it.
    pub started_at: Option<Timestamp>,
    /// When it last began to run, or to run again after it was suspended.
    pub active_since: Option<Timestamp>,
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Its last event.
    pub seq: Seq,
    /// The daemon's life that owns it.
    pub epoch: Epoch,
    /// How often the daemon died while it computed for this run, since something of it last ended, and since the daemon last stopped
    /// in good order.
    pub suspicions: u32,
    /// When it was owned again after the daemon had died by its own fault while it computed for this run: the last ten minutes of that, since
    /// it was last resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Timestamp>,
    /// How many child runs its chain has started, detached ones included. A call that is tried again counts once:
    /// it has the child run of its earlier try, or one that continues or replaces that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spawn_count: u32,
    /// The limits of these in force.
    #[serde(default, skip_serializing_if = "Below::is_unlimited")]
    pub below: Below,
    /// Who asked it to stop, if somebody did.
    pub cancel: Option<String>,
    /// When that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<Timestamp>,
    /// Who asked for it to be ended by force, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// What it asks people, and what they answered that is not heeded yet.
    #[serde(default, skip_serializing_if = "Approvals::is_empty")]
    pub approvals: Approvals,
    /// Its paid call in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_call: Option<OpenCall>,
    /// Where it is in its life.
    pub life: Life,
    /// What it does, and has done.
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

    /// The status users see.
    pub fn status(&self) -> Status {
        self.life.status()
    }

    /// Why it is suspended, if it is.
    pub fn suspension(&self) -> Option<&Suspension> {
        match &self.life {
            Life::Suspended(why) => Some(why),
            Life::Created | Life::Running | Life::Ended(_) => None,
        }
    }

    /// What it came to, if it has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.life {
            Life::Ended(outcome) => Some(outcome),
            Life::Created | Life::Running | Life::Suspended(_) => None,
        }
    }

    /// What had to be ended of it, if it was killed.
    pub fn receipt(&self) -> Option<&KillReceipt> {
        match self.outcome()? {
            Outcome::Killed { receipt, .. } => Some(receipt),
            Outcome::Completed { .. }
            | Outcome::CompletedWithErrors { .. }
            | Outcome::Error { .. }
            | Outcome::Cancelled { .. } => None,
        }
    }

    /// The walk of a graph run.
    pub const fn graph(&self) -> Option<&graph::GraphState> {
        if let Work::Graph(state) = &self.work {
            Some(state)
        } else {
            None
        }
    }

    /// Where a thread stands.
    pub const fn thread(&self) -> Option<&thread::ThreadState> {
        if let Work::Thread(state) = &self.work {
            Some(state)
        } else {
            None
        }
    }

    /// The state of a graph run.
    pub fn vars(&self) -> Option<&Vars> {
        self.graph().map(|state| &state.vars)
    }

    /// The memory that its values take, in bytes, roughly: its inputs before it begins, and what its work holds then.
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

    /// Steps taken.
    pub fn steps(&self) -> u32 {
        self.graph().map_or(0, |state| state.steps)
    }

    /// Errors that it continued after; `None` if there are none.
    pub fn suppressed(&self) -> Option<&Chunks<SuppressedError>> {
        let errors = self.graph().map(|state| &state.suppressed);
        errors.filter(|errors| !errors.is_empty())
    }

    /// The questions of it that somebody may answer: of one whose walk is over, none.
    pub fn asks(&self) -> impl Iterator<Item = &Approval> {
        let at = self.graph().map(|state| &state.at);
        let is_over = self.status().is_terminal() || matches!(at, Some(graph::At::Ending { .. }));
        let open = (!is_over).then(|| self.approvals.open());
        open.into_iter().flatten()
    }

    /// The node at which a live run stands; the item of a tool run whose call is in flight.
    pub fn current_node(&self) -> Option<&str> {
        match &self.life {
            Life::Running | Life::Suspended(_) => self.place(),
            Life::Created | Life::Ended(_) => None,
        }
    }

    /// The node at which the run stood when its walk was over.
    pub fn stood_at(&self) -> Option<&str> {
        let is_over = match &self.life {
            Life::Ended(_) => true,
            Life::Created | Life::Running | Life::Suspended(_) => {
                let at = self.graph().map(|state| &state.at);
                matches!(at, Some(graph::At::Ending { .. }))
            }
        };
        self.place_before_the_end().filter(|_| is_over)
    }

    /// The node to name where a graph run is: that at which it stands, or at which it ended short of its
    /// goal. A completed run has none.
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

    fn place(&self) -> Option<&str> {
        self.work.state().place(&self.spec)
    }

    fn place_before_the_end(&self) -> Option<&str> {
        self.work.state().place_before_the_end(&self.spec)
    }

    /// The step that is in flight or failed.
    pub fn step(&self) -> Option<u32> {
        self.work.state().step()
    }

    /// Every attempt in flight; a run that has ended has none.
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let is_live = !self.status().is_terminal();
        is_live
            .then(|| self.work.state().attempts())
            .into_iter()
            .flatten()
    }

    /// At-most-once attempts in flight of which nobody knows or has said what became of them: the node, with the position
    /// where it is an item (`fan[3]`). Those that child runs carry out are known to those.
    pub fn uncertain(&self) -> Vec<(String, AttemptId)> {
        let node = self.current_node().unwrap_or_default();
        let uncertain = self.attempts().filter(|attempt| {
            attempt.is_unknown() && attempt.verdict.is_none() && attempt.child.is_none()
        });
        uncertain
            .map(|attempt| (self.name_of(node, attempt.id.slot), attempt.id))
            .collect()
    }

    /// What people call the attempt `slot` of the node at hand.
    fn name_of(&self, node: &str, slot: Slot) -> String {
        let items = self.graph().and_then(|state| state.at.items());
        items.map_or_else(|| attempt_name(node, slot), |items| items.name(node, slot))
    }

    /// The attempts at the place where it stands or ended whose outcome this record does not know: at-most-once ones that are in
    /// flight without a verdict or failed after they had started, and what child runs carried out without success.
    pub fn unknown(&self) -> Vec<Unknown> {
        let unknown = if self.is_repairable() {
            graph::GraphState::unknown_of_repairs
        } else {
            graph::GraphState::unknown
        };
        self.graph().map(unknown).unwrap_or_default()
    }

    /// Whether it completed and some of it failed, so that a run that continues it repeats that.
    pub fn is_repairable(&self) -> bool {
        let outcome = self.outcome();
        matches!(outcome, Some(Outcome::CompletedWithErrors { .. }))
            && self
                .graph()
                .is_some_and(|state| !state.unrepaired.is_empty())
    }

    /// Whether it is suspended behind a failure about which no hook is to be asked any more: resuming it is another try.
    pub fn resume_retries_failed_step(&self) -> bool {
        let at = self.graph().map(|state| &state.at);
        self.suspension().is_some() && matches!(at, Some(graph::At::Failed { round: None, .. }))
    }

    /// The node at which a run that continues this one begins: the one that failed, or the one it stood at.
    pub fn resumption_node(&self) -> Option<&str> {
        let failed = match self.outcome() {
            Some(Outcome::Error { error }) => error.node.as_deref(),
            Some(_) | None => None,
        };
        failed.or_else(|| self.stood_at())
    }

    /// What a graph run takes over that continues this one: its state, and what was left of the node at which it ended.
    pub fn inherited(&self) -> Option<(graph::GraphState, UnfinishedWork)> {
        let state = self.graph()?;
        let (inherited, left) = state.inherited();
        let never_begun = matches!(state.stood(), graph::At::New);
        let earlier = self.spec.start_from().filter(|_| never_begun);
        let earlier = earlier.and_then(|start| start.left.clone());
        Some((inherited, earlier.unwrap_or(left)))
    }

    /// Where a thread begins that continues this one; `None` if this is none, or has not ended.
    pub fn carried(&self) -> Option<thread::ThreadState> {
        let mut state = self.thread()?.clone();
        state.count_time(self.ended_at?);
        Some(state.carried())
    }

    /// Where a thread begins that continues this one from the turn that was last finished, whatever became of it later: the record is
    /// as the `step_finish` of that turn left it, which is what replaying its events up to there leads to. `None` if it stands
    /// anywhere else.
    pub fn carried_from_turn(&self) -> Option<thread::ThreadState> {
        let state = self.thread()?;
        state.is_between_turns().then(|| state.clone().carried())
    }

    /// The event by which it ends with `outcome` at `now`, wherever it stands.
    pub fn ending(&self, now: Timestamp, outcome: Outcome) -> Event {
        if let Outcome::Killed { cause, receipt } = outcome {
            return RunKilled { cause, receipt }.into();
        }
        let elapsed_ms = now.ms_since(self.created_at);
        let ending = self.work.state().ending(outcome, elapsed_ms);
        ending.expect("every kind of run may end in every way")
    }

    /// The event that settles its paid call in flight at what is held for it, as an estimate. It stands before every event that
    /// suspends or ends the run, in the same commit.
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

    /// `event`, which suspends or ends it, behind the settlement of its paid call in flight.
    pub fn with_settlement(&self, event: Event) -> Vec<Event> {
        let settled = self.settlement(Because::Stopped);
        settled.into_iter().chain([event]).collect()
    }

    /// The event by which it fails with `error` at `now`.
    pub fn end_by_failure(&self, now: Timestamp, error: Failure) -> Event {
        self.ending(now, Outcome::Error { error })
    }

    /// The event by which it is cancelled at `now`.
    pub fn end_by_cancel(&self, now: Timestamp, cause: &str) -> Event {
        let cause = cause.to_owned();
        self.ending(now, Outcome::Cancelled { cause })
    }

    /// The only transition: takes in `event`, which becomes its last one. A refused event changes nothing.
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

    /// Whether `event` announces a child run where there was none before.
    fn spawns(&self, event: &Event) -> bool {
        let (slot, child) = match event {
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
            Event::Run(_) | Event::Graph(_) | Event::Thread(_) | Event::Tool(_) => return false,
        };
        child.is_some() && self.work.state().child(slot).is_none()
    }

    /// Whether `event` suspends it for an answer that came meanwhile: nobody would end that.
    fn has_answer_for(&self, event: &Event) -> bool {
        matches!(event, Event::Run(RunEvent::RunSuspended(why)) if why.reason == SuspendReason::Approval)
            && self.approvals.is_answered()
    }

    fn take(&mut self, at: Timestamp, event: &Event) -> bool {
        let allowed = match (event.facets().allowed, &self.life) {
            (_, Life::Ended(_)) => false,
            (While::Wanted, Life::Running) => self.cancel.is_none(),
            (While::Live, _)
            | (While::Running, Life::Running)
            | (While::Suspended, Life::Suspended(_))
            | (While::Active, Life::Created | Life::Running) => true,
            (While::Running | While::Wanted | While::Suspended | While::Active, _) => false,
        };
        let ends = event.facets().ends;
        let rests = ends || matches!(event, Event::Run(RunEvent::RunSuspended(_)));
        let taken = allowed
            && !(rests && self.open_call.is_some())
            && !self.has_answer_for(event)
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
            self.approvals.heed(event, ends);
        }
        taken
    }

    /// What happens to runs of every kind.
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
                let Some(attempt) = work.attempt_mut(started.step, started.slot) else {
                    return false;
                };
                attempt.process = Some(started.process.clone());
            }
            RunEvent::UncertainAnswered(answered) => {
                let work = self.work.state_mut();
                let Some(attempt) = work.attempt_mut(answered.step, answered.slot) else {
                    return false;
                };
                attempt.verdict = Some(answered.verdict);
                attempt.declared.clone_from(&answered.result);
            }
            RunEvent::ApprovalRequested(approval) => {
                return self.approvals.ask(self.epoch, approval);
            }
            RunEvent::ApprovalAnswered(answer) => {
                return self.approvals.close(&answer.id, Some((answer, at)));
            }
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
            | RunEvent::RunKilled(_) => {}
        }
        true
    }

    /// The daemon owns it from now on.
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

    /// Changes the round of hooks in hand; `false` if there is none.
    fn change_round(&mut self, change: impl FnOnce(&mut Round)) -> bool {
        let round = self.work.state_mut().round_mut();
        round.and_then(Option::as_mut).map(change).is_some()
    }

    /// Makes the paid call in flight `after`, if it is `before`.
    fn change_call(&mut self, before: Option<OpenCall>, after: Option<OpenCall>) -> bool {
        if self.open_call != before {
            return false;
        }
        self.open_call = after;
        true
    }

    fn describe(&self) -> String {
        let status = self.status();
        match (self.current_node(), self.step()) {
            (Some(node), Some(step)) => format!("{status} at step {step} (`{node}`)"),
            (Some(node), None) => format!("{status} before `{node}`"),
            (None, _) => status.to_string(),
        }
    }
}
