//! The node cache of projects, and the way to their objects.
//!
//! **Owns** `cache/nodes` below a project's objects: under the hash over graph, node, action, chain and
//! configuration ([`rye_core::cas::InputScope`]) a pointer to the result, signed by the node. **Never** trusts the project: a pointer that is not
//! ours, is not of its key, or leads to an object that is not what it was is a miss, with a warning. So the worst that
//! somebody who may write to the project can do is to have a node carried out.
//!
//! **Order**: the result is there before the pointer to it. Whoever looks must have checked before that the action may be
//! carried out at all. **Failure**: what cannot be stored is a warning; the run continues without.

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

/// Why something about a project's objects cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was given is no hash.
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
    /// The object.
    #[error(transparent)]
    Object(#[from] ProjectObjectsError),
    /// The project keeps no objects.
    #[error("{files} holds no objects: no graph has run there")]
    Empty {
        /// Its `.ai`, or the stand-in.
        files: String,
    },
    /// The beginning of a key is that of several.
    #[error("`{beginning}` is the beginning of several keys; write more of it")]
    Vague {
        /// What was asked for.
        beginning: String,
    },
    /// The file system refused.
    #[error("failed to reach the objects of {files}")]
    Reach {
        /// Its `.ai`, or the stand-in.
        files: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is not one this node signed.
    #[error("the ref of run `{run}` in {files} is not one this node signed for it")]
    Forged {
        /// The run.
        run: RunId,
        /// The project's `.ai`, or the stand-in.
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
    /// Its key: the hash over graph, node, action, chain and configuration.
    pub key: String,
    /// The node that gave it; empty if the entry is not ours.
    pub node: String,
    /// The name of its `node_result` object; empty if the entry is not ours.
    pub node_result_hash: String,
    /// When it was stored.
    pub cached_at: Option<Timestamp>,
    /// Whether this node signed it: any other is never used.
    pub trusted: bool,
}

/// Runs that are remembered because an object was found with them.
const MAX_FOUND: usize = 16;
/// Digits of a key.
const WHOLE: usize = 64;
/// Fewest digits that stand for a key.
const SHORTEST: usize = 4;

/// Whether a text can be the beginning of a key.
fn is_beginning(text: &str) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() >= SHORTEST && text.bytes().all(is_digit)
}

/// The key among `keys` that begins so, if there is one.
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

/// What is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// What has this key, or a key that begins so and no other does.
    Key(String),
    /// Everything.
    All,
}

/// The objects of all projects. Cheap to clone; every call passes the gate of the project whose files it is about.
#[derive(Clone)]
pub struct Store {
    signer: Arc<dyn Signer>,
    /// Runs in which an object was found lately, with the projects' `files`; the last one at the end.
    found: Arc<Mutex<VecDeque<(String, RunId)>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// A store whose pointers are signed by `signer`.
    pub fn new(signer: Arc<dyn Signer>) -> Self {
        Self {
            signer,
            found: Arc::default(),
        }
    }

    /// The result stored under `key` in the project whose files are below `files`. Everything that is not exactly what this
    /// node stored is a miss.
    pub async fn find(&self, gate: &FilePool, files: &str, key: &str) -> Option<Value> {
        let this = self.clone();
        let (files, key) = (files.to_owned(), key.to_owned());
        let found = gate.pass("look into the node cache", move || {
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

    /// Stores the `result` of `node` under `key`. The next look that finds it may come from another run.
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
        let stored = gate.pass("store into the node cache", move || {
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

    /// Every entry of the cache of a project, by key.
    pub async fn list(&self, gate: &FilePool, files: &str) -> Result<Vec<Entry>, Error> {
        let this = self.clone();
        let files = files.to_owned();
        gate.pass("list the node cache", move || {
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

    /// Forgets entries of the cache of a project, and says how many. Their results stay as objects: receipts name them.
    pub async fn drop(&self, gate: &FilePool, files: &str, which: Which) -> Result<u64, Error> {
        let files = files.to_owned();
        gate.pass("drop from the node cache", move || {
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

    /// The object named `hash` of a project, verified.
    pub async fn object(&self, gate: &FilePool, files: &str, hash: &str) -> Result<Value, Error> {
        let digest: Digest = hash.parse()?;
        let (this, files) = (self.clone(), files.to_owned());
        gate.pass("read an object", move || {
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

    /// The name of the newest `execution_snapshot` of `run`, verified; `None` if the run was neither suspended nor ended yet.
    pub async fn snapshot_of(
        &self,
        gate: &FilePool,
        files: &str,
        run: &RunId,
    ) -> Result<Option<String>, Error> {
        let this = self.clone();
        let (files, run) = (files.to_owned(), run.clone());
        gate.pass("read a ref", move || {
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

    /// The runs of a project in which an object was found lately: they are looked through first, for what one object names is there too.
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

    /// What a pointer under `key` says, if it is ours and of this key.
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

    /// The signed object in `text`, if it is signed by this node.
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
