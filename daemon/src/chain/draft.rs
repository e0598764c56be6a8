//! A lock that could be written.

use std::path::PathBuf;

use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_item::Library;

use super::comparison::content;
use super::error::Error;
use super::fields::malformed;
use super::lock::of;
use super::walk::{Locks, resolve_under};

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
