//! What `ryectl verify` says about a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::id::ItemRef;
use rye_core::seal::{Coverage, Fingerprint};

use super::error::{Error, Lapse};
use super::item::{Item, Origin};
use super::state::Library;
use crate::spaces::{self, Space};

/// The outcome of all checks in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A trusted key signed the whole file.
    Full,
    /// A trusted key signed it as the original system does, without shebang, front matter or prose.
    Partial,
    /// It is part of this program.
    BuiltIn,
    /// It carries no signature.
    Unsigned,
    /// It was changed after it was signed.
    Modified,
    /// Its signer is not trusted.
    Untrusted,
    /// Its signature is not the named key's.
    BadSignature,
    /// Its signer was revoked.
    Revoked,
    /// Its signer's time is over.
    Expired,
    /// It does not lie where it says it belongs.
    Misplaced,
    /// It cannot be read as an item at all.
    Invalid,
}

impl Verdict {
    /// The word for people and for JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::BuiltIn => "built_in",
            Self::Unsigned => "unsigned",
            Self::Modified => "modified",
            Self::Untrusted => "untrusted",
            Self::BadSignature => "bad_signature",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Misplaced => "misplaced",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known about one file.
#[derive(Debug)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// The item it is.
    pub item: ItemRef,
    /// The outcome.
    pub verdict: Verdict,
    /// The key that signed it, or that its token names.
    pub fingerprint: Option<Fingerprint>,
    /// Whose key that is, if it is trusted.
    pub owner: Option<String>,
    /// Why it would be refused, with the fix; `None` if it may be used.
    pub refusal: Option<Error>,
}

impl Library {
    /// Verifies the item a project would use under this name. Fails only if there is none or it cannot be opened.
    pub fn verify(&self, item: &ItemRef) -> Result<Report, Error> {
        match self.resolve(item, Space::Project) {
            Err(
                error @ (Error::NotFound { .. }
                | Error::OutOfReach { .. }
                | Error::Unreadable { .. }),
            ) => Err(error),
            result => Ok(self.report(item, result)),
        }
    }

    /// Verifies the file at `path`, whatever the project. Fails only if it is no item or cannot be opened.
    pub fn verify_path(&self, path: &Path) -> Result<Report, spaces::Error> {
        let place = self.spaces.locate(path)?;
        let content = place.read()?.ok_or_else(|| spaces::Error::Read {
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let mut report = self.report(&place.item, self.admit(&place, &content));
        report.path = place.path();
        Ok(report)
    }

    pub(super) fn report(&self, item: &ItemRef, result: Result<Arc<Item>, Error>) -> Report {
        let error = match result {
            Ok(item) => return accepted(&item),
            Err(error) => error,
        };
        let (verdict, path, signer) = match &error {
            Error::Unsigned { path, .. } => (Verdict::Unsigned, path, None),
            Error::Modified { path, signer, .. } => (Verdict::Modified, path, Some(signer)),
            Error::Untrusted { path, signer, .. } => (Verdict::Untrusted, path, Some(signer)),
            Error::BadSignature { path, signer, .. } => (Verdict::BadSignature, path, Some(signer)),
            Error::PartialOnly { path, signer, .. } => (Verdict::Partial, path, Some(signer)),
            Error::Lapsed {
                path,
                signer,
                state,
                ..
            } => {
                let verdict = match state {
                    Lapse::Revoked => Verdict::Revoked,
                    Lapse::Expired => Verdict::Expired,
                };
                (verdict, path, Some(signer))
            }
            Error::Misplaced { path, .. } => (Verdict::Misplaced, path, None),
            Error::Metadata { path, .. }
            | Error::Unsupported { path, .. }
            | Error::Config { path, .. } => (Verdict::Invalid, path, None),
            Error::NotFound { .. } | Error::OutOfReach { .. } | Error::Unreadable { .. } => {
                (Verdict::Invalid, &PathBuf::new(), None)
            }
        };
        Report {
            path: path.clone(),
            item: item.clone(),
            verdict,
            fingerprint: signer.cloned(),
            owner: signer
                .and_then(|signer| self.trust.key(signer))
                .map(|key| key.owner.clone()),
            refusal: Some(error),
        }
    }
}

pub(super) fn accepted(item: &Item) -> Report {
    let verdict = match &item.origin {
        Origin::BuiltIn => Verdict::BuiltIn,
        Origin::Signed { coverage, .. } => match coverage {
            Coverage::Full => Verdict::Full,
            Coverage::Partial => Verdict::Partial,
        },
    };
    Report {
        path: item.path.clone(),
        item: item.item.clone(),
        verdict,
        fingerprint: item.signer().map(|signer| signer.key.fingerprint().clone()),
        owner: item.signer().map(|signer| signer.owner.clone()),
        refusal: None,
    }
}
