//! Lock files: the verified state of a tool and its dependencies.
//!
//! **Owns** `.ai/lockfiles/<tool id>@<version>.lock.json`, a JSON object that carries its signature: the path of such a
//! file, its writing, and the verification of its signature. The resolver of tools defines and compares the content.
//! **Never** treats an unsigned lock as binding: such files belong to another program. A signed lock takes precedence
//! over an unsigned one in any space. **Never** reads or writes outside the space. **Failure.** A lock with an invalid
//! signature is an error; it is not treated as absent.

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

/// Folder of lock files below `.ai`.
const LOCKS: &str = "lockfiles";
const SUFFIX: &str = ".lock.json";
/// Spaces that may have locks, in order of precedence.
const SEARCHED: [Space; 2] = [Space::Project, Space::User];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Unreadable(#[from] spaces::Error),
    /// The file is not a JSON object.
    #[error("the lock `{path}` {problem}; remove it, or write it anew with `ryectl lock create`")]
    Malformed { path: PathBuf, problem: String },
    /// The file was changed, or the key it names did not sign it.
    #[error("the lock `{path}` does not count")]
    Refused {
        path: PathBuf,
        #[source]
        source: seal::Error,
    },
    #[error("the lock `{path}` was signed by {signer}, a key that {why}")]
    Signer {
        path: PathBuf,
        signer: Fingerprint,
        /// Reason why the key does not count, and the fix.
        why: String,
    },
    /// The version is not of the form `N.N.N`.
    #[error(
        "`{tool}` has the version `{version}`, and a lock is of a version such as 1.0.0; correct it, and run `ryectl sign tool:{tool}`"
    )]
    Version { tool: ItemId, version: String },
    #[error("failed to write the lock `{path}`")]
    Write {
        path: PathBuf,
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

/// A lock file that was found.
#[derive(Debug, Clone)]
pub struct Lock {
    pub path: PathBuf,
    pub content: Map<String, Value>,
    /// Key that signed the lock; `None` if it is unsigned and therefore not binding.
    pub signer: Option<Fingerprint>,
}

/// A lock file in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub space: Space,
    /// The tool according to the file name.
    pub tool: String,
    pub version: String,
}

impl Listed {
    /// Id of the tool. Fails if the file name does not hold a valid id and version.
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

/// Path of the lock of a tool below `.ai`. `None` for an invalid version, which could be a path to anywhere.
fn place(tool: &ItemId, version: &str) -> Option<PathBuf> {
    let name = || format!("{tool}@{version}{SUFFIX}");
    is_version(version).then(|| Path::new(LOCKS).join(name()))
}

impl Library {
    /// The signed lock of this version of `tool`: the project's, else the user's. If none is signed, the first that
    /// exists.
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
            // An unsigned lock could come from anyone who can write to the project; it must not disable a lock the user
            // signed.
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

/// Signs `content` with `key` and writes it as the lock of this version of `tool`: into the project, or into the user
/// space if there is no project.
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
    // Names the opened folder, independent of the current target of its path.
    let open = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    match file::replace(&open.join(name), text.as_bytes(), 0o644) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::Write { path, source }),
    }
}

/// All locks, those of the project first, ordered by file name within a space.
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
