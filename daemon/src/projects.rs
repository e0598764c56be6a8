//! Maps a directory to its project and to the items visible from it.
//!
//! **Owns** one [`Library`], one [`FilePool`] and one [`LogPool`] per project, shared by all its runs: an item is
//! verified once, and no project gets more than its share of threads. Also owns one [`Policy`] per configuration, so that its patterns are
//! compiled once. **Never** lends a library to work outside the file pool ([`Project::visit`],
//! [`Projects::visit`]), reads a file under a lock that another project needs, or writes to a project.
//!
//! **Order.** A directory has a file pool of its own until its project is known; runs use the pool of their project.
//! **Failure.** A path that does not exist or is not a directory is an error that names it. So is a directory that
//! replaced the original one: each visit for a run compares them. So is one that others can change
//! ([`directories`]).

#[cfg(test)]
pub(crate) mod hang_simulator;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::unistd::geteuid;
use rye_core::clock::Clock;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::model::{DirectoryIdentity, Failure, Spec};
use rye_core::policy::Policy;
use rye_core::seal::sha256_hex;
use rye_item::spaces::find_project;
use rye_item::{Library, Snapshot, Spaces, TrustStore, directories, system};
use serde_json::Value;

use crate::async_log::LogPool;
use crate::config::Config;
use crate::exhausted::Exhausted;
use crate::index::Search;
use rye_host::cache::{self, Cache};
use rye_host::file_pool::FilePool;
use rye_host::safe_path;
use rye_host::task;

/// Capacity of the policy cache; beyond it policies are parsed again.
const MOST_POLICIES: usize = 64;
/// Number of entries from which on libraries without runs, and unused file pools, are dropped.
const MOST_IDLE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the project directory `{path}` is not absolute")]
    Relative {
        /// Path as given.
        path: PathBuf,
    },
    #[error("failed to use the project directory `{path}`")]
    Unusable {
        /// Path as given.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The directory is not the one in which the run began.
    #[error(
        "the project directory `{path}` is not the one that the run began in: {problem}; put that back, or cancel the run and resume \
         it, which continues in what is there now"
    )]
    Replaced { path: PathBuf, problem: String },
    /// Others can change the directory.
    #[error(transparent)]
    Directory(#[from] directories::Error),
    #[error("the configuration of runs is invalid: {problem}")]
    Policy {
        /// The problem, its position, and the fix.
        problem: String,
    },
}

impl Error {
    /// True if the directory is missing, or is not the user's alone, which may be temporary.
    pub fn is_gone(&self) -> bool {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match self {
            Self::Unusable { source, .. } => gone.contains(&source.kind()),
            Self::Replaced { .. } | Self::Directory(_) => true,
            Self::Relative { .. } | Self::Policy { .. } => false,
        }
    }

    /// Failure of an action that has not begun, if the directory is missing.
    pub fn gone(&self) -> Option<Failure> {
        self.is_gone().then(|| Exhausted::Project.failure(self))
    }
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
            Self::Replaced { .. } => ErrorKind::Precondition,
            Self::Directory(error) => error.kind(),
            Self::Relative { .. } | Self::Unusable { .. } | Self::Policy { .. } => {
                ErrorKind::Invalid
            }
        }
    }
}

/// A project, or a directory outside any project.
#[derive(Debug)]
pub struct Project {
    /// Root of the project, or the directory itself outside any project.
    pub directory: PathBuf,
    /// The `.ai` that receives the files of runs; outside any project, a stand-in below the state directory.
    pub files: PathBuf,
    pub identity: DirectoryIdentity,
    /// Warning about a group that can change the directory.
    warning: Option<String>,
    items: Arc<Items>,
    file_pool: FilePool,
    log_pool: LogPool,
    #[cfg(test)]
    hang_simulator: Arc<hang_simulator::HangSimulator>,
}

impl Project {
    /// Runs `work` with the visible items in the file pool, if the directory is still the same.
    pub async fn visit<T: Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce(&Library) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let this = Arc::clone(self);
        let work = move || {
            let library = this.library();
            this.look_again()?;
            Ok(work(library))
        };
        self.file_pool.run(name, work).await
    }

    /// Fails if the directory was replaced or removed.
    pub fn look_again(&self) -> Result<(), Error> {
        let path = &self.directory;
        let found = std::fs::symlink_metadata(path);
        let found = found.map_err(|source| Error::Unusable {
            path: path.clone(),
            source,
        })?;
        if self.identity.is_other(&safe_path::identity(&found)) {
            return Err(replaced(path, None));
        }
        Ok(())
    }

    /// File pool of this project.
    pub const fn file_pool(&self) -> &FilePool {
        &self.file_pool
    }

    /// Threads for the logs of its runs.
    pub const fn log_pool(&self) -> &LogPool {
        &self.log_pool
    }

    fn library(&self) -> &Library {
        #[cfg(test)]
        self.hang_simulator.touch(&self.directory);
        &self.items.library
    }
}

/// Items visible from a project, and their search index.
#[derive(Debug)]
struct Items {
    library: Library,
    search: Search,
}

/// View of a project for work in its file pool.
#[derive(Debug, Clone, Copy)]
pub struct ProjectView<'a> {
    pub project: &'a Arc<Project>,
    /// Items visible from the project.
    pub library: &'a Library,
    /// Search index of these items.
    pub search: &'a Search,
}

/// Designates a project.
#[derive(Debug, Clone)]
pub enum ProjectRef {
    /// Project that contains the directory.
    Of(PathBuf),
    /// Project in which a run began.
    OfRun {
        directory: PathBuf,
        /// Identity of the directory when the run began.
        identity: Option<DirectoryIdentity>,
    },
}

impl From<&Path> for ProjectRef {
    fn from(directory: &Path) -> Self {
        Self::Of(directory.to_owned())
    }
}

impl From<&PathBuf> for ProjectRef {
    fn from(directory: &PathBuf) -> Self {
        Self::Of(directory.clone())
    }
}

impl From<&Spec> for ProjectRef {
    fn from(spec: &Spec) -> Self {
        Self::OfRun {
            directory: PathBuf::from(&spec.project),
            identity: spec.directory.clone(),
        }
    }
}

impl ProjectRef {
    fn directory(&self) -> &Path {
        match self {
            Self::Of(directory) | Self::OfRun { directory, .. } => directory,
        }
    }

    /// Fails if `found` is not the designated project.
    fn check(&self, found: &Project) -> Result<(), Error> {
        let Self::OfRun {
            directory,
            identity,
        } = self
        else {
            return Ok(());
        };
        if found.directory != *directory {
            return Err(replaced(directory, Some(&found.directory)));
        }
        let known = identity.as_ref();
        if known.is_some_and(|known| known.is_other(&found.identity)) {
            return Err(replaced(directory, None));
        }
        Ok(())
    }
}

/// Error that the project in `path` is not the one in which a run began. `other` is the directory that the path now
/// resolves to, if it differs.
fn replaced(path: &Path, other: Option<&Path>) -> Error {
    Error::Replaced {
        path: path.to_owned(),
        problem: other.map_or_else(
            || "another directory is there".to_owned(),
            |other| format!("its path leads to `{}`", other.display()),
        ),
    }
}

/// Items that the first user opens.
type Opened = Arc<OnceLock<Arc<Items>>>;

/// Threads of a directory: for items, and for logs of runs.
#[derive(Debug, Clone, Default)]
struct Pools {
    files: FilePool,
    logs: LogPool,
}

/// All projects in use.
#[derive(Debug)]
pub struct Projects {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    libraries: Mutex<HashMap<PathBuf, Opened>>,
    pools: Mutex<HashMap<PathBuf, Pools>>,
    policies: Arc<Cache<String, Policy>>,
    /// Directories that a warning was about.
    warned: Mutex<HashSet<PathBuf>>,
    #[cfg(test)]
    pub(crate) hang_simulator: Arc<hang_simulator::HangSimulator>,
}

impl Projects {
    pub fn new(config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            libraries: Mutex::default(),
            pools: Mutex::default(),
            policies: Arc::new(cache::of_count(MOST_POLICIES)),
            warned: Mutex::default(),
            #[cfg(test)]
            hang_simulator: Arc::default(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Opens the designated project.
    pub async fn open(
        self: &Arc<Self>,
        site: impl Into<ProjectRef>,
    ) -> Result<Arc<Project>, Error> {
        let work = |inside: &ProjectView<'_>| Ok(Arc::clone(inside.project));
        self.visit(site, "open a project", work).await
    }

    /// Runs `work` for the designated project in its file pool. If `work` fails and the directory is gone meanwhile, this
    /// is the error.
    pub async fn visit<T, E>(
        self: &Arc<Self>,
        site: impl Into<ProjectRef>,
        name: &'static str,
        work: impl FnOnce(&ProjectView<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (this, site) = (Arc::clone(self), site.into());
        let gate = self.file_pool_of(site.directory());
        let work = move || {
            let project = Arc::new(this.find(site.directory())?);
            site.check(&project)?;
            let done = work(&ProjectView {
                project: &project,
                library: project.library(),
                search: &project.items.search,
            });
            if done.is_err() {
                project.look_again()?;
            }
            done
        };
        gate.run(name, work).await
    }

    /// File pool of `directory`, by its spelling; reads no file.
    pub fn file_pool_of(&self, directory: &Path) -> FilePool {
        self.pools_of(directory).files
    }

    /// Threads for the logs of runs in `directory`, by its spelling; reads no file.
    pub fn log_pool_of(&self, directory: &Path) -> LogPool {
        self.pools_of(directory).logs
    }

    fn pools_of(&self, directory: &Path) -> Pools {
        let mut pools = lock(&self.pools);
        if pools.len() >= MOST_IDLE && !pools.contains_key(directory) {
            pools.retain(|_, pools| !pools.files.is_unused() || !pools.logs.is_unused());
        }
        pools.entry(directory.to_owned()).or_default().clone()
    }

    fn find(&self, directory: &Path) -> Result<Project, Error> {
        if !directory.is_absolute() {
            return Err(Error::Relative {
                path: directory.to_owned(),
            });
        }
        let unusable = |source| Error::Unusable {
            path: directory.to_owned(),
            source,
        };
        #[cfg(test)]
        self.hang_simulator.touch(directory);
        let real = directory.canonicalize().map_err(unusable)?;
        if real.to_str().is_none() {
            let why = "its path is not valid UTF-8";
            return Err(unusable(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        if !real.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let root = find_project(&real, &self.config.user_space);
        let files = match &root {
            Some(root) => root.join(".ai"),
            None => self.substitute_files(&real)?,
        };
        let directory = root.clone().unwrap_or(real);
        let warning = directories::check(&directory, &self.config.user_space, geteuid())?;
        let items = self.items(root.as_deref());
        let found = std::fs::symlink_metadata(&directory).map_err(unusable)?;
        let pools = self.pools_of(&directory);
        Ok(Project {
            file_pool: pools.files,
            log_pool: pools.logs,
            identity: safe_path::identity(&found),
            directory,
            files,
            warning,
            items,
            #[cfg(test)]
            hang_simulator: Arc::clone(&self.hang_simulator),
        })
    }

    /// Returns the warning about the directory of `project`, once in a life of the daemon.
    pub fn first_warning(&self, project: &Project) -> Option<String> {
        let warning = project.warning.clone()?;
        let is_first = lock(&self.warned).insert(project.directory.clone());
        is_first.then_some(warning)
    }

    /// Parses the policy `text` of a run. An empty text, as in records of old releases, is the shipped policy. Blocks.
    pub fn read_policy(&self, text: &str) -> Result<Arc<Policy>, Error> {
        policy(&self.policies, text)
    }

    /// Same as [`Projects::read_policy`], for async tasks.
    pub async fn policy(&self, text: &str) -> Result<Arc<Policy>, Error> {
        if let Some(policy) = self.policies.get(text) {
            return Ok(policy);
        }
        let (policies, text) = (Arc::clone(&self.policies), text.to_owned());
        task::blocking("read a policy", move || policy(&policies, &text)).await
    }

    fn items(&self, project: Option<&Path>) -> Arc<Items> {
        let opened = {
            let mut libraries = lock(&self.libraries);
            let now = self.clock.up();
            for items in libraries.values().filter_map(|opened| opened.get()) {
                items.search.drop_if_idle(now);
            }
            // All directories without a project see the same items.
            let key = project.unwrap_or(Path::new("")).to_owned();
            if libraries.len() >= MOST_IDLE && !libraries.contains_key(&key) {
                libraries.retain(|_, opened| is_in_use(opened));
            }
            Arc::clone(libraries.entry(key).or_default())
        };
        // Not under the lock: this reads the trusted keys.
        let items = opened.get_or_init(|| {
            let user = self.config.user_space.clone();
            let spaces = Spaces::new(
                project.map(Path::to_owned),
                user,
                system::root(&self.config.state_dir),
            );
            let trust = Arc::new(TrustStore::open(&spaces));
            Arc::new(Items {
                library: Library::open(spaces, trust, Arc::clone(&self.clock)),
                search: Search::default(),
            })
        });
        Arc::clone(items)
    }

    /// Creates the stand-in for the missing `.ai` of a directory, below the state directory.
    fn substitute_files(&self, directory: &Path) -> Result<PathBuf, Error> {
        let name = sha256_hex(directory.as_os_str().as_encoded_bytes());
        let path = self.config.state_dir.join("projects").join(&name[..32]);
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Unusable { path, source }),
        }
    }
}

/// True if a library is in use, or about to be opened.
fn is_in_use(opened: &Opened) -> bool {
    Arc::strong_count(opened) > 1
        || opened
            .get()
            .is_some_and(|items| Arc::strong_count(items) > 1)
}

fn policy(policies: &Cache<String, Policy>, text: &str) -> Result<Arc<Policy>, Error> {
    policies.get_or_insert_with(text, || {
        let shipped = text.is_empty().then(|| Snapshot::shipped().policy);
        serde_json::from_str::<Value>(shipped.as_deref().unwrap_or(text))
            .map_err(|error| error.to_string())
            .and_then(|config| Policy::from_config(&config))
            .map(Arc::new)
            .map_err(|problem| Error::Policy { problem })
    })
}

fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves the map consistent: every use is one insert, remove or read.
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Args, Environment, load};
    use rye_host::clock::manual::ManualClock;

    fn projects() -> Arc<Projects> {
        let environment = Environment::of([("HOME".into(), "/nowhere".into())]);
        let config = load(&Args::default(), &environment).unwrap().config;
        Arc::new(Projects::new(
            Arc::new(config),
            Arc::new(ManualClock::default()),
        ))
    }

    #[tokio::test]
    async fn idle_projects_are_evicted_above_limit() {
        let projects = projects();
        let root = tempfile::tempdir().unwrap();
        let open = async |project: usize| {
            let directory = root.path().join(project.to_string());
            std::fs::create_dir_all(directory.join(".ai")).unwrap();
            projects.open(&directory).await.unwrap()
        };
        let in_use = open(0).await;
        for project in 1..MOST_IDLE + 9 {
            drop(open(project).await);
        }
        let kept = projects.libraries.lock().unwrap().len();
        assert!(kept <= MOST_IDLE, "{kept}");
        let kept = projects.pools.lock().unwrap().len();
        assert!(kept <= MOST_IDLE, "{kept}");
        assert!(Arc::ptr_eq(&in_use.items, &open(0).await.items));
    }

    #[tokio::test]
    async fn failed_visit_of_vanished_project_reports_that_it_is_gone() {
        fn unreadable() -> Error {
            let problem = "no such file".to_owned();
            Error::Policy { problem }
        }
        let projects = projects();
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("project");
        std::fs::create_dir_all(directory.join(".ai")).unwrap();
        let there = |_: &ProjectView<'_>| Err::<(), _>(unreadable());
        let error = projects.visit(&directory, "look", there).await.unwrap_err();
        assert!(!error.is_gone(), "{error}");
        let away = root.path().join("away");
        let from = directory.clone();
        let moved = move |_: &ProjectView<'_>| {
            std::fs::rename(from, away).unwrap();
            Err::<(), _>(unreadable())
        };
        let error = projects.visit(&directory, "look", moved).await.unwrap_err();
        assert!(error.is_gone(), "{error}");
    }

    #[tokio::test]
    async fn policy_is_read_once_and_defaults_to_shipped_one() {
        let projects = projects();
        let shipped = projects.policy("").await.unwrap();
        let named: Vec<&str> = shipped
            .hooks()
            .iter()
            .map(|hook| hook.id.as_str())
            .collect();
        assert_eq!(named, ["default_retry_transient"]);
        assert!(Arc::ptr_eq(&shipped, &projects.read_policy("").unwrap()));
        assert!(projects.policy("{}").await.unwrap().hooks().is_empty());
        for bad in ["{", r#"{"hook_conditions": 1}"#] {
            let error = projects.policy(bad).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
