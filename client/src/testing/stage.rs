//! Directory in which a case runs: a copy of the project's items, and over it the variables and files of the test file.
//!
//! **Owns** the temporary directories, which only the user can enter. They are removed when dropped, unless they are
//! kept. A lock on a file in it shows that one is in use; those of a `ryectl` that was killed are removed by the next.
//! Unsigned items of a case are signed by a key that is made for the case and counts in its directory alone.
//! **Never** writes to the project. Folders of installed packages are linked instead of copied, and no file is written
//! through a link.
//! **Order.** First the copy, then `.env`, then the files, each of which replaces the copy in its place.
//! **Bounds.** At most 64 MiB and 20,000 entries are copied. More is an error that names the largest file.

use std::cell::OnceCell;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use rye_client::exit::Exit;
use rye_core::clock::Timestamp;
use rye_core::error::with_sources;
use rye_core::id::ItemKind;
use rye_core::seal::{self, SecretKey};
use rye_item::spaces::{FOLDER, ItemLocation, SKIPPED, Space, is_test};
use rye_item::{Spaces, keys, lock, sign, trust};
use tempfile::TempDir;

use super::file::TestFile;
use crate::local_error::LocalError;

/// Start of the names of temporary directories.
const PREFIX: &str = "rye-test-";
/// File that is locked while its directory is in use.
const LOCK: &str = "lock";
/// Folders of `.ai` that are copied.
const COPIED: [&str; 5] = ["tools", "directives", "knowledge", "config", "lockfiles"];
/// Folders of `.ai` that hold pages of runs and are not copied.
const PAGES: [&str; 2] = ["knowledge/graphs", "knowledge/agent/threads"];
/// Folders of installed packages. They may be large, and tools do not change them.
const INSTALLED: [&str; 2] = [".venv", "node_modules"];
/// Most bytes that are copied.
const MOST_BYTES: u64 = 64 << 20;
/// Most files, folders and links that are copied.
const MOST_ENTRIES: usize = 20_000;

/// An entry of the copy of a project.
#[derive(Debug)]
enum Entry {
    Folder,
    File,
    /// Link to this path; a relative path stays relative.
    Link(PathBuf),
}

/// Items of a project by their paths in it, each folder before its entries.
#[derive(Debug)]
struct Items {
    project: PathBuf,
    entries: Vec<(PathBuf, Entry)>,
}

impl Items {
    fn of(project: &Path) -> Result<Self, LocalError> {
        let mut items = Self {
            project: project.to_owned(),
            entries: vec![(FOLDER.into(), Entry::Folder)],
        };
        for name in INSTALLED {
            items.link_installed(name.into());
        }
        let (mut bytes, mut largest) = (0, (0, PathBuf::new()));
        let folders = COPIED.iter().map(|name| Path::new(FOLDER).join(name));
        let mut ahead: Vec<PathBuf> = folders.filter(|path| project.join(path).is_dir()).collect();
        while let Some(folder) = ahead.pop() {
            let path = project.join(&folder);
            let unreadable =
                |error| LocalError::unreadable(&format!("`{}`", path.display()), error);
            items.entries.push((folder.clone(), Entry::Folder));
            for entry in fs::read_dir(&path).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let name = folder.join(entry.file_name());
                let found = entry.metadata().map_err(unreadable)?;
                if found.is_symlink() {
                    let target = fs::read_link(entry.path()).map_err(unreadable)?;
                    items.entries.push((name, Entry::Link(target)));
                } else if found.is_dir() && is_installed(&name) {
                    items.link_installed(name);
                } else if found.is_dir() && is_copied(&name) {
                    ahead.push(name);
                } else if found.is_file() && !(is_test(&name) && name.starts_with(".ai/tools")) {
                    bytes += found.len();
                    largest = largest.max((found.len(), name.clone()));
                    items.entries.push((name, Entry::File));
                }
            }
            if bytes > MOST_BYTES || items.entries.len() > MOST_ENTRIES {
                return Err(too_much(project, &largest.1));
            }
        }
        Ok(items)
    }

    /// Links the folder `name` by its absolute path, if it exists.
    fn link_installed(&mut self, name: PathBuf) {
        if let Ok(real) = fs::canonicalize(self.project.join(&name))
            && real.is_dir()
        {
            self.entries.push((name, Entry::Link(real)));
        }
    }

    fn copy(&self, to: &Path) -> io::Result<()> {
        fs::create_dir(to)?;
        for (path, entry) in &self.entries {
            let copy = to.join(path);
            match entry {
                Entry::Folder => fs::create_dir(copy)?,
                Entry::File => fs::copy(self.project.join(path), copy).map(drop)?,
                Entry::Link(target) => symlink(target, copy)?,
            }
        }
        Ok(())
    }
}

fn is_installed(folder: &Path) -> bool {
    INSTALLED.iter().any(|name| folder.ends_with(name))
}

/// True unless the folder holds pages of runs or generated files. `dist` and `build` may be parts of a tool.
fn is_copied(folder: &Path) -> bool {
    let is_skipped = |name: &&str| folder.ends_with(name) && !matches!(*name, "dist" | "build");
    let is_page = |page: &&str| folder == Path::new(FOLDER).join(page);
    !SKIPPED.iter().any(is_skipped) && !PAGES.iter().any(is_page)
}

fn too_much(project: &Path, largest: &Path) -> LocalError {
    LocalError::precondition(format!(
        "the items of `{}` are more than the {} MiB, or the {MOST_ENTRIES} files, that are copied for each case; the largest is `{}`: keep data \
         outside of `.ai`",
        project.display(),
        MOST_BYTES >> 20,
        largest.display()
    ))
}

/// User and system space, and the time of signatures.
#[derive(Debug)]
pub(crate) struct Signer {
    /// Directory whose `.ai` is the user space.
    pub(crate) user: PathBuf,
    /// Root of the system space.
    pub(crate) system: PathBuf,
    pub(crate) now: Timestamp,
}

/// Items of a project, and the temporary directory for copies of them.
#[derive(Debug)]
pub(crate) struct Stage {
    items: Items,
    signer: Signer,
    root: TempDir,
    /// Shows other processes that the directory is in use.
    lock: Flock<File>,
}

impl Stage {
    /// Lists the items of `project` and makes the temporary directory.
    pub(crate) fn new(project: &Path, signer: Signer) -> Result<Self, LocalError> {
        let items = Items::of(project)?;
        let made = make_root().and_then(|root| {
            let lock = hold(root.path())?;
            Ok((root, lock))
        });
        let (root, lock) = made.map_err(|error| {
            let message = "no temporary directory can be made; `TMPDIR` names where";
            LocalError::because(Exit::Precondition, message, error)
        })?;
        if let Some(above) = root.path().parent() {
            remove_abandoned(above);
        }
        trust::remove_stale(&signer.user);
        Ok(Self {
            items,
            signer,
            root,
            lock,
        })
    }

    /// Makes the directory of the case `number`. The error is a message for people.
    pub(super) fn directory(&self, number: usize, file: &TestFile) -> Result<Directory, String> {
        // The daemon uses the canonical path.
        let root = fs::canonicalize(self.root.path());
        let root = root.map_err(|error| format!("its directory is gone: {error}"))?;
        let directory = Directory {
            root: root.join(number.to_string()),
            entry: OnceCell::new(),
        };
        let copied = self.items.copy(&directory.root);
        copied.map_err(|error| format!("the items of the project cannot be copied: {error}"))?;
        let added = directory.add(file, &self.signer);
        added.map_err(|problem| directory.without_its_path(&problem))?;
        Ok(directory)
    }

    /// Keeps the directories that were not removed. Returns their parent.
    pub(crate) fn keep(self) -> PathBuf {
        let kept = self.root.keep();
        // Without the file the directory is not taken for an abandoned one.
        drop(fs::remove_file(kept.join(LOCK)));
        drop(self.lock);
        kept
    }
}

fn make_root() -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
}

/// Creates the file in `root` that is locked as long as this process lives. It has its name only once it is locked.
fn hold(root: &Path) -> io::Result<Flock<File>> {
    let path = root.join("lock.new");
    let file = File::create(&path)?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    let lock = lock.map_err(|(_file, errno)| io::Error::from(errno))?;
    fs::rename(path, root.join(LOCK))?;
    Ok(lock)
}

/// Removes the directories in `above` whose process was killed. Best effort.
fn remove_abandoned(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let root = entry.path();
        let is_own = entry
            .metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        let file = is_own.then(|| File::open(root.join(LOCK)));
        let Some(Ok(file)) = file else {
            continue;
        };
        if Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok() {
            drop(fs::remove_dir_all(&root));
        }
    }
}

/// Directory of one case.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) root: PathBuf,
    /// Trusted-key file of the case, once it signed something.
    entry: OnceCell<PathBuf>,
}

impl Directory {
    /// Removes the directory. What cannot be removed is removed with the stage, or stays.
    pub(super) fn remove(&self) {
        // The daemon may still write files of the run: to it the project is gone at once.
        let gone = self.root.with_extension("gone");
        let renamed = fs::rename(&self.root, &gone);
        // A tool may have left files that this user cannot remove; cleaning the temporary directory is up to the
        // system.
        drop(fs::remove_dir_all(renamed.map_or(&self.root, |()| &gone)));
        if let Some(entry) = self.entry.get() {
            drop(fs::remove_file(entry));
        }
    }

    /// Replaces paths in the directory by paths in the project.
    pub(super) fn without_its_path(&self, text: &str) -> String {
        let root = self.root.display().to_string();
        text.replace(&format!("{root}/"), "").replace(&root, ".")
    }

    /// Writes the variables and the files that `file` adds, and signs unsigned items.
    fn add(&self, file: &TestFile, signer: &Signer) -> Result<(), String> {
        if !file.env.is_empty() {
            let mut lines = String::new();
            for (name, value) in &file.env {
                // A quoted value is taken literally.
                lines.extend([name.as_str(), "=\"", value.as_str(), "\"\n"]);
            }
            let written = fs::write(self.root.join(".env"), lines);
            written.map_err(|error| format!("`.env` cannot be written: {error}"))?;
        }
        let spaces = Spaces::new(
            Some(self.root.clone()),
            signer.user.clone(),
            signer.system.clone(),
        );
        for (name, text) in &file.files {
            let of = |problem: String| format!("`files`: `{}` {problem}", name.display());
            let path = self.free(name).map_err(of)?;
            if let Ok(place) = spaces.locate(&path) {
                replace(&spaces, &place);
            }
            let written = fs::write(&path, text);
            written.map_err(|error| of(format!("cannot be written: {error}")))?;
        }
        // All files exist before one is signed, because a schema among them may apply to another.
        let places = file.files.iter().filter_map(|(name, text)| {
            let place = spaces.locate(&self.root.join(name)).ok()?;
            is_to_sign(&place, text).then_some((name, place))
        });
        let places: Vec<_> = places.collect();
        if places.is_empty() {
            return Ok(());
        }
        let key = self.make_key(signer)?;
        for (name, place) in places {
            sign::sign(&spaces, &place, &key, signer.now).map_err(|error| {
                let problem = with_sources(&error);
                format!("`files`: `{}` cannot be signed: {problem}", name.display())
            })?;
        }
        Ok(())
    }

    /// Makes the key of the case, which counts in its directory alone.
    fn make_key(&self, signer: &Signer) -> Result<SecretKey, String> {
        let key = keys::random().map_err(|error| with_sources(&error))?;
        let owner = "a case of `ryectl test`";
        let entry = trust::enter_for(&signer.user, &key, owner, &self.root, signer.now);
        let entry = entry
            .map_err(|error| format!("its key cannot be trusted: {}", with_sources(&error)))?;
        let _first = self.entry.set(entry);
        Ok(key)
    }

    /// Returns the path for the file `name`. Makes its folder, removes an existing file, and refuses a path through a
    /// link.
    fn free(&self, name: &Path) -> Result<PathBuf, String> {
        let path = self.root.join(name);
        let folders = path.ancestors().skip(1);
        let mut folders = folders.take_while(|folder| *folder != self.root);
        if let Some(link) = folders.find(|folder| folder.is_symlink()) {
            return Err(format!(
                "is reached by a link that leads to what is not copied (`{}`): choose another path",
                link.display()
            ));
        }
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.map_err(|error| format!("cannot have a folder: {error}"))?;
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => return Err("is a folder".to_owned()),
            // The entry is removed, so that nothing is written through a link or over a copy.
            Ok(_) => fs::remove_file(&path).map_err(|error| error.to_string())?,
            Err(_) => {}
        }
        Ok(path)
    }
}

/// Removes files that would be used instead of a new file at `place`, or would refuse it: other files of the same item,
/// and its locks.
fn replace(spaces: &Spaces, place: &ItemLocation) {
    let extensions = place.item.kind.extensions().iter().copied();
    let others = extensions.filter(|extension| *extension != place.extension);
    let others = others.map(|extension| {
        let place = place.clone();
        ItemLocation { extension, ..place }.path()
    });
    let is_of_it = |lock: &lock::Listed| {
        lock.space == Space::Project
            && place.item.kind == ItemKind::Tool
            && lock.tool == place.item.id.as_str()
    };
    let locks = lock::list(spaces).into_iter().filter(is_of_it);
    for path in others.chain(locks.map(|lock| lock.path)) {
        // Usually there is none.
        drop(fs::remove_file(path));
    }
}

/// True if the item at `place` is unsigned. Key files stay unsigned.
fn is_to_sign(place: &ItemLocation, text: &str) -> bool {
    let is_key = place.item.kind == ItemKind::Config && place.item.id.as_str().starts_with("keys/");
    let seal = seal::inspect(place.item.kind, place.extension, text);
    !is_key && matches!(seal, Err(seal::Error::Unsigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_copy_has_the_items_and_neither_runs_nor_what_was_installed() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        for name in [
            ".ai/tools/a/x.py",
            ".ai/tools/a/x.test.yaml",
            ".ai/tools/a/data.json",
            ".ai/tools/a/build/program",
            ".ai/tools/a/__pycache__/x.pyc",
            ".ai/tools/a/node_modules/m/index.js",
            ".ai/knowledge/notes/n.md",
            ".ai/knowledge/graphs/g/run.md",
            ".ai/knowledge/agent/threads/g/run.md",
            ".ai/state/threads/run/thread.json",
            ".venv/bin/python",
            "src/main.rs",
            ".env",
        ] {
            write(&root.join(name), "x");
        }
        symlink("x.py", root.join(".ai/tools/a/link.py")).unwrap();
        let items = Items::of(root).unwrap();
        let to = tempfile::tempdir().unwrap();
        let copy = to.path().join("copy");
        items.copy(&copy).unwrap();
        let is_there = |name: &str| copy.join(name).symlink_metadata().is_ok();
        for (name, expected) in [
            (".ai/tools/a/x.py", true),
            (".ai/tools/a/x.test.yaml", false),
            (".ai/tools/a/data.json", true),
            (".ai/tools/a/build/program", true),
            (".ai/tools/a/link.py", true),
            (".ai/tools/a/__pycache__", false),
            (".ai/knowledge/notes/n.md", true),
            (".ai/knowledge/graphs", false),
            (".ai/knowledge/agent/threads", false),
            (".ai/state", false),
            ("src", false),
            (".env", false),
        ] {
            assert_eq!(is_there(name), expected, "{name}");
        }
        for name in [".venv", ".ai/tools/a/node_modules"] {
            let leads_to = fs::read_link(copy.join(name)).unwrap();
            assert_eq!(leads_to, fs::canonicalize(root.join(name)).unwrap());
        }
    }

    #[test]
    fn more_than_can_be_copied_is_an_error_that_names_the_largest_file() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        write(&root.join(".ai/tools/a/small"), "x");
        let large = root.join(".ai/tools/a/large");
        write(&large, "");
        let file = File::options().write(true).open(&large).unwrap();
        file.set_len(MOST_BYTES).unwrap();
        let error = Items::of(root).unwrap_err().to_string();
        assert!(
            error.contains("64 MiB") && error.contains("tools/a/large"),
            "{error}"
        );
        file.set_len(1000).unwrap();
        assert!(Items::of(root).is_ok());
    }

    #[test]
    fn a_directory_is_removed_only_when_its_process_is_gone() {
        let above = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let root = above.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&root).unwrap();
            root
        };
        let (used, abandoned, kept) = (make("used"), make("abandoned"), make("kept"));
        let _held = hold(&used).unwrap();
        drop(hold(&abandoned).unwrap());
        remove_abandoned(above.path());
        assert!(used.exists() && kept.exists());
        assert!(!abandoned.exists());
    }

    #[test]
    fn a_file_is_not_written_through_a_link() {
        let to = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let directory = Directory {
            root: to.path().to_owned(),
            entry: OnceCell::new(),
        };
        write(&elsewhere.path().join("mine"), "mine");
        symlink(elsewhere.path(), to.path().join("folder")).unwrap();
        symlink(elsewhere.path().join("mine"), to.path().join("file")).unwrap();
        let refused = directory.free(Path::new("folder/mine")).unwrap_err();
        assert!(refused.contains("by a link"), "{refused}");
        let free = directory.free(Path::new("file")).unwrap();
        fs::write(free, "new").unwrap();
        let mine = fs::read_to_string(elsewhere.path().join("mine")).unwrap();
        assert_eq!(mine, "mine");
        assert!(directory.free(Path::new("a/b/c")).is_ok());
        assert!(directory.free(Path::new("a/b")).is_err());
    }
}
