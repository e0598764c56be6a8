//! What a lock of a tool holds, and whether the tool still is what it says.
//!
//! A lock names the tool, each element of its chain, each file of the configuration that it is given, and each file of its copy, all by
//! their SHA-256. A lock that is there holds: every part must match. Beside that it covers what has no signature of its own, such as data.

use std::path::{Path, PathBuf};

use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_core::seal::sha256_hex;
use rye_item::lock::Lock;
use rye_item::{Item, Library};
use serde_json::{Value, json};

use super::error::Error;
use super::fields::malformed;
use super::{Chain, Locks, resolve_under};

/// The parts that are compared.
const PARTS: [&str; 4] = ["root", "resolved_chain", "config", "verified_deps"];
const FORM: &str = "lockfile_version";

/// The lock of a tool.
#[derive(Debug)]
pub(super) struct Held(Lock);

/// What may cover the files of a tool that are not signed.
#[derive(Debug)]
pub(super) enum Cover<'a> {
    /// The lock of the tool, if it has one.
    Lock(Option<&'a Held>),
    /// A lock that is being written.
    Everything,
}

/// A lock that could be written, and how it stands with the one that is there.
#[derive(Debug)]
pub struct Draft {
    /// The tool.
    pub tool: ItemId,
    /// Its version.
    pub version: String,
    /// What the lock would hold.
    pub content: Object,
    /// Files that nothing but the lock would cover.
    pub unsigned: Vec<PathBuf>,
    /// The lock that is there.
    pub standing: Standing,
}

/// How a tool stands with its lock.
#[derive(Debug)]
pub enum Standing {
    /// It has none.
    Absent,
    /// It has one that nobody signed, which holds nothing.
    Unsigned(PathBuf),
    /// It is as it says.
    Matches(PathBuf),
    /// It is not, or the lock cannot be used.
    Refused(Box<Error>),
}

/// The lock of `tool`, if it has one.
pub(super) fn of(tool: &Item, library: &Library) -> Result<Option<Held>, Error> {
    let Some(version) = &tool.metadata.version else {
        return Ok(None);
    };
    let found = library.lock(tool.id(), version)?;
    Ok(found.map(Held))
}

/// What a lock of `item` would hold. Its own item and the elements of its chain have to be verified; its further files need not.
pub fn draft(library: &Library, item: &ItemRef) -> Result<Draft, Error> {
    let chain = resolve_under(library, item, Locks::Drawn, None)?;
    let version = chain.tool().metadata.version.clone();
    let version = version.ok_or_else(|| {
        malformed(
            chain.tool(),
            "version",
            "is missing: a lock is of one version of a tool",
        )
    })?;
    let standing = match of(chain.tool(), library) {
        Ok(None) => Standing::Absent,
        Ok(Some(held)) if held.0.signer.is_none() => Standing::Unsigned(held.0.path),
        Ok(Some(held)) => match held.check(&chain) {
            Ok(()) => Standing::Matches(held.0.path),
            Err(error) => Standing::Refused(Box::new(error)),
        },
        Err(error) => Standing::Refused(Box::new(error)),
    };
    let anchored = chain.anchored.as_ref();
    Ok(Draft {
        tool: chain.tool().id().clone(),
        version,
        content: content(&chain),
        unsigned: anchored.map_or_else(Vec::new, |anchored| anchored.unsigned.clone()),
        standing,
    })
}

/// All that a lock says of `chain`.
fn content(chain: &Chain) -> Object {
    let tool = chain.tool();
    let files = chain.anchored.as_ref().map(|anchored| {
        let files = anchored.tree.hashes();
        let files = files.map(|(path, hash)| (path.to_string_lossy().into_owned(), hash.into()));
        json!({"root": anchored.begins, "files": files.collect::<Object>()})
    });
    let config = chain.given.as_ref().map(|given| given.files.clone());
    let parts = [
        (FORM, json!(1)),
        (
            "root",
            json!({
                "tool_id": tool.id().as_str(),
                "version": tool.metadata.version,
                "integrity": tool.content_hash,
            }),
        ),
        ("resolved_chain", Value::Array(chain.links())),
        ("registry", Value::Null),
        ("config", Value::Array(config.unwrap_or_default())),
        ("verified_deps", files.unwrap_or_default()),
    ];
    parts
        .into_iter()
        .map(|(name, part)| (name.to_owned(), part))
        .collect()
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

    /// Refuses a chain that is not what it was.
    pub(super) fn check(&self, chain: &Chain) -> Result<(), Error> {
        if self.0.signer.is_none() {
            return Ok(());
        }
        let now = content(chain);
        let tool = chain.tool().id();
        let form = (self.0.content.get(FORM), now.get(FORM));
        let parts = PARTS
            .iter()
            .map(|part| (*part, (self.0.content.get(*part), now.get(*part))));
        for (part, (locked, found)) in [(FORM, form)].into_iter().chain(parts) {
            if let Some((part, locked, found)) = difference(part.to_owned(), locked, found) {
                return Err(self.mismatch(tool, part, locked, found));
            }
        }
        Ok(())
    }

    fn mismatch(&self, tool: &ItemId, part: String, locked: String, found: String) -> Error {
        Error::LockMismatch {
            tool: tool.clone(),
            path: self.0.path.clone(),
            part,
            locked,
            found,
        }
    }
}

/// The first place below `part` in which the two differ, and what stands there, in words.
fn difference(
    part: String,
    locked: Option<&Value>,
    found: Option<&Value>,
) -> Option<(String, String, String)> {
    if locked == found {
        return None;
    }
    match (locked, found) {
        (Some(Value::Object(locked)), Some(Value::Object(found))) => {
            let names = found.keys().chain(locked.keys());
            let mut each = names.map(|name| {
                difference(format!("{part}.{name}"), locked.get(name), found.get(name))
            });
            each.find_map(|different| different)
        }
        (Some(Value::Array(locked)), Some(Value::Array(found))) => {
            let mut each = (0..locked.len().max(found.len()))
                .map(|at| difference(format!("{part}.{at}"), locked.get(at), found.get(at)));
            each.find_map(|different| different)
        }
        _ => Some((part, in_words(locked), in_words(found))),
    }
}

fn in_words(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(_) | Value::Array(_)) => "there".to_owned(),
        Some(other) => other.to_string(),
    }
}
