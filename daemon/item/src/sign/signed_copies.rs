//! Copies of signed texts, so that a later signer can be shown the changes.
//!
//! **Owns** `cache/signed` in the user's `.ai`: one file for each text, named by the hash that its signature covers.
//! **Never** trusts a copy: one whose content does not match its hash is ignored. **Failure**: a missing copy only
//! prevents the comparison; nothing else depends on it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rye_core::seal::sha256_hex;

use super::Signed;
use crate::file;
use crate::spaces::FOLDER;

/// Maximum length of a kept text, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// Copies of one user.
#[derive(Debug, Clone)]
pub struct SignedCopies(PathBuf);

impl SignedCopies {
    /// Copies of the user whose `.ai` is in `user_space`.
    pub fn of(user_space: &Path) -> Self {
        Self(user_space.join(FOLDER).join("cache/signed"))
    }

    /// Stores the signed text.
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

    /// Text covered by the signature that `signed` replaced, if there is a copy.
    pub fn previous(&self, signed: &Signed) -> Option<String> {
        let hash = &signed.previous_signature.as_ref()?.hash;
        if *hash == signed.content_hash {
            return Some(signed.text.clone());
        }
        let text = fs::read_to_string(self.0.join(hash)).ok()?;
        (sha256_hex(&text) == *hash).then_some(text)
    }
}
