//! What was signed before: copies of signed texts, so that who signs again is shown what has changed.
//!
//! **Owns** `cache/signed` in the user's `.ai`, a file for each text, by the hash that its signature covers. **Never** trusts a copy: one
//! that does not have its hash is none. **Failure**: what is not kept, or was removed, cannot be compared with; nothing else depends on it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rye_core::seal::sha256_hex;

use super::Signed;
use crate::file;
use crate::spaces::FOLDER;

/// Longest text that is kept.
const MOST_BYTES: usize = 1 << 20;

/// The copies of a user.
#[derive(Debug, Clone)]
pub struct Past(PathBuf);

impl Past {
    /// Those of the user whose `.ai` lies in `user_space`.
    pub fn of(user_space: &Path) -> Self {
        Self(user_space.join(FOLDER).join("cache/signed"))
    }

    /// Keeps what was signed.
    pub fn keep(&self, signed: &Signed) -> io::Result<()> {
        let path = self.0.join(&signed.content_hash);
        if signed.text.len() > MOST_BYTES || path.exists() {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        file::replace(&path, signed.text.as_bytes(), 0o600)
    }

    /// What the signature covered that `signed` took the place of, if a copy of it is there.
    pub fn before(&self, signed: &Signed) -> Option<String> {
        let hash = &signed.before.as_ref()?.hash;
        if *hash == signed.content_hash {
            return Some(signed.text.clone());
        }
        let text = fs::read_to_string(self.0.join(hash)).ok()?;
        (sha256_hex(&text) == *hash).then_some(text)
    }
}
