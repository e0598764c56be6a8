//! Catalog of the items of a project, including items that must not be used.
//!
//! **Never** states that a text may be used except by its [`Report`]: the metadata of a refused item is returned as
//! well.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_core::id::{ItemId, ItemRef};
use rye_core::seal;

use super::error::Error;
use super::item::Item;
use super::state::Library;
use super::verify::{Report, accepted};
use crate::metadata::{self, Metadata};
use crate::spaces::{ItemLocation, Space};

/// Maximum number of files listed per space.
const MOST_FILES: usize = 20_000;

/// An item of a space with the result of its verification.
#[derive(Debug)]
pub struct Entry {
    /// Result of the verification.
    pub report: Report,
    pub space: Space,
    /// Metadata of the item; empty if it cannot be read.
    pub metadata: Metadata,
    /// Text of the item; empty if the file is not text.
    pub text: Arc<str>,
}

/// Location of an item whose file has not been read yet.
#[derive(Debug, Clone)]
pub struct ListedItem(ItemSource);

#[derive(Debug, Clone)]
enum ItemSource {
    BuiltIn(Arc<Item>),
    At(ItemLocation),
}

impl Entry {
    fn of(item: &Item) -> Self {
        Self {
            report: accepted(item),
            space: item.space,
            metadata: item.metadata.clone(),
            text: Arc::clone(&item.text),
        }
    }
}

impl Library {
    /// Returns the items of `space`, or those that the project uses, ordered by type and id. Reads no file.
    pub fn catalog(&self, space: Option<Space>) -> BTreeMap<ItemRef, ListedItem> {
        let mut seen: BTreeMap<ItemRef, ListedItem> = BTreeMap::new();
        let all = Space::Project.visible();
        for &space in all
            .iter()
            .filter(|one| space.is_none_or(|only| only == **one))
        {
            if space == Space::System {
                for (item, built_in) in &self.built_in {
                    let lies = || ListedItem(ItemSource::BuiltIn(Arc::clone(built_in)));
                    seen.entry(item.clone()).or_insert_with(lies);
                }
                continue;
            }
            let mut files = self.spaces.listing(space, MOST_FILES).files;
            // If an item has several files, the first extension wins.
            files.sort_by_key(|(place, _)| {
                let mut known = place.item.kind.extensions().iter();
                known.position(|extension| *extension == place.extension)
            });
            for (place, _) in files {
                seen.entry(place.item.clone())
                    .or_insert(ListedItem(ItemSource::At(place)));
            }
        }
        seen
    }

    /// Reads and verifies a listed item; `None` if it no longer exists.
    pub fn entry(&self, seen: &ListedItem) -> Option<Entry> {
        let place = match &seen.0 {
            ItemSource::BuiltIn(item) => return Some(Entry::of(item)),
            ItemSource::At(place) => place,
        };
        let error = match self.at(place) {
            Ok(item) => return Some(Entry::of(&item)),
            Err(error) => error,
        };
        let is_gone = matches!(error, Error::NotFound { .. });
        (!is_gone).then(|| self.refused(place, error))
    }

    /// Entry of the file at `place`, which must not be used because of `error`.
    fn refused(&self, place: &ItemLocation, error: Error) -> Entry {
        let (text, metadata) = Self::read(place).unwrap_or_default();
        let mut report = self.report(&place.item, Err(error));
        report.path = place.path();
        Entry {
            report,
            space: place.space,
            metadata,
            text: text.into(),
        }
    }

    /// Text and metadata at `place`, without any verification; `None` if it cannot be read as text.
    pub(super) fn read(place: &ItemLocation) -> Option<(String, Metadata)> {
        let content = place.read().ok()??;
        let text = seal::normalise(metadata::utf8(&content).ok()?);
        let metadata = Metadata::parse(place.item.kind, place.extension, &text);
        Some((text.into_owned(), metadata.unwrap_or_default()))
    }

    /// Describes the item that a project resolves this name to. Fails only if there is none, or it cannot be opened.
    pub fn describe(&self, item: &ItemRef) -> Result<Entry, Error> {
        let refusal = match self.resolve(item, Space::Project) {
            Ok(item) => return Ok(Entry::of(&item)),
            Err(
                error @ (Error::NotFound { .. }
                | Error::OutOfReach { .. }
                | Error::Unreadable { .. }),
            ) => return Err(error),
            Err(error) => error,
        };
        for space in [Space::Project, Space::User] {
            let found = self.spaces.find(item, space);
            let found = found.map_err(|source| Error::Unreadable {
                item: item.clone(),
                source,
            })?;
            if let Some((place, _)) = found {
                return Ok(self.refused(&place, refusal));
            }
        }
        Err(refusal)
    }

    /// Returns the id most similar to that of `item`, of those that a project sees.
    pub fn nearest(&self, item: &ItemRef) -> Option<ItemId> {
        let mut known: Vec<String> = Vec::new();
        for space in [Space::Project, Space::User] {
            let files = self.spaces.listing_of(item.kind, space, MOST_FILES).files;
            known.extend(
                files
                    .into_iter()
                    .map(|(place, _)| place.item.id.to_string()),
            );
        }
        let built_in = self.built_in.keys().filter(|other| other.kind == item.kind);
        known.extend(built_in.map(|other| other.id.to_string()));
        similar_id(item.id.as_str(), &known)
    }
}

/// The most similar id: by spelling, or the only one with the same name in another folder.
fn similar_id(wanted: &str, known: &[String]) -> Option<ItemId> {
    let spelled = rye_core::expr::nearest(wanted, known.iter().map(String::as_str));
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let moved = || {
        let mut same = known
            .iter()
            .filter(|id| id.rsplit('/').next() == Some(name));
        let one = same.next()?;
        // Several ids with this name are ambiguous.
        same.all(|other| other == one).then_some(one.as_str())
    };
    ItemId::new(spelled.or_else(moved)?).ok()
}

impl Error {
    /// Adds a suggested id to a `NotFound` error.
    #[must_use]
    pub fn suggesting(mut self, library: &Library) -> Self {
        if let Self::NotFound { item, near, .. } = &mut self {
            *near = library.nearest(item);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_id_has_close_spelling_or_other_folder() {
        let known = ["sample/hello", "app/deploy", "rye/a/echo", "rye/b/echo"].map(str::to_owned);
        let table = [
            ("sample/hallo", Some("sample/hello")),
            ("smaple/hello", Some("sample/hello")),
            ("deploy", Some("app/deploy")),
            ("team/deploy", Some("app/deploy")),
            // Two ids have this name.
            ("echo", None),
            ("nothing/like/it", None),
        ];
        for (wanted, found) in table {
            let near = similar_id(wanted, &known);
            assert_eq!(near.as_ref().map(ItemId::as_str), found, "{wanted}");
        }
    }
}
