//! Whose signatures count: `config/keys/trusted/<fingerprint>.toml` in the user and the system space.
//!
//! **Owns** reading, checking and writing of these files. A key shipped inside a project counts for nothing until
//! the user has accepted it, which writes it to the user space.
//!
//! An entry counts if its name is the fingerprint of the key in it and it is unsigned, or signed by itself or by a
//! key that counts. The time in a token proves nothing, so a revoked key is refused for everything it ever signed,
//! and an expired one from its day on.
//!
//! A key that was taken out stays out: `<fingerprint>.untrusted` beside the entries says so, for both spaces, until the key
//! is trusted again.
//!
//! A signature over an entry, such as `ryectl sign` makes, may add the `name` that all items have. An entry that was edited after it was
//! signed does not count until it is signed or trusted again; the errors that result name the file and the command.
//!
//! **Order.** The store notices changed files by itself, at each lookup; [`TrustStore::refresh`] returns a number
//! that changes with them.

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
use rye_core::seal::{self, Fingerprint, PublicKey, SecretKey};
use rye_core::sight::shell_word;

use crate::file;
use crate::spaces::{FOLDER, Space, Spaces};

pub(crate) use self::entry::check_entry;
pub use self::entry::{KeyFile, read_key};
use self::entry::{form_of, read_form};

/// What the user's own key is called.
pub const OWN: &str = "self";

/// Extension of the files that say that a key was taken out.
const UNTRUSTED: &str = "untrusted";

/// Why a key cannot be trusted or forgotten.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No entry has this fingerprint.
    #[error("no key {fingerprint} is trusted (there is no `{path}`)")]
    Unknown {
        /// The fingerprint.
        fingerprint: Fingerprint,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The text is neither a PEM public key nor a trusted-key file.
    #[error("{subject} holds no public key; give a PEM file or a trusted-key TOML file")]
    NotAKey {
        /// What was read.
        subject: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The owner's name cannot stand in the file.
    #[error("the owner `{owner}` holds a control character")]
    Owner {
        /// The name.
        owner: String,
    },
    /// The entry could not be read after it was written.
    #[error("the entry `{path}` cannot be read back: {reason}")]
    Unread {
        /// The entry.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The operating system refused.
    #[error("failed to {operation} `{path}`")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
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

/// Whether signatures that leave out parts of a file count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialCoverage {
    /// They count: the original system's files are accepted as they are.
    Accepted,
    /// They do not.
    Refused,
}

/// A key whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// The key.
    pub key: PublicKey,
    /// Whose it is, in the words of the user who trusted it.
    pub owner: String,
    /// The space its entry stands in.
    pub space: Space,
    /// Its entry.
    pub path: PathBuf,
    /// The last moment it counts.
    pub not_after: Option<Timestamp>,
    /// From when on nothing it signed counts any more.
    pub revoked_at: Option<Timestamp>,
    /// Whether it may sign as the original system does.
    pub partial: PartialCoverage,
}

/// A file in a trust folder that does not count, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The file.
    pub path: PathBuf,
    /// Why it does not count.
    pub reason: String,
}

/// Reads the entry of a key below `root`, signed or not; `None` if there is none that can be read.
pub fn entry(root: &Path, fingerprint: &Fingerprint) -> Option<KeyFile> {
    let text = fs::read_to_string(entry_in(&folder(root), fingerprint)).ok()?;
    read_form(&seal::normalise(&text)).ok()
}

/// True if items of configuration with this id are trusted keys.
pub(crate) fn is_entry(id: &ItemId) -> bool {
    id.as_str().starts_with("keys/trusted/")
}

/// The trust folder below the folder that holds a space's `.ai`.
pub fn folder(root: &Path) -> PathBuf {
    root.join(FOLDER).join("config/keys/trusted")
}

fn entry_in(folder: &Path, fingerprint: &Fingerprint) -> PathBuf {
    folder.join(format!("{fingerprint}.toml"))
}

/// The file that says that a key was taken out.
fn denial_in(folder: &Path, fingerprint: &Fingerprint) -> PathBuf {
    folder.join(format!("{fingerprint}.{UNTRUSTED}"))
}

/// What the owner of a space has said about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Nothing, so it was entered.
    Entered,
    /// There is an entry; it may say that the key is revoked.
    Present,
    /// That it counts for nothing.
    TakenOut,
}

/// Enters `key` below `root`, unless the owner of that space has said something about it already.
pub fn introduce(root: &Path, key: &SecretKey, owner: &str, at: Timestamp) -> Result<Word, Error> {
    let (folder, fingerprint) = (folder(root), key.public().fingerprint());
    if fs::exists(denial_in(&folder, fingerprint)).unwrap_or(true) {
        return Ok(Word::TakenOut);
    }
    if fs::exists(entry_in(&folder, fingerprint)).unwrap_or(true) {
        return Ok(Word::Present);
    }
    trust(root, key.public(), owner, key, at).map(|_path| Word::Entered)
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

/// Writes `entry` below `root`, signed by `signer`; one that is there is replaced, but not by one that cannot be read. Returns its file.
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

/// Takes a key out of the user's trusted keys, and lets it count for nothing in the system space either. Returns the file
/// that says so.
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

/// The trust folders, the user's first.
fn folders(spaces: &Spaces) -> [(Space, PathBuf); 2] {
    [Space::User, Space::System].map(|space| {
        let root = spaces
            .root(space)
            .expect("user and system space are always there");
        (space, folder(root))
    })
}

/// The keys whose signatures count.
#[derive(Debug)]
pub struct TrustStore {
    folders: [(Space, PathBuf); 2],
    loaded: RwLock<Arc<Loaded>>,
}

#[derive(Debug, Default)]
struct Loaded {
    generation: u64,
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    keys: BTreeMap<Fingerprint, Arc<TrustedKey>>,
    refused: Vec<Refused>,
}

/// What changes when a file or folder does.
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
    /// The trusted keys of the user and the system space.
    pub fn open(spaces: &Spaces) -> Self {
        let folders = folders(spaces);
        let loaded = RwLock::new(Arc::new(load(&folders, 1)));
        Self { folders, loaded }
    }

    /// Reads the files again if any changed. Returns a number that grows with each change.
    pub fn refresh(&self) -> u64 {
        self.current().generation
    }

    /// The key of this fingerprint, if it counts. Neither expiry nor revocation is looked at.
    pub fn key(&self, fingerprint: &Fingerprint) -> Option<Arc<TrustedKey>> {
        if let Some(key) = self.current().keys.get(fingerprint) {
            return Some(Arc::clone(key));
        }
        // A file added within one tick of the file system's clock leaves no trace in the folder's time; a key that
        // is not known is worth a second look.
        self.reload().keys.get(fingerprint).cloned()
    }

    /// All keys that count, by fingerprint.
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

    /// The files in the trust folders that do not count.
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
        let mut next = load(&self.folders, slot.generation);
        if next.stamps != slot.stamps {
            next.generation += 1;
        }
        *slot = Arc::new(next);
        Arc::clone(&slot)
    }
}

/// A file that was read but whose signature is not judged yet.
struct Candidate {
    entry: TrustedKey,
    token: Option<seal::Token>,
}

fn load(folders: &[(Space, PathBuf)], generation: u64) -> Loaded {
    let mut loaded = Loaded {
        generation,
        ..Loaded::default()
    };
    let mut candidates = Vec::new();
    let mut taken_out = HashSet::new();
    for (space, folder) in folders {
        // The stamp is taken first: what changes while we read is read again.
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
                Ok(candidate) => candidates.push(candidate),
                Err(reason) => loaded.refused.push(Refused { path, reason }),
            }
        }
    }
    admit(candidates, &mut loaded);
    loaded
}

/// The files in `folder` with this extension, in order.
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
    Ok(Candidate { entry, token })
}

/// `reason`, and the command by which the user accepts the entry all the same.
fn with_way_out(reason: &dyn std::fmt::Display, path: &Path) -> String {
    let path = path.to_string_lossy();
    format!(
        "{reason}; `ryectl key trust {}` accepts it as it is now",
        shell_word(&path)
    )
}

/// Takes in what is unsigned, signed by itself, or signed by what was taken in, until nothing is added.
fn admit(mut candidates: Vec<Candidate>, loaded: &mut Loaded) {
    while !candidates.is_empty() {
        let before = candidates.len();
        let mut waiting = Vec::new();
        for candidate in candidates {
            match vouched(&candidate, &loaded.keys) {
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

/// Whether the signature of an entry is good; `None` if its signer is not known, or revoked.
fn vouched(
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

/// Of two entries for one key the user's counts.
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
