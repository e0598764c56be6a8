//! Locks: what a tool and all that it stands on were when its user vouched for them.
//!
//! **Owns** `.ai/lockfiles/<tool id>@<version>.lock.json`, a JSON object that carries its signature: where such a file lies, how it is
//! written, and whether its signature counts. What stands in it is for those who resolve tools to say, and to compare. **Never** tells of a
//! lock that nobody signed as of one that holds: these are files of another program; one that is signed counts beside them, wherever it lies. **Never**
//! reads or writes outside of the space. **Failure.** A lock whose signature does not count is an error, not a lock that is not there.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::parse_json;
use rye_core::id::ItemId;
use rye_core::seal::{self, Fingerprint, SecretKey, sign_json, verify_json};
use serde_json::{Map, Value};

use crate::file;
use crate::library::{Lapse, Library};
use crate::sign::is_version;
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
    /// There is no lock of such a version.
    #[error(
        "`{tool}` has the version `{version}`, and a lock is of a version such as 1.0.0; correct it, and run `ryectl sign tool:{tool}`"
    )]
    Version {
        /// The tool.
        tool: ItemId,
        /// What it says.
        version: String,
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
            Self::Malformed { .. } | Self::Version { .. } => ErrorKind::Invalid,
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

impl Listed {
    /// The tool, if the file is named after one.
    pub fn id(&self) -> Result<ItemId, Error> {
        let malformed = |problem: String| Error::Malformed {
            path: self.path.clone(),
            problem,
        };
        if !is_version(&self.version) {
            return Err(malformed(format!(
                "is named after no version of a tool, but after `{}`",
                self.version
            )));
        }
        let id = ItemId::new(self.tool.as_str());
        id.map_err(|error| malformed(format!("is named after no tool: {error}")))
    }
}

/// Where the lock of a tool lies, below `.ai`. What is no version of ours has none: it could be a path to anywhere.
fn place(tool: &ItemId, version: &str) -> Option<PathBuf> {
    let name = || format!("{tool}@{version}{SUFFIX}");
    is_version(version).then(|| Path::new(LOCKS).join(name()))
}

impl Library {
    /// The lock of this version of `tool` that is signed: the project's, else the user's. If none is, the first that is there.
    pub fn lock(&self, tool: &ItemId, version: &str) -> Result<Option<Lock>, Error> {
        let Some(relative) = place(tool, version) else {
            return Ok(None);
        };
        let mut unsigned = None;
        for space in SEARCHED {
            let Some(root) = self.spaces().root(space) else {
                continue;
            };
            let Some(content) = self.spaces().read(space, &relative)? else {
                continue;
            };
            let lock = self.admit_lock(root.join(FOLDER).join(&relative), &content)?;
            if lock.signer.is_some() {
                return Ok(Some(lock));
            }
            // Anybody who writes to the project could have put it there, and may not switch off what the user signed.
            unsigned = unsigned.or(Some(lock));
        }
        Ok(unsigned)
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
    let relative = place(tool, version).ok_or_else(|| Error::Version {
        tool: tool.clone(),
        version: version.to_owned(),
    })?;
    sign_json(&mut content, key, at);
    let mut text = serde_json::to_string_pretty(&content).expect("a JSON object is written");
    text.push('\n');
    let found = SEARCHED
        .into_iter()
        .find_map(|space| spaces.root(space).map(|root| (space, root)));
    let (space, root) = found.expect("there is always a user space");
    let folder = spaces::make(space, root, relative.parent().unwrap_or(Path::new("")))?;
    let name = relative.file_name().unwrap_or_default();
    let path = root.join(FOLDER).join(&relative);
    // The folder that was opened, wherever its path leads by now.
    let open = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    match file::replace(&open.join(name), text.as_bytes(), 0o644) {
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

#[cfg(test)]
mod tests;
