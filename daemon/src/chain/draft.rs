//! Draft of a lock, before it is written.

use std::path::PathBuf;

use rye_core::id::{ItemId, ItemRef};
use rye_core::model::Object;
use rye_item::Library;

use super::comparison::content;
use super::error::Error;
use super::fields::malformed;
use super::lock::of;
use super::walk::{Locks, resolve_under};

/// Draft of a lock, compared with the existing one.
#[derive(Debug)]
pub struct Draft {
    pub tool: ItemId,
    pub version: String,
    pub content: Object,
    /// Files without a signature of their own, which only the lock would cover.
    pub unsigned: Vec<PathBuf>,
    pub existing: LockState,
}

/// State of the existing lock of a tool.
#[derive(Debug)]
pub enum LockState {
    Absent,
    /// The lock is unsigned, so it has no effect.
    Unsigned(PathBuf),
    Matches(PathBuf),
    /// The tool differs from the lock, or the lock is unusable.
    Refused(Box<Error>),
}

/// Returns a draft of the lock of `item`. The tool and the elements of its chain must verify; its further files may be
/// unsigned.
pub fn draft(library: &Library, item: &ItemRef) -> Result<Draft, Error> {
    let chain = resolve_under(library, item, Locks::Writing, None)?;
    let version = chain.tool().metadata.version.clone();
    let version = version.ok_or_else(|| {
        malformed(
            chain.tool(),
            "version",
            "is missing: a lock is of one version of a tool",
        )
    })?;
    let standing = match of(chain.tool(), library) {
        Ok(None) => LockState::Absent,
        Ok(Some(held)) if held.0.signer.is_none() => LockState::Unsigned(held.0.path),
        Ok(Some(held)) => match held.check(&chain) {
            Ok(()) => LockState::Matches(held.0.path),
            Err(error) => LockState::Refused(Box::new(error)),
        },
        Err(error) => LockState::Refused(Box::new(error)),
    };
    let anchored = chain.anchored.as_ref();
    Ok(Draft {
        tool: chain.tool().id().clone(),
        version,
        content: content(&chain),
        unsigned: anchored.map_or_else(Vec::new, |anchored| anchored.unsigned.clone()),
        existing: standing,
    })
}
