//! Drives one graph run: asks the walker, commits, acts, asks again.
//!
//! **Owns** the calls in flight of its run, and nothing else. **Never** decides: [`Walker`] does, and [`crate::journal`] is
//! the only door to state.
//!
//! ```text
//! walker ─Call─► prepare ─┬─ refused, cached: concluded on the spot
//!    ▲                    ├─ effect:  StepStarted ───────────────► commit ─durable─► carry out ─┐
//!    │                    └─ a graph: StepStarted + run_created ─► commit ─durable─► await ─────┤
//!    └──────────────────────────────── conclude ◄───────────────────────────────────────────────┘
//! ```
//!
//! **Order.** The end of an attempt and the start of the next are one commit, and no call starts before the commit that
//! announces it is durable (unless the run is `relaxed`, and the effect may be repeated). Between two attempts the stop
//! signal is looked at; a cancelled call gets the grace of [`crate::dispatch`] to end by itself, and its result counts if it
//! does. Each attempt is a task of its own, which waits for the commit that announces it. A child run is created in the commit that starts its step; after a restart it is attached to, never started twice. Another
//! try of the step continues it, or takes what it has come to meanwhile.
//! **Failure.** A commit that finds no room parks the run, and what its calls came to waits in memory, so that none of them is
//! repeated. A journal that refuses the run's events (it was killed meanwhile), or that failed, ends the loop with that error.

mod attend;

use std::sync::Arc;

use rye_core::cas::InputScope;
use rye_core::clock::Uptime;
use rye_core::definition::Graph;
use rye_core::error::with_sources;
use rye_core::model::{
    Durability, Effect, Event, KillReceipt, Life, Run, RunEvent, SuspendReason, Suspension,
};
use rye_core::policy::Policy;
use rye_core::walker::{Call, Move, Walker};
use tracing::Instrument as _;

use self::attend::{CallContext, Ended, Job, PendingCall};
use crate::cache;
use crate::journal::{self, Change};
use crate::projects::Project;
use crate::services::Services;
use crate::stop::{Changes, DriverExit, Stop};
use crate::storage_backoff;
use crate::task::Group;

/// Changes that are committed together at most, give or take those of one call. Calls that are concluded on the spot never
/// make the walker wait, and there may be a hundred thousand of them.
const MOST_PLANNED: usize = 256;

/// Walks `run` under `policy` to its end, until it parks, or until the daemon stops.
pub async fn drive(
    services: &Arc<Services>,
    project: Arc<Project>,
    policy: Arc<Policy>,
    run: &Run,
    stop: &Stop,
) -> Result<DriverExit, journal::Error> {
    let journal = &services.journal;
    let graph = match services.graphs.of_run(&run.spec).await {
        Ok(graph) => graph,
        Err(failure) => {
            let end = Change::event(&run.id, run.end_by_failure(journal.now(), failure));
            let ticket = journal.commit(vec![end]).await?;
            journal.durable(ticket).await?;
            return Ok(DriverExit::Ended);
        }
    };
    let context = CallContext {
        services: Arc::clone(services),
        project,
        cache: cache::Store::new(journal.signer()),
        run: run.id.clone(),
        spec: Arc::clone(&run.spec),
        inputs: inputs(&graph, run),
    };
    let mut drive = Drive {
        services: Arc::clone(services),
        context: Arc::new(context),
        stop,
        signal: stop.changes(),
        walker: Walker::new(Arc::clone(&graph), Arc::clone(&policy), run.clone()),
        graph,
        policy,
        facts: Vec::new(),
        plans: Vec::new(),
        pending: Vec::new(),
        pauses: storage_backoff::Pauses::default(),
    };
    drive.take_up();
    let mut calls = Calls::new();
    loop {
        let walked = match drive.walk(&mut calls).await {
            Err(journal::Error::KeyTaken { run }) => {
                tracing::info!(%run, "somebody else goes on with a run below");
                drive.replan(&mut calls).await.map(|()| None)
            }
            walked => walked.map(Some),
        };
        match walked {
            Ok(None) => {}
            Ok(Some(left)) => return Ok(left),
            Err(error) if error.is_out_of_space() => {
                if let Some(left) = drive.wait_for_room(&mut calls, &error).await? {
                    return Ok(left);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// What the results of all nodes of the run depend on.
fn inputs(graph: &Graph, run: &Run) -> InputScope {
    let source = run.spec.graph.as_ref();
    let config_hash = source.map_or("", |source| source.config_hash.as_str());
    InputScope::new(&graph.digest, config_hash)
}

/// Attempts in flight, each a task of its own: nothing the driver waits for keeps their output, their timeouts or a request to
/// stop from being looked after.
type Calls = Group<(Box<Call>, Ended)>;

struct Drive<'a> {
    services: Arc<Services>,
    context: Arc<CallContext>,
    stop: &'a Stop,
    /// What has changed about `stop` since the last wait: a request that comes between the look at it and the wait ends the wait.
    signal: Changes,
    graph: Arc<Graph>,
    policy: Arc<Policy>,
    walker: Walker,
    /// Events that tell what has happened; they wait for the next commit, and survive one that is refused.
    facts: Vec<Event>,
    /// What is to happen next; drawn up anew if the commit is refused.
    plans: Vec<Change>,
    /// Calls that begin once `plans` is durable.
    pending: Vec<PendingCall>,
    /// Pauses of a run that finds no room to write.
    pauses: storage_backoff::Pauses,
}

impl Drive<'_> {
    /// The run is ours from here on.
    fn take_up(&mut self) {
        let epoch = self.services.epoch;
        let run = self.walker.run();
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
        self.walker
            .observe(self.services.journal.now(), &event)
            .expect("a run that is driven may start");
        self.facts.push(event);
    }

    async fn walk(&mut self, calls: &mut Calls) -> Result<DriverExit, journal::Error> {
        loop {
            if self.stop.is_shutdown() {
                return self.leave(calls).await;
            }
            self.heed_stop();
            let next = self.walker.next(self.services.clock.tick());
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
                        self.start_planned(calls).await?;
                        tokio::task::yield_now().await;
                    }
                }
                Move::Wait(events, until) => {
                    self.plan(events);
                    self.start_planned(calls).await?;
                    self.wait(calls, until).await;
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

    /// Requests to stop or to park were made elsewhere; the walker learns of them here.
    fn heed_stop(&mut self) {
        let now = self.services.journal.now();
        if let (None, Some(cause)) = (&self.walker.run().cancel, self.stop.cancel_cause()) {
            self.walker
                .observe(now, &Event::Run(RunEvent::CancelRequested { cause }))
                .expect("a running run may be cancelled");
        }
        if self.stop.is_held() {
            self.walker.hold(Suspension::new(SuspendReason::User));
        }
    }

    fn plan(&mut self, events: Vec<Event>) {
        let id = &self.walker.run().id;
        let changes = events.into_iter().map(|event| Change::event(id, event));
        self.plans.extend(changes);
    }

    /// Looks a call up, announces it, and makes ready what carries it out; or concludes it on the spot.
    async fn admit(&mut self, mut call: Box<Call>) {
        if let Some(left) = self.walker.time_left() {
            call.timeout = Some(call.timeout.map_or(left, |timeout| timeout.min(left)));
        }
        let job = tokio::select! {
            job = attend::look_up(&self.context, self.walker.run(), &call) => job,
            // Its project may hang. What is asked of the run is heeded before the call is looked up again.
            () = self.signal.changed() => return,
            () = self.stop.due() => return self.walker.abandon(call.slot),
        };
        let now = self.services.clock.tick();
        match job {
            Job::Answered(answer, announced) => {
                let mut events = Vec::new();
                if announced {
                    let hash = answer.node_input_hash.clone();
                    events = self.walker.start(now, &call, None, hash);
                }
                events.extend(self.walker.conclude(now, call.slot, &answer));
                self.plan(events);
            }
            Job::Begin {
                carrier,
                created,
                node_input_hash,
            } => {
                let child = carrier.run().cloned();
                let hash = node_input_hash.clone();
                let events = self.walker.start(now, &call, child, hash);
                self.plan(events);
                self.plans.extend(created);
                self.pending.push(PendingCall {
                    call,
                    carrier,
                    node_input_hash,
                });
            }
        }
    }

    /// Commits what is planned, and spawns the planned calls; each waits until that is durable before it acts.
    async fn start_planned(&mut self, calls: &mut Calls) -> Result<(), journal::Error> {
        if self.facts.is_empty() && self.plans.is_empty() && self.pending.is_empty() {
            return Ok(());
        }
        let ticket = self.commit().await?;
        let strict = self.context.spec.durability == Durability::Strict;
        for pending in self.pending.drain(..) {
            let waits = strict || pending.call.effect == Effect::AtMostOnce;
            let attempt = attend::attempt(
                Arc::clone(&self.context),
                self.stop.clone(),
                pending,
                waits.then_some(ticket),
            );
            calls.spawn(attempt.in_current_span());
        }
        Ok(())
    }

    /// Waits for the end of a call, for a time, or for somebody who wants the run to stop.
    async fn wait(&mut self, calls: &mut Calls, until: Option<Uptime>) {
        let clock = Arc::clone(&self.services.clock);
        let pause = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            Some(ended) = calls.next() => Some(ended),
            () = pause => None,
            () = self.signal.changed() => None,
        };
        if let Some((call, ended)) = ended {
            self.take(&call, ended);
        }
        // Whatever else has ended goes into the same commit: one sync for all of it.
        while let Some((call, ended)) = calls.try_next() {
            self.take(&call, ended);
        }
    }

    /// What a call came to. One that was stopped for a cancel leaves nothing behind: it did not complete.
    fn take(&mut self, call: &Call, ended: Ended) {
        self.heed_stop();
        let now = self.services.clock.tick();
        match ended {
            Ended::Stopped(_) => self.walker.abandon(call.slot),
            Ended::Parked(child) => self.walker.park(call.slot, child),
            Ended::Answered(answer) => {
                let events = self.walker.conclude(now, call.slot, &answer);
                self.facts.extend(events);
            }
        }
    }

    /// The daemon stops, or the run is being killed: the calls in flight are told by their stop signal, and what they left
    /// is gathered.
    async fn leave(&mut self, calls: &mut Calls) -> Result<DriverExit, journal::Error> {
        let mut receipt = KillReceipt::default();
        while let Some((call, ended)) = calls.next().await {
            match ended {
                Ended::Stopped(ended) => receipt.merge(ended),
                answered @ (Ended::Answered(_) | Ended::Parked(_)) => self.take(&call, answered),
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
        if self.walker.run().status().is_terminal() {
            return Ok(DriverExit::Ended);
        }
        Ok(DriverExit::Interrupted(receipt))
    }

    /// Commits the facts and then the plans, as one. If the journal refuses, the facts stay.
    async fn commit(&mut self) -> Result<journal::Ticket, journal::Error> {
        let id = &self.walker.run().id;
        let facts = self.facts.iter().cloned();
        let changes = facts
            .map(|event| Change::event(id, event))
            .chain(self.plans.drain(..))
            .collect();
        let ticket = self.services.journal.commit(changes).await?;
        self.facts.clear();
        self.pauses = storage_backoff::Pauses::default();
        Ok(ticket)
    }

    /// There is no room for what was to be committed: what is in flight ends, the run parks, and goes on when there is room
    /// again. What its calls came to is written down before, as far as there is room for that (the log keeps some); what is
    /// too long waits here, and is lost only if the run is stopped meanwhile: then its attempt is still in flight in the
    /// record, and is taken up like one that the daemon's end cut off.
    async fn wait_for_room(
        &mut self,
        calls: &mut Calls,
        error: &journal::Error,
    ) -> Result<Option<DriverExit>, journal::Error> {
        tracing::warn!(error = %with_sources(error), "there is no room to write: the run parks");
        self.plans.clear();
        self.pending.clear();
        while let Some((call, ended)) = calls.next().await {
            self.take(&call, ended);
        }
        // It is told anew when the run goes on.
        self.facts.retain(|fact| {
            !matches!(
                fact,
                Event::Run(RunEvent::RunStarted { .. }) | Event::Run(RunEvent::RunResumed { .. })
            )
        });
        self.park().await?;
        loop {
            let left = self.pauses.pass(&self.services.journal, self.stop).await?;
            if left.is_some() {
                return Ok(left);
            }
            match self.go_on().await {
                Ok(()) => return Ok(None),
                Err(error) if error.is_out_of_space() => {
                    tracing::debug!(error = %with_sources(&error), "there is still no room");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What was to happen next can no longer happen: what is in flight ends and is written down, and the walk goes on from
    /// the record.
    async fn replan(&mut self, calls: &mut Calls) -> Result<(), journal::Error> {
        self.plans.clear();
        self.pending.clear();
        while let Some((call, ended)) = calls.next().await {
            self.take(&call, ended);
        }
        self.commit().await?;
        self.walk_on_from_the_record().await?;
        self.take_up();
        Ok(())
    }

    /// Parks the run with the facts, or, if there is no room for those, without them. One that the daemon found parked when
    /// it started stays parked.
    async fn park(&mut self) -> Result<(), journal::Error> {
        if self.record().await?.suspension().is_some() {
            return Ok(());
        }
        let journal = Arc::clone(&self.services.journal);
        let parks = Event::Run(RunEvent::RunSuspended(Suspension::new(
            SuspendReason::Storage,
        )));
        let facts = self.facts.iter().cloned();
        let with_facts = self.changes(facts.chain([parks.clone()]));
        match journal.commit(with_facts).await {
            Ok(_) => self.facts.clear(),
            Err(error) if error.is_out_of_space() => {
                journal.commit(self.changes([parks])).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets the run go on from its record and the facts that it does not hold yet, if there is room for these.
    async fn go_on(&mut self) -> Result<(), journal::Error> {
        let resumes = Event::Run(RunEvent::RunResumed {
            epoch: self.services.epoch,
            max_steps: None,
        });
        let facts = self.facts.iter().cloned();
        let changes = self.changes([resumes].into_iter().chain(facts));
        self.services.journal.commit(changes).await?;
        self.facts.clear();
        self.walk_on_from_the_record().await
    }

    async fn walk_on_from_the_record(&mut self) -> Result<(), journal::Error> {
        let run = Run::clone(&*self.record().await?);
        let (graph, policy) = (Arc::clone(&self.graph), Arc::clone(&self.policy));
        self.walker = Walker::new(graph, policy, run);
        Ok(())
    }

    fn changes(&self, events: impl IntoIterator<Item = Event>) -> Vec<Change> {
        let id = &self.walker.run().id;
        let changes = events.into_iter().map(|event| Change::event(id, event));
        changes.collect()
    }

    async fn record(&self) -> Result<Arc<Run>, journal::Error> {
        let id = &self.walker.run().id;
        let run = self.services.journal.run(id).await?;
        run.ok_or_else(|| journal::Error::Unknown { run: id.clone() })
    }
}
