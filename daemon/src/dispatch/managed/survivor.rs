//! One attempt of a managed process that survives the daemon, through its shim.
//!
//! **Order.** A stop of the daemon leaves the attempt as it is: nothing is recorded, and the next daemon follows it
//! again. Any other stop is forwarded, and waits for the end.

use std::pin::pin;
use std::sync::Arc;

use rye_core::machine::Certainty;
use rye_core::model::{Failure, ProcessSpec};
use rye_process::masking::Masker;
use rye_process::{Source, Spawner, Stopper};
use serde_json::Value;
use tokio::sync::Notify;

use super::super::{Unsuccessful, Work};
use super::{conclude, report_ready, signs};
use crate::chain::ManagedPlan;
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
    let survivor = started.map_err(|failure| Box::<Unsuccessful>::from(*failure))?;
    work.certainty = Certainty::Unknown;
    cx.note_process(survivor.identity().clone());
    follow(*survivor, cx, work).await
}

/// Follows an attempt that an earlier daemon started.
pub(super) async fn follow_again(
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    work.certainty = Certainty::Unknown;
    match cx.services.survivors.find(&cx.run, cx.attempt).await {
        Ok(Found::Alive(survivor)) => follow(*survivor, cx, work).await,
        Ok(Found::Ended(status)) => {
            let log = cx.services.process_logs.of(&cx.run);
            let tail = log.follow(cx.attempt, None);
            take_lines(&log, tail, cx).await;
            ended(&log, Some(status), cx, work).await
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
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    let spec = spec(cx)?;
    let log = cx.services.process_logs.of(&cx.run);
    let (signs, observer) = signs(&spec.ready, cx);
    let tail = log.follow(cx.attempt, observer);
    let (stopper, grown) = (Stopper::new(), Notify::new());
    let due = async {
        cx.stop.at_least(Urgency::Cancel).await;
        if cx.stop.urgency() == Urgency::Shutdown {
            std::future::pending::<()>().await;
        }
    };
    let left = async {
        cx.stop.at_least(Urgency::Shutdown).await;
        if cx.stop.urgency() != Urgency::Shutdown {
            std::future::pending::<()>().await;
        }
    };
    let finished = survivor.finish(stopper.listen(), spec.grace(), &grown);
    let status = tokio::select! {
        biased;
        () = left => {
            work.stopped = true;
            return Ok(Value::Null);
        }
        status = take_until(finished, &grown, &log, tail, cx) => status,
        never = cx.stop.forward(due, &stopper) => match never {},
        never = cx.output.write() => match never {},
        never = report_ready(&spec.ready, &signs, cx) => match never {},
    };
    ended(&log, status, cx, work).await
}

fn spec(cx: &AttemptCtx) -> Result<&ProcessSpec, Box<Unsuccessful>> {
    let no_process = || Failure::permanent("internal", "the run is no managed process");
    Ok(cx.spec.process().ok_or_else(no_process)?)
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
    log: &Arc<ProcessLog>,
    status: Option<Box<Status>>,
    cx: &AttemptCtx,
    work: &mut Work,
) -> Result<Value, Box<Unsuccessful>> {
    cx.output.close().await;
    let Some(status) = status else {
        return lost(cx, work).await;
    };
    let (pid, mut exited) = (status.pid(), status.into_exited());
    if cx.stop.urgency() == Urgency::None {
        // Something else has stopped the shim, or an earlier daemon has, whose request is not on record.
        exited.ended_by = None;
    }
    conclude(&spec(cx)?.name, pid, exited, log, cx, work)
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
