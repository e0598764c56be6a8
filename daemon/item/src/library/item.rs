//! Verified items.

use std::path::PathBuf;
use std::sync::Arc;

use rye_core::id::{ItemId, ItemRef};
use rye_core::seal::{Coverage, Token};

use crate::metadata::{self, Metadata};
use crate::spaces::Space;
use crate::trust::TrustedKey;

#[derive(Debug, PartialEq)]
pub struct Item {
    /// Type and id.
    pub item: ItemRef,
    pub space: Space,
    /// Path for display; the content is in `text`.
    pub path: PathBuf,
    pub extension: &'static str,
    /// The verified text, which may be run: signature line included, with `\n` line ends.
    pub text: Arc<str>,
    /// SHA-256 of the signed content, in hex.
    pub content_hash: String,
    pub origin: Origin,
    pub metadata: Metadata,
}

/// Reason why an item may be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// The item is part of this program.
    BuiltIn,
    /// A trusted key signed the item.
    Signed {
        token: Token,
        coverage: Coverage,
        signer: Arc<TrustedKey>,
    },
}

impl Item {
    pub fn id(&self) -> &ItemId {
        &self.item.id
    }

    /// Text of a knowledge item without its signature and its metadata block.
    pub fn knowledge(&self) -> String {
        metadata::knowledge(self.extension, &self.text)
    }

    /// Line, from 1, of the field that the JSON pointer names, or of its nearest ancestor with a known position.
    pub fn line(&self, pointer: &str) -> Option<usize> {
        metadata::line_of_field(self.extension, &self.text, pointer)
    }

    /// Key that signed the item; `None` if it is built in.
    pub fn signer(&self) -> Option<&TrustedKey> {
        match &self.origin {
            Origin::BuiltIn => None,
            Origin::Signed { signer, .. } => Some(signer),
        }
    }
}
