//! Periodic checks: cancel files, and timeouts of questions.
//!
//! A file `cancel` or `cancel.requested` in the directory of a run cancels it.
//!
//! **Order.** Live runs without a cancel request are checked every half second. The `reason` in the file becomes the
//! cause. Each project is checked in its file pool, and not again before its last check has finished. So a hung project
//! delays no other. **Never** removes the file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rye_core::error::with_sources;
use rye_core::id::RunId;
use rye_core::model::Run;

use super::handle::Supervisor;
use crate::exports;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(500);

impl Supervisor {
    /// Checks for such files until the daemon stops.
    pub(super) async fn watch_cancel_files(&self) {
        let stopping = &self.shared.stopping;
        let mut looks = FuturesUnordered::new();
        let mut looked_at = HashSet::new();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {
                    let live = self.journal().cancellable();
                    self.expire_approvals(&live).await;
                    for (project, runs) in by_project(live) {
                        if looked_at.insert(project.clone()) {
                            let gate = self.projects().file_pool_of(Path::new(&project));
                            looks.push(async move {
                                let look = move || exports::cancel_requests(&runs);
                                (project, gate.run("look for cancel files", look).await)
                            });
                        }
                    }
                }
                Some((project, asked)) = looks.next() => {
                    looked_at.remove(&project);
                    self.cancel_requested(asked).await;
                }
            }
        }
    }

    async fn cancel_requested(&self, asked: Vec<(RunId, String)>) {
        for (run, reason) in asked {
            tracing::info!(%run, reason, "a file asks to cancel the run");
            if let Err(error) = self.cancel(&run, &reason).await {
                tracing::info!(%run, error = %with_sources(&error), "the run was not cancelled");
            }
        }
    }
}

fn by_project(live: Vec<Arc<Run>>) -> HashMap<String, Vec<Arc<Run>>> {
    let mut by_project: HashMap<String, Vec<Arc<Run>>> = HashMap::new();
    for run in live {
        match by_project.get_mut(&run.spec.project) {
            Some(runs) => runs.push(run),
            None => {
                by_project.insert(run.spec.project.clone(), vec![run]);
            }
        }
    }
    by_project
}
