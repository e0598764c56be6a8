//! Verified copies of tools that consist of several files.
//!
//! **Owns** `<state directory>/trees/<SHA-256 of paths, contents and links>/`: a directory that holds the files of a
//! [`Tree`], and nothing else. **Never** reads a file of a project, and never returns a copy without comparing it byte
//! by byte during the same call.
//!
//! **Order.** A copy is written under a temporary name, made read-only, and renamed: it exists complete or not at all.
//! Two concurrent writers of one copy write the same content. **Failure.** A wrong copy is rewritten; if it cannot be
//! removed it is renamed. The next start removes unfinished and renamed copies, and copies that were not requested for
//! seven days.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::ops::Bound;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use rye_core::clock::Timestamp;
use rye_core::seal::sha256_hex;

/// Folder of all copies.
const FOLDER: &str = "trees";
/// Prefix of unfinished copies, and of wrong copies that were renamed.
const UNFINISHED: &str = ".new-";
/// Retention in milliseconds after the last request.
const KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Counter for unique names. A state directory has one daemon; copies of an earlier one keep their names.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Maximum number of files of a tree.
pub const MOST_FILES: usize = 2_000;
/// Maximum total size of its files in bytes.
pub const MOST_BYTES: usize = 64 << 20;

/// Files by relative paths without `..`, and links to outside directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<PathBuf, Arc<[u8]>>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Tree {
    /// Adds a file; an existing one is kept.
    pub fn file(&mut self, path: PathBuf, content: Arc<[u8]>) {
        self.files.entry(path).or_insert(content);
    }

    /// Adds a link to a directory whose content is not verified.
    pub fn link(&mut self, path: PathBuf, target: PathBuf) {
        self.links.insert(path, target);
    }

    /// Adds all of `other` below `directory`.
    pub fn join(&mut self, directory: &Path, other: Self) {
        let files = other.files.into_iter();
        self.files
            .extend(files.map(|(path, content)| (directory.join(path), content)));
        let links = other.links.into_iter();
        self.links
            .extend(links.map(|(path, target)| (directory.join(path), target)));
    }

    /// True if the tree has entries below the directory `path`.
    fn has_below(&self, path: &Path) -> bool {
        let is_above = |name: Option<&PathBuf>| {
            name.is_some_and(|name| name != path && name.starts_with(path))
        };
        let from = (Bound::Excluded(path), Bound::Unbounded);
        let file = self.files.range::<Path, _>(from).next();
        let link = self.links.range::<Path, _>(from).next();
        is_above(file.map(|(name, _)| name)) || is_above(link.map(|(name, _)| name))
    }

    /// Number of files.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Total size of the files.
    pub fn bytes(&self) -> usize {
        self.files.values().map(|content| content.len()).sum()
    }

    /// Path and SHA-256 of each file, ordered by path.
    pub fn hashes(&self) -> impl Iterator<Item = (&Path, String)> {
        let files = self.files.iter();
        files.map(|(path, content)| (&**path, sha256_hex(content)))
    }

    /// Path and target of each link, ordered by path.
    pub fn links(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.links.iter().map(|(path, target)| (&**path, &**target))
    }

    /// SHA-256 over all paths, contents and links.
    pub fn hash(&self) -> String {
        let mut all = Vec::new();
        let mut add = |kind: u8, path: &Path, of: &[u8]| {
            all.push(kind);
            for part in [path.as_os_str().as_encoded_bytes(), of] {
                all.extend(part.len().to_le_bytes());
                all.extend(part);
            }
        };
        for (path, content) in &self.files {
            add(b'f', path, sha256_hex(content).as_bytes());
        }
        for (path, target) in &self.links {
            add(b'l', path, target.as_os_str().as_encoded_bytes());
        }
        sha256_hex(all)
    }
}

/// Directory below `state` with all copies.
pub fn folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// Returns a directory below `state` that holds a copy of `tree`. Blocks.
pub fn place(state: &Path, tree: &Tree) -> io::Result<PathBuf> {
    let folder = folder(state);
    private().recursive(true).create(&folder)?;
    let path = folder.join(tree.hash());
    if is_copy(&path, tree)? {
        let now = TimeSpec::UTIME_NOW;
        futimens(File::open(&path)?, &now, &now)?;
        return Ok(path);
    }
    let unfinished = unfinished(&folder);
    let written = write(&unfinished, tree).and_then(|()| put(&unfinished, &path, tree));
    if written.is_err() {
        remove(&unfinished)?;
    }
    written?;
    if is_copy(&path, tree)? {
        Ok(path)
    } else {
        Err(io::Error::other(
            "somebody changes the copy while it is written",
        ))
    }
}

/// An unused name in `folder`.
fn unfinished(folder: &Path) -> PathBuf {
    loop {
        let unique = BEGUN.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{UNFINISHED}{unique}"));
        if path.symlink_metadata().is_err() {
            return path;
        }
    }
}

/// Removes copies that an earlier daemon left unfinished, and those not requested for seven days before `now`. Returns
/// the first error, after trying all. Blocks.
pub fn sweep(state: &Path, now: Timestamp) -> io::Result<()> {
    let folder = folder(state);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut swept = Ok(());
    for entry in entries {
        swept = swept.and(sweep_one(&entry?, now));
    }
    swept
}

fn sweep_one(entry: &DirEntry, now: Timestamp) -> io::Result<()> {
    let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
    let modified = entry.metadata()?.modified()?;
    let modified = modified.duration_since(SystemTime::UNIX_EPOCH);
    let modified = i64::try_from(modified.unwrap_or_default().as_millis());
    let age = now.ms_since(Timestamp::from_ms(modified.unwrap_or(i64::MAX)));
    if is_unfinished || age > KEPT_MS {
        remove(&entry.path())
    } else {
        Ok(())
    }
}

fn private() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Renames the finished copy to `path`. A correct copy that another writer put there is kept, because it may be in use.
/// A wrong one is renamed first, and then removed if possible.
fn put(unfinished: &Path, path: &Path, tree: &Tree) -> io::Result<()> {
    if fs::rename(unfinished, path).is_ok() {
        return Ok(());
    }
    if is_copy(path, tree)? {
        return remove(unfinished);
    }
    let aside = self::unfinished(path.parent().unwrap_or(path));
    match fs::rename(path, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // Another writer may have removed it.
        Ok(()) | Err(_) => fs::rename(unfinished, path)?,
    }
    if let Err(error) = remove(&aside) {
        tracing::warn!(%error, path = %aside.display(), "a wrong copy of the files of a tool could not be taken away");
    }
    Ok(())
}

fn write(root: &Path, tree: &Tree) -> io::Result<()> {
    private().create(root)?;
    let mut directories = vec![root.to_owned()];
    for path in tree.files.keys().chain(tree.links.keys()) {
        for above in path
            .ancestors()
            .skip(1)
            .filter(|above| *above != Path::new(""))
        {
            let directory = root.join(above);
            if !directories.contains(&directory) {
                private().recursive(true).create(&directory)?;
                directories.push(directory);
            }
        }
    }
    for (path, content) in &tree.files {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(root.join(path))?;
        file.write_all(content)?;
    }
    for (path, target) in &tree.links {
        symlink(target, root.join(path))?;
    }
    for directory in directories {
        fs::set_permissions(directory, Permissions::from_mode(0o500))?;
    }
    Ok(())
}

/// True if `path` holds `tree` and nothing else.
fn is_copy(path: &Path, tree: &Tree) -> io::Result<bool> {
    let mut seen = 0;
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let entries = match fs::read_dir(path.join(&below)) {
            Err(error) if is_absent(&error) => return Ok(false),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = below.join(entry.file_name());
            let kind = entry.file_type()?;
            let is_right = if kind.is_dir() {
                if !tree.has_below(&name) {
                    return Ok(false);
                }
                open.push(name);
                continue;
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path())?;
                tree.links.get(&name) == Some(&target)
            } else {
                let content = tree.files.get(&name);
                content.is_some_and(|content| holds(&entry.path(), content))
            };
            if !is_right {
                return Ok(false);
            }
            seen += 1;
        }
    }
    Ok(seen == tree.files.len() + tree.links.len())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// True if the file holds exactly these bytes. False for a pipe or a device; does not wait for them.
fn holds(path: &Path, content: &[u8]) -> bool {
    let read = || -> io::Result<bool> {
        let mut options = OpenOptions::new();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = options.read(true).custom_flags(flags).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || usize::try_from(about.len()).ok() != Some(content.len()) {
            return Ok(false);
        }
        let mut found = Vec::with_capacity(content.len());
        file.take(about.len() + 1).read_to_end(&mut found)?;
        Ok(found == content)
    };
    read().unwrap_or(false)
}

/// Removes a copy, which is read-only.
fn remove(path: &Path) -> io::Result<()> {
    let about = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    if !about.is_dir() {
        return fs::remove_file(path);
    }
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(path)
}

#[cfg(test)]
mod tests;
