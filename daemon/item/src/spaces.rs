//! The three spaces of items, and the mapping between ids and files.
//!
//! **Owns** the layout `<root>/.ai/<type folder>/<id>.<extension>`, the precedence project → user → system, and the
//! opening of files. **Never** opens a file outside the searched space. A project may be hostile, so every symbolic
//! link must stay within the space, and only regular files of at most [`MAX_SIZE`] are read.

mod listing;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{self, OFlag};
use nix::sys::stat::{Mode, mkdirat};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::id::{ItemId, ItemKind, ItemRef};
use rye_host::safe_path;

pub use self::listing::{Listing, Stamp};
use crate::file;

/// Folder of a space.
pub const FOLDER: &str = ".ai";

/// Suffix of files that hold the tests of a tool.
const TESTS: &str = ".test.yaml";

/// Folders of generated or foreign files, which hold no items.
pub const SKIPPED: [&str; 9] = [
    "__pycache__",
    ".venv",
    "node_modules",
    ".git",
    "dist",
    "build",
    ".ruff_cache",
    ".pytest_cache",
    ".mypy_cache",
];

/// Maximum number of entries of a listed folder.
const MOST_ENTRIES: usize = 1000;

/// Maximum number of folders and other entries below a listed folder.
const MOST_FOLDERS: usize = 1000;

/// Maximum size of an item in bytes.
pub const MAX_SIZE: u64 = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "`{path}` is not an item: items are `.ai/<tools|directives|knowledge|config>/<id>.<extension>`"
    )]
    NotAnItem { path: PathBuf },
    /// A symbolic link leads out of the space.
    #[error("`{path}` leads out of its `.ai` folder by a symbolic link; put the file itself there")]
    Escapes { path: PathBuf },
    /// The path is a folder, a pipe or a device.
    #[error("`{path}` is not a regular file")]
    NotAFile { path: PathBuf },
    /// The file is larger than [`MAX_SIZE`].
    #[error("`{path}` is larger than {} MiB, the most an item may have", MAX_SIZE / (1024 * 1024))]
    TooLarge { path: PathBuf },
    #[error(
        "`{path}` holds more than {MOST_ENTRIES} entries, the most a folder that is listed may have"
    )]
    TooMany { path: PathBuf },
    #[error("failed to make the folder `{path}`")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to read `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAnItem { .. }
            | Self::NotAFile { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. } => ErrorKind::Invalid,
            Self::Escapes { .. } => ErrorKind::Denied,
            Self::Make { source, .. } | Self::Read { source, .. } => file::kind(source),
        }
    }
}

/// Origin of an item. A greater space takes precedence. An item depends only on items of its own or a lesser space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Shipped with this program.
    System,
    /// The user's own, for all projects.
    User,
    Project,
}

impl Space {
    /// Spaces that an item of this space may depend on, in search order.
    pub const fn visible(self) -> &'static [Self] {
        match self {
            Self::Project => &[Self::Project, Self::User, Self::System],
            Self::User => &[Self::User, Self::System],
            Self::System => &[Self::System],
        }
    }

    /// Name shown to users.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Folders that hold the `.ai` of each space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spaces {
    project: Option<PathBuf>,
    user: PathBuf,
    system: PathBuf,
}

/// Path of an item, split into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemLocation {
    pub item: ItemRef,
    pub space: Space,
    /// Folder that holds the space's `.ai`.
    pub root: PathBuf,
    /// File extension, one of those its type allows.
    pub extension: &'static str,
}

impl ItemLocation {
    pub fn path(&self) -> PathBuf {
        self.root.join(FOLDER).join(self.relative())
    }

    /// Path relative to the `.ai` folder.
    fn relative(&self) -> PathBuf {
        let name = format!("{}.{}", self.item.id, self.extension);
        Path::new(self.item.kind.folder()).join(name)
    }

    /// Reads the file once; `None` if there is none.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        match Root::open(self.space, &self.root)? {
            Some(root) => root.read(&self.relative()),
            None => Ok(None),
        }
    }
}

/// The nearest ancestor of `start`, itself included, that has a `.ai` folder. The user space is not a project, and the
/// search ends there. `None` if there is no project.
pub fn find_project(start: &Path, user_space: &Path) -> Option<PathBuf> {
    let start = fs::canonicalize(start).ok()?;
    let user_space = fs::canonicalize(user_space).unwrap_or_else(|_| user_space.to_owned());
    start
        .ancestors()
        .take_while(|folder| *folder != user_space)
        .find(|folder| folder.join(FOLDER).is_dir())
        .map(Path::to_owned)
}

/// True if `path` is a file of tests (`NAME.test.yaml`). It is in a folder of tools but is not an item.
pub fn is_test(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.len() > TESTS.len() && name.ends_with(TESTS))
}

/// True if a file `stem` with this extension holds tests; otherwise it would be an item of `kind`.
fn holds_tests(kind: ItemKind, stem: &str, extension: &str) -> bool {
    let last = stem.rsplit_once('.').map(|(_, last)| last);
    kind == ItemKind::Tool && extension == "yaml" && last == Some("test")
}

impl Spaces {
    /// `project` is `None` outside of any project.
    pub fn new(project: Option<PathBuf>, user: PathBuf, system: PathBuf) -> Self {
        Self {
            project,
            user,
            system,
        }
    }

    pub fn root(&self, space: Space) -> Option<&Path> {
        match space {
            Space::Project => self.project.as_deref(),
            Space::User => Some(&self.user),
            Space::System => Some(&self.system),
        }
    }

    /// Reads a file by its path below the `.ai` of `space`, once; `None` if there is none.
    pub(crate) fn read(&self, space: Space, relative: &Path) -> Result<Option<Vec<u8>>, Error> {
        let Some(root) = self.root(space) else {
            return Ok(None);
        };
        match Root::open(space, root)? {
            Some(root) => root.read(relative),
            None => Ok(None),
        }
    }

    /// The item that a path names; the file need not exist.
    pub fn locate(&self, path: &Path) -> Result<ItemLocation, Error> {
        let absolute = std::path::absolute(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        // Links above the item's own folder are resolved, so that roots compare equal.
        let resolved = match (
            absolute.parent().map(fs::canonicalize),
            absolute.file_name(),
        ) {
            (Some(Ok(parent)), Some(name)) => parent.join(name),
            _ => absolute,
        };
        self.place(&resolved).ok_or_else(|| Error::NotAnItem {
            path: path.to_owned(),
        })
    }

    fn place(&self, path: &Path) -> Option<ItemLocation> {
        let parts: Vec<&str> = path
            .components()
            .map(|part| match part {
                Component::Normal(name) => name.to_str(),
                Component::RootDir => Some("/"),
                Component::Prefix(_) | Component::CurDir | Component::ParentDir => None,
            })
            .collect::<Option<_>>()?;
        let at = parts.iter().rposition(|part| *part == FOLDER)?;
        let root: PathBuf = parts[..at].iter().collect();
        let (folder, rest) = parts[at + 1..].split_first()?;
        let kind = ItemKind::ALL
            .into_iter()
            .find(|kind| kind.folder() == *folder)?;
        let (stem, extension) = rest.last()?.rsplit_once('.')?;
        let extension = kind
            .extensions()
            .iter()
            .copied()
            .find(|known| *known == extension)?;
        if holds_tests(kind, stem, extension) {
            return None;
        }
        let id = [&rest[..rest.len() - 1], &[stem]].concat().join("/");
        Some(ItemLocation {
            item: ItemRef {
                kind,
                id: ItemId::new(id).ok()?,
            },
            space: self.space_of(&root),
            root,
            extension,
        })
    }

    fn space_of(&self, root: &Path) -> Space {
        let is = |folder: &Path| {
            folder == root || fs::canonicalize(folder).is_ok_and(|folder| folder == root)
        };
        if is(&self.system) {
            Space::System
        } else if is(&self.user) {
            Space::User
        } else {
            Space::Project
        }
    }

    /// Existing files of `item` in `space`, in order of precedence.
    pub(crate) fn candidates(&self, item: &ItemRef, space: Space) -> Vec<PathBuf> {
        let Some(root) = self.root(space) else {
            return Vec::new();
        };
        let place = |&extension| ItemLocation {
            item: item.clone(),
            space,
            root: root.to_owned(),
            extension,
        };
        item.kind
            .extensions()
            .iter()
            .filter(|extension| !holds_tests(item.kind, item.id.name(), extension))
            .map(|extension| place(extension).path())
            .filter(|path| path.is_file())
            .collect()
    }

    /// True if `space` has the folder of `item`.
    pub(crate) fn has_category(&self, item: &ItemRef, space: Space) -> Result<bool, Error> {
        let opened = self.opened(space)?;
        opened.map_or(Ok(false), |opened| opened.has_category(item))
    }

    /// Ids of the items of `kind` directly in the folder `category` of `space`, in no order.
    pub(crate) fn ids(
        &self,
        kind: ItemKind,
        category: &str,
        space: Space,
    ) -> Result<Vec<ItemId>, Error> {
        let names = self
            .opened(space)?
            .map(|opened| opened.names(&Path::new(kind.folder()).join(category)));
        let id = |name: &String| item_id(kind, category, name);
        Ok(names.transpose()?.iter().flatten().filter_map(id).collect())
    }

    /// Ids of the items of `kind` in the folder `category` of `space` and its subfolders, in no order. `None` if there
    /// are more than `most`, or more than `MOST_FOLDERS` folders.
    pub(crate) fn ids_below(
        &self,
        kind: ItemKind,
        category: &str,
        space: Space,
        most: usize,
    ) -> Result<Option<Vec<ItemId>>, Error> {
        let Some(opened) = self.opened(space)? else {
            return Ok(Some(Vec::new()));
        };
        let mut folders = vec![category.to_owned()];
        let (mut ids, mut looked_at) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            looked_at += 1;
            for name in opened.names(&Path::new(kind.folder()).join(&folder))? {
                match item_id(kind, &folder, &name) {
                    Some(id) => ids.push(id),
                    None => folders.push(format!("{folder}/{name}")),
                }
            }
            // Other files are treated as folders until here; a name that is not an id cannot hold items.
            folders.retain(|folder| ItemId::new(folder.as_str()).is_ok());
            if ids.len() > most || looked_at + folders.len() > MOST_FOLDERS {
                return Ok(None);
            }
        }
        Ok(Some(ids))
    }

    fn opened(&self, space: Space) -> Result<Option<Root>, Error> {
        match self.root(space) {
            Some(root) => Root::open(space, root),
            None => Ok(None),
        }
    }

    /// The first file of `item` in `space`, in the order of extensions, with its content.
    pub(crate) fn find(
        &self,
        item: &ItemRef,
        space: Space,
    ) -> Result<Option<(ItemLocation, Vec<u8>)>, Error> {
        let Some(root) = self.root(space) else {
            return Ok(None);
        };
        let Some(opened) = Root::open(space, root)? else {
            return Ok(None);
        };
        // Most lookups end here, with one system call instead of one for each extension.
        if !opened.has_category(item)? {
            return Ok(None);
        }
        for &extension in item.kind.extensions() {
            if holds_tests(item.kind, item.id.name(), extension) {
                continue;
            }
            let place = ItemLocation {
                item: item.clone(),
                space,
                root: root.to_owned(),
                extension,
            };
            if let Some(content) = opened.read(&place.relative())? {
                return Ok(Some((place, content)));
            }
        }
        Ok(None)
    }
}

/// Id of the item of `kind` of a file name in the folder `category`, if it has one.
fn item_id(kind: ItemKind, category: &str, name: &str) -> Option<ItemId> {
    let (stem, extension) = name.rsplit_once('.')?;
    let is_known = kind.extensions().contains(&extension) && !holds_tests(kind, stem, extension);
    is_known.then(|| ItemId::new(format!("{category}/{stem}")).ok())?
}

/// Opens the folder `relative` of the space in `root` and creates missing parts. No link may lead out of the space.
pub(crate) fn make(space: Space, root: &Path, relative: &Path) -> Result<OwnedFd, Error> {
    let mut path = root.join(FOLDER);
    let failed = |path: &Path, source: io::Error| Error::Make {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(&path).map_err(|source| failed(&path, source))?;
    let absent = |path: &Path| failed(path, Errno::ENOTDIR.into());
    let opened = Root::open(space, root)?.ok_or_else(|| absent(&path))?;
    let open = |below: &Path, path: &Path| {
        let folder = safe_path::open(&opened.folder, below, OFlag::O_PATH | OFlag::O_DIRECTORY);
        refine(folder, path)?.ok_or_else(|| absent(path))
    };
    let mut below = PathBuf::from(".");
    let mut folder = open(&below, &path)?;
    for part in relative.components() {
        let part = part.as_os_str();
        below.push(part);
        path.push(part);
        match mkdirat(&folder, part, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed(&path, errno.into())),
        }
        folder = open(&below, &path)?;
    }
    Ok(folder)
}

struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens the `.ai` below `root`; `None` if there is none. A project's `.ai` may not be a link out of the project.
    /// Users may link theirs to anywhere.
    fn open(space: Space, root: &Path) -> Result<Option<Self>, Error> {
        let path = root.join(FOLDER);
        let opened = match space {
            Space::Project => open_folder(root)
                .and_then(|root| safe_path::open(&root, Path::new(FOLDER), OFlag::O_PATH)),
            Space::User | Space::System => open_folder(&path),
        };
        Ok(refine(opened, &path)?.map(|folder| Self { folder, path }))
    }

    fn has_category(&self, item: &ItemRef) -> Result<bool, Error> {
        let relative = Path::new(item.kind.folder()).join(item.id.category());
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let opened = safe_path::open(&self.folder, &relative, flags);
        Ok(refine(opened, &self.path.join(relative))?.is_some())
    }

    /// Names in a folder; empty if it does not exist.
    fn names(&self, relative: &Path) -> Result<Vec<String>, Error> {
        let path = self.path.join(relative);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Some(folder) = refine(safe_path::open(&self.folder, relative, flags), &path)? else {
            return Ok(Vec::new());
        };
        let failed = |errno: Errno| Error::Read {
            path: path.clone(),
            source: errno.into(),
        };
        let mut names = Vec::new();
        for entry in Dir::from_fd(folder).map_err(failed)?.iter() {
            if names.len() == MOST_ENTRIES {
                return Err(Error::TooMany { path });
            }
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    fn read(&self, relative: &Path) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(relative);
        // Non-blocking: a pipe must not block the search for an item.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        match refine(safe_path::open(&self.folder, relative, flags), &path)? {
            Some(file) => read_limited(File::from(file), path).map(Some),
            None => Ok(None),
        }
    }
}

fn read_limited(file: File, path: PathBuf) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let result = file.metadata().and_then(|metadata| {
        if metadata.is_file() {
            file.take(MAX_SIZE + 1).read_to_end(&mut content).map(Some)
        } else {
            Ok(None)
        }
    });
    match result {
        Ok(Some(_)) if u64::try_from(content.len()).is_ok_and(|len| len <= MAX_SIZE) => Ok(content),
        Ok(Some(_)) => Err(Error::TooLarge { path }),
        Ok(None) => Err(Error::NotAFile { path }),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Distinguishes absence and escape from other failures.
fn refine(opened: nix::Result<OwnedFd>, path: &Path) -> Result<Option<OwnedFd>, Error> {
    let path = path.to_owned();
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(Errno::EXDEV | Errno::ELOOP) => Err(Error::Escapes { path }),
        Err(errno) => Err(Error::Read {
            path,
            source: errno.into(),
        }),
    }
}

fn open_folder(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    fcntl::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
