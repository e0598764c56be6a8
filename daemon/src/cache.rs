//! The node cache of projects, and the way to their objects.
//!
//! **Owns** `cache/nodes` below a project's objects: under the hash over graph, node, action, chain and
//! configuration ([`rye_core::cas::InputScope`]) a pointer to the result, signed by the node. **Never** trusts the project: a pointer that is not
//! ours, is not of its key, or leads to an object that is not what it was is a miss, with a warning. So the worst that
//! somebody who may write to the project can do is to have a node carried out.
//!
//! **Order**: the result is there before the pointer to it. Whoever looks must have checked before that the action may be
//! carried out at all. **Failure**: what cannot be stored is a warning; the run continues without.

use std::path::Path;
use std::sync::Arc;

use rye_core::cas;
use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded, with_sources};
use rye_core::id::RunId;
use rye_core::model::Object;
use rye_core::seal;
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::journal::Signer;
use crate::object::{Digest, InvalidDigest, ProjectObjects, ProjectObjectsError};

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
            Self::Digest(_) => ErrorKind::Invalid,
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

/// What is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// What has this key.
    Key(String),
    /// Everything.
    All,
}

/// The objects of all projects. Cheap to clone; every call passes the gate of the project whose files it is about.
#[derive(Clone)]
pub struct Store {
    signer: Arc<dyn Signer>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// A store whose pointers are signed by `signer`.
    pub fn new(signer: Arc<dyn Signer>) -> Self {
        Self { signer }
    }

    /// The result stored under `key` in the project whose files are below `files`. Everything that is not exactly what this
    /// node stored is a miss.
    pub async fn find(&self, gate: &Gate, files: &str, key: &str) -> Option<Value> {
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
        let mut object = vault.get(&entry.node_result_hash.parse()?)?;
        Ok(object.get_mut("result").map(Value::take))
    }

    /// Stores the `result` of `node` under `key`. The next look that finds it may come from another run.
    pub async fn store(
        &self,
        gate: &Gate,
        files: &str,
        key: &str,
        node: &str,
        result: &Value,
        at: Timestamp,
    ) {
        let object = cas::node_result(result);
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
    pub async fn list(&self, gate: &Gate, files: &str) -> Result<Vec<Entry>, Error> {
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
    pub async fn drop(&self, gate: &Gate, files: &str, which: Which) -> Result<u64, Error> {
        let files = files.to_owned();
        gate.pass("drop from the node cache", move || {
            let Some(vault) = open(&files)? else {
                return Ok(0);
            };
            let failed = |source| reach(&files, source);
            let keys = match which {
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
    pub async fn object(&self, gate: &Gate, files: &str, hash: &str) -> Result<Value, Error> {
        let digest: Digest = hash.parse()?;
        let files = files.to_owned();
        gate.pass("read an object", move || {
            let Some(vault) = open(&files)? else {
                return Err(Error::Empty { files });
            };
            Ok(vault.get(&digest)?)
        })
        .await
    }

    /// The name of the newest `execution_snapshot` of `run`, verified; `None` if the run was neither suspended nor ended yet.
    pub async fn snapshot_of(
        &self,
        gate: &Gate,
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
        let ours = self.signer.verify_hex(&token.to_string(), &token.hash);
        ours.then_some(value)
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
mod tests {
    use super::*;
    use rye_core::seal::{SecretKey, Token, sign_json};
    use std::fs;
    use std::path::PathBuf;

    const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

    struct Node(SecretKey);

    impl Signer for Node {
        fn sign_hex(&self, hash: &str, at: Timestamp) -> String {
            Token::sign(hash.to_owned(), &self.0, at).to_string()
        }

        fn sign_text(&self, body: &str, _at: Timestamp) -> String {
            body.to_owned()
        }

        fn sign_json(&self, object: &Object, at: Timestamp) -> Object {
            let mut object = object.clone();
            sign_json(&mut object, &self.0, at);
            object
        }

        fn verify_hex(&self, token: &str, hash: &str) -> bool {
            Token::parse(token)
                .is_some_and(|token| token.hash == hash && token.verify(self.0.public()).is_ok())
        }
    }

    fn store(seed: u8) -> Store {
        Store::new(Arc::new(Node(SecretKey::from_seed(&[seed; 32]))))
    }

    struct Project(tempfile::TempDir);

    impl Project {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn files(&self) -> &str {
            self.0.path().to_str().unwrap()
        }

        fn pointer(&self, key: &str) -> PathBuf {
            let name = format!("state/objects/cache/nodes/{key}.json");
            self.0.path().join(name)
        }

        fn object(&self, hash: &str) -> PathBuf {
            let name = format!(
                "state/objects/objects/{}/{}/{hash}.json",
                &hash[..2],
                &hash[2..4]
            );
            self.0.path().join(name)
        }
    }

    async fn stored() -> (Project, Store) {
        let (project, store) = (Project::new(), store(1));
        let at = Timestamp::from_ms(1_771_840_801_234);
        assert_eq!(
            store.find(&Gate::default(), project.files(), KEY).await,
            None
        );
        store
            .store(
                &Gate::default(),
                project.files(),
                KEY,
                "a",
                &json!({"n": 1}),
                at,
            )
            .await;
        (project, store)
    }

    #[tokio::test]
    async fn what_is_stored_is_found_under_its_key_and_no_other() {
        let (project, store) = stored().await;
        assert_eq!(
            store.find(&Gate::default(), project.files(), KEY).await,
            Some(json!({"n": 1}))
        );
        assert_eq!(
            store.find(&Gate::default(), project.files(), OTHER).await,
            None
        );
        assert_eq!(
            store
                .find(&Gate::default(), project.files(), "no hash")
                .await,
            None
        );
    }

    #[tokio::test]
    async fn a_pointer_that_this_node_did_not_make_for_this_key_is_a_miss() {
        let (project, ours) = stored().await;
        let good = fs::read(project.pointer(KEY)).unwrap();
        let mut altered: Value = serde_json::from_slice(&good).unwrap();
        altered["node_name"] = json!("b");
        let mut unsigned = altered.clone();
        unsigned.as_object_mut().unwrap().shift_remove("_signature");
        for forged in [
            altered.to_string(),
            unsigned.to_string(),
            "{".to_owned(),
            "[]".to_owned(),
        ] {
            fs::write(project.pointer(KEY), &forged).unwrap();
            assert_eq!(
                ours.find(&Gate::default(), project.files(), KEY).await,
                None,
                "{forged}"
            );
        }
        // A good one of another key.
        fs::write(project.pointer(OTHER), &good).unwrap();
        assert_eq!(
            ours.find(&Gate::default(), project.files(), OTHER).await,
            None
        );
        // A good one of another node.
        fs::write(project.pointer(KEY), &good).unwrap();
        assert_eq!(
            store(2).find(&Gate::default(), project.files(), KEY).await,
            None
        );
        assert_eq!(
            ours.find(&Gate::default(), project.files(), KEY).await,
            Some(json!({"n": 1}))
        );
    }

    #[tokio::test]
    async fn a_pointer_to_an_object_that_was_changed_or_is_gone_is_a_miss() {
        let (project, store) = stored().await;
        let entry = store
            .list(&Gate::default(), project.files())
            .await
            .unwrap()
            .remove(0);
        let object = project.object(&entry.node_result_hash);
        let text = fs::read_to_string(&object).unwrap();
        fs::write(&object, text.replace('1', "2")).unwrap();
        assert_eq!(
            store.find(&Gate::default(), project.files(), KEY).await,
            None
        );
        let error = store
            .object(&Gate::default(), project.files(), &entry.node_result_hash)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataLoss, "{error}");
        fs::remove_file(&object).unwrap();
        assert_eq!(
            store.find(&Gate::default(), project.files(), KEY).await,
            None
        );
    }

    #[tokio::test]
    async fn the_cache_can_be_listed_and_dropped_and_its_objects_stay() {
        let (project, store) = stored().await;
        let files = project.files();
        let at = Timestamp::from_ms(0);
        store
            .store(&Gate::default(), files, OTHER, "b", &json!(2), at)
            .await;
        fs::write(project.pointer(&"9".repeat(64)), "{}").unwrap();
        let entries = store.list(&Gate::default(), files).await.unwrap();
        let told: Vec<_> = entries
            .iter()
            .map(|entry| (entry.node.as_str(), entry.trusted))
            .collect();
        assert_eq!(told, [("a", true), ("", false), ("b", true)]);
        assert_eq!(
            entries[0].cached_at,
            Some(Timestamp::from_ms(1_771_840_801_234))
        );
        assert_eq!(
            store
                .drop(&Gate::default(), files, Which::Key(KEY.into()))
                .await
                .unwrap(),
            1
        );
        assert_eq!(
            store
                .drop(&Gate::default(), files, Which::Key(KEY.into()))
                .await
                .unwrap(),
            0
        );
        assert_eq!(store.find(&Gate::default(), files, KEY).await, None);
        let result = store
            .object(&Gate::default(), files, &entries[0].node_result_hash)
            .await
            .unwrap();
        assert_eq!(result["result"], json!({"n": 1}));
        assert_eq!(
            store
                .drop(&Gate::default(), files, Which::All)
                .await
                .unwrap(),
            2
        );
        assert_eq!(store.list(&Gate::default(), files).await.unwrap(), []);
        assert!(
            store
                .drop(&Gate::default(), files, Which::Key("../x".into()))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_project_where_no_graph_ran_has_an_empty_cache_and_no_objects() {
        let (project, store) = (Project::new(), store(1));
        let files = project.files();
        assert_eq!(store.list(&Gate::default(), files).await.unwrap(), []);
        assert_eq!(
            store
                .drop(&Gate::default(), files, Which::All)
                .await
                .unwrap(),
            0
        );
        assert_eq!(
            store
                .snapshot_of(&Gate::default(), files, &RunId::new("r-1").unwrap())
                .await
                .unwrap(),
            None
        );
        let error = store
            .object(&Gate::default(), files, KEY)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}
