//! Managed processes: each attempt is a call of their tool, without parameters.
//!
//! **Failure.** An attempt in flight when the daemon stopped is gone; [`rye_core::process`] decides what follows.

use std::sync::Arc;
use std::time::Instant;

use rye_core::machine::Call;
use rye_core::model::{Failure, Ports, ProcessSpec, Run};
use rye_core::process::{PortQuery, ProcessMachine, Ready};

use crate::drive::{self, Job, Kind, Reports, RunContext};
use crate::services::{Ended, Prepared, TraceMode};
use crate::stop::{DriverExit, Stop};

struct ManagedProcess {
    at: RunContext,
    spec: Arc<ProcessSpec>,
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
    let kind = Arc::new(ManagedProcess { at, spec });
    let exit = drive::drive(&services, kind, run, stop).await;
    // An attempt that was chosen ports for may not have started.
    services.ports.release(&run.id);
    exit
}

impl Kind for ManagedProcess {
    type Machine = ProcessMachine;
    type Plan = Prepared;

    fn machine(&self, run: Arc<Run>) -> ProcessMachine {
        ProcessMachine::new(run)
    }

    async fn look_up(&self, _run: &Run, calls: &[&Call]) -> Vec<Job<Prepared>> {
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
        let begun = Instant::now();
        let heading = format!("attempt {} {}", call.attempt, self.spec.name);
        let cx = self.at.attempt(call, stop, &heading);
        let mut carried = self.at.services.dispatch.carry_out(prepared, &cx);
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
    }
}
