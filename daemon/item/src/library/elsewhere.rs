//! Files of the same name in other spaces: those that an item shadows, and those out of reach.

use std::path::{Path, PathBuf};

use rye_core::id::ItemRef;

use super::error::Error;
use super::item::Item;
use super::state::Library;
use crate::spaces::Space;

/// A file that is not used because another space comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    pub space: Space,
    pub path: PathBuf,
}

impl Library {
    /// Error for an `item` that only a space above `referrer` has; `None` if no such space has it.
    pub(super) fn out_of_reach(&self, item: &ItemRef, referrer: Space) -> Option<Error> {
        let above = Space::Project.visible().iter();
        let mut above = above.filter(|space| !referrer.visible().contains(space));
        above.find_map(|&space| {
            let path = self.spaces.candidates(item, space).into_iter().next()?;
            Some(Error::OutOfReach {
                item: item.clone(),
                path,
                space,
                referrer,
            })
        })
    }

    /// Files that `item`, found from `referrer`, shadows; for the trace of an execution.
    pub fn shadowed(&self, item: &Item, referrer: Space) -> Vec<Shadowed> {
        self.shadowed_by(&item.item, item.space, &item.path, referrer)
    }

    /// Files of `item` that are not used because the one at `path` comes first for `referrer`.
    pub fn shadowed_by(
        &self,
        item: &ItemRef,
        space: Space,
        path: &Path,
        referrer: Space,
    ) -> Vec<Shadowed> {
        let mut files = Vec::new();
        for &space in referrer.visible() {
            match space {
                Space::System => {
                    let built_in = self.built_in.get(item);
                    files.extend(built_in.map(|item| (space, item.path.clone())));
                }
                Space::User | Space::Project => {
                    let found = self.spaces.candidates(item, space);
                    files.extend(found.into_iter().map(|path| (space, path)));
                }
            }
        }
        files
            .into_iter()
            .skip_while(|(other, file)| (*other, file.as_path()) != (space, path))
            .skip(1)
            .map(|(space, path)| Shadowed { space, path })
            .collect()
    }
}
