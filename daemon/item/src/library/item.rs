//! Items that were verified.

use std::path::PathBuf;
use std::sync::Arc;

use rye_core::id::{ItemId, ItemRef};
use rye_core::seal::{Coverage, Token};

use crate::metadata::{self, Metadata};
use crate::spaces::Space;
use crate::trust::TrustedKey;

/// A verified item.
#[derive(Debug, PartialEq)]
pub struct Item {
    /// Its type and id.
    pub item: ItemRef,
    /// Where it came from.
    pub space: Space,
    /// Its file. Shown to people; the content is in `text`.
    pub path: PathBuf,
    /// The file's extension.
    pub extension: &'static str,
    /// The verified text, signature line included, with `\n` line ends: what may be run.
    pub text: Arc<str>,
    /// SHA-256 of what the signature covers, in hex.
    pub content_hash: String,
    /// Why it may be used.
    pub origin: Origin,
    /// What it says about itself.
    pub metadata: Metadata,
}

/// Why an item may be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// It is part of this program.
    BuiltIn,
    /// A trusted key signed it.
    Signed {
        /// The signature.
        token: Token,
        /// What it covers.
        coverage: Coverage,
        /// Who signed.
        signer: Arc<TrustedKey>,
    },
}

impl Item {
    /// Its id within its type.
    pub fn id(&self) -> &ItemId {
        &self.item.id
    }

    /// What an item of type knowledge says: its text without the signature and the block that describes it.
    pub fn knowledge(&self) -> String {
        metadata::knowledge(self.extension, &self.text)
    }

    /// The line, from 1, in which a tool says what the JSON pointer leads to, or the nearest thing above it that has a place.
    pub fn line(&self, pointer: &str) -> Option<usize> {
        metadata::line_of_field(self.extension, &self.text, pointer)
    }

    /// The key that signed it, unless it is built in.
    pub fn signer(&self) -> Option<&TrustedKey> {
        match &self.origin {
            Origin::BuiltIn => None,
            Origin::Signed { signer, .. } => Some(signer),
        }
    }
}
