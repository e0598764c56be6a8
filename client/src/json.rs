//! The JSON that `ryectl --json` prints. Names, order and meaning of the fields are a promise to scripts.

mod approvals;
pub mod budget;
pub mod capability;
mod daemon;
mod deltas;
pub mod items;
pub mod models;
mod suspension;
mod transcript;

use std::collections::{HashMap, HashSet};

use rye_core::model::{Printed, RunKind, Status};
use rye_core::money::Usd;
use rye_proto::v1;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::Error;
use crate::wire;

pub use self::approvals::Approval;
pub use self::daemon::Daemon;
pub use self::deltas::{Delta, Told};
pub use self::suspension::{InDoubt, Suspension};
pub use self::transcript::{Checked, Verdict};

/// One run: `run --json`, `get --json`, the elements of `ps --json` and `wait --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// Id of the item it runs.
    pub item_id: String,
    /// `graph`, `tool` or `thread`.
    pub kind: &'static str,
    /// A word of [`Status`].
    pub status: &'static str,
    /// The run that started it.
    pub parent_id: Option<String>,
    /// Its project.
    pub project: Option<String>,
    /// Whether it came to its end, with or without suppressed errors; null until it has ended.
    pub success: Option<bool>,
    /// State of a graph run, `inputs` included; null in lists.
    pub state: Option<Value>,
    /// What its return node declares; a tool's result; null for a thread.
    pub output: Option<Value>,
    /// Steps taken.
    pub steps: u32,
    /// A thread's outputs.
    pub outputs: Option<Value>,
    /// The last text of a thread that declares no outputs.
    pub result: Option<Value>,
    /// True if that text lacks its end, because the model may not say more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why it failed, what stopped it, or behind which failure it is suspended.
    pub error: Option<RunError>,
    /// How many errors were suppressed.
    pub errors_suppressed: usize,
    /// These errors.
    pub errors: Vec<SuppressedError>,
    /// What it asks people and nobody has answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// Why it is suspended.
    pub suspend: Option<Suspension>,
    /// At-most-once attempts that may have executed, and that continuing the run repeats, which has ended; only `get` looks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<InDoubt>,
    /// What it has cost.
    pub cost: Cost,
    /// How many child runs it has started, with the runs that it continues.
    pub spawn_count: u32,
    /// That it was asked to stop, once that was accepted.
    pub cancel: Option<Cancel>,
    /// When it started, RFC 3339.
    pub started_at: Option<String>,
    /// When it ended, RFC 3339.
    pub ended_at: Option<String>,
    /// The run it continues.
    pub continuation_of: Option<String>,
    /// The run that continues it.
    pub continued_by: Option<String>,
    /// The model of a thread; null in lists.
    pub model: Option<String>,
    /// The provider of that model.
    pub provider: Option<String>,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunError {
    /// For people.
    pub message: String,
    /// The node that failed.
    pub node: Option<String>,
    /// For programs.
    pub code: String,
    /// What kind of failure it is, if that was asked.
    pub class: Option<String>,
    /// Whether the same may succeed later.
    pub retryable: bool,
    /// How the process ended that failed, if one did.
    #[serde(flatten)]
    pub process: Option<Printed>,
}

/// A request to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cancel {
    /// Why, if anybody said so.
    pub reason: Option<String>,
    /// Who asked.
    pub by: String,
    /// When, RFC 3339.
    pub at: Option<String>,
}

/// A suppressed error: the run continued after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuppressedError {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// Its message.
    pub error: String,
}

/// What a run has cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Turns of a model.
    pub turns: u64,
    /// Tokens sent that were not cached.
    pub input_tokens: u64,
    /// Tokens received, reasoning included.
    pub output_tokens: u64,
    /// Tokens sent that were read from a cache.
    pub cache_read_tokens: u64,
    /// Tokens sent that were written to a cache.
    pub cache_write_tokens: u64,
    /// Tokens received that were reasoning.
    pub reasoning_tokens: u64,
    /// The money.
    pub spend: Dollars,
    /// Whether a part of the money is an estimate.
    pub estimated: bool,
}

/// Money: US dollars as decimal text with nine places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Dollars(pub Usd);

impl Dollars {
    /// From a text of the contract. `name` is the field.
    fn read(name: &str, text: &str) -> Result<Self, Error> {
        wire::usd(name, text).map(Self)
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An element of `steps --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Number of the step.
    pub step: u32,
    /// The node.
    pub node: String,
    /// `ok error cached return foreach gate`.
    pub status: String,
    /// Wall time in milliseconds.
    pub elapsed_ms: u64,
    /// Whether its result came from the cache.
    pub cache_hit: bool,
    /// Its error.
    pub error: Option<String>,
    /// How far a foreach or parallel step has come that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemCount>,
    /// How the process ended that failed, if one did.
    #[serde(flatten)]
    pub process: Option<Printed>,
}

/// How many items of a step there are, have ended, and have failed of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ItemCount {
    /// All of them.
    pub total: u32,
    /// Those that ended.
    pub ended: u32,
    /// Those of these that failed.
    pub failed: u32,
}

/// A run with its child runs: `tree --json`, and the elements of `ps --tree --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tree {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// The runs it started.
    pub children: Vec<Self>,
}

impl Tree {
    /// Puts each run under its parent; one whose parent is not among them stands at the top. Order is kept.
    pub fn grow(runs: Vec<Run>) -> Vec<Self> {
        let known: HashSet<String> = runs.iter().map(|run| run.run_id.clone()).collect();
        let mut tops = Vec::new();
        let mut below: HashMap<String, Vec<Run>> = HashMap::new();
        for run in runs {
            match run.parent_id.clone().filter(|id| known.contains(id)) {
                Some(parent) => below.entry(parent).or_default().push(run),
                None => tops.push(run),
            }
        }
        Self::hang(tops, &mut below)
    }

    fn hang(runs: Vec<Run>, below: &mut HashMap<String, Vec<Run>>) -> Vec<Self> {
        let one = |run: Run| {
            let children = below.remove(&run.run_id).unwrap_or_default();
            Self {
                children: Self::hang(children, below),
                run,
            }
        };
        runs.into_iter().map(one).collect()
    }
}

/// `graph validate --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Validation {
    /// Whether there are no errors.
    pub success: bool,
    /// What keeps the graph from running.
    pub errors: Vec<Finding>,
    /// What somebody should look at.
    pub warnings: Vec<Finding>,
    /// How many nodes it has.
    pub node_count: u32,
}

/// A line of `graph validate --json` of several graphs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Validated {
    /// The graph.
    pub item: String,
    /// Its file.
    pub path: String,
    /// What was found.
    #[serde(flatten)]
    pub report: Validation,
}

/// Something to know about a graph file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The node it concerns.
    pub node: Option<String>,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// An element of `cache ls --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheEntry {
    /// Hash over graph, node, action, chain and configuration: the key of its result.
    pub key: String,
    /// The node that gave the result; null if the entry is not trusted.
    pub node: Option<String>,
    /// Hash of the object that holds the result; null if the entry is not trusted.
    pub result_hash: Option<String>,
    /// When it was stored, RFC 3339.
    pub cached_at: Option<String>,
    /// Whether this daemon signed it: any other is never used.
    pub trusted: bool,
}

/// A line of `events --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Position for `--from`.
    pub cursor: String,
    /// Position in the run.
    pub seq: u64,
    /// The run.
    pub run_id: String,
    /// RFC 3339.
    pub timestamp: Option<String>,
    /// What happened.
    pub event_type: String,
    /// The facts.
    pub payload: Value,
}

/// A line of `kill --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KillReceipt {
    /// The run.
    pub run_id: String,
    /// What was ended.
    pub processes: Vec<EndedProcess>,
    /// Process ids that could not be ended.
    pub survivors: Vec<i32>,
    /// The same of the runs that it started.
    pub below: Vec<Self>,
}

/// A process that a kill ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedProcess {
    /// Process id.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its exit code.
    pub exit: Option<i32>,
}

impl Run {
    /// Its status for people: one that was asked to stop and has not is `cancelling`.
    pub fn standing(&self) -> &'static str {
        if self.cancel.is_some() && self.success.is_none() {
            "cancelling"
        } else {
            self.status
        }
    }

    /// From the record the daemon answered with.
    pub fn new(run: &v1::Run) -> Result<Self, Error> {
        let status = wire::status_of(run)?;
        let kind = wire::kind_of(run)?;
        let output = wire::json("output_json", &run.output_json)?;
        let (output, outputs, result) = match (kind, output) {
            (RunKind::Thread, Some(outputs @ Value::Object(_))) => (None, Some(outputs), None),
            (RunKind::Thread, result) => (None, None, result),
            (RunKind::Graph | RunKind::Tool, output) => (output, None, None),
        };
        Ok(Self {
            run_id: run.run_id.clone(),
            item_id: wire::item_id(run).to_owned(),
            kind: kind.as_str(),
            status: status.as_str(),
            parent_id: some(&run.parent_id),
            project: some(&run.project),
            success: success(status),
            state: wire::json("state_json", &run.state_json)?,
            output,
            steps: run.steps,
            outputs,
            result,
            truncated: run.truncated,
            error: run.error.as_ref().map(RunError::new),
            errors_suppressed: run.errors.len(),
            errors: suppressed(run),
            approvals: run
                .approvals
                .iter()
                .map(Approval::new)
                .collect::<Result<_, _>>()?,
            suspend: run.suspend.as_ref().map(Suspension::new).transpose()?,
            uncertain: InDoubt::all(&run.uncertain)?,
            cancel: run.cancel.as_ref().map(|cancel| Cancel {
                reason: some(&cancel.reason),
                by: cancel.by.clone(),
                at: time(cancel.at.as_ref()),
            }),
            cost: Cost::new(&run.cost.clone().unwrap_or_default())?,
            spawn_count: run.spawn_count,
            started_at: time(run.started_at.as_ref()),
            ended_at: time(run.ended_at.as_ref()),
            continuation_of: some(&run.continuation_of),
            continued_by: some(&run.continued_by),
            model: some(&run.model),
            provider: some(&run.provider),
        })
    }

    /// What the run came to, if it came to its end: of a graph what its return node declares, or its state where that declares
    /// nothing; of a tool its result; of a thread its outputs, or its last text.
    pub fn outcome(&self) -> Option<&Value> {
        if self.success != Some(true) {
            return None;
        }
        let graph = self.state.as_ref();
        let declared = graph.and_then(|state| self.declared().or(Some(state)));
        declared
            .or(self.output.as_ref())
            .or(self.outputs.as_ref())
            .or(self.result.as_ref())
    }

    /// The output, if it says anything.
    pub fn declared(&self) -> Option<&Value> {
        let says_nothing = |output: &Value| {
            output.is_null() || output.as_object().is_some_and(serde_json::Map::is_empty)
        };
        self.output.as_ref().filter(|output| !says_nothing(output))
    }
}

impl Cost {
    fn new(cost: &v1::Cost) -> Result<Self, Error> {
        Ok(Self {
            turns: cost.turns,
            input_tokens: cost.input_tokens,
            output_tokens: cost.output_tokens,
            cache_read_tokens: cost.cache_read_tokens,
            cache_write_tokens: cost.cache_write_tokens,
            reasoning_tokens: cost.reasoning_tokens,
            spend: Dollars::read("spend", &cost.spend)?,
            estimated: cost.estimated,
        })
    }
}

impl RunError {
    fn new(error: &v1::RunError) -> Self {
        Self {
            message: error.message.clone(),
            node: some(&error.node),
            code: error.code.clone(),
            class: some(&error.class),
            retryable: error.retryable,
            process: error.process.clone().map(printed),
        }
    }
}

fn printed(end: v1::ProcessEnd) -> Printed {
    Printed {
        exit_code: end.exit_code,
        signal: end.signal,
        stdout_tail: end.stdout_tail,
        stderr_tail: end.stderr_tail,
    }
}

impl From<v1::ValidateResponse> for Validation {
    fn from(answer: v1::ValidateResponse) -> Self {
        let findings = |list: Vec<v1::Finding>| list.into_iter().map(Into::into).collect();
        Self {
            success: answer.success,
            errors: findings(answer.errors),
            warnings: findings(answer.warnings),
            node_count: answer.node_count,
        }
    }
}

impl From<v1::Finding> for Finding {
    fn from(finding: v1::Finding) -> Self {
        Self {
            code: finding.code,
            message: finding.message,
            node: some(&finding.node),
            line: finding.line,
            column: finding.column,
        }
    }
}

impl From<v1::CacheEntry> for CacheEntry {
    fn from(entry: v1::CacheEntry) -> Self {
        Self {
            node: some(&entry.node),
            result_hash: some(&entry.result_hash),
            cached_at: time(entry.cached_at.as_ref()),
            key: entry.key,
            trusted: entry.trusted,
        }
    }
}

impl From<v1::Step> for Step {
    fn from(step: v1::Step) -> Self {
        Self {
            step: step.step,
            node: step.node,
            status: step.status,
            elapsed_ms: step.elapsed_ms,
            cache_hit: step.cache_hit,
            error: step.error,
            items: step.items.map(|items| ItemCount {
                total: items.total,
                ended: items.ended,
                failed: items.failed,
            }),
            process: step.process.map(printed),
        }
    }
}

impl Event {
    /// From an event of the stream.
    pub fn new(event: &v1::Event) -> Result<Self, Error> {
        Ok(Self {
            cursor: event.cursor.clone(),
            seq: event.seq,
            run_id: event.run_id.clone(),
            timestamp: time(event.timestamp.as_ref()),
            event_type: event.event_type.clone(),
            payload: wire::json("payload_json", &event.payload_json)?.unwrap_or_else(|| json!({})),
        })
    }
}

impl From<v1::KillReceipt> for KillReceipt {
    fn from(receipt: v1::KillReceipt) -> Self {
        let processes = receipt.processes.into_iter().map(|process| EndedProcess {
            pid: process.pid,
            comm: process.comm,
            signal: process.signal,
            exit: process.exit,
        });
        Self {
            run_id: receipt.run_id,
            processes: processes.collect(),
            survivors: receipt.survivors,
            below: receipt.below.into_iter().map(Into::into).collect(),
        }
    }
}

fn success(status: Status) -> Option<bool> {
    status.is_terminal().then(|| status.is_success())
}

fn suppressed(run: &v1::Run) -> Vec<SuppressedError> {
    let one = |error: &v1::SuppressedError| SuppressedError {
        step: error.step,
        node: error.node.clone(),
        error: error.error.clone(),
    };
    run.errors.iter().map(one).collect()
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn time(at: Option<&prost_types::Timestamp>) -> Option<String> {
    at.map(|at| wire::timestamp(at).to_string())
}

#[cfg(test)]
mod tests;
