//! Managed processes: each attempt is a call of their tool, without parameters.
//!
//! **Failure.** An attempt in flight when the daemon stopped is gone, unless a shim keeps it; [`rye_core::process`] decides
//! what follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rye_core::machine::Call;
use rye_core::model::{Failure, Ports, ProcessSpec, Run};
use rye_core::process::{AttemptPorts, PortQuery, ProcessMachine, Ready};

use crate::chain::{self, Plan};
use crate::drive::{self, Job, Kind, Reports, RunContext};
use crate::output_watch::OutputWatch;
use crate::services::{Ended, Prepared, TraceMode};
use crate::stop::{DriverExit, Stop, Urgency};

struct ManagedProcess {
    at: RunContext,
    spec: Arc<ProcessSpec>,
    /// Number of the attempt that a shim keeps, or kept to its end; 0 if there is none.
    kept: AtomicU32,
    watch: Option<OutputWatch>,
}

/// Drives `run`, which runs `spec`.
pub async fn drive(
    at: RunContext,
    spec: &Arc<ProcessSpec>,
    run: &Arc<Run>,
    stop: &Stop,
) -> Result<DriverExit, rye_journal::Error> {
    let services = Arc::clone(&at.services);
    let spec = Arc::clone(spec);
    let kept = if spec.survive {
        services.survivors.kept(&run.id).await.unwrap_or_default()
    } else {
        0
    };
    let kept = AtomicU32::new(kept);
    let watch = OutputWatch::new(&services, run);
    if let Some(watch) = &watch {
        // An earlier daemon may have gone down before it searched the last lines.
        watch.finish().await;
    }
    let kind = Arc::new(ManagedProcess {
        at,
        spec,
        kept,
        watch,
    });
    let exit = drive::drive(&services, kind, run, stop).await;
    // An attempt that was chosen ports for may not have started.
    services.ports.release(&run.id);
    exit
}

/// Job that follows the attempt `call` of an earlier daemon.
fn kept(spec: &ProcessSpec, call: &Call) -> Job<Prepared> {
    let kept = chain::kept(spec, AttemptPorts::of(&call.params));
    let plan = Prepared {
        item: call.item.canonical(),
        plan: Ok(Plan::Kept(Box::new(kept))),
        is_ready: true,
        chain: None,
        trace: None,
        since: Instant::now(),
    };
    Job::Begin {
        hashes: plan.hashes(call, None),
        plan,
        child: None,
        creates: Vec::new(),
    }
}

impl Kind for ManagedProcess {
    type Machine = ProcessMachine;
    type Plan = Prepared;

    fn machine(&self, run: Arc<Run>) -> ProcessMachine {
        let kept = self.kept.load(Ordering::Relaxed);
        ProcessMachine::new(run, (kept > 0).then_some(kept))
    }

    async fn look_up(&self, run: &Run, calls: &[&Call]) -> Vec<Job<Prepared>> {
        let in_flight = run.process().and_then(|state| state.attempt());
        if let Some(attempt) = in_flight {
            // The machine calls it again because a shim keeps it.
            debug_assert_eq!(attempt.id.number, self.kept.load(Ordering::Relaxed));
            return calls.iter().map(|call| kept(&self.spec, call)).collect();
        }
        let prepared = self
            .at
            .prepare_all(calls.iter().copied(), TraceMode::Off)
            .await;
        let begin = |(plan, call): (Prepared, &&Call)| match plan.shortage() {
            Some(lack) => Job::Exhausted(lack),
            None => Job::Begin {
                hashes: plan.hashes(call, None),
                plan,
                child: None,
                creates: Vec::new(),
            },
        };
        prepared.into_iter().zip(calls).map(begin).collect()
    }

    async fn answer(
        &self,
        run: &Run,
        query: &PortQuery,
    ) -> Result<Result<Ports, Failure>, rye_journal::Error> {
        let chosen = self.at.services.ports.reserve(&run.id, query).await;
        Ok(chosen.map_err(|none| Failure::permanent("no_free_port", none.to_string())))
    }

    async fn carry_out(
        &self,
        call: &Call,
        prepared: Prepared,
        stop: &Stop,
        reports: &Reports<Ready>,
    ) -> Ended {
        if self.spec.survive {
            self.kept.store(call.attempt, Ordering::Relaxed);
        }
        let begun = Instant::now();
        let heading = format!("attempt {} {}", call.attempt, self.spec.name);
        let cx = self.at.attempt(call, stop, &heading);
        let mut carried = self.at.services.dispatch.carry_out(prepared, &cx);
        let carried = async {
            tokio::select! {
                ended = &mut carried => return ended,
                () = cx.ready.notified() => {}
            }
            let report = Ready {
                by: self.spec.ready.sign(),
                after: begun.elapsed(),
            };
            let ((), ended) = tokio::join!(reports.send(report), carried);
            ended
        };
        let Some(watch) = &self.watch else {
            return carried.await;
        };
        let ended = tokio::select! {
            ended = carried => ended,
            never = watch.follow() => match never {},
        };
        // After any other stop the next daemon searches what is left, or nothing may begin.
        if stop.urgency() <= Urgency::Cancel {
            watch.finish().await;
        }
        ended
    }
}
