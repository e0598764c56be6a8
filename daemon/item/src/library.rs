//! From a name to a verified item.
//!
//! **Owns** the search through the spaces and the order of checks: token, hash, trusted key, signature, revocation,
//! coverage, and that the item lies where it says it belongs. A signature is no licence to move a file.
//!
//! **Never** reads a file twice: an [`Item`] holds the text that was checked, and that text is what runs.
//!
//! **Order.** A new file that shadows an old one is seen at the next lookup, and so is a change of the trusted keys.
//! What was verified is remembered by content, so that looking it up again costs a read and a hash.
//!
//! **Failure.** Every error names the file and the fix. The first file found decides: a bad file in the project is
//! an error, not a reason to take the user's.

mod catalog;
mod category;
mod config;
mod declared;
mod documents;
mod draft;
mod elsewhere;
mod glance;
mod narrow;
mod verify;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rye_core::clock::{Clock, Timestamp};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::expr::did_you_mean;
use rye_core::id::{ItemId, ItemRef};
use rye_core::seal::{self, Coverage, Fingerprint, Token, sha256_hex};
use rye_core::sight::shell_word;

use crate::cascade;
use crate::metadata::{self, Metadata};
use crate::spaces::{self, Place, Space, Spaces};
use crate::system::Embedded;
use crate::trust::{PartialCoverage, Refused, TrustStore, TrustedKey};

pub use catalog::{Entry, Seen};
pub use config::{Layers, Snapshot};
pub(crate) use declared::{declared_place, nameless};
pub use documents::Document;
pub use draft::Draft;
pub use elsewhere::Shadowed;
pub use glance::Glance;
pub use verify::{Report, Verdict};

/// Verified items kept in memory; more than any project is known to use at once. Beyond it we start over.
const REMEMBERED: usize = 4096;

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
        declared::misplacement(.field, declared.as_deref(), .expected)
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

/// The items of one view: a project (or none), the user, the system.
#[derive(Debug)]
pub struct Library {
    spaces: Spaces,
    trust: Arc<TrustStore>,
    clock: Arc<dyn Clock>,
    built_in: HashMap<ItemRef, Arc<Item>>,
    verified: Mutex<HashMap<PathBuf, Remembered>>,
    snapshot: Mutex<Option<config::Made>>,
}

#[derive(Debug)]
struct Remembered {
    content: String,
    trust: u64,
    item: Arc<Item>,
}

impl Library {
    /// Opens the spaces. Nothing is read yet but the trusted keys.
    pub fn open(spaces: Spaces, trust: Arc<TrustStore>, clock: Arc<dyn Clock>) -> Self {
        let root = spaces
            .root(Space::System)
            .expect("the system space is always there");
        let built_in = Embedded::all()
            .into_iter()
            .map(|item| built_in(item, item.place(root)))
            .map(|item| (item.item.clone(), Arc::new(item)))
            .collect();
        Self {
            spaces,
            trust,
            clock,
            built_in,
            verified: Mutex::default(),
            snapshot: Mutex::default(),
        }
    }

    /// The spaces this library searches.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// The keys whose signatures count.
    pub fn trust(&self) -> &TrustStore {
        &self.trust
    }

    /// The item of this name as an item of `referrer` sees it: searched in that space and the lesser ones.
    pub fn resolve(&self, item: &ItemRef, referrer: Space) -> Result<Arc<Item>, Error> {
        for &space in referrer.visible() {
            let found = match space {
                Space::System => self.built_in.get(item).cloned(),
                Space::User | Space::Project => self.find(item, space)?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        if let Some(error) = self.out_of_reach(item, referrer) {
            return Err(error);
        }
        let searched: Vec<&str> = referrer
            .visible()
            .iter()
            .filter(|space| self.spaces.root(**space).is_some())
            .map(|space| space.as_str())
            .collect();
        Err(Error::NotFound {
            item: item.clone(),
            searched: format!("the {} space", searched.join(", ")),
            near: None,
        })
    }

    fn find(&self, item: &ItemRef, space: Space) -> Result<Option<Arc<Item>>, Error> {
        let found = self
            .spaces
            .find(item, space)
            .map_err(|source| Error::Unreadable {
                item: item.clone(),
                source,
            })?;
        found
            .map(|(place, content)| self.admit(&place, &content))
            .transpose()
    }

    /// Checks a file that was read, or remembers that it was checked.
    fn admit(&self, place: &Place, content: &[u8]) -> Result<Arc<Item>, Error> {
        if let Some(item) = self.built_in.get(&place.item)
            && item.extension == place.extension
            && item.text.as_bytes() == content
        {
            return Ok(Arc::clone(item));
        }
        let path = place.path();
        let trust = self.trust.refresh();
        let content_hash = sha256_hex(content);
        {
            let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = verified.get(&path)
                && known.trust == trust
                && known.content == content_hash
            {
                // Time passes between two lookups.
                if let Some(signer) = known.item.signer() {
                    self.in_force(place, signer)?;
                }
                return Ok(Arc::clone(&known.item));
            }
        }
        let item = Arc::new(self.examine(place, content)?);
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(
            path,
            Remembered {
                content: content_hash,
                trust,
                item: Arc::clone(&item),
            },
        );
        Ok(item)
    }

    /// All checks, in their order.
    fn examine(&self, place: &Place, content: &[u8]) -> Result<Item, Error> {
        let (item, path) = (&place.item, place.path());
        let text = metadata::utf8(content).map_err(|source| Error::Metadata {
            item: item.clone(),
            path: path.clone(),
            source,
        })?;
        let text = seal::normalise(text);
        let seal = seal::inspect(item.kind, place.extension, &text)
            .map_err(|error| refusal(place, error))?;
        let signer = self
            .trust
            .key(&seal.token.signer)
            .ok_or_else(|| Error::Untrusted {
                item: item.clone(),
                path: path.clone(),
                signer: seal.token.signer.clone(),
                entry: self.trust.refusal(&seal.token.signer).map(Box::new),
            })?;
        seal.token
            .verify(&signer.key)
            .map_err(|error| refusal(place, error))?;
        self.in_force(place, &signer)?;
        let covers_part = |left_out| match signer.partial {
            PartialCoverage::Accepted => Ok(Coverage::Partial),
            PartialCoverage::Refused => Err(Error::PartialOnly {
                item: item.clone(),
                path: path.clone(),
                signer: seal.token.signer.clone(),
                entry: signer.path.clone(),
                left_out,
            }),
        };
        let mut coverage = seal.coverage;
        if coverage == Coverage::Partial {
            coverage = covers_part("its shebang, front matter or prose")?;
        }
        let metadata = Metadata::parse(item.kind, place.extension, &text).map_err(|source| {
            Error::Metadata {
                item: item.clone(),
                path: path.clone(),
                source,
            }
        })?;
        declared_place(place, &metadata)?;
        if metadata.name.is_none() {
            coverage = covers_part("its name, which is not in the file")?;
        }
        Ok(Item {
            item: item.clone(),
            space: place.space,
            path,
            extension: place.extension,
            text: text.into(),
            content_hash: seal.token.hash.clone(),
            origin: Origin::Signed {
                token: seal.token,
                coverage,
                signer,
            },
            metadata,
        })
    }

    fn in_force(&self, place: &Place, signer: &TrustedKey) -> Result<(), Error> {
        match self.lapsed(signer) {
            None => Ok(()),
            Some((state, since)) => Err(Error::Lapsed {
                item: place.item.clone(),
                path: place.path(),
                signer: signer.key.fingerprint().clone(),
                owner: signer.owner.clone(),
                state,
                since,
            }),
        }
    }

    /// Why `signer` does not count any more, and since when.
    pub fn lapsed(&self, signer: &TrustedKey) -> Option<(Lapse, Timestamp)> {
        let now = self.clock.now();
        match (signer.revoked_at, signer.not_after) {
            (Some(at), _) if at <= now => Some((Lapse::Revoked, at)),
            (_, Some(at)) if at < now => Some((Lapse::Expired, at)),
            (Some(_) | None, Some(_) | None) => None,
        }
    }
}

fn built_in(item: Embedded, place: Place) -> Item {
    let metadata = Metadata::parse(place.item.kind, place.extension, item.text())
        .expect("a test reads the metadata of every system item");
    Item {
        space: Space::System,
        path: place.path(),
        extension: place.extension,
        text: item.text().into(),
        content_hash: sha256_hex(item.text()),
        origin: Origin::BuiltIn,
        metadata,
        item: place.item,
    }
}

/// The words for what the seal says.
fn refusal(place: &Place, error: seal::Error) -> Error {
    let (item, path) = (place.item.clone(), place.path());
    match error {
        seal::Error::Unsigned => Error::Unsigned { item, path },
        seal::Error::Modified { signer } => Error::Modified { item, path, signer },
        seal::Error::BadSignature { signer } => Error::BadSignature { item, path, signer },
        seal::Error::Unsupported { .. } | seal::Error::Key { .. } => Error::Unsupported {
            item,
            path,
            source: error,
        },
    }
}

#[cfg(test)]
mod tests;
