//! Simulates a project on a hanging file system, for tests: a thread that touches its files blocks until it is
//! released.
//!
//! Items and `.env` are opened non-blocking, so that a pipe in their place cannot hang. A real hang of the file system
//! needs privileges. The simulation therefore blocks where the files of a project are accessed, on any thread.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Automatic release, for a test that does not release, or whose own threads are blocked.
const LONGEST: Duration = Duration::from_secs(20);

/// The hanging project, if any.
#[derive(Debug, Default)]
pub(crate) struct HangSimulator {
    state: Mutex<HangState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HangState {
    directory: Option<PathBuf>,
    held: usize,
    gave_up: bool,
}

impl HangSimulator {
    /// Makes `directory` hang.
    pub(crate) fn begin(&self, directory: &Path) {
        self.state().directory = Some(directory.to_owned());
    }

    /// Ends the hang. Returns true if the automatic release had ended it before.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state();
        state.directory = None;
        self.changed.notify_all();
        state.gave_up
    }

    /// Blocks until `threads` threads are blocked. Returns true if that happens in time.
    pub(crate) fn holds(&self, threads: usize) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.state(), LONGEST, |state| state.held < threads)
            .unwrap();
        state.held >= threads
    }

    /// Number of blocked threads.
    pub(crate) fn held(&self) -> usize {
        self.state().held
    }

    /// Blocks while `directory` hangs.
    pub(super) fn touch(&self, directory: &Path) {
        let mut state = self.state();
        if state.directory.as_deref() != Some(directory) {
            return;
        }
        state.held += 1;
        self.changed.notify_all();
        let until = Instant::now() + LONGEST;
        while state.directory.as_deref() == Some(directory) && Instant::now() < until {
            state = self.changed.wait_timeout(state, LONGEST).unwrap().0;
        }
        if state.directory.as_deref() == Some(directory) {
            state.directory = None;
            state.gave_up = true;
        }
        state.held -= 1;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, HangState> {
        self.state.lock().unwrap()
    }
}
