//! Atomic writes of single files: a reader sees the old or the new content, never a part.
//!
//! A [`Draft`] is new content under a temporary name. Dropping it removes that file, unless it was renamed.
//! **Order.** [`Draft::commit`] syncs the file, renames it and syncs its directory. Once it returns, the new file
//! survives a crash; a crash before that leaves the old one. [`Draft::rename`] alone syncs nothing, for files that are
//! made again after a crash.
//! **Leftovers** of a writer that died are removed by one of two rules. A name with one writer is replaced by its next
//! draft. Names of [`temporary_name`] are unique, for directories with several writers. A sync removes such files from
//! its directory if they are more than one hour older than the written file. It removes nothing else, and only regular
//! files. A file that cannot be removed is left; this is not an error.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dir::Dir;

const BEGIN: &str = ".rye-";
const END: &str = ".tmp";
/// Age in seconds from which on a file has no writer any more; far longer than any write takes.
const OLD: i64 = 60 * 60;
/// Maximum number of directory entries examined per write.
const MOST_ENTRIES: usize = 1000;

/// Returns a name for a draft in a directory with several writers; it is unique if `unique` is.
pub fn temporary_name(unique: &str) -> String {
    format!("{BEGIN}{unique}{END}")
}

/// New content of a file, under a temporary name in the directory `D`.
#[derive(Debug)]
pub struct Draft<D: Borrow<Dir>> {
    temporary: Temporary<D>,
    /// The file under its temporary name.
    pub file: File,
}

/// A name that is removed on drop, unless it was renamed.
#[derive(Debug)]
struct Temporary<D: Borrow<Dir>> {
    dir: D,
    name: String,
    is_gone: bool,
}

impl<D: Borrow<Dir>> Draft<D> {
    /// Creates the file `temporary` in `dir`, which no other writer may use at the same time. The umask applies.
    pub fn new(dir: D, temporary: String) -> io::Result<Self> {
        Self::with_mode(dir, temporary, 0o666)
    }

    /// Works like [`Draft::new`], with the permission bits `mode` less the umask.
    pub fn with_mode(dir: D, temporary: String, mode: u32) -> io::Result<Self> {
        let at = dir.borrow();
        let file = match at.create_with(&temporary, mode) {
            // The rest of a writer that died.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                at.remove(&temporary)?;
                at.create_with(&temporary, mode)?
            }
            file => file?,
        };
        let temporary = Temporary {
            dir,
            name: temporary,
            is_gone: false,
        };
        Ok(Self { temporary, file })
    }

    pub fn dir(&self) -> &Dir {
        self.temporary.dir.borrow()
    }

    /// Syncs the content, and removes leftovers of other writers that died.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        if is_shared(&self.temporary.name)
            && let Ok(now) = self.file.metadata()
        {
            sweep(self.dir(), now.mtime());
        }
        Ok(())
    }

    /// Renames the file to `name`, and replaces an existing file of that name. Syncs nothing.
    pub fn rename(mut self, name: &str) -> io::Result<File> {
        self.temporary.rename(None, name)?;
        Ok(self.file)
    }

    /// Renames the file to `name` in `other`, a directory of the same file system. Syncs nothing.
    pub fn rename_into(mut self, other: &Dir, name: &str) -> io::Result<File> {
        self.temporary.rename(Some(other), name)?;
        Ok(self.file)
    }

    /// Renames the file to `name`, and replaces an existing file of that name. The new one is on disk on return.
    pub fn commit(self, name: &str) -> io::Result<()> {
        self.sync()?;
        self.publish(name)
    }

    /// Works like [`Draft::commit`], for a file that is already synced.
    pub fn publish(mut self, name: &str) -> io::Result<()> {
        self.temporary.rename(None, name)?;
        self.dir().sync()
    }

    /// Renames the file to `name`. Fails with `AlreadyExists` if there is an entry of that name. The file is on disk on
    /// return.
    pub fn commit_new(mut self, name: &str) -> io::Result<()> {
        self.sync()?;
        self.dir().link(&self.temporary.name, name)?;
        self.dir().remove(&self.temporary.name)?;
        self.temporary.is_gone = true;
        self.dir().sync()
    }
}

impl<D: Borrow<Dir>> Temporary<D> {
    fn rename(&mut self, other: Option<&Dir>, name: &str) -> io::Result<()> {
        let dir = self.dir.borrow();
        dir.rename_into(&self.name, other.unwrap_or(dir), name)?;
        self.is_gone = true;
        Ok(())
    }
}

impl<D: Borrow<Dir>> Drop for Temporary<D> {
    fn drop(&mut self) {
        if !self.is_gone {
            // The error that ended the write is the one that is reported.
            drop(self.dir.borrow().remove(&self.name));
        }
    }
}

impl Dir {
    /// Replaces the file `name` atomically. Only one writer may do so at a time. Syncs nothing.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.replace_with(name, content, 0o666)
    }

    /// Works like [`Dir::replace`], with the permission bits `mode` less the umask.
    pub fn replace_with(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let mut draft = Draft::with_mode(self, replacement_of(name), mode)?;
        draft.file.write_all(content)?;
        draft.rename(name).map(drop)
    }

    /// Removes the file `name`, and the content that a writer that died in [`Dir::replace`] left. Missing files are not an
    /// error.
    pub fn remove_with_draft(&self, name: &str) -> io::Result<()> {
        self.remove(&replacement_of(name))?;
        self.remove(name)?;
        Ok(())
    }

    /// Writes a `.gitignore` for everything in the directory. Several threads may do so at once.
    pub(super) fn ignore_everything(&self) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut draft = Draft::new(self, temporary_name(&format!("ignore-{number}")))?;
        draft.file.write_all(b"*\n")?;
        draft.rename(".gitignore")?;
        Ok(())
    }
}

/// Returns the name of the draft that replaces the file `name`.
fn replacement_of(name: &str) -> String {
    format!(".{name}{END}")
}

fn is_shared(name: &str) -> bool {
    name.starts_with(BEGIN) && name.ends_with(END)
}

/// Removes drafts of dead writers in `dir`; `now` is the current time of its file system.
fn sweep(dir: &Dir, now: i64) {
    let entries = dir.entries(MOST_ENTRIES).map(|entries| entries.list);
    for entry in entries.into_iter().flatten() {
        let is_old = |modified| now.saturating_sub(modified) > OLD;
        if is_shared(&entry.name) && dir.modified(&entry.name).is_some_and(is_old) {
            // It is left if it cannot be removed.
            drop(dir.remove(&entry.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn file_is_removed_with_the_draft_of_a_dead_writer() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::root(folder.path()).unwrap();
        for names in [&["a.md", ".a.md.tmp"][..], &["a.md"], &[".a.md.tmp"], &[]] {
            for name in names {
                fs::write(folder.path().join(name), "text").unwrap();
            }
            dir.remove_with_draft("a.md").unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{names:?}");
        }
    }

    #[test]
    fn only_files_of_dead_writers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let now = OLD * 100;
        let write = |name: &str, age: i64| {
            let file = File::create(folder.path().join(name)).unwrap();
            let at = Duration::from_secs((now - age).try_into().unwrap());
            file.set_modified(SystemTime::UNIX_EPOCH + at).unwrap();
        };
        write(&temporary_name("0123"), OLD * 2);
        write(&temporary_name("4567-1"), OLD * 2);
        write(&temporary_name("89ab"), OLD / 2);
        write("notes.tmp", OLD * 2);
        write(".rye-notes", OLD * 2);
        fs::create_dir(folder.path().join(temporary_name("dir"))).unwrap();
        std::os::unix::fs::symlink("notes.tmp", folder.path().join(temporary_name("link")))
            .unwrap();
        sweep(&Dir::follow(folder.path()).unwrap(), now);
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                ".rye-89ab.tmp",
                ".rye-dir.tmp",
                ".rye-link.tmp",
                ".rye-notes",
                "notes.tmp"
            ]
        );
    }

    #[test]
    fn a_draft_replaces_the_rest_of_a_dead_writer_and_leaves_nothing_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        fs::write(folder.path().join("a.tmp"), "half of another").unwrap();
        let dir = Dir::follow(folder.path()).unwrap();
        let draft = |content: &[u8]| {
            let mut draft = Draft::new(&dir, "a.tmp".to_owned()).unwrap();
            draft.file.write_all(content).unwrap();
            draft
        };
        draft(b"one").commit("a").unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one");
        let error = draft(b"two").commit_new("a").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        drop(draft(b"three"));
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(draft(b"four").commit("b").is_err());
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one");
        assert_eq!(names(), ["a", "b"]);
        draft(b"five").commit_new("c").unwrap();
        assert_eq!(fs::read(folder.path().join("c")).unwrap(), b"five");
        draft(b"six")
            .rename_into(&Dir::follow(&folder.path().join("b")).unwrap(), "d")
            .unwrap();
        assert_eq!(fs::read(folder.path().join("b/d")).unwrap(), b"six");
        assert_eq!(names(), ["a", "b", "c"]);
    }

    #[test]
    fn a_sync_of_a_shared_directory_removes_old_drafts_there() {
        let folder = tempfile::tempdir().unwrap();
        let old = File::create(folder.path().join(temporary_name("0"))).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let dir = Dir::follow(folder.path()).unwrap();
        let draft = Draft::with_mode(&dir, temporary_name("1"), 0o600).unwrap();
        assert_eq!(draft.file.metadata().unwrap().mode() & 0o777, 0o600);
        draft.commit("a").unwrap();
        assert_eq!(dir.entries(9).unwrap().list.len(), 1);
        assert!(folder.path().join("a").exists());
    }
}
