//! The driver of runs of every kind: asks the machine for a move, commits it, acts, and asks again.
//!
//! **Owns** the attempts in flight of its run, and nothing else. **Never** decides: the [`Machine`] does. State changes
//! only through [`rye_journal`]. The differences between kinds of runs are in [`Kind`].
//!
//! ```text
//! machine ─Call─► look up ─┬─ refused, cached: concluded immediately
//!    ▲                     └─ announced (with the child run it creates) ─► commit ─► attempt: durable ─► act ─┐
//!    └──────────────────────────────── conclude ◄─────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Order.** Facts (events that have happened) and a plan (the next moves) are one commit. A plan is made on a copy of
//! the machine, which replaces the machine after the commit. A refused plan leaves no trace and does not affect
//! attempts in flight. Each announced attempt is a task of its own, which waits until that commit is durable. It does
//! not wait if the run is `relaxed` and the effect may be repeated. The driver waits only for the first and the last
//! sync. The claim of the run by this life of the daemon is durable before the first move.
//!
//! **Races.** Commits of others to the run, such as a cancel request or an answer, reach the machine with the record
//! before its next move. A stop request is committed first; then the attempts are notified. Reports of an attempt are
//! processed before its end.
//!
//! **Failure.** On ENOSPC the run is suspended. Outcomes of its calls stay in memory and are committed on resume, so no
//! call is repeated. The loop ends with an error if the journal fails, or refuses the run's events because the run was
//! killed.

mod attempt;
mod budget_wait;
mod context;
mod ends;
mod fail;
mod job;
mod lookahead;
mod plan;
mod shortage;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use rye_core::clock::Uptime;
use rye_core::error::with_sources;
use rye_core::id::{RunId, Seq};
use rye_core::machine::{Call, CallOutcome, Held, Machine, Move, ResultText};
use rye_core::model::{
    Death, Durability, Effect, Event, KillReceipt, Life, Run, RunEvent, Slot, SuspendReason,
    Suspension,
};
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

pub use self::attempt::Reports;
use self::attempt::{Attempts, Finished, attempt, charged};
use self::budget_wait::BudgetWait;
pub use self::context::RunContext;
pub use self::fail::fail;
pub use self::job::Job;
use self::lookahead::{Lookahead, following};
pub use self::plan::refused_child;
use self::plan::{Plan, Then, limit};
use self::shortage::{LoopExit, Shortage};
use crate::exhausted::Exhausted;
use crate::services::{Ended, Services};
use crate::stop::{Changes, DriverExit, Stop, Urgency};
use crate::storage_backoff;
use rye_journal::{Change, Committed, RefusalReason, Ticket};

/// Maximum number of changes in one commit, apart from those of its last call. A hundred thousand calls may need no wait.
const MOST_PLANNED: usize = 256;
/// Maximum number of reports that wait for the driver. Beyond it, attempts wait.
const MOST_REPORTS: usize = 256;

type Signal<K> = <<K as Kind>::Machine as Machine>::Signal;
pub type Query<K> = <<K as Kind>::Machine as Machine>::Query;
pub type Answer<K> = <<K as Kind>::Machine as Machine>::Answer;

/// The differences between kinds of runs.
pub trait Kind: Send + Sync + 'static {
    type Machine: Machine;
    /// Plan by which a call that was looked up is carried out.
    type Plan: Send + 'static;

    /// Returns the machine of `run`, new or recovered.
    fn machine(&self, run: Arc<Run>) -> Self::Machine;

    /// Looks up the needs of the calls of one turn together, in their order. Commits and begins nothing. Cancel safe.
    fn look_up(
        &self,
        run: &Run,
        calls: &[&Call],
    ) -> impl Future<Output = Vec<Job<Self::Plan>>> + Send;

    /// Effect of a second execution, as declared by the looked up item; `None` if it declares none.
    fn effect(_plan: &Self::Plan) -> Option<Effect> {
        None
    }

    /// True if the program of the call repeats its calls in order.
    fn replays(_plan: &Self::Plan) -> bool {
        false
    }

    /// Form in which a model reads the result of a call.
    fn result_text(_plan: &Self::Plan) -> ResultText {
        ResultText::default()
    }

    /// Answers `query`. Commits nothing. Its only side effects are ones that may happen twice. Cancel safe.
    fn answer(
        &self,
        run: &Run,
        query: &Query<Self>,
    ) -> impl Future<Output = Result<Answer<Self>, rye_journal::Error>> + Send;

    /// True if `query` is a part of the end of the run, so that a cancel does not interrupt its answer.
    fn is_of_end(_query: &Query<Self>) -> bool {
        false
    }

    /// Carries out a call whose announcement is durable. It reports until it ends, by itself or as `stop` requests.
    fn carry_out(
        &self,
        call: &Call,
        plan: Self::Plan,
        stop: &Stop,
        reports: &Reports<Signal<Self>>,
    ) -> impl Future<Output = Ended> + Send;
}

/// True if nothing begins in the run any more because it is being killed.
fn is_stopping(error: &rye_journal::Error) -> bool {
    matches!(error, rye_journal::Error::Refused(refused) if matches!(refused.why, RefusalReason::Stopping(_)))
}

/// Drives `run` until it ends or is suspended, or until the daemon stops.
pub async fn drive<K: Kind>(
    services: &Arc<Services>,
    kind: Arc<K>,
    run: &Arc<Run>,
    stop: &Stop,
) -> Result<DriverExit, rye_journal::Error> {
    let mut drive = Drive::new(services, kind, run, stop)?;
    loop {
        let lacking = match drive.live().await {
            Ok(LoopExit::Shortage(lack)) => Shortage::Host(lack),
            Ok(LoopExit::Exited(exit)) => return Ok(exit),
            Err(error) if error.is_out_of_space() => Shortage::Space(error),
            Err(error) if is_stopping(&error) => {
                // The kill is recorded, and each task that it covers is about to be notified.
                stop.at_least(Urgency::Shutdown).await;
                return drive.wind_down().await;
            }
            Err(error) => return Err(error),
        };
        drive.budget_wait.clear();
        if let Some(exit) = drive.wait_for(&lacking).await? {
            return Ok(exit);
        }
    }
}

struct Drive<'a, K: Kind> {
    id: RunId,
    services: Arc<Services>,
    kind: Arc<K>,
    /// State as committed, plus `facts`.
    machine: K::Machine,
    stop: &'a Stop,
    /// Changes of `stop` since the last wait. A request between a check of `stop` and the wait ends the wait.
    signal: Changes,
    /// Number of the last committed event of the run, by its driver or by others.
    commits: watch::Receiver<Seq>,
    /// Number of the last event in the record that the machine has.
    base: Seq,
    /// Events that have happened and wait for the next commit. They survive a refused commit.
    facts: Vec<Event>,
    /// Processes that were ended with calls because the run stops.
    receipt: KillReceipt,
    /// Memory charges for the results in `facts`.
    charges: Vec<Held>,
    /// Last commit of this drive.
    last: Option<Ticket>,
    attempts: Attempts,
    reports: mpsc::Receiver<(Slot, Signal<K>)>,
    reporter: mpsc::Sender<(Slot, Signal<K>)>,
    /// Outcomes of calls whose child runs are refused, until the next plan is committed.
    childless: HashMap<Slot, Box<CallOutcome>>,
    /// The call that waits for budget, if there is one.
    budget_wait: BudgetWait,
    /// Pauses while the disk is full.
    pauses: storage_backoff::Pauses,
    /// Shortage on the host.
    shortage: Option<Exhausted>,
    /// Announced calls that could not begin.
    unstarted: Vec<Call>,
    /// Pauses during a shortage on the host.
    tries: storage_backoff::Pauses,
}

impl<'a, K: Kind> Drive<'a, K> {
    fn new(
        services: &Arc<Services>,
        kind: Arc<K>,
        run: &Arc<Run>,
        stop: &'a Stop,
    ) -> Result<Self, rye_journal::Error> {
        let commits = services.journal.commits(&run.id);
        let commits = commits.ok_or_else(|| rye_journal::Error::Unknown {
            run: run.id.clone(),
        })?;
        let (reporter, reports) = mpsc::channel(MOST_REPORTS);
        Ok(Self {
            id: run.id.clone(),
            services: Arc::clone(services),
            machine: kind.machine(Arc::clone(run)),
            kind,
            stop,
            signal: stop.changes(),
            commits,
            base: run.seq,
            facts: Vec::new(),
            receipt: KillReceipt::default(),
            charges: Vec::new(),
            last: None,
            attempts: Attempts::new(),
            reports,
            reporter,
            childless: HashMap::new(),
            budget_wait: BudgetWait::default(),
            pauses: storage_backoff::Pauses::default(),
            shortage: None,
            unstarted: Vec::new(),
            tries: storage_backoff::Pauses::default(),
        })
    }

    /// Claims the run, then plans, commits and waits in a loop.
    async fn live(&mut self) -> Result<LoopExit, rye_journal::Error> {
        self.claim().await?;
        self.begin_unstarted().await;
        loop {
            if self.stop.is_shutdown() {
                return self.wind_down().await.map(LoopExit::Exited);
            }
            if let Some(lack) = self.shortage.take() {
                return Ok(LoopExit::Shortage(lack));
            }
            self.refresh().await?;
            if self.stop.is_held() {
                self.machine.hold(Suspension::new(SuspendReason::User));
            }
            let mut plan = Plan::on(&self.machine);
            let then = self.plan_next(&mut plan).await?;
            if !self.commit_plan(plan).await? {
                continue;
            }
            match then {
                Then::Continue => tokio::task::yield_now().await,
                Then::Wait(until) => self.wait(until).await,
                Then::Rest => {
                    if let Some(ticket) = self.last {
                        self.services.journal.durable(ticket).await?;
                    }
                    return Ok(LoopExit::Exited(DriverExit::Ended));
                }
            }
        }
    }

    /// Claims the run for this life of the daemon. The claim is durable before the first move. If that move crashes the
    /// daemon, the record shows which run made it.
    async fn claim(&mut self) -> Result<(), rye_journal::Error> {
        let epoch = self.services.epoch;
        let run = self.machine.run();
        let event = match &run.life {
            Life::Suspended(_) => RunEvent::resumed(epoch),
            // Its start or its resumption is already committed.
            Life::Running if run.epoch == epoch => return Ok(()),
            Life::Ended(_) => return Ok(()),
            Life::Created | Life::Running => {
                let death = self.services.suspects.death_in(&self.id);
                RunEvent::started_after(epoch, death.map(|death| death == Death::Fault))
            }
        };
        let claim = self.changes([event.into()]);
        let claimed = self.services.journal.commit(claim).await?;
        self.services.journal.durable(claimed.ticket).await?;
        self.services.suspects.settle(&self.id);
        self.begin_anew(claimed.run(&self.id));
        Ok(())
    }

    /// Passes the commits of others to the machine.
    async fn refresh(&mut self) -> Result<(), rye_journal::Error> {
        if *self.commits.borrow() == self.base {
            return Ok(());
        }
        if !self.facts.is_empty() {
            let committed = self.commit(Vec::new()).await?;
            self.rebase(committed.run(&self.id));
            return Ok(());
        }
        let Some(record) = self.services.journal.snapshot(&self.id) else {
            // Another task has ended it, and it is no longer in memory.
            let run = self.id.clone();
            return Err(rye_journal::Error::Unknown { run });
        };
        self.rebase(Some(&record));
        Ok(())
    }

    /// Adds moves of the machine to `plan` until there is something to wait for.
    async fn plan_next(&mut self, plan: &mut Plan<K>) -> Result<Then, rye_journal::Error> {
        let mut ahead = Lookahead::new();
        loop {
            match plan.next(self.services.clock.tick()).await {
                Move::Note(events) => {
                    plan.note(events);
                    return Ok(Then::Continue);
                }
                Move::Call(events, call) => {
                    plan.note(events);
                    if self.budget_wait.blocks(&call) {
                        return Ok(Then::Wait(self.wait_for_budget(plan, &call)));
                    }
                    let admitted = self.admit(plan, &mut ahead, call).await;
                    if !admitted || plan.changes.len() >= MOST_PLANNED {
                        return Ok(Then::Continue);
                    }
                }
                Move::Query(events, query) => {
                    plan.note(events);
                    self.answer_query(plan, &query).await?;
                    return Ok(Then::Continue);
                }
                Move::Wait(events, until) => {
                    plan.note(events);
                    self.stop_waiting_for_budget(plan);
                    return Ok(Then::Wait(until));
                }
                Move::Suspended(events) | Move::End(events) => {
                    plan.note(events);
                    self.stop_waiting_for_budget(plan);
                    return Ok(Then::Rest);
                }
            }
        }
    }

    /// Answers the machine's query, unless a request to the run arrives first; that request is handled before. The
    /// events that follow from the answer are committed before the next query, which may take long.
    async fn answer_query(
        &mut self,
        plan: &mut Plan<K>,
        query: &Query<K>,
    ) -> Result<(), rye_journal::Error> {
        let is_of_end = K::is_of_end(query);
        let answer = tokio::select! {
            answer = self.kind.answer(plan.machine.run(), query) => answer?,
            () = self.signal.changed(), if !is_of_end => return Ok(()),
            () = self.stop.due(), if !is_of_end => return Ok(()),
            () = self.stop.at_least(Urgency::Shutdown) => return Ok(()),
        };
        let now = self.services.clock.tick();
        let events = plan.machine.answered(now, answer);
        plan.note(events);
        Ok(())
    }

    /// Looks a call up and plans it, or concludes it immediately. Returns false if a request to the run arrives first;
    /// it is handled before the call is looked up again.
    async fn admit(
        &mut self,
        plan: &mut Plan<K>,
        ahead: &mut Lookahead<K::Plan>,
        mut call: Box<Call>,
    ) -> bool {
        let now = self.services.clock.tick();
        if let Some(outcome) = self.childless.get(&call.slot) {
            let known = Job::Known(outcome.clone(), None);
            plan.admit(now, call, known).await;
            return true;
        }
        let left = plan.machine.time_left();
        limit(&mut call, left);
        if let Some(job) = ahead.take(&call) {
            return self.admit_job(plan, call, job).await;
        }
        let mut following = following(&plan.machine, now, &call);
        for call in &mut following {
            limit(call, left);
        }
        let calls: Vec<&Call> = std::iter::once(&*call).chain(&following).collect();
        let mut jobs = tokio::select! {
            jobs = self.kind.look_up(plan.machine.run(), &calls) => jobs.into_iter(),
            // Its project may hang.
            () = self.signal.changed() => return false,
            () = self.stop.due() => {
                plan.machine.abandon(call.slot);
                return true;
            }
        };
        let job = jobs.next().expect("the call itself was looked up");
        ahead.extend(following.into_iter().zip(jobs));
        self.admit_job(plan, call, job).await
    }

    /// Commits the facts and the plan, and spawns its calls. Returns false if the commit was refused; then no part of
    /// the plan has happened.
    async fn commit_plan(&mut self, plan: Plan<K>) -> Result<bool, rye_journal::Error> {
        if self.facts.is_empty() && plan.is_empty() {
            self.machine = plan.machine;
            self.stop_useless();
            return Ok(true);
        }
        let facts = self.facts.len();
        let announced = match self.commit_or_queue(plan.changes).await {
            Err(error) if is_stopping(&error) => return Err(error),
            Err(rye_journal::Error::Refused(refused)) if refused.why != RefusalReason::Full => {
                let change = refused.change.checked_sub(facts);
                let is_unpaid = matches!(refused.why, RefusalReason::Budget(_));
                let mut calls = plan.calls.iter();
                let creating = calls.clone().find(|planned| planned.creates(change));
                let paying = calls.find(|planned| is_unpaid && planned.announces(change));
                match (creating, paying) {
                    (Some(planned), _) | (None, Some(planned))
                        if refused.awaited_limit().is_some() =>
                    {
                        let now = self.services.clock.up();
                        self.budget_wait.enqueue(planned.call.slot, now, &refused);
                    }
                    (Some(planned), _) => self.refuse_child(&planned.call, &refused),
                    (None, Some(planned)) => self.refuse(&planned.call, &refused),
                    // The plan was made on an outdated record.
                    (None, None) if change.is_some() && *self.commits.borrow() != self.base => {}
                    (None, None) => return Err(rye_journal::Error::Refused(refused)),
                }
                return Ok(false);
            }
            committed => committed?,
        };
        self.machine = plan.machine;
        self.childless.clear();
        self.rebase(announced.run(&self.id));
        self.stop_useless();
        self.begin(plan.calls, Some(announced.ticket));
        Ok(true)
    }

    /// Starts `calls` once the commit that announces them is durable. Calls announced earlier pass `None`.
    fn begin(&mut self, calls: Vec<plan::Planned<K::Plan>>, announced: Option<Ticket>) {
        let run = self.machine.run();
        let strict = run.spec.durability == Durability::Strict;
        // A call planned despite a cancel, such as a hook at the end, is not stopped by that cancel.
        let unless = match run.cancel {
            None => Urgency::Cancel,
            Some(_) => Urgency::Shutdown,
        };
        let actor = self.services.suspects.handle(&self.id);
        let durable = announced.map(|at| attempt::announced(&self.services, at, calls.len()));
        let mut durable = durable.into_iter().flatten();
        let attempts = calls.into_iter().map(|planned| {
            let durable = durable.next().filter(|_| planned.waits(strict));
            let reports = Reports::new(planned.call.slot, self.reporter.clone());
            let stop = self.stop.for_call(planned.call.slot, planned.call.effect);
            let kind = Arc::clone(&self.kind);
            let attempt = attempt(kind, stop, planned, durable, unless, reports);
            let attempt = charged(self.services.journal.memory(), attempt);
            actor.clone().entered(attempt).in_current_span()
        });
        self.attempts.spawn_together(attempts.collect());
    }

    /// Waits for the end of a call, a report, a time, a request to the run, or freed budget.
    async fn wait(&mut self, until: Option<Uptime>) {
        if *self.commits.borrow_and_update() != self.base {
            return;
        }
        let clock = Arc::clone(&self.services.clock);
        let pause = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((call, ended)) = self.attempts.next() => self.take(call, ended).await,
            Some((slot, signal)) = self.reports.recv() => self.take_report(slot, signal),
            () = pause => {}
            () = self.signal.changed() => {}
            _ = self.commits.changed() => {}
            () = self.budget_wait.woken() => self.budget_wait.allow_retry(),
        }
        // Further events go into the same commit, so that one sync covers them all.
        while let Some((call, ended)) = self.attempts.try_next() {
            self.take(call, ended).await;
        }
        self.take_reports();
    }

    fn take_report(&mut self, slot: Slot, signal: Signal<K>) {
        let now = self.services.clock.tick();
        let events = self.machine.on_signal(now, slot, signal);
        self.facts.extend(events);
    }

    fn take_reports(&mut self) {
        while let Ok((slot, signal)) = self.reports.try_recv() {
            self.take_report(slot, signal);
        }
    }

    /// Returns the next attempt that ends, or `None` if none is in flight. Processes reports of the others meanwhile.
    async fn next_end(&mut self) -> Option<Finished> {
        loop {
            tokio::select! {
                ended = self.attempts.next() => return ended,
                Some((slot, signal)) = self.reports.recv() => self.take_report(slot, signal),
            }
        }
    }

    /// Waits until nothing is in flight, because the daemon stops or the run is being killed. Commits the outcomes of
    /// the calls that ended by themselves.
    async fn wind_down(&mut self) -> Result<DriverExit, rye_journal::Error> {
        self.budget_wait.clear();
        while let Some((call, ended)) = self.next_end().await {
            self.take_reports();
            match ended {
                Ended::Stopped(ended) => self.receipt.merge(ended),
                ended @ (Ended::Outcome(_) | Ended::Suspended(_) | Ended::Exhausted(_)) => {
                    self.take(call, ended).await;
                }
            }
        }
        if !self.facts.is_empty() {
            match self.commit(Vec::new()).await {
                Err(error) if error.is_out_of_space() => {
                    // There is no time to wait for space. In the record the attempt is still in flight.
                    tracing::warn!(error = %with_sources(&error), "what a call came to is lost");
                }
                committed => drop(committed?),
            }
        }
        if self.machine.run().status().is_terminal() {
            return Ok(DriverExit::Ended);
        }
        Ok(DriverExit::Interrupted(std::mem::take(&mut self.receipt)))
    }

    /// Commits the facts, followed by `plans`, in one commit. If the journal refuses it, the facts are kept.
    async fn commit(&mut self, plans: Vec<Change>) -> Result<Committed, rye_journal::Error> {
        let mut changes = self.changes(self.facts.iter().cloned());
        changes.extend(plans);
        let committed = self.services.journal.commit(changes).await?;
        self.note_committed(&committed);
        Ok(committed)
    }

    /// Drops the committed facts. The record now accounts for the memory of their results.
    fn forget_facts(&mut self) {
        self.facts.clear();
        self.charges.clear();
    }

    fn note_committed(&mut self, committed: &Committed) {
        self.forget_facts();
        self.last = Some(committed.ticket);
        self.pauses = storage_backoff::Pauses::default();
    }

    /// Passes the present record to the machine. Attempts in flight stay in flight.
    fn rebase(&mut self, record: Option<&Arc<Run>>) {
        if let Some(record) = record {
            self.base = record.seq;
            self.machine.rebase(Arc::clone(record));
        }
    }

    /// Replaces the machine by one for the present record, with nothing in flight.
    fn begin_anew(&mut self, record: Option<&Arc<Run>>) {
        if let Some(record) = record {
            self.base = record.seq;
            self.machine = self.kind.machine(Arc::clone(record));
        }
    }

    fn changes(&self, events: impl IntoIterator<Item = Event>) -> Vec<Change> {
        let changes = events
            .into_iter()
            .map(|event| Change::event(&self.id, event));
        changes.collect()
    }
}
