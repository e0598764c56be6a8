//! A key pair on disk: `private_key.pem` (0600) and `public_key.pem` (0644) in a folder of mode 0700.
//!
//! **Never** overwrites a private key, and never uses one that another user can read or owns. The public key is derived
//! from the private key. Creation is atomic: a crash leaves no key or a whole one.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::seal::{self, PublicKey, SecretKey};
use zeroize::{Zeroize as _, Zeroizing};

use crate::file;
use crate::spaces::FOLDER;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no key at `{path}`; make one with `ryectl key generate`")]
    Missing {
        /// Expected path of the key.
        path: PathBuf,
    },
    #[error("there is a key at `{path}` already; it is not overwritten")]
    Exists { path: PathBuf },
    /// Other users can read the private key.
    #[error("others can read the private key `{path}` (mode {mode:03o}); run `chmod 600 {path}`")]
    Exposed { path: PathBuf, mode: u32 },
    /// Another user owns the folder or the private key.
    #[error("{} is not ours: it belongs to uid {owner}, not to uid {us}; move it away to get a key of your own", path.display())]
    Foreign {
        /// The folder or the private key.
        path: PathBuf,
        owner: u32,
        us: u32,
    },
    #[error("failed to read the key `{path}`")]
    Malformed {
        path: PathBuf,
        #[source]
        source: seal::Error,
    },
    #[error("failed to {operation} `{path}`")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to get random bytes for a new key")]
    Random {
        #[source]
        source: getrandom::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Exposed { .. } | Self::Foreign { .. } => ErrorKind::Denied,
            Self::Malformed { .. } => ErrorKind::Invalid,
            Self::Io { source, .. } => file::kind(source),
            Self::Random { .. } => ErrorKind::Unavailable,
        }
    }
}

/// A folder that holds one key pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDir {
    folder: PathBuf,
}

impl KeyDir {
    /// Key pair in `folder`, which need not exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The user's own key pair, below the folder that holds the user's `.ai`.
    pub fn of_user(user_space: &Path) -> Self {
        Self::new(user_space.join(FOLDER).join("config/keys/signing"))
    }

    /// Key pair of the node with the state directory `state`.
    pub fn of_node(state: &Path) -> Self {
        Self::new(state.join("keys"))
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    pub fn private_path(&self) -> PathBuf {
        self.folder.join("private_key.pem")
    }

    pub fn public_path(&self) -> PathBuf {
        self.folder.join("public_key.pem")
    }

    pub fn load(&self) -> Result<SecretKey, Error> {
        let path = self.private_path();
        let io_error = |source: io::Error| Error::Io {
            operation: "read",
            path: path.clone(),
            source,
        };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Missing { path });
            }
            Err(error) => return Err(io_error(error)),
        };
        own(&self.folder, &fs::metadata(&self.folder).map_err(io_error)?)?;
        let attributes = file.metadata().map_err(io_error)?;
        own(&path, &attributes)?;
        let mode = attributes.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::Exposed { path, mode });
        }
        // The buffer is allocated once: growth would leave a copy of the key in freed memory.
        let mut pem = Zeroizing::new(String::with_capacity(4096));
        (&mut file)
            .take(4096)
            .read_to_string(&mut pem)
            .map_err(io_error)?;
        SecretKey::from_pem(&pem).map_err(|source| Error::Malformed { path, source })
    }

    pub fn load_public(&self) -> Result<PublicKey, Error> {
        let path = self.public_path();
        let mut pem = String::new();
        let read = File::open(&path).and_then(|file| file.take(4096).read_to_string(&mut pem));
        match read {
            Ok(_) => PublicKey::from_pem(&pem).map_err(|source| Error::Malformed { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing { path }),
            Err(source) => Err(Error::Io {
                operation: "read",
                path,
                source,
            }),
        }
    }

    /// Creates a new key pair. Fails if there is one.
    pub fn create(&self) -> Result<SecretKey, Error> {
        let key = random()?;
        self.store(&key)?;
        Ok(key)
    }

    fn store(&self, key: &SecretKey) -> Result<(), Error> {
        let private = self.private_path();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| Error::Io {
                operation: "create",
                path: self.folder.clone(),
                source,
            })?;
        let io_error = |source| Error::Io {
            operation: "read",
            path: self.folder.clone(),
            source,
        };
        own(&self.folder, &fs::metadata(&self.folder).map_err(io_error)?)?;
        if let Err(source) = file::create(&private, key.to_pem().as_bytes(), 0o600) {
            return Err(if source.kind() == io::ErrorKind::AlreadyExists {
                Error::Exists { path: private }
            } else {
                Error::Io {
                    operation: "write",
                    path: private,
                    source,
                }
            });
        }
        self.write_public(key)
    }

    fn write_public(&self, key: &SecretKey) -> Result<(), Error> {
        let public = self.public_path();
        file::replace(&public, key.public().to_pem().as_bytes(), 0o644).map_err(|source| {
            Error::Io {
                operation: "write",
                path: public,
                source,
            }
        })
    }

    /// Rewrites the public key file if it does not hold the public key of `key`. Returns true if it was rewritten.
    pub fn repair_public(&self, key: &SecretKey) -> Result<bool, Error> {
        let expected = key.public().to_pem();
        if fs::read(self.public_path()).is_ok_and(|found| found == expected.as_bytes()) {
            return Ok(false);
        }
        self.write_public(key).map(|()| true)
    }

    /// Reads the private key, or creates one if there is none. Two concurrent calls get the same key.
    pub fn load_or_create(&self) -> Result<(SecretKey, Found), Error> {
        if fs::exists(self.private_path()).unwrap_or(true) {
            return self.load().map(|key| (key, Found::Existing));
        }
        match self.create() {
            Ok(key) => Ok((key, Found::Created)),
            Err(Error::Exists { .. }) => self.load().map(|key| (key, Found::Existing)),
            Err(error) => Err(error),
        }
    }
}

/// Folder of the node's former public keys, each in a folder named by its fingerprint. `state` is the state directory.
pub fn former(state: &Path) -> PathBuf {
    state.join("former-keys")
}

/// Public keys of the node: the current one, then the former ones ordered by fingerprint. Empty if it has none.
pub fn public_of_node(state: &Path) -> Result<Vec<PublicKey>, Error> {
    let former = former(state);
    let mut folders = match fs::read_dir(&former) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
    .map_err(|source| Error::Io {
        operation: "read",
        path: former,
        source,
    })?;
    folders.sort();
    let pairs = std::iter::once(KeyDir::of_node(state)).chain(folders.into_iter().map(KeyDir::new));
    pairs
        .filter_map(|pair| match pair.load_public() {
            Err(Error::Missing { .. }) => None,
            read => Some(read),
        })
        .collect()
}

/// Makes a new key, which is stored nowhere.
pub fn random() -> Result<SecretKey, Error> {
    let mut seed = [0_u8; 32];
    getrandom::fill(&mut seed).map_err(|source| Error::Random { source })?;
    let key = SecretKey::from_seed(&seed);
    seed.zeroize();
    Ok(key)
}

/// Rejects a path of another owner, who could read or replace a key in it.
fn own(path: &Path, attributes: &Metadata) -> Result<(), Error> {
    let us = geteuid().as_raw();
    if attributes.uid() == us {
        return Ok(());
    }
    Err(Error::Foreign {
        path: path.to_owned(),
        owner: attributes.uid(),
        us,
    })
}

/// State of the key before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Existing,
    Created,
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn new_key_is_private_and_never_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let keys = KeyDir::of_user(home.path());
        assert!(matches!(keys.load(), Err(Error::Missing { .. })));
        let (key, found) = keys.load_or_create().unwrap();
        assert_eq!(found, Found::Created);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&keys.private_path()), 0o600);
        assert_eq!(mode(&keys.public_path()), 0o644);
        assert_eq!(mode(keys.private_path().parent().unwrap()), 0o700);
        assert!(matches!(keys.create(), Err(Error::Exists { .. })));
        let (again, found) = keys.load_or_create().unwrap();
        assert_eq!((again.public(), found), (key.public(), Found::Existing));
        assert_eq!(
            fs::read_dir(&keys.folder).unwrap().count(),
            2,
            "no draft is left"
        );
    }

    #[test]
    fn wrong_or_missing_public_key_is_rewritten() {
        let home = tempfile::tempdir().unwrap();
        let keys = KeyDir::of_user(home.path());
        let key = keys.create().unwrap();
        let sound = fs::read(keys.public_path()).unwrap();
        assert!(!keys.repair_public(&key).unwrap());
        let other = SecretKey::from_seed(&[7; 32]).public().to_pem();
        let mut flipped = sound.clone();
        flipped[40] ^= 1;
        for damaged in [Some(flipped), Some(other.into()), Some(Vec::new()), None] {
            match damaged {
                Some(text) => fs::write(keys.public_path(), text).unwrap(),
                None => fs::remove_file(keys.public_path()).unwrap(),
            }
            assert!(keys.repair_public(&key).unwrap());
            assert_eq!(fs::read(keys.public_path()).unwrap(), sound);
        }
    }

    #[test]
    fn private_key_readable_by_others_is_refused_with_fix() {
        let home = tempfile::tempdir().unwrap();
        let keys = KeyDir::of_user(home.path());
        keys.create().unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(keys.private_path(), Permissions::from_mode(mode)).unwrap();
            let error = keys.load().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }
}
