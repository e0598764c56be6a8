//! Fault injection: tests delay commits, and make the disk slow, full or broken. Without them these functions are
//! empty.

#[cfg(not(any(test, feature = "testing")))]
use rye_core::state::Change;

/// Handle on the faults that a test injects.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    #[cfg(any(test, feature = "testing"))]
    /// State that the test sets.
    pub inner: std::sync::Arc<hooks::Hooks>,
}

#[cfg(not(any(test, feature = "testing")))]
impl Faults {
    /// Called before a sync of the log.
    pub const fn before_sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Called before a log segment is prepared.
    pub const fn before_prepare(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Called before a commit; `depth` returns the depth of the run of a change.
    #[expect(clippy::unused_async, reason = "the same shape as under test")]
    pub async fn before_commit(
        &self,
        _depth: impl Fn(&Change) -> Option<u32>,
        _changes: &[Change],
    ) {
    }

    /// Called before files of the project with the directory `_files` are used.
    pub const fn before_files(&self, _files: &str) {}

    /// Called before a file of a project is written.
    pub const fn before_write(&self, _files: &str) -> std::io::Result<()> {
        Ok(())
    }

    /// Called before the index is opened.
    pub const fn before_index(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Called before the sealer reads the published position.
    pub const fn before_position(&self) {}

    /// Called before the sweep deletes objects.
    pub const fn before_deletion(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod hooks {
    use std::collections::HashMap;
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Condvar, Mutex};

    use tokio::sync::watch;

    use crate::watermark::{POISON, lock};
    use rye_core::state::Change;

    /// Name for [`Hooks::hang`] that makes the sealer hang after it has first taken its queue.
    pub const SEALER: &str = "the sealer";

    /// Name for [`Hooks::hang`] and [`Hooks::refuse_after`] that makes the sweep hang or fail before it deletes objects.
    pub const SWEEPER: &str = "the sweeper";

    /// Commits that are held: those with an event of this name, of runs at this depth.
    pub type HeldCommits = Option<(&'static str, u32)>;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Sync {
        #[default]
        Works,
        Hangs,
        Fails,
    }

    #[derive(Debug, Default)]
    struct Hanging {
        /// Directories of the projects that hang.
        files: Vec<String>,
        /// Number of threads that hang or are about to.
        threads: usize,
    }

    #[derive(Debug, Default)]
    pub struct Hooks {
        state: Mutex<(Sync, bool)>,
        changed: Condvar,
        released: Condvar,
        syncs: AtomicU64,
        held_commits: watch::Sender<HeldCommits>,
        /// Number of commits that are held now.
        pub held: watch::Sender<usize>,
        hanging: Mutex<Hanging>,
        /// Writes that each project still accepts, and the error of the others.
        refusing: Mutex<HashMap<String, (io::ErrorKind, u64)>>,
        /// Number of refused writes.
        refused: AtomicU64,
        /// True if the index cannot be opened.
        no_index: AtomicBool,
    }

    impl Hooks {
        pub fn sync(&self, sync: Sync) {
            lock(&self.state).0 = sync;
            self.changed.notify_all();
        }

        /// Number of syncs of the log.
        pub fn syncs(&self) -> u64 {
            self.syncs.load(Ordering::Relaxed)
        }

        /// Holds the commits that `gate` names from now on, and releases all others.
        pub fn hold(&self, gate: HeldCommits) {
            self.held_commits.send_replace(gate);
        }

        /// Makes the project with these `files` hang from now on.
        pub fn hang(&self, files: &str) {
            lock(&self.hanging).files.push(files.to_owned());
        }

        /// Releases all projects that hang.
        pub fn release(&self) {
            lock(&self.hanging).files.clear();
            self.released.notify_all();
        }

        /// Makes the project with these `files` accept `writes` more writes and then fail with `kind`.
        pub fn refuse_after(&self, writes: u64, files: &str, kind: io::ErrorKind) {
            lock(&self.refusing).insert(files.to_owned(), (kind, writes));
        }

        /// Makes all projects accept writes from now on.
        pub fn refuse_nothing(&self) {
            lock(&self.refusing).clear();
        }

        /// Number of refused writes.
        pub fn refused(&self) -> u64 {
            self.refused.load(Ordering::Relaxed)
        }

        /// Number of threads that are inside `Faults::before_files`.
        pub fn hung(&self) -> usize {
            lock(&self.hanging).threads
        }

        /// Makes opening the index fail from now on if `broken`.
        pub fn no_index(&self, broken: bool) {
            self.no_index.store(broken, Ordering::Relaxed);
        }

        pub fn full(&self, full: bool) {
            lock(&self.state).1 = full;
        }
    }

    /// Counts one more held commit while it exists.
    struct Held<'a>(&'a watch::Sender<usize>);

    impl<'a> Held<'a> {
        fn new(held: &'a watch::Sender<usize>) -> Self {
            held.send_modify(|held| *held += 1);
            Self(held)
        }
    }

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.send_modify(|held| *held -= 1);
        }
    }

    impl crate::faults::Faults {
        /// Called before a commit; `depth` returns the depth of the run of a change.
        pub async fn before_commit(
            &self,
            depth: impl Fn(&Change) -> Option<u32>,
            changes: &[Change],
        ) {
            let names = |gate: &HeldCommits| {
                gate.is_some_and(|(name, below)| {
                    let mut changes = changes.iter();
                    changes
                        .any(|change| change.event.name() == name && depth(change) == Some(below))
                })
            };
            let mut gate = self.inner.held_commits.subscribe();
            if !names(&gate.borrow_and_update()) {
                return;
            }
            let _held = Held::new(&self.inner.held);
            drop(gate.wait_for(|gate| !names(gate)).await);
        }

        /// Called before a sync of the log.
        pub fn before_sync(&self) -> io::Result<()> {
            self.inner.syncs.fetch_add(1, Ordering::Relaxed);
            let mut state = lock(&self.inner.state);
            while state.0 == Sync::Hangs {
                state = self.inner.changed.wait(state).expect(POISON);
            }
            if state.0 == Sync::Fails {
                return Err(io::Error::other("a sync that fails on purpose"));
            }
            Ok(())
        }

        /// Called before files of the project with these `files` are used.
        pub fn before_files(&self, files: &str) {
            let mut hanging = lock(&self.inner.hanging);
            hanging.threads += 1;
            while hanging.files.iter().any(|known| known == files) {
                hanging = self.inner.released.wait(hanging).expect(POISON);
            }
            hanging.threads -= 1;
        }

        /// Called before the sealer reads the published position.
        pub fn before_position(&self) {
            self.before_files(SEALER);
        }

        /// Called before the sweep deletes objects.
        pub fn before_deletion(&self) -> io::Result<()> {
            self.before_files(SWEEPER);
            self.before_write(SWEEPER)
        }

        /// Called before a file of a project is written.
        pub fn before_write(&self, files: &str) -> io::Result<()> {
            let mut refusing = lock(&self.inner.refusing);
            let Some((kind, left)) = refusing.get_mut(files) else {
                return Ok(());
            };
            if let Some(fewer) = left.checked_sub(1) {
                *left = fewer;
                return Ok(());
            }
            self.inner.refused.fetch_add(1, Ordering::Relaxed);
            Err((*kind).into())
        }

        /// Called before the index is opened.
        pub fn before_index(&self) -> io::Result<()> {
            if self.inner.no_index.load(Ordering::Relaxed) {
                return Err(io::Error::other("an index that fails on purpose"));
            }
            Ok(())
        }

        /// Called before a log segment is prepared.
        pub fn before_prepare(&self) -> io::Result<()> {
            if lock(&self.inner.state).1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }
}
