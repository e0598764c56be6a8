//! Listing of the items of a space, for searches.
//!
//! **Never** opens a file and never follows a link. Skips folders that hold no items, and names that begin with `_` or
//! a dot, which are parts of something else.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstatat, stat};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_host::safe_path;

use super::{ItemLocation, Root, SKIPPED, Space, Spaces, holds_tests};

/// Maximum nesting of folders.
const MOST_DEPTH: usize = 32;

/// Identity and version of a file or folder, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: i64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &FileStat) -> Self {
        Self {
            inode: found.st_ino,
            size: found.st_size,
            changed: (found.st_mtime, found.st_mtime_nsec),
        }
    }

    /// Current stamp of `path`; `None` if there is nothing, or access is denied.
    pub fn at(path: &Path) -> Option<Self> {
        stat(path).ok().as_ref().map(Self::of)
    }
}

/// Files of a space that are items by their paths.
#[derive(Debug, Default)]
pub struct Listing {
    /// The files, in no order.
    pub files: Vec<(ItemLocation, Stamp)>,
    /// The folders that were read, and the expected path of a missing one.
    pub folders: Vec<(PathBuf, Option<Stamp>)>,
    /// True if there are more files than requested.
    pub has_more: bool,
}

impl Spaces {
    /// Items of `space`, at most `most`. Unreadable folders are skipped.
    pub fn listing(&self, space: Space, most: usize) -> Listing {
        self.list(&ItemKind::ALL, space, most)
    }

    /// Items of one type in `space`, at most `most`. Unreadable folders are skipped.
    pub fn listing_of(&self, kind: ItemKind, space: Space, most: usize) -> Listing {
        self.list(&[kind], space, most)
    }

    fn list(&self, kinds: &[ItemKind], space: Space, most: usize) -> Listing {
        let mut listing = Listing::default();
        let Some(root) = self.root(space) else {
            return listing;
        };
        let Ok(Some(opened)) = self.opened(space) else {
            let path = root.join(super::FOLDER);
            listing.folders.push((path, None));
            return listing;
        };
        for &kind in kinds {
            let mut walk = Walk {
                opened: &opened,
                root,
                space,
                kind,
                most,
                listing: &mut listing,
            };
            walk.folder("", 0);
        }
        listing
    }
}

struct Walk<'a> {
    opened: &'a Root,
    root: &'a Path,
    space: Space,
    kind: ItemKind,
    most: usize,
    listing: &'a mut Listing,
}

impl Walk<'_> {
    /// Lists the folder `category` and its subfolders.
    fn folder(&mut self, category: &str, depth: usize) {
        let relative = Path::new(self.kind.folder()).join(category);
        let path = self.opened.path.join(&relative);
        self.listing.folders.push((path.clone(), Stamp::at(&path)));
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Ok(folder) = safe_path::open(&self.opened.folder, &relative, flags) else {
            return;
        };
        let Ok(mut folder) = Dir::from_fd(folder) else {
            return;
        };
        let names: Vec<String> = folder
            .iter()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| !name.starts_with(['.', '_']) && !SKIPPED.contains(&name.as_str()))
            .collect();
        for name in names {
            let found = fstatat(folder.as_fd(), name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let Ok(found) = found else { continue };
            let below = || match category {
                "" => name.clone(),
                category => format!("{category}/{name}"),
            };
            match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
                SFlag::S_IFREG => self.file(&below(), Stamp::of(&found)),
                SFlag::S_IFDIR if depth < MOST_DEPTH => self.folder(&below(), depth + 1),
                _ => {}
            }
        }
    }

    fn file(&mut self, path: &str, stamp: Stamp) {
        let extension = path.rsplit_once('.').and_then(|(id, extension)| {
            let known = self.kind.extensions().iter().copied();
            let extension = known.into_iter().find(|known| *known == extension)?;
            if holds_tests(self.kind, id, extension) {
                return None;
            }
            Some((ItemId::new(id).ok()?, extension))
        });
        let Some((id, extension)) = extension else {
            return;
        };
        if self.listing.files.len() == self.most {
            self.listing.has_more = true;
            return;
        }
        let place = ItemLocation {
            item: ItemRef {
                kind: self.kind,
                id,
            },
            space: self.space,
            root: self.root.to_owned(),
            extension,
        };
        self.listing.files.push((place, stamp));
    }
}
