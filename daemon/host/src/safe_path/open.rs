//! Resolution of paths below a directory that another process may rearrange.
//!
//! **Never** leaves the directory. Symbolic links are followed while they stay below it and refused if they lead out,
//! even during concurrent renames. On kernels that cannot guarantee this, every link is refused.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

/// Opens `path` below `folder`; fails with `EXDEV` or `ELOOP` if a link leads out.
pub fn open(folder: &impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    resolve(folder, path, flags, ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// Opens `path` below `folder`; no part of it may be a symbolic link.
pub fn open_without_links(folder: &impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_NOFOLLOW;
    let links = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    resolve(folder, path, flags, links)
}

fn resolve(
    folder: &impl AsFd,
    path: &Path,
    flags: OFlag,
    links: ResolveFlag,
) -> nix::Result<OwnedFd> {
    const ATTEMPTS: usize = 16;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | links);
    for _ in 0..ATTEMPTS {
        match openat2(folder, path, how) {
            // A concurrent rename prevented the kernel from verifying the path.
            Err(Errno::EAGAIN) => {}
            // An old kernel, or a container that does not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => return walk_below(folder, path, flags),
            result => return result,
        }
    }
    Err(Errno::EAGAIN)
}

/// [`open`] without the kernel's help: refuses every symbolic link and every `..`.
fn walk_below(folder: &impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let strict = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let folder_flags = strict | OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::EXDEV);
            }
        }
    }
    let name = parts.pop().unwrap_or(OsStr::new("."));
    let mut folder = folder
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    for part in parts {
        folder = openat(&folder, part, folder_flags, Mode::empty())?;
    }
    openat(&folder, name, strict | flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn fallback_refuses_every_link() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        fs::write(root.path().join("real/x"), "1").unwrap();
        symlink("real", root.path().join("linked")).unwrap();
        symlink("real/x", root.path().join("file")).unwrap();
        let folder = File::open(root.path()).unwrap();
        let open = |path: &str| walk_below(&folder, Path::new(path), OFlag::O_RDONLY);
        assert!(open("real/x").is_ok());
        assert!(open("linked/x").is_err());
        assert_eq!(open("file").unwrap_err(), Errno::ELOOP);
        assert_eq!(open("real/y").unwrap_err(), Errno::ENOENT);
        assert!(open("./real/x").is_ok() && open(".").is_ok());
        for above in ["..", "real/../../x", "/etc/passwd"] {
            assert_eq!(open(above).unwrap_err(), Errno::EXDEV, "{above}");
        }
    }

    #[test]
    fn open_without_links_refuses_link_in_any_component() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        fs::write(root.path().join("real/x"), "1").unwrap();
        symlink("real", root.path().join("linked")).unwrap();
        symlink("x", root.path().join("real/file")).unwrap();
        let folder = File::open(root.path()).unwrap();
        let open = |path: &str| open_without_links(&folder, Path::new(path), OFlag::O_RDONLY);
        assert!(open("real/x").is_ok());
        for link in ["linked/x", "real/file"] {
            assert_eq!(open(link).unwrap_err(), Errno::ELOOP, "{link}");
        }
        assert_eq!(open("../x").unwrap_err(), Errno::EXDEV);
    }
}
