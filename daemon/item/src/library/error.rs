//! Reasons to refuse an item.

use std::path::PathBuf;

use rye_core::clock::Timestamp;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::did_you_mean;
use rye_core::id::{ItemId, ItemRef};
use rye_core::printable::shell_word;
use rye_core::seal::{self, Fingerprint};

use crate::cascade;
use crate::metadata::{self};
use crate::spaces::{self, Space};
use crate::trust::Refused;

/// Reason to refuse an item.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No searched space has the item.
    #[error(
        "{item} does not exist in {searched}{}; `.ai/{}/{}.*` is where it would be",
        did_you_mean(near.as_ref()), item.kind.folder(), item.id
    )]
    NotFound {
        item: ItemRef,
        /// The searched spaces, as text.
        searched: String,
        /// Suggested id, if a suggestion was requested and found.
        near: Option<ItemId>,
    },
    /// Only a space that must not be searched has the item.
    #[error(
        "{item} is in the {space} space (`{path}`), where nothing of the {referrer} space may rest on it: put it into the \
         {referrer} space, or put what needs it into the {space} space"
    )]
    OutOfReach {
        item: ItemRef,
        path: PathBuf,
        space: Space,
        /// Space of the item that refers to it.
        referrer: Space,
    },
    #[error(
        "{item} (`{path}`) is not signed{}",
        .problem.as_ref().map_or_else(
            || format!("; read it, then run `ryectl sign {item}`"),
            |problem| format!(", and cannot be signed as it is: {problem}")
        )
    )]
    Unsigned {
        item: ItemRef,
        path: PathBuf,
        /// Reason why it cannot be signed either.
        problem: Option<Box<metadata::Error>>,
    },
    #[error(
        "{item} (`{path}`) was changed after {signer} signed it; if the change is yours, run `ryectl sign {item}`"
    )]
    Modified {
        item: ItemRef,
        path: PathBuf,
        /// Signer of the previous content according to the unverified token.
        signer: Fingerprint,
    },
    #[error(
        "{item} (`{path}`) is signed by {signer}, whom you do not trust{}; \
         accept the key with `ryectl key trust FILE`, or read the item and run `ryectl sign {item}`",
        .entry.as_ref().map_or_else(String::new, |entry| format!(" (`{}` does not count: {})", entry.path.display(), entry.reason))
    )]
    Untrusted {
        item: ItemRef,
        path: PathBuf,
        /// Key that the token names.
        signer: Fingerprint,
        /// Entry of that key that does not count, if there is one.
        entry: Option<Box<Refused>>,
    },
    #[error(
        "{item} (`{path}`) claims to be signed by {signer}, but that key did not make the signature; \
         get the file again from its author, or read it and run `ryectl sign {item}`"
    )]
    BadSignature {
        item: ItemRef,
        path: PathBuf,
        /// Key that the token names.
        signer: Fingerprint,
    },
    /// The signing key is revoked or has expired.
    #[error(
        "{item} (`{path}`) is signed by {signer} (`{owner}`), which {state} {since}; \
         read the item and run `ryectl sign {item}`"
    )]
    Lapsed {
        item: ItemRef,
        path: PathBuf,
        signer: Fingerprint,
        /// Owner of the key.
        owner: String,
        state: Lapse,
        since: Timestamp,
    },
    /// The signature does not cover the whole file, or not the item's name.
    #[error(
        "{item} (`{path}`) is signed by {signer} without {left_out}; run `ryectl sign {item}` to sign it whole, \
         or let such signatures of that key count with `ryectl key trust {} --accept-partial`",
        shell_word(&.entry.to_string_lossy())
    )]
    PartialOnly {
        item: ItemRef,
        path: PathBuf,
        signer: Fingerprint,
        /// File of the key's entry.
        entry: PathBuf,
        /// The uncovered part, as text.
        left_out: &'static str,
    },
    /// The declared category or name does not match the path.
    #[error(
        "{item} (`{path}`) {}; move the file, or correct the field and run `ryectl sign {item}`",
        misplacement(.field, declared.as_deref(), .expected)
    )]
    Misplaced {
        item: ItemRef,
        path: PathBuf,
        /// `category` or `name`.
        field: &'static str,
        declared: Option<String>,
        /// Value that the path requires.
        expected: String,
    },
    /// The file is not text, or its metadata cannot be read.
    #[error("failed to read the metadata of {item} (`{path}`)")]
    Metadata {
        item: ItemRef,
        path: PathBuf,
        #[source]
        source: metadata::Error,
    },
    /// Files of this type cannot carry a signature.
    #[error("{item} (`{path}`) cannot be an item")]
    Unsupported {
        item: ItemRef,
        path: PathBuf,
        #[source]
        source: seal::Error,
    },
    /// The configuration file cannot be merged into the lower ones.
    #[error("failed to merge {item} (`{path}`); fix the file and run `ryectl sign {item}`")]
    Config {
        item: ItemRef,
        path: PathBuf,
        #[source]
        source: cascade::Error,
    },
    #[error("failed to open {item}")]
    Unreadable {
        item: ItemRef,
        #[source]
        source: spaces::Error,
    },
}

/// Reason why a formerly trusted key no longer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    Revoked,
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

fn misplacement(field: &str, declared: Option<&str>, expected: &str) -> String {
    match declared {
        Some(declared) => {
            format!("declares `{field}: {declared}`, but is where `{field}: {expected}` belongs")
        }
        None => format!("does not declare `{field}: {expected}`, which its place requires"),
    }
}
