//! Files that are looked at, whether or not they may be used.

use std::path::PathBuf;

use rye_core::id::ItemRef;
use rye_core::seal;

use super::error::Error;
use super::state::Library;
use crate::metadata;
use crate::spaces::Space;

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
            near: self.nearest(item),
        })
    }
}
