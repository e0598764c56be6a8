//! The only way to effects: prepares and carries out actions.
//!
//! **Owns** the order of every action: alias → capability → chain → parameters → plan → native tool or process →
//! result. **Never** lets an action pass that a layer of the run does not allow. **Never** commits the result of an
//! action: it is returned as data. A denial is also recorded as a warning of the run. **Order.** Everything up to the
//! plan happens before the call is announced, in the file pool of the project and not on the runtime's workers. Only
//! what each start needs by itself follows later. **Failure.** Each problem of the action itself, such as a refused
//! item, is a failed [`CallOutcome`]. There is no error type.

mod authority;
mod failures;
mod managed;
mod mcp;
mod outcome;
mod primaries;
mod process;
mod request;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rye_core::bounds;
use rye_core::capability::Primary;
use rye_core::definition::{Authority, Inputs};
use rye_core::id::{ItemKind, ItemRef, RunId};
use rye_core::machine::{CallOutcome, Certainty};
use rye_core::memory::{Charge, Memory};
use rye_core::model::{Failure, KillReceipt, Object, Printed, ProcessEnd, Resources, Task};
use rye_core::thread::ThreadOrder;
use rye_item::Library;
use rye_process::Spawner;
use rye_process::masking::Masker;
use serde_json::{Value, json};
use tracing::Instrument as _;

use self::authority::{callbacks, check_directive};
pub use self::authority::{check_caller, is_refusal, permit};
pub use self::failures::{ISOLATION_UNAVAILABLE, LIMITS_UNAVAILABLE, unstarted};
use self::failures::{is_project_gone, may_begin_again, refused, unplanned, without_project};
use self::outcome::{declared_failure, is_text, reported_failure, without_secrets};
use crate::chain::{
    self, Chain, InheritedVariables, McpTransport, NativeCall, Plan, Terminal, Trace,
};
use crate::config::Config;
use crate::exhausted::Exhausted;
use crate::mcp::Sessions;
use crate::models;
use crate::native;
use crate::projects;
use crate::services::{
    AttemptCtx, Dispatch, Ended, Order, Prepared, TraceMode, memory_exceeded, timed_out,
};
use rye_host::cache::{self, Cache};
use rye_host::task;

/// Maximum number of compiled schemas in the cache.
const MOST_SCHEMAS: usize = 1000;

/// Maximum number of pairs of a run and a tool whose warning is remembered. Beyond it a warning may be repeated.
const MOST_REPORTED: usize = 1000;

/// Implementation of [`Dispatch`] that starts processes, calls servers and other hosts, and runs native tools.
#[derive(Debug)]
pub struct Dispatcher {
    planner: Arc<Planner>,
    spawner: Spawner,
    servers: Sessions,
    /// Pairs of a run and a tool for which the warning about unused keys was given.
    reported: Cache<String, ()>,
}

impl Dispatcher {
    pub fn new(config: Arc<Config>, spawner: Spawner) -> Self {
        let planner = Planner {
            config,
            schemas: cache::of_count(MOST_SCHEMAS),
        };
        Self {
            planner: Arc::new(planner),
            servers: Sessions::default(),
            spawner,
            reported: cache::of_count(MOST_REPORTED),
        }
    }
}

impl Dispatch for Dispatcher {
    fn prepare(&self, orders: Vec<Order>) -> BoxFuture<'_, Vec<Prepared>> {
        Box::pin(async move {
            let Some(first) = orders.first() else {
                return Vec::new();
            };
            let (project, planner) = (Arc::clone(&first.project), Arc::clone(&self.planner));
            let lost: Vec<ItemRef> = orders.iter().map(|order| order.item.canonical()).collect();
            let place = Arc::clone(&project);
            let work = move |library: &Library| -> Result<Vec<Prepared>, projects::Error> {
                let mut prepared: Vec<Prepared> = Vec::with_capacity(orders.len());
                for order in orders {
                    let known = prepared.last().and_then(|last| last.chain.as_ref());
                    let next = planner.prepare(order, library, known);
                    prepared.push(next);
                }
                // A plan runs from copies of the files, and may run for hours.
                let chains = prepared.iter_mut().flat_map(|next| &mut next.chain);
                chains.for_each(Chain::drop_files);
                if prepared.iter().any(|next| next.plan.is_err()) {
                    // A file may be missing because the project is.
                    place.look_again()?;
                }
                Ok(prepared)
            };
            let visit = project.visit("prepare calls", work).await;
            visit.flatten().unwrap_or_else(|error| {
                let lost = lost.into_iter();
                lost.map(|item| without_project(item, &error)).collect()
            })
        })
    }

    fn carry_out<'a>(&'a self, prepared: Prepared, cx: &'a AttemptCtx) -> BoxFuture<'a, Ended> {
        let span = cx.span.clone();
        Box::pin(self.perform(prepared, cx).instrument(span))
    }

    fn check_limits(&self, requested: Resources) -> Result<(), String> {
        self.check_required(requested)
    }
}

/// Turns orders into plans.
#[derive(Debug)]
struct Planner {
    config: Arc<Config>,
    /// Compiled schemas by content hash of their tool. Compiling one costs more than a native call.
    schemas: Cache<String, Inputs>,
}

impl Planner {
    /// Prepares `order`. The calls of a foreach node use the same tool. So `known`, the chain of the previous call, is
    /// used again if it is of the same tool and no trace is requested.
    fn prepare(&self, mut order: Order, library: &Library, known: Option<&Chain>) -> Prepared {
        let since = Instant::now();
        let item = order.item.canonical();
        let mut trace = (order.trace == TraceMode::On).then(Trace::default);
        let untraced = order.trace == TraceMode::Off;
        let mut chain = None;
        let params = std::mem::take(&mut order.params);
        let known = known.filter(|known| untraced && known.tool().item == item);
        let resolve = || match known {
            Some(known) => Ok(known.clone()),
            None => chain::resolve(library, &item, trace.as_mut())
                .map_err(|error| Box::new(unplanned(&error))),
        };
        if let Task::Process(spec) = &order.origin.spec.task {
            return self.managed(&order, (item, spec, &params), library, since);
        }
        let found = self.look_up(&order, params, &item, library, resolve, &mut chain);
        let is_ready = found.is_ok();
        let resolved = since.elapsed();
        let plan = found.and_then(|found| match (found, &chain) {
            (Found::Thread(wanted), _) => Ok(Plan::Thread(wanted)),
            (Found::Native(call), _) => Ok(Plan::Native(call)),
            (Found::Call(params), Some(chain)) => {
                let steps = trace.as_mut().map(|trace| &mut trace.steps);
                self.plan(&order, chain, params, library, steps)
            }
            (Found::Call(_), None) => {
                Err(Failure::permanent("internal", "the action was not looked up").into())
            }
        });
        let trace = trace.map(|trace| {
            let Trace {
                mut steps,
                verifying,
            } = trace;
            steps.push(timing(resolved, verifying, since.elapsed()));
            steps
        });
        Prepared {
            item,
            plan,
            is_ready,
            chain,
            trace,
            since,
        }
    }

    /// Plans the call of `chain` with `params`. The secrets of providers are withheld from processes, servers and
    /// requests. The call is refused if these secrets cannot be determined.
    fn plan(
        &self,
        order: &Order,
        chain: &Chain,
        params: Object,
        library: &Library,
        trace: Option<&mut Vec<Value>>,
    ) -> Result<Plan, Box<Failure>> {
        let Order {
            origin, timeout, ..
        } = order;
        let offer = match chain.terminal {
            Terminal::Native(_) | Terminal::Graph | Terminal::Thread(_) => {
                InheritedVariables::default()
            }
            Terminal::Process | Terminal::Http | Terminal::Mcp(_) => {
                let project = Path::new(&origin.spec.project);
                let offer =
                    InheritedVariables::of(project, &self.config, || models::secrets(library));
                offer.map_err(|error| refused(&error))?
            }
        };
        let with_server;
        let chain = if chain.terminal == Terminal::Mcp(McpTransport::Any) {
            let asked = chain.clone().with_requested_server(&params, library);
            with_server = asked.map_err(|error| unplanned(&error))?;
            &with_server
        } else {
            chain
        };
        let plan = chain::plan(chain, params, origin, &self.config, offer, *timeout, trace);
        let mut plan = plan.map_err(|error| unplanned(&error))?;
        if let (Plan::Process(plan), Authority::Run) = (&mut plan, order.authority) {
            plan.callbacks = callbacks(chain.tool());
        }
        Ok(plan)
    }

    /// Returns the action to carry out, with the defaults of the tool in its parameters, if it is permitted. Sets
    /// `chain` as soon as it is verified. To start a thread by a tool, both the tool and the directive must be
    /// permitted.
    fn look_up(
        &self,
        order: &Order,
        params: Object,
        item: &ItemRef,
        library: &Library,
        resolve: impl FnOnce() -> Result<Chain, Box<Failure>>,
        chain: &mut Option<Chain>,
    ) -> Result<Found, Box<Failure>> {
        let may = |primary, item: &ItemRef| match order.authority {
            Authority::Run => permit(&order.origin.spec, primary, item),
            Authority::Node => Ok(()),
        };
        match order.primary {
            Primary::Execute => {}
            Primary::Fetch => {
                return Ok(Found::Native(primaries::fetch(order, item, params, may)?));
            }
            Primary::Sign => {
                return Ok(Found::Native(primaries::sign(order, item, params, may)?));
            }
        }
        let permitted = |item: &ItemRef| may(order.primary, item);
        if !native::is_free(item) {
            permitted(item)?;
        }
        if item.kind == ItemKind::Directive {
            // The admission of the thread checks the rest of the directive.
            check_directive(order.caller, library, item)?;
            let wanted = ThreadOrder::of_action(item.clone(), params)?;
            return Ok(Found::Thread(Box::new(wanted)));
        }
        let resolved = chain.insert(resolve()?);
        check_caller(order.caller, resolved.tool())?;
        if !matches!(resolved.terminal, Terminal::Native(_)) && native::is_free(item) {
            permitted(item)?; // It is a file of that name.
        }
        if resolved.terminal == Terminal::Graph {
            // A graph checks its inputs itself, because its parameters may include control parameters.
            return Ok(Found::Call(params));
        }
        let hash = &resolved.tool().content_hash;
        let inputs = self
            .schemas
            .get_or_insert_with(hash, || resolved.inputs().map(Arc::new));
        let inputs = inputs.map_err(|error| unplanned(&error))?;
        let params = resolved.fit(&inputs, params);
        let params = params.map_err(|error| unplanned(&error))?;
        if let Some(server) = resolved.requested_server(&params) {
            permitted(&server.map_err(|error| unplanned(&error))?)?;
        }
        let Terminal::Thread(tool) = resolved.terminal else {
            return Ok(Found::Call(params));
        };
        let wanted = ThreadOrder::of_tool(tool, params)?;
        permitted(&wanted.directive)?;
        check_directive(order.caller, library, &wanted.directive)?;
        Ok(Found::Thread(Box::new(wanted)))
    }
}

/// A permitted action.
enum Found {
    /// Call of the end of the chain with these parameters.
    Call(Object),
    /// Call of a native tool without a chain.
    Native(NativeCall),
    Thread(Box<ThreadOrder>),
}

impl Dispatcher {
    async fn perform(&self, prepared: Prepared, cx: &AttemptCtx) -> Ended {
        let Prepared { plan, chain, .. } = prepared;
        let masker = cx.services.providers.masker(&cx.spec.project);
        let mut work = Work::new(&cx.services.journal.memory());
        self.warn_of_ignored_keys(chain.as_ref(), cx);
        let is_native = matches!(&plan, Ok(Plan::Native(_)));
        let tells_of_runs = matches!(&plan, Ok(Plan::Native(call)) if call.tool.reports_runs());
        let (data, failure) = match self.act(plan, cx, &masker, &mut work).await {
            Ok(data) => {
                let failure = if tells_of_runs {
                    // Messages in the answer are those of the reported runs, so error patterns must not classify them.
                    reported_failure(&data).map(Failure::decided)
                } else {
                    declared_failure(&data)
                };
                (data, failure)
            }
            Err(refused) => (refused.data, Some(refused.failure)),
        };
        let failure = match failure {
            Some(failure) if is_native => {
                work.printed = work.printed.take().or_else(|| printed_of(&data));
                Some(with_code(failure, &data))
            }
            failure => failure,
        };
        let (data, failure) = without_secrets(data, failure, &masker);
        if let Some(child) = work.parked.take() {
            return Ended::Suspended(child);
        }
        if work.stopped {
            return Ended::Stopped(work.receipt);
        }
        let not_begun = work.certainty == Certainty::NeverStarted;
        let lack = failure.as_ref().and_then(Exhausted::of_failure);
        if let Some(lack) = lack.filter(|_| not_begun) {
            return Ended::Exhausted(lack);
        }
        if failure.is_some() && may_begin_again(not_begun, cx) && is_project_gone(cx).await {
            return Ended::Exhausted(Exhausted::Project);
        }
        let (data, failure) = work.bounded(data, failure);
        // Failures of native tools are fully described by their codes. Error patterns may classify the messages of
        // other tools.
        let failure = failure.map(|failure| {
            let failure = if is_native {
                failure.decided()
            } else {
                failure
            };
            Failure {
                printed: work.printed.take().map(Box::new),
                ..failure
            }
        });
        Ended::Outcome(Box::new(CallOutcome {
            failure,
            certainty: work.certainty,
            process: work.process,
            charge: work.charge.into(),
            ..CallOutcome::known(data)
        }))
    }

    /// Carries out `plan`, or returns the reason why there is none.
    async fn act(
        &self,
        plan: Result<Plan, Box<Failure>>,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        match plan {
            Ok(Plan::Native(call)) => native_call(call, cx, work).await,
            Ok(Plan::Process(plan)) => self.process(*plan, cx, masker, work).await,
            Ok(Plan::Managed(plan)) => self.managed(*plan, cx, masker, work).await,
            Ok(Plan::Server(plan)) => self.server(*plan, cx, masker, work).await,
            Ok(Plan::Kept(plan)) => managed::kept(&plan, cx, work).await,
            Ok(Plan::Http(plan)) => request::call(*plan, cx, work).await,
            Ok(Plan::Mcp(plan)) => mcp::call(&self.servers, *plan, cx, masker, work).await,
            Ok(Plan::Graph | Plan::Thread(_)) => {
                let text = "graphs and threads are carried out by runs of their own";
                Err(Failure::permanent("internal", text).into())
            }
            Err(refused) => {
                if is_refusal(&refused) {
                    let (told, by) = (&refused.message, &cx.spec.principal);
                    cx.warn(format!("{told}; asked for by {by}"));
                }
                Err((*refused).into())
            }
        }
    }

    /// Warns the run, once for each tool, of keys that only the original uses to decide how to start a tool.
    fn warn_of_ignored_keys(&self, chain: Option<&Chain>, cx: &AttemptCtx) {
        for element in chain.iter().flat_map(|chain| chain.elements()) {
            let ignored = &element.metadata.ignored;
            if ignored.is_empty() {
                continue;
            }
            let key = format!("{} {}", cx.run, element.content_hash);
            if self.reported.get(&key).is_some() {
                continue;
            }
            self.reported.insert(key, Arc::default());
            let keys: Vec<_> = ignored.iter().map(|key| format!("`{key}`")).collect();
            let (item, keys) = (&element.item, keys.join(", "));
            cx.warn(format!("{item} sets {keys}, which nothing depends on here"));
        }
    }
}

/// Gives `failure` the code that a native tool reports in `data`.
fn with_code(failure: Failure, data: &Value) -> Failure {
    match data.get("code").and_then(Value::as_str) {
        Some(code) => Failure {
            code: code.into(),
            ..failure
        },
        None => failure,
    }
}

/// The last lines of a process that a native tool reports in `data`.
fn printed_of(data: &Value) -> Option<Printed> {
    let lines = data.get("tail")?.as_array()?;
    let text = |stream: &str| {
        let of_stream = lines.iter().filter(|line| line["stream"] == stream);
        let texts = of_stream.filter_map(|line| line["text"].as_str());
        texts.fold(String::new(), |all, text| all + text + "\n")
    };
    let (stdout, stderr) = (text("stdout"), text("stderr"));
    Some(Printed::new(stdout.as_bytes(), stderr.as_bytes()))
}

async fn native_call(
    call: NativeCall,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let runs = cx.services.runs();
    let note = |event| cx.note(event);
    let session = native::Session {
        run: &cx.run,
        attempt: (cx.step, cx.slot),
        spec: &cx.spec,
        runs: &*runs,
        process_logs: &cx.services.process_logs,
        live_processes: &cx.services.live_processes,
        projects: &cx.services.projects,
        clock: &*cx.services.clock,
        note: &note,
    };
    work.certainty = Certainty::Unknown;
    let called = tokio::select! {
        called = native::call(call.tool, call.params, &session) => called,
        () = task::sleep(call.timeout) => {
            let mut failure = timed_out(call.timeout.unwrap_or_default());
            failure.message.push_str(" (more with `timeout` of the node)");
            return Err(failure.into());
        }
        () = cx.stop.due() => {
            work.stopped = true;
            return Err(Failure::permanent("stopped", "stopped on request").into());
        }
    };
    let called: Result<Value, Failure> = called;
    let lacks = called.as_ref().err().and_then(Exhausted::of_failure);
    work.certainty = match lacks {
        Some(_) => Certainty::NeverStarted,
        None => Certainty::Known,
    };
    called.map_err(Into::into)
}

/// Last entry of a trace: microseconds of lookup, of verification within it, and of planning. The time of the call
/// itself is added when it has ended.
fn timing(resolved: Duration, verifying: Duration, planned: Duration) -> Value {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let plan = planned.saturating_sub(resolved);
    json!({
        "step": "timing",
        "resolve_us": micros(resolved),
        "verify_us": micros(verifying),
        "plan_us": micros(plan),
    })
}

/// Facts collected while an action is carried out.
struct Work {
    stopped: bool,
    /// Suspended run for which the program was ended.
    parked: Option<RunId>,
    receipt: KillReceipt,
    certainty: Certainty,
    /// End of the process, if there was one.
    printed: Option<Printed>,
    /// The same, with its use of resources.
    process: Option<Box<ProcessEnd>>,
    /// Memory charged for the result and for the data it is made of.
    charge: Charge,
}

impl Work {
    fn new(memory: &Arc<Memory>) -> Self {
        Self {
            stopped: false,
            parked: None,
            receipt: KillReceipt::default(),
            certainty: Certainty::NeverStarted,
            printed: None,
            process: None,
            charge: memory.open(),
        }
    }

    /// Returns `data` and `failure`. A result over the size limit, or over the memory limit of all runs, becomes a
    /// failure. From here on only the result itself is charged.
    fn bounded(&mut self, data: Value, failure: Option<Failure>) -> (Value, Option<Failure>) {
        let full = match bounds::check(&data) {
            Ok(bytes) if self.charge.resize(bytes) => return (data, failure),
            Ok(_) => memory_exceeded(self.charge.memory()),
            Err(excess) => {
                let text = format!("the result is {excess}; let the tool write it to a file");
                Failure::permanent("result_refused", text)
            }
        };
        drop(data);
        self.charge.shrink(usize::MAX);
        (Value::Null, Some(failure.unwrap_or(full)))
    }

    /// Keeps the end of a process. A JSON document on stdout is the result, so it is removed from the output.
    fn note_printed(
        &mut self,
        answer: chain::OutputForm,
        mut printed: Printed,
        judged: &Result<Value, Box<Unsuccessful>>,
    ) {
        let data = match judged {
            Ok(data) => data,
            Err(failed) => &failed.data,
        };
        if answer != chain::OutputForm::Shell && !data.is_null() && !is_text(data) {
            printed.stdout_tail.clear();
        }
        self.printed = Some(printed);
    }
}

/// A failed action, with the data it returned nevertheless.
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
