//! Calls that run as processes.

use std::convert::Infallible;
use std::sync::Arc;

use rye_core::machine::Certainty;
use rye_core::model::{Effect, EndCause, Failure, Resources, Slot};
use rye_process::masking::Masker;
use rye_process::{self as process, Confinement, Exit, StopReason, Stopper};
use serde_json::Value;

use super::failures::{LIMITS_UNAVAILABLE, refused, unstarted};
use super::outcome::{bound, judge, printed, process_end};
use super::{Dispatcher, Unsuccessful, Work};
use crate::callbacks::{Halt, ProgramAttempt, Registered};
use crate::chain::{CallbackAuthority, ProcessPlan};
use crate::logged_output::LoggedOutput;
use crate::services::{AttemptCtx, memory_exceeded};
use crate::stop::Urgency;

impl Dispatcher {
    /// Runs the process of a call. Its program may call the daemon meanwhile.
    pub(super) async fn process(
        &self,
        mut plan: ProcessPlan,
        cx: &AttemptCtx,
        masker: &Arc<Masker>,
        work: &mut Work,
    ) -> Result<Value, Box<Unsuccessful>> {
        let registered = register(&mut plan, cx);
        let masker = match &registered {
            Some(registered) => Arc::new(masker.and(registered.token())),
            None => Arc::clone(masker),
        };
        let program = registered.as_ref();
        let ended = self.contained(plan, cx, masker, work, program).await;
        let Some(registered) = registered else {
            return ended;
        };
        let halt = registered.halt();
        registered.end().await;
        // A stop of the run comes first.
        match halt.filter(|_| cx.stop.urgency() == Urgency::None) {
            None => ended,
            Some(Halt::Parked(child)) => {
                work.parked = Some(child);
                ended
            }
            Some(Halt::Diverged { failure, data }) => {
                (work.stopped, work.certainty) = (false, Certainty::Known);
                Err(Box::new(Unsuccessful {
                    data,
                    failure: *failure,
                }))
            }
        }
    }

    /// Runs the process of a call to its end, or stops it when the order of its calls requires that.
    async fn contained(
        &self,
        mut plan: ProcessPlan,
        cx: &AttemptCtx,
        masker: Arc<Masker>,
        work: &mut Work,
        caller: Option<&Registered>,
    ) -> Result<Value, Box<Unsuccessful>> {
        let seconds = plan.process.timeout.as_secs_f64();
        let limit = format!("{seconds} s (more with {})", plan.time_set_by);
        let program = plan.process.program.clone();
        let most = plan.process.output_limit;
        self.limit(&mut plan.process, cx)?;
        let isolation = plan.process.confinement.level();
        let resources = plan.process.resources;
        let running = self
            .spawner
            .start(plan.process, &plan.tag)
            .await
            .map_err(|error| unstarted(&error))?;
        work.certainty = Certainty::Unknown;
        let pid = running.identity().pid;
        cx.note_process(running.identity().clone(), isolation, resources);
        let memory = cx.services.journal.memory();
        let stopper = Stopper::new();
        let live = LoggedOutput::new(&cx.output, plan.output_form);
        let running = running
            .with_tap(live.tap())
            .with_masker(masker)
            .with_memory(Arc::clone(&memory));
        let exited = tokio::select! {
            exited = running.finish(stopper.listen()) => exited,
            never = cx.stop.forward(cx.stop.due(), &stopper) => match never {},
            never = cx.output.write() => match never {},
            never = stop_halted(caller, &stopper) => match never {},
        };
        let kept = exited
            .as_ref()
            .map_or(&[][..], |exited| exited.stdout.bytes.as_slice());
        live.close(kept).await;
        let mut exited = exited.map_err(|error| refused(&error))?;
        let mut end = process_end(pid, &exited, cx.stop.urgency());
        let halt = caller.and_then(Registered::halt);
        if let (EndCause::Cancelled, Some(Halt::Parked(_))) = (end.cause, halt) {
            end.cause = EndCause::Parked;
        }
        cx.note_process_end(end.clone());
        work.process = Some(Box::new(end));
        bound(&mut exited.stdout, most);
        bound(&mut exited.stderr, most);
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
            judge(plan.output_form, &program, exited, &limit, &mut work.charge)
        };
        work.note_printed(plan.output_form, printed, &judged);
        judged
    }
}

impl Dispatcher {
    /// Fails if limits are required, and the host does not enforce all of `requested`.
    pub(super) fn check_required(&self, requested: Resources) -> Result<(), String> {
        if !self.planner.config.resources.are_required {
            return Ok(());
        }
        self.spawner.unenforced(requested).map_or(Ok(()), Err)
    }

    /// Reduces the limits of `plan` to those that the host enforces, with a warning about the others.
    pub(super) fn limit(&self, plan: &mut process::Plan, cx: &AttemptCtx) -> Result<(), Failure> {
        let refuse = |why| Failure::permanent(LIMITS_UNAVAILABLE, why).decided();
        self.check_required(plan.resources).map_err(refuse)?;
        if let Some(warning) = self.spawner.unenforced(plan.resources) {
            cx.warn(warning);
            plan.resources = plan.resources.only(&self.spawner.enforced());
        }
        Ok(())
    }
}

/// Stops a program when the order of its calls requires that.
async fn stop_halted(program: Option<&Registered>, stopper: &Stopper) -> Infallible {
    if let Some(program) = program {
        program.halted().await;
        stopper.stop(StopReason::Cancel);
    }
    std::future::pending().await
}

/// Lets the program of `plan` call the daemon, if it may.
fn register(plan: &mut ProcessPlan, cx: &AttemptCtx) -> Option<Registered> {
    let CallbackAuthority { declared, replays } = plan.callbacks.take()?;
    // An at-most-once call is not repeated, so nor are its calls. A hook is not started again after a suspension.
    let repeats = cx.effect != Effect::AtMostOnce && !matches!(cx.slot, Slot::Hook(_));
    let attempt = ProgramAttempt {
        run: cx.run.clone(),
        step: cx.step,
        slot: cx.slot,
        node: cx.node.clone(),
        number: cx.attempt,
        key: cx.key.clone(),
        tag: plan.tag.clone(),
        layer: declared,
        replays: replays && repeats,
    };
    let mut random = [0; 32];
    getrandom::fill(&mut random).expect("the kernel has a random source");
    let registered = cx.services.callbacks.register(attempt, random);
    plan.process.env.extend(registered.variables());
    if let Confinement::Sandbox(view) = &mut plan.process.confinement {
        cx.services.callbacks.show_in(view);
    }
    Some(registered)
}
