//! The one door to effects.
//!
//! **Owns** the order of every action: alias → capability → chain → parameters → plan → native tool or process → envelope.
//! **Never** lets an action pass that a layer of the run does not allow, and never commits: what came of the action is
//! returned as data, and a denial is a warning of the run as well. **Order.** Everything up to the plan is done before the call is
//! announced, away from the runtime's workers and through the gate of the project; what is left is what each start
//! needs anew.
//! **Failure.** Everything that goes wrong with the action itself, a refused item included, is a failed [`CallOutcome`]; there is no
//! error type.

mod failures;
mod live;
mod mcp;
mod outcome;
mod primaries;
mod request;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rye_core::bounds;
use rye_core::capability::{self, Primary};
use rye_core::definition::{Authority, Inputs};
use rye_core::id::{ItemKind, ItemRef};
use rye_core::machine::{CallOutcome, Certainty};
use rye_core::memory::{Charge, Memory};
use rye_core::model::{Failure, KillReceipt, Object, Printed, Spec};
use rye_core::thread::ThreadOrder;
use rye_item::Library;
use serde_json::{Value, json};
use tracing::Instrument as _;

use self::failures::{refused, unplanned, unstarted, without_project};
use self::live::Live;
use self::outcome::{declared_failure, is_text, judge, printed, reported_failure};
use crate::chain::{self, Chain, NativeCall, Offer, Plan, ProcessPlan, Terminal, Trace, Way};
use crate::config::Config;
use crate::exhausted::Exhausted;
use crate::mcp::Sessions;
use crate::memo::Memo;
use crate::models;
use crate::native;
use crate::process::{Exit, Spawner, StopReason, Stopper};
use crate::services::{
    AttemptCtx, Dispatch, Ended, Order, Prepared, TraceMode, memory_exceeded, timed_out,
};
use crate::stop::Stop;
use rye_host::task;

/// Compiled schemas that are kept; more tools than this in use at once are compiled again.
const MOST_SCHEMAS: usize = 1000;

/// Tools of runs whose warnings are remembered; beyond it a warning may come a second time.
const MOST_TOLD: usize = 1000;
/// How long a run that is to stop waits until what its tools printed is written.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// The code of an action that a layer of the run does not allow.
const DENIED: &str = "permission_denied";

/// Carries out actions.
#[derive(Debug)]
pub struct Dispatcher {
    planner: Arc<Planner>,
    spawner: Spawner,
    servers: Sessions,
    /// Runs, each with a tool, that were told of keys of it that nothing depends on.
    told: Memo<()>,
}

impl Dispatcher {
    /// A dispatcher that starts its processes through `spawner`.
    pub fn new(config: Arc<Config>, spawner: Spawner) -> Self {
        let planner = Planner {
            config,
            schemas: Memo::new(MOST_SCHEMAS),
        };
        Self {
            planner: Arc::new(planner),
            servers: Sessions::new(spawner.clone()),
            spawner,
            told: Memo::new(MOST_TOLD),
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
            let work = move |library: &Library| -> Vec<Prepared> {
                let mut prepared: Vec<Prepared> = Vec::with_capacity(orders.len());
                for order in orders {
                    let known = prepared.last().and_then(|last| last.chain.as_ref());
                    let next = planner.prepare(order, library, known);
                    prepared.push(next);
                }
                // What is planned runs from copies, and may run for hours.
                let chains = prepared.iter_mut().flat_map(|next| &mut next.chain);
                chains.for_each(Chain::let_go_of_files);
                prepared
            };
            let visit = project.visit("prepare calls", work).await;
            visit.unwrap_or_else(|error| {
                let lost = lost.into_iter();
                lost.map(|item| without_project(item, &error)).collect()
            })
        })
    }

    fn carry_out<'a>(&'a self, prepared: Prepared, cx: &'a AttemptCtx) -> BoxFuture<'a, Ended> {
        let span = cx.span.clone();
        Box::pin(self.perform(prepared, cx).instrument(span))
    }
}

/// Makes plans of orders.
#[derive(Debug)]
struct Planner {
    config: Arc<Config>,
    /// Compiled schemas by content hash of their tool: compiling costs more than a native call.
    schemas: Memo<Inputs>,
}

impl Planner {
    /// Prepares `order`. The calls of a wide node call one tool, so `known`, the chain of the call prepared before it, is used again for the
    /// same tool.
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
        let found = self.look_up(&order, params, &item, resolve, &mut chain);
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

    /// What `chain` does with `params`. A process does not get to see the secrets of providers; if it is not known which these are, it
    /// is refused.
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
            Terminal::Native(_) | Terminal::Graph | Terminal::Thread(_) => Offer::default(),
            Terminal::Process | Terminal::Http | Terminal::Mcp(_) => {
                let project = Path::new(&origin.spec.project);
                let offer = Offer::of(project, &self.config, || models::secrets(library));
                offer.map_err(|error| refused(&error))?
            }
        };
        let with_server;
        let chain = if chain.terminal == Terminal::Mcp(Way::Any) {
            let asked = chain.clone().with_asked_server(&params, library);
            with_server = asked.map_err(|error| unplanned(&error))?;
            &with_server
        } else {
            chain
        };
        let plan = chain::plan(chain, params, origin, &self.config, offer, *timeout, trace);
        Ok(plan.map_err(|error| unplanned(&error))?)
    }

    /// The parameters, with the defaults of the tool, if the action may be carried out; the chain is put where it belongs as
    /// soon as it is verified. Who starts a thread by a tool may use both, the tool and the directive.
    fn look_up(
        &self,
        order: &Order,
        params: Object,
        item: &ItemRef,
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
            // The directive itself is looked at where its thread is admitted.
            let wanted = ThreadOrder::of_action(item.clone(), params)?;
            return Ok(Found::Thread(Box::new(wanted)));
        }
        let resolved = chain.insert(resolve()?);
        if !matches!(resolved.terminal, Terminal::Native(_)) && native::is_free(item) {
            permitted(item)?; // It is a file of that name.
        }
        if resolved.terminal == Terminal::Graph {
            // A graph checks its inputs itself, and takes control parameters beside them.
            return Ok(Found::Call(params));
        }
        let hash = &resolved.tool().content_hash;
        let inputs = self.schemas.get_or_make(hash, 1, || resolved.inputs());
        let inputs = inputs.map_err(|error| unplanned(&error))?;
        let params = resolved.fit(&inputs, params);
        let params = params.map_err(|error| unplanned(&error))?;
        if let Some(server) = resolved.asked_server(&params) {
            permitted(&server.map_err(|error| unplanned(&error))?)?;
        }
        let Terminal::Thread(tool) = resolved.terminal else {
            return Ok(Found::Call(params));
        };
        let wanted = ThreadOrder::of_tool(tool, params)?;
        permitted(&wanted.directive)?;
        Ok(Found::Thread(Box::new(wanted)))
    }
}

/// What is to be done, if it may be done.
enum Found {
    /// What stands at the end of the chain, with these parameters.
    Call(Object),
    /// This, which is no item that runs.
    Native(NativeCall),
    /// A thread begins.
    Thread(Box<ThreadOrder>),
}

impl Dispatcher {
    async fn perform(&self, prepared: Prepared, cx: &AttemptCtx) -> Ended {
        let Prepared { plan, chain, .. } = prepared;
        let mut work = Work::new(&cx.services.journal.memory());
        self.tell_ignored(chain.as_ref(), cx);
        let is_native = matches!(&plan, Ok(Plan::Native(_)));
        let tells_of_runs = matches!(&plan, Ok(Plan::Native(call)) if call.tool.tells_of_runs());
        let (data, failure) = match self.act(plan, cx, &mut work).await {
            Ok(data) => {
                let failure = if tells_of_runs {
                    // The words are those of the runs it tells about.
                    reported_failure(&data).map(Failure::decided)
                } else {
                    declared_failure(&data)
                };
                (data, failure)
            }
            Err(refused) => (refused.data, Some(refused.failure)),
        };
        if work.stopped {
            return Ended::Stopped(work.receipt);
        }
        let not_begun = work.certainty == Certainty::NeverStarted;
        let lack = failure.as_ref().and_then(Exhausted::of_failure);
        if let Some(lack) = lack.filter(|_| not_begun) {
            return Ended::Exhausted(lack);
        }
        let (data, failure) = work.bounded(data, failure);
        // What a tool of ours answers is known; the words of others are theirs.
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
            charge: work.charge.into(),
            ..CallOutcome::known(data)
        }))
    }

    /// Does what is planned, if that may be done.
    async fn act(
        &self,
        plan: Result<Plan, Box<Failure>>,
        cx: &AttemptCtx,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        match plan {
            Ok(Plan::Native(call)) => native_call(call, cx, work).await,
            Ok(Plan::Process(plan)) => self.process(*plan, cx, work).await,
            Ok(Plan::Http(plan)) => request::call(*plan, cx, work).await,
            Ok(Plan::Mcp(plan)) => mcp::call(&self.servers, *plan, cx, work).await,
            Ok(Plan::Graph | Plan::Thread(_)) => {
                let text = "graphs and threads are carried out by runs of their own";
                Err(Failure::permanent("internal", text).into())
            }
            Err(refused) => {
                if refused.code == DENIED {
                    let (told, by) = (&refused.message, &cx.spec.principal);
                    cx.warn(format!("{told}; asked for by {by}"));
                }
                Err((*refused).into())
            }
        }
    }

    /// Warns the run once of keys by which the original decided how to start a tool.
    fn tell_ignored(&self, chain: Option<&Chain>, cx: &AttemptCtx) {
        for element in chain.iter().flat_map(|chain| chain.elements()) {
            let ignored = &element.metadata.ignored;
            if ignored.is_empty() {
                continue;
            }
            let key = format!("{} {}", cx.run, element.content_hash);
            if self.told.get(&key).is_some() {
                continue;
            }
            let _told = self.told.get_or_make(&key, 1, || Ok::<_, Infallible>(()));
            let keys: Vec<_> = ignored.iter().map(|key| format!("`{key}`")).collect();
            let (item, keys) = (&element.item, keys.join(", "));
            cx.warn(format!("{item} sets {keys}, which nothing depends on here"));
        }
    }

    async fn process(
        &self,
        plan: ProcessPlan,
        cx: &AttemptCtx,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        let seconds = plan.process.timeout.as_secs_f64();
        let limit = format!("{seconds} s (more with {})", plan.time_set_by);
        let program = plan.process.program.clone();
        let running = self
            .spawner
            .start(plan.process, &plan.tag)
            .await
            .map_err(|error| unstarted(&error))?;
        work.certainty = Certainty::Unknown;
        cx.note_process(running.identity().clone());
        let memory = cx.services.journal.memory();
        let stopper = Stopper::new();
        let live = Live::new(&cx.voice, plan.answer);
        let running = running.telling(live.tap()).within(Arc::clone(&memory));
        let exited = tokio::select! {
            exited = running.finish(stopper.listen()) => exited,
            never = forward_stop(&cx.stop, &stopper) => match never {},
            never = cx.voice.write() => match never {},
        };
        let kept = exited
            .as_ref()
            .map_or(&[][..], |exited| exited.stdout.bytes.as_slice());
        tokio::select! {
            () = live.close(kept) => {}
            () = out_of_patience(&cx.stop) => {}
        }
        let mut exited = exited.map_err(|error| refused(&error))?;
        let captured = std::mem::replace(&mut exited.charge, memory.open());
        work.charge.join(captured);
        work.stopped = matches!(
            exited.ended_by,
            Some(StopReason::Cancel | StopReason::Kill { .. })
        );
        work.receipt.merge(exited.receipt.clone());
        let printed = printed(&exited);
        if let (None, Exit::Code(_)) = (exited.ended_by, exited.exit) {
            work.certainty = Certainty::Known;
        }
        let starved = exited.stdout.is_starved || exited.stderr.is_starved;
        let judged = if starved {
            Err(memory_exceeded(&memory).into())
        } else {
            judge(plan.answer, &program, exited, &limit, &mut work.charge)
        };
        work.note_printed(plan.answer, printed, &judged);
        judged
    }
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

/// How long looking an item up, verifying it within that, and planning its call took, as the last entry of a trace; how long the call
/// itself takes is put in when it has ended.
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

/// Resolves when a run that is to stop has waited long enough for the files of its project.
async fn out_of_patience(stop: &Stop) {
    stop.due().await;
    task::sleep(Some(LOG_PATIENCE)).await;
}

/// Carries the run's stop signal to the process of its call, as it grows more urgent.
async fn forward_stop(stop: &Stop, stopper: &Stopper) -> Infallible {
    stop.due().await;
    let mut signal = stop.changes();
    loop {
        stopper.stop(match stop.grace() {
            Some(grace) => StopReason::Kill { grace },
            None => StopReason::Cancel,
        });
        signal.changed().await;
    }
}

/// What is gathered while an action is carried out.
struct Work {
    stopped: bool,
    receipt: KillReceipt,
    certainty: Certainty,
    /// How its process ended, if it had one.
    printed: Option<Printed>,
    /// What is charged for its result, and for what that is made of.
    charge: Charge,
}

impl Work {
    fn new(memory: &Arc<Memory>) -> Self {
        Self {
            stopped: false,
            receipt: KillReceipt::default(),
            certainty: Certainty::NeverStarted,
            printed: None,
            charge: memory.open(),
        }
    }

    /// `data` and `failure`; a result that is too large, or for which there is no room among what all runs hold, is a failure. Only the
    /// result itself is charged from here on.
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

    /// Keeps how a process ended. A document on its stdout is what it came to, and no line of output.
    fn note_printed(
        &mut self,
        answer: chain::Answer,
        mut printed: Printed,
        judged: &Result<Value, Box<Unsuccessful>>,
    ) {
        let data = match judged {
            Ok(data) => data,
            Err(failed) => &failed.data,
        };
        if answer == chain::Answer::Json && !data.is_null() && !is_text(data) {
            printed.stdout_tail.clear();
        }
        self.printed = Some(printed);
    }
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
    let permitted = capability::permit(&spec.layers, primary, item);
    permitted.map_err(|denied| Failure::permanent(DENIED, denied.to_string()))
}
