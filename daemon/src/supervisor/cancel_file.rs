//! Cancelling by a file: `cancel` or `cancel.requested` in the directory of a run.
//!
//! **Order.** Looked for every half second, for runs that have not ended and were not asked to stop yet; the file's `reason`
//! becomes the cause. **Never** removes the file.

use std::time::Duration;

use rye_core::error::with_sources;

use super::Supervisor;
use crate::{journal, task};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

impl Supervisor {
    /// Looks for such files until the daemon stops.
    pub(super) async fn heed_cancel_files(&self) {
        let stopping = &self.shared.stopping;
        while stopping
            .run_until_cancelled(tokio::time::sleep(PAUSE))
            .await
            .is_some()
        {
            let runs = self.journal().live(|run| {
                let open = run.cancel.is_none();
                open.then(|| (run.id.clone(), run.spec.files.clone()))
            });
            if runs.is_empty() {
                continue;
            }
            let look = move || journal::cancel_requests(runs);
            for (run, reason) in task::blocking("look for cancel files", look).await {
                tracing::info!(%run, reason, "a file asks to cancel the run");
                if let Err(error) = self.cancel(&run, &reason).await {
                    tracing::info!(%run, error = %with_sources(&error), "the run was not cancelled");
                }
            }
        }
    }
}
