//! The closed vocabulary of facts about a run.
//!
//! One enum for what every kind of run knows, one for each kind. **Owns** their names and their facets: what everybody beside
//! the model asks of an event. Adding an event touches its enum, its facets and its transition.

use std::io::{self, Read as _};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

mod facets;

pub use self::facets::{Facets, Syncing, While};
use super::graph::GraphEvent;
use super::thread::ThreadEvent;
use super::tool::ToolEvent;
use super::{
    Approval, ApprovalAnswer, Because, Control, Effect, Expired, Failure, Kill, KillReceipt,
    Object, Outcome, ProcessIdentity, Raised, Slot, Spec, Suspension, Verdict,
};
use crate::clock::Timestamp;
use crate::id::{Epoch, Name, RunId};
use crate::ledger::{AccountId, CallNo, Metered, Operation, Usage};
use crate::money::Usd;

/// A fact about a run. Its serialised form is the `event_type` and `payload` of the log, the transcript and the
/// event stream alike; names are unique over all kinds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// What happens to runs of every kind.
    Run(RunEvent),
    /// What happens to graph runs.
    Graph(GraphEvent),
    /// What happens to threads.
    Thread(ThreadEvent),
    /// What happens to tool runs.
    Tool(ToolEvent),
}

impl From<RunEvent> for Event {
    fn from(event: RunEvent) -> Self {
        Self::Run(event)
    }
}

impl From<GraphEvent> for Event {
    fn from(event: GraphEvent) -> Self {
        Self::Graph(event)
    }
}

impl From<ThreadEvent> for Event {
    fn from(event: ThreadEvent) -> Self {
        Self::Thread(event)
    }
}

impl From<ToolEvent> for Event {
    fn from(event: ToolEvent) -> Self {
        Self::Tool(event)
    }
}

/// Why a name and a payload are no event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No event has this name.
    #[error("`{name}` is no event this version knows")]
    Name {
        /// The name.
        name: String,
    },
    /// The payload is not that of the event.
    #[error("the payload of `{name}` cannot be read")]
    Payload {
        /// The event's name.
        name: String,
        /// Where it differs.
        #[source]
        source: serde_json::Error,
    },
}

impl Event {
    /// The name of this event in logs, transcripts and streams.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(event) => event.into(),
            Self::Graph(event) => event.into(),
            Self::Thread(event) => event.into(),
            Self::Tool(event) => event.into(),
        }
    }

    /// Every name that [`Event::name`] gives.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let kinds = [
            RunEvent::VARIANTS,
            GraphEvent::VARIANTS,
            ThreadEvent::VARIANTS,
            ToolEvent::VARIANTS,
        ];
        kinds.into_iter().flatten().copied()
    }

    /// The event of that name and payload, which is JSON text.
    pub fn read(name: &str, payload: &str) -> Result<Self, Unreadable> {
        Self::of(name, payload)
    }

    /// The same of a payload that may be long: no more of it is in memory than what is made of it.
    pub fn read_from(name: &str, payload: impl io::Read) -> Result<Self, Unreadable> {
        Self::of(name, Streamed(payload))
    }

    fn of(name: &str, payload: impl Payload) -> Result<Self, Unreadable> {
        let read = if RunEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Run)
        } else if GraphEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Graph)
        } else if ThreadEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Thread)
        } else if ToolEvent::VARIANTS.contains(&name) {
            payload.of(name).map(Self::Tool)
        } else {
            return Err(Unreadable::Name {
                name: name.to_owned(),
            });
        };
        read.map_err(|source| Unreadable::Payload {
            name: name.to_owned(),
            source,
        })
    }

    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::Run(event) => event.facets(),
            Self::Graph(event) => event.facets(),
            Self::Thread(event) => event.facets(),
            Self::Tool(event) => event.facets(),
        }
    }

    /// What it does to an account, if it happens to a run whose account is `own`: the event is the operation, and no money moves
    /// without one. That the end of a run ends its account is no part of this.
    pub fn money<'a>(&'a self, own: &'a AccountId) -> Option<(&'a AccountId, Operation)> {
        match self {
            Self::Run(RunEvent::BudgetHeld {
                call,
                amount,
                meters,
                ..
            }) => {
                let (call, amount, meters) = (*call, *amount, meters.clone());
                let hold = Operation::Hold {
                    call,
                    amount,
                    meters,
                };
                Some((own, hold))
            }
            Self::Run(RunEvent::BudgetSettled {
                call,
                usage,
                estimated,
                ..
            }) => {
                let (call, usage, estimated) = (*call, *usage, *estimated);
                let settle = Operation::Settle {
                    call,
                    usage,
                    estimated,
                };
                Some((own, settle))
            }
            Self::Run(RunEvent::RunCreated(spec)) => {
                Some((&spec.budget.account, spec.budget.operation()))
            }
            Self::Run(RunEvent::BudgetRaised { account, to, .. }) => {
                Some((account, Operation::Raise { to: *to }))
            }
            Self::Run(_) | Self::Graph(_) | Self::Thread(_) | Self::Tool(_) => None,
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Run(event) => event.outcome(),
            Self::Graph(event) => event.outcome(),
            Self::Thread(event) => event.outcome(),
            Self::Tool(event) => event.outcome(),
        }
    }

    /// True if events of this name end their run, whatever their payload: [`Event::outcome`] of them is never `None`.
    pub fn ends_run(name: &str) -> bool {
        matches!(
            name,
            "run_killed"
                | "graph_completed"
                | "graph_error"
                | "graph_cancelled"
                | "thread_completed"
                | "thread_error"
                | "thread_cancelled"
                | "tool_completed"
                | "tool_cancelled"
        )
    }

    /// The end of a graph run that is accepted and cannot begin, in the commit that creates it.
    pub const fn never_started(error: Failure) -> Self {
        Self::Graph(GraphEvent::GraphError {
            error,
            steps: 0,
            elapsed_ms: 0,
        })
    }
}

/// The JSON of the payload of an event.
trait Payload {
    /// The event `name`, which is one of those of `T`, so that nothing in it has to be escaped.
    fn of<T: DeserializeOwned>(self, name: &str) -> Result<T, serde_json::Error>;
}

/// A payload that is read a piece at a time.
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

/// A fact about a run of any kind: its life, and the attempts that every kind makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunEvent {
    /// The run was accepted. Always the first event.
    RunCreated(Arc<Spec>),
    /// A task of this daemon owns the run now: its first start, or its return after a restart.
    RunStarted {
        /// The daemon's life it runs in.
        epoch: Epoch,
        /// Whether the daemon computed for it when its last life ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        suspected: bool,
        /// Whether that life ended by the daemon's own fault.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fault: bool,
    },
    /// The run is suspended.
    RunSuspended(Suspension),
    /// A suspended run is resumed.
    RunResumed {
        /// The daemon's life it resumes in.
        epoch: Epoch,
        /// New limits that came with the request.
        #[serde(flatten)]
        raised: Raised,
    },
    /// Somebody asked the run to stop.
    CancelRequested {
        /// Who or what, for people.
        cause: String,
    },
    /// Somebody asked for the run, and what is below it, to be ended by force. Nothing begins there from now on.
    KillRequested(Kill),
    /// The run was ended by force.
    RunKilled {
        /// Who or what asked.
        cause: String,
        /// What was ended.
        receipt: KillReceipt,
    },
    /// A tool of the run wrote an event of its own (`rye/agent/threads/internal/emitter`).
    Emitted {
        /// The event's own name.
        name: String,
        /// Its content.
        content: Value,
    },
    /// An item was signed on behalf of the run, with the key of the daemon.
    ItemSigned {
        /// The item, with its type.
        item: String,
        /// SHA-256 of what the signature covers, in hex.
        hash: String,
        /// The key.
        key_fp: String,
    },
    /// Something the author of the graph should know: a path that led nowhere, types that do not compare, a dead end.
    Warning {
        /// The node at hand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// What, for people.
        message: String,
    },
    /// A node with an effect is attempted, or a tool run's one call. For a foreach node its items follow, each with
    /// events of its own.
    StepStarted {
        /// Number of the step.
        step: u32,
        /// The node.
        node: String,
        /// How often the node was entered before.
        visit: u32,
        /// Try of this step, from 1.
        attempt: u32,
        /// What is called, as `tool:rye/bash`.
        action_id: String,
        /// What a second run of it would mean.
        effect: Effect,
        /// The idempotency key handed to the tool.
        key: String,
        /// `_now` of the step: the same in every try.
        now: Timestamp,
        /// Number of items, for a foreach node; of branches, for a parallel one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        items: Option<u32>,
        /// Names of the branches, for a parallel node.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        branches: Vec<Name>,
        /// The run that carries the step out; created in the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<RunId>,
        /// Hash over primary, item and parameters: what is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// Hash over the verified contents of all that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
        /// Hash over graph, node, `call`, `chain` and configuration: the key of its result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node_input_hash: Option<String>,
    },
    /// An attempt in flight has a process. Written, not waited for: it matters within one boot only.
    ProcessStarted {
        /// Number of the step.
        step: u32,
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Slot::is_main")]
        slot: Slot,
        /// The process.
        process: ProcessIdentity,
    },
    /// Somebody said what became of an attempt whose outcome nobody knew.
    UncertainAnswered {
        /// Number of the step.
        step: u32,
        /// Which attempt.
        #[serde(default, skip_serializing_if = "Slot::is_main")]
        slot: Slot,
        /// What became of it.
        verdict: Verdict,
        /// Its result, of one that is done, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Value>>,
        /// Who said so.
        by: String,
    },
    /// A person is asked something.
    ApprovalRequested(Approval),
    /// A person answered.
    ApprovalAnswered(ApprovalAnswer),
    /// Nobody answered in time.
    ApprovalExpired(Expired),
    /// Hooks whose actions have effects are asked about an event of the graph, one after the other.
    HooksBegun {
        /// The event: `graph_started`, `after_step`, `error`, `limit` or `graph_completed`.
        event: String,
        /// The hooks, by their place in the list of the graph's and the configured ones.
        hooks: Vec<u32>,
        /// What they are given, without the state.
        context: Arc<Object>,
        /// `_now` of their templates: the same in every try.
        now: Timestamp,
    },
    /// A paid call is about to be made. What it may cost at most is held in the account of the run, before anything is sent.
    BudgetHeld {
        /// Its number in the account.
        call: CallNo,
        /// How much is held.
        amount: Usd,
        /// The model that is called.
        model: String,
        /// Tokens of input that were counted on.
        input: u64,
        /// Tokens of output that it may have at most.
        max_output: u64,
        /// The meters in force, in which it counts too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        meters: Vec<Metered>,
    },
    /// The open paid call is over.
    BudgetSettled {
        /// Its number in the account.
        call: CallNo,
        /// What was held for it.
        amount: Usd,
        /// What it came to.
        usage: Usage,
        /// Whether its price is an estimate.
        estimated: bool,
        /// Why it came to that.
        because: Because,
    },
    /// The limit of an account became a higher one: that of the run's own account, or of one above it.
    BudgetRaised {
        /// The account.
        account: AccountId,
        /// Its limit from now on.
        to: Usd,
        /// Who asked.
        by: String,
    },
    /// The action of a hook is attempted.
    HookStarted {
        /// Steps taken.
        step: u32,
        /// The event it is asked about.
        event: String,
        /// Id of the hook.
        hook: String,
        /// Its place in the list of hooks.
        index: u32,
        /// Try of this action, from 1.
        attempt: u32,
        /// What is called.
        action_id: String,
        /// The idempotency key handed to the tool.
        key: String,
        /// The run that carries it out; created in the same commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<RunId>,
        /// Hash over primary, item and parameters: what is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// Hash over the verified contents of all that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
    },
    /// A hook has answered.
    HookCompleted {
        /// Steps taken.
        step: u32,
        /// The event it was asked about.
        event: String,
        /// Id of the hook.
        hook: String,
        /// Its place in the list of hooks.
        index: u32,
        /// Wall time in milliseconds.
        elapsed_ms: u64,
        /// Its answer, if it gave one that counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<Control>,
        /// Why its action failed: a warning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
}

impl RunEvent {
    /// A run starts, of which nothing is suspected.
    pub const fn started(epoch: Epoch) -> Self {
        Self::RunStarted {
            epoch,
            suspected: false,
            fault: false,
        }
    }

    /// A suspended run is resumed with the limits that it has.
    pub fn resumed(epoch: Epoch) -> Self {
        let raised = Raised::default();
        Self::RunResumed { epoch, raised }
    }

    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::RunCreated(_) | Self::RunStarted { .. } => Facets {
                allowed: While::Active,
                ..Facets::BEGINS
            },
            Self::RunResumed { .. } => Facets {
                allowed: While::Suspended,
                ..Facets::BEGINS
            },
            Self::RunSuspended(_) => Facets {
                allowed: While::Active,
                ..Facets::ENDS
            },
            Self::RunKilled { .. } => Facets::ENDS,
            Self::CancelRequested { .. }
            | Self::KillRequested(_)
            | Self::BudgetRaised { .. }
            | Self::ApprovalAnswered(_) => Facets {
                allowed: While::Live,
                ..Facets::PLAIN
            },
            Self::StepStarted { .. } | Self::BudgetHeld { .. } => Facets::ATTEMPT,
            Self::HookStarted { .. } | Self::Emitted { .. } => Facets::BEGINS,
            // The identity of a process means nothing once the machine went down, and what has been written outlives
            // the daemon; the end of the step, often milliseconds later, takes it along.
            Self::ProcessStarted { .. } => Facets {
                sync: Syncing::Soon,
                ..Facets::PLAIN
            },
            // Only of a suspended run is it said what became of its attempts: those of a running one may still end.
            Self::UncertainAnswered { .. } | Self::ApprovalExpired(_) => Facets {
                allowed: While::Suspended,
                ..Facets::PLAIN
            },
            Self::HookCompleted { .. } => Facets::PROGRESS,
            // A settlement is no progress: recovery makes one for every call that the daemon's end cut off.
            Self::HooksBegun { .. }
            | Self::ApprovalRequested(_)
            | Self::ItemSigned { .. }
            | Self::Warning { .. }
            | Self::BudgetSettled { .. } => Facets::PLAIN,
        }
    }

    /// What the run came to, if this event ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::RunKilled { cause, receipt } => Some(Outcome::Killed {
                cause: cause.clone(),
                receipt: receipt.clone(),
            }),
            Self::RunCreated(_)
            | Self::RunStarted { .. }
            | Self::RunSuspended(_)
            | Self::RunResumed { .. }
            | Self::CancelRequested { .. }
            | Self::KillRequested(_)
            | Self::BudgetHeld { .. }
            | Self::BudgetSettled { .. }
            | Self::BudgetRaised { .. }
            | Self::Emitted { .. }
            | Self::ItemSigned { .. }
            | Self::Warning { .. }
            | Self::StepStarted { .. }
            | Self::ProcessStarted { .. }
            | Self::UncertainAnswered { .. }
            | Self::ApprovalRequested(_)
            | Self::ApprovalAnswered(_)
            | Self::ApprovalExpired(_)
            | Self::HooksBegun { .. }
            | Self::HookStarted { .. }
            | Self::HookCompleted { .. } => None,
        }
    }
}
