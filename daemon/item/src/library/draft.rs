//! Unverified files, for display only.

use std::path::PathBuf;

use rye_core::id::ItemRef;
use rye_core::seal;

use super::error::Error;
use super::state::Library;
use crate::metadata;
use crate::spaces::Space;

/// An unverified file. It may be shown, never run.
#[derive(Debug)]
pub struct Draft {
    pub path: PathBuf,
    pub extension: &'static str,
    /// Text with `\n` line ends.
    pub text: String,
}

impl Library {
    /// The unverified file a project would use under this name. Fails if there is none, or it is not text.
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
