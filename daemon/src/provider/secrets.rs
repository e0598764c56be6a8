//! Lookup of the secrets of providers.
//!
//! **Owns** the sources of secrets, and the type that holds one. **Never** keeps a secret longer than a call needs it:
//! a file is read for each call, and the buffer is zeroed. **Never** shows one.
//!
//! **Order.** For a file of the user: the environment of the daemon, the credentials of its service manager, then a
//! file of the user's own. For a file of a project: only the `.env` of that project. A source without a value is
//! skipped. **Failure.** A secret that exists and cannot be used is an error that names the source and the fix; later
//! sources are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::provider::{Endpoint, Owner};
use zeroize::Zeroizing;

use crate::config::Environment;
use rye_host::safe_path::Dir;

/// Maximum size of a secret, in bytes.
const MOST_BYTES: usize = 8 << 10;
/// Error for a secret that a header cannot hold.
const FOREIGN: &str = "it holds a line break, or a character that is not visible ASCII; there must be one secret and nothing else";

/// A secret. It is zeroed when it is dropped, and never shown.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Checks that a header can hold this secret; `None` if it is empty. The error describes the problem.
    fn checked(self) -> Result<Option<Self>, &'static str> {
        if self.0.chars().any(|c| !c.is_ascii_graphic() && c != ' ') {
            return Err(FOREIGN);
        }
        Ok(Some(self).filter(|secret| !secret.0.is_empty()))
    }

    /// This secret with `prefix`, as a header value.
    pub(super) fn with_prefix(&self, prefix: &str) -> Self {
        let mut whole = Zeroizing::new(String::with_capacity(prefix.len() + self.0.len()));
        whole.push_str(prefix);
        whole.push_str(&self.0);
        Self(whole)
    }

    /// The value, which must not be shown.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reason why an existing secret is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret {name} is refused: {location}: {problem}")]
pub struct Refused {
    pub name: String,
    pub location: String,
    /// The problem and the fix.
    pub problem: String,
}

impl Kinded for Refused {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Precondition
    }
}

/// Variables of a project's `.env`, for its own provider files.
#[derive(Clone, Default)]
pub struct ProjectEnv {
    project: String,
    variables: BTreeMap<String, Secret>,
}

impl ProjectEnv {
    /// Variables of `project`, by name.
    pub fn new(project: &str, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables = variables.into_iter();
        Self {
            project: project.to_owned(),
            variables: variables
                .map(|(name, value)| (name, Secret(Zeroizing::new(value))))
                .collect(),
        }
    }

    pub(super) fn project(&self) -> &str {
        &self.project
    }
}

/// Shows names only: values are secrets.
impl fmt::Debug for ProjectEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectEnv")
            .field("project", &self.project)
            .field("variables", &self.variables.keys())
            .finish()
    }
}

/// Sources of the user's secrets.
#[derive(Debug)]
pub(super) struct Secrets {
    environment: Environment,
    credentials: Option<PathBuf>,
    own: Option<PathBuf>,
}

impl Secrets {
    /// Sources that `environment`, which is the daemon's, names.
    pub(super) fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            credentials: environment.credentials(),
            own: environment
                .config_home()
                .map(|home| home.join("rye/secrets")),
        }
    }

    /// Values available to a provider file of `owner`, for a thread of `project`.
    pub(super) fn of<'a>(&'a self, owner: Owner, project: &'a ProjectEnv) -> Given<'a> {
        match owner {
            Owner::User => Given::User(self),
            Owner::Project => Given::Project(project),
        }
    }

    /// The secrets in all files, whoever else may read them. Blocks.
    pub(super) fn in_all_files(&self) -> Vec<Secret> {
        let directories = [&self.credentials, &self.own].into_iter().flatten();
        let files = directories.flat_map(|directory| {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(move |entry| {
                let name = entry.file_name();
                in_file(directory, name.to_str()?, false).ok().flatten()
            })
        });
        files.collect()
    }

    fn in_files(&self, name: &str) -> Result<Option<Secret>, Refused> {
        // The service manager protects its credentials by its own means.
        let places = [(&self.credentials, false), (&self.own, true)];
        for (directory, must_be_ours) in places {
            let Some(directory) = directory else {
                continue;
            };
            let refused = |problem| Refused {
                name: name.to_owned(),
                location: directory.join(name).display().to_string(),
                problem,
            };
            let found = in_file(directory, name, must_be_ours).map_err(refused)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Values available to a provider file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Given<'a> {
    /// For a file of the user: those of the daemon.
    User(&'a Secrets),
    /// For a file of a project: those of the project.
    Project(&'a ProjectEnv),
}

impl Given<'_> {
    /// Value of the variable `name`, if it is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<Secret> {
        let value = match self {
            Self::User(secrets) => {
                let value = secrets.environment.get(name)?;
                Secret(Zeroizing::new(value.to_string_lossy().into_owned()))
            }
            Self::Project(project) => project.variables.get(name)?.clone(),
        };
        Some(value).filter(|value| !value.0.is_empty())
    }

    /// The secret `name`. Blocks, because it reads files.
    pub(super) fn secret(&self, name: &str) -> Result<Option<Secret>, Refused> {
        let place = match self {
            Self::User(_) => "the environment of the daemon",
            Self::Project(_) => "the `.env` of the project",
        };
        if let Some(value) = self.variable(name) {
            return value.checked().map_err(|problem| Refused {
                name: name.to_owned(),
                location: place.to_owned(),
                problem: problem.to_owned(),
            });
        }
        match self {
            Self::User(secrets) => secrets.in_files(name),
            Self::Project(_) => Ok(None),
        }
    }
}

/// Secret in the file `name`. The error describes the problem and the fix.
fn in_file(directory: &Path, name: &str, must_be_ours: bool) -> Result<Option<Secret>, String> {
    let directory = match Dir::root(directory) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("its directory cannot be opened: {error}")),
    };
    let file = directory.look(name).map_err(|error| {
        if error.raw_os_error() == Some(libc::ELOOP) {
            "it is a symbolic link; put the secret itself into a file of that name".to_owned()
        } else {
            error.to_string()
        }
    })?;
    let Some(file) = file else {
        return Ok(None);
    };
    if must_be_ours {
        check_ours(&file)?;
    }
    let mut text = content(file)?;
    for end in ["\n", "\r"] {
        if text.ends_with(end) {
            text.pop();
        }
    }
    Ok(Secret(text).checked()?)
}

/// Checks that the daemon's user owns the file, and that no other user can read or change it.
fn check_ours(file: &File) -> Result<(), String> {
    let about = file.metadata().map_err(|error| error.to_string())?;
    if about.uid() != geteuid().as_raw() {
        return Err(format!(
            "it belongs to the user {}; only a file of the daemon's own user is read",
            about.uid()
        ));
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o7177 != 0 {
        return Err(format!(
            "its mode is {mode:04o}, so that more is allowed than to read and write it as its owner; `chmod 600` it"
        ));
    }
    Ok(())
}

fn content(file: File) -> Result<Zeroizing<String>, String> {
    // Allocated once, with room to detect the end: growth would leave a copy of the secret in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(MOST_BYTES + 1024));
    let bound = u64::try_from(MOST_BYTES).map_or(u64::MAX, |most| most + 1);
    let read = file.take(bound).read_to_string(&mut text);
    read.map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            FOREIGN.to_owned()
        } else {
            error.to_string()
        }
    })?;
    if text.len() > MOST_BYTES {
        return Err(format!("it is larger than {} KiB", MOST_BYTES >> 10));
    }
    Ok(text)
}

/// Names of all secrets of `endpoints`: variables that are withheld from templates and child processes.
pub fn names<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> BTreeSet<String> {
    let all = endpoints.into_iter().flat_map(Endpoint::secrets);
    all.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A home directory with directories for secrets and for credentials.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            let home = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(home.own("")).unwrap();
            fs::create_dir_all(home.credential("")).unwrap();
            home
        }

        fn own(&self, name: &str) -> PathBuf {
            self.0.path().join("config/rye/secrets").join(name)
        }

        fn credential(&self, name: &str) -> PathBuf {
            self.0.path().join("credentials").join(name)
        }

        /// Sources with these additional variables.
        fn secrets(&self, variables: &[(&str, &[u8])]) -> Secrets {
            let path = |path: &str| self.0.path().join(path).into_os_string();
            let mut all: Vec<(OsString, OsString)> = vec![
                ("XDG_CONFIG_HOME".into(), path("config")),
                ("CREDENTIALS_DIRECTORY".into(), path("credentials")),
            ];
            for (name, value) in variables {
                all.push(((*name).into(), OsString::from_vec(value.to_vec())));
            }
            Secrets::new(&Environment::of(all))
        }
    }

    fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Value of `K`, or the reason why it is refused.
    fn found(secrets: &Secrets) -> Result<Option<String>, String> {
        let found = Given::User(secrets).secret("K");
        found
            .map(|found| found.map(|secret| secret.reveal().to_owned()))
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn secret_comes_from_first_non_empty_source() {
        let home = Home::new();
        assert_eq!(found(&home.secrets(&[])), Ok(None));
        write(&home.own("K"), "own\n", 0o600);
        assert_eq!(found(&home.secrets(&[])), Ok(Some("own".to_owned())));
        write(&home.credential("K"), "credential\r\n", 0o440);
        let credential = Ok(Some("credential".to_owned()));
        assert_eq!(found(&home.secrets(&[])), credential);
        assert_eq!(found(&home.secrets(&[("K", b"")])), credential);
        let variable = found(&home.secrets(&[("K", b"var iable")]));
        assert_eq!(variable, Ok(Some("var iable".to_owned())));
        write(&home.credential("K"), "\n", 0o400);
        assert_eq!(found(&home.secrets(&[])), Ok(Some("own".to_owned())));
    }

    #[test]
    fn changed_file_is_reread() {
        let home = Home::new();
        let secrets = home.secrets(&[]);
        assert_eq!(found(&secrets), Ok(None));
        for value in ["one", "two"] {
            write(&home.own("K"), value, 0o600);
            assert_eq!(found(&secrets), Ok(Some(value.to_owned())));
        }
        fs::remove_file(home.own("K")).unwrap();
        assert_eq!(found(&secrets), Ok(None));
    }

    #[test]
    fn file_readable_by_others_is_refused() {
        let home = Home::new();
        let secrets = home.secrets(&[]);
        for (mode, is_taken) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o602, false),
            (0o700, false),
            (0o4600, false),
        ] {
            write(&home.own("K"), "k3y", mode);
            match found(&secrets) {
                Ok(key) => assert_eq!((key, is_taken), (Some("k3y".to_owned()), true)),
                Err(error) => {
                    assert!(!is_taken, "{mode:o}: {error}");
                    let path = home.own("K").display().to_string();
                    let told = [path.as_str(), "chmod 600", &format!("{mode:04o}")];
                    assert!(told.iter().all(|told| error.contains(told)), "{error}");
                }
            }
        }
    }

    #[test]
    fn foreign_or_irregular_file_is_refused() {
        let home = Home::new();
        let secrets = home.secrets(&[]);
        let refused = || found(&secrets).unwrap_err();
        write(&home.own("target"), "k3y", 0o600);
        symlink("target", home.own("K")).unwrap();
        assert!(refused().contains("symbolic link"), "{}", refused());
        fs::remove_file(home.own("K")).unwrap();
        fs::create_dir(home.own("K")).unwrap();
        assert!(refused().contains("not a plain file"), "{}", refused());
        fs::remove_dir(home.own("K")).unwrap();
        fs::rename(home.own(""), home.0.path().join("elsewhere")).unwrap();
        symlink(
            home.0.path().join("elsewhere"),
            home.own("").with_file_name("secrets"),
        )
        .unwrap();
        assert!(refused().contains("its directory"), "{}", refused());
    }

    #[test]
    fn invalid_secret_is_refused_without_its_value() {
        let home = Home::new();
        let secrets = home.secrets(&[]);
        let large = vec![b'x'; MOST_BYTES + 1];
        for (content, told) in [
            (&b"k3y\nk4y\n"[..], "one secret"),
            (b"k3y\n\n", "one secret"),
            (b"k3y\0", "one secret"),
            (b"k3y\xff", "one secret"),
            ("k3y–".as_bytes(), "one secret"),
            (&large, "larger than 8 KiB"),
        ] {
            write(&home.own("K"), content, 0o600);
            let error = found(&secrets).unwrap_err();
            assert!(error.contains(told), "{error}");
            assert!(!error.contains("k3y"), "{error}");
        }
        write(&home.own("K"), &large[1..], 0o600);
        assert_eq!(found(&secrets).unwrap().unwrap().len(), MOST_BYTES);
        let error = found(&home.secrets(&[("K", b"k3y\xff")])).unwrap_err();
        assert!(error.contains("environment of the daemon"), "{error}");
        assert!(!error.contains("k3y"), "{error}");
    }

    #[test]
    fn project_gets_own_variables_only() {
        let home = Home::new();
        write(&home.own("K"), "own", 0o600);
        let secrets = home.secrets(&[("V", b"daemon"), ("E", b"daemon")]);
        let variables = [("P", "project"), ("E", ""), ("B", "a\tb")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let project = ProjectEnv::new("/p", variables);
        for (name, expected) in [
            ("P", Some("project")),
            ("K", None),
            ("V", None),
            ("E", None),
        ] {
            let found = secrets.of(Owner::Project, &project).secret(name).unwrap();
            let found = found.as_ref().map(Secret::reveal);
            assert_eq!(found, expected, "{name}");
        }
        let nothing = secrets.of(Owner::User, &project).secret("P").unwrap();
        assert!(nothing.is_none(), "the user is given nothing of a project");
        let error = secrets
            .of(Owner::Project, &project)
            .secret("B")
            .unwrap_err();
        assert!(error.to_string().contains("`.env`"), "{error}");
    }

    #[test]
    fn debug_output_hides_secret() {
        let secret = Secret(Zeroizing::new("k3y".to_owned()));
        let project = ProjectEnv::new("/p", [("K".to_owned(), "k3y".to_owned())]);
        let shown = format!("{secret:?} {project:?}");
        assert!(!shown.contains("k3y") && shown.contains('K'), "{shown}");
        assert_eq!(secret.with_prefix("Bearer ").reveal(), "Bearer k3y");
    }
}
