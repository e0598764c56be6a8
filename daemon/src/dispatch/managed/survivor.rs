//! One attempt of a managed process that survives the daemon, through its shim.
//!
//! **Order.** A stop of the daemon leaves the attempt as it is: nothing is recorded, and the next daemon follows it
//! again. Any other stop is forwarded, and waits for the end.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use rye_core::machine::Certainty;
use rye_core::model::Failure;
use rye_core::model::event::{ProcessFrozen, ProcessThawed};
use rye_process::masking::Masker;
use rye_process::{Source, Spawner, Stopper};
use serde_json::Value;
use tokio::sync::Notify;

use super::super::{Unsuccessful, Work};
use super::{End, conclude, reporter, stop_by};
use crate::chain::{KeptPlan, ManagedPlan};
use crate::probes::{Probes, Verdict, signs};
use crate::process_log::{OutputLine, ProcessLog, Stream, Tail};
use crate::services::AttemptCtx;
use crate::stop::Urgency;
use crate::survivor::{Found, NewSurvivor, Status, Survivor};

/// Starts the attempt, and follows it.
pub(super) async fn start(
    spawner: &Spawner,
    plan: ManagedPlan,
    cx: &AttemptCtx,
    masker: &Masker,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let kept = KeptPlan {
        name: plan.name,
        grace: plan.process.grace,
        probes: plan.probes,
    };
    let isolation = plan.process.confinement.level();
    let resources = plan.process.resources;
    let new = NewSurvivor {
        attempt: cx.attempt,
        tag: &plan.tag,
        process: plan.process,
        masker,
        open_files: spawner.open_files(),
        cgroups: spawner.cgroups(),
        is_scoped: spawner.scope().is_some(),
    };
    let started = cx.services.survivors.start(&cx.run, new).await;
    // The program was executed, or never is.
    cx.services.ports.release(&cx.run);
    let survivor = started.map_err(|failure| Box::<Unsuccessful>::from(*failure))?;
    work.certainty = Certainty::Unknown;
    cx.note_process(survivor.identity().clone(), isolation, resources);
    follow(*survivor, &kept, cx, work).await
}

/// Follows an attempt that an earlier daemon started.
pub(super) async fn follow_again(
    plan: &KeptPlan,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    work.certainty = Certainty::Unknown;
    match cx.services.survivors.find(&cx.run, cx.attempt).await {
        Ok(Found::Alive(survivor)) => follow(*survivor, plan, cx, work).await,
        Ok(Found::Ended(status)) => {
            let log = cx.services.process_logs.of(&cx.run);
            let tail = log.follow(cx.attempt, None);
            take_lines(&log, tail, cx).await;
            ended(plan, (Some(status), None), &log, cx, work).await
        }
        Ok(Found::Lost) => lost(cx, work).await,
        Err(error) => {
            cx.warn(format!("the files of its shim cannot be read: {error}"));
            lost(cx, work).await
        }
    }
}

/// Follows a living process until it ends or the daemon stops.
async fn follow(
    survivor: Survivor,
    plan: &KeptPlan,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let log = cx.services.process_logs.of(&cx.run);
    let report = reporter(cx);
    let (signs, observer) = signs(&plan.probes.ready, &report);
    let tail = log.follow(cx.attempt, observer);
    let members = survivor.members().clone();
    let live = &cx.services.live_processes;
    let live = live.enter(&cx.run, cx.attempt, members.clone());
    record_freeze(live.switch().is_frozen(), cx);
    let probes = Probes {
        plan: &plan.probes,
        signs: &signs,
        members,
        live: &live,
        providers: &cx.services.providers,
        report: &report,
    };
    let (stopper, grown, verdict) = (Stopper::new(), Notify::new(), OnceLock::new());
    let due = async {
        cx.stop.at_least(Urgency::Cancel).await;
        if cx.stop.urgency() == Urgency::Shutdown {
            std::future::pending::<()>().await;
        }
        live.switch().close();
    };
    let left = async {
        cx.stop.at_least(Urgency::Shutdown).await;
        if cx.stop.urgency() != Urgency::Shutdown {
            std::future::pending::<()>().await;
        }
    };
    let finished = survivor.finish(stopper.listen(), plan.grace, &grown);
    let status = tokio::select! {
        biased;
        () = left => {
            work.stopped = true;
            return Ok(Value::Null);
        }
        status = take_until(finished, &grown, &log, tail, cx) => status,
        never = cx.stop.forward(due, &stopper) => match never {},
        never = cx.output.write() => match never {},
        never = stop_by(&probes, &verdict, &stopper) => match never {},
    };
    ended(plan, (status, verdict.get()), &log, cx, work).await
}

/// Records whether the process is frozen, if an earlier daemon could not.
fn record_freeze(is_frozen: bool, cx: &AttemptCtx) {
    let run = cx.services.journal.snapshot(&cx.run);
    let recorded = run.and_then(|run| Some(run.process()?.is_frozen));
    let (attempt, by) = (cx.attempt, "ryed".to_owned());
    match (recorded, is_frozen) {
        (Some(false), true) => cx.note(ProcessFrozen { attempt, by }.into()),
        (Some(true), false) => cx.note(ProcessThawed { attempt, by }.into()),
        _ => {}
    }
}

/// Takes in lines whenever `grown` is notified, until `finished` resolves and the last ones are taken in.
async fn take_until(
    finished: impl Future<Output = Option<Box<Status>>>,
    grown: &Notify,
    log: &Arc<ProcessLog>,
    mut tail: Tail,
    cx: &AttemptCtx,
) -> Option<Box<Status>> {
    let mut finished = pin!(finished);
    loop {
        let status = tokio::select! {
            status = &mut finished => Some(status),
            () = grown.notified() => None,
        };
        tail = take_lines(log, tail, cx).await;
        if let Some(status) = status {
            return status;
        }
    }
}

/// Takes in the lines that are there, and passes the new ones to the log of the run.
async fn take_lines(log: &Arc<ProcessLog>, tail: Tail, cx: &AttemptCtx) -> Tail {
    let (tail, lines) = log.take_in(tail).await;
    for OutputLine {
        stream, mut text, ..
    } in lines
    {
        let source = match stream {
            Stream::Stdout => Source::Stdout,
            Stream::Stderr => Source::Stderr,
            Stream::Note => continue,
        };
        text.push('\n');
        cx.output.receive(source, text.as_bytes());
    }
    tail
}

async fn ended(
    plan: &KeptPlan,
    (status, verdict): (Option<Box<Status>>, Option<&Verdict>),
    log: &ProcessLog,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    cx.output.close().await;
    let Some(status) = status else {
        return lost(cx, work).await;
    };
    let (pid, mut exited) = (status.pid(), status.into_exited());
    if cx.stop.urgency() == Urgency::None && verdict.is_none() {
        // Something else has stopped the shim, or an earlier daemon has, whose request is not on record.
        exited.ended_by = None;
    }
    let end = End {
        pid,
        exited,
        verdict,
        session: None,
    };
    conclude(&plan.name, end, log, cx, work)
}

/// Ends what is left of an attempt whose shim is gone, or does not answer.
async fn lost(cx: &AttemptCtx, work: &mut Work) -> Result<Value, Box<Unsuccessful>> {
    let receipt = cx.services.survivors.end(&cx.run).await;
    work.receipt.merge(receipt);
    work.certainty = Certainty::Known;
    work.stopped = cx.stop.urgency() >= Urgency::Cancel;
    let text = "its shim was killed, or the machine went down: the process is gone, and how it ended is not known";
    let failure = Failure {
        retryable: true,
        ..Failure::permanent("lost", text)
    };
    Err(failure.decided().into())
}
