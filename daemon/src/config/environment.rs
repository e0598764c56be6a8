//! The environment of the process, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use rye_core::capability::matches;
use rye_core::model::Death;
use rye_process::parent::{DEATH_VARIABLE, HIDDEN_VARIABLE, PARENT_VARIABLE};

use super::handover;

/// Variables of this process at its start.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// Home directory from the user database, for processes without HOME.
    account_home: Option<PathBuf>,
}

/// Shows names only: values are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Environment {
    /// Reads the environment of this process, with the variables that its parent process passed in sealed memory. Must be
    /// called once, before another file is opened.
    pub fn capture() -> Self {
        let mut variables: BTreeMap<_, _> = std::env::vars_os().collect();
        let passed = variables.remove(OsStr::new(HIDDEN_VARIABLE));
        let descriptor = passed.and_then(|text| text.to_str()?.parse().ok());
        // A variable that was merely inherited names something else.
        if let Some(Ok(hidden)) = descriptor.map(handover::unseal) {
            variables.extend(hidden);
        }
        let account_home = if variables.contains_key(OsStr::new("HOME")) {
            None
        } else {
            User::from_uid(geteuid())
                .ok()
                .flatten()
                .map(|user| user.dir)
        };
        Self {
            variables,
            account_home,
        }
    }

    /// Returns sealed memory with the variables that a daemon must not have in its first environment. A process started
    /// while it is open inherits it.
    pub fn seal_hidden(&self) -> io::Result<OwnedFd> {
        handover::seal(&self.variables)
    }

    /// Values of the variables that match one of the patterns `names`, in which `*` is any text.
    pub fn matching<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a str> {
        let found = self.variables.iter().filter(|(variable, _)| {
            let variable = variable.to_str();
            variable.is_some_and(|variable| names.iter().any(|name| matches(name, variable)))
        });
        found.filter_map(|(_, value)| value.to_str())
    }

    /// Makes an environment of exactly `variables`.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            variables: variables.into_iter().collect(),
            account_home: None,
        }
    }

    /// Value of `name`; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.exact(name).filter(|value| !value.is_empty())
    }

    /// Variables of the locale besides LANG that are not empty.
    pub(super) fn locale(&self) -> impl Iterator<Item = (&str, Option<&OsStr>)> {
        self.variables.iter().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| name.starts_with("LC_"))?;
            (!value.is_empty()).then_some((name, Some(value.as_os_str())))
        })
    }

    /// Value of `name`, which may be empty.
    pub(super) fn exact(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
    }

    /// Pid of the parent process, as it passed it to this daemon.
    pub fn claimed_parent(&self) -> Option<i32> {
        self.get(PARENT_VARIABLE)?.to_str()?.parse().ok()
    }

    /// End of the previous daemon, as reported by its parent process.
    pub fn last_death(&self) -> Death {
        let name = self.get(DEATH_VARIABLE).and_then(OsStr::to_str);
        name.map_or(Death::Unknown, Death::named)
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.directory("HOME").or_else(|| self.account_home.clone())
    }

    /// Directory of the user's settings.
    pub fn config_home(&self) -> Option<PathBuf> {
        self.base_directory("XDG_CONFIG_HOME", ".config")
    }

    pub(super) fn state_home(&self) -> Option<PathBuf> {
        self.base_directory("XDG_STATE_HOME", ".local/state")
    }

    pub(super) fn runtime_dir(&self) -> Option<PathBuf> {
        self.directory("XDG_RUNTIME_DIR")
    }

    fn base_directory(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.directory(name)
            .or_else(|| Some(self.home()?.join(below_home)))
    }

    /// Directory in which the service manager puts credentials for this process.
    pub fn credentials(&self) -> Option<PathBuf> {
        self.directory("CREDENTIALS_DIRECTORY")
    }

    /// Ignores relative values, as the XDG base directory specification requires.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        let path = Path::new(self.get(name)?);
        path.is_absolute().then(|| path.to_owned())
    }
}
