//! An action, from the order to its end: what drivers and the door to effects hand each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_core::capability::Primary;
use rye_core::cas::InputHashes;
use rye_core::definition::Authority;
use rye_core::id::{ItemRef, RunId};
use rye_core::machine::{Call, CallOutcome, ResultText, TextForm};
use rye_core::memory::Memory;
use rye_core::model::{Failure, KillReceipt, Object};
use serde_json::{Value, json};

use crate::chain::{Chain, Origin, Plan};
use crate::exhausted::Exhausted;
use crate::port::Wanted;
use crate::projects::Project;

/// An action to carry out.
#[derive(Debug, Clone)]
pub struct Order {
    /// On whose behalf.
    pub origin: Origin,
    /// Where the run works.
    pub project: Arc<Project>,
    /// What is done.
    pub primary: Primary,
    /// To what.
    pub item: ItemRef,
    /// With which parameters: data, never templated.
    pub params: Object,
    /// Whether the decisions on the way are reported.
    pub trace: TraceMode,
    /// Whose grant it needs.
    pub authority: Authority,
    /// Longest time it may take, if less than its own.
    pub timeout: Option<Duration>,
}

/// Whether the decisions on the way to an action are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceMode {
    /// They are not: looking for shadowed files costs.
    #[default]
    Off,
    /// They are.
    On,
}

/// What `execute` tells of an action, in the shape that `execute --json` prints.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The item that ran.
    pub item: ItemRef,
    /// What it gave back; any JSON value.
    pub data: Value,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// The chain it ran through, as `chain` of the envelope.
    pub chain: Vec<Value>,
    /// What was decided on the way, as `trace` of the envelope, if it was kept.
    pub trace: Option<Vec<Value>>,
    /// Wall time.
    pub elapsed: Duration,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Ended {
    /// With an outcome.
    Outcome(Box<CallOutcome>),
    /// It was stopped because its run is to stop.
    Stopped(KillReceipt),
    /// The run that carries it out is suspended; the leaf of the suspended ones.
    Suspended(RunId),
    /// It has not begun, for the host has too little of something.
    Exhausted(Exhausted),
}

/// An action that was looked up, checked and planned, and has not begun: plain data.
#[derive(Debug)]
pub struct Prepared {
    /// The item, after aliases are resolved.
    pub item: ItemRef,
    /// What is to be done; or why not, which is then what carrying it out answers.
    pub plan: Result<Plan, Box<Failure>>,
    /// Whether it may be done at all: it is permitted, its chain is verified, and its parameters fit.
    pub is_ready: bool,
    /// The chain it runs through, if there is one.
    pub chain: Option<Chain>,
    /// What was decided on the way, if that is kept.
    pub trace: Option<Vec<Value>>,
    /// When that began.
    pub since: Instant,
}

impl Prepared {
    /// How a model reads the result.
    pub fn result_text(&self) -> ResultText {
        let plan = self.plan.as_ref();
        ResultText {
            form: plan.map_or_else(|_| TextForm::default(), Plan::text_form),
            limit: self.chain.as_ref().and_then(Chain::result_limit),
        }
    }

    /// The run that carries it out, if one does and not [`Dispatch`](super::Dispatch); `call` is what was prepared.
    pub fn wanted(&self, call: &Call) -> Option<Wanted> {
        match &self.plan {
            Ok(Plan::Graph) => Some(Wanted::Graph {
                item: self.item.clone(),
                params: call.params.clone(),
            }),
            Ok(Plan::Thread(order)) => Some(Wanted::Thread(order.clone())),
            Ok(Plan::Native(_) | Plan::Process(_) | Plan::Http(_) | Plan::Mcp(_)) | Err(_) => None,
        }
    }

    /// What the host has too little of to look it up: then nothing is known of it.
    pub fn lacks(&self) -> Option<Exhausted> {
        self.plan
            .as_ref()
            .err()
            .and_then(|why| Exhausted::of_failure(why))
    }

    /// What `execute` tells of it, but for what it comes to.
    pub fn envelope(&mut self) -> Envelope {
        Envelope {
            item: self.item.clone(),
            data: Value::Null,
            failure: None,
            chain: self.chain.iter().flat_map(Chain::links).collect(),
            trace: self.trace.take(),
            elapsed: self.since.elapsed(),
        }
    }

    /// What `call`, which was prepared, does, and what that runs on: the elements of its chain, tool first, and the directive of the
    /// thread that carries it out.
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
    /// The `{status, type, item_id, data, chain, metadata}` document, with `trace` if it was kept.
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
        if let Some(trace) = &self.trace {
            document["trace"] = json!(trace);
        }
        document
    }
}

/// The failure of a call that took longer than it may.
pub fn timed_out(timeout: Duration) -> Failure {
    let text = format!("timed out after {} s", timeout.as_secs_f64());
    Failure::permanent("timeout", text).decided()
}

/// The failure of a call that gave back what does not fit beside what all runs hold.
pub fn memory_exceeded(memory: &Memory) -> Failure {
    let text = format!(
        "the values of all runs together may take {} MiB of memory (`limits.memory_mb`), and what the call gave back does not fit beside \
         the others; resume the run when others have ended",
        memory.most() >> 20
    );
    Failure::permanent("memory_exceeded", text)
}
