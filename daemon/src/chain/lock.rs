//! What a lock of a tool holds, and whether the tool still is what it says.
//!
//! A lock names the tool, each element of its chain, each file of the configuration that it is given, and each file of its copy, all by
//! their SHA-256. A lock that is there holds: every part must match. Beside that it covers what has no signature of its own, such as data.

use std::path::Path;

use rye_core::id::ItemId;
use rye_core::seal::sha256_hex;
use rye_item::lock::Lock;
use rye_item::{Item, Library};
use serde_json::{Value, json};

use super::error::Error;

/// The lock of a tool.
#[derive(Debug)]
pub(super) struct Held(pub(super) Lock);

/// What may cover the files of a tool that are not signed.
#[derive(Debug)]
pub(super) enum Cover<'a> {
    /// The lock of the tool, if it has one.
    Lock(Option<&'a Held>),
    /// A lock that is being written.
    Everything,
}

/// The lock of `tool`, if it has one.
pub(super) fn of(tool: &Item, library: &Library) -> Result<Option<Held>, Error> {
    let Some(version) = &tool.metadata.version else {
        return Ok(None);
    };
    let found = library.lock(tool.id(), version)?;
    Ok(found.map(Held))
}

impl Held {
    /// Its entry of a trace.
    pub(super) fn traced(&self) -> Value {
        let status = match self.0.signer {
            Some(_) => "holds",
            None => "unsigned",
        };
        json!({"step": "lock", "path": self.0.path, "status": status})
    }

    /// Whether it says that a file of `tool` has this content; an error if it says that it has another one.
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
        // With line ends of another system it may be the signed text that was locked.
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
