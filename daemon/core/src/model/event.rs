//! The closed vocabulary of facts about a run.
//!
//! One table of all events names the payload and the facets of each. Adding an event adds its row, the struct of its
//! payload, and its transition.

#[macro_use]
mod table;

mod facets;
mod graph;
mod process;
mod run;
mod thread;
mod tool;

use std::io::{self, Read as _};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use super::approval::{Approval, ApprovalAnswer, Expired};
use super::failure::Failure;
use super::kill::Kill;
use super::life::{Outcome, Status};
use super::spec::Spec;
use super::suspension::Suspension;
use super::task::RunKind;
use super::thread::Returned;
use crate::ledger::{AccountId, Operation};

use self::facets::{ATTEMPT, BEGINS, BOUNDARY, ENDS, PLAIN, PROGRESS, STEP_END};
pub use self::facets::{Facets, Syncing, While};
pub use self::graph::*;
pub use self::process::*;
pub use self::run::*;
pub use self::thread::*;
pub use self::tool::*;

events! {
    /// A fact about a run of any kind: its life, and the attempts that every kind makes.
    Run(RunEvent) {
        /// The run was accepted. Always the first event.
        RunCreated(Arc<Spec>) => BEGINS.during(While::Active),
        RunStarted(RunStarted) => BEGINS.during(While::Active),
        RunSuspended(Suspension) => BOUNDARY.during(While::Active),
        RunResumed(RunResumed) => BEGINS.during(While::Suspended),
        CancelRequested(CancelRequested) => PLAIN.during(While::Live),
        /// A user or component requested the run and the runs below it to be ended by force. Nothing begins there from
        /// now on.
        KillRequested(Kill) => PLAIN.during(While::Live),
        RunKilled(RunKilled) => ENDS,
        Emitted(Emitted) => BEGINS,
        ItemSigned(ItemSigned) => PLAIN,
        Warning(Warning) => PLAIN,
        StepStarted(StepStarted) => ATTEMPT,
        // The identity of a process means nothing after a restart of the machine, and written bytes outlive the daemon.
        // The end of the step, often milliseconds later, syncs it.
        ProcessStarted(ProcessStarted) => PLAIN.synced(Syncing::Soon),
        ProcessExited(ProcessExited) => PLAIN.synced(Syncing::Soon),
        CallbackStarted(CallbackStarted) => ATTEMPT,
        CallbackEnded(CallbackEnded) => PROGRESS.synced(Syncing::Soon),
        ToolCallProgress(ToolCallProgress) => BEGINS.synced(Syncing::Soon),
        // Only a suspended run takes verdicts on its attempts: those of a running one may still end.
        UncertainAnswered(UncertainAnswered) => PLAIN.during(While::Suspended),
        /// A question to a person.
        ApprovalRequested(Approval) => PLAIN,
        ApprovalAnswered(ApprovalAnswer) => PLAIN.during(While::Live),
        ApprovalExpired(Expired) => PLAIN.during(While::Suspended),
        /// A call differs from the one about which a person was asked.
        ApprovalInvalidated(ApprovalInvalidated) => PLAIN,
        HooksBegun(HooksBegun) => PLAIN,
        BudgetHeld(BudgetHeld) => ATTEMPT,
        // A settlement is no progress: recovery makes one for every call that the daemon's end cut off.
        BudgetSettled(BudgetSettled) => PLAIN,
        BudgetRaised(BudgetRaised) => PLAIN.during(While::Live),
        HookStarted(HookStarted) => BEGINS,
        HookCompleted(HookCompleted) => PROGRESS,
        ChildStarted(ChildStarted) => ATTEMPT,
    }
    /// A fact about the walk of a graph.
    Graph(GraphEvent) {
        GraphStarted(GraphStarted) => BEGINS,
        StepFailed(StepFailed) => PROGRESS,
        RetryScheduled(RetryScheduled) => PLAIN,
        ItemStarted(ItemStarted) => ATTEMPT,
        ItemCompleted(ItemCompleted) => PROGRESS,
        ForeachCompleted(ForeachCompleted) => PLAIN,
        ParallelCompleted(ParallelCompleted) => PLAIN,
        StepWaiting(StepWaiting) => ATTEMPT,
        ServiceStarted(ServiceStarted) => PLAIN,
        ProcessWaited(ProcessWaited) => PLAIN,
        LimitExtended(LimitExtended) => PLAIN,
        StepCompleted(StepCompleted) => STEP_END,
        GraphEnding(GraphEnding) => PLAIN,
        GraphCompleted(GraphCompleted) => ENDS,
        GraphError(GraphError) => ENDS,
        GraphCancelled(GraphCancelled) => ENDS,
    }
    /// A fact about a thread.
    Thread(ThreadEvent) {
        ThreadStarted(ThreadStarted) => PLAIN,
        SystemPrompt(SystemPrompt) => PLAIN,
        PromptComposed(PromptComposed) => PLAIN,
        CognitionIn(CognitionIn) => PLAIN,
        MessageQueued(MessageQueued) => BEGINS.during(While::Live),
        StepStart(StepStart) => ATTEMPT,
        CognitionReasoning(CognitionReasoning) => PLAIN,
        CognitionOut(CognitionOut) => PROGRESS,
        /// A call of a tool starts, or starts again after the daemon went down.
        ToolCallStart(Box<ToolCallStart>) => ATTEMPT,
        ToolCallResult(ToolCallResult) => PROGRESS,
        StepFinish(StepFinish) => STEP_END,
        ErrorClassified(ErrorClassified) => PLAIN,
        TurnRetryScheduled(TurnRetryScheduled) => PLAIN,
        TurnWaiting(TurnWaiting) => PLAIN,
        ContextReseeded(ContextReseeded) => PLAIN,
        RetrySucceeded(RetrySucceeded) => PLAIN,
        LimitEscalationRequested(LimitEscalationRequested) => PLAIN,
        /// The model returned its outputs.
        DirectiveReturn(Arc<Returned>) => PLAIN,
        ThreadCompleted(ThreadCompleted) => ENDS,
        ThreadError(ThreadError) => ENDS,
        ThreadCancelled(ThreadCancelled) => ENDS,
    }
    /// A fact about the call of a tool run.
    Tool(ToolEvent) {
        ToolCompleted(ToolCompleted) => ENDS,
        ToolCancelled(ToolCancelled) => ENDS,
    }
    /// A fact about a managed process.
    Process(ProcessEvent) {
        ProcessLaunched(ProcessLaunched) => ATTEMPT,
        ProcessReady(ProcessReady) => PROGRESS,
        ProcessUnready(ProcessUnready) => PLAIN,
        ProcessRestartRequested(ProcessRestartRequested) => PLAIN.during(While::NotCancelled),
        ProcessFrozen(ProcessFrozen) => PLAIN.during(While::NotCancelled),
        ProcessThawed(ProcessThawed) => PLAIN.during(While::NotCancelled),
        ProcessRestartScheduled(ProcessRestartScheduled) => PLAIN,
        ProcessWatched(ProcessWatched) => BEGINS,
        ProcessWatchChanged(ProcessWatchChanged) => BEGINS.during(While::NotCancelled),
        ProcessEnded(ProcessEnded) => ENDS,
    }
}

/// Events of the life of a run that have a name of their own in a thread: their names in the table, and in a thread.
const IN_THREADS: [(&str, &str); 2] = [
    ("run_suspended", "thread_suspended"),
    ("run_resumed", "thread_resumed"),
];

/// The reason for which a name and a payload are no event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("`{name}` is no event this version knows")]
    Name { name: String },
    /// The payload is not one of the event.
    #[error("the payload of `{name}` cannot be read")]
    Payload {
        name: String,
        /// The first difference.
        #[source]
        source: serde_json::Error,
    },
}

impl Event {
    /// Returns the names of all events in logs, transcripts and streams.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let in_threads = IN_THREADS.iter().map(|(_, name)| *name);
        Self::table_names().chain(in_threads)
    }

    /// Returns the name of this event in logs, transcripts and streams of a run of `kind`.
    pub fn name_in(&self, kind: RunKind) -> &'static str {
        let name = self.name();
        let own = IN_THREADS.iter().find(|(of_all, _)| *of_all == name);
        own.filter(|_| kind == RunKind::Thread)
            .map_or(name, |(_, in_thread)| in_thread)
    }

    /// Reads the event of that name; `payload` is JSON text.
    pub fn read(name: &str, payload: &str) -> Result<Self, Unreadable> {
        Self::of(table_name(name), payload)
    }

    /// Reads the event from a payload that may be long: only the result is in memory as a whole.
    pub fn read_from(name: &str, payload: impl io::Read) -> Result<Self, Unreadable> {
        Self::of(table_name(name), Streamed(payload))
    }

    /// Returns the operation of the event on an account, if it happens to a run whose account is `own`. No money moves
    /// without such an event. The end of an account at the end of its run is not part of this.
    pub fn money<'a>(&'a self, own: &'a AccountId) -> Option<(&'a AccountId, Operation)> {
        match self {
            Self::Run(RunEvent::BudgetHeld(held)) => Some((own, held.operation())),
            Self::Run(RunEvent::BudgetSettled(settled)) => Some((own, settled.operation())),
            Self::Run(RunEvent::RunCreated(spec)) => {
                Some((&spec.budget.account, spec.budget.operation()))
            }
            Self::Run(RunEvent::BudgetRaised(raised)) => {
                Some((&raised.account, Operation::Raise { to: raised.to }))
            }
            Self::Run(_) | Self::Graph(_) | Self::Thread(_) | Self::Tool(_) | Self::Process(_) => {
                None
            }
        }
    }

    /// Returns the outcome of the run, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        let completed = |output: &Arc<Value>| Outcome::Completed {
            output: Arc::clone(output),
        };
        let failed = |error: &Failure| Outcome::Error {
            error: error.clone(),
        };
        let cancelled = |cause: &String| Outcome::Cancelled {
            cause: cause.clone(),
        };
        Some(match self {
            Self::Run(RunEvent::RunKilled(killed)) => Outcome::Killed {
                cause: killed.cause.clone(),
                receipt: killed.receipt.clone(),
            },
            Self::Graph(GraphEvent::GraphCompleted(done))
                if done.status == Status::CompletedWithErrors =>
            {
                Outcome::CompletedWithErrors {
                    output: Arc::clone(&done.output),
                }
            }
            Self::Graph(GraphEvent::GraphCompleted(done)) => completed(&done.output),
            Self::Graph(GraphEvent::GraphError(end)) => failed(&end.error),
            Self::Graph(GraphEvent::GraphCancelled(end)) => cancelled(&end.cause),
            Self::Thread(ThreadEvent::ThreadCompleted(done)) => completed(&done.output),
            Self::Thread(ThreadEvent::ThreadError(end)) => failed(&end.error),
            Self::Thread(ThreadEvent::ThreadCancelled(end)) => cancelled(&end.cause),
            Self::Tool(ToolEvent::ToolCompleted(done)) => match &done.error {
                Some(error) => failed(error),
                None => completed(&done.result),
            },
            Self::Tool(ToolEvent::ToolCancelled(end)) => cancelled(&end.cause),
            Self::Process(ProcessEvent::ProcessEnded(ended)) => {
                match (&ended.cancelled, &ended.error) {
                    (Some(cause), _) => cancelled(cause),
                    (None, Some(error)) => failed(error),
                    (None, None) => completed(&ended.output()),
                }
            }
            Self::Run(_) | Self::Graph(_) | Self::Thread(_) | Self::Process(_) => return None,
        })
    }

    /// True if events of this name end their run, whatever their payload: [`Event::outcome`] of them is never `None`.
    pub fn ends_run(name: &str) -> bool {
        let mut named = Self::table_names().zip(Self::FACETS);
        named.any(|(of, facets)| of == name && facets.ends)
    }

    /// Makes the end of a graph run that is accepted and cannot begin, in the commit that creates it.
    pub fn never_started(error: Failure) -> Self {
        let (steps, elapsed_ms) = (0, 0);
        GraphError {
            error,
            steps,
            elapsed_ms,
        }
        .into()
    }
}

/// Returns the name in the table of an event of any kind of run.
fn table_name(name: &str) -> &str {
    let of_all = IN_THREADS.iter().find(|(_, in_thread)| *in_thread == name);
    of_all.map_or(name, |(of_all, _)| of_all)
}

/// The JSON of the payload of an event.
trait Payload {
    /// Reads the event `name`, which must be one of those of `T`, so that nothing in it has to be escaped.
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error>;
}

/// A payload that is read in pieces.
struct Streamed<R>(R);

impl Payload for &str {
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(&format!(r#"{{"event_type":"{name}","payload":{self}}}"#))
    }
}

impl<R: io::Read> Payload for Streamed<R> {
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error> {
        let before = format!(r#"{{"event_type":"{name}","payload":"#);
        let event = before.as_bytes().chain(self.0).chain(&b"}"[..]);
        serde_json::from_reader(event)
    }
}
