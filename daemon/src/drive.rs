//! The one driver of runs of every kind: asks the machine, commits, acts, asks again.
//!
//! **Owns** the attempts in flight of its run, and nothing else. **Never** decides: the [`Machine`] does, and [`crate::journal`] is
//! the only door to state. What is special to a kind of run is its [`Kind`].
//!
//! ```text
//! machine ─Call─► look up ─┬─ refused, cached: concluded on the spot
//!    ▲                     └─ announced (with the child run it creates) ─► commit ─► attempt: durable ─► act ─┐
//!    └──────────────────────────────── conclude ◄─────────────────────────────────────────────────────────────┘
//! ```
//!
//! **Order.** The end of an attempt and the start of the next are one commit. Each attempt is a task of its own, which waits
//! itself until the commit that announces it is durable (unless the run is `relaxed`, and the effect may be repeated); the driver
//! waits for no sync but the first and the last. Between two attempts the stop signal is looked at. That this life of the daemon owns
//! the run is durable before the machine is asked for its first move.
//! **Failure.** On ENOSPC the run is suspended; what its calls came to stays in memory and is committed on resume, so that none of
//! them is repeated. A journal that refuses the run's events (it was killed meanwhile), or that failed, ends the loop with that error.

mod context;

use std::future::Future;
use std::sync::Arc;

use rye_core::clock::Uptime;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::machine::{Call, CallOutcome, Machine, Move};
use rye_core::model::{
    Durability, Effect, Event, KillReceipt, Life, Run, RunEvent, SuspendReason, Suspension,
};
use tracing::Instrument as _;

pub use self::context::RunContext;
use crate::journal::{self, Change, Refused, Ticket, Why};
use crate::services::Services;
use crate::stop::{Changes, DriverExit, Stop, Urgency};
use crate::storage_backoff;
use crate::task::Group;

/// Changes that are committed together at most, give or take those of one call. Calls that are concluded on the spot never
/// make the machine wait, and there may be a hundred thousand of them.
const MOST_PLANNED: usize = 256;

/// What is special to a kind of run.
pub trait Kind: Send + Sync + 'static {
    /// What decides.
    type Machine: Machine;
    /// What a call that was looked up is carried out by.
    type Plan: Send + 'static;

    /// The machine of `run`, fresh or recovered.
    fn machine(&self, run: Run) -> Self::Machine;

    /// Finds out what `call` needs. Nothing is committed and nothing begins here. Cancel safe.
    fn look_up(&self, run: &Run, call: &Call) -> impl Future<Output = Job<Self::Plan>> + Send;

    /// Carries out a call whose announcement is durable; it ends by itself, or as `stop` says.
    fn carry_out(
        &self,
        call: &Call,
        plan: Self::Plan,
        stop: &Stop,
    ) -> impl Future<Output = Ended> + Send;
}

/// What a call needs.
#[derive(Debug)]
pub enum Job<P> {
    /// Nothing any more. The flag: whether it counts as attempted.
    Known(Box<CallOutcome>, bool),
    /// To be carried out.
    Begin {
        /// By what.
        plan: P,
        /// The child run that carries it out, if one does.
        child: Option<RunId>,
        /// The changes that create that run, if it is to be created: part of the commit that announces the call.
        creates: Vec<Change>,
        /// The key of its result.
        node_input_hash: Option<String>,
    },
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Ended {
    /// With an outcome.
    Outcome(Box<CallOutcome>),
    /// It was stopped because its run is to stop.
    Stopped(KillReceipt),
    /// The run that carries it out is suspended; the leaf of the suspended ones.
    Suspended(RunId),
}

/// A call that is announced together with what is planned.
struct Pending<P> {
    call: Box<Call>,
    plan: P,
}

/// Attempts in flight, each a task of its own: nothing the driver waits for keeps their output, their timeouts or a request to
/// stop from being looked after.
type Attempts = Group<(Box<Call>, Ended)>;

/// Drives `run` to its end, until it is suspended, or until the daemon stops.
pub async fn drive<K: Kind>(
    services: &Arc<Services>,
    kind: Arc<K>,
    run: &Run,
    stop: &Stop,
) -> Result<DriverExit, journal::Error> {
    let mut drive = Drive {
        services: Arc::clone(services),
        machine: kind.machine(run.clone()),
        kind,
        stop,
        signal: stop.changes(),
        facts: Vec::new(),
        plans: Vec::new(),
        pending: Vec::new(),
        pauses: storage_backoff::Pauses::default(),
    };
    if let Some(left) = drive.take_up().await? {
        return Ok(left);
    }
    let mut attempts = Attempts::new();
    loop {
        let walked = match drive.walk(&mut attempts).await {
            Err(journal::Error::Refused(Refused {
                why: Why::KeyTaken(run),
                ..
            })) => {
                tracing::info!(%run, "the child run is continued already");
                drive.replan(&mut attempts).await.map(|()| None)
            }
            walked => walked.map(Some),
        };
        match walked {
            Ok(None) => {}
            Ok(Some(left)) => return Ok(left),
            Err(error) if error.is_out_of_space() => {
                if let Some(left) = drive.wait_for_space(&mut attempts, &error).await? {
                    return Ok(left);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// The life of an attempt: waits until `announced` is durable, and carries the call out. One that was stopped before, or whose
/// announcement never became durable, has not begun.
async fn attempt<K: Kind>(
    services: Arc<Services>,
    kind: Arc<K>,
    stop: Stop,
    pending: Pending<K::Plan>,
    announced: Option<Ticket>,
) -> (Box<Call>, Ended) {
    let Pending { call, plan } = pending;
    if let Some(ticket) = announced {
        let durable = tokio::select! {
            durable = services.journal.durable(ticket) => durable.is_ok(),
            () = stop.at_least(Urgency::Shutdown) => false,
        };
        if !durable {
            return (call, Ended::Stopped(KillReceipt::default()));
        }
    }
    let ended = kind.carry_out(&call, plan, &stop).await;
    (call, ended)
}

struct Drive<'a, K: Kind> {
    services: Arc<Services>,
    kind: Arc<K>,
    machine: K::Machine,
    stop: &'a Stop,
    /// What has changed about `stop` since the last wait: a request that comes between the look at it and the wait ends the wait.
    signal: Changes,
    /// Events that tell what has happened; they wait for the next commit, and survive one that is refused.
    facts: Vec<Event>,
    /// What is to happen next; drawn up anew if the commit is refused.
    plans: Vec<Change>,
    /// Calls that begin once `plans` is durable.
    pending: Vec<Pending<K::Plan>>,
    /// Pauses of a run that meets ENOSPC.
    pauses: storage_backoff::Pauses,
}

impl<K: Kind> Drive<'_, K> {
    /// The run is ours from here on. That is durable before the first move: if that move brings the daemon down, it is on
    /// record who made it.
    async fn take_up(&mut self) -> Result<Option<DriverExit>, journal::Error> {
        self.claim();
        if self.facts.is_empty() {
            return Ok(None);
        }
        let claimed = match self.commit().await {
            Ok(ticket) => self.services.journal.durable(ticket).await,
            Err(error) => Err(error),
        };
        match claimed {
            Err(error) if error.is_out_of_space() => {
                self.wait_for_space(&mut Attempts::new(), &error).await
            }
            claimed => {
                claimed?;
                // The times that count are those on record, where somebody may have ended the run meanwhile.
                self.reload().await?;
                let ended = self.machine.run().status().is_terminal();
                Ok(ended.then_some(DriverExit::Ended))
            }
        }
    }

    /// Takes in that this life of the daemon owns the run, unless that is on record.
    fn claim(&mut self) {
        let epoch = self.services.epoch;
        let run = self.machine.run();
        let event = match &run.life {
            Life::Suspended(_) => Event::Run(RunEvent::RunResumed {
                epoch,
                max_steps: None,
            }),
            // Whoever resumed it has said so already.
            Life::Running if run.epoch == epoch => return,
            Life::Created | Life::Running | Life::Ended(_) => {
                Event::Run(RunEvent::RunStarted { epoch })
            }
        };
        self.machine
            .observe(self.services.journal.now(), &event)
            .expect("a run that is driven may start");
        self.facts.push(event);
    }

    async fn walk(&mut self, attempts: &mut Attempts) -> Result<DriverExit, journal::Error> {
        loop {
            if self.stop.is_shutdown() {
                return self.leave(attempts).await;
            }
            self.heed_stop();
            let next = self.machine.next(self.services.clock.tick());
            match next {
                Move::Note(events) => {
                    self.plan(events);
                    self.commit().await?;
                    tokio::task::yield_now().await;
                }
                Move::Call(events, call) => {
                    self.plan(events);
                    self.admit(call).await;
                    if self.plans.len() >= MOST_PLANNED {
                        self.start_planned(attempts).await?;
                        tokio::task::yield_now().await;
                    }
                }
                Move::Wait(events, until) => {
                    self.plan(events);
                    self.start_planned(attempts).await?;
                    self.wait(attempts, until).await;
                }
                Move::Park(events) | Move::End(events) => {
                    self.plan(events);
                    let ticket = self.commit().await?;
                    self.services.journal.durable(ticket).await?;
                    return Ok(DriverExit::Ended);
                }
            }
        }
    }

    /// Requests to cancel or to suspend were made elsewhere; the machine learns of them here.
    fn heed_stop(&mut self) {
        let now = self.services.journal.now();
        if let (None, Some(cause)) = (&self.machine.run().cancel, self.stop.cancel_cause()) {
            self.machine
                .observe(now, &Event::Run(RunEvent::CancelRequested { cause }))
                .expect("a running run may be cancelled");
        }
        if self.stop.is_held() {
            self.machine.hold(Suspension::new(SuspendReason::User));
        }
    }

    fn plan(&mut self, events: Vec<Event>) {
        let id = &self.machine.run().id;
        let changes = events.into_iter().map(|event| Change::event(id, event));
        self.plans.extend(changes);
    }

    /// Looks a call up, announces it, and makes ready what carries it out; or concludes it on the spot.
    async fn admit(&mut self, mut call: Box<Call>) {
        if let Some(left) = self.machine.time_left() {
            call.timeout = Some(call.timeout.map_or(left, |timeout| timeout.min(left)));
        }
        let job = tokio::select! {
            job = self.kind.look_up(self.machine.run(), &call) => job,
            // Its project may hang. What is asked of the run is heeded before the call is looked up again.
            () = self.signal.changed() => return,
            () = self.stop.due() => return self.machine.abandon(call.slot),
        };
        let now = self.services.clock.tick();
        match job {
            Job::Known(outcome, announced) => {
                let mut events = Vec::new();
                if announced {
                    let hash = outcome.node_input_hash.clone();
                    events = self.machine.start(now, &call, None, hash);
                }
                events.extend(self.machine.conclude(now, call.slot, &outcome));
                self.plan(events);
            }
            Job::Begin {
                plan,
                child,
                creates,
                node_input_hash,
            } => {
                let events = self.machine.start(now, &call, child, node_input_hash);
                self.plan(events);
                self.plans.extend(creates);
                self.pending.push(Pending { call, plan });
            }
        }
    }

    /// Commits what is planned, and spawns the planned calls; each waits until that is durable before it acts.
    async fn start_planned(&mut self, attempts: &mut Attempts) -> Result<(), journal::Error> {
        if self.facts.is_empty() && self.plans.is_empty() && self.pending.is_empty() {
            return Ok(());
        }
        let ticket = self.commit().await?;
        let strict = self.machine.run().spec.durability == Durability::Strict;
        for pending in self.pending.drain(..) {
            let waits = strict || pending.call.effect == Effect::AtMostOnce;
            let attempt = attempt(
                Arc::clone(&self.services),
                Arc::clone(&self.kind),
                self.stop.clone(),
                pending,
                waits.then_some(ticket),
            );
            attempts.spawn(attempt.in_current_span());
        }
        Ok(())
    }

    /// Waits for the end of a call, for a time, or for somebody who wants the run to stop.
    async fn wait(&mut self, attempts: &mut Attempts, until: Option<Uptime>) {
        let clock = Arc::clone(&self.services.clock);
        let pause = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            Some(ended) = attempts.next() => Some(ended),
            () = pause => None,
            () = self.signal.changed() => None,
        };
        if let Some((call, ended)) = ended {
            self.take(&call, ended);
        }
        // Whatever else has ended goes into the same commit: one sync for all of it.
        while let Some((call, ended)) = attempts.try_next() {
            self.take(&call, ended);
        }
    }

    /// What a call came to. One that was stopped for a cancel leaves nothing behind: it did not complete.
    fn take(&mut self, call: &Call, ended: Ended) {
        self.heed_stop();
        let now = self.services.clock.tick();
        match ended {
            Ended::Stopped(_) => self.machine.abandon(call.slot),
            Ended::Suspended(child) => self.machine.suspend_for(call.slot, child),
            Ended::Outcome(outcome) => {
                let events = self.machine.conclude(now, call.slot, &outcome);
                self.facts.extend(events);
            }
        }
    }

    /// The daemon stops, or the run is being killed: the calls in flight are told by their stop signal, and what they left
    /// is gathered.
    async fn leave(&mut self, attempts: &mut Attempts) -> Result<DriverExit, journal::Error> {
        let mut receipt = KillReceipt::default();
        while let Some((call, ended)) = attempts.next().await {
            match ended {
                Ended::Stopped(ended) => receipt.merge(ended),
                ended @ (Ended::Outcome(_) | Ended::Suspended(_)) => self.take(&call, ended),
            }
        }
        self.plans.clear();
        self.pending.clear();
        if !self.facts.is_empty() {
            match self.commit().await {
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

    /// Commits the facts and then the plans, as one. If the journal refuses, the facts stay.
    async fn commit(&mut self) -> Result<Ticket, journal::Error> {
        let id = &self.machine.run().id;
        let facts = self.facts.iter().cloned();
        let changes = facts
            .map(|event| Change::event(id, event))
            .chain(self.plans.drain(..))
            .collect();
        let ticket = self.services.journal.commit(changes).await?.ticket;
        self.facts.clear();
        self.pauses = storage_backoff::Pauses::default();
        Ok(ticket)
    }

    /// ENOSPC: what is in flight ends, the run is suspended, and it resumes when there is space again. What its calls came to is
    /// written down before, as far as there is space for that (the log keeps some); what is
    /// too long waits here, and is lost only if the run is stopped meanwhile: then its attempt is still in flight in the
    /// record, and is recovered like one that the daemon's end cut off.
    async fn wait_for_space(
        &mut self,
        attempts: &mut Attempts,
        error: &journal::Error,
    ) -> Result<Option<DriverExit>, journal::Error> {
        tracing::warn!(error = %with_sources(error), "there is no space to write: the run is suspended");
        self.plans.clear();
        self.pending.clear();
        while let Some((call, ended)) = attempts.next().await {
            self.take(&call, ended);
        }
        // It is committed anew when the run resumes.
        self.facts.retain(|fact| {
            !matches!(
                fact,
                Event::Run(RunEvent::RunStarted { .. } | RunEvent::RunResumed { .. })
            )
        });
        self.suspend().await?;
        loop {
            let left = self.pauses.pass(&self.services.journal, self.stop).await?;
            if left.is_some() {
                return Ok(left);
            }
            match self.resume().await {
                Ok(()) => return Ok(None),
                Err(error) if error.is_out_of_space() => {
                    tracing::debug!(error = %with_sources(&error), "there is still no space");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What was to happen next can no longer happen: what is in flight ends and is written down, and the run continues from
    /// its record.
    async fn replan(&mut self, attempts: &mut Attempts) -> Result<(), journal::Error> {
        self.plans.clear();
        self.pending.clear();
        while let Some((call, ended)) = attempts.next().await {
            self.take(&call, ended);
        }
        self.commit().await?;
        self.reload().await?;
        self.claim();
        Ok(())
    }

    /// Suspends the run with the facts, or, if there is no space for those, without them. One that the daemon found suspended
    /// when it started stays so.
    async fn suspend(&mut self) -> Result<(), journal::Error> {
        if self.record().await?.suspension().is_some() {
            return Ok(());
        }
        let journal = Arc::clone(&self.services.journal);
        let suspended = Event::Run(RunEvent::RunSuspended(Suspension::new(
            SuspendReason::Storage,
        )));
        // Facts that end the run cannot stand before its suspension.
        let ended = self.machine.run().status().is_terminal();
        let facts = self.facts.iter().cloned();
        let with_facts = self.changes(facts.chain([suspended.clone()]));
        if ended {
            journal.commit(self.changes([suspended])).await?;
            return Ok(());
        }
        match journal.commit(with_facts).await {
            Ok(_) => self.facts.clear(),
            Err(error) if error.is_out_of_space() => {
                journal.commit(self.changes([suspended])).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Resumes the run from its record and the facts that it does not hold yet, if there is space for these.
    async fn resume(&mut self) -> Result<(), journal::Error> {
        let resumes = Event::Run(RunEvent::RunResumed {
            epoch: self.services.epoch,
            max_steps: None,
        });
        let facts = self.facts.iter().cloned();
        let changes = self.changes([resumes].into_iter().chain(facts));
        self.services.journal.commit(changes).await?;
        self.facts.clear();
        self.reload().await
    }

    async fn reload(&mut self) -> Result<(), journal::Error> {
        let run = Run::clone(&*self.record().await?);
        self.machine = self.kind.machine(run);
        Ok(())
    }

    fn changes(&self, events: impl IntoIterator<Item = Event>) -> Vec<Change> {
        let id = &self.machine.run().id;
        let changes = events.into_iter().map(|event| Change::event(id, event));
        changes.collect()
    }

    async fn record(&self) -> Result<Arc<Run>, journal::Error> {
        let id = &self.machine.run().id;
        let run = self.services.journal.run(id).await?;
        run.ok_or_else(|| journal::Error::Unknown { run: id.clone() })
    }
}
