//! Facts about a run of any kind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use super::{Facets, Syncing, While};
use crate::clock::Timestamp;
use crate::expr::Object;
use crate::id::{Epoch, Name, RunId};
use crate::ledger::{AccountId, CallNo, Metered, Usage};
use crate::model::approval::{Approval, ApprovalAnswer, Expired};
use crate::model::attempt::{Effect, ProcessIdentity, Slot, Verdict};
use crate::model::budget::Because;
use crate::model::control::Control;
use crate::model::failure::Failure;
use crate::model::kill::{Kill, KillReceipt};
use crate::model::life::Outcome;
use crate::model::limits::Raised;
use crate::model::spec::Spec;
use crate::model::suspension::Suspension;
use crate::money::Usd;

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
