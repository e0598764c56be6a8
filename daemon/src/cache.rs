//! The node cache of projects, and access to their objects.
//!
//! **Owns** `cache/nodes` below a project's objects. The key is a hash over graph, node, action, chain and
//! configuration ([`rye_core::cas::InputScope`]); the value is a pointer to the result, signed by the node. **Never**
//! trusts the project. A pointer that this node did not sign, that is for another key, or that leads to a changed
//! object is a miss, with a warning. An attacker with write access to the project can at worst cause a node to be
//! executed.
//!
//! **Order**: the result is stored before the pointer to it. A caller of a lookup must have checked that the action may
//! be executed at all. **Failure**: a result that cannot be stored is a warning; the run continues without it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rye_core::cas;
use rye_core::clock::Timestamp;
use rye_core::digest::{Digest, InvalidDigest};
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::RunId;
use rye_core::model::Object;
use rye_core::seal;
use serde_json::{Value, json};

use crate::object::{ProjectObjects, ProjectObjectsError};
use rye_host::file_pool::FilePool;
use rye_journal::Signer;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
    #[error(transparent)]
    Object(#[from] ProjectObjectsError),
    /// The project has no objects.
    #[error("{files} holds no objects: no graph has run there")]
    Empty {
        /// The project's `.ai`, or its stand-in.
        files: String,
    },
    /// Several keys begin with the given prefix.
    #[error("`{beginning}` is the beginning of several keys; write more of it")]
    Vague {
        /// The given prefix.
        beginning: String,
    },
    #[error("failed to reach the objects of {files}")]
    Reach {
        /// The project's `.ai`, or its stand-in.
        files: String,
        #[source]
        source: std::io::Error,
    },
    /// This node did not sign the file.
    #[error("the ref of run `{run}` in {files} is not one this node signed for it")]
    Forged {
        run: RunId,
        /// The project's `.ai`, or its stand-in.
        files: String,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Digest(_) | Self::Vague { .. } => ErrorKind::Invalid,
            Self::Object(source) => source.kind(),
            Self::Empty { .. } => ErrorKind::NotFound,
            Self::Reach { .. } => ErrorKind::Unavailable,
            Self::Forged { .. } => ErrorKind::DataLoss,
        }
    }
}

/// A result in the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Hash over graph, node, action, chain and configuration.
    pub key: String,
    /// Graph node of the result; empty if the entry is not trusted.
    pub node: String,
    /// Name of the `node_result` object; empty if the entry is not trusted.
    pub node_result_hash: String,
    /// Time of the write.
    pub cached_at: Option<Timestamp>,
    /// True if this node signed the entry. Other entries are never used.
    pub trusted: bool,
}

/// Capacity of the list of runs in which objects were found.
const MAX_FOUND: usize = 16;
/// Number of digits of a key.
const WHOLE: usize = 64;
/// Minimum number of digits of a key prefix.
const SHORTEST: usize = 4;

/// True if `text` can be a prefix of a key.
fn is_beginning(text: &str) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() >= SHORTEST && text.bytes().all(is_digit)
}

/// The key among `keys` that begins with `beginning`, if any; an error if there are several.
fn begun(keys: Vec<Digest>, beginning: String) -> Result<Vec<Digest>, Error> {
    let found: Vec<Digest> = keys
        .into_iter()
        .filter(|key| key.to_string().starts_with(&beginning))
        .collect();
    match found.len() {
        0 | 1 => Ok(found),
        _ => Err(Error::Vague { beginning }),
    }
}

/// Selection of entries to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The entry with this key, or with the only key that has this prefix.
    Key(String),
    All,
}

/// Objects of all projects. Cheap to clone; every call passes the file pool of its project.
#[derive(Clone)]
pub struct Store {
    signer: Arc<dyn Signer>,
    /// Runs in which an object was found, with the `files` of their projects; the most recent last.
    found: Arc<Mutex<VecDeque<(String, RunId)>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Makes a store whose pointers are signed by `signer`.
    pub fn new(signer: Arc<dyn Signer>) -> Self {
        Self {
            signer,
            found: Arc::default(),
        }
    }

    /// Returns the result stored under `key` in the project with the directory `files`. An entry that is not exactly as
    /// this node stored it is a miss.
    pub async fn find(&self, gate: &FilePool, files: &str, key: &str) -> Option<Value> {
        let this = self.clone();
        let (files, key) = (files.to_owned(), key.to_owned());
        let found = gate.run("look into the node cache", move || {
            this.look(&files, &key).map_err(|error| (key, error))
        });
        match found.await {
            Ok(found) => found,
            Err((key, error)) => {
                tracing::warn!(%key, error = %with_sources(&error), "a cached result is not used");
                None
            }
        }
    }

    fn look(&self, files: &str, key: &str) -> Result<Option<Value>, Error> {
        let digest: Digest = key.parse()?;
        let Some(vault) = open(files)? else {
            return Ok(None);
        };
        let pointer = vault
            .get_cached(&digest)
            .map_err(|source| reach(files, source))?;
        let Some(pointer) = pointer else {
            return Ok(None);
        };
        let entry = self.entry(&digest, &pointer);
        if !entry.trusted {
            tracing::warn!(%key, files, "a cached result is not one this node stored; it is not used");
            return Ok(None);
        }
        let mut object = vault.shared(&entry.node_result_hash.parse()?)?;
        Ok(object.get_mut("result").map(Value::take))
    }

    /// Stores the `result` of `node` under `key`, for later lookups of any run.
    pub async fn store(
        &self,
        gate: &FilePool,
        files: &str,
        key: &str,
        node: &str,
        result: &Arc<Value>,
        at: Timestamp,
    ) {
        let object = cas::node_result(Arc::clone(result));
        let pointer = Object::from_iter([
            ("key".to_owned(), json!(key)),
            ("node_result_hash".to_owned(), json!(object.hash)),
            ("node_name".to_owned(), json!(node)),
            ("cached_at".to_owned(), json!(at.to_string())),
        ]);
        let this = self.clone();
        let (files, key) = (files.to_owned(), key.to_owned());
        let stored = gate.run("store into the node cache", move || {
            let digest: Digest = key.parse()?;
            let pointer = text(&this.signer.sign_json(&pointer, at));
            let vault =
                ProjectObjects::make(Path::new(&files)).map_err(|source| reach(&files, source))?;
            let stored = vault
                .put(&object)
                .and_then(|()| vault.put_cached(&digest, &pointer));
            stored.map_err(|source| reach(&files, source))
        });
        if let Err(error) = stored.await {
            tracing::warn!(error = %with_sources(&error), "a result could not be cached");
        }
    }

    /// All entries of a project's cache, ordered by key.
    pub async fn list(&self, gate: &FilePool, files: &str) -> Result<Vec<Entry>, Error> {
        let this = self.clone();
        let files = files.to_owned();
        gate.run("list the node cache", move || {
            let Some(vault) = open(&files)? else {
                return Ok(Vec::new());
            };
            let keys = vault.cached().map_err(|source| reach(&files, source))?;
            let mut entries = Vec::with_capacity(keys.len());
            for key in keys {
                let pointer = vault.get_cached(&key);
                let pointer = pointer.map_err(|source| reach(&files, source))?;
                entries.extend(pointer.map(|pointer| this.entry(&key, &pointer)));
            }
            Ok(entries)
        })
        .await
    }

    /// Drops entries of a project's cache and returns their number. Their results stay as objects because receipts
    /// refer to them.
    pub async fn drop(&self, gate: &FilePool, files: &str, which: Which) -> Result<u64, Error> {
        let files = files.to_owned();
        gate.run("drop from the node cache", move || {
            let Some(vault) = open(&files)? else {
                return Ok(0);
            };
            let failed = |source| reach(&files, source);
            let keys = match which {
                Which::Key(key) if key.len() < WHOLE && is_beginning(&key) => {
                    begun(vault.cached().map_err(failed)?, key)?
                }
                Which::Key(key) => vec![key.parse()?],
                Which::All => vault.cached().map_err(failed)?,
            };
            let mut dropped = 0;
            for key in keys {
                dropped += u64::from(vault.drop_cached(&key).map_err(failed)?);
            }
            Ok(dropped)
        })
        .await
    }

    /// Reads and verifies the object `hash` of a project.
    pub async fn object(&self, gate: &FilePool, files: &str, hash: &str) -> Result<Value, Error> {
        let digest: Digest = hash.parse()?;
        let (this, files) = (self.clone(), files.to_owned());
        gate.run("read an object", move || {
            let Some(vault) = open(&files)? else {
                return Err(Error::Empty { files });
            };
            let (object, run) = vault.get(&digest, &this.likely(&files))?;
            if let Some(run) = run {
                this.remember(files, run);
            }
            Ok(object)
        })
        .await
    }

    /// Name of the newest `execution_snapshot` of `run`, verified; `None` if the run has not been suspended or ended
    /// yet.
    pub async fn snapshot_of(
        &self,
        gate: &FilePool,
        files: &str,
        run: &RunId,
    ) -> Result<Option<String>, Error> {
        let this = self.clone();
        let (files, run) = (files.to_owned(), run.clone());
        gate.run("read a ref", move || {
            let Some(vault) = open(&files)? else {
                return Ok(None);
            };
            let pointer = vault
                .get_ref(&run)
                .map_err(|source| reach(&files, source))?;
            let Some(pointer) = pointer else {
                return Ok(None);
            };
            let hash = this
                .signed(&pointer)
                .filter(|object| object["graph_run_id"] == json!(run));
            let hash = hash.and_then(|object| object["hash"].as_str().map(str::to_owned));
            hash.map(Some).ok_or(Error::Forged { run, files })
        })
        .await
    }

    /// Runs of a project in which an object was found recently, the most recent first. They are searched first, because
    /// an object's references are usually in the same file.
    fn likely(&self, files: &str) -> Vec<RunId> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = found.iter().rev().filter(|(project, _)| project == files);
        runs.map(|(_, run)| run.clone()).collect()
    }

    fn remember(&self, files: String, run: RunId) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = (files, run);
        found.retain(|known| *known != entry);
        if found.len() == MAX_FOUND {
            found.pop_front();
        }
        found.push_back(entry);
    }

    /// Content of a pointer; the fields are empty unless this node signed it for `key`.
    fn entry(&self, key: &Digest, pointer: &[u8]) -> Entry {
        let key = key.to_string();
        let ours = self
            .signed(pointer)
            .filter(|object| object["key"] == json!(key));
        let text = |field: &str| {
            let object = ours.as_ref();
            let value = object.and_then(|object| object[field].as_str());
            value.unwrap_or_default().to_owned()
        };
        Entry {
            node: text("node_name"),
            node_result_hash: text("node_result_hash"),
            cached_at: Timestamp::parse(&text("cached_at")),
            trusted: ours.is_some(),
            key,
        }
    }

    /// Parses the signed object in `text`; `None` if this node did not sign it.
    fn signed(&self, text: &[u8]) -> Option<Value> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let token = seal::verify_json(value.as_object()?).ok()?;
        self.signer.verifies(&token).then_some(value)
    }
}

fn open(files: &str) -> Result<Option<ProjectObjects>, Error> {
    ProjectObjects::open(Path::new(files)).map_err(|source| reach(files, source))
}

fn reach(files: &str, source: std::io::Error) -> Error {
    Error::Reach {
        files: files.to_owned(),
        source,
    }
}

fn text(object: &Object) -> Vec<u8> {
    serde_json::to_vec(object).expect("a JSON object is plain data")
}

#[cfg(test)]
mod tests;
