//! What can be told of the spaces without waiting for a file system: that nothing lies in the place of what is built in.
//!
//! **Never** blocks. `false` and `None` mean that the kernel could not tell from memory: the caller then has to read the files, after
//! which the kernel remembers what is missing. **Order.** An answer holds for the moment of the call, as if the file had been read then.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use rye_core::id::ItemRef;

use super::{Item, Library};
use crate::lock;
use crate::spaces::{FOLDER, Space};
use crate::within;

/// A look at the spaces of one library.
#[derive(Debug)]
pub struct Glance<'a> {
    library: &'a Library,
    project: Root,
    user: Root,
}

/// The root of a space, as the kernel has it in memory.
#[derive(Debug)]
enum Root {
    Missing,
    Folder(OwnedFd),
}

impl Root {
    /// `None` if that cannot be told.
    fn of(path: Option<&Path>) -> Option<Self> {
        match path.map(within::open_from_memory) {
            None | Some(Err(Errno::ENOENT)) => Some(Self::Missing),
            Some(Ok(folder)) => Some(Self::Folder(folder)),
            Some(Err(_)) => None,
        }
    }

    fn surely_lacks(&self, path: &Path) -> bool {
        match self {
            Self::Missing => true,
            Self::Folder(folder) => within::is_surely_missing(folder, path),
        }
    }
}

impl Library {
    /// Looks at the spaces; `None` if not even where they are can be told.
    pub fn glance(&self) -> Option<Glance<'_>> {
        Some(Glance {
            library: self,
            project: Root::of(self.spaces.root(Space::Project))?,
            user: Root::of(self.spaces.root(Space::User))?,
        })
    }
}

impl Glance<'_> {
    /// The item of this name as the items of a project see it, if it is built in: most names of ours lie in folders that no other space has.
    pub fn built_in(&self, item: &ItemRef) -> Option<Arc<Item>> {
        let found = self.library.built_in.get(item)?;
        let folder = Path::new(FOLDER).join(item.kind.folder());
        let is_ours = self.surely_lack(&folder.join(item.id.category()));
        is_ours.then(|| Arc::clone(found))
    }

    /// Whether no lock holds `tool`.
    pub fn surely_unlocked(&self, tool: &Item) -> bool {
        let version = tool.metadata.version.as_deref();
        let place = version.and_then(|version| lock::place(tool.id(), version));
        place.is_none_or(|place| self.surely_lack(&Path::new(FOLDER).join(place)))
    }

    /// Whether the project has no file `path`.
    pub fn project_surely_lacks(&self, path: &Path) -> bool {
        self.project.surely_lacks(path)
    }

    /// The file system of the project's directory, and its number there.
    pub fn project_identity(&self) -> Option<(u64, u64)> {
        match &self.project {
            Root::Missing => None,
            Root::Folder(folder) => within::identity_from_memory(folder),
        }
    }

    fn surely_lack(&self, path: &Path) -> bool {
        self.project.surely_lacks(path) && self.user.surely_lacks(path)
    }
}
