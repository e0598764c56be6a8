//! Resolution of a name to a verified item.
//!
//! **Owns** the search through the spaces and the order of checks: token, hash, trusted key, signature, revocation,
//! coverage, and that the item is at the path it declares. A signature does not permit moving a file.
//!
//! **Never** reads a file twice: an [`Item`] holds the verified text, and that text is executed.
//!
//! **Order.** The next lookup sees a new file that shadows an old one, and a change of the trusted keys. Verified items
//! are cached by content, so another lookup costs a read and a hash.
//!
//! **Failure.** Every error names the file and the fix. The first file found decides: a bad file in the project is an
//! error; the user's file is not used instead.

mod error;
mod item;
mod narrow;

mod declared;
mod snapshot;

mod state;

mod category;
mod config;
mod documents;
mod draft;
mod elsewhere;
mod verify;

mod catalog;

use std::sync::{Arc, Mutex};

use rye_core::clock::{Clock, Timestamp};
use rye_core::id::ItemRef;
use rye_core::seal::{self, Coverage, sha256_hex};
use rye_host::cache;

use crate::metadata::{self, Metadata};
use crate::spaces::{ItemLocation, Space, Spaces};
use crate::system::Embedded;
use crate::trust::{PartialCoverage, TrustStore, TrustedKey};

pub use self::catalog::{Entry, ListedItem};
pub use self::config::Layers;
pub(crate) use self::config::{ConfigFile, merged_over_shipped};
pub(crate) use self::declared::{check_location, nameless};
pub use self::documents::Document;
pub use self::draft::Draft;
pub use self::elsewhere::Shadowed;
pub use self::error::{Error, Lapse};
pub use self::item::{Item, Origin};
pub use self::snapshot::Snapshot;
pub use self::state::Library;
pub use self::verify::{Report, Verdict};

use self::state::Remembered;

/// Capacity of the cache of verified items; more than any known project uses at once.
const REMEMBERED: usize = 4096;

impl Library {
    /// Opens the spaces. Reads only the trusted keys.
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
            verified: cache::of_count(REMEMBERED),
            snapshot: Mutex::default(),
        }
    }

    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub fn trust(&self) -> &TrustStore {
        &self.trust
    }

    /// Resolves `item` for an item of the space `referrer`: searches that space and the lesser ones.
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

    /// Verifies the content of a file, or returns the cached item.
    fn admit(&self, place: &ItemLocation, content: &[u8]) -> Result<Arc<Item>, Error> {
        if let Some(item) = self.built_in.get(&place.item)
            && item.extension == place.extension
            && item.text.as_bytes() == content
        {
            return Ok(Arc::clone(item));
        }
        let path = place.path();
        let trust = self.trust.refresh();
        let content_hash = sha256_hex(content);
        if let Some(known) = self.verified.get(&path)
            && known.trust == trust
            && known.content == content_hash
        {
            // The signer may have expired or been revoked since the previous lookup.
            if let Some(signer) = known.item.signer() {
                self.in_force(place, signer)?;
            }
            return Ok(Arc::clone(&known.item));
        }
        let item = Arc::new(self.examine(place, content)?);
        let verified = Remembered {
            content: content_hash,
            trust,
            item: Arc::clone(&item),
        };
        self.verified.insert(path, Arc::new(verified));
        Ok(item)
    }

    /// Runs all checks in order.
    fn examine(&self, place: &ItemLocation, content: &[u8]) -> Result<Item, Error> {
        let (item, path) = (&place.item, place.path());
        let text = metadata::utf8(content).map_err(|source| Error::Metadata {
            item: item.clone(),
            path: path.clone(),
            source,
        })?;
        let text = seal::normalise(text);
        let seal = seal::inspect(item.kind, place.extension, &text)
            .map_err(|error| refusal(place, &text, error))?;
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
            .map_err(|error| refusal(place, &text, error))?;
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
        check_location(place, &metadata)?;
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

    fn in_force(&self, place: &ItemLocation, signer: &TrustedKey) -> Result<(), Error> {
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

    /// Returns the reason why `signer` no longer counts, and since when.
    pub fn lapsed(&self, signer: &TrustedKey) -> Option<(Lapse, Timestamp)> {
        let now = self.clock.now();
        match (signer.revoked_at, signer.not_after) {
            (Some(at), _) if at <= now => Some((Lapse::Revoked, at)),
            (_, Some(at)) if at < now => Some((Lapse::Expired, at)),
            (Some(_) | None, Some(_) | None) => None,
        }
    }
}

fn built_in(item: Embedded, place: ItemLocation) -> Item {
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

fn refusal(place: &ItemLocation, text: &str, error: seal::Error) -> Error {
    let (item, path) = (place.item.clone(), place.path());
    match error {
        seal::Error::Unsigned => {
            let metadata = Metadata::of_draft(item.kind, place.extension, text);
            let problem = metadata.err().map(Box::new);
            Error::Unsigned {
                item,
                path,
                problem,
            }
        }
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
