//! Objects that a graph run produces, as pure functions of its events.

use std::collections::HashMap;
use std::sync::Arc;

use rye_core::cas::{self, Execution, Receipt};
use rye_core::clock::Timestamp;
use rye_core::digest::{Digest, Written};
use rye_core::expr::Vars;
use rye_core::model::{Chunks, Event, GraphEvent, Outcome, Run, RunEvent, Slot, StepStatus};
use serde_json::{Value, json};

/// Release of the program that ran the graph.
pub(super) const SYSTEM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Receipts of a run so far.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    /// Names of the receipts, in order.
    hashes: Vec<Digest>,
    /// Input hashes of the attempts in progress: a failed step does not name its own.
    inputs: HashMap<Slot, String>,
}

/// Objects of one event.
#[derive(Debug)]
pub(super) struct StepArtifacts {
    pub(super) node_input_hash: String,
    pub(super) result: Written,
    pub(super) receipt: Written,
}

impl Receipts {
    pub(super) const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Applies `event`. Returns the result and the receipt of a node or an item that ended with it.
    pub(super) fn take(&mut self, at: Timestamp, event: &Event) -> Option<StepArtifacts> {
        match event {
            Event::Run(RunEvent::StepStarted(started)) => {
                self.inputs.clear();
                self.begun(Slot::Main, started.node_input_hash.as_ref());
                None
            }
            Event::Graph(GraphEvent::ItemStarted(started)) => {
                let slot = Slot::Part(started.item);
                self.begun(slot, started.node_input_hash.as_ref());
                None
            }
            Event::Graph(GraphEvent::RetryScheduled(retry)) => {
                // Only the last try of an item gets a receipt.
                if let Some(item) = retry.item {
                    self.inputs.remove(&Slot::Part(item));
                }
                None
            }
            Event::Graph(GraphEvent::StepCompleted(completed)) => {
                let begun = self.inputs.remove(&Slot::Main);
                self.inputs.clear();
                // The output of a return node is the answer of the run.
                let result = completed.result.as_ref().or(completed.output.as_ref());
                let done = Done {
                    input: completed.node_input_hash.clone().or(begun),
                    result: result.map_or_else(|| Arc::new(json!({})), Arc::clone),
                    cache_hit: completed.cache_hit,
                    elapsed_ms: completed.elapsed_ms,
                    error: completed.error.as_ref().map(|error| error.message.as_str()),
                };
                Some(self.done(at, done))
            }
            Event::Graph(GraphEvent::ItemCompleted(completed)) => {
                let begun = self.inputs.remove(&Slot::Part(completed.item));
                let done = Done {
                    input: completed.node_input_hash.clone().or(begun),
                    result: Arc::clone(&completed.result),
                    cache_hit: completed.status == StepStatus::Cached,
                    elapsed_ms: completed.elapsed_ms,
                    error: completed.error.as_ref().map(|error| error.message.as_str()),
                };
                Some(self.done(at, done))
            }
            Event::Run(_)
            | Event::Graph(_)
            | Event::Thread(_)
            | Event::Tool(_)
            | Event::Process(_) => None,
        }
    }

    fn begun(&mut self, slot: Slot, input: Option<&String>) {
        if let Some(input) = input {
            self.inputs.insert(slot, input.clone());
        }
    }

    fn done(&mut self, at: Timestamp, done: Done<'_>) -> StepArtifacts {
        let node_input_hash = done.input.unwrap_or_default();
        let result = cas::node_result(done.result);
        let receipt = cas::node_receipt(&Receipt {
            node_input_hash: &node_input_hash,
            node_result_hash: &result.hash,
            cache_hit: done.cache_hit,
            elapsed_ms: done.elapsed_ms,
            at,
            error: done.error,
        });
        let name = receipt.hash.parse();
        self.hashes
            .push(name.expect("the name of an object is a digest"));
        StepArtifacts {
            node_input_hash,
            result,
            receipt: receipt.into(),
        }
    }

    /// State and snapshot objects of `run`.
    pub(super) fn snapshots(&self, run: &Run) -> (Written, Written) {
        let state = cas::state_snapshot(run.vars().unwrap_or(&Vars::default()));
        let receipts: Vec<String> = self.hashes.iter().map(Digest::to_string).collect();
        let execution = cas::execution_snapshot(&Execution {
            run: &run.id,
            graph: run.spec.item.id.as_str(),
            system_version: SYSTEM_VERSION,
            step: run.steps(),
            status: run.status(),
            state_hash: &state.hash,
            node_receipts: &receipts,
            errors: &errors(run),
        });
        (state, execution.into())
    }
}

/// A node or an item that ended.
struct Done<'a> {
    input: Option<String>,
    result: Arc<Value>,
    cache_hit: bool,
    elapsed_ms: u64,
    error: Option<&'a str>,
}

/// Suppressed errors, then the one that ended the run.
fn errors(run: &Run) -> Vec<Value> {
    let suppressed = run.suppressed().into_iter().flat_map(Chunks::iter);
    let mut errors: Vec<Value> = suppressed.map(|error| json!(error)).collect();
    if let Some(Outcome::Error { error }) = run.outcome() {
        errors.push(json!({"step": run.steps(), "node": error.node, "error": error.message}));
    }
    errors
}
