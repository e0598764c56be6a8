//! The index of ended runs: sled, which is never the only copy of anything.
//!
//! **Owns** `<state>/index`. One key, `applied`, says up to which byte of the archive everything is in; it is written in
//! the same batch as what it vouches for. sled 0.34 flushes with `sync_file_range`, which a power cut does not respect, so
//! after every flush its file is synced through a descriptor of our own, at least every [`BATCH`] runs.
//! **Failure**: an index that panics, fails or contradicts the archive is set aside (`index.broken-<n>`) and built again.
//!
//! ```text
//! applied/4                                                u64, big endian
//! r/<run id>                                               Entry as JSON
//! c/<created at, u64 big endian><run id>                   (empty)
//! p/<parent run id> NUL <created at, u64 big endian><run id>  (empty)
//! k/<principal> NUL <start key>                            run id
//! a/<account id>                                           ClosedAccount as JSON
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::{Bound, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::ledger::{AccountId, Cost};
use rye_core::model::Run;
use rye_core::state::{Age, Closed};
use serde::{Deserialize, Serialize};

use super::Summary;
use super::archive::{Archive, ArchiveOffset};

/// Runs in one batch: five keys each, seldom more, below the 500 keys after which a sync is due.
const BATCH: usize = 80;
const CACHE_BYTES: u64 = 16 << 20;
/// The number is that of the layout: an index of another one does not have it, and is filled again from the archive.
const APPLIED: &[u8] = b"applied/4";

/// What the index knows about an ended run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    version: u32,
    pub(super) summary: Summary,
    pub(super) offset: ArchiveOffset,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_key: Option<String>,
    /// The accounts in its record, with what each came to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    accounts: BTreeMap<AccountId, Cost>,
}

/// What the index knows about an account that was closed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClosedAccount {
    /// The run whose record holds it as it was last closed.
    pub(super) by: RunId,
    /// What it and all below it came to.
    pub(super) cost: Cost,
}

impl Entry {
    pub(super) fn new(run: &Run, closed: &Closed, offset: ArchiveOffset) -> Self {
        Self {
            version: 1,
            summary: Summary::of(run),
            offset,
            start_key: run.spec.start_key.clone(),
            accounts: closed
                .iter()
                .map(|(id, account)| (id.clone(), account.cost().unwrap_or_default()))
                .collect(),
        }
    }
}

/// Why the index does not answer.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// sled failed.
    #[error("the index does not work")]
    Sled(#[from] sled::Error),
    /// sled panicked.
    #[error("the index panicked")]
    Panicked,
    /// A value is not what was stored.
    #[error("the index holds a value that is not ours")]
    Value(#[source] serde_json::Error),
    /// The position in it does not fit the archive.
    #[error("the index does not belong to this archive")]
    Foreign,
    /// The journal was closed.
    #[error("the index is closed")]
    Closed,
    /// Its files, or the archive, cannot be read or written.
    #[error("the files of the index cannot be used")]
    Files(#[from] io::Error),
}

/// Runs `work` on sled, which is known to panic on images it does not like.
fn guarded<T>(work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(IndexError::Panicked))
}

#[derive(Debug, Clone)]
pub(super) struct Index {
    db: Store,
    dir: PathBuf,
}

/// sled, whose last handle writes when it is dropped, and panics if it cannot.
#[derive(Debug, Clone)]
struct Store(Option<sled::Db>);

impl Deref for Store {
    type Target = sled::Db;

    fn deref(&self) -> &sled::Db {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let db = self.0.take();
        if let Err(error) = guarded(|| {
            drop(db);
            Ok(())
        }) {
            tracing::warn!(%error, "the index was not closed in good order");
        }
    }
}

impl Index {
    /// Opens the index in `state` and brings it up to the archive; sets a broken one aside and builds it again. Blocks.
    pub(super) fn open(state: &Path, archive: &Archive) -> Result<Self, IndexError> {
        match guarded(|| Self::try_open(state, archive)) {
            Ok(index) => Ok(index),
            Err(error) => {
                tracing::warn!(%error, "the index is set aside and built again");
                set_aside(state)?;
                guarded(|| Self::try_open(state, archive))
            }
        }
    }

    fn try_open(state: &Path, archive: &Archive) -> Result<Self, IndexError> {
        let dir = directory(state);
        let db = sled::Config::new()
            .path(&dir)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None)
            .open()?;
        let db = Store(Some(db));
        let index = Self { db, dir };
        let applied = index.applied()?;
        let length = archive.length()?;
        if applied > length {
            return Err(IndexError::Foreign);
        }
        let mut batch = Vec::new();
        let end = archive.scan(applied, |offset, _, stored| {
            batch.push(Entry::new(&stored.run, &stored.closed, offset));
            if batch.len() == BATCH {
                index.apply(&std::mem::take(&mut batch))?;
            }
            Ok::<(), IndexError>(())
        })?;
        index.apply(&batch)?;
        if end < length {
            tracing::error!(
                byte = end,
                "the archive is damaged; ended runs behind that byte cannot be found"
            );
        }
        Ok(index)
    }

    fn applied(&self) -> Result<u64, IndexError> {
        let value = guarded(|| Ok(self.db.get(APPLIED)?))?;
        match value.map(|value| <[u8; 8]>::try_from(value.as_ref())) {
            None => Ok(0),
            Some(Ok(bytes)) => Ok(u64::from_be_bytes(bytes)),
            Some(Err(_)) => Err(IndexError::Foreign),
        }
    }

    /// Puts in `entries`, which come in the order of the archive; they are on disk when this returns. What is in already
    /// is passed over, so that `applied` never goes back. Blocks.
    pub(super) fn apply(&self, entries: &[Entry]) -> Result<(), IndexError> {
        if entries.is_empty() {
            return Ok(());
        }
        let applied = self.applied()?;
        let news: Vec<&Entry> = entries
            .iter()
            .filter(|entry| entry.offset.offset >= applied)
            .collect();
        for entries in news.chunks(BATCH) {
            let mut batch = sled::Batch::default();
            for entry in entries {
                let Summary {
                    id,
                    parent,
                    created_at,
                    principal,
                    ..
                } = &entry.summary;
                let value = serde_json::to_vec(entry).map_err(IndexError::Value)?;
                batch.insert(run_key(id), value);
                batch.insert(created_key(&all(), *created_at, id.as_str()), &[]);
                if let Some(parent) = parent {
                    batch.insert(created_key(&below(parent), *created_at, id.as_str()), &[]);
                }
                if let Some(key) = &entry.start_key {
                    batch.insert(start_key(principal, key), id.as_str());
                }
                for (account, cost) in &entry.accounts {
                    let (by, cost) = (id.clone(), *cost);
                    let closed = serde_json::to_vec(&ClosedAccount { by, cost });
                    batch.insert(account_key(account), closed.map_err(IndexError::Value)?);
                }
                batch.insert(APPLIED, &entry.offset.end().to_be_bytes());
            }
            guarded(|| {
                self.db.apply_batch(batch)?;
                self.db.flush()?;
                Ok(())
            })?;
            File::open(self.dir.join("db"))?.sync_data()?;
        }
        Ok(())
    }

    /// The ended run `id`.
    pub(super) fn run(&self, id: &RunId) -> Result<Option<Entry>, IndexError> {
        let value = guarded(|| Ok(self.db.get(run_key(id))?))?;
        value
            .map(|value| serde_json::from_slice(&value).map_err(IndexError::Value))
            .transpose()
    }

    /// The ended run that `principal` started with `key`.
    pub(super) fn by_start_key(
        &self,
        principal: &str,
        key: &str,
    ) -> Result<Option<RunId>, IndexError> {
        let value = guarded(|| Ok(self.db.get(start_key(principal, key))?))?;
        Ok(value
            .and_then(|value| String::from_utf8(value.to_vec()).ok())
            .and_then(|id| RunId::new(id).ok()))
    }

    /// An account that was closed.
    pub(super) fn closed(&self, account: &AccountId) -> Result<Option<ClosedAccount>, IndexError> {
        let value = guarded(|| Ok(self.db.get(account_key(account))?))?;
        value
            .map(|value| serde_json::from_slice(&value).map_err(IndexError::Value))
            .transpose()
    }

    /// Ended runs older than `before`, the child runs of `parent` if one is given, newest first, as long as `take` says so.
    pub(super) fn newest_first(
        &self,
        parent: Option<&RunId>,
        before: Option<&Age>,
        mut take: impl FnMut(Summary) -> Going,
    ) -> Result<(), IndexError> {
        let prefix = parent.map_or_else(all, below);
        let end = match before {
            Some((at, id)) => created_key(&prefix, *at, id.as_str()),
            None => [prefix.as_slice(), &[u8::MAX; 8]].concat(),
        };
        let bounds = (Bound::Included(prefix.clone()), Bound::Excluded(end));
        guarded(|| {
            for key in self.db.range(bounds).keys().rev() {
                let key = key?;
                let id = key
                    .get(prefix.len() + 8..)
                    .and_then(|id| std::str::from_utf8(id).ok())
                    .and_then(|id| RunId::new(id).ok())
                    .ok_or(IndexError::Foreign)?;
                let entry = self.run(&id)?.ok_or(IndexError::Foreign)?;
                if take(entry.summary) == Going::Stop {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Whether a walk continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    On,
    Stop,
}

fn run_key(id: &RunId) -> Vec<u8> {
    [b"r/", id.as_str().as_bytes()].concat()
}

/// What the keys of all runs in the order of their creation begin with.
fn all() -> Vec<u8> {
    b"c/".to_vec()
}

/// What the keys of the child runs of `parent` in the order of their creation begin with.
fn below(parent: &RunId) -> Vec<u8> {
    [b"p/", parent.as_str().as_bytes(), b"\0"].concat()
}

fn created_key(prefix: &[u8], at: Timestamp, id: &str) -> Vec<u8> {
    let at = u64::try_from(at.ms()).unwrap_or(0);
    [prefix, &at.to_be_bytes(), id.as_bytes()].concat()
}

fn start_key(principal: &str, key: &str) -> Vec<u8> {
    [b"k/", principal.as_bytes(), b"\0", key.as_bytes()].concat()
}

fn account_key(account: &AccountId) -> Vec<u8> {
    format!("a/{account}").into_bytes()
}

pub(super) fn directory(state: &Path) -> PathBuf {
    state.join("index")
}

fn set_aside(state: &Path) -> io::Result<()> {
    let dir = directory(state);
    if !fs::exists(&dir)? {
        return Ok(());
    }
    let mut number = 1_u64;
    while fs::exists(state.join(format!("index.broken-{number}")))? {
        number += 1;
    }
    fs::rename(dir, state.join(format!("index.broken-{number}")))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    #[expect(
        unsafe_code,
        reason = "the file of the index is made one that refuses every write"
    )]
    fn an_index_that_cannot_be_written_when_it_is_closed_brings_nobody_down() {
        let state = tempfile::tempdir().unwrap();
        let archive = Archive::open(state.path()).unwrap();
        let index = Index::open(state.path(), &archive).unwrap();
        index.db.insert("not yet", "on disk").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = fs::canonicalize(directory(state.path()).join("db")).unwrap();
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
        drop(index);
    }
}
