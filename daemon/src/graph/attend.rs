//! One call of a graph run: looked up, then carried out by a tool or by a run of its own.
//!
//! **Cache.** A node with `cache_result` is answered from [`crate::cache`] if its key is known there; the key is the hash
//! over graph, node, action, configuration and the content of its tool's whole chain; what a tool reads besides is not part of
//! it. Permission and parameters are checked before. What succeeded is stored before it is concluded; failures and calls whose
//! effect nobody knows never are. A call of a graph gets its key all the same, for its receipt, and is never cached: the key
//! cannot cover what the graph will call.

use std::sync::Arc;

use rye_core::cas::NodeInput;
use rye_core::definition::Caching;
use rye_core::id::RunId;
use rye_core::machine::{Call, CallOutcome, Certainty};
use rye_core::model::{Event, Failure, KillReceipt, Life, Outcome, Run, RunEvent, Slot};
use serde_json::{Value, json};

use super::GraphRun;
use crate::drive::{Ended, Job, RunContext};
use crate::journal::Change;
use crate::port::{Nest, Nested, Refusal, launched};
use crate::services::{Prepared, Reply, Services, TraceMode, timed_out};
use crate::stop::{Stop, Urgency};
use crate::task;

/// The item whose result may name a thread that another one continues.
const THREAD: &str = "rye/agent/threads/thread_directive";

/// What carries a call out.
pub(super) enum Carrier {
    /// A tool.
    Effect(Box<Prepared>),
    /// A child run that this call creates.
    Launch(RunId),
    /// A child run that is there already: from an earlier life of the daemon, or of an earlier try.
    Child(RunId),
}

/// What a call of a graph run is carried out by, and the key of its result.
pub(super) struct Planned {
    carrier: Carrier,
    node_input_hash: Option<String>,
}

fn begin(carrier: Carrier, creates: Vec<Change>, node_input_hash: Option<String>) -> Job<Planned> {
    let child = match &carrier {
        Carrier::Effect(_) => None,
        Carrier::Launch(run) | Carrier::Child(run) => Some(run.clone()),
    };
    Job::Begin {
        plan: Planned {
            carrier,
            node_input_hash: node_input_hash.clone(),
        },
        child,
        creates,
        node_input_hash,
    }
}

/// Finds out what `call` needs. Nothing is committed and nothing begins here.
pub(super) async fn look_up(context: &GraphRun, run: &Run, call: &Call) -> Job<Planned> {
    let services = &context.at.services;
    if let Some(child) = &call.attached {
        return begin(Carrier::Child(child.clone()), Vec::new(), None);
    }
    let prepared = context.at.prepare(call, TraceMode::Off).await;
    let node_input_hash = context.input_hash(call, &prepared);
    if prepared.is_graph() {
        if call.caching == Caching::On {
            tracing::warn!(run = %run.id, node = call.node, "`cache_result` has no effect on a node that calls a graph");
        }
        return nest(services, run, call, node_input_hash).await;
    }
    if let Some(answer) = context.remembered(call, node_input_hash.as_deref()).await {
        return Job::Known(Box::new(answer), false);
    }
    begin(
        Carrier::Effect(Box::new(prepared)),
        Vec::new(),
        node_input_hash,
    )
}

impl GraphRun {
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
    async fn remembered(&self, call: &Call, key: Option<&str>) -> Option<CallOutcome> {
        let key = key.filter(|_| call.caching == Caching::On)?;
        let result = self
            .cache
            .find(self.at.project.gate(), &self.at.spec.files, key)
            .await?;
        Some(CallOutcome {
            cached: true,
            node_input_hash: Some(key.to_owned()),
            ..answered(result)
        })
    }

    /// Stores what `call` gave back for the next one with the same key.
    async fn remember(&self, call: &Call, answer: &CallOutcome) {
        let key = answer.node_input_hash.as_deref();
        let good = answer.failure.is_none() && answer.certainty == Certainty::Known;
        if let Some(key) = key.filter(|_| call.caching == Caching::On && good) {
            let now = self.at.services.journal.now();
            let files = &self.at.spec.files;
            self.cache
                .store(
                    self.at.project.gate(),
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

/// The child run that carried out an earlier try of a call.
enum Earlier {
    /// There is none, or none that can be continued.
    None,
    /// It has succeeded, or its parent does not wait for it: its result counts.
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
        if !first.spec.parent_end.waits() {
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
                    "the run `{}` continues what an earlier try began; wait until it has ended",
                    last.id
                );
                Err(Failure::permanent("child_busy", text))
            }
        }
    }
}

/// A graph within a graph becomes a child run, which continues that of an earlier try.
async fn nest(
    services: &Arc<Services>,
    run: &Run,
    call: &Call,
    node_input_hash: Option<String>,
) -> Job<Planned> {
    let nested = match Earlier::of(services, call).await {
        Ok(Earlier::Counts(child)) => {
            return begin(Carrier::Child(child), Vec::new(), node_input_hash);
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
            let answer = CallOutcome {
                failure: Some(failure),
                certainty: Certainty::NeverStarted,
                node_input_hash,
                ..answered(Value::Null)
            };
            Job::Known(Box::new(answer), true)
        }
        Ok(Nested::Answer(value)) => {
            let answer = CallOutcome {
                node_input_hash,
                ..answered(value)
            };
            Job::Known(Box::new(answer), true)
        }
        Ok(Nested::Create { run, spec, fault }) => {
            let mut changes = vec![Change::create(&run, spec)];
            let epoch = services.epoch;
            let first = fault.map_or(RunEvent::RunStarted { epoch }.into(), Event::never_started);
            changes.push(Change::event(&run, first));
            begin(Carrier::Launch(run), changes, node_input_hash)
        }
    }
}

/// Carries a call out.
pub(super) async fn carry_out(
    context: &GraphRun,
    call: &Call,
    planned: Planned,
    stop: &Stop,
) -> Ended {
    let RunContext { services, run, .. } = &context.at;
    let Planned {
        carrier,
        node_input_hash,
    } = planned;
    let by_a_tool = matches!(carrier, Carrier::Effect(_));
    let mut ended = match carrier {
        Carrier::Effect(prepared) => effect(context, stop, call, *prepared).await,
        Carrier::Launch(child) => {
            services.runs().launch(child.clone()).await;
            child_run(services, stop, run, call, child).await
        }
        Carrier::Child(child) => child_run(services, stop, run, call, child).await,
    };
    if let Ended::Outcome(answer) = &mut ended {
        answer.node_input_hash = node_input_hash;
        if by_a_tool {
            context.remember(call, answer).await;
        }
    }
    ended
}

async fn effect(context: &GraphRun, stop: &Stop, call: &Call, prepared: Prepared) -> Ended {
    let caller = format!("step {} {} {}", call.step, call.node, call.item);
    let reply = match context.at.carry_out(call, prepared, stop, &caller).await {
        Ok(reply) => reply,
        Err(receipt) => return Ended::Stopped(receipt),
    };
    let continues = reply.envelope.item.id.as_str() == THREAD;
    let mut answer = answer_of(reply);
    if continues {
        follow(&context.at.services, &mut answer).await;
    }
    Ended::Outcome(Box::new(answer))
}

fn answer_of(reply: Reply) -> CallOutcome {
    CallOutcome {
        failure: reply.envelope.failure.clone(),
        certainty: reply.certainty,
        ..answered(reply.envelope.unwrap_result())
    }
}

fn answered(result: impl Into<Arc<Value>>) -> CallOutcome {
    CallOutcome {
        result: result.into(),
        failure: None,
        certainty: Certainty::Known,
        cached: false,
        node_input_hash: None,
    }
}

/// A thread that was continued by another one: the result is that of the last.
async fn follow(services: &Arc<Services>, answer: &mut CallOutcome) {
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
            *answer = CallOutcome {
                failure: failure_of(&run),
                ..answered(result)
            };
        }
    }
}

/// Waits for a child run, unless it is detached.
///
/// The supervisor stops a child run together with its parent; one that was created at that very moment is stopped here.
async fn child_run(
    services: &Arc<Services>,
    stop: &Stop,
    parent: &RunId,
    call: &Call,
    child: RunId,
) -> Ended {
    if let Some(answer) = detached(services, &child).await {
        return Ended::Outcome(Box::new(answer));
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
            tracing::debug!(%error, "a child run had ended before it was asked to");
        }
    };
    let run = match settled {
        Ok(run) => run,
        Err(error) => {
            let failure = Failure::permanent("child_lost", error.message);
            return Ended::Outcome(Box::new(CallOutcome {
                failure: Some(failure),
                certainty: Certainty::UnknownBelow,
                ..answered(Value::Null)
            }));
        }
    };
    if let Some(why) = run.suspension() {
        return Ended::Suspended(why.child.clone().unwrap_or_else(|| run.id.clone()));
    }
    if stop.urgency() >= Urgency::Cancel && failure_of(&run).is_some() {
        return Ended::Stopped(KillReceipt::default());
    }
    let failure = failure_of(&run).map(|failure| match call.timeout {
        Some(timeout) if overdue => timed_out(timeout),
        Some(_) | None => failure,
    });
    let certainty = if failure.is_some() && runs.has_unknown(Arc::clone(&run)).await {
        Certainty::UnknownBelow
    } else {
        Certainty::Known
    };
    Ended::Outcome(Box::new(CallOutcome {
        failure,
        certainty,
        ..answered(run.result())
    }))
}

/// What is answered at once for a run that its parent does not wait for; `None` if it does.
async fn detached(services: &Arc<Services>, child: &RunId) -> Option<CallOutcome> {
    let run = services.runs().get(child.clone()).await.ok()?;
    if run.spec.parent_end.waits() {
        return None;
    }
    let failed = matches!(run.outcome(), Some(Outcome::Error { .. }));
    let refused = failed && run.started_at.is_none();
    if refused {
        return Some(CallOutcome {
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
