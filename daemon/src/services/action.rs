//! An action from order to end: the types that drivers and [`Dispatch`](super::Dispatch) exchange.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::callers::Caller;
use rye_core::capability::Primary;
use rye_core::cas::InputHashes;
use rye_core::definition::Authority;
use rye_core::id::{ItemRef, RunId};
use rye_core::machine::{Call, CallOutcome, ResultText, TextForm};
use rye_core::memory::Memory;
use rye_core::model::{Failure, KillReceipt, Object, ProcessEnd};
use serde_json::{Value, json};

use crate::chain::{CallOrigin, Chain, Plan};
use crate::exhausted::Exhausted;
use crate::port::ChildRequest;
use crate::projects::Project;

/// An action to carry out.
#[derive(Debug, Clone)]
pub struct Order {
    /// The run and the attempt that need it.
    pub origin: CallOrigin,
    pub project: Arc<Project>,
    pub primary: Primary,
    pub item: ItemRef,
    /// Parameters as data; templates in them are not expanded.
    pub params: Object,
    pub trace: TraceMode,
    /// Kind of the caller, which the item must accept.
    pub caller: Caller,
    /// Permissions that must cover the action: those of the run, or those of its node.
    pub authority: Authority,
    /// Maximum duration, if shorter than that of the item.
    pub timeout: Option<Duration>,
}

/// Recording of the decisions made for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceMode {
    /// No record. Recording is expensive because it searches for shadowed files.
    #[default]
    Off,
    On,
}

/// Result of `execute`, in the form that `execute --json` prints.
#[derive(Debug, Clone)]
pub struct Envelope {
    pub item: ItemRef,
    /// Result; any JSON value.
    pub data: Value,
    pub failure: Option<Failure>,
    /// End of its process, the `metadata.process` member.
    pub process: Option<Box<ProcessEnd>>,
    /// Elements of the chain, the `chain` member.
    pub chain: Vec<Value>,
    /// Recorded decisions, the `trace` member; `None` without [`TraceMode::On`].
    pub trace: Option<Vec<Value>>,
    /// Wall time since the preparation began.
    pub elapsed: Duration,
}

/// End of an attempt.
#[derive(Debug)]
pub enum Ended {
    Outcome(Box<CallOutcome>),
    /// The attempt was stopped because its run stops.
    Stopped(KillReceipt),
    /// The run that carries it out is suspended. Holds the innermost suspended run.
    Suspended(RunId),
    /// The attempt has not begun because of a shortage on the host.
    Exhausted(Exhausted),
}

/// An action that was looked up, checked and planned, but has not begun.
#[derive(Debug)]
pub struct Prepared {
    /// The item with aliases resolved.
    pub item: ItemRef,
    /// The plan, or the failure that carrying it out returns.
    pub plan: Result<Plan, Box<Failure>>,
    /// True if the action is permitted, its chain is verified, and its parameters fit.
    pub is_ready: bool,
    pub chain: Option<Chain>,
    /// Recorded decisions; `None` without [`TraceMode::On`].
    pub trace: Option<Vec<Value>>,
    /// Start of the preparation.
    pub since: Instant,
}

impl Prepared {
    /// Form in which a model reads the result.
    pub fn result_text(&self) -> ResultText {
        let plan = self.plan.as_ref();
        ResultText {
            form: plan.map_or_else(|_| TextForm::default(), Plan::text_form),
            limit: self.chain.as_ref().and_then(Chain::result_limit),
        }
    }

    /// Returns the run that carries the action out, or `None` if [`Dispatch`](super::Dispatch) does. `params` are those
    /// of the prepared call.
    pub fn child_request(&self, params: &Object) -> Option<ChildRequest> {
        match &self.plan {
            Ok(Plan::Graph) => Some(ChildRequest::Graph {
                item: self.item.clone(),
                params: params.clone(),
            }),
            Ok(Plan::Thread(order)) => Some(ChildRequest::Thread(order.clone())),
            Ok(
                Plan::Native(_)
                | Plan::Process(_)
                | Plan::Managed(_)
                | Plan::Kept(_)
                | Plan::Server(_)
                | Plan::Http(_)
                | Plan::Mcp(_),
            )
            | Err(_) => None,
        }
    }

    /// Shortage on the host that prevented the lookup, if there was one.
    pub fn shortage(&self) -> Option<Exhausted> {
        self.plan
            .as_ref()
            .err()
            .and_then(|why| Exhausted::of_failure(why))
    }

    /// Envelope without result and failure. Takes the trace.
    pub fn envelope(&mut self) -> Envelope {
        Envelope {
            item: self.item.clone(),
            data: Value::Null,
            failure: None,
            process: None,
            chain: self.chain.iter().flat_map(Chain::links).collect(),
            trace: self.trace.take(),
            elapsed: self.since.elapsed(),
        }
    }

    /// Hashes of the inputs of `call`, the prepared call: the action, the elements of its chain with the tool first,
    /// and the directive of its thread.
    pub fn hashes(&self, call: &Call, directive: Option<&str>) -> InputHashes {
        let chain = self.chain.iter().flat_map(Chain::content_hashes);
        InputHashes::new(
            call.primary,
            &self.item,
            &call.params,
            chain.chain(directive),
        )
    }
}

impl Envelope {
    /// Makes an envelope without data, failure and chain.
    pub fn of(item: ItemRef) -> Self {
        Self {
            item,
            data: Value::Null,
            failure: None,
            process: None,
            chain: Vec::new(),
            trace: None,
            elapsed: Duration::ZERO,
        }
    }

    /// The `{status, type, item_id, data, chain, metadata}` document, with `trace` if it was recorded.
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "status": if self.failure.is_some() { "error" } else { "success" },
            "type": self.item.kind.as_str(),
            "item_id": self.item.id.as_str(),
            "data": self.data,
            "chain": self.chain,
            "metadata": { "duration_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX) },
        });
        if let Some(failure) = &self.failure {
            document["error"] = json!(failure.message);
            document["metadata"]["code"] = json!(failure.code);
        }
        if let Some(end) = &self.process {
            document["metadata"]["process"] = json!(end);
        }
        if let Some(trace) = &self.trace {
            document["trace"] = json!(trace);
        }
        document
    }
}

/// Failure of a call that exceeded its time limit.
pub fn timed_out(timeout: Duration) -> Failure {
    let text = format!("timed out after {} s", timeout.as_secs_f64());
    Failure::permanent("timeout", text).decided()
}

/// Failure of a call whose result exceeds the memory limit of all runs.
pub fn memory_exceeded(memory: &Memory) -> Failure {
    let text = format!(
        "the values of all runs together may take {} MiB of memory (`limits.memory_mb`), and what the call gave back does not fit beside \
         the others; resume the run when others have ended",
        memory.most() >> 20
    );
    Failure::permanent("memory_exceeded", text)
}
