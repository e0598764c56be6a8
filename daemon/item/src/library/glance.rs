//! What can be told of the spaces without waiting for a file system: that nothing lies in the place of what is built in.
//!
//! **Never** blocks. `false` and `None` mean that the kernel could not tell from memory: the caller then has to read the files, after
//! which the kernel remembers what is missing. **Order.** An answer holds for the moment of the call, as if the file had been read then.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use rye_core::id::ItemRef;

use super::item::Item;
use super::state::Library;
use crate::spaces::{FOLDER, Space};
use crate::within;

/// A look at the spaces of one library.
#[derive(Debug)]
pub struct Glance<'a> {
    project: Root<'a>,
    user: Root<'a>,
    library: &'a Library,
}

/// The root of a space.
#[derive(Debug)]
struct Root<'a> {
    path: Option<&'a Path>,
    opened: OnceCell<Opened>,
}

/// A root as the kernel has it in memory.
#[derive(Debug)]
enum Opened {
    Missing,
    Folder(OwnedFd),
    /// That cannot be told.
    Unknown,
}

impl<'a> Root<'a> {
    fn of(path: Option<&'a Path>) -> Self {
        let opened = OnceCell::new();
        Self { path, opened }
    }

    fn opened(&self) -> &Opened {
        self.opened
            .get_or_init(|| match self.path.map(within::open_from_memory) {
                None | Some(Err(Errno::ENOENT)) => Opened::Missing,
                Some(Ok(folder)) => Opened::Folder(folder),
                Some(Err(_)) => Opened::Unknown,
            })
    }

    /// Where no link is on the way, one call of the kernel tells it of the whole path. Otherwise the root is opened, and the rest has to
    /// stay below it.
    fn surely_lacks(&self, path: &Path) -> bool {
        let Some(root) = self.path else { return true };
        within::is_surely_missing_without_links(&root.join(path))
            || match self.opened() {
                Opened::Missing => true,
                Opened::Folder(folder) => within::is_surely_missing(folder, path),
                Opened::Unknown => false,
            }
    }
}

impl Library {
    /// Looks at the spaces.
    pub fn glance(&self) -> Glance<'_> {
        Glance {
            project: Root::of(self.spaces.root(Space::Project)),
            user: Root::of(self.spaces.root(Space::User)),
            library: self,
        }
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

    /// Whether the project has no file `path`.
    pub fn project_surely_lacks(&self, path: &Path) -> bool {
        self.project.surely_lacks(path)
    }

    /// The file system of the project's directory, and its number there.
    pub fn project_identity(&self) -> Option<(u64, u64)> {
        match self.project.opened() {
            Opened::Missing | Opened::Unknown => None,
            Opened::Folder(folder) => within::identity_from_memory(folder),
        }
    }

    /// Returns true if neither the project nor the user has `path`, as far as the kernel knows from memory.
    pub(crate) fn surely_lack(&self, path: &Path) -> bool {
        self.project.surely_lacks(path) && self.user.surely_lacks(path)
    }
}
