//! Directories of projects that may be used although others can change them.
//!
//! `.env`, `.venv` and `node_modules` of a project take effect without a signature. So a project is refused if another
//! user owns it or everybody may write to it, unless the user trusts its directory.
//!
//! **Owns** `trusted-directories` in the user's `.ai`: one file for each directory, named by the hash of its path, with
//! the path as content.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User};
use rye_core::error::{ErrorKind, Kinded};
use rye_core::printable::shell_word;
use rye_core::seal::sha256_hex;

use crate::file;
use crate::spaces::FOLDER;

/// Entries of a directory that take effect without a signature.
const UNSIGNED: [&str; 4] = [FOLDER, ".env", ".venv", "node_modules"];
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Others can change the directory, and the user does not trust it.
    #[error(
        "`{path}` {problem}, so others decide what its `.env`, `.venv` and `node_modules` do to you; if you trust them, \
         `ryectl trust {}`", shell_word(&directory.to_string_lossy())
    )]
    Untrusted {
        directory: PathBuf,
        /// The directory, or its `.ai`.
        path: PathBuf,
        /// Power of others over the path, in words.
        problem: String,
    },
    /// The directory is not among the trusted ones.
    #[error("`{directory}` is no trusted directory")]
    Unknown { directory: PathBuf },
    #[error("failed to {operation} `{path}`")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Untrusted { .. } => ErrorKind::Denied,
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Io { source, .. } => file::kind(source),
        }
    }
}

/// Power of others over a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    /// Another user owns it.
    Owner(u32),
    Everybody,
    Group(u32),
}

impl Power {
    /// Returns the widest power of others than `user` over `found`. Root has power over everything anyway.
    fn of(found: &Metadata, user: Uid) -> Option<Self> {
        let owner = Uid::from_raw(found.uid());
        if owner != user && !owner.is_root() {
            Some(Self::Owner(found.uid()))
        } else if found.mode() & ALL_WRITE != 0 {
            Some(Self::Everybody)
        } else {
            (found.mode() & GROUP_WRITES != 0).then_some(Self::Group(found.gid()))
        }
    }
}

/// Refuses `directory`, the real path of a project or of a directory outside any project, if others than `user` decide
/// what takes effect in it. Returns a warning if a group does. `user_space` is the directory whose `.ai` is the user
/// space.
pub fn check(directory: &Path, user_space: &Path, user: Uid) -> Result<Option<String>, Error> {
    let paths = [directory.to_owned(), directory.join(FOLDER)];
    let powers = paths.iter().filter_map(|path| {
        let found = fs::metadata(path).ok()?;
        Some((path, Power::of(&found, user)?))
    });
    let powers: Vec<_> = powers.collect();
    let has_effect = || {
        UNSIGNED
            .iter()
            .any(|name| directory.join(name).symlink_metadata().is_ok())
    };
    if powers.is_empty() || !has_effect() || is_trusted(directory, user_space) {
        return Ok(None);
    }
    let mut warning = None;
    for (path, power) in powers {
        let problem = match power {
            Power::Owner(owner) => format!("belongs to the user {owner}, and not to you ({user})"),
            Power::Everybody => "may be written by everybody".to_owned(),
            Power::Group(group) => {
                if !is_private(Gid::from_raw(group), user) {
                    warning = Some(format!(
                        "`{}` may be written by the group {group}, which so decides what its `.env`, `.venv` and `node_modules` \
                         do to you; `chmod g-w` it, or trust it by `ryectl trust`",
                        path.display()
                    ));
                }
                continue;
            }
        };
        return Err(Error::Untrusted {
            directory: directory.to_owned(),
            path: path.clone(),
            problem,
        });
    }
    Ok(warning)
}

/// True if `group` is the group of that user alone, as distributions make one for each user.
fn is_private(group: Gid, user: Uid) -> bool {
    let (Ok(Some(group)), Ok(Some(user))) = (Group::from_gid(group), User::from_uid(user)) else {
        return false;
    };
    group.gid == user.gid
        && group.name == user.name
        && group.mem.iter().all(|member| *member == user.name)
}

/// File that makes `directory` a trusted one.
fn entry(directory: &Path, user_space: &Path) -> PathBuf {
    let name = sha256_hex(directory.as_os_str().as_encoded_bytes());
    folder(user_space).join(name)
}

fn folder(user_space: &Path) -> PathBuf {
    user_space.join(FOLDER).join("trusted-directories")
}

fn is_trusted(directory: &Path, user_space: &Path) -> bool {
    let content = fs::read(entry(directory, user_space));
    content.is_ok_and(|content| content == directory.as_os_str().as_encoded_bytes())
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io {
        operation,
        path,
        source,
    }
}

/// Trusts `directory`, a real path. Returns the path of its entry.
pub fn trust(directory: &Path, user_space: &Path) -> Result<PathBuf, Error> {
    let (folder, path) = (folder(user_space), entry(directory, user_space));
    fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
    let content = directory.as_os_str().as_encoded_bytes();
    file::replace(&path, content, 0o644).map_err(failed("write", &path))?;
    Ok(path)
}

/// Trusts `directory` no longer. Returns the path of its former entry.
pub fn untrust(directory: &Path, user_space: &Path) -> Result<PathBuf, Error> {
    let path = entry(directory, user_space);
    match fs::remove_file(&path) {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Unknown {
            directory: directory.to_owned(),
        }),
        Err(error) => Err(failed("remove", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::geteuid;

    use super::*;

    struct Fixture {
        root: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("project/.ai")).unwrap();
            let fixture = Self { root };
            fixture.chmod("", 0o755);
            fixture.chmod(".ai", 0o755);
            fixture
        }

        fn project(&self) -> PathBuf {
            self.root.path().join("project")
        }

        fn home(&self) -> PathBuf {
            self.root.path().join("home")
        }

        fn chmod(&self, path: &str, mode: u32) {
            let path = self.project().join(path);
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }

        fn check(&self, user: Uid) -> Result<Option<String>, String> {
            let checked = check(&self.project(), &self.home(), user);
            checked.map_err(|error| error.to_string())
        }
    }

    #[test]
    fn directory_that_everybody_may_write_is_refused_until_it_is_trusted() {
        let fixture = Fixture::new();
        let us = geteuid();
        assert_eq!(fixture.check(us), Ok(None));
        for path in ["", ".ai"] {
            fixture.chmod(path, 0o757);
            let refused = fixture.check(us).unwrap_err();
            assert!(refused.contains("written by everybody"), "{refused}");
            assert!(refused.contains("ryectl trust /"), "{refused}");
            fixture.chmod(path, 0o755);
        }
        fixture.chmod("", 0o757);
        let path = trust(&fixture.project(), &fixture.home()).unwrap();
        assert_eq!(fixture.check(us), Ok(None));
        assert_eq!(untrust(&fixture.project(), &fixture.home()).unwrap(), path);
        assert!(fixture.check(us).is_err());
        let again = untrust(&fixture.project(), &fixture.home()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn directory_without_unsigned_input_is_not_refused() {
        let fixture = Fixture::new();
        fixture.chmod("", 0o1777);
        fs::remove_dir(fixture.project().join(".ai")).unwrap();
        assert_eq!(fixture.check(geteuid()), Ok(None));
        fs::create_dir(fixture.project().join(".venv")).unwrap();
        assert!(fixture.check(geteuid()).is_err());
    }

    #[test]
    fn foreign_owner_is_refused_unless_it_is_root() {
        let fixture = Fixture::new();
        let us = geteuid();
        let stranger = Uid::from_raw(us.as_raw() + 4711);
        let checked = fixture.check(stranger);
        if us.is_root() {
            assert_eq!(checked, Ok(None));
            let user = Some(stranger);
            nix::unistd::chown(&fixture.project().join(".ai"), user, None).unwrap();
            let refused = fixture.check(us).unwrap_err();
            let owner = format!("belongs to the user {stranger}, and not to you (0)");
            assert!(refused.contains(&owner), "{refused}");
        } else {
            assert!(checked.unwrap_err().contains("belongs to the user"));
        }
    }

    #[test]
    fn shared_group_is_warned_of_and_private_one_is_not() {
        let fixture = Fixture::new();
        fixture.chmod("", 0o775);
        let found = fs::metadata(fixture.project()).unwrap();
        let (group, us) = (Gid::from_raw(found.gid()), geteuid());
        let warning = fixture.check(us).unwrap();
        assert_eq!(warning.is_none(), is_private(group, us), "{warning:?}");
        // No user has this group as a private one.
        assert!(!is_private(Gid::from_raw(u32::MAX - 7), us));
        let stranger = Uid::from_raw(us.as_raw() + 4711);
        assert!(!is_private(group, stranger));
    }
}
