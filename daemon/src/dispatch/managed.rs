//! One attempt of a managed process: its start, its output, the sign by which it is ready, and its end.
//!
//! **Failure**: an attempt ends well only with the exit code 0. If something listens on the port that the process is to
//! open, the attempt does not start.

mod survivor;

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rye_core::capability::Primary;
use rye_core::id::ItemRef;
use rye_core::machine::Certainty;
use rye_core::model::{EndCause, Failure, Printed, ProcessEnd, ProcessSpec, Readiness};
use rye_core::process::LinePattern;
use rye_item::Library;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::failures::{refused, unstarted};
use super::outcome::process_end;
use super::{Dispatcher, Planner, Unsuccessful, Work, permit};
use crate::chain::{self, InheritedVariables, ManagedPlan, Plan};
use crate::models;
use crate::process_log::{LineObserver, ProcessLog};
use crate::services::{AttemptCtx, Order, Prepared};
use crate::stop::Urgency;
use rye_process::masking::Masker;
use rye_process::{Exited, Source, StopReason, Stopper, Tap};

/// Time after its start at which a process without another sign is ready.
const ALIVE: Duration = Duration::from_millis(200);
/// Pause between two attempts to connect.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Time limit of an attempt to connect.
const PROBE_TIME: Duration = Duration::from_secs(2);
/// Number of lines whose match takes too many steps after which a pattern is given up.
const MOST_UNDECIDED: usize = 3;

impl Planner {
    /// Prepares an attempt of the managed process `spec`, which needs the permission for `item`. The secrets of providers
    /// are withheld from it.
    pub(super) fn managed(
        &self,
        order: &Order,
        (item, spec): (ItemRef, &ProcessSpec),
        library: &Library,
        since: Instant,
    ) -> Prepared {
        let origin = &order.origin;
        let plan = || -> Result<Plan, Box<Failure>> {
            permit(&origin.spec, Primary::Execute, &item)?;
            let project = Path::new(&origin.spec.project);
            let offer = InheritedVariables::of(project, &self.config, || models::secrets(library));
            let offer = offer.map_err(|error| refused(&error))?;
            let plan = chain::managed(spec, origin, offer);
            let plan = plan.map_err(|problem| Failure::permanent("invalid_params", problem))?;
            Ok(Plan::Managed(Box::new(plan)))
        };
        let plan = plan();
        Prepared {
            is_ready: plan.is_ok(),
            item,
            plan,
            chain: None,
            trace: None,
            since,
        }
    }
}

impl Dispatcher {
    pub(super) async fn managed(
        &self,
        plan: ManagedPlan,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        if let Readiness::Port(port) = plan.ready
            && takes_connections(port).await
        {
            let text = format!(
                "something listens on port {port} already, so `{}` was not started: stop it, or give the process another port",
                plan.name
            );
            return Err(Failure::permanent("port_in_use", text).decided().into());
        }
        if cx.spec.process().is_some_and(|spec| spec.survive) {
            return survivor::start(&self.spawner, plan, cx, masker, work).await;
        }
        let log = cx.services.process_logs.of(&cx.run);
        let (signs, observer) = signs(&plan.ready, cx);
        let running = self
            .spawner
            .start(plan.process, &plan.tag)
            .await
            .map_err(|error| unstarted(&error))?;
        work.certainty = Certainty::Unknown;
        let pid = running.identity().pid;
        cx.note_process(running.identity().clone());
        log.begin(cx.step, observer).await;
        let (kept, output) = (Arc::clone(&log), Arc::clone(&cx.output));
        let running = running
            .with_tap(Tap::new(move |source, piece, _| {
                kept.receive(source, piece);
                output.receive(source, piece);
            }))
            .with_masker(Arc::clone(masker));
        let stopper = Stopper::new();
        let exited = tokio::select! {
            exited = running.finish(stopper.listen()) => exited,
            // A process that is to stop gets no time to end by itself first.
            never = cx.stop.forward(cx.stop.at_least(Urgency::Cancel), &stopper) => match never {},
            never = log.write() => match never {},
            never = cx.output.write() => match never {},
            never = report_ready(&plan.ready, &signs, cx) => match never {},
        };
        log.close().await;
        cx.output.close().await;
        let exited = exited.map_err(|error| refused(&error))?;
        conclude(&plan.name, pid, exited, &log, cx, work)
    }
}

/// Follows an attempt that an earlier daemon started, and that a shim keeps.
pub(super) async fn kept(cx: &AttemptCtx, work: &mut Work) -> Result<Value, Box<Unsuccessful>> {
    survivor::follow_again(cx, work).await
}

/// Records the end of the process `pid` of an attempt, and returns its result.
fn conclude(
    name: &str,
    pid: i32,
    exited: Exited,
    log: &ProcessLog,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let end = process_end(pid, &exited, cx.stop.urgency());
    cx.note_process_end(end.clone());
    work.stopped = matches!(
        exited.ended_by,
        Some(StopReason::Cancel | StopReason::Kill { .. })
    );
    work.receipt.merge(exited.receipt);
    work.certainty = Certainty::Known;
    let failure = failure(name, &end);
    work.process = Some(Box::new(end));
    match failure {
        None => Ok(Value::Null),
        Some(failure) => {
            work.printed = Some(printed(log, work.process.as_deref()));
            Err(failure.into())
        }
    }
}

/// Failure of an attempt that ended by itself otherwise than with the exit code 0.
fn failure(name: &str, end: &ProcessEnd) -> Option<Failure> {
    let text = match (end.cause, end.exit_code, end.signal) {
        (EndCause::Exited, Some(0), _) => return None,
        (EndCause::Exited, Some(code), _) => format!("`{name}` exited with code {code}"),
        (EndCause::Signal, _, Some(signal)) => format!("`{name}` was ended by signal {signal}"),
        (cause, ..) => format!("`{name}` has ended: {}", cause.as_str()),
    };
    Some(Failure::permanent("process_exited", text).decided())
}

fn printed(log: &ProcessLog, end: Option<&ProcessEnd>) -> Printed {
    let [stdout, stderr] = [Source::Stdout, Source::Stderr].map(|source| log.recent(source));
    Printed {
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal),
        ..Printed::new(stdout.as_bytes(), stderr.as_bytes())
    }
}

/// Signs in the output of an attempt.
#[derive(Debug, Default)]
struct Signs {
    has_matched: AtomicBool,
    is_given_up: AtomicBool,
    changed: Notify,
}

/// Returns the signs of an attempt, and the observer of its lines that detects them.
fn signs(ready: &Readiness, cx: &AttemptCtx) -> (Arc<Signs>, Option<LineObserver>) {
    let signs = Arc::new(Signs::default());
    let Readiness::Pattern(text) = ready else {
        return (signs, None);
    };
    let pattern = match LinePattern::parse(text) {
        Ok(pattern) => pattern,
        Err(problem) => {
            cx.warn(format!("`ready_pattern` {problem}"));
            return (signs, None);
        }
    };
    let (noted, mut undecided) = (Arc::clone(&signs), 0);
    let observer: LineObserver = Box::new(move |line| {
        if noted.has_matched.load(Ordering::Relaxed) || undecided >= MOST_UNDECIDED {
            return;
        }
        match pattern.matches(line) {
            Some(true) => noted.has_matched.store(true, Ordering::Relaxed),
            Some(false) => return,
            None => {
                undecided += 1;
                if undecided < MOST_UNDECIDED {
                    return;
                }
                noted.is_given_up.store(true, Ordering::Relaxed);
            }
        }
        noted.changed.notify_one();
    });
    (signs, Some(observer))
}

/// Reports the attempt when it is ready.
async fn report_ready(ready: &Readiness, signs: &Signs, cx: &AttemptCtx) -> Infallible {
    match ready {
        Readiness::Alive => sleep(ALIVE).await,
        Readiness::Port(port) => {
            while !takes_connections(*port).await {
                sleep(PROBE_PAUSE).await;
            }
        }
        Readiness::Pattern(pattern) => {
            while !signs.has_matched.load(Ordering::Relaxed) {
                signs.changed.notified().await;
                if signs.is_given_up.load(Ordering::Relaxed) {
                    cx.warn(format!(
                        "`ready_pattern`: matching {pattern:?} takes too many steps, so the process does not count as ready; \
                         simplify it"
                    ));
                    return std::future::pending().await;
                }
            }
        }
    }
    cx.ready.notify_one();
    std::future::pending().await
}

/// True if something on this host takes connections at `port`.
async fn takes_connections(port: u16) -> bool {
    let addresses = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    for address in addresses {
        if let Ok(Ok(_)) = timeout(PROBE_TIME, TcpStream::connect(address)).await {
            return true;
        }
    }
    false
}
