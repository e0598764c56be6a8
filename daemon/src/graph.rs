//! Drives one graph run: asks the walker, commits, acts, asks again.
//!
//! **Owns** nothing but the loop. **Never** decides: [`Walker`] does, and [`crate::journal`] is the only door to state.
//!
//! **Order.** The end of a step and the start of the next are one commit, and no call starts before the commit that
//! announces it is durable (unless the run is `relaxed`). Between two nodes the stop signal is looked at; a cancelled
//! call gets the grace of [`crate::process`] to end by itself, and its result counts if it does.
//! **Failure.** A journal that refuses the run's events (it was killed meanwhile) ends the loop quietly; a journal that
//! failed ends it with that error, and the supervisor ends the daemon.

use std::sync::Arc;

use rye_core::definition::{self, Graph};
use rye_core::error::chain as told;
use rye_core::id::Epoch;
use rye_core::model::{
    Durability, Event, Failure, KillReceipt, Phase, Run, SuspendReason, Suspension,
};
use rye_core::walker::{Answer, Call, Move, Walker};
use rye_item::Library;

use crate::chain::Origin;
use crate::dispatch::{Dispatcher, Order, Reply, Trace};
use crate::journal::{self, Change, Journal, Storage};
use crate::stop::{Left, Stop, Urgency};

/// Walks `run` to its end, or until the daemon stops.
pub async fn drive(
    journal: &Journal,
    dispatcher: &Dispatcher,
    library: &Library,
    epoch: Epoch,
    run: &Run,
    stop: &Stop,
) -> Result<Left, journal::Error> {
    let graph = match read(run) {
        Ok(graph) => Arc::new(graph),
        Err(failure) => {
            let error = Event::GraphError {
                error: failure,
                steps: run.progress.steps,
                elapsed_ms: 0,
            };
            let ticket = journal.commit(vec![Change::event(&run.id, error)]).await?;
            journal.durable(ticket).await?;
            return Ok(Left::Ended);
        }
    };
    let mut drive = Drive {
        journal,
        dispatcher,
        library,
        epoch,
        stop,
        walker: Walker::new(Arc::clone(&graph), run.clone()),
        graph,
        pending: Vec::new(),
    };
    drive.take_up();
    loop {
        match drive.walk().await {
            Err(journal::Error::Full) => {
                if let Some(left) = drive.wait_for_space().await? {
                    return Ok(left);
                }
            }
            walked => return walked,
        }
    }
}

/// The graph as it was verified when the run was accepted.
fn read(run: &Run) -> Result<Graph, Failure> {
    let source = run
        .birth
        .graph
        .as_ref()
        .ok_or_else(|| Failure::permanent("graph_missing", "the run holds no graph"))?;
    definition::parse(&source.text)
        .map(|(graph, _)| graph)
        .map_err(|findings| {
            let first = findings
                .into_iter()
                .next()
                .map(|finding| finding.to_string())
                .unwrap_or_default();
            Failure::permanent("graph_validation_failed", first)
        })
}

struct Drive<'a> {
    journal: &'a Journal,
    dispatcher: &'a Dispatcher,
    library: &'a Library,
    epoch: Epoch,
    stop: &'a Stop,
    graph: Arc<Graph>,
    walker: Walker,
    /// Events that wait for the next commit: each is a fact already, what follows it is not yet.
    pending: Vec<Event>,
}

impl Drive<'_> {
    /// The run is ours from here on.
    fn take_up(&mut self) {
        let epoch = self.epoch;
        let event = match self.walker.run().phase {
            Phase::Suspended { .. } => Event::RunResumed { epoch },
            Phase::Created | Phase::Running { .. } | Phase::Ended { .. } => {
                Event::RunStarted { epoch }
            }
        };
        self.walker
            .observe(self.journal.now(), &event)
            .expect("a run that is driven may start");
        self.pending.push(event);
    }

    async fn walk(&mut self) -> Result<Left, journal::Error> {
        loop {
            if self.stop.is_shutdown() {
                if !self.pending.is_empty() {
                    self.commit(Vec::new()).await?;
                }
                return Ok(Left::Interrupted(KillReceipt::default()));
            }
            self.heed_cancel();
            let next = self.walker.next(self.journal.now());
            for note in self.walker.take_notes() {
                tracing::warn!("{note}");
            }
            match next {
                Move::Note(events) => {
                    self.commit(events).await?;
                    tokio::task::yield_now().await;
                }
                Move::Call(events, call) => {
                    let ticket = self.commit(events).await?;
                    if self.walker.run().birth.durability == Durability::Strict {
                        self.journal.durable(ticket).await?;
                    }
                    let reply = self.act(&call).await;
                    if reply.stopped && self.stop.is_shutdown() {
                        return Ok(Left::Interrupted(reply.receipt));
                    }
                    self.take(reply);
                }
                Move::End(events) => {
                    let ticket = self.commit(events).await?;
                    self.journal.durable(ticket).await?;
                    return Ok(Left::Ended);
                }
            }
        }
    }

    /// A request to cancel was committed by the supervisor; the walker learns of it here.
    fn heed_cancel(&mut self) {
        if let (None, Some(cause)) = (&self.walker.run().cancel, self.stop.cancel_cause()) {
            self.walker
                .observe(self.journal.now(), &Event::CancelRequested { cause })
                .expect("a running run may be cancelled");
        }
    }

    async fn act(&self, call: &Call) -> Reply {
        let run = self.walker.run();
        let order = Order {
            origin: Origin {
                run: run.id.clone(),
                birth: Arc::clone(&run.birth),
                attempt: call.attempt,
                key: call.key.clone(),
            },
            primary: call.primary,
            item: call.item.clone(),
            params: call.params.clone(),
            trace: Trace::Dropped,
        };
        let note_process = |process| {
            let event = Event::ProcessStarted {
                step: call.step,
                process,
            };
            if let Err(error) = self.journal.note(&run.id, event) {
                tracing::warn!(error = %told(&error), "a process identity was not recorded");
            }
        };
        self.dispatcher
            .carry_out(order, self.library, self.stop, &note_process)
            .await
    }

    /// What the call came to. A call that was stopped for a cancel leaves no completed step: it did not complete.
    fn take(&mut self, reply: Reply) {
        self.heed_cancel();
        if reply.stopped && self.walker.run().cancel.is_some() {
            return;
        }
        let answer = Answer {
            failure: reply.envelope.failure.clone(),
            result: reply.envelope.unwrap_result(),
        };
        let events = self.walker.conclude(self.journal.now(), &answer);
        self.pending.extend(events);
    }

    /// Commits what is pending and then `events`, as one. What is pending stays so if the journal refuses.
    async fn commit(&mut self, events: Vec<Event>) -> Result<journal::Ticket, journal::Error> {
        let id = &self.walker.run().id;
        let changes = self
            .pending
            .iter()
            .cloned()
            .chain(events)
            .map(|event| Change::event(id, event))
            .collect();
        let ticket = self.journal.commit(changes).await?;
        self.pending.clear();
        Ok(ticket)
    }

    /// The disk is full: what is done is written down (the log keeps room for that), the run parks, and goes on from
    /// its record when there is space again.
    async fn wait_for_space(&mut self) -> Result<Option<Left>, journal::Error> {
        let why = Suspension {
            reason: SuspendReason::Storage,
            code: None,
            node: None,
        };
        self.commit(vec![Event::RunSuspended(why)]).await?;
        tracing::warn!("the disk is full: the run is parked");
        let mut storage = self.journal.storage();
        tokio::select! {
            space = storage.wait_for(|storage| *storage == Storage::Ok) => {
                if space.is_err() {
                    return Err(journal::Error::Closed);
                }
            }
            () = self.stop.at_least(Urgency::Shutdown) => {
                return Ok(Some(Left::Interrupted(KillReceipt::default())));
            }
            // The supervisor ends a parked run itself when it is cancelled.
            () = self.stop.at_least(Urgency::Cancel) => return Ok(Some(Left::Ended)),
        }
        let id = self.walker.run().id.clone();
        let Some(run) = self.journal.run(&id).await? else {
            return Err(journal::Error::Unknown { run: id });
        };
        self.walker = Walker::new(Arc::clone(&self.graph), Run::clone(&run));
        self.take_up();
        Ok(None)
    }
}
