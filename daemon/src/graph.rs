//! Graph runs: their machine is the [`Walker`], the cache may answer their calls, and a call of a graph or a directive
//! becomes a child run.
//!
//! **Order.** A child run is created in the commit that starts its step. After a restart it is attached to, and never
//! started twice. A retry of the step continues the child, or takes its outcome if it has ended meanwhile. A cancelled
//! call gets the grace period of [`crate::dispatch`] to end by itself; its result counts if it does.

mod attend;
mod services;

use std::convert::Infallible;
use std::sync::Arc;

use rye_core::cas::InputScope;
use rye_core::clock::Clock;
use rye_core::definition::Graph;
use rye_core::machine::Call;
use rye_core::model::{Effect, GraphSource, Run};
use rye_core::policy::Policy;
use rye_core::walker::{CostSource, ServiceAnswer, ServiceQuery, Walker};

use self::attend::Planned;
use crate::cache;
use crate::drive::{self, Job, Kind, Reports, RunContext};
use crate::services::Ended;
use crate::stop::{DriverExit, Stop};

struct GraphRun {
    at: RunContext,
    cache: cache::Store,
    /// Inputs on which the results of all nodes depend.
    inputs: InputScope,
    graph: Arc<Graph>,
    policy: Arc<Policy>,
}

/// Drives `run` through its graph `source`, under `policy`, until it ends, is suspended, or the daemon stops.
pub async fn drive(
    at: RunContext,
    source: &GraphSource,
    policy: Arc<Policy>,
    run: &Arc<Run>,
    stop: &Stop,
) -> Result<DriverExit, rye_journal::Error> {
    let services = Arc::clone(&at.services);
    let journal = &services.journal;
    let graph = match services.graphs.of_run(source).await {
        Ok(graph) => graph,
        Err(failure) => return drive::fail(journal, run, failure).await,
    };
    let kind = GraphRun {
        cache: cache::Store::new(journal.signer()),
        inputs: InputScope::new(&graph.digest, &source.config_hash),
        at,
        graph,
        policy,
    };
    drive::drive(&services, Arc::new(kind), run, stop).await
}

impl Kind for GraphRun {
    type Machine = Walker;
    type Plan = Planned;

    fn machine(&self, run: Arc<Run>) -> Walker {
        let journal = Arc::clone(&self.at.services.journal);
        let account = run.spec.budget.account.clone();
        let cost = CostSource::new(move || journal.cost_so_far(&account));
        let memory = self.at.services.journal.memory();
        let timer = Arc::clone(&self.at.services.clock);
        let clock: Arc<dyn Clock> = timer;
        Walker::new(Arc::clone(&self.graph), Arc::clone(&self.policy), run)
            .with_cost(cost)
            .with_memory(memory)
            .with_services(services::source(&self.at.services.journal))
            .paced(clock)
    }

    async fn look_up(&self, run: &Run, calls: &[&Call]) -> Vec<Job<Planned>> {
        attend::look_up(self, run, calls).await
    }

    fn effect(plan: &Planned) -> Option<Effect> {
        plan.stricter()
    }

    async fn answer(
        &self,
        run: &Run,
        query: &ServiceQuery,
    ) -> Result<ServiceAnswer, rye_journal::Error> {
        Ok(services::answer(&self.at, run, query).await)
    }

    fn is_of_end(query: &ServiceQuery) -> bool {
        matches!(query, ServiceQuery::Stop(_))
    }

    async fn carry_out(
        &self,
        call: &Call,
        plan: Planned,
        stop: &Stop,
        _reports: &Reports<Infallible>,
    ) -> Ended {
        attend::carry_out(self, call, plan, stop).await
    }
}
