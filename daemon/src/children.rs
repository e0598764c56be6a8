//! Calls that child runs carry out, for runs of every kind.
//!
//! **Owns** nothing: prepares the child run of a call, and waits for its end. **Never** commits. **Never** decides what
//! a run may do: the owner of runs narrows its permissions when it makes the record
//! ([`Runs::nest`](crate::port::Runs::nest)).
//!
//! **Order.** A child run is created in the commit that starts its call. After a restart the call attaches to it and
//! never starts it twice. Another try of the call continues the child, or takes its outcome if it has ended meanwhile.
//! A stop request goes to the child run first, and its outcome counts. **Failure.** A child run that is refused or
//! fails is the failure of its call. A suspended child suspends the run that waits for it. A failed thread is continued
//! only by another try of its call, and its messages are never classified.

use std::sync::Arc;

use rye_core::cas::InputHashes;
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::machine::{Call, CallOutcome, Certainty};
use rye_core::model::event::Warning;
use rye_core::model::{Event, Failure, KillReceipt, Life, Outcome, Raised, Run, RunEvent, RunKind};
use rye_core::thread::ThreadTool;
use serde_json::{Value, json};

use crate::drive::Job;
use crate::port::{ChildRequest, Nest, Nested, Refusal, launched};
use crate::services::{Ended, Services, timed_out};
use crate::stop::{CancelMode, SIBLING_FAILURE, Stop, Urgency};
use rye_host::task;
use rye_journal::Change;

/// The run that carries a call out.
#[derive(Debug)]
pub struct Child {
    run: RunId,
    /// True if the call creates the run, and has to launch its task.
    is_new: bool,
    /// Content hash of the verified directive of a thread that the call creates.
    directive: Option<String>,
}

/// Result of the lookup of a call that a run carries out.
#[derive(Debug)]
pub enum Lookup {
    /// The answer is known without a run, or the run is refused.
    Answer(Box<CallOutcome>),
    /// The run, and the changes that create it if it does not exist.
    Run(Child, Vec<Change>),
}

impl Lookup {
    /// Returns the job of the call. `plan` makes its plan.
    pub fn job<P>(self, hashes: InputHashes, plan: impl FnOnce(Child) -> P) -> Job<P> {
        match self {
            Self::Answer(answer) => {
                let answer = CallOutcome {
                    node_input_hash: hashes.node_input.clone(),
                    ..*answer
                };
                Job::Known(Box::new(answer), Some(hashes))
            }
            Self::Run(child, creates) => Job::Begin {
                child: Some(child.run.clone()),
                plan: plan(child),
                creates,
                hashes,
            },
        }
    }

    /// Content hash of the directive of the thread that is created.
    pub fn directive(&self) -> Option<&str> {
        match self {
            Self::Answer(_) => None,
            Self::Run(child, _) => child.directive.as_deref(),
        }
    }
}

/// Returns the run that carries `call` out already.
pub fn attached(call: &Call) -> Option<Lookup> {
    let run = call.attached.clone()?;
    Some(there_already(run))
}

const fn there_already(run: RunId) -> Lookup {
    let child = Child {
        run,
        is_new: false,
        directive: None,
    };
    Lookup::Run(child, Vec::new())
}

/// Makes `call` of `run` a child run, which continues the run of an earlier try if possible. Commits nothing and starts
/// nothing.
pub async fn nest(
    services: &Arc<Services>,
    run: &Run,
    call: &Call,
    wanted: ChildRequest,
) -> Lookup {
    let continues = match Earlier::of(services, call, wanted.item()).await {
        Ok(Earlier::Counts(child)) => return there_already(child),
        Ok(Earlier::None) => None,
        Ok(Earlier::Continues(earlier)) => Some(earlier),
        Err(failure) => return refused(failure),
    };
    let nest = Nest {
        parent: run,
        child: wanted,
        key: &call.key,
        attempt: run.graph().map(|_| run.name_of(&call.node, call.slot)),
        continues,
        callback: None,
    };
    match services.runs().nest(nest).await {
        Err(failure) => refused(failure),
        Ok(Nested::Answer(value)) => Lookup::Answer(Box::new(CallOutcome::known(value))),
        Ok(Nested::Create {
            run,
            spec,
            fault,
            warnings,
        }) => {
            let epoch = services.epoch;
            let is_thread = spec.kind() == RunKind::Thread;
            let directive = is_thread.then(|| spec.content_hash.clone());
            // A run that has failed gets no warnings.
            let warnings = warnings.into_iter().filter(|_| fault.is_none());
            let warnings: Vec<Event> = warnings.map(warning).collect();
            let first = fault.map_or(RunEvent::started(epoch).into(), Event::never_started);
            let events = std::iter::once(first).chain(warnings);
            let events = events.map(|event| Change::event(&run, event));
            let creates = std::iter::once(Change::create(&run, spec));
            let creates = creates.chain(events).collect();
            let child = Child {
                run,
                is_new: true,
                directive,
            };
            Lookup::Run(child, creates)
        }
    }
}

fn warning(message: String) -> Event {
    let node = None;
    Warning { node, message }.into()
}

fn refused(failure: Failure) -> Lookup {
    Lookup::Answer(Box::new(CallOutcome {
        failure: Some(failure),
        certainty: Certainty::NeverStarted,
        ..CallOutcome::known(Value::Null)
    }))
}

/// Waits for the outcome of `child`. Launches its task before, if it is new. `limit` names the time limit of the call
/// in the cause of a cancel.
pub async fn carry_out(
    services: &Arc<Services>,
    parent: &RunId,
    call: &Call,
    child: Child,
    stop: &Stop,
    limit: &str,
) -> Ended {
    if child.is_new {
        services.runs().launch(child.run.clone()).await;
    }
    child_run(services, stop, parent, call, child.run, limit).await
}

/// The child run of an earlier try of a call.
#[derive(Debug)]
pub enum Earlier {
    /// There is none, or it cannot be continued.
    None,
    /// It has succeeded, or its parent does not wait for it. Its result counts.
    Counts(RunId),
    /// It has ended without success. Its finished steps are not repeated.
    Continues(Arc<Run>),
}

impl Earlier {
    async fn of(services: &Arc<Services>, call: &Call, item: &ItemRef) -> Result<Self, Failure> {
        let Some(first) = &call.continues else {
            return Ok(Self::None);
        };
        let gone = |error: Refusal| Failure::permanent("child_lost", error.message);
        let first = services.runs().get(first.clone()).await.map_err(gone)?;
        let same_call = first.spec.effect_scope.as_ref() == Some(&call.key);
        if !same_call || first.spec.item != *item {
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
        Self::of_ended(last)
    }

    /// Returns the meaning of `last`, the newest run of an earlier try, for the next one.
    pub fn of_ended(last: Arc<Run>) -> Result<Self, Failure> {
        match &last.life {
            Life::Ended(outcome) => Ok(match &**outcome {
                Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => {
                    Self::Counts(last.id.clone())
                }
                Outcome::Error { .. } | Outcome::Cancelled { .. } | Outcome::Killed { .. }
                    if last.spec.kind() == RunKind::Thread =>
                {
                    if can_continue(&last) {
                        Self::Continues(last)
                    } else {
                        Self::None
                    }
                }
                Outcome::Error { .. } | Outcome::Cancelled { .. } | Outcome::Killed { .. } => {
                    let is_whole =
                        last.spec.kind() == RunKind::Graph && !last.spec.is_single_step();
                    if let Some(barrier) = last.approvals.barrier() {
                        let text = format!("the run `{}` is not continued: {barrier}", last.id);
                        return Err(Failure::permanent("child_barred", text).decided());
                    } else if is_whole && last.resumption_node().is_some() {
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

/// True if the conversation of an ended thread can be continued: it has begun, and no limit is used up.
fn can_continue(thread: &Run) -> bool {
    let has_conversation = thread.carried().is_some_and(|carried| carried.has_begun());
    let is_lost = thread.failure().is_some_and(|failure| {
        matches!(
            &*failure.code,
            "data_loss" | "integrity_failed" | "spend_exceeded"
        )
    });
    has_conversation && !is_lost && thread.check_raise(&Raised::default()).is_ok()
}

/// Waits for a child run, unless it is detached.
///
/// The supervisor stops a child run together with its parent. A child created at the same moment is stopped here.
async fn child_run(
    services: &Arc<Services>,
    stop: &Stop,
    parent: &RunId,
    call: &Call,
    child: RunId,
    limit: &str,
) -> Ended {
    if let Some(answer) = unwaited(services, call, &child).await {
        return Ended::Outcome(Box::new(answer));
    }
    let runs = services.runs();
    let mut remaining = call.timeout;
    let (mut overdue, mut told) = (false, false);
    let settled = loop {
        let cause = tokio::select! {
            // A kill is checked first. It takes precedence over a cancel, which must not be on the record of the child
            // before the kill.
            biased;
            () = stop.at_least(Urgency::Shutdown) => return Ended::Stopped(KillReceipt::default()),
            () = stop.at_least(Urgency::Cancel), if !told => {
                told = true;
                match stop.mode() {
                    CancelMode::Graceful => format!("its parent {parent}"),
                    CancelMode::Useless => SIBLING_FAILURE.to_owned(),
                }
            }
            settled = runs.settled(child.clone()) => break settled,
            () = task::sleep(remaining) => {
                (overdue, remaining) = (true, None);
                let seconds = call.timeout.unwrap_or_default().as_secs_f64();
                format!("{limit} {parent}, after {seconds} s")
            }
        };
        if let Err(error) = runs.cancel(child.clone(), cause, stop.mode()).await {
            tracing::debug!(%error, "a child run had ended before the request");
        }
    };
    let run = match settled {
        Ok(run) => run,
        Err(error) => {
            let failure = Failure::permanent("child_lost", error.message);
            return Ended::Outcome(Box::new(CallOutcome {
                failure: Some(failure),
                certainty: Certainty::UnknownBelow,
                ..CallOutcome::known(Value::Null)
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
        ..CallOutcome::known(result_of(services, &run).await)
    }))
}

/// Result of a run for its caller, with its cost and that of the runs below it.
async fn result_of(services: &Arc<Services>, run: &Arc<Run>) -> Value {
    let mut result = run.result();
    let cost = services.runs().cost(Arc::clone(run)).await;
    if let (false, Ok(cost)) = (run.spec.is_single_step(), cost) {
        result["cost"] = Value::Object(cost.numbers());
    }
    result
}

/// Answers immediately for a run that its parent does not wait for. `None` if it does wait.
async fn unwaited(services: &Arc<Services>, call: &Call, child: &RunId) -> Option<CallOutcome> {
    let run = services.runs().get(child.clone()).await.ok()?;
    if run.spec.parent_end.waits() {
        return None;
    }
    let failed = matches!(run.outcome(), Some(Outcome::Error { .. }));
    let refused = failed && run.started_at.is_none();
    if refused {
        return Some(CallOutcome {
            failure: failure_of(&run),
            ..CallOutcome::known(run.result())
        });
    }
    Some(CallOutcome::known(begun(&run, call)))
}

/// Answer for a caller that does not wait for `run`.
fn begun(run: &Run, call: &Call) -> Value {
    let by = call.item.canonical();
    let mut answer = launched(run);
    if by.kind == ItemKind::Tool && ThreadTool::of(&by.id) == Some(ThreadTool::Start) {
        answer["status"] = json!("threaded");
        answer["mode"] = json!("async_task");
        if let Some(label) = call.params.get("thread_id") {
            answer["label"] = label.clone();
        }
    }
    answer
}

/// Returns the failure of an ended run, or `None` if it succeeded. Only its code is used, because its messages are
/// those of tools or of a model. The failure of a graph or tool run is not retryable.
pub fn failure_of(run: &Run) -> Option<Failure> {
    let failure = match run.outcome()? {
        Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. } => return None,
        Outcome::Error { error } if run.spec.kind() == RunKind::Thread => error.clone().decided(),
        Outcome::Error { error } => Failure {
            retryable: false,
            ..error.clone().decided()
        },
        Outcome::Cancelled { cause } => Failure::permanent(
            "child_cancelled",
            format!("the run `{}` was cancelled by {cause}", run.id),
        ),
        Outcome::Killed { .. } => {
            Failure::permanent("child_killed", format!("the run `{}` was killed", run.id))
        }
    };
    Some(Failure {
        node: None,
        ..failure
    })
}
