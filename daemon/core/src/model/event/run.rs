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
use crate::model::isolation::Isolation;
use crate::model::kill::KillReceipt;
use crate::model::life::Status;
use crate::model::limits::Raised;
use crate::model::process_end::ProcessEnd;
use crate::model::resources::Resources;
use crate::money::Usd;

/// A task of this daemon owns the run from now on: its first start, or its return after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    pub epoch: Epoch,
    /// True if the daemon was computing for the run when its last life ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected: bool,
    /// True if that life ended by the daemon's own fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fault: bool,
}

/// A suspended run is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResumed {
    pub epoch: Epoch,
    /// New limits that came with the request.
    #[serde(flatten)]
    pub raised: Raised,
}

/// A user or component requested the run to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelRequested {
    /// The requester, for people.
    pub cause: String,
}

/// The run was ended by force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunKilled {
    /// The user or component that requested it.
    pub cause: String,
    pub receipt: KillReceipt,
}

/// A tool of the run wrote an event of its own (`rye/agent/threads/internal/emitter`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emitted {
    /// Name of the tool's event.
    pub name: String,
    pub content: Value,
}

/// An item was signed on behalf of the run, with the key of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemSigned {
    /// The item, with its type.
    pub item: String,
    /// SHA-256 of the signed bytes, in hex.
    pub hash: String,
    pub key_fp: String,
}

/// A problem that the author of the graph should know: a path that led nowhere, types that do not compare, a dead end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// The current node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub message: String,
}

/// A node with an effect is attempted, or a tool run's one call. For a foreach node its items follow, each with
/// events of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStarted {
    pub step: u32,
    pub node: String,
    /// Number of earlier visits of the node.
    pub visit: u32,
    /// Try of this step, from 1.
    pub attempt: u32,
    /// The item that is called, as `tool:rye/bash`.
    pub action_id: String,
    /// The meaning of a second execution.
    pub effect: Effect,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// True if the program of the tool repeats its calls in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replays: bool,
    /// `_now` of the step: the same in every try.
    pub now: Timestamp,
    /// Number of items of a foreach node, or of branches of a parallel one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// Names of the branches, for a parallel node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Name>,
    /// The run that carries the step out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of everything that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Hash over graph, node, `call`, `chain` and configuration: the key of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_input_hash: Option<String>,
}

/// An attempt in flight has a process. It is written without waiting for the disk, as it matters within one boot only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessStarted {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    pub process: ProcessIdentity,
    /// Isolation that is in force; absent in old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Limits that are in force.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
}

/// The process of an attempt has ended. The end of the attempt follows, unless its run stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessExited {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    pub end: ProcessEnd,
}

/// The program of an attempt started a run. The run is created in the same commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallbackStarted {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    /// The item of the run, as `tool:team/lint`.
    pub item: String,
    pub child: RunId,
    /// Number of the call in its step, from 0, if the program repeats its calls in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    /// Hash over item and parameters, with an `ordinal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_hash: Option<String>,
}

/// The call of a program that repeats its calls in order has ended; its result is about to be returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackEnded {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    pub ordinal: u32,
    pub child: RunId,
    /// Status with which the run ended.
    pub status: Status,
}

/// The program of an attempt reported its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallProgress {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    /// Part of the work that is done, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    pub message: String,
}

/// A person stated the outcome of an attempt of unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UncertainAnswered {
    pub step: u32,
    #[serde(default, skip_serializing_if = "Slot::is_main")]
    pub slot: Slot,
    pub verdict: Verdict,
    /// The result of an attempt that is done, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
    /// The person who stated it.
    pub by: String,
}

/// Hooks whose actions have effects are called about an event of the graph, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HooksBegun {
    pub event: String,
    /// The hooks, by their index in the list of the graph's and the configured ones.
    pub hooks: Vec<u32>,
    /// Context of the hooks, without the state.
    pub context: Arc<Object>,
    /// `_now` of their templates: the same in every try.
    pub now: Timestamp,
}

/// A paid call is about to be made. Its highest possible cost is held in the account of the run before anything is
/// sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetHeld {
    /// Number of the call in the account.
    pub call: CallNo,
    pub amount: Usd,
    pub model: String,
    /// Tokens of input that were counted on.
    pub input: u64,
    /// Limit of the tokens of output.
    pub max_output: u64,
    /// The meters in force, which count it too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Metered>,
}

/// The open paid call is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// Number of the call in the account.
    pub call: CallNo,
    /// The amount that was held for it.
    pub amount: Usd,
    /// Actual usage and cost.
    pub usage: Usage,
    /// True if its price is an estimate.
    pub estimated: bool,
    /// Source of the price.
    pub because: Because,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetRaised {
    pub account: AccountId,
    /// The new limit.
    pub to: Usd,
    /// The requester.
    pub by: String,
}

/// The action of a hook is attempted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookStarted {
    /// Steps taken.
    pub step: u32,
    pub event: String,
    pub hook: String,
    /// Index in the list of hooks.
    pub index: u32,
    /// Try of this action, from 1.
    pub attempt: u32,
    pub action_id: String,
    /// The idempotency key handed to the tool.
    pub key: String,
    /// The run that carries it out; created in the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// Hash over primary, item and parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Hash over the verified contents of everything that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A hook has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookCompleted {
    /// Steps taken.
    pub step: u32,
    pub event: String,
    pub hook: String,
    /// Index in the list of hooks.
    pub index: u32,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Its answer, if it gave one that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// The question about a call is dropped, because the call or the contents that it runs on have changed since. Another
/// question follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalInvalidated {
    pub id: Name,
}

/// A tool of the run started a run that ends with it: a managed process. Created in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    pub child: RunId,
    /// Its name.
    pub name: String,
    /// True if it is an MCP server, which does not count among the child runs that the run may start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_server: bool,
}

impl RunEvent {
    /// A run starts without suspicion.
    pub const fn started(epoch: Epoch) -> Self {
        Self::started_after(epoch, None)
    }

    /// A run starts. `suspicion` is given if the daemon was computing for the run at its death: true if the daemon died
    /// by its own fault.
    pub const fn started_after(epoch: Epoch, suspicion: Option<bool>) -> Self {
        Self::RunStarted(RunStarted {
            epoch,
            suspected: suspicion.is_some(),
            fault: matches!(suspicion, Some(true)),
        })
    }

    /// A suspended run is resumed with its present limits.
    pub fn resumed(epoch: Epoch) -> Self {
        let raised = Raised::default();
        Self::RunResumed(RunResumed { epoch, raised })
    }
}

impl StepStarted {
    /// Returns the attempt of its action, with the start time `since`.
    pub(crate) fn attempt(&self, since: Timestamp) -> Attempt {
        let id = AttemptId {
            step: self.step,
            slot: Slot::Main,
            number: self.attempt,
        };
        Attempt {
            key: self.key.as_str().into(),
            child: self.child.clone(),
            replays: self.replays,
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
