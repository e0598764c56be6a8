//! Atomic writes of items and keys, and the meaning of failures of the file system.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use rye_core::error::ErrorKind;
use rye_host::safe_path::{self, Dir, Draft};

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
    draft(path, content, mode)?.commit(name(path)?)
}

/// Creates `path` with `content` and the permission bits `mode`. Fails with `AlreadyExists` if the path exists.
pub(crate) fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    draft(path, content, mode)?.commit_new(name(path)?)
}

fn name(path: &Path) -> io::Result<&str> {
    let name = path.file_name().and_then(OsStr::to_str);
    name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no name in UTF-8"))
}

fn draft(path: &Path, content: &[u8], mode: u32) -> io::Result<Draft<Dir>> {
    let folder = Dir::follow(path.parent().unwrap_or(Path::new("")))?;
    let unique = getrandom::u64().map_err(io::Error::other)?;
    let temporary = safe_path::temporary_name(&format!("{unique:016x}"));
    let mut draft = Draft::with_mode(folder, temporary, mode & 0o600)?;
    draft.file.write_all(content)?;
    draft.file.set_permissions(Permissions::from_mode(mode))?;
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
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
