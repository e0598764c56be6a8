//! Key-value store of the index: sled, or memory while sled cannot be used.
//!
//! **Owns** batches, and the guarantee that written keys are on disk. A store in memory is counted in the memory limit
//! of all runs, and has a limit of its own. **Failure.** sled returns errors and panics; both are errors here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rye_core::memory::{Charge, Memory};

use crate::index::IndexError;
use crate::watermark::lock;

const CACHE_BYTES: u64 = 16 << 20;
/// Keys that are written between two syncs. After a power cut sled can lose an index with more than 500 unsynced keys.
const MAX_UNSYNCED: usize = 400;
/// Limit in bytes on keys and values of an index in memory: some hundred thousand runs.
const MOST_IN_MEMORY: usize = 256 << 20;
/// Approximate overhead of a map entry in bytes.
const ENTRY: usize = 96;

/// Keys with their new values; `None` deletes a key.
pub(crate) type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub(crate) type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Keys and their values. A clone is another handle on the same store.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    Sled(Tree),
    Memory(Arc<Mutex<Kept>>),
}

/// A sled database, whose last handle writes when it is dropped, and panics if it cannot.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    db: Option<sled::Db>,
    /// File of the database.
    file: Arc<Path>,
}

#[derive(Debug)]
pub(crate) struct Kept {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    charge: Charge,
}

/// Runs `work` on sled, which panics on some damaged files.
fn guarded<T>(work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(IndexError::Panicked))
}

impl Drop for Tree {
    fn drop(&mut self) {
        let db = self.db.take();
        if let Err(error) = guarded(|| {
            drop(db);
            Ok(())
        }) {
            tracing::warn!(%error, "the index was not closed in good order");
        }
    }
}

impl Tree {
    /// Runs `work` on the database.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&sled::Db) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let db = self.db.as_ref().expect("it is taken when it is dropped");
        guarded(|| work(db))
    }
}

impl Kept {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), IndexError> {
        let more = match self.map.get(&key) {
            Some(earlier) => value.len().saturating_sub(earlier.len()),
            None => key.len() + value.len() + ENTRY,
        };
        if self.bytes + more > MOST_IN_MEMORY || !self.charge.grow(more) {
            return Err(IndexError::TooLarge);
        }
        self.bytes += more;
        let length = value.len();
        if let Some(earlier) = self.map.insert(key, value) {
            let less = earlier.len().saturating_sub(length);
            self.bytes = self.bytes.saturating_sub(less);
            self.charge.shrink(less);
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.map.remove(key) {
            let less = key.len() + value.len() + ENTRY;
            self.bytes = self.bytes.saturating_sub(less);
            self.charge.shrink(less);
        }
    }
}

impl Store {
    /// Opens the database in `dir`. Blocks.
    pub(crate) fn open(dir: &Path) -> Result<Self, IndexError> {
        guarded(|| {
            let config = sled::Config::new()
                .path(dir)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(None);
            let db = Some(config.open()?);
            let file = dir.join("db").into();
            Ok(Self::Sled(Tree { db, file }))
        })
    }

    /// Returns an empty store in memory.
    pub(crate) fn in_memory(memory: &Arc<Memory>) -> Self {
        Self::Memory(Arc::new(Mutex::new(Kept {
            map: BTreeMap::new(),
            bytes: 0,
            charge: memory.open(),
        })))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        match self {
            Self::Sled(tree) => tree.with(|db| Ok(db.get(key)?.map(|value| value.to_vec()))),
            Self::Memory(kept) => Ok(lock(kept).map.get(key).cloned()),
        }
    }

    /// Writes all of `batch` in its order, up to [`MAX_UNSYNCED`] keys at once. On return sled has it on disk: sled
    /// flushes with `sync_file_range`, which does not survive a power cut, so the file is synced through a descriptor
    /// of our own. Blocks.
    pub(crate) fn write(&self, batch: Batch) -> Result<(), IndexError> {
        match self {
            Self::Sled(tree) => {
                let mut batch = batch.into_iter().peekable();
                while batch.peek().is_some() {
                    let part = batch.by_ref().take(MAX_UNSYNCED);
                    tree.with(|db| {
                        let mut changes = sled::Batch::default();
                        for (key, value) in part {
                            match value {
                                Some(value) => changes.insert(key, value),
                                None => changes.remove(key),
                            }
                        }
                        db.apply_batch(changes)?;
                        db.flush()?;
                        Ok(())
                    })?;
                    File::open(&tree.file)?.sync_data()?;
                }
                Ok(())
            }
            Self::Memory(kept) => {
                let mut kept = lock(kept);
                batch.into_iter().try_for_each(|(key, value)| {
                    let Some(value) = value else {
                        kept.remove(&key);
                        return Ok(());
                    };
                    kept.put(key, value)
                })
            }
        }
    }

    /// Passes the keys of `range` to `look`, the last first, until it breaks.
    pub(crate) fn backwards(
        &self,
        range: Range,
        mut look: impl FnMut(&[u8]) -> Result<ControlFlow<()>, IndexError>,
    ) -> Result<(), IndexError> {
        match self {
            Self::Sled(tree) => tree.with(|db| {
                for key in db.range(range).keys().rev() {
                    if look(&key?)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }),
            Self::Memory(kept) => {
                let (from, mut to) = range;
                loop {
                    // Unlocked while `look` runs, because it reads values.
                    let next = {
                        let kept = lock(kept);
                        let mut rest = kept.map.range((from.clone(), to));
                        rest.next_back().map(|(key, _)| key.clone())
                    };
                    let Some(key) = next else { return Ok(()) };
                    if look(&key)?.is_break() {
                        return Ok(());
                    }
                    to = Bound::Excluded(key);
                }
            }
        }
    }
}

/// Renames `dir` to `index.broken-<n>`.
pub(crate) fn set_aside(dir: &Path) -> std::io::Result<()> {
    if !fs::exists(dir)? {
        return Ok(());
    }
    let mut number = 1_u64;
    let aside = |number| dir.with_extension(format!("broken-{number}"));
    while fs::exists(aside(number))? {
        number += 1;
    }
    fs::rename(dir, aside(number))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn bytes_in_memory_are_those_of_the_present_values() {
        let store = Store::in_memory(&Arc::new(Memory::new(usize::MAX)));
        let Store::Memory(kept) = &store else {
            unreachable!("it is in memory")
        };
        let write = |value: Option<&[u8]>| {
            let batch = vec![(b"key".to_vec(), value.map(<[u8]>::to_vec))];
            store.write(batch).unwrap();
            lock(kept).bytes
        };
        let empty = 3 + ENTRY;
        assert_eq!(write(Some(b"a long value")), empty + 12);
        assert_eq!(write(Some(b"")), empty);
        assert_eq!(write(Some(b"more")), empty + 4);
        assert_eq!(write(None), 0);
    }

    #[test]
    fn long_batch_is_written_whole() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let key = |number: usize| number.to_be_bytes().to_vec();
        let all = 0..=2 * MAX_UNSYNCED;
        let batch = all.clone().map(|number| (key(number), Some(key(number))));
        store.write(batch.collect()).unwrap();
        for number in all {
            assert_eq!(store.get(&key(number)).unwrap(), Some(key(number)));
        }
    }

    #[test]
    #[expect(
        unsafe_code,
        reason = "the file of the index is made one that refuses every write"
    )]
    fn index_survives_failed_write_on_drop() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let Store::Sled(tree) = &store else {
            unreachable!("it was opened")
        };
        tree.with(|db| Ok(db.insert("not yet", "on disk")?))
            .unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = fs::canonicalize(&tree.file).unwrap();
        let mut found = 0;
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            let entry = entry.unwrap().path();
            if fs::read_link(&entry).is_ok_and(|target| target == file) {
                let number = entry.file_name().unwrap().to_str().unwrap();
                // SAFETY: the descriptor is sled's, which keeps using it under its number and closes it.
                let replaced =
                    unsafe { libc::dup2(full.as_raw_fd(), number.parse::<i32>().unwrap()) };
                assert!(replaced >= 0);
                found += 1;
            }
        }
        assert!(found > 0, "the file is open");
        drop(store);
    }

    #[test]
    fn memory_index_is_bounded_by_memory_limit() {
        let memory = Arc::new(Memory::new(1000));
        let store = Store::in_memory(&memory);
        let pair = |key: &str| (key.as_bytes().to_vec(), Some(vec![0; 200]));
        store.write(vec![pair("a"), pair("b"), pair("c")]).unwrap();
        let taken = memory.taken();
        assert!((600..1000).contains(&taken), "{taken}");
        let full = store.write(vec![pair("d")]);
        assert!(matches!(full, Err(IndexError::TooLarge)), "{full:?}");
        // A deleted key frees its memory.
        store.write(vec![(b"a".to_vec(), None), pair("a")]).unwrap();
        assert_eq!(memory.taken(), taken);
        let mut seen = Vec::new();
        let from_b = (Bound::Included(b"b".to_vec()), Bound::Unbounded);
        let look = |key: &[u8]| {
            assert!(store.get(key)?.is_some());
            seen.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        store.backwards(from_b, look).unwrap();
        assert_eq!(seen, [b"c", b"b"]);
        drop(store);
        assert_eq!(memory.taken(), 0);
    }
}
