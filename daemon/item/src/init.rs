//! Creation of a project's `.ai` folder for `ryectl init`.
//!
//! **Never** overwrites a file. Signs only files that it wrote itself, because the user has not read any others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::seal::Fingerprint;

use crate::file;
use crate::keys::{self, Found, KeyDir};
use crate::sign::{self, Signed, SignedCopies};
use crate::spaces::{self, FOLDER, Spaces};
use crate::trust;

/// Paths below `.ai` and contents of the files.
const FILES: [(&str, &str); 5] = [
    (".gitignore", include_str!("init/gitignore")),
    ("tools/sample/hello.yaml", include_str!("init/hello.yaml")),
    ("tools/sample/look.yaml", include_str!("init/look.yaml")),
    ("tools/sample/greet.py", include_str!("init/greet.py")),
    (
        "tools/sample/greet.test.yaml",
        include_str!("init/greet.test.yaml"),
    ),
];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "`{path}` is your user space, which is never a project; run `ryectl init` in a folder below it"
    )]
    UserSpace { path: PathBuf },
    #[error("the path `{path}` is not UTF-8, which no item may have; rename the directory")]
    NotText { path: PathBuf },
    #[error("failed to get your signing key")]
    Key {
        #[source]
        source: keys::Error,
    },
    #[error("failed to trust your signing key")]
    Trust {
        #[source]
        source: trust::Error,
    },
    #[error("failed to write `{path}`")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file that was written has no path that an item may have.
    #[error("failed to find the file just written")]
    Locate {
        #[source]
        source: spaces::Error,
    },
    #[error("failed to sign the file just written")]
    Sign {
        #[source]
        source: sign::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UserSpace { .. } | Self::NotText { .. } => ErrorKind::Precondition,
            Self::Key { source } => source.kind(),
            Self::Trust { source } => source.kind(),
            Self::Write { source, .. } => file::kind(source),
            Self::Locate { source } => source.kind(),
            Self::Sign { source } => source.kind(),
        }
    }
}

/// Result of [`init`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// Key that signed the items.
    pub fingerprint: Fingerprint,
    pub key: Found,
    pub written: Vec<PathBuf>,
    /// The written files that are items; all are signed.
    pub signed: Vec<Signed>,
    /// Files that existed and were not changed.
    pub kept: Vec<PathBuf>,
}

/// Ensures that the user has a key and trusts it. `user_space` is the folder that holds the user's `.ai`.
pub fn user_key(
    user_space: &Path,
    keys: &KeyDir,
    at: Timestamp,
) -> Result<(rye_core::seal::SecretKey, Found), Error> {
    let (key, found) = keys
        .load_or_create()
        .map_err(|source| Error::Key { source })?;
    // This includes an existing key: a crash may have prevented the entry, and trusting one's own key is harmless.
    trust::introduce(user_space, &key, trust::OWN, at).map_err(|source| Error::Trust { source })?;
    Ok((key, found))
}

/// Writes the skeleton of a project below `project` and signs it with the user's key. Creates the key if there is none.
/// A second call writes only the missing files.
pub fn init(
    project: &Path,
    user_space: &Path,
    keys: &KeyDir,
    at: Timestamp,
) -> Result<Initialised, Error> {
    let same = |one: &Path, other: &Path| match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Ok(_) | Err(_), _) => one == other,
    };
    if same(project, user_space) {
        return Err(Error::UserSpace {
            path: project.to_owned(),
        });
    }
    if project.to_str().is_none() {
        return Err(Error::NotText {
            path: project.to_owned(),
        });
    }
    let (key, found) = user_key(user_space, keys, at)?;
    // Locating a project's files does not need the state directory.
    let spaces = Spaces::new(
        Some(project.to_owned()),
        user_space.to_owned(),
        PathBuf::new(),
    );
    let mut done = Initialised {
        fingerprint: key.public().fingerprint().clone(),
        key: found,
        written: Vec::new(),
        signed: Vec::new(),
        kept: Vec::new(),
    };
    for (name, content) in FILES {
        let path = project.join(FOLDER).join(name);
        match write_new(&path, content) {
            Ok(()) => done.written.push(path.clone()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                done.kept.push(path);
                continue;
            }
            Err(source) => return Err(Error::Write { path, source }),
        }
        if name.starts_with("tools/") && !spaces::is_test(&path) {
            let place = spaces
                .locate(&path)
                .map_err(|source| Error::Locate { source })?;
            let signed = sign::sign(&spaces, &place, &key, at);
            let signed = signed.map_err(|source| Error::Sign { source })?;
            // A missing copy has one effect only: the next signature has no previous text to compare with.
            drop(SignedCopies::of(user_space).keep(&signed));
            done.signed.push(signed);
        }
    }
    Ok(done)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    file::create(path, content.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests;
