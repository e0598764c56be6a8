//! Context of the attempts of a run of any kind.

use std::sync::Arc;

use rye_core::callers::Caller;
use rye_core::id::RunId;
use rye_core::machine::Call;
use rye_core::model::{Run, Spec, Task};
use tokio::sync::Notify;

use crate::async_log::{Log, OutputWriter};
use crate::chain::CallOrigin;
use crate::projects::Project;
use crate::services::{AttemptCtx, Ended, Order, Prepared, Services, TraceMode};
use crate::stop::Stop;

/// Kind of the caller in the calls of a run. A tool run makes one call: that of whoever started it.
fn caller(spec: &Spec) -> Caller {
    match (&spec.task, &spec.parent) {
        (Task::Thread(_), _) => Caller::Model,
        (Task::Graph(_) | Task::Unreadable, _) => Caller::Graph,
        (Task::Tool | Task::Process(_), Some(_)) => Caller::Code,
        (Task::Tool | Task::Process(_), None) => Caller::Person,
    }
}

/// Context of the attempts of a run.
#[derive(Debug)]
pub struct RunContext {
    pub services: Arc<Services>,
    pub project: Arc<Project>,
    pub run: RunId,
    pub spec: Arc<Spec>,
    /// Output of its tools.
    log: Arc<Log>,
}

impl RunContext {
    pub fn new(services: &Arc<Services>, project: Arc<Project>, run: &Run) -> Self {
        Self {
            services: Arc::clone(services),
            project,
            run: run.id.clone(),
            spec: Arc::clone(&run.spec),
            log: services.logs.of(&run.id, &run.spec),
        }
    }

    /// Looks up, checks and plans `call`.
    pub async fn prepare(&self, call: &Call, trace: TraceMode) -> Prepared {
        let mut prepared = self.prepare_all([call], trace).await;
        prepared.pop().expect("each order is answered")
    }

    /// Prepares several calls of one turn, in their order.
    pub async fn prepare_all(
        &self,
        calls: impl IntoIterator<Item = &Call>,
        trace: TraceMode,
    ) -> Vec<Prepared> {
        let orders = calls.into_iter().map(|call| self.order(call, trace));
        self.services.dispatch.prepare(orders.collect()).await
    }

    fn order(&self, call: &Call, trace: TraceMode) -> Order {
        Order {
            origin: CallOrigin {
                run: self.run.clone(),
                spec: Arc::clone(&self.spec),
                attempt: call.attempt,
                key: call.key.clone(),
            },
            project: Arc::clone(&self.project),
            primary: call.primary,
            item: call.item.clone(),
            params: call.params.clone(),
            trace,
            caller: caller(&self.spec),
            authority: call.authority,
            timeout: call.timeout,
        }
    }

    /// Carries out a prepared call. Its output appears below `heading` in the log of the run.
    pub async fn carry_out(
        &self,
        call: &Call,
        prepared: Prepared,
        stop: &Stop,
        heading: &str,
    ) -> Ended {
        let cx = self.attempt(call, stop, heading);
        self.services.dispatch.carry_out(prepared, &cx).await
    }

    /// Context of an attempt of `call`, whose output appears below `heading`.
    pub fn attempt(&self, call: &Call, stop: &Stop, heading: &str) -> AttemptCtx {
        let logs = self.project.log_pool().clone();
        AttemptCtx {
            run: self.run.clone(),
            spec: Arc::clone(&self.spec),
            step: call.step,
            slot: call.slot,
            node: call.node.clone(),
            attempt: call.attempt,
            key: call.key.clone(),
            effect: call.effect,
            output: Arc::new(OutputWriter::new(Arc::clone(&self.log), logs, heading)),
            ready: Notify::new(),
            stop: stop.clone(),
            span: tracing::Span::current(),
            services: Arc::clone(&self.services),
        }
    }
}
