//! Items as texts for a search.
//!
//! **Never** states that a text may be used. The text is unverified; verification happens when the item is shown.

use std::path::PathBuf;
use std::sync::Arc;

use rye_core::id::ItemRef;

use super::error::Error;
use super::item::Item;
use super::state::Library;
use crate::metadata::Metadata;
use crate::spaces::{ItemLocation, Space};

/// Content of an item for a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub item: ItemRef,
    pub space: Space,
    pub path: PathBuf,
    /// Title for people.
    pub title: Option<String>,
    pub description: Option<String>,
    pub tags: Vec<String>,
    /// Text without its signature.
    pub content: String,
}

impl Document {
    fn new(item: ItemRef, space: Space, path: PathBuf, text: &str, metadata: &Metadata) -> Self {
        Self {
            item,
            space,
            path,
            title: metadata.title.clone(),
            description: metadata.description.clone(),
            tags: metadata.tags.clone(),
            content: without_signature(text),
        }
    }
}

impl Item {
    pub fn unsigned(&self) -> String {
        without_signature(&self.text)
    }
}

impl Library {
    /// Items that are part of this program.
    pub fn shipped(&self) -> impl Iterator<Item = Document> + '_ {
        self.built_in.values().map(|item| {
            let (name, path) = (item.item.clone(), item.path.clone());
            Document::new(name, item.space, path, &item.text, &item.metadata)
        })
    }

    /// Text at `place`, unverified; `None` if it cannot be read as text.
    pub fn document(&self, place: &ItemLocation) -> Option<Document> {
        let (text, metadata) = Self::read(place)?;
        let (item, path) = (place.item.clone(), place.path());
        Some(Document::new(item, place.space, path, &text, &metadata))
    }

    /// Verifies and returns the item at `place`.
    pub fn at(&self, place: &ItemLocation) -> Result<Arc<Item>, Error> {
        let unreadable = |source| Error::Unreadable {
            item: place.item.clone(),
            source,
        };
        let content = place.read().map_err(unreadable)?;
        let content = content.ok_or_else(|| Error::NotFound {
            item: place.item.clone(),
            searched: format!("the {} space", place.space),
            near: None,
        })?;
        self.admit(place, &content)
    }

    /// The verified item of this name in `space` and in no other; `None` if that space has none.
    pub fn in_space(&self, item: &ItemRef, space: Space) -> Result<Option<Arc<Item>>, Error> {
        match space {
            Space::System => Ok(self.built_in.get(item).cloned()),
            Space::User | Space::Project => self.find(item, space),
        }
    }
}

/// The signature is in the first line, or in the second after a shebang.
fn without_signature(text: &str) -> String {
    let lines = text.split_inclusive('\n').enumerate();
    lines
        .filter(|(at, line)| *at > 1 || !line.contains("rye:signed:"))
        .map(|(_, line)| line)
        .collect()
}
