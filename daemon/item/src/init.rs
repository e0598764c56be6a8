//! A project's first `.ai` folder: what `ryectl init` does.
//!
//! **Never** overwrites a file; signs only files it wrote itself, because the user has not read the others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::seal::Fingerprint;

use crate::file;
use crate::keys::{self, Found, KeyDir};
use crate::sign::{self, Past, Signed};
use crate::spaces::{self, FOLDER, Spaces};
use crate::trust;

/// The files of the skeleton, below `.ai`.
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

/// Why a project cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user space is no project.
    #[error(
        "`{path}` is your user space, which is never a project; run `ryectl init` in a folder below it"
    )]
    UserSpace {
        /// The folder.
        path: PathBuf,
    },
    /// The user's key cannot be used or made.
    #[error("failed to get your signing key")]
    Key {
        /// Why.
        #[source]
        source: keys::Error,
    },
    /// The user's key cannot be trusted.
    #[error("failed to trust your signing key")]
    Trust {
        /// Why.
        #[source]
        source: trust::Error,
    },
    /// The operating system refused.
    #[error("failed to write `{path}`")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that was written has no place among the items.
    #[error("failed to find the file just written")]
    Place {
        /// Why.
        #[source]
        source: spaces::Error,
    },
    /// A file that was written cannot be signed.
    #[error("failed to sign the file just written")]
    Sign {
        /// Why.
        #[source]
        source: sign::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UserSpace { .. } => ErrorKind::Precondition,
            Self::Key { source } => source.kind(),
            Self::Trust { source } => source.kind(),
            Self::Write { source, .. } => file::kind(source),
            Self::Place { source } => source.kind(),
            Self::Sign { source } => source.kind(),
        }
    }
}

/// What was set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// The key that signed.
    pub fingerprint: Fingerprint,
    /// Whether that key was made now.
    pub key: Found,
    /// Files that were written.
    pub written: Vec<PathBuf>,
    /// Those of them that are items, and signed.
    pub signed: Vec<Signed>,
    /// Files that were there and left alone.
    pub kept: Vec<PathBuf>,
}

/// Makes sure that the user has a key and that it is trusted. `user_space` is the folder that holds the user's
/// `.ai`.
pub fn user_key(
    user_space: &Path,
    keys: &KeyDir,
    at: Timestamp,
) -> Result<(rye_core::seal::SecretKey, Found), Error> {
    let (key, found) = keys
        .load_or_create()
        .map_err(|source| Error::Key { source })?;
    // Also for a key that was there: a crash may have come between the two, and trusting oneself is harmless.
    trust::introduce(user_space, &key, trust::OWN, at).map_err(|source| Error::Trust { source })?;
    Ok((key, found))
}

/// Writes the skeleton of a project below `project` and signs it with the user's key, which is made if there is
/// none. Running it again writes what is missing.
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
    let (key, found) = user_key(user_space, keys, at)?;
    // The state directory is not needed to tell a project's files.
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
                .map_err(|source| Error::Place { source })?;
            let signed = sign::sign(&spaces, &place, &key, at);
            let signed = signed.map_err(|source| Error::Sign { source })?;
            // Without a copy nothing is wrong but that the next signature has nothing to compare with.
            drop(Past::of(user_space).keep(&signed));
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
