//! Lock of a tool.
//!
//! A lock contains the SHA-256 of the tool, of each element of its chain, of each configuration file it receives, and
//! of each file of its copy. If a lock exists, each part must match. A lock also covers files without a signature of
//! their own, such as data.

use std::path::Path;

use rye_core::id::ItemId;
use rye_core::seal::sha256_hex;
use rye_item::lock::Lock;
use rye_item::{Item, Library};
use serde_json::{Value, json};

use super::error::Error;

/// Lock of a tool.
#[derive(Debug)]
pub(super) struct ToolLock(pub(super) Lock);

/// Source that may cover the unsigned files of a tool.
#[derive(Debug)]
pub(super) enum Cover<'a> {
    /// The lock of the tool, if there is one.
    Lock(Option<&'a ToolLock>),
    /// A lock that is being written.
    Everything,
}

/// Returns the lock of `tool`, or `None` if there is none.
pub(super) fn of(tool: &Item, library: &Library) -> Result<Option<ToolLock>, Error> {
    let Some(version) = &tool.metadata.version else {
        return Ok(None);
    };
    let found = library.lock(tool.id(), version)?;
    Ok(found.map(ToolLock))
}

impl ToolLock {
    pub(super) fn traced(&self) -> Value {
        let status = match self.0.signer {
            Some(_) => "holds",
            None => "unsigned",
        };
        json!({"step": "lock", "path": self.0.path, "status": status})
    }

    /// Returns true if the lock lists a file of `tool` with this content, and an error if it lists it with another
    /// content.
    pub(super) fn covers(&self, tool: &Item, name: &Path, content: &[u8]) -> Result<bool, Error> {
        if self.0.signer.is_none() {
            return Ok(false);
        }
        let files = self
            .0
            .content
            .get("verified_deps")
            .and_then(|deps| deps.get("files"));
        let name = name.to_string_lossy();
        let Some(locked) = files
            .and_then(|files| files.get(&*name))
            .and_then(Value::as_str)
        else {
            return Ok(false);
        };
        let found = sha256_hex(content);
        if locked == found {
            return Ok(true);
        }
        // The lock may list the signed text, which has other line ends.
        if content.contains(&b'\r') {
            return Ok(false);
        }
        let part = format!("verified_deps.files.{name}");
        Err(self.mismatch(tool.id(), part, locked.to_owned(), found))
    }

    pub(super) fn mismatch(
        &self,
        tool: &ItemId,
        part: String,
        locked: String,
        found: String,
    ) -> Error {
        Error::LockMismatch {
            tool: tool.clone(),
            path: self.0.path.clone(),
            part,
            locked,
            found,
        }
    }
}
