//! Services of a graph: managed processes that its nodes started.
//!
//! **Order.** A service that is not up is started with the same command, below the run that needs it now. Services that
//! are stopped get TERM at the same time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rye_core::id::{Name, RunId};
use rye_core::model::Run;
use rye_core::process::ProcessView;
use rye_core::walker::{ServiceAnswer, ServiceFacts, ServiceQuery, ServiceSource};

use crate::drive::RunContext;
use crate::port::{ProcessOwner, ProcessStart, Runs};
use crate::stop::CancelMode;
use rye_journal::Journal;

/// Time that a stopped service may take after its grace.
const END_TIME: Duration = Duration::from_secs(10);

/// Returns the source of the present state of services. One that has left memory has ended.
pub(super) fn source(journal: &Arc<Journal>) -> ServiceSource {
    let journal = Arc::clone(journal);
    ServiceSource::new(move |handle| {
        let run = journal.snapshot(handle)?;
        let view = ProcessView::of(&run, run.updated_at)?;
        Some(ServiceFacts {
            running: view.is_running(),
            ready: view.ready,
            ports: view.ports,
        })
    })
}

pub(super) async fn answer(at: &RunContext, run: &Run, query: &ServiceQuery) -> ServiceAnswer {
    let runs = at.services.runs();
    match query {
        ServiceQuery::Restore(services) => restore(&*runs, run, services).await,
        ServiceQuery::Stop(handles) => {
            let stopped = handles.iter().map(|handle| stop(&*runs, run, handle));
            let left = join_all(stopped).await.into_iter().flatten().collect();
            ServiceAnswer::Stopped { left }
        }
    }
}

async fn restore(runs: &dyn Runs, run: &Run, services: &[(Name, RunId)]) -> ServiceAnswer {
    let restored = services
        .iter()
        .map(|(node, handle)| async move { (node, handle, up(runs, run, handle).await) });
    let (mut started, mut lost) = (Vec::new(), None);
    for (node, before, up) in join_all(restored).await {
        match up {
            Ok(handle) if handle == *before => {}
            Ok(handle) => started.push((Arc::clone(node), handle)),
            Err(why) => {
                lost.get_or_insert((Arc::clone(node), why));
            }
        }
    }
    ServiceAnswer::Restored { started, lost }
}

/// Returns the handle of the service `handle` once it is ready, which is another one if it had to be started. The error
/// is the reason for which it is not ready.
async fn up(runs: &dyn Runs, run: &Run, handle: &RunId) -> Result<RunId, String> {
    let known = runs.get(handle.clone()).await;
    let known = known.map_err(|refused| refused.of_run().message)?;
    let is_ending = known.status().is_terminal() || known.cancel.is_some();
    let handle = if is_ending {
        let process = known.spec.process().cloned();
        let process = process.ok_or("it is no managed process")?;
        let owner = ProcessOwner::Run {
            record: Arc::new(run.clone()),
            layers: run.spec.layers.clone(),
        };
        let started = runs.start_process(ProcessStart { process, owner }).await;
        let (anew, _) = started.map_err(|refused| refused.of_run().message)?;
        anew.id.clone()
    } else {
        handle.clone()
    };
    let started = runs.process_started(handle.clone()).await;
    let started = started.map_err(|refused| refused.of_run().message)?;
    let state = started.process();
    if state.is_some_and(|state| state.ready_since().is_some()) {
        return Ok(handle);
    }
    let why = state.and_then(|state| state.unready.as_ref());
    Err(match (started.failure(), why) {
        (Some(failure), _) => failure.message,
        (None, Some(why)) => why.to_string(),
        (None, None) => "it is not ready".to_owned(),
    })
}

/// Stops the service `handle`; returns its name if it has not ended in time.
async fn stop(runs: &dyn Runs, run: &Run, handle: &RunId) -> Option<String> {
    let service = runs.get(handle.clone()).await.ok()?;
    let spec = service.spec.process()?;
    if service.status().is_terminal() {
        return None;
    }
    let cause = format!("the run {}", run.id);
    let asked = runs.cancel(handle.clone(), cause, CancelMode::Graceful);
    if let Err(refused) = asked.await {
        // It has ended meanwhile, or its end is awaited all the same.
        tracing::debug!(run = %handle, refused = refused.of_run().message, "a service was not cancelled");
    }
    let ended = runs.settled(handle.clone());
    let ended = tokio::time::timeout(spec.grace() + END_TIME, ended).await;
    ended.is_err().then(|| spec.name.clone())
}
