//! Writes, syncs and renames of history files. Tests make them fail, or have the daemon killed before them. Under test
//! no sync is executed, because syncs would take most of the time of the tests.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rye_host::fail_point::{self, FailPlace};

#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    #[cfg(test)]
    pub(super) hooks: std::sync::Arc<hooks::Hooks>,
}

#[cfg_attr(
    not(test),
    expect(clippy::unused_self, reason = "the same shape as under test")
)]
impl Faults {
    pub(super) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.hooks.before_write(file, bytes, offset)?;
        fail_point::reach(FailPlace::HistoryWrite);
        file.write_all_at(bytes, offset)
    }

    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        if cfg!(test) {
            #[cfg(test)]
            self.hooks.before(hooks::Call::Sync)?;
            return Ok(());
        }
        fail_point::reach(FailPlace::HistorySync);
        file.sync_data()
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[cfg(test)]
        self.hooks.before(hooks::Call::Rename)?;
        fail_point::reach(FailPlace::HistoryReplace);
        fs::rename(from, to)
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        #[cfg(test)]
        self.hooks.before(hooks::Call::SyncDir)?;
        fail_point::reach(FailPlace::HistoryDirectory);
        sync_dir(dir)
    }
}

/// Syncs the entries of a directory.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(test) {
        return Ok(());
    }
    File::open(dir)?.sync_all()
}

#[cfg(test)]
pub(super) mod hooks {
    use std::fmt;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Mutex;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Call {
        /// Half of the bytes are written when the hook of this call runs.
        Write,
        Sync,
        Rename,
        SyncDir,
    }

    type Hook = Box<dyn FnMut(Call) -> io::Result<()> + Send>;

    #[derive(Default)]
    pub(crate) struct Hooks(Mutex<Option<Hook>>);

    impl fmt::Debug for Hooks {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Hooks").finish_non_exhaustive()
        }
    }

    impl Hooks {
        /// Makes the next call of this kind fail, once.
        pub(crate) fn fail(&self, fails: Call) {
            let mut is_due = true;
            self.set(move |call| {
                if call == fails && std::mem::take(&mut is_due) {
                    return Err(error(call));
                }
                Ok(())
            });
        }

        /// Runs `hook` in each call; the call fails with its error.
        pub(crate) fn set(&self, hook: impl FnMut(Call) -> io::Result<()> + Send + 'static) {
            *self.0.lock().unwrap() = Some(Box::new(hook));
        }

        pub(crate) fn clear(&self) {
            *self.0.lock().unwrap() = None;
        }

        pub(super) fn before_write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
            if self.0.lock().unwrap().is_some() {
                file.write_all_at(&bytes[..bytes.len() / 2], at)?;
            }
            self.before(Call::Write)
        }

        pub(super) fn before(&self, call: Call) -> io::Result<()> {
            let mut hook = self.0.lock().unwrap();
            hook.as_mut().map_or(Ok(()), |hook| hook(call))
        }
    }

    pub(crate) fn error(call: Call) -> io::Error {
        match call {
            Call::Write => io::ErrorKind::StorageFull.into(),
            Call::Sync => io::Error::other("a sync that fails on purpose"),
            Call::Rename | Call::SyncDir => io::Error::other("a call that fails on purpose"),
        }
    }
}
