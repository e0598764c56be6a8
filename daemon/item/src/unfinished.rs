//! Temporary files of atomic writes: their names, and the removal of those whose writer died.
//!
//! **Rule.** A write removes temporary files of the same folder that are more than one hour older than the written
//! file; they have no writer any more. **Never** touches other names, or anything but regular files. A file that cannot
//! be removed is left; this is not an error.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

const BEGIN: &str = ".rye-";
const END: &str = ".tmp";
/// Far longer than any write takes.
const OLD: Duration = Duration::from_hours(1);
/// Maximum number of directory entries examined per write.
const MOST_ENTRIES: usize = 1000;

/// Name of a temporary file; it is unique if `unique` is.
pub fn name(unique: &str) -> String {
    format!("{BEGIN}{unique}{END}")
}

/// Removes files of dead writers in the open directory `folder`, in which `written` was just written.
pub fn sweep_open(folder: &impl AsFd, written: &File) {
    if let Ok(now) = written.metadata().and_then(|about| about.modified()) {
        // Names the opened directory, independent of the current target of its path.
        let open = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        sweep(Path::new(&open), now);
    }
}

/// Removes files of dead writers in `folder`; `now` is the current time of its file system.
pub(crate) fn sweep(folder: &Path, now: SystemTime) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.take(MOST_ENTRIES) {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(BEGIN) && name.ends_with(END));
        if !is_ours {
            continue;
        }
        // Does not follow links.
        let Ok(about) = entry.metadata() else {
            continue;
        };
        let age = about
            .modified()
            .ok()
            .and_then(|written| now.duration_since(written).ok());
        if about.is_file() && age.is_some_and(|age| age > OLD) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_dead_writers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, age: Duration| {
            let file = File::create(folder.path().join(name)).unwrap();
            let at = SystemTime::UNIX_EPOCH + OLD * 100 - age;
            file.set_modified(at).unwrap();
        };
        write(&name("0123"), OLD * 2);
        write(&name("4567-1"), OLD * 2);
        write(&name("89ab"), OLD / 2);
        write("notes.tmp", OLD * 2);
        write(".rye-notes", OLD * 2);
        fs::create_dir(folder.path().join(name("dir"))).unwrap();
        std::os::unix::fs::symlink("notes.tmp", folder.path().join(name("link"))).unwrap();
        sweep(folder.path(), SystemTime::UNIX_EPOCH + OLD * 100);
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
}
