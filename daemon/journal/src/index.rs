//! The index of ended runs, in sled. It never holds the only copy of any data.
//!
//! **Owns** `<state>/index`. The key `applied` holds the last position of history whose runs are all in the index. It
//! is written after them. **Failure.** An index that panics, fails or contradicts history is renamed to
//! `index.broken-<n>` and rebuilt. If that fails too, an index in memory replaces it until it works
//! ([`Index::in_memory`]).
//!
//! ```text
//! applied/6                                                u64, big endian
//! r/<run id>                                               Entry as JSON
//! c/<created at, u64 big endian><run id>                   (empty)
//! p/<parent run id> NUL <created at, u64 big endian><run id>  (empty)
//! k/<principal> NUL <start key>                            run id; of a removed run also NUL and time of removal
//! a/<account id>                                           ClosedAccount as JSON
//! ```

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::history::{self, Removal, RemovedRun, SectionReader, SectionRef};
use rye_core::clock::Timestamp;
use rye_core::id::{Lsn, Name, RunId};
use rye_core::ledger::{Account, AccountId, Cost};
use rye_core::memory::Memory;
use rye_core::model::Run;
use rye_core::state::{Age, Closed};
use serde::{Deserialize, Serialize};

use self::store::{Batch, Store};
use crate::base::Stored;
use crate::record::stored;

mod keeper;
mod store;
mod summary;

pub(crate) use keeper::Keeper;
pub use summary::Summary;

/// Runs whose keys are collected before they are written; a run has about five keys.
const BATCH: usize = 80;
/// Number of runs that are read from history before they are added.
const REBUILT: usize = 4000;
/// The number is the version of the layout. An index of another layout lacks this key, and is filled again from
/// history.
const APPLIED: &[u8] = b"applied/6";

/// State of the index for readers.
#[derive(Debug, Clone)]
pub(crate) enum IndexState {
    Opening,
    Ready(Index),
    Broken(Arc<IndexError>),
}

/// Index entry of an ended run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    version: u32,
    pub(crate) summary: Summary,
    /// Position of its last event, which finds its record in history.
    pub(crate) lsn: Lsn,
    /// Directory with the files of its project.
    files: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_key: Option<String>,
    /// The accounts in its record, each with its final cost.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    accounts: BTreeMap<AccountId, Cost>,
}

/// Index entry of a closed account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClosedAccount {
    /// The run whose record holds the account as it was last closed.
    pub(crate) by: RunId,
    /// Final cost of the account and all accounts below it.
    pub(crate) cost: Cost,
    /// The account itself, after that run was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Box<Account>>,
}

/// An account of another run that was in the record of a removed run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptAccount {
    pub(crate) id: AccountId,
    /// The removed run.
    pub(crate) by: RunId,
    pub(crate) account: Box<Account>,
}

/// The run that was started with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOwner {
    Run(RunId),
    /// The run was removed at that time.
    Removed(RunId, Timestamp),
}

impl Entry {
    pub(crate) fn new(run: &Run, closed: &Closed, lsn: Lsn) -> Self {
        Self {
            version: 1,
            summary: Summary::of(run),
            lsn,
            files: run.spec.files.as_str().into(),
            start_key: run.spec.start_key.clone(),
            accounts: closed
                .iter()
                .map(|(id, account)| (id.clone(), account.cost().unwrap_or_default()))
                .collect(),
        }
    }

    /// Returns the entry for the run of a final record; `None` if history has no event of it.
    fn of_stored(stored: &Stored) -> Option<Self> {
        let lsn = stored.spans.last()?.lsn;
        Some(Self::new(&stored.run, &stored.closed, lsn))
    }
}

impl Entry {
    /// Adds the keys of this entry to `batch`.
    fn put(&self, batch: &mut Batch) -> Result<(), IndexError> {
        let Summary {
            id,
            parent,
            created_at,
            principal,
            ..
        } = &self.summary;
        let value = serde_json::to_vec(self).map_err(IndexError::Value)?;
        batch.push((run_key(id), Some(value)));
        let created = |prefix: &[u8]| created_key(prefix, *created_at, id.as_str());
        batch.push((created(&all()), Some(Vec::new())));
        if let Some(parent) = parent {
            batch.push((created(&below(parent)), Some(Vec::new())));
        }
        if let Some(key) = &self.start_key {
            let key = start_key(&joined(principal, key));
            batch.push((key, Some(id.as_str().into())));
        }
        for (account, cost) in &self.accounts {
            let closed = ClosedAccount {
                by: id.clone(),
                cost: *cost,
                kept: None,
            };
            let closed = serde_json::to_vec(&closed).map_err(IndexError::Value)?;
            batch.push((account_key(account), Some(closed)));
        }
        Ok(())
    }

    /// Adds the deletion of the keys of this entry to `batch`, except its start key.
    fn take(&self, batch: &mut Batch) {
        let Summary {
            id,
            parent,
            created_at,
            ..
        } = &self.summary;
        let created = |prefix: &[u8]| created_key(prefix, *created_at, id.as_str());
        batch.push((run_key(id), None));
        batch.push((created(&all()), None));
        batch.extend(parent.iter().map(|parent| (created(&below(parent)), None)));
        let accounts = self.accounts.keys();
        batch.extend(accounts.map(|account| (account_key(account), None)));
    }

    /// Returns the run in the form of a removal.
    pub(crate) fn removed(&self) -> RemovedRun {
        let Summary { id, principal, .. } = &self.summary;
        let key = self.start_key.as_ref();
        RemovedRun {
            run: id.clone(),
            files: Name::clone(&self.files),
            item: self.summary.item.id.as_str().into(),
            start_key: key.map(|key| joined(principal, key).into()),
        }
    }

    /// True if its record holds the account of a run that is not in `removed`.
    pub(crate) fn holds_others(&self, removed: &HashSet<&RunId>) -> bool {
        self.accounts
            .keys()
            .any(|AccountId(run)| !removed.contains(run))
    }
}

/// Reason why the index cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index does not work")]
    Sled(#[from] sled::Error),
    #[error("the index panicked")]
    Panicked,
    /// A value cannot be decoded.
    #[error("the index holds a value that is not ours")]
    Value(#[source] serde_json::Error),
    /// The index is ahead of history, or names a run that history does not hold.
    #[error("the index does not belong to this history")]
    Foreign,
    /// The index is being built from history.
    #[error("the index of ended runs is being built from history; ask again in a while")]
    Building,
    /// Memory has no more room for an index.
    #[error(
        "the index cannot be used on disk, and there are too many ended runs to find them without it; the reason \
         is in the log of the daemon"
    )]
    TooLarge,
    #[error("the index is closed")]
    Closed,
    #[error("the files of the index cannot be used")]
    Files(#[from] io::Error),
}

/// Finds ended runs. A clone is another handle on the same index.
#[derive(Debug, Clone)]
pub(crate) struct Index(Store);

impl Index {
    /// Opens the index in `state` and brings it up to date with `history`. Renames a broken one and builds a new one.
    /// Blocks.
    fn open(state: &Path, history: &history::Store) -> Result<Self, IndexError> {
        let dir = directory(state);
        let opened = || Self(Store::open(&dir)?).up_to(history);
        opened().or_else(|error| {
            tracing::warn!(%error, "the index is set aside and built again");
            store::set_aside(&dir)?;
            opened()
        })
    }

    /// Builds an index of `history` in memory. Blocks.
    fn in_memory(history: &history::Store, memory: &Arc<Memory>) -> Result<Self, IndexError> {
        Self(Store::in_memory(memory)).up_to(history)
    }

    /// Adds the runs of all sections that are not in the index yet. Entries that cannot be read are left out and
    /// logged.
    fn up_to(self, history: &history::Store) -> Result<Self, IndexError> {
        let applied = self.applied()?;
        if applied > history.last() {
            return Err(IndexError::Foreign);
        }
        let mut batch = Vec::new();
        let mut last = applied;
        for section in history.sections(applied) {
            last = section.last();
            let Some(read) = read_section(&section) else {
                continue;
            };
            batch.extend(entries_of(&read));
            let removed = &read.directory().removed;
            if batch.len() >= REBUILT || !removed.is_empty() {
                self.apply(&std::mem::take(&mut batch), removed, last)?;
            }
        }
        self.apply(&batch, &[], last)?;
        Ok(self)
    }

    fn applied(&self) -> Result<Lsn, IndexError> {
        let value = self.0.get(APPLIED)?;
        match value.map(<[u8; 8]>::try_from) {
            None => Ok(Lsn::default()),
            Some(Ok(bytes)) => Ok(Lsn(u64::from_be_bytes(bytes))),
            Some(Err(_)) => Err(IndexError::Foreign),
        }
    }

    /// Adds `entries`, then applies the removals `removed`. Together they are everything in history after the applied
    /// position, up to `last`. All of it is on disk on return. Blocks.
    pub(crate) fn apply(
        &self,
        entries: &[Entry],
        removed: &[Removal],
        last: Lsn,
    ) -> Result<(), IndexError> {
        if self.applied()? >= last {
            return Ok(());
        }
        for entries in entries.chunks(BATCH) {
            let mut batch = Vec::with_capacity(5 * entries.len());
            for entry in entries {
                entry.put(&mut batch)?;
            }
            self.0.write(batch)?;
        }
        for removal in removed {
            self.remove(removal)?;
        }
        let applied = last.0.to_be_bytes().to_vec();
        self.0.write(vec![(APPLIED.to_vec(), Some(applied))])
    }

    /// Removes the runs of `removal`. Keeps their start keys as tombstones, and the accounts of other runs. It is on
    /// disk on return. Blocks.
    pub(crate) fn remove(&self, removal: &Removal) -> Result<(), IndexError> {
        for runs in removal.runs.chunks(BATCH) {
            let mut batch = Vec::with_capacity(5 * runs.len());
            for RemovedRun {
                run,
                start_key: key,
                ..
            } in runs
            {
                if let Some(entry) = self.run(run)? {
                    entry.take(&mut batch);
                }
                // The record of another run may have closed its account.
                batch.push((account_key(&AccountId(run.clone())), None));
                let tombstone = format!("{run}\0{}", removal.at.ms()).into_bytes();
                batch.extend(
                    key.iter()
                        .map(|key| (start_key(key), Some(tombstone.clone()))),
                );
            }
            self.0.write(batch)?;
        }
        let mut kept = Batch::new();
        for account in &removal.kept {
            let KeptAccount { id, by, account } =
                serde_json::from_str(account.get()).map_err(IndexError::Value)?;
            let closed = ClosedAccount {
                by,
                cost: account.cost().unwrap_or_default(),
                kept: Some(account),
            };
            let closed = serde_json::to_vec(&closed).map_err(IndexError::Value)?;
            kept.push((account_key(&id), Some(closed)));
        }
        if kept.is_empty() {
            Ok(())
        } else {
            self.0.write(kept)
        }
    }

    pub(crate) fn run(&self, id: &RunId) -> Result<Option<Entry>, IndexError> {
        let value = self.0.get(&run_key(id))?;
        value
            .map(|value| serde_json::from_slice(&value).map_err(IndexError::Value))
            .transpose()
    }

    /// Returns the ended or removed run that `principal` started with `key`.
    pub(crate) fn by_start_key(
        &self,
        principal: &str,
        key: &str,
    ) -> Result<Option<KeyOwner>, IndexError> {
        let value = self.0.get(&start_key(&joined(principal, key)))?;
        let value = value.and_then(|value| String::from_utf8(value).ok());
        Ok(value.and_then(|value| {
            let Some((id, at)) = value.split_once('\0') else {
                return RunId::new(value).ok().map(KeyOwner::Run);
            };
            let at = Timestamp::from_ms(at.parse().ok()?);
            Some(KeyOwner::Removed(RunId::new(id).ok()?, at))
        }))
    }

    pub(crate) fn closed(&self, account: &AccountId) -> Result<Option<ClosedAccount>, IndexError> {
        let value = self.0.get(&account_key(account))?;
        value
            .map(|value| serde_json::from_slice(&value).map_err(IndexError::Value))
            .transpose()
    }

    /// Passes the ended runs older than `before` to `take`, newest first, until it breaks. With `parent`, only the
    /// child runs of that run.
    pub(crate) fn newest_first(
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
            // A missing run was removed during the iteration.
            let entry = self.run(&id)?;
            Ok(entry.map_or(ControlFlow::Continue(()), |entry| take(entry.summary)))
        })
    }
}

fn report(error: &dyn std::fmt::Display) {
    tracing::error!(%error, "ended runs in a damaged part of history cannot be found");
}

/// Returns `None` and logs the error if the section is damaged.
fn read_section(section: &SectionRef) -> Option<SectionReader> {
    section.read().map_err(|error| report(&error)).ok()
}

/// Returns the entries of the runs that ended in `section`. If an entry cannot be read, all are derived from the
/// records, and runs whose record cannot be read are left out.
fn entries_of(section: &SectionReader) -> Vec<Entry> {
    let entry = |text: Result<(RunId, Vec<u8>), history::Error>| {
        let entry = serde_json::from_slice(&text.ok()?.1);
        entry.ok()
    };
    let entries: Option<Vec<Entry>> = section.entries().map(entry).collect();
    if let Some(entries) = entries {
        return entries;
    }
    let mut entries = Vec::new();
    for record in section.records() {
        let record = record.map_err(|error| report(&error));
        let stored = record.map(|(_, record)| stored::read::<Stored>(&record));
        match stored {
            Ok(Ok(stored)) => entries.extend(Entry::of_stored(&stored)),
            Ok(Err(error)) => report(&error),
            Err(()) => {}
        }
    }
    entries
}

fn run_key(id: &RunId) -> Vec<u8> {
    [b"r/", id.as_str().as_bytes()].concat()
}

/// Prefix of the keys of all runs in the order of their creation.
fn all() -> Vec<u8> {
    b"c/".to_vec()
}

/// Prefix of the keys of the child runs of `parent` in the order of their creation.
fn below(parent: &RunId) -> Vec<u8> {
    [b"p/", parent.as_str().as_bytes(), b"\0"].concat()
}

fn created_key(prefix: &[u8], at: Timestamp, id: &str) -> Vec<u8> {
    let at = u64::try_from(at.ms()).unwrap_or(0);
    [prefix, &at.to_be_bytes(), id.as_bytes()].concat()
}

fn joined(principal: &str, key: &str) -> String {
    format!("{principal}\0{key}")
}

/// Returns the key for `joined`, a start key with its principal.
fn start_key(joined: &str) -> Vec<u8> {
    [b"k/", joined.as_bytes()].concat()
}

fn account_key(account: &AccountId) -> Vec<u8> {
    format!("a/{account}").into_bytes()
}

pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join("index")
}
