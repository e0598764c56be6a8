//! Files that are looked at, whether or not they may be used.

use std::fs;
use std::path::PathBuf;

use rye_core::expr::nearest;
use rye_core::id::{ItemId, ItemRef};
use rye_core::seal;

use super::{Error, Library};
use crate::metadata;
use crate::spaces::{FOLDER, Space};

/// Most files of a folder that are looked at for a suggestion.
const MOST_NEIGHBOURS: usize = 1000;

/// A file as it lies there: to be looked at, never to be run.
#[derive(Debug)]
pub struct Draft {
    /// The file.
    pub path: PathBuf,
    /// Its extension.
    pub extension: &'static str,
    /// Its text, with `\n` line ends.
    pub text: String,
}

impl Library {
    /// The file a project would use under this name, unchecked. Fails if there is none, or it is not text.
    pub fn draft(&self, item: &ItemRef) -> Result<Draft, Error> {
        for space in [Space::Project, Space::User] {
            let found = self.spaces.find(item, space);
            let found = found.map_err(|source| Error::Unreadable {
                item: item.clone(),
                source,
            })?;
            let Some((place, content)) = found else {
                continue;
            };
            let path = place.path();
            return match metadata::utf8(&content) {
                Ok(text) => Ok(Draft {
                    path,
                    extension: place.extension,
                    text: seal::normalise(text).into_owned(),
                }),
                Err(source) => Err(Error::Metadata {
                    item: item.clone(),
                    path,
                    source,
                }),
            };
        }
        Err(Error::NotFound {
            item: item.clone(),
            searched: "the project and user space".to_owned(),
        })
    }

    /// The id that `item` was probably meant to have: one of the system's, or of a file beside which it would lie.
    pub fn nearest(&self, item: &ItemRef) -> Option<ItemId> {
        let built_in = self.built_in.keys();
        let mut known: Vec<String> = built_in
            .filter(|known| known.kind == item.kind)
            .map(|known| known.id.as_str().to_owned())
            .collect();
        for root in [Space::Project, Space::User]
            .into_iter()
            .filter_map(|space| self.spaces.root(space))
        {
            let category = item.id.category();
            let folder = root.join(FOLDER).join(item.kind.folder()).join(category);
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for entry in entries.take(MOST_NEIGHBOURS) {
                if let Ok(place) = self.spaces.locate(&entry.path()) {
                    known.push(place.item.id.as_str().to_owned());
                }
            }
        }
        let near = nearest(item.id.as_str(), known.iter().map(String::as_str))?;
        ItemId::new(near).ok()
    }
}
