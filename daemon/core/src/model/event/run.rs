//! Facts about a run of any kind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunEvent;
use crate::clock::Timestamp;
use crate::expr::Object;
use crate::id::{Epoch, Name, RunId};
use crate::ledger::{AccountId, CallNo, Metered, Operation, Usage};
use crate::model::attempt::{Attempt, AttemptId, Effect, ProcessIdentity, Slot, Verdict};
use crate::model::budget::Because;
use crate::model::control::Control;
use crate::model::failure::Failure;
use crate::model::kill::KillReceipt;
use crate::model::limits::Raised;
use crate::money::Usd;

/// A task of this daemon owns the run now: its first start, or its return after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The daemon's life it runs in.
    pub epoch: Epoch,
    /// Whether the daemon computed for it when its last life ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected: bool,
    /// Whether that life ended by the daemon's own fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fault: bool,
}

/// A suspended run is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResumed {
    /// The daemon's life it resumes in.
    pub epoch: Epoch,
    /// New limits that came with the request.
    #[serde(flatten)]
    pub raised: Raised,
}

/// Somebody asked the run to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelRequested {
    /// Who or what, for people.
    pub cause: String,
}

/// The run was ended by force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunKilled {
    /// Who or what asked.
    pub cause: String,
    /// What was ended.
    pub receipt: KillReceipt,
}

/// A tool of the run wrote an event of its own (`rye/agent/threads/internal/emitter`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emitted {
    /// The event's own name.
    pub name: String,
    /// Its content.
    pub content: Value,
}

/// An item was signed on behalf of the run, with the key of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemSigned {
    /// The item, with its type.
    pub item: String,
    /// SHA-256 of what the signature covers, in hex.
    pub hash: String,
    /// The key.
    pub key_fp: String,
}

/// Something the author of the graph should know: a path that led nowhere, types that do not compare, a dead end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// The node at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What, for people.
    pub message: String,
}

/// A node with an effect is attempted, or a tool run's one call. For a foreach node its items follow, each with
/// events of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStarted {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// How often the node was entered before.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// What is called, as `tool:rye/bash`.
    pub action_id: String,
    /// What a second run of it would mean.
    pub effect: Effect,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// `_now` of the step: the same in every try.
    pub now: Timestamp,
    /// Number of items, for a foreach node; of branches, for a parallel one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// Names of the branches, for a parallel node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Name>,
    /// The run that carries the step out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters: what is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of all that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Hash over graph, node, `call`, `chain` and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

/// An attempt in flight has a process. Written, not waited for: it matters within one boot only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessStarted {
    /// Number of the step.
    pub step: u32,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    /// The process.
    pub process: ProcessIdentity,
}

/// Somebody said what became of an attempt whose outcome nobody knew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UncertainAnswered {
    /// Number of the step.
    pub step: u32,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    /// What became of it.
    pub verdict: Verdict,
    /// Its result, of one that is done, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
    /// Who said so.
    pub by: String,
}

/// Hooks whose actions have effects are asked about an event of the graph, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HooksBegun {
    /// The event: `graph_started`, `after_step`, `error`, `limit` or `graph_completed`.
    pub event: String,
    /// The hooks, by their place in the list of the graph's and the configured ones.
    pub hooks: Vec<u32>,
    /// What they are given, without the state.
    pub context: Arc<Object>,
    /// `_now` of their templates: the same in every try.
    pub now: Timestamp,
}

/// A paid call is about to be made. What it may cost at most is held in the account of the run, before anything is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetHeld {
    /// Its number in the account.
    pub call: CallNo,
    /// How much is held.
    pub amount: Usd,
    /// The model that is called.
    pub model: String,
    /// Tokens of input that were counted on.
    pub input: u64,
    /// Tokens of output that it may have at most.
    pub max_output: u64,
    /// The meters in force, in which it counts too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Metered>,
}

/// The open paid call is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// Its number in the account.
    pub call: CallNo,
    /// What was held for it.
    pub amount: Usd,
    /// What it came to.
    pub usage: Usage,
    /// Whether its price is an estimate.
    pub estimated: bool,
    /// Why it came to that.
    pub because: Because,
}

/// The limit of an account became a higher one: that of the run's own account, or of one above it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// The account.
    pub account: AccountId,
    /// Its limit from now on.
    pub to: Usd,
    /// Who asked.
    pub by: String,
}

/// The action of a hook is attempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookStarted {
    /// Steps taken.
    pub step: u32,
    /// The event it is asked about.
    pub event: String,
    /// Id of the hook.
    pub hook: String,
    /// Its place in the list of hooks.
    pub index: u32,
    /// Try of this action, from 1.
    pub attempt: u32,
    /// What is called.
    pub action_id: String,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries it out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters: what is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of all that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A hook has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookCompleted {
    /// Steps taken.
    pub step: u32,
    /// The event it was asked about.
    pub event: String,
    /// Id of the hook.
    pub hook: String,
    /// Its place in the list of hooks.
    pub index: u32,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Its answer, if it gave one that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// Why its action failed: a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl RunEvent {
    /// A run starts, of which nothing is suspected.
    pub const fn started(epoch: Epoch) -> Self {
        Self::started_after(epoch, None)
    }

    /// A run starts. `suspicion` is given if the daemon computed for the run when it died: true if it died by its own fault.
    pub const fn started_after(epoch: Epoch, suspicion: Option<bool>) -> Self {
        Self::RunStarted(RunStarted {
            epoch,
            suspected: suspicion.is_some(),
            fault: matches!(suspicion, Some(true)),
        })
    }

    /// A suspended run is resumed with the limits that it has.
    pub fn resumed(epoch: Epoch) -> Self {
        let raised = Raised::default();
        Self::RunResumed(RunResumed { epoch, raised })
    }
}

impl StepStarted {
    /// The attempt of its action that begins at `since`.
    pub(crate) fn attempt(&self, since: Timestamp) -> Attempt {
        let id = AttemptId {
            step: self.step,
            slot: Slot::Main,
            number: self.attempt,
        };
        Attempt {
            key: self.key.as_str().into(),
            child: self.child.clone(),
            ..Attempt::new(id, self.effect, since)
        }
    }
}

impl BudgetHeld {
    pub(super) fn operation(&self) -> Operation {
        Operation::Hold {
            call: self.call,
            amount: self.amount,
            meters: self.meters.clone(),
        }
    }
}

impl BudgetSettled {
    pub(super) const fn operation(&self) -> Operation {
        Operation::Settle {
            call: self.call,
            usage: self.usage,
            estimated: self.estimated,
        }
    }
}
