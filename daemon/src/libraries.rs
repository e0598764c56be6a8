//! Which project a directory belongs to, and the items that can be seen from it.
//!
//! **Owns** one [`Library`] per project, shared by all its runs, so that a verified item is verified once, and one
//! [`Policy`] per configuration, so that its patterns are compiled once. **Never** writes to a project. **Failure.** A
//! directory that is gone, or not a directory, is an error that names it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rye_core::clock::Clock;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::policy::Policy;
use rye_core::seal::sha256_hex;
use rye_item::spaces::find_project;
use rye_item::{Library, Snapshot, Spaces, TrustStore, system};
use serde_json::Value;

use crate::config::Config;

/// Configurations whose policy is kept; more different ones in use at once are read again.
const MOST_POLICIES: usize = 64;
/// Projects whose verified items are kept although no run works there now.
const MOST_IDLE_LIBRARIES: usize = 64;

/// Why a directory cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not absolute.
    #[error("the project directory `{path}` is not absolute")]
    Relative {
        /// As given.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("failed to use the project directory `{path}`")]
    Unusable {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The configuration of its runs says what cannot be.
    #[error("the configuration of runs is invalid: {problem}")]
    Policy {
        /// What, where, and the mend.
        problem: String,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unusable { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Self::Unusable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorKind::Denied
            }
            Self::Relative { .. } | Self::Unusable { .. } | Self::Policy { .. } => {
                ErrorKind::Invalid
            }
        }
    }
}

/// A place where runs work.
#[derive(Debug, Clone)]
pub struct Place {
    /// The project's root, or the directory itself where there is no project.
    pub directory: PathBuf,
    /// The `.ai` that receives the files of runs; a stand-in below the state directory where there is no project.
    pub files: PathBuf,
    /// The items seen from here.
    pub library: Arc<Library>,
}

/// The libraries of all projects in use.
#[derive(Debug)]
pub struct Libraries {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    open: Mutex<HashMap<PathBuf, Arc<Library>>>,
    policies: Mutex<HashMap<String, Arc<Policy>>>,
}

impl Libraries {
    /// No library is open yet.
    pub fn new(config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            open: Mutex::default(),
            policies: Mutex::default(),
        }
    }

    /// The place that `directory` stands for.
    pub fn place(&self, directory: &Path) -> Result<Place, Error> {
        if !directory.is_absolute() {
            return Err(Error::Relative {
                path: directory.to_owned(),
            });
        }
        let unusable = |source| Error::Unusable {
            path: directory.to_owned(),
            source,
        };
        let real = directory.canonicalize().map_err(unusable)?;
        if real.to_str().is_none() {
            let why = "its path is not valid UTF-8";
            return Err(unusable(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        if !real.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let project = find_project(&real, &self.config.user_space);
        let files = match &project {
            Some(root) => root.join(".ai"),
            None => self.stand_in(&real)?,
        };
        let directory = project.clone().unwrap_or(real);
        let library = self.library(project.as_deref());
        Ok(Place {
            directory,
            files,
            library,
        })
    }

    /// The policy that a run was given as `text`; what is shipped if that is empty, as in records of old releases.
    pub fn policy(&self, text: &str) -> Result<Arc<Policy>, Error> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policy) = policies.get(text) {
            return Ok(Arc::clone(policy));
        }
        let shipped = text.is_empty().then(|| Snapshot::shipped().policy);
        let policy = serde_json::from_str::<Value>(shipped.as_deref().unwrap_or(text))
            .map_err(|error| error.to_string())
            .and_then(|config| Policy::from_config(&config))
            .map_err(|problem| Error::Policy { problem })?;
        if policies.len() >= MOST_POLICIES {
            policies.clear();
        }
        let policy = Arc::new(policy);
        policies.insert(text.to_owned(), Arc::clone(&policy));
        Ok(policy)
    }

    fn library(&self, project: Option<&Path>) -> Arc<Library> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // All directories without a project see the same items.
        let key = project.unwrap_or(Path::new("")).to_owned();
        if open.len() >= MOST_IDLE_LIBRARIES && !open.contains_key(&key) {
            open.retain(|_, library| Arc::strong_count(library) > 1);
        }
        let library = open.entry(key).or_insert_with(|| {
            let user = self.config.user_space.clone();
            let spaces = Spaces::new(
                project.map(Path::to_owned),
                user,
                system::root(&self.config.state_dir),
            );
            let trust = Arc::new(TrustStore::open(&spaces));
            Arc::new(Library::open(spaces, trust, Arc::clone(&self.clock)))
        });
        Arc::clone(library)
    }

    /// Stands in for the `.ai` of a directory that has none, below the state directory.
    fn stand_in(&self, directory: &Path) -> Result<PathBuf, Error> {
        let name = sha256_hex(directory.as_os_str().as_encoded_bytes());
        let path = self.config.state_dir.join("projects").join(&name[..32]);
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Unusable { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use rye_core::clock::Timestamp;

    use super::*;
    use crate::config::{Args, Environment, load};

    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn random(&self) -> u64 {
            0
        }
    }

    fn libraries() -> Libraries {
        let environment = Environment::of([("HOME".into(), "/nowhere".into())]);
        let config = load(&Args::default(), &environment).unwrap().config;
        Libraries::new(Arc::new(config), Arc::new(Still))
    }

    #[test]
    fn projects_where_nothing_runs_are_forgotten_when_there_are_many() {
        let libraries = libraries();
        let root = tempfile::tempdir().unwrap();
        let place = |project: usize| {
            let directory = root.path().join(project.to_string());
            std::fs::create_dir_all(directory.join(".ai")).unwrap();
            libraries.place(&directory).unwrap()
        };
        let in_use = place(0);
        for project in 1..3 * MOST_IDLE_LIBRARIES {
            drop(place(project));
        }
        let kept = libraries.open.lock().unwrap().len();
        assert!(kept <= MOST_IDLE_LIBRARIES, "{kept}");
        assert!(Arc::ptr_eq(&in_use.library, &place(0).library));
    }

    #[test]
    fn a_policy_is_read_once_and_no_text_is_what_is_shipped() {
        let libraries = libraries();
        let shipped = libraries.policy("").unwrap();
        let named: Vec<&str> = shipped
            .hooks()
            .iter()
            .map(|hook| hook.id.as_str())
            .collect();
        assert_eq!(named, ["default_retry_transient"]);
        assert!(Arc::ptr_eq(&shipped, &libraries.policy("").unwrap()));
        assert!(libraries.policy("{}").unwrap().hooks().is_empty());
        for bad in ["{", r#"{"hook_conditions": 1}"#] {
            let error = libraries.policy(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
