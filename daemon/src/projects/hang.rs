//! A project on a file system that hangs, for tests: a thread that touches its files stands still until it is released.
//!
//! Items and `.env` are opened so that a pipe in their place does not block, so only what lies below us could hang them, and
//! that takes privileges. So the hang is put where the files of a project are reached, on whatever thread that is.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A test that forgets to release, or cannot any more because its own threads stand still, is released after this.
const LONGEST: Duration = Duration::from_secs(20);

/// The project that hangs, if one does.
#[derive(Debug, Default)]
pub(crate) struct Hang {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    directory: Option<PathBuf>,
    held: usize,
    gave_up: bool,
}

impl Hang {
    /// From now on `directory` hangs.
    pub(crate) fn begin(&self, directory: &Path) {
        self.state().directory = Some(directory.to_owned());
    }

    /// It does so no more; whether it had to be released before.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state();
        state.directory = None;
        self.changed.notify_all();
        state.gave_up
    }

    /// Blocks until so many threads stand still; whether they do in time.
    pub(crate) fn holds(&self, threads: usize) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.state(), LONGEST, |state| state.held < threads)
            .unwrap();
        state.held >= threads
    }

    /// How many threads stand still now.
    pub(crate) fn held(&self) -> usize {
        self.state().held
    }

    /// Somebody reaches for files of `directory`.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}
