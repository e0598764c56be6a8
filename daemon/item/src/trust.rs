//! Trusted keys: `config/keys/trusted/<fingerprint>.toml` in the user and the system space.
//!
//! **Owns** reading, checking and writing of these files. A key shipped inside a project does not count until the user
//! has accepted it, which writes it to the user space.
//!
//! An entry counts if its file name is the fingerprint of its key, and if it is unsigned, signed by its own key, or
//! signed by a key that counts. The time in a token proves nothing. A revoked key is therefore refused for everything
//! it ever signed, and an expired one from its day on.
//!
//! A removed key stays removed: `<fingerprint>.untrusted` next to the entries denies it for both spaces until the key
//! is trusted again.
//!
//! A signature over an entry, such as `ryectl sign` makes, may add the `name` that all items have. An entry that was
//! edited after it was signed does not count until it is signed or trusted again. The resulting errors name the file
//! and the command.
//!
//! **Order.** Each lookup detects changed files; [`TrustStore::refresh`] returns a number that changes with them.

mod entry;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind};
use rye_core::printable::shell_word;
use rye_core::seal::{self, Fingerprint, PublicKey, SecretKey};

use crate::file;
use crate::spaces::{FOLDER, Space, Spaces};

pub(crate) use self::entry::check_entry;
pub use self::entry::{KeyFile, read_key};
use self::entry::{form_of, read_form};

/// Owner name of the user's own key.
pub const OWN: &str = "self";

/// Extension of the files that deny a key.
const UNTRUSTED: &str = "untrusted";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no key {fingerprint} is trusted (there is no `{path}`)")]
    Unknown {
        fingerprint: Fingerprint,
        /// Expected path of the entry.
        path: PathBuf,
    },
    /// The text is neither a PEM public key nor a trusted-key file.
    #[error("{subject} holds no public key; give a PEM file or a trusted-key TOML file")]
    NotAKey {
        subject: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The owner's name holds a control character.
    #[error("the owner `{owner}` holds a control character")]
    Owner { owner: String },
    #[error("the entry `{path}` cannot be read back: {reason}")]
    Unread { path: PathBuf, reason: String },
    #[error("failed to {operation} `{path}`")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::NotAKey { .. } | Self::Owner { .. } | Self::Unread { .. } => ErrorKind::Invalid,
            Self::Io { source, .. } => file::kind(source),
        }
    }
}

/// Acceptance of signatures that do not cover the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialCoverage {
    /// They count, so the original system's files are accepted as they are.
    Accepted,
    Refused,
}

/// A key whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    pub key: PublicKey,
    /// Owner, as named by the user who trusted the key.
    pub owner: String,
    /// Space that holds its entry.
    pub space: Space,
    pub path: PathBuf,
    /// The last moment at which it counts.
    pub not_after: Option<Timestamp>,
    /// From this moment on nothing it ever signed counts.
    pub revoked_at: Option<Timestamp>,
    /// Acceptance of its signatures that do not cover the whole file, as the original system makes them.
    pub partial: PartialCoverage,
}

/// A file in a folder of trusted keys that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub path: PathBuf,
    pub reason: String,
}

/// Reads the entry of a key below `root`, signed or not; `None` if no entry can be read.
pub fn entry(root: &Path, fingerprint: &Fingerprint) -> Option<KeyFile> {
    let text = fs::read_to_string(entry_in(&folder(root), fingerprint)).ok()?;
    read_form(&seal::normalise(&text)).ok()
}

/// True if configuration items with this id are trusted keys.
pub(crate) fn is_entry(id: &ItemId) -> bool {
    id.as_str().starts_with("keys/trusted/")
}

/// Folder of trusted keys, given the folder that holds a space's `.ai`.
pub fn folder(root: &Path) -> PathBuf {
    root.join(FOLDER).join("config/keys/trusted")
}

fn entry_in(folder: &Path, fingerprint: &Fingerprint) -> PathBuf {
    folder.join(format!("{fingerprint}.toml"))
}

/// File that denies a key.
fn denial_in(folder: &Path, fingerprint: &Fingerprint) -> PathBuf {
    folder.join(format!("{fingerprint}.{UNTRUSTED}"))
}

/// Statement of a space's owner about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustState {
    /// There was none, so the key was entered.
    Entered,
    /// There is an entry; the key may be revoked in it.
    Present,
    /// The key is denied.
    TakenOut,
}

/// Enters `key` below `root`, unless the space already has an entry or a denial of it.
pub fn introduce(
    root: &Path,
    key: &SecretKey,
    owner: &str,
    at: Timestamp,
) -> Result<TrustState, Error> {
    let (folder, fingerprint) = (folder(root), key.public().fingerprint());
    if fs::exists(denial_in(&folder, fingerprint)).unwrap_or(true) {
        return Ok(TrustState::TakenOut);
    }
    if fs::exists(entry_in(&folder, fingerprint)).unwrap_or(true) {
        return Ok(TrustState::Present);
    }
    trust(root, key.public(), owner, key, at).map(|_path| TrustState::Entered)
}

/// Writes an entry for `key` without terms, as [`enter`] does.
pub fn trust(
    root: &Path,
    key: &PublicKey,
    owner: &str,
    signer: &SecretKey,
    at: Timestamp,
) -> Result<PathBuf, Error> {
    let entry = KeyFile::new(key.clone(), Some(owner.to_owned()));
    enter(root, &entry, signer, at)
}

/// Writes `entry` below `root`, signed by `signer`, and returns its path. An existing entry is replaced only if the new
/// one can be read back.
pub fn enter(
    root: &Path,
    entry: &KeyFile,
    signer: &SecretKey,
    at: Timestamp,
) -> Result<PathBuf, Error> {
    let owner = entry.owner.as_deref().unwrap_or_default();
    if owner.chars().any(char::is_control) {
        return Err(Error::Owner {
            owner: owner.to_owned(),
        });
    }
    let fingerprint = entry.key.fingerprint();
    let folder = folder(root);
    let path = entry_in(&folder, fingerprint);
    let text = seal::sign_text(ItemKind::Config, "toml", &form_of(entry), signer, at)
        .expect("TOML files can carry a signature");
    let check = |text: &str| match check_entry(&path, text) {
        Ok(read) if read == *entry => Ok(()),
        Ok(_) => Err("it says something else".to_owned()),
        Err(reason) => Err(reason),
    };
    let unread = |reason| Error::Unread {
        path: path.clone(),
        reason,
    };
    check(&text).map_err(unread)?;
    fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
    file::replace(&path, text.as_bytes(), 0o644).map_err(io_error("write", &path))?;
    let written = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    check(&written).map_err(unread)?;
    let denial = denial_in(&folder, fingerprint);
    match fs::remove_file(&denial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", &denial)(error))
        }
        Ok(()) | Err(_) => Ok(path),
    }
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io {
        operation,
        path,
        source,
    }
}

/// Removes a key from the user's trusted keys, and denies it in the system space too. Returns the path of the denial.
pub fn untrust(spaces: &Spaces, fingerprint: &Fingerprint) -> Result<PathBuf, Error> {
    let [(_, user), (_, system)] = folders(spaces);
    let (entry, denial) = (entry_in(&user, fingerprint), denial_in(&user, fingerprint));
    let is = |path: &Path| fs::exists(path).unwrap_or(true);
    if !is(&entry) && (is(&denial) || !is(&entry_in(&system, fingerprint))) {
        return Err(Error::Unknown {
            fingerprint: fingerprint.clone(),
            path: entry,
        });
    }
    let text = format!(
        "# The key {fingerprint} was taken out; `ryectl key trust FILE` trusts it again.\n"
    );
    fs::create_dir_all(&user).map_err(io_error("create", &user))?;
    file::replace(&denial, text.as_bytes(), 0o644).map_err(io_error("write", &denial))?;
    match fs::remove_file(&entry) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", &entry)(error))
        }
        Ok(()) | Err(_) => Ok(denial),
    }
}

/// Enters `key` below `root` for the project `directory` alone, and returns the path of the entry.
pub fn enter_for(
    root: &Path,
    key: &SecretKey,
    owner: &str,
    directory: &Path,
    at: Timestamp,
) -> Result<PathBuf, Error> {
    let entry = KeyFile {
        directory: Some(directory.to_owned()),
        ..KeyFile::new(key.public().clone(), Some(owner.to_owned()))
    };
    enter(root, &entry, key, at)
}

/// Removes the entries below `root` that count only in projects which are gone. Best effort: they have no effect.
pub fn remove_stale(root: &Path) {
    for path in with_extension(&folder(root), "toml") {
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        let read = read.and_then(|text| check_entry(&path, &seal::normalise(&text)));
        let directory = read.ok().and_then(|entry| entry.directory);
        if directory.is_some_and(|directory| fs::exists(directory).is_ok_and(|exists| !exists)) {
            drop(fs::remove_file(&path));
        }
    }
}

/// Folders of trusted keys, the user's first.
fn folders(spaces: &Spaces) -> [(Space, PathBuf); 2] {
    [Space::User, Space::System].map(|space| {
        let root = spaces
            .root(space)
            .expect("user and system space are always there");
        (space, folder(root))
    })
}

/// Keys whose signatures count.
#[derive(Debug)]
pub struct TrustStore {
    folders: [(Space, PathBuf); 2],
    project: Option<PathBuf>,
    loaded: RwLock<Arc<Loaded>>,
}

#[derive(Debug, Default)]
struct Loaded {
    generation: u64,
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    keys: BTreeMap<Fingerprint, Arc<TrustedKey>>,
    refused: Vec<Refused>,
}

/// Identity and version of a file or folder, to detect changes.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl TrustStore {
    /// Loads the trusted keys of the user and the system space that count in the project of `spaces`.
    pub fn open(spaces: &Spaces) -> Self {
        let folders = folders(spaces);
        let project = spaces.root(Space::Project).map(Path::to_owned);
        let loaded = RwLock::new(Arc::new(load(&folders, project.as_deref(), 1)));
        Self {
            folders,
            project,
            loaded,
        }
    }

    /// Reads the files again if any changed. Returns a number that grows with each change.
    pub fn refresh(&self) -> u64 {
        self.current().generation
    }

    /// The key of this fingerprint, if it counts. Checks neither expiry nor revocation.
    pub fn key(&self, fingerprint: &Fingerprint) -> Option<Arc<TrustedKey>> {
        if let Some(key) = self.current().keys.get(fingerprint) {
            return Some(Arc::clone(key));
        }
        // A file added within one tick of the file system's clock does not change the folder's time, so an unknown key
        // is worth a reload.
        self.reload().keys.get(fingerprint).cloned()
    }

    /// All keys that count, ordered by fingerprint.
    pub fn keys(&self) -> Vec<Arc<TrustedKey>> {
        self.reload().keys.values().cloned().collect()
    }

    /// The entry of this fingerprint, if there is one and it does not count.
    pub fn refusal(&self, fingerprint: &Fingerprint) -> Option<Refused> {
        let is_named = |path: &Path| {
            path.file_stem()
                .is_some_and(|stem| stem == fingerprint.as_str())
        };
        let loaded = self.current();
        let mut refused = loaded.refused.iter();
        refused.find(|refused| is_named(&refused.path)).cloned()
    }

    /// Files in the folders of trusted keys that do not count.
    pub fn refused(&self) -> Vec<Refused> {
        self.reload().refused.clone()
    }

    fn current(&self) -> Arc<Loaded> {
        let loaded = Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner));
        let fresh = loaded
            .stamps
            .iter()
            .all(|(path, stamp)| Stamp::of(path) == *stamp);
        if fresh { loaded } else { self.reload() }
    }

    fn reload(&self) -> Arc<Loaded> {
        let mut slot = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = load(&self.folders, self.project.as_deref(), slot.generation);
        if next.stamps != slot.stamps {
            next.generation += 1;
        }
        *slot = Arc::new(next);
        Arc::clone(&slot)
    }
}

/// An entry that was read but whose signature is not verified yet.
struct Candidate {
    entry: TrustedKey,
    /// The only project in which it counts.
    directory: Option<PathBuf>,
    token: Option<seal::Token>,
}

fn load(folders: &[(Space, PathBuf)], project: Option<&Path>, generation: u64) -> Loaded {
    let mut loaded = Loaded {
        generation,
        ..Loaded::default()
    };
    let mut candidates = Vec::new();
    let mut taken_out = HashSet::new();
    for (space, folder) in folders {
        // The stamp is taken first: a change during the read causes another read.
        loaded.stamps.push((folder.clone(), Stamp::of(folder)));
        if *space == Space::User {
            let denials = with_extension(folder, UNTRUSTED).into_iter();
            taken_out.extend(denials.filter_map(|path| Some(path.file_stem()?.to_owned())));
        }
        for path in with_extension(folder, "toml") {
            loaded.stamps.push((path.clone(), Stamp::of(&path)));
            let candidate = if path
                .file_stem()
                .is_some_and(|stem| taken_out.contains(stem))
            {
                Err(format!(
                    "you took this key out; `ryectl key trust {}` trusts it again",
                    shell_word(&path.to_string_lossy())
                ))
            } else {
                candidate(&path, *space)
            };
            match candidate {
                Ok(candidate)
                    if candidate
                        .directory
                        .as_deref()
                        .is_some_and(|directory| project != Some(directory)) => {}
                Ok(candidate) => candidates.push(candidate),
                Err(reason) => loaded.refused.push(Refused { path, reason }),
            }
        }
    }
    admit(candidates, &mut loaded);
    loaded
}

/// Files in `folder` with this extension, ordered by path.
fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    paths
}

fn candidate(path: &Path, space: Space) -> Result<Candidate, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let text = seal::normalise(&text);
    let read = check_entry(path, &text)?;
    let directory = read.directory;
    let entry = TrustedKey {
        key: read.key,
        owner: read.owner.unwrap_or_else(|| "unknown".to_owned()),
        space,
        path: path.to_owned(),
        not_after: read.not_after,
        revoked_at: read.revoked_at,
        partial: read.partial,
    };
    let token = match seal::inspect(ItemKind::Config, "toml", &text) {
        Ok(seal) => Some(seal.token),
        Err(seal::Error::Unsigned) => None,
        Err(error) => return Err(with_way_out(&error, path)),
    };
    Ok(Candidate {
        entry,
        directory,
        token,
    })
}

/// Appends to `reason` the command that accepts the entry anyway.
fn with_way_out(reason: &dyn std::fmt::Display, path: &Path) -> String {
    let path = path.to_string_lossy();
    format!(
        "{reason}; `ryectl key trust {}` accepts it as it is now",
        shell_word(&path)
    )
}

/// Admits entries that are unsigned, signed by their own key, or signed by an admitted key, until no more can be
/// admitted.
fn admit(mut candidates: Vec<Candidate>, loaded: &mut Loaded) {
    while !candidates.is_empty() {
        let before = candidates.len();
        let mut waiting = Vec::new();
        for candidate in candidates {
            match verify_entry(&candidate, &loaded.keys) {
                Some(Ok(())) => insert(candidate.entry, &mut loaded.keys),
                Some(Err(error)) => loaded.refused.push(Refused {
                    reason: with_way_out(&error, &candidate.entry.path),
                    path: candidate.entry.path,
                }),
                None => waiting.push(candidate),
            }
        }
        if waiting.len() == before {
            loaded
                .refused
                .extend(waiting.into_iter().map(|candidate| Refused {
                    reason: with_way_out(
                        &"the key that signed it is not trusted",
                        &candidate.entry.path,
                    ),
                    path: candidate.entry.path,
                }));
            return;
        }
        candidates = waiting;
    }
}

/// Verifies the signature of an entry; `None` if its signer is unknown or revoked.
fn verify_entry(
    candidate: &Candidate,
    keys: &BTreeMap<Fingerprint, Arc<TrustedKey>>,
) -> Option<Result<(), seal::Error>> {
    let Some(token) = &candidate.token else {
        return Some(Ok(()));
    };
    if token.signer == *candidate.entry.key.fingerprint() {
        return Some(token.verify(&candidate.entry.key));
    }
    let signer = keys.get(&token.signer)?;
    signer
        .revoked_at
        .is_none()
        .then(|| token.verify(&signer.key))
}

/// Of two entries for one key the user's takes precedence.
fn insert(entry: TrustedKey, keys: &mut BTreeMap<Fingerprint, Arc<TrustedKey>>) {
    let fingerprint = entry.key.fingerprint();
    if keys
        .get(fingerprint)
        .is_none_or(|known| known.space < entry.space)
    {
        keys.insert(fingerprint.clone(), Arc::new(entry));
    }
}

#[cfg(test)]
mod tests;
