//! One call of a graph run: looked up, then carried out by a tool or by a run of its own.
//!
//! **Cache.** A node with `cache_result` is answered from [`crate::cache`] if its key is known there; the key is the hash
//! over graph, node, action, configuration and the content of its tool's whole chain; what a tool reads besides is not part of
//! it. Permission and parameters are checked before. What succeeded is stored before it is concluded; failures and calls whose
//! effect nobody knows never are. A call of a graph gets its key all the same, for its receipt, and is never cached: the key
//! cannot cover what the graph will call.

use std::sync::Arc;

use rye_core::cas::{InputScope, NodeInput};
use rye_core::definition::Caching;
use rye_core::id::RunId;
use rye_core::model::{Event, Failure, KillReceipt, Life, Outcome, Run, Slot, Spec};
use rye_core::walker::{Answer, Call, Certainty};
use serde_json::{Value, json};

use crate::chain::Origin;
use crate::journal::{Change, Ticket};
use crate::port::{Nest, Nested, Refusal, launched};
use crate::projects::Project;
use crate::services::{AttemptCtx, Order, Prepared, Reply, Services, TraceMode, timed_out};
use crate::stop::{Stop, Urgency};
use crate::{async_log, cache, task};

/// The item whose result may name a thread that another one continues.
const THREAD: &str = "rye/agent/threads/thread_directive";

/// What all calls of a run work with.
pub(super) struct CallContext {
    pub(super) services: Arc<Services>,
    pub(super) project: Arc<Project>,
    pub(super) cache: cache::Store,
    pub(super) run: RunId,
    pub(super) spec: Arc<Spec>,
    pub(super) inputs: InputScope,
}

/// A call that waits for its announcement to be durable.
pub(super) struct PendingCall {
    pub(super) call: Box<Call>,
    pub(super) carrier: Carrier,
    pub(super) node_input_hash: Option<String>,
}

/// What carries a call out.
pub(super) enum Carrier {
    /// A tool.
    Effect(Box<Prepared>),
    /// A run that this call creates.
    Launch(RunId),
    /// A run that is there already: from an earlier life of the daemon, or of an earlier try.
    Attach(RunId),
}

impl Carrier {
    /// The run that carries the call out, if it is one.
    pub(super) const fn run(&self) -> Option<&RunId> {
        match self {
            Self::Effect(_) => None,
            Self::Launch(run) | Self::Attach(run) => Some(run),
        }
    }
}

/// What a call needs.
pub(super) enum Job {
    /// Nothing any more. The flag: whether it counts as attempted.
    Answered(Box<Answer>, bool),
    /// To be carried out.
    Begin {
        carrier: Carrier,
        /// The changes that create its run, if it is to be created: part of the commit that starts the step.
        created: Vec<Change>,
        node_input_hash: Option<String>,
    },
}

/// How a call ended.
pub(super) enum Ended {
    /// With an answer.
    Answered(Box<Answer>),
    /// It was stopped because its run is to stop.
    Stopped(KillReceipt),
    /// The run that carries it out is parked; the leaf of the parked ones.
    Parked(RunId),
}

/// Finds out what `call` needs. Nothing is committed and nothing begins here.
pub(super) async fn look_up(context: &CallContext, run: &Run, call: &Call) -> Job {
    let services = &context.services;
    if let Some(child) = &call.attached {
        return Job::Begin {
            carrier: Carrier::Attach(child.clone()),
            created: Vec::new(),
            node_input_hash: None,
        };
    }
    let order = Order {
        origin: Origin {
            run: run.id.clone(),
            spec: Arc::clone(&run.spec),
            attempt: call.attempt,
            key: call.key.clone(),
        },
        project: Arc::clone(&context.project),
        primary: call.primary,
        item: call.item.clone(),
        params: call.params.clone(),
        trace: TraceMode::Off,
        authority: call.authority,
        timeout: call.timeout,
    };
    let mut prepared = services.dispatch.prepare(vec![order]).await;
    let prepared = prepared.pop().expect("each order is answered");
    let node_input_hash = context.input_hash(call, &prepared);
    if prepared.is_graph() {
        if call.caching == Caching::On {
            tracing::warn!(run = %run.id, node = call.node, "`cache_result` has no effect on a node that calls a graph");
        }
        return nest(services, run, call, node_input_hash).await;
    }
    if let Some(answer) = context.remembered(call, node_input_hash.as_deref()).await {
        return Job::Answered(Box::new(answer), false);
    }
    Job::Begin {
        carrier: Carrier::Effect(Box::new(prepared)),
        created: Vec::new(),
        node_input_hash,
    }
}

impl CallContext {
    /// The key of the result of `call`; of hooks, and of what is refused, there is none.
    fn input_hash(&self, call: &Call, prepared: &Prepared) -> Option<String> {
        match call.slot {
            Slot::Main | Slot::Part(_) => {}
            Slot::Hook(_) => return None,
        }
        let input = NodeInput {
            node: &call.node,
            primary: call.primary,
            item: &prepared.item,
            params: &call.params,
        };
        let chain = prepared.content_hashes();
        prepared.is_ready.then(|| self.inputs.key(&input, chain))
    }

    /// The answer an earlier call with the same key gave.
    async fn remembered(&self, call: &Call, key: Option<&str>) -> Option<Answer> {
        let key = key.filter(|_| call.caching == Caching::On)?;
        let result = self
            .cache
            .find(self.project.gate(), &self.spec.files, key)
            .await?;
        Some(Answer {
            cached: true,
            node_input_hash: Some(key.to_owned()),
            ..answered(result)
        })
    }

    /// Stores what `call` gave back for the next one with the same key.
    async fn remember(&self, call: &Call, answer: &Answer) {
        let key = answer.node_input_hash.as_deref();
        let good = answer.failure.is_none() && answer.certainty == Certainty::Answered;
        if let Some(key) = key.filter(|_| call.caching == Caching::On && good) {
            let now = self.services.journal.now();
            let files = &self.spec.files;
            self.cache
                .store(
                    self.project.gate(),
                    files,
                    key,
                    &call.node,
                    &answer.result,
                    now,
                )
                .await;
        }
    }
}

/// The run below that an earlier try of a call was carried out by.
enum Earlier {
    /// There is none, or none that anything can go on with.
    None,
    /// It has been brought to a good end, or nobody waits for it: what it came to counts.
    Counts(RunId),
    /// It ended without success: its finished steps are not repeated.
    Continues(Arc<Run>),
}

impl Earlier {
    async fn of(services: &Arc<Services>, call: &Call) -> Result<Self, Failure> {
        let Some(first) = &call.continues else {
            return Ok(Self::None);
        };
        let gone = |error: Refusal| Failure::permanent("child_lost", error.message);
        let first = services.runs().get(first.clone()).await.map_err(gone)?;
        let same_call = first.spec.effect_scope.as_ref() == Some(&call.key);
        if !same_call || first.spec.item != call.item.canonical() {
            return Ok(Self::None);
        }
        if first.spec.detached {
            let begun = first.started_at.is_some();
            return Ok(if begun {
                Self::Counts(first.id.clone())
            } else {
                Self::None
            });
        }
        let last = services
            .runs()
            .newest(first.id.clone())
            .await
            .map_err(gone)?;
        match &last.life {
            Life::Ended(outcome) => Ok(match &**outcome {
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => {
                    Self::Counts(last.id.clone())
                }
                Outcome::Error { .. } | Outcome::Cancelled { .. } | Outcome::Killed { .. } => {
                    let is_whole = !last.spec.is_single_step();
                    if is_whole && last.resumption_node().is_some() {
                        Self::Continues(last)
                    } else if is_whole && last.steps() > 0 {
                        let text = format!(
                            "the run `{}` was ended when all its nodes were done: nothing of it is left to do, and what it did is not \
                             done again; start a new run",
                            last.id
                        );
                        return Err(Failure::permanent("child_over", text));
                    } else {
                        Self::None
                    }
                }
            }),
            Life::Created | Life::Running | Life::Suspended(_) => {
                let text = format!(
                    "the run `{}` goes on with what an earlier try began; wait until it has ended",
                    last.id
                );
                Err(Failure::permanent("child_busy", text))
            }
        }
    }
}

/// A graph within a graph becomes a run of its own, which goes on with that of an earlier try.
async fn nest(
    services: &Arc<Services>,
    run: &Run,
    call: &Call,
    node_input_hash: Option<String>,
) -> Job {
    let nested = match Earlier::of(services, call).await {
        Ok(Earlier::Counts(child)) => {
            return Job::Begin {
                carrier: Carrier::Attach(child),
                created: Vec::new(),
                node_input_hash,
            };
        }
        Ok(Earlier::None) => Ok(None),
        Ok(Earlier::Continues(earlier)) => Ok(Some(earlier)),
        Err(failure) => Err(failure),
    };
    let nested = match nested {
        Ok(continues) => {
            let nest = Nest {
                parent: run,
                item: &call.item,
                params: call.params.clone(),
                key: &call.key,
                continues,
            };
            services.runs().nest(nest).await
        }
        Err(failure) => Err(failure),
    };
    match nested {
        Err(failure) => {
            let answer = Answer {
                failure: Some(failure),
                certainty: Certainty::NeverBegan,
                node_input_hash,
                ..answered(Value::Null)
            };
            Job::Answered(Box::new(answer), true)
        }
        Ok(Nested::Answer(value)) => {
            let answer = Answer {
                node_input_hash,
                ..answered(value)
            };
            Job::Answered(Box::new(answer), true)
        }
        Ok(Nested::Create { run, spec, fault }) => {
            let mut changes = vec![Change::create(&run, spec)];
            changes.extend(fault.map(|error| Change::event(&run, Event::never_began(error))));
            Job::Begin {
                carrier: Carrier::Launch(run),
                created: changes,
                node_input_hash,
            }
        }
    }
}

/// The life of an attempt: waits until `announced` is durable, and carries the call out. One that was stopped before, or whose
/// announcement never became durable, has not begun.
pub(super) async fn attempt(
    context: Arc<CallContext>,
    stop: Stop,
    pending: PendingCall,
    announced: Option<Ticket>,
) -> (Box<Call>, Ended) {
    if let Some(ticket) = announced {
        let durable = tokio::select! {
            durable = context.services.journal.durable(ticket) => durable.is_ok(),
            () = stop.at_least(Urgency::Shutdown) => false,
        };
        if !durable {
            return (pending.call, Ended::Stopped(KillReceipt::default()));
        }
    }
    carry_out(context, &stop, pending).await
}

async fn carry_out(
    context: Arc<CallContext>,
    stop: &Stop,
    pending: PendingCall,
) -> (Box<Call>, Ended) {
    let PendingCall {
        call,
        carrier,
        node_input_hash,
    } = pending;
    let services = &context.services;
    let by_a_tool = matches!(carrier, Carrier::Effect(_));
    let mut ended = match carrier {
        Carrier::Effect(prepared) => effect(&context, stop, &call, *prepared).await,
        Carrier::Launch(child) => {
            services.runs().launch(child.clone()).await;
            child_run(services, stop, &context.run, &call, child).await
        }
        Carrier::Attach(child) => child_run(services, stop, &context.run, &call, child).await,
    };
    if let Ended::Answered(answer) = &mut ended {
        answer.node_input_hash = node_input_hash;
        if by_a_tool {
            context.remember(&call, answer).await;
        }
    }
    (call, ended)
}

async fn effect(context: &CallContext, stop: &Stop, call: &Call, prepared: Prepared) -> Ended {
    let CallContext { services, run, .. } = context;
    let cx = AttemptCtx {
        run: run.clone(),
        spec: Arc::clone(&context.spec),
        step: call.step,
        slot: call.slot,
        key: call.key.clone(),
        stop: stop.clone(),
        span: tracing::Span::current(),
        services: Arc::clone(services),
    };
    let reply = services.dispatch.carry_out(prepared, &cx).await;
    let caller = format!("step {} {} {}", call.step, call.node, call.item);
    let now = services.journal.now();
    let gate = context.project.gate();
    async_log::keep(gate, run, &context.spec, now, &caller, &reply.stderr).await;
    if reply.stopped && stop.urgency() >= Urgency::Cancel {
        return Ended::Stopped(reply.receipt);
    }
    let continues = reply.envelope.item.id.as_str() == THREAD;
    let mut answer = answer_of(reply);
    if continues {
        follow(services, &mut answer).await;
    }
    Ended::Answered(Box::new(answer))
}

fn answer_of(reply: Reply) -> Answer {
    Answer {
        failure: reply.envelope.failure.clone(),
        certainty: reply.certainty,
        ..answered(reply.envelope.unwrap_result())
    }
}

fn answered(result: impl Into<Arc<Value>>) -> Answer {
    Answer {
        result: result.into(),
        failure: None,
        certainty: Certainty::Answered,
        cached: false,
        node_input_hash: None,
    }
}

/// A thread that was continued by another one: the result is that of the last.
async fn follow(services: &Arc<Services>, answer: &mut Answer) {
    if answer.result.get("status") != Some(&json!("continued")) {
        return;
    }
    let next = answer
        .result
        .get("continuation_thread_id")
        .and_then(Value::as_str);
    let Some(next) = next.map(str::to_owned) else {
        return;
    };
    let last = match RunId::new(next.as_str()) {
        Ok(id) => services.runs().newest(id).await.ok(),
        Err(_) => None,
    };
    match last {
        None => {
            let text = format!("the terminal thread `{next}` was not found");
            answer.failure = Some(Failure::permanent("terminal_thread_not_found", text));
        }
        Some(run) => {
            let mut result = run.result();
            result["thread_id"] = json!(run.id);
            *answer = Answer {
                failure: failure_of(&run),
                ..answered(result)
            };
        }
    }
}

/// Waits for a run below, unless it goes on by itself.
///
/// The supervisor tells a run below to stop together with its parent; one that was created at that very moment is told here.
async fn child_run(
    services: &Arc<Services>,
    stop: &Stop,
    parent: &RunId,
    call: &Call,
    child: RunId,
) -> Ended {
    if let Some(answer) = detached(services, &child).await {
        return Ended::Answered(Box::new(answer));
    }
    let runs = services.runs();
    let mut remaining = call.timeout;
    let (mut overdue, mut told) = (false, false);
    let settled = loop {
        let cause = tokio::select! {
            // First: a kill is more than a cancel, and must not leave one on the record of the child before its own end is.
            biased;
            () = stop.at_least(Urgency::Shutdown) => return Ended::Stopped(KillReceipt::default()),
            settled = runs.settled(child.clone()) => break settled,
            () = task::sleep(remaining) => {
                (overdue, remaining) = (true, None);
                let seconds = call.timeout.unwrap_or_default().as_secs_f64();
                format!("the timeout of its node, {seconds} s")
            }
            () = stop.at_least(Urgency::Cancel), if !told => {
                told = true;
                format!("its parent {parent}")
            }
        };
        if let Err(error) = runs.cancel(child.clone(), cause).await {
            tracing::debug!(%error, "a run below had ended before it was told to");
        }
    };
    let run = match settled {
        Ok(run) => run,
        Err(error) => {
            let failure = Failure::permanent("child_lost", error.message);
            return Ended::Answered(Box::new(Answer {
                failure: Some(failure),
                certainty: Certainty::CutOff,
                ..answered(Value::Null)
            }));
        }
    };
    if let Some(why) = run.suspension() {
        return Ended::Parked(why.child.clone().unwrap_or_else(|| run.id.clone()));
    }
    if stop.urgency() >= Urgency::Cancel && failure_of(&run).is_some() {
        return Ended::Stopped(KillReceipt::default());
    }
    let failure = failure_of(&run).map(|failure| match call.timeout {
        Some(timeout) if overdue => timed_out(timeout),
        Some(_) | None => failure,
    });
    let certainty = if failure.is_some() && services.runs().is_unsettled(run.id.clone()).await {
        Certainty::CutOff
    } else {
        Certainty::Answered
    };
    Ended::Answered(Box::new(Answer {
        failure,
        certainty,
        ..answered(run.result())
    }))
}

/// What is told at once of a run that its parent does not wait for; `None` if it does.
async fn detached(services: &Arc<Services>, child: &RunId) -> Option<Answer> {
    let run = services.runs().get(child.clone()).await.ok()?;
    if !run.spec.detached {
        return None;
    }
    let failed = matches!(run.outcome(), Some(Outcome::Error { .. }));
    let refused = failed && run.started_at.is_none();
    if refused {
        return Some(Answer {
            failure: failure_of(&run),
            ..answered(run.result())
        });
    }
    Some(answered(launched(&run)))
}

/// Why a run that ended did not succeed.
fn failure_of(run: &Run) -> Option<Failure> {
    match run.outcome()? {
        Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => None,
        Outcome::Error { error } => Some(Failure {
            node: None,
            ..error.clone()
        }),
        Outcome::Cancelled { cause } => Some(Failure::permanent(
            "child_cancelled",
            format!("the run `{}` was cancelled by {cause}", run.id),
        )),
        Outcome::Killed { .. } => Some(Failure::permanent(
            "child_killed",
            format!("the run `{}` was killed", run.id),
        )),
    }
}
