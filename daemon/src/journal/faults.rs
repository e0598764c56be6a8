//! Where tests hold commits up, and make the disk slow, full or broken. Without them these are empty functions.

#[cfg(not(test))]
use super::Change;

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    #[cfg(test)]
    pub(crate) inner: std::sync::Arc<hooks::Hooks>,
}

#[cfg(not(test))]
#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "the same shape as under test"
)]
impl Faults {
    pub(super) const fn before_sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) const fn before_prepare(&self) -> std::io::Result<()> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "the same shape as under test")]
    pub(super) async fn before_commit(
        &self,
        _depth: impl Fn(&Change) -> Option<u32>,
        _changes: &[Change],
    ) {
    }

    pub(crate) const fn before_files(&self, _files: &str) {}

    pub(crate) const fn before_write(&self, _files: &str) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) const fn before_index(&self) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) const fn before_position(&self) {}
}

#[cfg(test)]
pub(crate) mod hooks {
    use std::collections::HashMap;
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Condvar, Mutex};

    use tokio::sync::watch;

    use super::super::Change;
    use super::super::watermark::{POISON, lock};

    /// Hangs like a project: the sealer, after its first look for runs that ended.
    pub(crate) const SEALER: &str = "the sealer";

    /// Which commits are held up: those with an event of that name, of runs at that depth.
    pub(crate) type Gate = Option<(&'static str, u32)>;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) enum Sync {
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
    pub(crate) struct Hooks {
        state: Mutex<(Sync, bool)>,
        changed: Condvar,
        released: Condvar,
        syncs: AtomicU64,
        gate: watch::Sender<Gate>,
        /// Commits that stand at the gate.
        pub(crate) held: watch::Sender<usize>,
        hanging: Mutex<Hanging>,
        /// Projects that take so many writes and no more, and why.
        refusing: Mutex<HashMap<String, (io::ErrorKind, u64)>>,
        /// Writes that were refused.
        refused: AtomicU64,
        /// Whether the index cannot be opened.
        no_index: AtomicBool,
    }

    impl Hooks {
        pub(crate) fn sync(&self, sync: Sync) {
            lock(&self.state).0 = sync;
            self.changed.notify_all();
        }

        /// Syncs of the log so far.
        pub(crate) fn syncs(&self) -> u64 {
            self.syncs.load(Ordering::Relaxed)
        }

        /// Holds up the commits that `gate` names from now on, and no others.
        pub(crate) fn hold(&self, gate: Gate) {
            self.gate.send_replace(gate);
        }

        /// From now on the project with these `files` hangs.
        pub(crate) fn hang(&self, files: &str) {
            lock(&self.hanging).files.push(files.to_owned());
        }

        /// No project hangs any more.
        pub(crate) fn release(&self) {
            lock(&self.hanging).files.clear();
            self.released.notify_all();
        }

        /// From now on the project with these `files` takes `writes` writes and then no more because of `kind`.
        pub(crate) fn refuse_after(&self, writes: u64, files: &str, kind: io::ErrorKind) {
            lock(&self.refusing).insert(files.to_owned(), (kind, writes));
        }

        /// From now on all projects take what is written.
        pub(crate) fn refuse_nothing(&self) {
            lock(&self.refusing).clear();
        }

        /// Writes that were refused so far.
        pub(crate) fn refused(&self) -> u64 {
            self.refused.load(Ordering::Relaxed)
        }

        /// How many threads stand still in a project.
        pub(crate) fn hung(&self) -> usize {
            lock(&self.hanging).threads
        }

        /// Whether the index cannot be opened from now on.
        pub(crate) fn no_index(&self, broken: bool) {
            self.no_index.store(broken, Ordering::Relaxed);
        }

        pub(crate) fn full(&self, full: bool) {
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

    impl super::Faults {
        pub(crate) async fn before_commit(
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

        pub(crate) fn before_sync(&self) -> io::Result<()> {
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

        pub(crate) fn before_files(&self, files: &str) {
            let mut hanging = lock(&self.inner.hanging);
            hanging.threads += 1;
            while hanging.files.iter().any(|known| known == files) {
                hanging = self.inner.released.wait(hanging).expect(POISON);
            }
            hanging.threads -= 1;
        }

        pub(crate) fn before_position(&self) {
            self.before_files(SEALER);
        }

        pub(crate) fn before_write(&self, files: &str) -> io::Result<()> {
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

        pub(crate) fn before_index(&self) -> io::Result<()> {
            if self.inner.no_index.load(Ordering::Relaxed) {
                return Err(io::Error::other("an index that fails on purpose"));
            }
            Ok(())
        }

        pub(crate) fn before_prepare(&self) -> io::Result<()> {
            if lock(&self.inner.state).1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }
}
