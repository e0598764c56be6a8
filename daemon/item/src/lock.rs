//! Locks: what a tool and all that it stands on were when its user vouched for them.
//!
//! **Owns** `.ai/lockfiles/<tool id>@<version>.lock.json`, a JSON object that carries its signature: where such a file lies, how it is
//! written, and whether its signature counts. What stands in it is for those who resolve tools to say, and to compare. **Never** tells of a
//! lock that nobody signed as of one that holds: these are files of another program. **Failure.** A lock whose signature does not count is an
//! error, not a lock that is not there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::parse_json;
use rye_core::id::ItemId;
use rye_core::seal::{self, Fingerprint, SecretKey, sign_json, verify_json};
use serde_json::{Map, Value};

use crate::file;
use crate::library::{Lapse, Library};
use crate::spaces::{self, FOLDER, Space, Spaces};

/// The folder of locks below `.ai`.
const LOCKS: &str = "lockfiles";
/// What their names end with.
const SUFFIX: &str = ".lock.json";
/// The spaces that have locks, in the order in which they count.
const SEARCHED: [Space; 2] = [Space::Project, Space::User];

/// Why a lock cannot be used or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error(transparent)]
    Unreadable(#[from] spaces::Error),
    /// It is no JSON object.
    #[error("the lock `{path}` {problem}; remove it, or write it anew with `ryectl lock create`")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It was changed, or the key it names did not sign it.
    #[error("the lock `{path}` does not count")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: seal::Error,
    },
    /// Its signer does not count.
    #[error("the lock `{path}` was signed by {signer}, a key that {why}")]
    Signer {
        /// The file.
        path: PathBuf,
        /// The key.
        signer: Fingerprint,
        /// Why it does not count, and the fix.
        why: String,
    },
    /// The operating system refused.
    #[error("failed to write the lock `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreadable(error) => error.kind(),
            Self::Malformed { .. } => ErrorKind::Invalid,
            Self::Refused { .. } | Self::Signer { .. } => ErrorKind::Denied,
            Self::Write { source, .. } => file::kind(source),
        }
    }
}

/// A lock that was found.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Its file.
    pub path: PathBuf,
    /// What it says.
    pub content: Map<String, Value>,
    /// Who signed it; `None` if nobody did, and it holds nothing.
    pub signer: Option<Fingerprint>,
}

/// A lock in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its file.
    pub path: PathBuf,
    /// Its space.
    pub space: Space,
    /// The tool, as the name of the file says.
    pub tool: String,
    /// The version of the tool.
    pub version: String,
}

/// Where the lock of a tool lies, below `.ai`.
fn place(tool: &ItemId, version: &str) -> PathBuf {
    Path::new(LOCKS).join(format!("{tool}@{version}{SUFFIX}"))
}

impl Library {
    /// The lock of this version of `tool`: the project's, else the user's. One that is signed counts.
    pub fn lock(&self, tool: &ItemId, version: &str) -> Result<Option<Lock>, Error> {
        let relative = place(tool, version);
        for space in SEARCHED {
            let Some(root) = self.spaces().root(space) else {
                continue;
            };
            if let Some(content) = self.spaces().read(space, &relative)? {
                let path = root.join(FOLDER).join(relative);
                return self.admit_lock(path, &content).map(Some);
            }
        }
        Ok(None)
    }

    fn admit_lock(&self, path: PathBuf, content: &[u8]) -> Result<Lock, Error> {
        let malformed = |problem: String| Error::Malformed {
            path: path.clone(),
            problem,
        };
        let text = std::str::from_utf8(content);
        let text = text.map_err(|error| malformed(format!("is no text: {error}")))?;
        let content =
            parse_json(text).map_err(|error| malformed(format!("is no JSON: {error}")))?;
        let Value::Object(content) = content else {
            return Err(malformed("is no JSON object".to_owned()));
        };
        let token = match verify_json(&content) {
            Err(seal::Error::Unsigned) => {
                return Ok(Lock {
                    path,
                    content,
                    signer: None,
                });
            }
            token => token.map_err(|source| Error::Refused {
                path: path.clone(),
                source,
            })?,
        };
        let _ = self.trust().refresh();
        let not_counted = |why: String| Error::Signer {
            path: path.clone(),
            signer: token.signer.clone(),
            why,
        };
        let key = self.trust().key(&token.signer).ok_or_else(|| {
            not_counted(
                "is not trusted; `ryectl lock create` writes a lock with your own".to_owned(),
            )
        })?;
        token.verify(&key.key).map_err(|source| Error::Refused {
            path: path.clone(),
            source,
        })?;
        if let Some((lapse, at)) = self.lapsed(&key) {
            return Err(not_counted(lapse_text(lapse, at)));
        }
        Ok(Lock {
            signer: Some(token.signer),
            path,
            content,
        })
    }
}

fn lapse_text(lapse: Lapse, at: Timestamp) -> String {
    format!("{lapse} {at}; write the lock anew with `ryectl lock create`")
}

/// Signs `content` with `key` and writes it as the lock of this version of `tool`, into the project, or into the user space if there is none.
pub fn write(
    spaces: &Spaces,
    tool: &ItemId,
    version: &str,
    mut content: Map<String, Value>,
    key: &SecretKey,
    at: Timestamp,
) -> Result<PathBuf, Error> {
    sign_json(&mut content, key, at);
    let mut text = serde_json::to_string_pretty(&content).expect("a JSON object is written");
    text.push('\n');
    let root = SEARCHED.iter().find_map(|space| spaces.root(*space));
    let root = root.expect("there is always a user space");
    let path = root.join(FOLDER).join(place(tool, version));
    let folder = path.parent().unwrap_or(root);
    let written =
        fs::create_dir_all(folder).and_then(|()| file::replace(&path, text.as_bytes(), 0o644));
    match written {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::Write { path, source }),
    }
}

/// All locks, those of the project first, each by the name of its file.
pub fn list(spaces: &Spaces) -> Vec<Listed> {
    let mut found = Vec::new();
    for space in SEARCHED {
        let Some(root) = spaces.root(space) else {
            continue;
        };
        let folder = root.join(FOLDER).join(LOCKS);
        let mut open = vec![folder.clone()];
        let first = found.len();
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push(path),
                    Ok(kind) if kind.is_file() => found.extend(listed(&folder, path, space)),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        found[first..].sort_by(|a, b| a.path.cmp(&b.path));
    }
    found
}

fn listed(folder: &Path, path: PathBuf, space: Space) -> Option<Listed> {
    let name = path.strip_prefix(folder).ok()?.to_str()?;
    let (tool, version) = name.strip_suffix(SUFFIX)?.rsplit_once('@')?;
    let (tool, version) = (tool.to_owned(), version.to_owned());
    Some(Listed {
        path,
        space,
        tool,
        version,
    })
}
