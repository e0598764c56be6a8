//! The index of ended runs: sled, which is never the only copy of anything.
//!
//! **Owns** `<state>/index`. One key, `applied`, says up to which byte of the archive everything is in; it is written in
//! the same batch as what it vouches for, at least every [`BATCH`] runs.
//! **Failure**: an index that panics, fails or contradicts the archive is set aside (`index.broken-<n>`) and built again; where that
//! fails too there is one in memory until it works ([`Index::in_memory`]), which is made of the archive alike.
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
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::clock::Timestamp;
use rye_core::id::RunId;
use rye_core::ledger::{AccountId, Cost};
use rye_core::memory::Memory;
use rye_core::model::Run;
use rye_core::state::{Age, Closed};
use serde::{Deserialize, Serialize};

use self::store::Store;
use super::Summary;
use super::archive::{Archive, ArchiveOffset};

mod store;

/// Runs in one batch: five keys each, seldom more, below the 500 keys after which a sync is due.
const BATCH: usize = 80;
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

impl Entry {
    /// Adds what the index holds for it.
    fn put(&self, batch: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), IndexError> {
        let Summary {
            id,
            parent,
            created_at,
            principal,
            ..
        } = &self.summary;
        let value = serde_json::to_vec(self).map_err(IndexError::Value)?;
        batch.push((run_key(id), value));
        let created = |prefix: &[u8]| created_key(prefix, *created_at, id.as_str());
        batch.push((created(&all()), Vec::new()));
        if let Some(parent) = parent {
            batch.push((created(&below(parent)), Vec::new()));
        }
        if let Some(key) = &self.start_key {
            batch.push((start_key(principal, key), id.as_str().into()));
        }
        for (account, cost) in &self.accounts {
            let (by, cost) = (id.clone(), *cost);
            let closed = serde_json::to_vec(&ClosedAccount { by, cost });
            batch.push((account_key(account), closed.map_err(IndexError::Value)?));
        }
        batch.push((APPLIED.into(), self.offset.end().to_be_bytes().into()));
        Ok(())
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
    /// It is still being made of the archive.
    #[error("the index of ended runs is being built from the archive; ask again in a while")]
    Building,
    /// There is no more room for it in memory.
    #[error(
        "the index cannot be used on disk, and there are too many ended runs to find them without it; what keeps it from working \
         stands in the log of the daemon"
    )]
    TooLarge,
    /// The journal was closed.
    #[error("the index is closed")]
    Closed,
    /// Its files, or the archive, cannot be read or written.
    #[error("the files of the index cannot be used")]
    Files(#[from] io::Error),
}

/// Finds ended runs. A copy is another handle.
#[derive(Debug, Clone)]
pub(super) struct Index(Store);

impl Index {
    /// Opens the index in `state` and brings it up to the archive; sets a broken one aside and builds it again. Blocks.
    pub(super) fn open(state: &Path, archive: &Archive) -> Result<Self, IndexError> {
        let dir = directory(state);
        let opened = || Self(Store::open(&dir)?).up_to(archive);
        opened().or_else(|error| {
            tracing::warn!(%error, "the index is set aside and built again");
            store::set_aside(&dir)?;
            opened()
        })
    }

    /// An index of `archive` in memory. Blocks.
    pub(super) fn in_memory(archive: &Archive, memory: &Arc<Memory>) -> Result<Self, IndexError> {
        Self(Store::in_memory(memory)).up_to(archive)
    }

    /// The same with all that stands in `archive`.
    fn up_to(self, archive: &Archive) -> Result<Self, IndexError> {
        let applied = self.applied()?;
        let length = archive.length()?;
        if applied > length {
            return Err(IndexError::Foreign);
        }
        let mut batch = Vec::new();
        let end = archive.scan(applied, |offset, _, stored| {
            batch.push(Entry::new(&stored.run, &stored.closed, offset));
            if batch.len() == BATCH {
                self.apply(&std::mem::take(&mut batch))?;
            }
            Ok::<(), IndexError>(())
        })?;
        self.apply(&batch)?;
        if end < length {
            tracing::error!(
                byte = end,
                "the archive is damaged; ended runs behind that byte cannot be found"
            );
        }
        Ok(self)
    }

    fn applied(&self) -> Result<u64, IndexError> {
        let value = self.0.get(APPLIED)?;
        match value.map(<[u8; 8]>::try_from) {
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
            let mut batch = Vec::with_capacity(5 * entries.len());
            for entry in entries {
                entry.put(&mut batch)?;
            }
            self.0.write(batch)?;
        }
        Ok(())
    }

    /// The ended run `id`.
    pub(super) fn run(&self, id: &RunId) -> Result<Option<Entry>, IndexError> {
        let value = self.0.get(&run_key(id))?;
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
        let value = self.0.get(&start_key(principal, key))?;
        Ok(value
            .and_then(|value| String::from_utf8(value).ok())
            .and_then(|id| RunId::new(id).ok()))
    }

    /// An account that was closed.
    pub(super) fn closed(&self, account: &AccountId) -> Result<Option<ClosedAccount>, IndexError> {
        let value = self.0.get(&account_key(account))?;
        value
            .map(|value| serde_json::from_slice(&value).map_err(IndexError::Value))
            .transpose()
    }

    /// Ended runs older than `before`, the child runs of `parent` if one is given, newest first, as long as `take` says so.
    pub(super) fn newest_first(
        &self,
        parent: Option<&RunId>,
        before: Option<&Age>,
        mut take: impl FnMut(Summary) -> ControlFlow<()>,
    ) -> Result<(), IndexError> {
        let prefix = parent.map_or_else(all, below);
        let end = match before {
            Some((at, id)) => created_key(&prefix, *at, id.as_str()),
            None => [prefix.as_slice(), &[u8::MAX; 8]].concat(),
        };
        let bounds = (Bound::Included(prefix.clone()), Bound::Excluded(end));
        self.0.backwards(bounds, |key| {
            let id = key
                .get(prefix.len() + 8..)
                .and_then(|id| std::str::from_utf8(id).ok())
                .and_then(|id| RunId::new(id).ok())
                .ok_or(IndexError::Foreign)?;
            let entry = self.run(&id)?.ok_or(IndexError::Foreign)?;
            Ok(take(entry.summary))
        })
    }
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
