//! The one driver of runs of every kind: asks the machine, commits, acts, asks again.
//!
//! **Owns** the attempts in flight of its run, and nothing else. **Never** decides: the [`Machine`] does, and [`rye_journal`] is
//! the only door to state. What is special to a kind of run is its [`Kind`].
//!
//! ```text
//! machine ─Call─► look up ─┬─ refused, cached: concluded on the spot
//!    ▲                     └─ announced (with the child run it creates) ─► commit ─► attempt: durable ─► act ─┐
//!    └──────────────────────────────── conclude ◄─────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Order.** What has happened (facts) and what is to happen next (a plan) are one commit. A plan is drawn up on a copy of the
//! machine, which replaces the machine once the plan is committed; one that is refused leaves no trace, and what is in flight
//! does not notice. The attempts that a commit announces are a task of their own, which waits itself until that commit is durable (unless
//! the run is `relaxed`, and the effect may be repeated); the driver waits for no sync but the first and the last. That this life
//! of the daemon owns the run is durable before the machine is asked for its first move.
//!
//! **Races.** What others commit to the run (a request to cancel, an answer) reaches the machine with the record, before its next
//! move: a request to stop is committed first, and the attempts are notified then. What an attempt reported is heard before its end.
//!
//! **Failure.** On ENOSPC the run is suspended; what its calls came to stays in memory and is committed on resume, so that none of
//! them is repeated. A journal that refuses the run's events (it was killed meanwhile), or that failed, ends the loop with that error.

mod ahead;
mod attempt;
mod context;
mod fail;
mod job;
mod line;
mod plan;
mod space;

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

use self::ahead::{Ahead, following};
pub use self::attempt::Reports;
use self::attempt::{Attempts, Finished, attempt, charged};
pub use self::context::RunContext;
pub use self::fail::fail;
pub use self::job::Job;
use self::line::Line;
use self::plan::{Plan, Then, limit};
use self::space::{Lack, Live};
use crate::exhausted::Exhausted;
use crate::services::{Ended, Services};
use crate::stop::{Changes, DriverExit, Stop, Urgency};
use crate::storage_backoff;
use rye_journal::{Change, Committed, Ticket, Why};

/// Changes that are committed together at most, give or take those of one call. Calls that are concluded on the spot never
/// make the machine wait, and there may be a hundred thousand of them.
const MOST_PLANNED: usize = 256;
/// Reports of attempts that wait for the driver; an attempt with more to say waits.
const MOST_REPORTS: usize = 256;

/// What the attempts of a kind report before they end.
type Signal<K> = <<K as Kind>::Machine as Machine>::Signal;
/// What the machine of a kind asks.
pub type Query<K> = <<K as Kind>::Machine as Machine>::Query;
/// What it is answered.
pub type Answer<K> = <<K as Kind>::Machine as Machine>::Answer;

/// What is special to a kind of run.
pub trait Kind: Send + Sync + 'static {
    /// What decides.
    type Machine: Machine;
    /// What a call that was looked up is carried out by.
    type Plan: Send + 'static;

    /// The machine of `run`, fresh or recovered.
    fn machine(&self, run: Arc<Run>) -> Self::Machine;

    /// Finds out what each of `calls` needs, in their order: what begins in one turn goes to the files of the project together. Nothing
    /// is committed and nothing begins here. Cancel safe.
    fn look_up(
        &self,
        run: &Run,
        calls: &[&Call],
    ) -> impl Future<Output = Vec<Job<Self::Plan>>> + Send;

    /// What a second execution of a call would mean, as that says which carries it out; `None` if it does not.
    fn effect(_plan: &Self::Plan) -> Option<Effect> {
        None
    }

    /// How a model reads the result of a call, as that says which carries it out.
    fn result_text(_plan: &Self::Plan) -> ResultText {
        ResultText::default()
    }

    /// Finds out what the machine asks. Nothing is committed here, and what is done has no effect but to keep what may be kept
    /// twice. Cancel safe.
    fn answer(
        &self,
        run: &Run,
        query: &Query<Self>,
    ) -> impl Future<Output = Result<Answer<Self>, rye_journal::Error>> + Send;

    /// Carries out a call whose announcement is durable; it ends by itself, or as `stop` says. Until then it may report.
    fn carry_out(
        &self,
        call: &Call,
        plan: Self::Plan,
        stop: &Stop,
        reports: &Reports<Signal<Self>>,
    ) -> impl Future<Output = Ended> + Send;
}

/// Whether nothing begins in the run any more, because it is being killed.
fn is_stopping(error: &rye_journal::Error) -> bool {
    matches!(error, rye_journal::Error::Refused(refused) if matches!(refused.why, Why::Stopping(_)))
}

/// Drives `run` to its end, until it is suspended, or until the daemon stops.
pub async fn drive<K: Kind>(
    services: &Arc<Services>,
    kind: Arc<K>,
    run: &Arc<Run>,
    stop: &Stop,
) -> Result<DriverExit, rye_journal::Error> {
    let mut drive = Drive::new(services, kind, run, stop)?;
    loop {
        let lacking = match drive.live().await {
            Ok(Live::Lacking(lack)) => Lack::Host(lack),
            Ok(Live::Left(exit)) => return Ok(exit),
            Err(error) if error.is_out_of_space() => Lack::Space(error),
            Err(error) if is_stopping(&error) => {
                // The kill is on record, and on its way to every task that it covers.
                stop.at_least(Urgency::Shutdown).await;
                return drive.leave().await;
            }
            Err(error) => return Err(error),
        };
        drive.line.leave();
        if let Some(exit) = drive.wait_for(&lacking).await? {
            return Ok(exit);
        }
    }
}

struct Drive<'a, K: Kind> {
    id: RunId,
    services: Arc<Services>,
    kind: Arc<K>,
    /// As committed, and `facts` after that.
    machine: K::Machine,
    stop: &'a Stop,
    /// What has changed about `stop` since the last wait: a request that comes between the look at it and the wait ends the wait.
    signal: Changes,
    /// The last event of the run as committed, by its driver or by others.
    commits: watch::Receiver<Seq>,
    /// The last event in the record that the machine was given.
    base: Seq,
    /// Events that say what has happened; they wait for the next commit, and survive one that is refused.
    facts: Vec<Event>,
    /// What is charged for the results in `facts`.
    charges: Vec<Held>,
    /// The last commit of this drive.
    last: Option<Ticket>,
    attempts: Attempts,
    reports: mpsc::Receiver<(Slot, Signal<K>)>,
    reporter: mpsc::Sender<(Slot, Signal<K>)>,
    /// What calls come to whose child runs are refused, until the next plan is committed.
    childless: HashMap<Slot, Box<CallOutcome>>,
    /// The call that waits for money, if one does.
    line: Line,
    /// Pauses of a run that meets ENOSPC.
    pauses: storage_backoff::Pauses,
    /// What the host has too little of.
    lack: Option<Exhausted>,
    /// Calls that are announced, and could not begin.
    unstarted: Vec<Call>,
    /// Pauses of a run with such calls.
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
            charges: Vec::new(),
            last: None,
            attempts: Attempts::new(),
            reports,
            reporter,
            childless: HashMap::new(),
            line: Line::default(),
            pauses: storage_backoff::Pauses::default(),
            lack: None,
            unstarted: Vec::new(),
            tries: storage_backoff::Pauses::default(),
        })
    }

    /// Claims the run, then plans, commits and waits, over and over.
    async fn live(&mut self) -> Result<Live, rye_journal::Error> {
        self.claim().await?;
        self.begin_unstarted().await;
        loop {
            if self.stop.is_shutdown() {
                return self.leave().await.map(Live::Left);
            }
            if let Some(lack) = self.lack.take() {
                return Ok(Live::Lacking(lack));
            }
            self.take_news().await?;
            if self.stop.is_held() {
                self.machine.hold(Suspension::new(SuspendReason::User));
            }
            let mut plan = Plan::on(&self.machine);
            let then = self.draw_up(&mut plan).await?;
            if !self.carry(plan).await? {
                continue;
            }
            match then {
                Then::Ask => tokio::task::yield_now().await,
                Then::Wait(until) => self.wait(until).await,
                Then::Rest => {
                    if let Some(ticket) = self.last {
                        self.services.journal.durable(ticket).await?;
                    }
                    return Ok(Live::Left(DriverExit::Ended));
                }
            }
        }
    }

    /// The run is ours from here on. That is durable before the first move: if that move brings the daemon down, it is on
    /// record who made it.
    async fn claim(&mut self) -> Result<(), rye_journal::Error> {
        let epoch = self.services.epoch;
        let run = self.machine.run();
        let event = match &run.life {
            Life::Suspended(_) => RunEvent::resumed(epoch),
            // Its start or its resumption is committed already.
            Life::Running if run.epoch == epoch => return Ok(()),
            Life::Ended(_) => return Ok(()),
            Life::Created | Life::Running => {
                let death = self.services.suspects.death_in(&self.id);
                RunEvent::RunStarted {
                    epoch,
                    suspected: death.is_some(),
                    fault: death == Some(Death::Fault),
                }
            }
        };
        let claim = self.changes([event.into()]);
        let claimed = self.services.journal.commit(claim).await?;
        self.services.journal.durable(claimed.ticket).await?;
        self.services.suspects.settle(&self.id);
        self.begin_anew(claimed.run(&self.id));
        Ok(())
    }

    /// What others have committed to the run reaches the machine.
    async fn take_news(&mut self) -> Result<(), rye_journal::Error> {
        if *self.commits.borrow() == self.base {
            return Ok(());
        }
        if !self.facts.is_empty() {
            let committed = self.commit(Vec::new()).await?;
            self.rebase(committed.run(&self.id));
            return Ok(());
        }
        let Some(record) = self.services.journal.snapshot(&self.id) else {
            // Somebody else has ended it, and it has left memory.
            let run = self.id.clone();
            return Err(rye_journal::Error::Unknown { run });
        };
        self.rebase(Some(&record));
        Ok(())
    }

    /// Asks the machine for its moves until there is something to wait for.
    async fn draw_up(&mut self, plan: &mut Plan<K>) -> Result<Then, rye_journal::Error> {
        let mut ahead = Ahead::new();
        loop {
            match plan.next(self.services.clock.tick()).await {
                Move::Note(events) => {
                    plan.note(events);
                    return Ok(Then::Ask);
                }
                Move::Call(events, call) => {
                    plan.note(events);
                    if self.line.holds_up(&call) {
                        return Ok(Then::Wait(self.stand_in_line(plan, &call)));
                    }
                    let admitted = self.admit(plan, &mut ahead, call).await;
                    if !admitted || plan.changes.len() >= MOST_PLANNED {
                        return Ok(Then::Ask);
                    }
                }
                Move::Query(events, query) => {
                    plan.note(events);
                    self.ask(plan, &query).await?;
                    return Ok(Then::Ask);
                }
                Move::Wait(events, until) => {
                    plan.note(events);
                    self.leave_line(plan);
                    return Ok(Then::Wait(until));
                }
                Move::Suspended(events) | Move::End(events) => {
                    plan.note(events);
                    self.leave_line(plan);
                    return Ok(Then::Rest);
                }
            }
        }
    }

    /// Finds out what the machine asks, unless something is asked of the run meanwhile, which is heeded first. What the answer leads to
    /// is committed before anything more is asked, which may take long.
    async fn ask(
        &mut self,
        plan: &mut Plan<K>,
        query: &Query<K>,
    ) -> Result<(), rye_journal::Error> {
        let answer = tokio::select! {
            answer = self.kind.answer(plan.machine.run(), query) => answer?,
            () = self.signal.changed() => return Ok(()),
            () = self.stop.due() => return Ok(()),
        };
        let now = self.services.clock.tick();
        let events = plan.machine.answered(now, answer);
        plan.note(events);
        Ok(())
    }

    /// Looks a call up and plans it, or concludes it on the spot; `false` if something was asked of the run meanwhile, which is
    /// heeded before the call is looked up again.
    async fn admit(
        &mut self,
        plan: &mut Plan<K>,
        ahead: &mut Ahead<K::Plan>,
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

    /// Commits the facts and the plan, and spawns its calls; `false` if it was refused and nothing of it has happened.
    async fn carry(&mut self, plan: Plan<K>) -> Result<bool, rye_journal::Error> {
        if self.facts.is_empty() && plan.is_empty() {
            self.machine = plan.machine;
            return Ok(true);
        }
        let facts = self.facts.len();
        let announced = match self.commit_in_line(plan.changes).await {
            Err(error) if is_stopping(&error) => return Err(error),
            Err(rye_journal::Error::Refused(refused)) if refused.why != Why::Full => {
                let change = refused.change.checked_sub(facts);
                let is_unpaid = matches!(refused.why, Why::Budget(_));
                let mut calls = plan.calls.iter();
                let creating = calls.clone().find(|planned| planned.creates(change));
                let paying = calls.find(|planned| is_unpaid && planned.announces(change));
                match (creating, paying) {
                    (Some(planned), _) | (None, Some(planned)) if refused.lacking().is_some() => {
                        let now = self.services.clock.up();
                        self.line.stand(planned.call.slot, now, &refused);
                    }
                    (Some(planned), _) => self.refuse_child(&planned.call, &refused),
                    (None, Some(planned)) => self.refuse(&planned.call, &refused),
                    // It was drawn up on a record that was not the last.
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
        self.begin(plan.calls, Some(announced.ticket));
        Ok(true)
    }

    /// Carries the calls out, once the commit that announces them is durable, if it is new.
    fn begin(&mut self, calls: Vec<plan::Planned<K::Plan>>, announced: Option<Ticket>) {
        let run = self.machine.run();
        let strict = run.spec.durability == Durability::Strict;
        // What is planned in spite of a cancel (a hook of the end) is not stopped by it.
        let unless = match run.cancel {
            None => Urgency::Cancel,
            Some(_) => Urgency::Shutdown,
        };
        let actor = self.services.suspects.actor(&self.id);
        let durable = announced.map(|at| attempt::announced(&self.services, at, calls.len()));
        let mut durable = durable.into_iter().flatten();
        let attempts = calls.into_iter().map(|planned| {
            let durable = durable.next().filter(|_| planned.waits(strict));
            let reports = Reports::new(planned.call.slot, self.reporter.clone());
            let (kind, stop) = (Arc::clone(&self.kind), self.stop.clone());
            let attempt = attempt(kind, stop, planned, durable, unless, reports);
            let attempt = charged(self.services.journal.memory(), attempt);
            actor.clone().runs(attempt).in_current_span()
        });
        self.attempts.spawn_together(attempts.collect());
    }

    /// Waits for the end of a call or a report, for a time, or for somebody who wants something of the run.
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
            Some((slot, signal)) = self.reports.recv() => self.hear(slot, signal),
            () = pause => {}
            () = self.signal.changed() => {}
            _ = self.commits.changed() => {}
            () = self.line.called() => self.line.ask(),
        }
        // Whatever else has happened goes into the same commit: one sync for all of it.
        while let Some((call, ended)) = self.attempts.try_next() {
            self.take(call, ended).await;
        }
        self.hear_all();
    }

    fn hear(&mut self, slot: Slot, signal: Signal<K>) {
        let now = self.services.clock.tick();
        let events = self.machine.heard(now, slot, signal);
        self.facts.extend(events);
    }

    fn hear_all(&mut self) {
        while let Ok((slot, signal)) = self.reports.try_recv() {
            self.hear(slot, signal);
        }
    }

    /// What a call came to. One that was stopped for a cancel leaves nothing behind: it did not complete.
    async fn take(&mut self, call: Box<Call>, ended: Ended) {
        self.hear_all();
        let now = self.services.clock.tick();
        match ended {
            Ended::Stopped(_) => self.machine.abandon(call.slot),
            Ended::Suspended(child) => self.machine.suspend_for(call.slot, child),
            Ended::Exhausted(lack) => {
                self.lack = Some(lack);
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

    /// The next attempt that ends; `None` when none is in flight. What the others report is heard meanwhile.
    async fn next_end(&mut self) -> Option<Finished> {
        loop {
            tokio::select! {
                ended = self.attempts.next() => return ended,
                Some((slot, signal)) = self.reports.recv() => self.hear(slot, signal),
            }
        }
    }

    /// The daemon stops, or the run is being killed: waits until nothing is in flight any more, and writes down what ended by
    /// itself.
    async fn leave(&mut self) -> Result<DriverExit, rye_journal::Error> {
        self.line.leave();
        let mut receipt = KillReceipt::default();
        while let Some((call, ended)) = self.next_end().await {
            self.hear_all();
            match ended {
                Ended::Stopped(ended) => receipt.merge(ended),
                ended @ (Ended::Outcome(_) | Ended::Suspended(_) | Ended::Exhausted(_)) => {
                    self.take(call, ended).await;
                }
            }
        }
        if !self.facts.is_empty() {
            match self.commit(Vec::new()).await {
                Err(error) if error.is_out_of_space() => {
                    // There is no time to wait for it: to the record, the attempt is still in flight.
                    tracing::warn!(error = %with_sources(&error), "what a call came to is lost");
                }
                committed => drop(committed?),
            }
        }
        if self.machine.run().status().is_terminal() {
            return Ok(DriverExit::Ended);
        }
        Ok(DriverExit::Interrupted(receipt))
    }

    /// Commits the facts and then `plans`, as one. If the journal refuses, the facts stay.
    async fn commit(&mut self, plans: Vec<Change>) -> Result<Committed, rye_journal::Error> {
        let mut changes = self.changes(self.facts.iter().cloned());
        changes.extend(plans);
        let committed = self.services.journal.commit(changes).await?;
        self.note_committed(&committed);
        Ok(committed)
    }

    /// The facts are on record: what is kept of their results is counted there.
    fn forget_facts(&mut self) {
        self.facts.clear();
        self.charges.clear();
    }

    fn note_committed(&mut self, committed: &Committed) {
        self.forget_facts();
        self.last = Some(committed.ticket);
        self.pauses = storage_backoff::Pauses::default();
    }

    /// The machine learns what the run is by now.
    fn rebase(&mut self, record: Option<&Arc<Run>>) {
        if let Some(record) = record {
            self.base = record.seq;
            self.machine.rebase(Arc::clone(record));
        }
    }

    /// The machine of the run as it is by now, with nothing in flight.
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
