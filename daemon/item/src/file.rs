//! Writing single files so that a reader sees the old content or the new one, never a part, even after a crash.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rye_core::error::ErrorKind;

/// What a failure of the file system means to the caller.
pub(crate) fn kind(error: &io::Error) -> ErrorKind {
    if error.kind() == io::ErrorKind::NotFound {
        ErrorKind::NotFound
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        ErrorKind::Denied
    } else {
        ErrorKind::Unavailable
    }
}

/// Replaces `path` by a file with `content` and the permission bits `mode`.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = Draft::write(path, content, mode)?;
    fs::rename(&draft.path, path)?;
    draft.sync_folder()
}

/// Creates `path` with `content` and the permission bits `mode`; fails with `AlreadyExists` if something is there.
pub(crate) fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = Draft::write(path, content, mode)?;
    fs::hard_link(&draft.path, path)?;
    fs::remove_file(&draft.path)?;
    draft.sync_folder()
}

/// The new content under a name of its own; removed when it is dropped without having been moved away.
struct Draft {
    path: PathBuf,
    folder: PathBuf,
}

impl Draft {
    fn write(target: &Path, content: &[u8], mode: u32) -> io::Result<Self> {
        let folder = match target.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let unique = getrandom::u64().map_err(io::Error::other)?;
        let draft = Self {
            path: folder.join(format!(".rye-{unique:016x}.tmp")),
            folder,
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o600)
            .open(&draft.path)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(draft)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a move there is nothing left to remove, which is the usual case.
        drop(fs::remove_file(&self.path));
    }
}
