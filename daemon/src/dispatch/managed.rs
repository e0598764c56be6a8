//! One attempt of a managed process: its start, its output, the sign by which it is ready, and its end.
//!
//! An MCP server is an attempt, too: its session has its standard input and output.
//!
//! **Failure**: an attempt ends well only with the exit code 0, or if it is a server that its session does not need any
//! more. If something listens on the port that the process is to
//! open, the attempt does not start.

mod survivor;

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rye_core::capability::Primary;
use rye_core::error::with_sources;
use rye_core::id::ItemRef;
use rye_core::machine::Certainty;
use rye_core::model::event::ProcessUnready;
use rye_core::model::{EndCause, Failure, Object, Printed, ProcessEnd, ProcessSpec};
use rye_core::process::AttemptPorts;
use rye_item::Library;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failures::{ISOLATION_UNAVAILABLE, refused, unstarted};
use super::outcome::process_end;
use super::{Dispatcher, Planner, Unsuccessful, Work, permit};
use crate::chain::{
    self, InheritedVariables, KeptPlan, ManagedError, ManagedPlan, Plan, ServerPlan,
};
use crate::mcp::{ServerLink, ServerProcess, SessionEnd};
use crate::models;
use crate::probes::{Probes, Report, Verdict, signs};
use crate::process_log::ProcessLog;
use crate::services::{AttemptCtx, Order, Prepared};
use crate::stop::{Stop, Urgency};
use rye_process::masking::Masker;
use rye_process::{Exited, Running, Source, StopReason, Stopper, Tap};

/// Time limit of an attempt to connect.
const PROBE_TIME: Duration = Duration::from_secs(2);

impl Planner {
    /// Prepares an attempt of the managed process `spec`, which needs the permission for `item`. The secrets of providers
    /// are withheld from it.
    pub(super) fn managed(
        &self,
        order: &Order,
        (item, spec, params): (ItemRef, &ProcessSpec, &Object),
        library: &Library,
        since: Instant,
    ) -> Prepared {
        let origin = &order.origin;
        let plan = || -> Result<Plan, Box<Failure>> {
            if let Some(mcp) = &spec.mcp {
                return Ok(Plan::Server(Box::new(chain::mcp_server(spec, mcp, origin))));
            }
            permit(&origin.spec, Primary::Execute, &item)?;
            let project = Path::new(&origin.spec.project);
            let offer = InheritedVariables::of(project, &self.config, || models::secrets(library));
            let offer = offer.map_err(|error| refused(&error))?;
            let plan = chain::managed(spec, AttemptPorts::of(params), origin, &self.config, offer);
            let plan = plan.map_err(|error| {
                let code = match error {
                    ManagedError::Params(_) => "invalid_params",
                    ManagedError::Isolation(_) => ISOLATION_UNAVAILABLE,
                };
                Failure::permanent(code, error.to_string()).decided()
            })?;
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
        mut plan: ManagedPlan,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        for port in &plan.fixed_ports {
            if takes_connections(*port).await {
                let text = format!(
                    "something listens on port {port} already, so `{}` was not started: stop it, or give the process another port",
                    plan.name
                );
                return Err(Failure::permanent("port_in_use", text).decided().into());
            }
        }
        self.limit(&mut plan.process, cx)?;
        if cx.spec.process().is_some_and(|spec| spec.survive) {
            return survivor::start(&self.spawner, plan, cx, masker, work).await;
        }
        self.attempt(plan, None, cx, masker, work).await
    }

    /// Runs the process of an MCP server for the session that requested it.
    pub(super) async fn server(
        &self,
        plan: ServerPlan,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        let Some(server) = self.servers.take_process(&plan.session) else {
            let text =
                "its session is over; the next call of a tool of the server starts another one";
            return Err(Failure::permanent("interrupted", text).decided().into());
        };
        let mut plan = ManagedPlan {
            process: server.plan.clone(),
            tag: plan.tag,
            name: plan.name,
            fixed_ports: Vec::new(),
            probes: plan.probes,
        };
        if let Err(failure) = self.limit(&mut plan.process, cx) {
            drop(server.started(Err(failure.message.clone())));
            return Err(failure.into());
        }
        self.attempt(plan, Some(server), cx, masker, work).await
    }

    /// Runs an attempt of a process that ends with the daemon. `server` is set if it is an MCP server.
    async fn attempt(
        &self,
        plan: ManagedPlan,
        server: Option<ServerProcess>,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        let log = cx.services.process_logs.of(&cx.run);
        let isolation = plan.process.confinement.level();
        let resources = plan.process.resources;
        let report = reporter(cx);
        let (signs, observer) = signs(&plan.probes.ready, &report);
        let running = self.spawner.start(plan.process, &plan.tag).await;
        // The program was executed, or never is.
        cx.services.ports.release(&cx.run);
        let (running, link) = connect(running, server)?;
        work.certainty = Certainty::Unknown;
        let pid = running.identity().pid;
        cx.note_process(running.identity().clone(), isolation, resources);
        log.begin(cx.step, observer).await;
        let running = running
            .with_tap(tap(&log, link.as_ref(), cx))
            .with_masker(Arc::clone(masker));
        let members = running.members();
        let live = &cx.services.live_processes;
        let live = live.enter(&cx.run, cx.attempt, members.clone());
        let probes = Probes {
            plan: &plan.probes,
            signs: &signs,
            members,
            live: &live,
            providers: &cx.services.providers,
            report: &report,
        };
        let verdict = OnceLock::new();
        let stopper = Stopper::new();
        let due = async {
            due(link.as_ref(), &cx.stop).await;
            live.switch().close();
        };
        let exited = tokio::select! {
            exited = running.finish(stopper.listen()) => exited,
            never = cx.stop.forward(due, &stopper) => match never {},
            never = log.write() => match never {},
            never = cx.output.write() => match never {},
            never = stop_by(&probes, &verdict, &stopper) => match never {},
        };
        drop(live);
        log.close().await;
        cx.output.close().await;
        let exited = exited.map_err(|error| refused(&error))?;
        let session = link.as_ref().and_then(ServerLink::end);
        if let Some(link) = link {
            link.ended(&exited).await;
        }
        let end = End {
            pid,
            exited,
            verdict: verdict.get(),
            session,
        };
        conclude(&plan.name, end, &log, cx, work)
    }
}

/// Gives the pipes of a server to its session, or the reason why there are none.
fn connect(
    started: Result<Running, rye_process::Error>,
    server: Option<ServerProcess>,
) -> Result<(Running, Option<ServerLink>), Failure> {
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            let failure = unstarted(&error);
            drop(server.map(|server| server.started(Err(failure.message.clone()))));
            return Err(failure);
        }
    };
    let link = server.map(|server| {
        let pipes = running.take_pipes();
        server.started(pipes.map_err(|error| with_sources(&error)))
    });
    Ok((running, link))
}

/// Returns the observer of the output of an attempt.
fn tap(log: &Arc<ProcessLog>, link: Option<&ServerLink>, cx: &AttemptCtx) -> Tap {
    let (log, output) = (Arc::clone(log), Arc::clone(&cx.output));
    let quoted = link.map(ServerLink::stderr);
    Tap::new(move |source, piece, _| {
        log.receive(source, piece);
        output.receive(source, piece);
        if let (Some(quoted), Source::Stderr) = (&quoted, source) {
            quoted(piece);
        }
    })
}

/// Resolves when the attempt must get a signal. A process that is to stop gets no time to end by itself first; a server
/// has the time to see the end of its input.
async fn due(link: Option<&ServerLink>, stop: &Stop) {
    let Some(link) = link else {
        return stop.at_least(Urgency::Cancel).await;
    };
    tokio::select! {
        () = link.over(stop.at_least(Urgency::Cancel)) => {}
        () = stop.at_least(Urgency::Shutdown) => {}
    }
}

/// Follows an attempt that an earlier daemon started, and that a shim keeps.
pub(super) async fn kept(
    plan: &KeptPlan,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    survivor::follow_again(plan, cx, work).await
}

/// The end of an attempt.
struct End<'a> {
    pid: i32,
    exited: Exited,
    /// The reason for which it was to be stopped without a request.
    verdict: Option<&'a Verdict>,
    /// Set if it is an MCP server whose session is over.
    session: Option<SessionEnd>,
}

/// Records the end of an attempt, and returns its result.
fn conclude(
    name: &str,
    End {
        pid,
        exited,
        verdict,
        session,
    }: End<'_>,
    log: &ProcessLog,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let mut end = process_end(pid, &exited, cx.stop.urgency());
    let was_stopped = matches!(
        exited.ended_by,
        Some(StopReason::Cancel | StopReason::Kill { .. })
    );
    let is_requested = cx.stop.urgency() != Urgency::None;
    let verdict = verdict.filter(|_| was_stopped && !is_requested);
    if let Some(verdict) = verdict {
        end.cause = verdict.cause();
    }
    cx.note_process_end(end.clone());
    work.stopped = match &session {
        Some(_) => is_requested,
        None => was_stopped && verdict.is_none(),
    };
    work.receipt.merge(exited.receipt);
    work.certainty = Certainty::Known;
    let failure = match (verdict, session) {
        (Some(verdict), _) => Some(verdict.failure(name)),
        (None, Some(SessionEnd::Fault(fault))) if was_stopped => {
            let text = format!("`{name}` was stopped: {fault}");
            Some(Failure::permanent("mcp_failed", text).decided())
        }
        (None, Some(SessionEnd::Unneeded(_))) => None,
        (None, Some(SessionEnd::Fault(_)) | None) => failure(name, &end),
    };
    work.process = Some(Box::new(end));
    match failure {
        None => Ok(Value::Null),
        Some(failure) => {
            work.printed = Some(printed(log, work.process.as_deref()));
            Err(failure.into())
        }
    }
}

/// Returns the receiver of the reports of an attempt.
fn reporter(cx: &AttemptCtx) -> impl Fn(Report) + Sync + '_ {
    |report| match report {
        Report::Ready => cx.ready.notify_one(),
        Report::Unready(why) => {
            let attempt = cx.attempt;
            cx.note(ProcessUnready { attempt, why }.into());
        }
        Report::Warning(text) => cx.warn(text),
    }
}

/// Stops the attempt if its probes require it, and keeps the reason.
async fn stop_by(
    probes: &Probes<'_>,
    verdict: &OnceLock<Verdict>,
    stopper: &Stopper,
) -> Infallible {
    let reason = probes.watch().await;
    probes.live.switch().close();
    verdict.get_or_init(|| reason);
    stopper.stop(StopReason::Cancel);
    std::future::pending().await
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
