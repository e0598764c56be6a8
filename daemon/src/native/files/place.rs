//! Access to the files of one project, and to nothing outside it.
//!
//! **Rule.** A path is opened below the project, and the kernel guarantees that no link leads out ([`safe_path::open`]). The
//! opened file has a real path without links. That path is checked and written to, so that a concurrently changed link
//! cannot redirect the write.

use std::cell::Cell;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::{Error, MOST_BYTES, failed, shown};
use rye_core::capability::Denied;
use rye_host::safe_path::{self, Dir, temporary_name};

/// Opening a pipe must not block, and a terminal must not become the controlling one.
const TO_READ: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);
const TO_LIST: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);
/// Directory of the daemon.
const PROTECTED: &str = ".ai/state";

/// Names of files and directories that are executed or read as configuration without a signature, at any depth.
const UNSIGNED: [&str; 4] = [".ai", ".venv", "node_modules", ".git"];
/// Ends of names that are templates of a `.env` file.
const TEMPLATES: [&str; 4] = [".example", ".sample", ".template", ".dist"];

/// Files of a project.
#[derive(Debug)]
pub(super) struct Workspace {
    root: Dir,
    /// The right to write files that take effect without a signature.
    unsafe_write: Result<(), Denied>,
    /// Path as given to `Workspace::open`.
    named: PathBuf,
    /// Real path.
    real: PathBuf,
    /// Unique prefix of temporary file names.
    unfinished: String,
    next: Cell<u32>,
}

/// A regular file that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Path below the project, without links.
    pub(super) path: PathBuf,
    file: File,
    metadata: Metadata,
}

/// Destination of a write.
#[derive(Debug)]
pub(super) struct Target {
    /// Path below the project, without links.
    pub(super) path: PathBuf,
    name: String,
    /// Current file, if there is one.
    pub(super) existing: Option<Found>,
}

/// New content for a target; its temporary file is removed if it is dropped before its rename.
#[derive(Debug)]
pub(super) struct Draft {
    written: safe_path::Draft<Dir>,
    target: Target,
}

impl Workspace {
    /// Opens the project at `directory`. `random` makes its temporary files unique.
    pub(super) fn open(
        directory: &Path,
        unsafe_write: Result<(), Denied>,
        random: u64,
    ) -> Result<Self, Error> {
        let opened = File::open(directory).and_then(|root| {
            let real = real_path(&root)?;
            Ok((Dir::from(OwnedFd::from(root)), real))
        });
        let (root, real) = opened.map_err(|source| failed(directory, source))?;
        Ok(Self {
            root,
            unsafe_write,
            named: directory.to_owned(),
            real,
            unfinished: format!("{random:016x}"),
            next: Cell::new(0),
        })
    }

    /// Path below the project; `given` may begin with the path of the project.
    fn relative(&self, given: &str) -> Result<PathBuf, Error> {
        let path = Path::new(given);
        let below = [&self.named, &self.real]
            .into_iter()
            .find_map(|root| path.strip_prefix(root).ok());
        let path = below.unwrap_or(path);
        if path.is_absolute() {
            return Err(Error::Outside {
                path: given.to_owned(),
            });
        }
        if given.contains('\0') {
            return Err(Error::Invalid("a path has no NUL in it".to_owned()));
        }
        let parts = path.components().filter(|part| *part != Component::CurDir);
        Ok(parts.collect())
    }

    /// Opens the path below the project; the empty one is the project.
    fn opened(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let is_root = path == Path::new("");
        safe_path::open(
            &self.root,
            if is_root { Path::new(".") } else { path },
            flags,
        )
    }

    /// Path of `opened` below the project, without links.
    fn path_of(&self, opened: &impl AsFd, given: &str) -> Result<PathBuf, Error> {
        let real = real_path(opened).map_err(|error| refine(given, error))?;
        let below = real.strip_prefix(&self.real);
        below
            .map(Path::to_owned)
            .map_err(|_elsewhere| Error::Outside {
                path: given.to_owned(),
            })
    }

    /// The regular file at `given`.
    pub(super) fn file(&self, given: &str) -> Result<Found, Error> {
        let path = self.relative(given)?;
        let opened = self.opened(&path, TO_READ);
        let file = File::from(opened.map_err(|errno| refine(given, errno.into()))?);
        let place = self.path_of(&file, given)?;
        found(file, place, given)
    }

    /// The directory at `given`, and its path.
    pub(super) fn directory(&self, given: &str) -> Result<(Dir, PathBuf), Error> {
        let path = self.relative(given)?;
        let opened = self.opened(&path, TO_LIST);
        let opened = opened.map_err(|errno| refine(given, errno.into()))?;
        let place = self.path_of(&opened, given)?;
        Ok((Dir::from(opened), place))
    }

    /// The directory at `path`, which must have no links.
    pub(super) fn enter(&self, path: &Path) -> io::Result<Dir> {
        self.root.enter(path)
    }

    /// Destination of a write to `given`, and the current file there.
    pub(super) fn target(&self, given: &str) -> Result<Target, Error> {
        let relative = self.relative(given)?;
        let path = match self.opened(&relative, OFlag::O_PATH) {
            Ok(opened) => self.path_of(&opened, given)?,
            Err(Errno::ENOENT) => self.path_of_new(&relative, given)?,
            Err(errno) => return Err(refine(given, errno.into())),
        };
        if path.starts_with(PROTECTED) {
            return Err(Error::Protected {
                path: given.to_owned(),
            });
        }
        if takes_effect_unsigned(&path)
            && let Err(denied) = &self.unsafe_write
        {
            return Err(Error::Unsafe {
                path: given.to_owned(),
                source: denied.clone(),
            });
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::Not {
            path: given.to_owned(),
            expected: "a name for a file",
        })?;
        let existing = self.existing(&path, name, given)?;
        Ok(Target {
            name: name.to_owned(),
            existing,
            path,
        })
    }

    /// Path of a new file, below its deepest existing directory.
    fn path_of_new(&self, relative: &Path, given: &str) -> Result<PathBuf, Error> {
        let unusable = || Error::Not {
            path: given.to_owned(),
            expected: "a name for a file",
        };
        let mut missing = Vec::new();
        let mut above = relative;
        loop {
            missing.push(above.file_name().ok_or_else(unusable)?);
            above = above.parent().ok_or_else(unusable)?;
            match self.opened(above, TO_LIST) {
                Ok(opened) => {
                    let mut place = self.path_of(&opened, given)?;
                    place.extend(missing.into_iter().rev());
                    return Ok(place);
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(refine(given, errno.into())),
            }
        }
    }

    fn existing(&self, path: &Path, name: &str, given: &str) -> Result<Option<Found>, Error> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = match self.root.enter(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            directory => directory.map_err(|error| refine(given, error))?,
        };
        let file = directory.look(name).map_err(|error| refine(given, error))?;
        file.map(|file| found(file, path.to_owned(), given))
            .transpose()
    }

    /// Writes `content` to a temporary file with the permissions of the existing file, if there is one.
    pub(super) fn draft(&self, target: Target, content: &[u8]) -> Result<Draft, Error> {
        let path = target.path.clone();
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = self
            .root
            .make(parent)
            .map_err(|error| failed(&path, error))?;
        let number = self.next.get();
        self.next.set(number + 1);
        let temporary = temporary_name(&format!("{}-{number}", self.unfinished));
        let write = || {
            let existing = target.existing.as_ref();
            // The content of a private file is never readable for others.
            let mode = existing.map_or(0o666, |_| 0o600);
            let mut written = safe_path::Draft::with_mode(directory, temporary, mode)?;
            written.file.write_all(content)?;
            if let Some(existing) = existing {
                written
                    .file
                    .set_permissions(existing.metadata.permissions())?;
            }
            written.sync()?;
            Ok(written)
        };
        let written = write().map_err(|error| failed(&path, error))?;
        Ok(Draft { written, target })
    }
}

impl Draft {
    /// Renames the draft to its destination, unless the file there has changed meanwhile.
    pub(super) fn put(self) -> Result<(), Error> {
        let Self { written, target } = self;
        let io_failed = |error| failed(&target.path, error);
        let now = written.dir().look(&target.name).map_err(io_failed)?;
        let now = now.map(|file| file.metadata()).transpose();
        let now = now.map_err(io_failed)?;
        let before = target.existing.as_ref().map(|found| &found.metadata);
        if now.as_ref().map(stamp) != before.map(stamp) {
            return Err(Error::Stale {
                path: shown(&target.path),
                problem: "was changed by somebody else meanwhile".to_owned(),
            });
        }
        written.publish(&target.name).map_err(io_failed)
    }
}

impl Found {
    /// Content, if it is at most `most` bytes.
    pub(super) fn content(&self, most: u64) -> Result<Option<Vec<u8>>, Error> {
        if self.metadata.len() > most {
            return Ok(None);
        }
        let mut content = Vec::new();
        let mut limited = (&self.file).take(most + 1);
        let read = limited.read_to_end(&mut content);
        read.map_err(|error| failed(&self.path, error))?;
        let is_whole = u64::try_from(content.len()).is_ok_and(|length| length <= most);
        Ok(is_whole.then_some(content))
    }

    /// Content for work by lines.
    pub(super) fn lines(&self) -> Result<Vec<u8>, Error> {
        self.content(MOST_BYTES)?.ok_or_else(|| Error::TooLarge {
            path: shown(&self.path),
        })
    }
}

/// True if a file at `path` is executed or read as configuration without a signature.
fn takes_effect_unsigned(path: &Path) -> bool {
    let is_unsigned = |name: &str| {
        // A file system may ignore case.
        let name = name.to_ascii_lowercase();
        let is_env = name.starts_with(".env") && !TEMPLATES.iter().any(|end| name.ends_with(end));
        is_env || UNSIGNED.contains(&name.as_str()) || name.ends_with(".test.yaml")
    };
    let mut names = path.iter().filter_map(|name| name.to_str());
    names.any(is_unsigned)
}

/// Identity and version of a file, to detect changes.
fn stamp(file: &Metadata) -> (u64, u64, u64, i64, i64) {
    let (seconds, nanos) = (file.mtime(), file.mtime_nsec());
    (file.dev(), file.ino(), file.len(), seconds, nanos)
}

fn found(file: File, path: PathBuf, given: &str) -> Result<Found, Error> {
    let metadata = file.metadata().map_err(|error| refine(given, error))?;
    if !metadata.is_file() {
        return Err(Error::Not {
            path: given.to_owned(),
            expected: "a plain file",
        });
    }
    Ok(Found {
        path,
        file,
        metadata,
    })
}

/// Path of an open file according to the kernel.
fn real_path(opened: &impl AsFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// Distinguishes absence and escape from other failures.
fn refine(given: &str, error: io::Error) -> Error {
    let path = given.to_owned();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Error::Missing { path },
        Some(Errno::EXDEV | Errno::ELOOP) => Error::Outside { path },
        Some(Errno::ENOTDIR) => Error::Not {
            path,
            expected: "a directory, or something on the way to it is not",
        },
        Some(_) | None if error.kind() == io::ErrorKind::InvalidInput => Error::Not {
            path,
            expected: "a plain file",
        },
        Some(_) | None => Error::Io {
            path,
            source: error,
        },
    }
}
