//! Environment of the client.
//!
//! **Owns** the only read of environment variables that are not options of the command line; those are declared with
//! their flags. All other code gets an [`Environment`].

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rye_core::clock::Timestamp;

use crate::error::Error;
use crate::token::Token;

/// Returns the current time, for verbs that run long enough to show a clock.
pub fn now() -> Timestamp {
    Timestamp::from_ms(jiff::Timestamp::now().as_millisecond())
}

/// Surroundings of one invocation, read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `USER_SPACE`: the directory whose `.ai` is the user space. The default is the home directory.
    pub user_space: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `PATH` for a daemon that this process starts: without the programs of a virtual environment of Python, which
    /// belongs to one project.
    pub daemon_path: Option<OsString>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// Working directory of the command; `None` if it was removed.
    pub current_dir: Option<PathBuf>,
    /// True if this process belongs to a run (`RYE_RUN_ID` or `RYE_ATTEMPT` is set).
    pub inside_run: bool,
    /// `RYE_TOKEN`, the token of the program that this process is.
    pub token: Option<Token>,
    /// True if `NO_COLOR` is set.
    pub no_color: bool,
    /// True if the terminal cannot rewrite a line (`TERM=dumb`).
    pub dumb_terminal: bool,
    /// Time at which the command began.
    pub now: Timestamp,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn read() -> Self {
        Self {
            current_dir: std::env::current_dir().ok(),
            now: now(),
            ..Self::from_variables(|name| std::env::var_os(name))
        }
    }

    /// Refuses a relative `USER_SPACE`, which would depend on the current directory.
    pub fn check(&self) -> Result<(), Error> {
        match &self.user_space {
            Some(path) if path.is_relative() => {
                Err(Error::RelativeUserSpace { path: path.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the working directory of the command, or an error if it was removed.
    pub fn here(&self) -> Result<&Path, Error> {
        self.current_dir.as_deref().ok_or(Error::DirectoryGone)
    }

    /// Makes `path` absolute. Only a relative path needs the working directory.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf, Error> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.here()?.join(path))
    }

    /// Returns the directory whose `.ai` is the user space.
    pub fn user_root(&self) -> Option<&Path> {
        self.user_space.as_deref().or(self.home.as_deref())
    }

    /// An empty variable counts as unset, and XDG ignores relative directories. A relative `USER_SPACE` is kept for
    /// [`Self::check`], because the user's keys depend on it.
    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let directory = |name: &str| set(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        Self {
            home: directory("HOME"),
            user_space: set("USER_SPACE").map(PathBuf::from),
            state_home: directory("XDG_STATE_HOME"),
            daemon_path: set("PATH").map(|path| without_venv(&path, directory("VIRTUAL_ENV"))),
            runtime_dir: directory("XDG_RUNTIME_DIR"),
            current_dir: None,
            inside_run: set("RYE_RUN_ID").is_some() || set("RYE_ATTEMPT").is_some(),
            token: set("RYE_TOKEN").and_then(|token| Token::new(token.to_str()?)),
            no_color: set("NO_COLOR").is_some(),
            dumb_terminal: set("TERM").is_some_and(|term| term == "dumb"),
            now: Timestamp::default(),
        }
    }
}

/// Returns `path` without the `bin` of the virtual environment `venv`.
fn without_venv(path: &OsStr, venv: Option<PathBuf>) -> OsString {
    let Some(programs) = venv.map(|venv| venv.join("bin")) else {
        return path.to_owned();
    };
    let kept = std::env::split_paths(path).filter(|directory| *directory != programs);
    // It fails only for a directory with a colon, which no `PATH` names.
    std::env::join_paths(kept).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_reference_lists_the_variables_that_are_read() {
        let asked = RefCell::new(Vec::new());
        let _environment = Environment::from_variables(|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        let said = rye_pages::Table::read("docs/reference.md", "client variables").names();
        for name in asked.into_inner() {
            assert!(said.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_daemon_gets_no_path_of_a_virtual_environment() {
        for (path, venv, expected) in [
            ("/p/.venv/bin:/usr/bin:/bin", "/p/.venv", "/usr/bin:/bin"),
            ("/usr/bin:/p/.venv/bin/", "/p/.venv", "/usr/bin"),
            ("/q/.venv/bin:/bin", "/p/.venv", "/q/.venv/bin:/bin"),
            ("/p/.venv/bin:/bin", "", "/p/.venv/bin:/bin"),
        ] {
            let environment = environment(&[("PATH", path), ("VIRTUAL_ENV", venv)]);
            assert_eq!(environment.daemon_path, Some(expected.into()), "{path}");
        }
        assert_eq!(environment(&[]).daemon_path, None);
    }

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::from_variables(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn empty_and_relative_directories_do_not_count() {
        let read = environment(&[
            ("HOME", "/h"),
            ("XDG_RUNTIME_DIR", ""),
            ("XDG_STATE_HOME", "state"),
        ]);
        assert_eq!(read.home, Some(PathBuf::from("/h")));
        assert_eq!((read.runtime_dir, read.state_home), (None, None));
    }

    #[test]
    fn a_relative_user_space_is_refused() {
        let error = environment(&[("USER_SPACE", "home")]).check().unwrap_err();
        assert!(error.to_string().contains("`home`"), "{error}");
        for space in ["/home/u", ""] {
            assert!(environment(&[("USER_SPACE", space)]).check().is_ok());
        }
    }

    #[test]
    fn removed_working_directory_allows_only_absolute_paths() {
        let gone = environment(&[]);
        let absolute = gone.absolute("/p".as_ref()).unwrap();
        assert_eq!(absolute, Path::new("/p"));
        let error = gone.absolute("p".as_ref()).unwrap_err();
        assert!(error.to_string().contains("is gone"), "{error}");
    }

    #[test]
    fn a_run_id_or_an_attempt_means_inside_a_run() {
        assert!(environment(&[("RYE_RUN_ID", "r")]).inside_run);
        assert!(environment(&[("RYE_ATTEMPT", "a")]).inside_run);
        assert!(!environment(&[("RYE_RUN_ID", "")]).inside_run);
    }
}
