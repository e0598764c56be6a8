//! Items as texts, for those who look for items whose names they do not know.
//!
//! **Never** says that a text may be used: it is what lies there, and is verified when it is shown.

use std::path::PathBuf;
use std::sync::Arc;

use rye_core::id::ItemRef;

use super::error::Error;
use super::item::Item;
use super::state::Library;
use crate::metadata::Metadata;
use crate::spaces::{Place, Space};

/// What somebody who searches sees of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The item.
    pub item: ItemRef,
    /// Its space.
    pub space: Space,
    /// Its file.
    pub path: PathBuf,
    /// What it is called, for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What else it is about.
    pub tags: Vec<String>,
    /// What it says, without its signature.
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
    /// Its text without the line of its signature.
    pub fn unsigned(&self) -> String {
        without_signature(&self.text)
    }
}

impl Library {
    /// The items that are part of this program.
    pub fn shipped(&self) -> impl Iterator<Item = Document> + '_ {
        self.built_in.values().map(|item| {
            let (name, path) = (item.item.clone(), item.path.clone());
            Document::new(name, item.space, path, &item.text, &item.metadata)
        })
    }

    /// The text at `place`, whoever wrote it; `None` if it cannot be read as a text.
    pub fn document(&self, place: &Place) -> Option<Document> {
        let (text, metadata) = Self::read(place)?;
        let (item, path) = (place.item.clone(), place.path());
        Some(Document::new(item, place.space, path, &text, &metadata))
    }

    /// The verified item at `place`.
    pub fn at(&self, place: &Place) -> Result<Arc<Item>, Error> {
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

    /// The verified item of this name in `space`, and nowhere else; `None` if that has none.
    pub fn in_space(&self, item: &ItemRef, space: Space) -> Result<Option<Arc<Item>>, Error> {
        match space {
            Space::System => Ok(self.built_in.get(item).cloned()),
            Space::User | Space::Project => self.find(item, space),
        }
    }
}

/// A signature stands on the first line, or below a shebang.
fn without_signature(text: &str) -> String {
    let lines = text.split_inclusive('\n').enumerate();
    lines
        .filter(|(at, line)| *at > 1 || !line.contains("rye:signed:"))
        .map(|(_, line)| line)
        .collect()
}
