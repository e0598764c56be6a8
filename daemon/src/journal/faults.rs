//! Where tests make the disk slow, full or broken. Without them these are empty functions.

#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    #[cfg(test)]
    pub(super) inner: std::sync::Arc<hooks::Hooks>,
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

    pub(super) const fn before_files(&self, _files: &str) {}
}

#[cfg(test)]
pub(super) mod hooks {
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Condvar, Mutex};

    use super::super::watermark::{POISON, lock};

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(in super::super) enum Sync {
        #[default]
        Works,
        Hangs,
        Fails,
    }

    #[derive(Debug, Default)]
    pub(in super::super) struct Hooks {
        state: Mutex<(Sync, bool)>,
        changed: Condvar,
        released: Condvar,
        syncs: AtomicU64,
        /// The projects that hang, and the threads that stand still there.
        hanging: Mutex<(Vec<String>, usize)>,
    }

    impl Hooks {
        pub(in super::super) fn sync(&self, sync: Sync) {
            lock(&self.state).0 = sync;
            self.changed.notify_all();
        }

        /// Syncs of the log so far.
        pub(in super::super) fn syncs(&self) -> u64 {
            self.syncs.load(Ordering::Relaxed)
        }

        /// From now on the project with these `files` hangs.
        pub(in super::super) fn hang(&self, files: &str) {
            lock(&self.hanging).0.push(files.to_owned());
        }

        /// No project hangs any more.
        pub(in super::super) fn release(&self) {
            lock(&self.hanging).0.clear();
            self.released.notify_all();
        }

        /// How many threads stand still in a project.
        pub(in super::super) fn hung(&self) -> usize {
            lock(&self.hanging).1
        }

        pub(in super::super) fn full(&self, full: bool) {
            lock(&self.state).1 = full;
        }
    }

    impl super::Faults {
        pub(in super::super) fn before_sync(&self) -> io::Result<()> {
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

        pub(in super::super) fn before_files(&self, files: &str) {
            let mut hanging = lock(&self.inner.hanging);
            hanging.1 += 1;
            while hanging.0.iter().any(|known| known == files) {
                hanging = self.inner.released.wait(hanging).expect(POISON);
            }
            hanging.1 -= 1;
        }

        pub(in super::super) fn before_prepare(&self) -> io::Result<()> {
            if lock(&self.inner.state).1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }
}
