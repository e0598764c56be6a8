//! Verification reports of `ryectl verify`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_core::id::ItemRef;
use rye_core::seal::{Coverage, Fingerprint};

use super::error::{Error, Lapse};
use super::item::{Item, Origin};
use super::state::Library;
use crate::spaces::{self, Space};

/// Summary of all checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A trusted key signed the whole file.
    Full,
    /// A trusted key signed it as the original system does, without shebang, front matter or prose.
    Partial,
    /// The item is part of this program.
    BuiltIn,
    Unsigned,
    Modified,
    Untrusted,
    /// The named key did not make the signature.
    BadSignature,
    Revoked,
    Expired,
    /// The item is not at the path it declares.
    Misplaced,
    /// The file cannot be read as an item.
    Invalid,
}

impl Verdict {
    /// Name in texts and in JSON.
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

/// Result of the verification of one file.
#[derive(Debug)]
pub struct Report {
    pub path: PathBuf,
    pub item: ItemRef,
    pub verdict: Verdict,
    /// Key that signed the item, or that its token names.
    pub fingerprint: Option<Fingerprint>,
    /// Owner of that key, if it is trusted.
    pub owner: Option<String>,
    /// Reason to refuse the item, with the fix; `None` if it may be used.
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

    /// Verifies the file at `path`, independent of any project. Fails only if it is not an item or cannot be opened.
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
