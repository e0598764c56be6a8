//! One call of a graph run: its lookup, then its execution by a tool or a child run.
//!
//! **Cache.** A node with `cache_result` is answered from [`crate::cache`] if its key is there. The key is the hash
//! over graph, node, action, configuration and the content of its tool's whole chain
//! ([`InputScope`](rye_core::cas::InputScope)). Other data that a tool reads is not part of it. Permission and
//! parameters are checked before the lookup. A successful result is stored before its step completes. Failures, and
//! calls whose effect is unknown, are never stored. A call of a graph or a directive gets a key for its receipt and is
//! never cached, because the key cannot cover the calls it will make.

use std::sync::Arc;

use futures_util::future::join_all;
use rye_core::capability::Primary;
use rye_core::cas::InputHashes;
use rye_core::definition::Caching;
use rye_core::id::RunId;
use rye_core::machine::{Call, CallOutcome, Certainty, as_object};
use rye_core::model::{Effect, Failure, Run, Slot};
use serde_json::{Value, json};

use super::GraphRun;
use crate::chain::Chain;
use crate::children::{self, Child, Lookup, failure_of};
use crate::drive::{Job, RunContext};
use crate::services::{Ended, Prepared, Services, TraceMode};
use crate::stop::Stop;

/// Item whose result may name a thread that another one continues.
const THREAD: &str = "rye/agent/threads/thread_directive";

/// Executor of a call.
pub(super) enum Carrier {
    Effect(Box<Prepared>),
    Child(Child),
}

/// Executor of a call of a graph run, and the key of its result.
pub(super) struct Planned {
    carrier: Carrier,
    node_input_hash: Option<String>,
}

impl Planned {
    /// Effect of a second execution as declared by a tool, if it is stricter than the default of a node.
    pub(super) fn stricter(&self) -> Option<Effect> {
        match &self.carrier {
            Carrier::Effect(prepared) => prepared
                .chain
                .as_ref()
                .and_then(Chain::effect)
                .filter(|effect| *effect == Effect::AtMostOnce),
            Carrier::Child(_) => None,
        }
    }
}

/// Looks up the plans of `calls`, in their order. Commits nothing and starts nothing.
pub(super) async fn look_up(context: &GraphRun, run: &Run, calls: &[&Call]) -> Vec<Job<Planned>> {
    let unattached = calls.iter().filter(|call| call.attached.is_none());
    let orders = unattached.copied();
    let mut prepared = context
        .at
        .prepare_all(orders, TraceMode::Off)
        .await
        .into_iter();
    let jobs = calls.iter().map(|call| {
        let attached = children::attached(call);
        let prepared = attached.is_none().then(|| prepared.next());
        async move {
            match (attached, prepared.flatten()) {
                (Some(child), _) => by_child(child, InputHashes::default()),
                (None, Some(prepared)) => by_plan(context, run, call, prepared).await,
                (None, None) => unreachable!("each order is answered"),
            }
        }
    });
    join_all(jobs).await
}

/// Job of the prepared `call`.
async fn by_plan(context: &GraphRun, run: &Run, call: &Call, prepared: Prepared) -> Job<Planned> {
    if let Some(lack) = prepared.shortage() {
        return Job::Exhausted(lack);
    }
    let services = &context.at.services;
    if let Some(wanted) = prepared.child_request(&call.params) {
        if call.caching == Caching::On {
            tracing::warn!(run = %run.id, node = call.node, "`cache_result` has no effect on a node that starts a run");
        }
        let found = children::nest(services, run, call, wanted).await;
        let hashes = context.hashes(call, &prepared, found.directive());
        return by_child(found, hashes);
    }
    let hashes = context.hashes(call, &prepared, None);
    if let Some(answer) = context.remembered(call, hashes.node_input.as_deref()).await {
        return Job::Known(Box::new(answer), None);
    }
    Job::Begin {
        plan: Planned {
            carrier: Carrier::Effect(Box::new(prepared)),
            node_input_hash: hashes.node_input.clone(),
        },
        child: None,
        creates: Vec::new(),
        hashes,
    }
}

/// Job of a call that a child run executes.
fn by_child(found: Lookup, hashes: InputHashes) -> Job<Planned> {
    let node_input_hash = hashes.node_input.clone();
    found.job(hashes, |child| Planned {
        carrier: Carrier::Child(child),
        node_input_hash,
    })
}

impl GraphRun {
    /// Display name of the attempt `call`.
    fn name_of(&self, call: &Call) -> String {
        self.graph.attempt_name(&call.node, call.slot)
    }

    /// Input hashes of `call`, which may start a thread of the given directive. Hooks and refused calls have no result
    /// key.
    fn hashes(&self, call: &Call, prepared: &Prepared, directive: Option<&str>) -> InputHashes {
        let hashes = prepared.hashes(call, directive);
        let is_node = matches!(call.slot, Slot::Main | Slot::Part(_));
        // Fetched content is not part of the hash.
        let is_fixed = prepared.is_ready && call.primary == Primary::Execute;
        let key = (is_node && is_fixed).then(|| self.inputs.key(&call.node, &hashes));
        InputHashes {
            node_input: key.flatten(),
            ..hashes
        }
    }

    /// Cached answer of an earlier call with the same key.
    async fn remembered(&self, call: &Call, key: Option<&str>) -> Option<CallOutcome> {
        let key = key.filter(|_| call.caching == Caching::On)?;
        let result = self
            .cache
            .find(self.at.project.file_pool(), &self.at.spec.files, key)
            .await?;
        Some(CallOutcome {
            cached: true,
            node_input_hash: Some(key.to_owned()),
            ..CallOutcome::known(result)
        })
    }

    /// Stores the result of `call` for later calls with the same key.
    async fn remember(&self, call: &Call, answer: &CallOutcome) {
        let key = answer.node_input_hash.as_deref();
        let good = answer.failure.is_none() && answer.certainty == Certainty::Known;
        if let Some(key) = key.filter(|_| call.caching == Caching::On && good) {
            let now = self.at.services.journal.now();
            let files = &self.at.spec.files;
            self.cache
                .store(
                    self.at.project.file_pool(),
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
        Carrier::Child(child) => {
            let limit = "the timeout of its node in";
            children::carry_out(services, run, call, child, stop, limit).await
        }
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
    let heading = match call.slot {
        Slot::Hook(_) => format!("step {} hook {}", call.step, call.item.id),
        Slot::Main | Slot::Part(_) => format!("step {} {}", call.step, context.name_of(call)),
    };
    let continues = prepared.item.id.as_str() == THREAD;
    let mut ended = context.at.carry_out(call, prepared, stop, &heading).await;
    if let Ended::Outcome(answer) = &mut ended {
        if let Some(failure) = &answer.failure {
            let data = Arc::unwrap_or_clone(std::mem::take(&mut answer.result));
            answer.result = Arc::new(with_failure(data, failure));
        }
        if continues {
            follow(&context.at.services, answer).await;
        }
    }
    ended
}

/// The `${result}` of a failed call: its returned data, with `status` and `error` added.
fn with_failure(data: Value, failure: &Failure) -> Value {
    let mut result = match data {
        Value::Object(result) => result,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => as_object(&other),
    };
    result.insert("status".into(), json!("error"));
    let told = result
        .get("error")
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if !told {
        result.insert("error".into(), json!(failure.message));
    }
    Value::Object(result)
}

/// Replaces the result of a continued thread by that of its last continuation.
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
                ..CallOutcome::known(result)
            };
        }
    }
}
