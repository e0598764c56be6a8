//! The threads that access the logs of one project, and whether its files take writes.
//!
//! **Owns** a file pool of its own, so that a log that hangs occupies no thread that the items of the project need.
//! **States**: usable or stalled. A write that takes [`PATIENCE`] makes the project stalled; a write that takes less
//! makes it usable. An attempt waits for its lines only in a usable project. Lines are written in both states, so the
//! first output after a hang ends it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rye_host::file_pool::FilePool;

/// Time for which an attempt waits until its lines are in the file.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The logs of one project. A clone is another handle on the same threads.
#[derive(Debug, Clone, Default)]
pub struct LogPool {
    pool: FilePool,
    is_stalled: Arc<AtomicBool>,
}

impl LogPool {
    /// True if there is no other handle on these threads.
    pub fn is_unused(&self) -> bool {
        self.pool.is_unused()
    }

    /// Runs `work`, which reads. Cancel safe until the work begins.
    pub async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.pool.run(name, work).await
    }

    /// Runs `work`, which writes. Dropping the future loses only work that has not begun.
    pub(super) async fn write(
        &self,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let is_stalled = Arc::clone(&self.is_stalled);
        let measured = move || {
            let began = Instant::now();
            let written = work();
            is_stalled.store(began.elapsed() >= PATIENCE, Ordering::Relaxed);
            written
        };
        self.pool.run("append to async.log", measured).await
    }

    /// Waits for `write` for at most [`PATIENCE`], and not at all in a stalled project. Returns true if it is done.
    pub(super) async fn wait_for(&self, write: impl Future<Output = ()>) -> bool {
        let patience = if self.is_stalled.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let is_done = tokio::time::timeout(patience, write).await.is_ok();
        if !is_done && !self.is_stalled.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the files of a project take no output of tools: lines are left out until they do"
            );
        }
        is_done
    }
}
