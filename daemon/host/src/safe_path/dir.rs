//! An open directory, and the operations on the files below it.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};
use std::sync::OnceLock;

use nix::dir::Type;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{self, Mode};
use nix::unistd::{self, UnlinkatFlags};
use rye_core::model::{DirectoryIdentity, Spec};

use super::open::open_without_links;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Returns the id of this boot of the machine; empty if the kernel does not provide it.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default()
    })
}

/// Returns the identity of the directory with the metadata `found`.
pub fn identity(found: &std::fs::Metadata) -> DirectoryIdentity {
    identity_of((found.dev(), found.ino()))
}

/// Returns the identity of the directory with this device and inode number.
fn identity_of((device, inode): (u64, u64)) -> DirectoryIdentity {
    DirectoryIdentity {
        boot_id: boot_id().to_owned(),
        device,
        inode,
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub kind: EntryKind,
}

/// Entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// Entries by name.
    pub list: Vec<Entry>,
    /// Entries whose names are not UTF-8.
    pub foreign: Vec<(OsString, EntryKind)>,
    /// True if there are more; then these are an arbitrary part.
    pub is_cut: bool,
}

/// Identity and length of a file that was found by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Number of its file system.
    pub device: u64,
    /// Number of the file in its file system.
    pub inode: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Kind of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    /// A pipe, a socket or a device.
    Other,
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);
/// `O_NONBLOCK`: opening a FIFO that another process put there must not wait for its other end.
const FILE: OFlag = OFlag::O_NOFOLLOW
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK);

impl From<OwnedFd> for Dir {
    /// `directory` has to be open for reading.
    fn from(directory: OwnedFd) -> Self {
        Self(directory)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Dir {
    /// Opens the root, which must exist. Its last component must not be a link.
    pub fn root(path: &Path) -> io::Result<Self> {
        Ok(Self(fcntl::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens the directory at `path` and follows links in it, for paths that no other user may change. The empty path
    /// is the current directory.
    pub fn follow(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(fcntl::open(or_here(path), flags, Mode::empty())?))
    }

    /// Opens the directory that holds the files of a run. Fails if the directory of its project was replaced by another
    /// one.
    pub fn of_run(spec: &Spec) -> io::Result<Self> {
        let (project, files) = (Path::new(&spec.project), Path::new(&spec.files));
        let known = spec.directory.as_ref();
        let (Some(known), Ok(below)) = (known, files.strip_prefix(project)) else {
            return Self::root(files);
        };
        let project = Self::root(project)?;
        if known.is_other(&project.identity()?) {
            let text = "another directory is in the place of the project";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        project.enter(below)
    }

    pub fn identity(&self) -> io::Result<DirectoryIdentity> {
        let found = stat::fstat(&self.0)?;
        Ok(identity_of((found.st_dev, found.st_ino)))
    }

    /// Opens the directory at `relative`, and creates its missing components.
    pub fn make(&self, relative: &Path) -> io::Result<Self> {
        match self.enter(relative) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_each(relative),
            entered => entered,
        }
    }

    /// Opens the directory at `relative`, which must exist.
    pub fn enter(&self, relative: &Path) -> io::Result<Self> {
        names(relative).try_for_each(|name| name.map(drop))?;
        Ok(Self(open_without_links(
            &self.0,
            or_here(relative),
            DIRECTORY,
        )?))
    }

    fn make_each(&self, relative: &Path) -> io::Result<Self> {
        let mut here = Self(self.0.try_clone()?);
        for name in names(relative) {
            let name = name?;
            match stat::mkdirat(&here.0, name, Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            here = Self(fcntl::openat(&here.0, name, DIRECTORY, Mode::empty())?);
        }
        Ok(here)
    }

    /// Opens the plain file at `relative` for reading and writing; `None` if it does not exist.
    pub fn open_below(&self, relative: &Path) -> io::Result<Option<File>> {
        match open_without_links(&self.0, relative, FILE | OFlag::O_RDWR) {
            Ok(fd) => plain(fd).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the identity and length of the file at `relative`; `None` if it does not exist. Links in the directories
    /// of the path are followed, so the result does not show that the path is safe.
    pub fn find(&self, relative: &Path) -> io::Result<Option<Found>> {
        match stat::fstatat(&self.0, relative, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(Found {
                device: found.st_dev,
                inode: found.st_ino,
                bytes: u64::try_from(found.st_size).unwrap_or(0),
            })),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the plain file `name` for reading and writing; `None` if it does not exist.
    pub fn open(&self, name: &str) -> io::Result<Option<File>> {
        match fcntl::openat(&self.0, name, FILE | OFlag::O_RDWR, Mode::empty()) {
            Ok(fd) => plain(fd).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates the plain file `name`, which must not exist.
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.create_with(name, 0o666)
    }

    /// Creates the plain file `name`, which must not exist, with the permission bits `mode` less the umask.
    pub fn create_with(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = FILE | OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let mode = Mode::from_bits_truncate(mode);
        Ok(fcntl::openat(&self.0, name, flags, mode)?.into())
    }

    /// Opens the plain file `name` for reading; `None` if it does not exist.
    pub fn look(&self, name: &str) -> io::Result<Option<File>> {
        match fcntl::openat(&self.0, name, FILE | OFlag::O_RDONLY, Mode::empty()) {
            Ok(fd) => plain(fd).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads the plain file `name`; `None` if it does not exist. Fails if it has more than `most` bytes.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.look(name)? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        file.take(most.saturating_add(1))
            .read_to_end(&mut content)?;
        if u64::try_from(content.len()).is_ok_and(|length| length <= most) {
            Ok(Some(content))
        } else {
            let text = format!("it is longer than {most} bytes");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
        }
    }

    /// Returns at most `most` entries.
    pub fn entries(&self, most: usize) -> io::Result<Entries> {
        let mut entries = Entries::default();
        for entry in nix::dir::Dir::from_fd(self.0.try_clone()?)?.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entries.list.len() + entries.foreign.len() == most {
                entries.is_cut = true;
                return Ok(entries);
            }
            let kind = match entry.file_type() {
                Some(kind) => kind_of(kind),
                None => self.kind(name)?,
            };
            if let Ok(name) = name.to_str() {
                let name = name.to_owned();
                entries.list.push(Entry { name, kind });
            } else {
                let name = OsStr::from_bytes(name.to_bytes());
                entries.foreign.push((name.to_owned(), kind));
            }
        }
        entries.list.sort_by(|one, other| one.name.cmp(&other.name));
        entries
            .foreign
            .sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }

    /// Reads the kind of an entry, for file systems whose directories do not contain it.
    fn kind(&self, name: &CStr) -> io::Result<EntryKind> {
        let found = stat::fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(kind_of_mode(found.st_mode))
    }

    /// Returns the time in seconds at which the plain file `name` was modified; `None` if there is no such file.
    pub(super) fn modified(&self, name: &str) -> Option<i64> {
        let found = stat::fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        (kind_of_mode(found.st_mode) == EntryKind::File).then_some(found.st_mtime)
    }

    /// Returns the names of the entries, except those of unfinished files.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in nix::dir::Dir::from_fd(self.0.try_clone()?)?.iter() {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens the plain file `name` for appending. A missing file is created with access for its owner only. A file with
    /// another name is refused, because that name may be of a file elsewhere.
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = FILE | OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND;
        let mode = Mode::from_bits_truncate(0o600);
        let file = plain(fcntl::openat(&self.0, name, flags, mode)?)?;
        if file.metadata()?.nlink() > 1 {
            let text = "the file has another name by a hard link; remove it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(file)
    }

    /// Renames the file `from` to `to`, and replaces an existing file of that name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename_into(from, self, to)
    }

    /// Renames the file `from` to `to` in the directory `other` of the same file system.
    pub(super) fn rename_into(&self, from: &str, other: &Self, to: &str) -> io::Result<()> {
        Ok(fcntl::renameat(&self.0, from, &other.0, to)?)
    }

    /// Gives the file `from` the additional name `to`. Fails with `AlreadyExists` if there is an entry of that name.
    pub(super) fn link(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(unistd::linkat(
            &self.0,
            from,
            &self.0,
            to,
            AtFlags::empty(),
        )?)
    }

    /// Removes the file `name`. Returns false if it does not exist.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        match unistd::unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the directory `name` if it exists and is empty.
    pub fn remove_empty(&self, name: &str) -> io::Result<()> {
        match unistd::unlinkat(&self.0, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens or creates the directory `state` with a `.gitignore` for everything in it.
    pub fn state(&self) -> io::Result<Self> {
        let state = self.make(Path::new("state"))?;
        if state.open(".gitignore")?.is_none() {
            state.ignore_everything()?;
        }
        Ok(state)
    }

    /// Opens or creates the directory `item` below `folder`, for pages about runs. A new folder gets a `.gitignore` for
    /// everything in it; an existing one may hold items that users share.
    pub fn pages(&self, folder: &str, item: &str) -> io::Result<Self> {
        let folder = Path::new(folder);
        match self.enter(&folder.join(item)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            entered => return entered,
        }
        let is_new =
            matches!(self.enter(folder), Err(error) if error.kind() == io::ErrorKind::NotFound);
        let folder = self.make(folder)?;
        if is_new {
            folder.ignore_everything()?;
        }
        folder.make(Path::new(item))
    }

    /// Makes the names in the directory survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        Ok(unistd::fsync(&self.0)?)
    }
}

/// Returns `path`, or `.` if it is empty.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// Returns the single names of `relative`. Fails for `..` and absolute paths.
fn names(relative: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    relative.components().map(|component| match component {
        Component::Normal(name) => Ok(name),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a path below a directory has no `..` and is not absolute",
            ))
        }
    })
}

const fn kind_of(kind: Type) -> EntryKind {
    match kind {
        Type::File => EntryKind::File,
        Type::Directory => EntryKind::Directory,
        Type::Symlink => EntryKind::Link,
        Type::Fifo | Type::CharacterDevice | Type::BlockDevice | Type::Socket => EntryKind::Other,
    }
}

fn kind_of_mode(mode: libc::mode_t) -> EntryKind {
    match stat::SFlag::from_bits_truncate(mode) & stat::SFlag::S_IFMT {
        stat::SFlag::S_IFDIR => EntryKind::Directory,
        stat::SFlag::S_IFREG => EntryKind::File,
        stat::SFlag::S_IFLNK => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

fn plain(fd: OwnedFd) -> io::Result<File> {
    let file = File::from(fd);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "something that is not a plain file is in its place",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn file_with_another_name_is_not_appended_to() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = root.path().join("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        let project = root.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::hard_link(&elsewhere, project.join("log")).unwrap();
        let directory = Dir::from(OwnedFd::from(File::open(&project).unwrap()));
        let refused = directory.append("log").unwrap_err().to_string();
        assert!(refused.contains("hard link"), "{refused}");
        assert!(directory.append("other").is_ok());
        fs::remove_file(elsewhere).unwrap();
        assert!(directory.append("log").is_ok());
    }

    #[test]
    fn several_threads_may_create_the_state_directory_at_once() {
        for _ in 0..100 {
            let project = tempfile::tempdir().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| Dir::root(project.path()).unwrap().state().unwrap());
                }
            });
            let ignored = fs::read(project.path().join("state/.gitignore")).unwrap();
            assert_eq!(ignored, b"*\n");
        }
    }

    #[test]
    fn links_are_never_followed() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "untouched").unwrap();
        let project = tempfile::tempdir().unwrap();
        symlink(outside.path(), project.path().join("state")).unwrap();
        symlink(
            outside.path().join("secret"),
            project.path().join("thread.json"),
        )
        .unwrap();
        let root = Dir::root(project.path()).unwrap();
        assert!(root.make(Path::new("state/threads")).is_err());
        assert!(root.make(Path::new("../x")).is_err());
        assert!(root.open("thread.json").is_err());
        root.replace("thread.json", b"ours").unwrap();
        assert_eq!(
            fs::read(outside.path().join("secret")).unwrap(),
            b"untouched"
        );
        assert_eq!(
            fs::read(project.path().join("thread.json")).unwrap(),
            b"ours"
        );
        symlink(outside.path(), project.path().join("root")).unwrap();
        assert!(Dir::root(&project.path().join("root")).is_err());
    }

    #[test]
    fn pages_ignore_only_new_folder_in_git() {
        let project = tempfile::tempdir().unwrap();
        let root = Dir::root(project.path()).unwrap();
        fs::create_dir_all(project.path().join("knowledge/graphs")).unwrap();
        for (folder, ignored) in [
            ("knowledge/graphs", false),
            ("knowledge/agent/threads", true),
        ] {
            for item in ["a/b", "c"] {
                let pages = root.pages(folder, item).unwrap();
                pages.replace("run.md", b"page").unwrap();
            }
            let folder = project.path().join(folder);
            assert!(folder.join("a/b/run.md").exists());
            let rules = fs::read_to_string(folder.join(".gitignore")).ok();
            assert_eq!(rules.as_deref(), ignored.then_some("*\n"));
        }
    }

    #[test]
    fn failed_replace_leaves_no_temporary_file() {
        let project = tempfile::tempdir().unwrap();
        fs::create_dir(project.path().join("thread.json")).unwrap();
        let root = Dir::root(project.path()).unwrap();
        assert!(root.replace("thread.json", b"ours").is_err());
        let left = fs::read_dir(project.path()).unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["thread.json"]);
    }

    #[test]
    fn open_refuses_fifo_without_blocking() {
        let project = tempfile::tempdir().unwrap();
        unistd::mkfifo(
            &project.path().join("transcript.jsonl"),
            Mode::from_bits_truncate(0o600),
        )
        .unwrap();
        let root = Dir::root(project.path()).unwrap();
        assert!(root.open("transcript.jsonl").is_err());
        assert!(root.open("missing").unwrap().is_none());
    }
}
