//! Writes and syncs of history files. Tests make them fail; the syncs that they let pass are not made, as these would take most of the
//! tests' time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

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
        file.write_all_at(bytes, offset)
    }

    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        if cfg!(test) {
            #[cfg(test)]
            self.hooks.before_sync()?;
            return Ok(());
        }
        file.sync_data()
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
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Mutex;

    /// Call that fails next.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fail {
        /// A write, after half of its bytes.
        Write,
        /// A sync.
        Sync,
    }

    #[derive(Debug, Default)]
    pub(crate) struct Hooks(Mutex<Option<Fail>>);

    impl Hooks {
        /// Makes the next call of this kind fail, once.
        pub(crate) fn fail(&self, fail: Fail) {
            *self.0.lock().unwrap() = Some(fail);
        }

        fn takes(&self, fail: Fail) -> bool {
            let mut next = self.0.lock().unwrap();
            next.take_if(|next| *next == fail).is_some()
        }

        pub(super) fn before_write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
            if !self.takes(Fail::Write) {
                return Ok(());
            }
            file.write_all_at(&bytes[..bytes.len() / 2], at)?;
            Err(io::ErrorKind::StorageFull.into())
        }

        pub(super) fn before_sync(&self) -> io::Result<()> {
            if !self.takes(Fail::Sync) {
                return Ok(());
            }
            Err(io::Error::other("a sync that fails on purpose"))
        }
    }
}
