//! Atomic writes of single files: a reader sees the old or the new content, never a part, even after a crash.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use rye_core::error::ErrorKind;

use crate::unfinished;

/// Classifies a failure of the file system: the path can never work, a resource is exhausted, or a retry may help.
pub(crate) fn kind(error: &io::Error) -> ErrorKind {
    const NEVER: [Errno; 5] = [
        Errno::ENAMETOOLONG,
        Errno::ENOTDIR,
        Errno::EISDIR,
        Errno::ELOOP,
        // A socket, or a pipe without a writer.
        Errno::ENXIO,
    ];
    const NOTHING_LEFT: [Errno; 5] = [
        Errno::ENOSPC,
        Errno::EDQUOT,
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
    ];
    let errno = error.raw_os_error().map(Errno::from_raw);
    let is_one_of = |errors: &[Errno]| errno.is_some_and(|errno| errors.contains(&errno));
    if error.kind() == io::ErrorKind::NotFound {
        ErrorKind::NotFound
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        ErrorKind::Denied
    } else if is_one_of(&NEVER) {
        ErrorKind::Invalid
    } else if is_one_of(&NOTHING_LEFT) {
        ErrorKind::Exhausted
    } else {
        ErrorKind::Unavailable
    }
}

/// Replaces `path` with a file of `content` and the permission bits `mode`.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = Draft::write(path, content, mode)?;
    fs::rename(&draft.path, path)?;
    draft.sync_folder()
}

/// Creates `path` with `content` and the permission bits `mode`. Fails with `AlreadyExists` if the path exists.
pub(crate) fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = Draft::write(path, content, mode)?;
    fs::hard_link(&draft.path, path)?;
    fs::remove_file(&draft.path)?;
    draft.sync_folder()
}

/// New content under a temporary name. Dropping it removes the file unless it was renamed.
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
            path: folder.join(unfinished::name(&format!("{unique:016x}"))),
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
        if let Ok(now) = file.metadata().and_then(|about| about.modified()) {
            unfinished::sweep(&draft.folder, now);
        }
        Ok(draft)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing to remove; this is the usual case.
        drop(fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn invalid_path_is_permanent_failure() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "").unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();
        let cases = [
            (path(&"x".repeat(256)), ErrorKind::Invalid),
            (path("file/below"), ErrorKind::Invalid),
            (path("loop"), ErrorKind::Invalid),
            (path("socket"), ErrorKind::Invalid),
            (path("absent"), ErrorKind::NotFound),
        ];
        for (path, expected) in cases {
            let error = File::open(&path).unwrap_err();
            assert_eq!(kind(&error), expected, "{}: {error}", path.display());
        }
    }

    #[test]
    fn exhaustion_differs_from_transient_failure() {
        let of = |errno: Errno| kind(&io::Error::from(errno));
        assert_eq!(of(Errno::EMFILE), ErrorKind::Exhausted);
        assert_eq!(of(Errno::ENOSPC), ErrorKind::Exhausted);
        assert_eq!(of(Errno::EIO), ErrorKind::Unavailable);
        assert_eq!(of(Errno::EACCES), ErrorKind::Denied);
    }
}
