//! Reasons for which an item cannot be used.

use std::path::PathBuf;

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::did_you_mean;
use rye_core::id::{ItemId, ItemRef};
use rye_core::seal::{self, Fingerprint};
use rye_core::sight::shell_word;

use crate::cascade;
use crate::metadata::{self};
use crate::spaces::{self, Space};
use crate::trust::Refused;

/// Why an item cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No space that may be searched has it.
    #[error(
        "{item} does not exist in {searched}{}; `.ai/{}/{}.*` is where it would be",
        did_you_mean(near.as_ref()), item.kind.folder(), item.id
    )]
    NotFound {
        /// The item.
        item: ItemRef,
        /// The spaces that were searched, in words.
        searched: String,
        /// The id that may have been meant, if that was asked.
        near: Option<ItemId>,
    },
    /// Only a space that may not be searched has it.
    #[error(
        "{item} lies in the {space} space (`{path}`), where nothing of the {referrer} space may rest on it: put it into the \
         {referrer} space, or put what needs it into the {space} space"
    )]
    OutOfReach {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// Its space.
        space: Space,
        /// The space of what asked for it.
        referrer: Space,
    },
    /// It carries no signature.
    #[error("{item} (`{path}`) is not signed; read it, then run `ryectl sign {item}`")]
    Unsigned {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
    },
    /// Its content is not what was signed.
    #[error(
        "{item} (`{path}`) was changed after {signer} signed it; if the change is yours, run `ryectl sign {item}`"
    )]
    Modified {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// Who signed the former content, if the token tells the truth.
        signer: Fingerprint,
    },
    /// Its signer is not trusted.
    #[error(
        "{item} (`{path}`) is signed by {signer}, whom you do not trust{}; \
         accept the key with `ryectl key trust FILE`, or read the item and run `ryectl sign {item}`",
        .entry.as_ref().map_or_else(String::new, |entry| format!(" (`{}` does not count: {})", entry.path.display(), entry.reason))
    )]
    Untrusted {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// The key the token names.
        signer: Fingerprint,
        /// The entry of that key, if there is one that does not count.
        entry: Option<Box<Refused>>,
    },
    /// The named key did not make the signature.
    #[error(
        "{item} (`{path}`) claims to be signed by {signer}, but that key did not make the signature; \
         get the file again from its author, or read it and run `ryectl sign {item}`"
    )]
    BadSignature {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// The key the token names.
        signer: Fingerprint,
    },
    /// The signing key does not count any more.
    #[error(
        "{item} (`{path}`) is signed by {signer} (`{owner}`), which {state} {since}; \
         read the item and run `ryectl sign {item}`"
    )]
    Lapsed {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// The key.
        signer: Fingerprint,
        /// Whose it is.
        owner: String,
        /// What happened to it.
        state: Lapse,
        /// When.
        since: Timestamp,
    },
    /// Its signature leaves out parts of the file, or the name under which it lies there.
    #[error(
        "{item} (`{path}`) is signed by {signer} without {left_out}; run `ryectl sign {item}` to sign it whole, \
         or let such signatures of that key count with `ryectl key trust {} --accept-partial`",
        shell_word(&.entry.to_string_lossy())
    )]
    PartialOnly {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// The key that signed.
        signer: Fingerprint,
        /// The entry of that key.
        entry: PathBuf,
        /// What the signature does not cover.
        left_out: &'static str,
    },
    /// It does not lie where it says it belongs.
    #[error(
        "{item} (`{path}`) {}; move the file, or correct the field and run `ryectl sign {item}`",
        misplacement(.field, declared.as_deref(), .expected)
    )]
    Misplaced {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// `category` or `name`.
        field: &'static str,
        /// What it declares.
        declared: Option<String>,
        /// What its place asks for.
        expected: String,
    },
    /// It is not text, or its metadata cannot be read.
    #[error("failed to read the metadata of {item} (`{path}`)")]
    Metadata {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: metadata::Error,
    },
    /// Its type of file cannot carry a signature.
    #[error("{item} (`{path}`) cannot be an item")]
    Unsupported {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: seal::Error,
    },
    /// It is configuration that cannot be laid over what is below it.
    #[error("failed to merge {item} (`{path}`); fix the file and run `ryectl sign {item}`")]
    Config {
        /// The item.
        item: ItemRef,
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: cascade::Error,
    },
    /// Its file cannot be opened.
    #[error("failed to open {item}")]
    Unreadable {
        /// The item.
        item: ItemRef,
        /// Why.
        #[source]
        source: spaces::Error,
    },
}

/// Why a key that once counted does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
}

impl std::fmt::Display for Lapse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Revoked => "was revoked at",
            Self::Expired => "expired at",
        })
    }
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::OutOfReach { .. } => ErrorKind::NotFound,
            Self::Unsigned { .. }
            | Self::Modified { .. }
            | Self::Untrusted { .. }
            | Self::BadSignature { .. }
            | Self::Lapsed { .. }
            | Self::PartialOnly { .. }
            | Self::Misplaced { .. } => ErrorKind::Denied,
            Self::Metadata { source, .. } => source.kind(),
            Self::Unsupported { source, .. } => source.kind(),
            Self::Config { source, .. } => source.kind(),
            Self::Unreadable { source, .. } => source.kind(),
        }
    }
}

/// What is wrong with a field that says where an item belongs.
fn misplacement(field: &str, declared: Option<&str>, expected: &str) -> String {
    match declared {
        Some(declared) => {
            format!("declares `{field}: {declared}`, but lies where `{field}: {expected}` belongs")
        }
        None => format!("does not declare `{field}: {expected}`, which its place asks for"),
    }
}
