//! The one door to effects.
//!
//! **Owns** the order of every action: alias → capability → chain → parameters → native tool or process → envelope
//! (for the few native tools that a graph may call without a capability, the chain tells which they are, and comes first).
//! **Never** lets an action pass that a layer of the run does not allow, and never commits: what came of the action is
//! returned as data. **Failure.** Everything that goes wrong with the action itself, a refused item included, is a
//! failed [`Envelope`]; there is no error type.

mod outcome;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rye_core::bounds;
use rye_core::capability::{self, Capability, Primary};
use rye_core::definition::{Authority, Inputs};
use rye_core::error::{Kinded, with_sources};
use rye_core::id::{Epoch, ItemKind, ItemRef, RunId};
use rye_core::model::{
    Event, Failure, KillReceipt, Object, ProcessIdentity, RunEvent, RunKind, Slot, Spec,
};
use rye_core::walker::Certainty;
use rye_item::Library;
use serde_json::{Value, json};

pub use self::outcome::timed_out;
use self::outcome::{declared_failure, judge, reported_failure};
use crate::chain::{self, Chain, Origin, Terminal};
use crate::config::Config;
use crate::journal::Journal;
use crate::native;
use crate::port::{Refusal, Runs};
use crate::process::{self, Exit, Spawner, StopReason, Stopper};
use crate::stop::{Stop, Urgency};
use crate::task;

/// How long the call in flight of a cancelled run may go on to end by itself (design §8).
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Compiled schemas that are kept; more tools than this in use at once are compiled again.
const MOST_SCHEMAS: usize = 1000;

/// What whoever drives a run works with.
#[derive(Debug, Clone, Copy)]
pub struct Ports<'a> {
    /// The only door to state.
    pub journal: &'a Journal,
    /// The only door to effects.
    pub dispatcher: &'a Dispatcher,
    /// The items seen from the project.
    pub library: &'a Library,
    /// The owner of all runs.
    pub runs: &'a dyn Runs,
    /// This life of the daemon.
    pub epoch: Epoch,
}

impl<'a> Ports<'a> {
    /// What puts the process of the call in `slot` of a step on record, so that the next daemon knows it as one of ours.
    pub fn note_process(
        self,
        run: &'a RunId,
        step: u32,
        slot: Slot,
    ) -> impl Fn(ProcessIdentity) + Send + Sync + 'a {
        move |process| {
            let event = Event::Run(RunEvent::ProcessStarted {
                step,
                slot,
                process,
            });
            if let Err(error) = self.journal.note(run, event) {
                tracing::warn!(error = %with_sources(&error), "a process identity was not recorded");
            }
        }
    }
}

/// An action to carry out.
#[derive(Debug, Clone)]
pub struct Order {
    /// On whose behalf.
    pub origin: Origin,
    /// What is done.
    pub primary: Primary,
    /// To what.
    pub item: ItemRef,
    /// With which parameters: data, never templated.
    pub params: Object,
    /// Whether the decisions on the way are told.
    pub trace: TraceMode,
    /// Whose grant it needs.
    pub authority: Authority,
    /// Longest time it may take, if less than its own.
    pub timeout: Option<Duration>,
}

/// Whether the decisions on the way to an action are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceMode {
    /// They are not: looking for shadowed files costs.
    #[default]
    Off,
    /// They are.
    On,
}

/// The answer of the executor, as the mission's documents shape it.
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

/// What an action came to, and whether it was stopped on the way.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The answer.
    pub envelope: Envelope,
    /// Whether a stop signal ended it before it ended by itself.
    pub stopped: bool,
    /// Processes that had to be ended.
    pub receipt: KillReceipt,
    /// What is known about its effect.
    pub certainty: Certainty,
    /// What its process wrote to stderr.
    pub stderr: Vec<u8>,
}

/// An action that was looked up and checked, and has not begun.
pub struct Prepared {
    order: Order,
    item: ItemRef,
    started: Instant,
    work: Work,
    params: Result<Object, Box<Unsuccessful>>,
}

impl Prepared {
    /// Whether it may begin; if not, carrying it out only tells why.
    pub const fn is_ready(&self) -> bool {
        self.params.is_ok()
    }

    /// Whether a graph run carries it out, and not this door.
    pub fn is_graph(&self) -> bool {
        let chain = self.work.chain.as_ref();
        self.is_ready() && chain.is_some_and(|chain| chain.terminal == Terminal::Graph)
    }

    /// The item, after aliases are resolved.
    pub const fn item(&self) -> &ItemRef {
        &self.item
    }

    /// Content hashes of all elements of its chain, tool first.
    pub fn content_hashes(&self) -> impl Iterator<Item = &str> {
        let chain = self.work.chain.iter();
        chain.flat_map(Chain::content_hashes)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("item", &self.item)
            .field("ready", &self.is_ready())
            .finish_non_exhaustive()
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

    /// What a node sees as `${result}`: the data itself; on failure with `status` and `error` put in.
    pub fn unwrap_result(self) -> Value {
        let Some(failure) = self.failure else {
            return self.data;
        };
        let mut result = match self.data {
            Value::Object(data) => data,
            Value::Null => Object::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Object::from_iter([("result".to_owned(), other)])
            }
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
}

/// Carries out actions.
#[derive(Debug)]
pub struct Dispatcher {
    config: Arc<Config>,
    spawner: Spawner,
    /// Compiled schemas by content hash of their tool: compiling costs more than a native call.
    schemas: Mutex<HashMap<String, Arc<Inputs>>>,
}

impl Dispatcher {
    /// A dispatcher that starts its processes through `spawner`.
    pub fn new(config: Arc<Config>, spawner: Spawner) -> Self {
        Self {
            config,
            spawner,
            schemas: Mutex::default(),
        }
    }

    /// What the tool of `chain` takes; compiled once for each content.
    fn inputs(&self, chain: &Chain) -> Result<Arc<Inputs>, chain::Error> {
        let hash = &chain.tool().content_hash;
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inputs) = schemas.get(hash) {
            return Ok(Arc::clone(inputs));
        }
        if schemas.len() >= MOST_SCHEMAS {
            schemas.clear();
        }
        let inputs = Arc::new(chain.inputs()?);
        schemas.insert(hash.clone(), Arc::clone(&inputs));
        Ok(inputs)
    }

    /// Looks `order` up and checks it: alias, capability, chain, parameters. Nothing has begun when this returns.
    pub fn prepare(&self, order: Order, library: &Library) -> Prepared {
        let started = Instant::now();
        let item = order.item.canonical();
        let mut work = Work {
            chain: None,
            trace: (order.trace == TraceMode::On).then(Vec::new),
            stopped: false,
            receipt: KillReceipt::default(),
            certainty: Certainty::NeverBegan,
            stderr: Vec::new(),
        };
        let params = self.look_up(&order, &item, library, &mut work);
        Prepared {
            order,
            item,
            started,
            work,
            params,
        }
    }

    fn look_up(
        &self,
        order: &Order,
        item: &ItemRef,
        library: &Library,
        work: &mut Work,
    ) -> Result<Object, Box<Unsuccessful>> {
        let permitted = || match order.authority {
            Authority::Run => permit(&order.origin.spec, order.primary, item),
            Authority::Node => Ok(()),
        };
        let open = may_be_open(order, item);
        if !open {
            permitted()?;
        }
        let resolved =
            chain::resolve(library, item, work.trace.as_mut()).map_err(|error| refused(&error))?;
        let resolved = work.chain.insert(resolved);
        // A project's own item of that name is a tool as any other.
        if open && !matches!(resolved.terminal, Terminal::Native(_)) {
            permitted()?;
        }
        if resolved.terminal == Terminal::Graph {
            // A graph checks its inputs itself, and takes control parameters beside them.
            return Ok(order.params.clone());
        }
        let inputs = self.inputs(resolved).map_err(|error| refused(&error))?;
        let params = resolved.fit(&inputs, order.params.clone());
        params.map_err(|error| refused(&error))
    }

    /// Carries out what was prepared. `note_process` is told of the process as soon as there is one.
    pub async fn carry_out(
        &self,
        prepared: Prepared,
        runs: &dyn Runs,
        stop: &Stop,
        note_process: &(dyn Fn(ProcessIdentity) + Send + Sync),
    ) -> Reply {
        let Prepared {
            order,
            item,
            started,
            mut work,
            params,
        } = prepared;
        let done = match params {
            Ok(params) => {
                self.attempt(&order, params, runs, stop, note_process, &mut work)
                    .await
            }
            Err(refused) => Err(refused),
        };
        let (data, failure) = match done {
            Ok(data) => {
                let failure = match work.chain.as_ref().map(|chain| chain.terminal) {
                    Some(Terminal::Native(tool)) if tool.tells_of_runs() => reported_failure(&data),
                    Some(Terminal::Native(_) | Terminal::Process | Terminal::Graph) | None => {
                        declared_failure(&data)
                    }
                };
                (data, failure)
            }
            Err(refused) => (refused.data, Some(refused.failure)),
        };
        let (data, failure) = match bounds::check(&data) {
            Ok(_) => (data, failure),
            Err(excess) => {
                let text = format!("the result is {excess}; let the tool write it to a file");
                let failure = failure.unwrap_or_else(|| Failure::permanent("result_refused", text));
                (Value::Null, Some(failure))
            }
        };
        Reply {
            envelope: Envelope {
                item,
                data,
                failure,
                chain: work.chain.iter().flat_map(Chain::links).collect(),
                trace: work.trace,
                elapsed: started.elapsed(),
            },
            stopped: work.stopped,
            receipt: work.receipt,
            certainty: work.certainty,
            stderr: work.stderr,
        }
    }

    async fn attempt(
        &self,
        order: &Order,
        params: Object,
        runs: &dyn Runs,
        stop: &Stop,
        note_process: &(dyn Fn(ProcessIdentity) + Send + Sync),
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        let Some(resolved) = work.chain.as_ref() else {
            return Err(Failure::permanent("internal", "the action was not looked up").into());
        };
        match &resolved.terminal {
            Terminal::Native(tool) => {
                let session = native::Session {
                    run: &order.origin.run,
                    spec: &order.origin.spec,
                    runs,
                };
                work.certainty = Certainty::Unknown;
                let called = tokio::select! {
                    called = native::call(*tool, params, &session) => called,
                    () = task::sleep(order.timeout) => {
                        return Err(timed_out(order.timeout.unwrap_or_default()).into());
                    }
                    () = stop_due(stop) => {
                        work.stopped = true;
                        return Err(Failure::permanent("stopped", "stopped on request").into());
                    }
                };
                work.certainty = Certainty::Answered;
                called.map_err(Into::into)
            }
            Terminal::Graph => {
                let text = "a graph is carried out by a run of its own";
                Err(Failure::permanent("internal", text).into())
            }
            Terminal::Process => {
                let mut plan = chain::plan(resolved, &params, &order.origin, &self.config)
                    .map_err(|error| unplanned(&error))?;
                if let Some(timeout) = order.timeout {
                    plan.process.timeout = plan.process.timeout.min(timeout);
                }
                let timeout = plan.process.timeout;
                let running = self
                    .spawner
                    .start(plan.process, &plan.tag)
                    .await
                    .map_err(|error| unstarted(&error))?;
                work.certainty = Certainty::Unknown;
                note_process(running.identity().clone());
                let stopper = Stopper::new();
                let exited = tokio::select! {
                    exited = running.finish(stopper.listen()) => exited,
                    never = forward_stop(stop, &stopper) => match never {},
                };
                let exited = exited.map_err(|error| refused(&error))?;
                work.stopped = matches!(
                    exited.ended_by,
                    Some(StopReason::Cancel | StopReason::Kill { .. })
                );
                work.receipt.merge(exited.receipt.clone());
                work.stderr.clone_from(&exited.stderr.bytes);
                if let (None, Exit::Code(_)) = (exited.ended_by, exited.exit) {
                    work.certainty = Certainty::Answered;
                }
                judge(plan.answer, &exited, timeout)
            }
        }
    }
}

/// Whether a graph may call `item` without a capability, if it turns out to be ours.
fn may_be_open(order: &Order, item: &ItemRef) -> bool {
    let native = native::find(&item.id).is_some_and(native::Tool::is_open_to_graphs);
    native
        && item.kind == ItemKind::Tool
        && order.primary == Primary::Execute
        && order.origin.spec.kind == RunKind::Graph
}

/// Resolves when the call in flight is to be ended: at once if the daemon stops, after its grace if the run is cancelled.
async fn stop_due(stop: &Stop) {
    let cancelled = async {
        stop.at_least(Urgency::Cancel).await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    tokio::select! {
        () = cancelled => {}
        () = stop.at_least(Urgency::Shutdown) => {}
    }
}

/// Carries the run's stop signal to the process of its call, as it grows more urgent.
async fn forward_stop(stop: &Stop, stopper: &Stopper) -> std::convert::Infallible {
    stop_due(stop).await;
    let mut signal = stop.changes();
    loop {
        stopper.stop(match stop.grace() {
            Some(grace) => StopReason::Kill { grace },
            None => StopReason::Cancel,
        });
        signal.changed().await;
    }
}

/// What is gathered while an order is carried out.
struct Work {
    chain: Option<Chain>,
    trace: Option<Vec<Value>>,
    stopped: bool,
    receipt: KillReceipt,
    certainty: Certainty,
    stderr: Vec<u8>,
}

/// An action that failed, with what it gave back all the same.
struct Unsuccessful {
    data: Value,
    failure: Failure,
}

impl From<Failure> for Box<Unsuccessful> {
    fn from(failure: Failure) -> Self {
        Self::new(Unsuccessful {
            data: Value::Null,
            failure,
        })
    }
}

/// Every layer of the run must allow the action; the message says which one did not.
pub fn permit(spec: &Spec, primary: Primary, item: &ItemRef) -> Result<(), Failure> {
    let needed = Capability::of(primary, item);
    capability::check(&spec.layers, &needed).map_err(|layer| {
        let by = layer.map_or_else(
            || "there are no capabilities at all".to_owned(),
            |layer| {
                format!(
                    "not covered by {} ({})",
                    layer.source,
                    list(&layer.patterns)
                )
            },
        );
        Failure::permanent(
            "permission_denied",
            format!("permission denied: `{needed}` is {by}"),
        )
    })
}

fn list(patterns: &[String]) -> String {
    if patterns.is_empty() {
        "an empty list, which denies everything".to_owned()
    } else {
        patterns.join(", ")
    }
}

/// Why there is no process to start.
fn unplanned(error: &chain::Error) -> Box<Unsuccessful> {
    if matches!(error, chain::Error::NoInterpreter { .. }) {
        no_program(with_sources(error))
    } else {
        refused(error)
    }
}

/// Why a process did not start.
fn unstarted(error: &process::Error) -> Box<Unsuccessful> {
    if matches!(error, process::Error::ProgramNotFound { .. }) {
        no_program(with_sources(error))
    } else {
        refused(error)
    }
}

/// What would carry the action out is not there: permanent, until somebody installs it.
fn no_program(message: String) -> Box<Unsuccessful> {
    Failure::permanent("executor_not_found", message).into()
}

/// An error on the way to the action, as the failure of the action.
fn refused(error: &(impl Kinded + 'static)) -> Box<Unsuccessful> {
    Refusal::from(error).of_item().into()
}
