//! Where tests hold commits up, and make the disk slow, full or broken. Without them these are empty functions.

#[cfg(not(any(test, feature = "testing")))]
use rye_core::state::Change;

/// Where tests hold commits up, and make the disk slow, full or broken.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    #[cfg(any(test, feature = "testing"))]
    /// What the test sets.
    pub inner: std::sync::Arc<hooks::Hooks>,
}

#[cfg(not(any(test, feature = "testing")))]
impl Faults {
    /// Before a sync of the log.
    pub const fn before_sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Before a log segment is prepared.
    pub const fn before_prepare(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Before a commit; `depth` tells that of its run.
    #[expect(clippy::unused_async, reason = "the same shape as under test")]
    pub async fn before_commit(
        &self,
        _depth: impl Fn(&Change) -> Option<u32>,
        _changes: &[Change],
    ) {
    }

    /// Before files of the project with these `files` are used.
    pub const fn before_files(&self, _files: &str) {}

    /// Before a file of a project is written.
    pub const fn before_write(&self, _files: &str) -> std::io::Result<()> {
        Ok(())
    }

    /// Before the index is opened.
    pub const fn before_index(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Before the sealer reads how far is published.
    pub const fn before_position(&self) {}
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

    /// Hangs like a project: the sealer, after its first look for runs that ended.
    pub const SEALER: &str = "the sealer";

    /// Which commits are held up: those with an event of that name, of runs at that depth.
    pub type Gate = Option<(&'static str, u32)>;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Sync {
        #[default]
        Works,
        Hangs,
        Fails,
    }

    #[derive(Debug, Default)]
    struct Hanging {
        /// The projects that hang.
        files: Vec<String>,
        /// The threads that stand still there.
        threads: usize,
    }

    #[derive(Debug, Default)]
    pub struct Hooks {
        state: Mutex<(Sync, bool)>,
        changed: Condvar,
        released: Condvar,
        syncs: AtomicU64,
        gate: watch::Sender<Gate>,
        /// Commits that stand at the gate.
        pub held: watch::Sender<usize>,
        hanging: Mutex<Hanging>,
        /// Projects that take so many writes and no more, and why.
        refusing: Mutex<HashMap<String, (io::ErrorKind, u64)>>,
        /// Writes that were refused.
        refused: AtomicU64,
        /// Whether the index cannot be opened.
        no_index: AtomicBool,
    }

    impl Hooks {
        pub fn sync(&self, sync: Sync) {
            lock(&self.state).0 = sync;
            self.changed.notify_all();
        }

        /// Syncs of the log so far.
        pub fn syncs(&self) -> u64 {
            self.syncs.load(Ordering::Relaxed)
        }

        /// Holds up the commits that `gate` names from now on, and no others.
        pub fn hold(&self, gate: Gate) {
            self.gate.send_replace(gate);
        }

        /// From now on the project with these `files` hangs.
        pub fn hang(&self, files: &str) {
            lock(&self.hanging).files.push(files.to_owned());
        }

        /// No project hangs any more.
        pub fn release(&self) {
            lock(&self.hanging).files.clear();
            self.released.notify_all();
        }

        /// From now on the project with these `files` takes `writes` writes and then no more because of `kind`.
        pub fn refuse_after(&self, writes: u64, files: &str, kind: io::ErrorKind) {
            lock(&self.refusing).insert(files.to_owned(), (kind, writes));
        }

        /// From now on all projects take what is written.
        pub fn refuse_nothing(&self) {
            lock(&self.refusing).clear();
        }

        /// Writes that were refused so far.
        pub fn refused(&self) -> u64 {
            self.refused.load(Ordering::Relaxed)
        }

        /// How many threads stand still in a project.
        pub fn hung(&self) -> usize {
            lock(&self.hanging).threads
        }

        /// Whether the index cannot be opened from now on.
        pub fn no_index(&self, broken: bool) {
            self.no_index.store(broken, Ordering::Relaxed);
        }

        pub fn full(&self, full: bool) {
            lock(&self.state).1 = full;
        }
    }

    /// One more is held while this lives.
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
        /// Before a commit; `depth` tells that of its run.
        pub async fn before_commit(
            &self,
            depth: impl Fn(&Change) -> Option<u32>,
            changes: &[Change],
        ) {
            let names = |gate: &Gate| {
                gate.is_some_and(|(name, below)| {
                    let mut changes = changes.iter();
                    changes
                        .any(|change| change.event.name() == name && depth(change) == Some(below))
                })
            };
            let mut gate = self.inner.gate.subscribe();
            if !names(&gate.borrow_and_update()) {
                return;
            }
            let _held = Held::new(&self.inner.held);
            drop(gate.wait_for(|gate| !names(gate)).await);
        }

        /// Before a sync of the log.
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

        /// Before files of the project with these `files` are used.
        pub fn before_files(&self, files: &str) {
            let mut hanging = lock(&self.inner.hanging);
            hanging.threads += 1;
            while hanging.files.iter().any(|known| known == files) {
                hanging = self.inner.released.wait(hanging).expect(POISON);
            }
            hanging.threads -= 1;
        }

        /// Before the sealer reads how far is published.
        pub fn before_position(&self) {
            self.before_files(SEALER);
        }

        /// Before a file of a project is written.
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

        /// Before the index is opened.
        pub fn before_index(&self) -> io::Result<()> {
            if self.inner.no_index.load(Ordering::Relaxed) {
                return Err(io::Error::other("an index that fails on purpose"));
            }
            Ok(())
        }

        /// Before a log segment is prepared.
        pub fn before_prepare(&self) -> io::Result<()> {
            if lock(&self.inner.state).1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }
}
