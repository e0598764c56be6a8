//! The objects of one project, named by the hash of their content.
//!
//! **Owns** the layout below `<files>/state/objects`:
//!
//! ```text
//! runs/<run id>.jsonl            objects of a run, one per line (see [`run_objects`](super::run_objects))
//! objects/ab/cd/<sha256>.json    an object that several runs share, as canonical JSON: a result in the cache
//! refs/graphs/<run id>.json      the newest snapshot of a run, signed by the node
//! cache/nodes/<key>.json         the result of a node, signed by the node
//! ```
//!
//! **Never** follows a symbolic link, and never returns an object whose content does not match its name. **Order**: an
//! object is complete before anything refers to it. Two writers of one object both succeed. **Failure**: a crash leaves
//! at most a hidden temporary file. Nothing is synced.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rye_core::digest::{Digest, Written};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::RunId;
use serde_json::Value;

use super::run_objects;
use rye_host::blobs::{PIECE, digest_of_file};
use rye_host::safe_path::{Dir, Draft};

/// Maximum length in bytes of an object that is read; more than the largest state of a run.
pub(super) const MAX_BYTES: u64 = 256 << 20;

/// Directory of the objects of a project below its `files` directory.
pub const OBJECTS: &str = "state/objects";
const SHARED: &str = "objects";
pub const REFS: &str = "refs/graphs";
const NODES: &str = "cache/nodes";

/// Counter that makes the temporary files of this process unique.
static TEMPORARIES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, thiserror::Error)]
pub enum ProjectObjectsError {
    #[error("there is no object {digest} in {}", path.display())]
    NotFound {
        digest: Digest,
        /// Directory of the project's objects.
        path: PathBuf,
    },
    #[error("failed to read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The content of the file does not match its name.
    #[error(
        "{} was changed after it was written: its content is {found}",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// Hash of the content.
        found: Digest,
    },
    /// The content matches the name but is not JSON.
    #[error("{} is not JSON", path.display())]
    Foreign {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Kinded for ProjectObjectsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Read { .. } => ErrorKind::Unavailable,
            Self::Damaged { .. } | Self::Foreign { .. } => ErrorKind::DataLoss,
        }
    }
}

/// Objects of a project. All methods block.
#[derive(Debug)]
pub struct ProjectObjects {
    root: Dir,
    path: PathBuf,
}

impl ProjectObjects {
    /// Opens the objects below `files` (the project's `.ai`, or its stand-in); `None` if there are none yet.
    pub fn open(files: &Path) -> io::Result<Option<Self>> {
        match Dir::root(files)?.enter(Path::new(OBJECTS)) {
            Ok(root) => Ok(Some(Self::at(root, files))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the objects below `files`, and creates their directory if necessary.
    pub fn make(files: &Path) -> io::Result<Self> {
        let root = Dir::root(files)?.state()?.make(Path::new("objects"))?;
        Ok(Self::at(root, files))
    }

    fn at(root: Dir, files: &Path) -> Self {
        Self {
            root,
            path: files.join(OBJECTS),
        }
    }

    /// Stores `object`. An intact existing file is not touched.
    pub fn put(&self, object: &Written) -> io::Result<()> {
        let leaf = leaf(&object.hash);
        let directory = match self.root.enter(&leaf) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.root.make(&leaf)?,
            directory => directory?,
        };
        let name = format!("{}.json", object.hash);
        // A damaged file is replaced.
        if let Some(mut there) = directory.look(&name)?
            && there.metadata()?.len() == object.bytes
            && digest_of_file(&mut there)?.to_string() == object.hash
        {
            return Ok(());
        }
        let mut draft = draft(&directory, &name)?;
        let mut out = BufWriter::with_capacity(PIECE, &mut draft.file);
        write!(out, "{object}")?;
        out.flush()?;
        drop(out);
        draft.rename(&name).map(drop)
    }

    /// Reads and verifies the object `digest`, and returns the run that has it. Searches the shared objects, then the
    /// runs `likely`, then all runs of the project.
    pub fn get(
        &self,
        digest: &Digest,
        likely: &[RunId],
    ) -> Result<(Value, Option<RunId>), ProjectObjectsError> {
        let missing = match self.shared(digest) {
            Ok(object) => return Ok((object, None)),
            Err(missing) => missing,
        };
        let path = self.path.join(run_objects::RUNS);
        let failed = |source| ProjectObjectsError::Read {
            path: path.clone(),
            source,
        };
        let runs = match self.root.enter(Path::new(run_objects::RUNS)) {
            Ok(runs) => runs,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing),
            Err(error) => return Err(failed(error)),
        };
        let likely: Vec<String> = likely.iter().map(run_objects::file_name).collect();
        let all = std::iter::once_with(|| runs.names());
        for names in std::iter::once(Ok(likely)).chain(all) {
            for name in names.map_err(failed)? {
                let found = run_objects::find(&runs, &name, digest).map_err(failed)?;
                if let Some(bytes) = found {
                    let run = run_objects::run_of(&name);
                    let path = path.join(name);
                    return serde_json::from_slice(&bytes)
                        .map(|object| (object, run))
                        .map_err(|source| ProjectObjectsError::Foreign { path, source });
                }
            }
        }
        Err(missing)
    }

    /// Reads and verifies the shared object `digest`.
    pub fn shared(&self, digest: &Digest) -> Result<Value, ProjectObjectsError> {
        let name = digest.to_string();
        let leaf = leaf(&name);
        let name = format!("{name}.json");
        let path = self.path.join(&leaf).join(&name);
        let directory = self.root.enter(&leaf);
        let read = directory.and_then(|directory| directory.read(&name, MAX_BYTES));
        let bytes = match read {
            Ok(Some(bytes)) => bytes,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let source = error;
                return Err(ProjectObjectsError::Read { path, source });
            }
            Ok(None) | Err(_) => {
                return Err(ProjectObjectsError::NotFound {
                    digest: *digest,
                    path: self.path.clone(),
                });
            }
        };
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(ProjectObjectsError::Damaged { path, found });
        }
        serde_json::from_slice(&bytes)
            .map_err(|source| ProjectObjectsError::Foreign { path, source })
    }

    /// Pointer to the newest snapshot of `run`, unverified; `None` if there is none.
    pub fn get_ref(&self, run: &RunId) -> io::Result<Option<Vec<u8>>> {
        self.pointer(REFS, &format!("{run}.json"))
    }

    /// Stores the signed `pointer` under the cache key `key`.
    pub fn put_cached(&self, key: &Digest, pointer: &[u8]) -> io::Result<()> {
        let nodes = self.root.make(Path::new(NODES))?;
        let name = format!("{key}.json");
        let mut draft = draft(&nodes, &name)?;
        draft.file.write_all(pointer)?;
        draft.rename(&name).map(drop)
    }

    /// Pointer under the cache key `key`, unverified; `None` if there is none.
    pub fn get_cached(&self, key: &Digest) -> io::Result<Option<Vec<u8>>> {
        self.pointer(NODES, &format!("{key}.json"))
    }

    /// All keys of the cache, in order.
    pub fn cached(&self) -> io::Result<Vec<Digest>> {
        let names = match self.root.enter(Path::new(NODES)) {
            Ok(nodes) => nodes.names()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let keys = names.iter().filter_map(|name| name.strip_suffix(".json"));
        Ok(keys.filter_map(|key| key.parse().ok()).collect())
    }

    /// Removes the pointer under the cache key `key`; returns false if there is none. The object stays.
    pub fn drop_cached(&self, key: &Digest) -> io::Result<bool> {
        match self.root.enter(Path::new(NODES)) {
            Ok(nodes) => nodes.remove(&format!("{key}.json")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn pointer(&self, directory: &str, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.root.enter(Path::new(directory)) {
            Ok(directory) => directory.read(name, 64 << 10),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Directory of an object.
fn leaf(hash: &str) -> PathBuf {
    Path::new(SHARED).join(&hash[..2]).join(&hash[2..4])
}

/// Begins a new file for `name`; concurrent writers are allowed.
fn draft<'d>(directory: &'d Dir, name: &str) -> io::Result<Draft<&'d Dir>> {
    let number = TEMPORARIES.fetch_add(1, Ordering::Relaxed);
    Draft::new(directory, format!(".{name}.{number}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rye_core::cas;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    fn vault() -> (tempfile::TempDir, ProjectObjects) {
        let files = tempfile::tempdir().unwrap();
        let vault = ProjectObjects::make(files.path()).unwrap();
        (files, vault)
    }

    fn digest(object: &Written) -> Digest {
        object.hash.parse().unwrap()
    }

    fn path(files: &Path, object: &Written) -> PathBuf {
        let leaf = leaf(&object.hash);
        let name = format!("{}.json", object.hash);
        files.join("state/objects").join(leaf).join(name)
    }

    #[test]
    fn object_is_stored_as_canonical_text_under_its_hash() {
        let (files, vault) = vault();
        let object = cas::node_result(Arc::new(json!({"b": 1, "a": [1.5, null]})));
        vault.put(&object).unwrap();
        vault.put(&object).unwrap();
        let (there, _) = vault.get(&digest(&object), &[]).unwrap();
        assert_eq!(there["result"], json!({"b": 1, "a": [1.5, null]}));
        let text = fs::read_to_string(path(files.path(), &object)).unwrap();
        assert_eq!(text, object.to_string());
        let leaf = path(files.path(), &object);
        let beside = fs::read_dir(leaf.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "no temporary file is left");
    }

    #[test]
    fn changed_object_is_refused_and_repaired_by_next_write() {
        let (files, vault) = vault();
        let object = cas::node_result(Arc::new(json!("true")));
        vault.put(&object).unwrap();
        let text = object.to_string();
        for forged in [text.replace("true", "evil"), text.repeat(2)] {
            let path = path(files.path(), &object);
            fs::write(&path, &forged).unwrap();
            let error = vault.get(&digest(&object), &[]).unwrap_err();
            assert!(
                matches!(error, ProjectObjectsError::Damaged { .. }),
                "{error}"
            );
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
            vault.put(&object).unwrap();
            vault.get(&digest(&object), &[]).unwrap();
        }
    }

    #[test]
    fn object_of_run_is_found_without_hint() {
        let (files, vault) = vault();
        let run = |name: &str| RunId::new(name).unwrap();
        let runs = files.path().join("state/objects/runs");
        fs::create_dir(&runs).unwrap();
        let objects = ["one", "two"].map(|text| cas::node_result(Arc::new(json!(text))));
        for (object, name) in objects.iter().zip(["run-a", "run-b"]) {
            let mut line = Vec::new();
            run_objects::write(&mut line, object).unwrap();
            fs::write(runs.join(format!("{name}.jsonl")), line).unwrap();
        }
        for likely in [vec![], vec![run("run-b")], vec![run("none"), run("run-a")]] {
            let (object, of) = vault.get(&digest(&objects[0]), &likely).unwrap();
            assert_eq!((&object["result"], of), (&json!("one"), Some(run("run-a"))));
        }
        let (_, of) = vault.get(&digest(&objects[1]), &[]).unwrap();
        assert_eq!(of, Some(run("run-b")));
    }

    #[test]
    fn missing_object_is_not_found() {
        let (_files, vault) = vault();
        let missing = Digest::of(b"nothing");
        let error = vault.get(&missing, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn project_links_are_never_followed() {
        let (files, vault) = vault();
        let outside = tempfile::tempdir().unwrap();
        let object = cas::node_result(Arc::new(json!(1)));
        let objects = files.path().join("state/objects/objects");
        fs::create_dir(&objects).unwrap();
        symlink(outside.path(), objects.join(&object.hash[..2])).unwrap();
        assert!(vault.put(&object).is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        symlink(outside.path(), files.path().join("state/objects/cache")).unwrap();
        assert!(vault.put_cached(&Digest::default(), b"{}").is_err());
        assert!(vault.cached().is_err());
    }

    #[test]
    fn project_without_objects_has_no_directory() {
        let files = tempfile::tempdir().unwrap();
        assert!(ProjectObjects::open(files.path()).unwrap().is_none());
        assert!(ProjectObjects::open(&files.path().join("gone")).is_err());
    }
}
