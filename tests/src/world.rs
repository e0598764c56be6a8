//! A home, a state directory and a project for one test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use rye_core::clock::Timestamp;
use rye_core::id::ItemKind;
use rye_core::seal::{SecretKey, sign_text};
use serde_json::Value;
use tempfile::TempDir;

use crate::binaries;
use crate::command::{Ryectl, in_clean_environment, search_path};
use crate::daemon::Daemon;
use crate::model_server::{ModelServer, SECRET};
use crate::processes;
use crate::until::until;

/// Length of a log segment in bytes. Each daemon zeroes three segments before it serves, and a run of the tests starts
/// hundreds of daemons.
const SEGMENT_BYTES: &str = "262144";

/// Longest wait for the daemon of a world to end on request.
const STOP_PATIENCE: Duration = Duration::from_mins(1);

/// Everything that one test needs, shared with no other test. A drop asserts that no process is left, and that no file
/// contains the secret of the models.
///
/// ```text
/// <root>/state                the daemon's state directory, with its socket
/// <root>/home                 HOME, so also the user space
/// <root>/home/project/.ai     a project; commands run in <root>/home/project
/// ```
#[derive(Debug)]
pub struct World {
    // Below /tmp in spite of TMPDIR, because a socket path has at most 107 bytes.
    root: TempDir,
    /// Length of a log segment; `None` for the daemon's default.
    segment_bytes: Option<&'static str>,
    /// True if daemons that die are started again.
    comes_back: bool,
    /// Variables by which daemons find models.
    models: Vec<(&'static str, String)>,
    /// True if daemons load the library that injects faults.
    has_faults: bool,
    /// Limit of the daemons' address space in bytes.
    addresses: Option<u64>,
    /// True if a daemon of this world was ever given the secret.
    knows_secret: bool,
}

impl World {
    /// Makes a home without a key and an empty working directory.
    pub fn bare() -> Self {
        let root = tempfile::Builder::new()
            .prefix("rye-")
            .tempdir_in("/tmp")
            .expect("/tmp takes a directory");
        let world = Self {
            root,
            segment_bytes: Some(SEGMENT_BYTES),
            comes_back: false,
            models: Vec::new(),
            has_faults: false,
            addresses: None,
            knows_secret: false,
        };
        fs::create_dir_all(world.project()).expect("the world is ours");
        world
    }

    /// Makes a user with a key, and an empty project.
    pub fn new() -> Self {
        let world = Self::bare();
        fs::create_dir(world.project().join(".ai")).expect("the world is ours");
        let _made = world.ryectl("key generate").ok();
        world
    }

    /// Makes a world with the daemon's own defaults, so that measurements match the experience of users.
    pub fn measured() -> Self {
        let mut world = Self::new();
        world.segment_bytes = None;
        world
    }

    /// Returns the variables that every daemon of this world gets.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let segments = self.segment_bytes;
        let segments = segments.map(|bytes| ("RYE_JOURNAL_SEGMENT_BYTES", bytes));
        // A daemon that a test kills stays dead, unless the test is about restarts.
        let restarts = (!self.comes_back).then_some(("RYE_RESTARTS", "0"));
        let models = self.models.iter();
        let models = models.map(|(name, value)| (*name, value.as_str()));
        segments.into_iter().chain(restarts).chain(models)
    }

    /// Lets parents restart daemons that die, as they do for users.
    pub fn let_daemons_come_back(&mut self) {
        self.comes_back = true;
    }

    /// Makes a world whose daemons have the faults that [`World::let_fail`] sets.
    pub fn with_faults() -> Self {
        let mut world = Self::new();
        world.has_faults = true;
        world
    }

    /// Makes a world whose daemons have at most `bytes` of address space.
    pub fn with_address_limit(bytes: u64) -> Self {
        let mut world = Self::new();
        world.addresses = Some(bytes);
        world
    }

    /// Returns the words before `ryed` in its command line.
    pub(crate) fn limits(&self) -> Vec<String> {
        let limit = self.addresses.map(|bytes| format!("--as={bytes}"));
        limit.map_or_else(Vec::new, |limit| vec!["prlimit".to_owned(), limit])
    }

    /// Replaces the rules by which calls of the system fail in the daemon (`tests/faults`).
    pub fn let_fail(&self, rules: &str) {
        let (file, new) = (self.root().join("faults"), self.root().join("faults.new"));
        fs::write(&new, rules).expect("the world is ours");
        fs::rename(new, file).expect("the world is ours");
    }

    /// Returns the rules that fired and the paths that they hit, one a line.
    pub fn fired(&self) -> String {
        fs::read_to_string(self.root().join("faults.fired")).unwrap_or_default()
    }

    /// Returns the variables that load the library of faults.
    pub(crate) fn faults(&self) -> Vec<(&'static str, PathBuf)> {
        if !self.has_faults {
            return Vec::new();
        }
        let library = binaries::faults().to_owned();
        vec![
            ("LD_PRELOAD", library),
            ("RYE_FAULTS", self.root().join("faults")),
        ]
    }

    /// Makes a world whose daemons use `server` for models.
    pub fn with_models(server: &ModelServer) -> Self {
        let mut world = Self::new();
        world.find_models(server);
        world
    }

    /// Lets daemons use `server` for models.
    pub fn find_models(&mut self, server: &ModelServer) {
        self.find_models_by(server.environment());
    }

    /// Lets daemons find models by these variables.
    pub fn find_models_by(&mut self, environment: Vec<(&'static str, String)>) {
        self.models = environment;
        self.knows_secret = true;
    }

    /// Lets daemons find no models.
    pub fn forget_models(&mut self) {
        self.models.clear();
    }

    /// Makes a world that other users can read as far as the directories of an ordinary system.
    pub fn open_to_others() -> Self {
        let world = Self::new();
        for directory in [world.root(), &world.home()] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
                .expect("the world is ours");
        }
        world
    }

    /// Returns the directory of the whole world.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    pub fn socket(&self) -> PathBuf {
        self.state().join("ryed.sock")
    }

    /// Returns the project, which is the working directory of commands.
    pub fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Makes a call of `ryectl` with the arguments `words`, in the project, with the daemon of this world.
    pub fn ryectl(&self, words: &str) -> Ryectl {
        Ryectl::new(&self.home(), &self.project())
            .env("RYE_STATE_DIR", self.state())
            .settings(self.settings())
            .words(words)
    }

    /// Makes a shell command in the project, with the daemon of this world. Its search path has both programs, then
    /// `front`. It ends after 300 s.
    pub fn shell(&self, front: &[&Path], script: &str) -> Command {
        let (ours, rest) = (binaries::ryectl(), Path::new(search_path()));
        let directories = ours.parent().into_iter().chain(front.iter().copied());
        let path = directories.chain([rest]).map(Path::as_os_str);
        let path = path.collect::<Vec<_>>().join(OsStr::new(":"));
        let mut command = in_clean_environment("timeout", &self.home(), &self.project());
        command
            .args(["300", "/bin/bash", "-c", script])
            .env("PATH", path)
            .env("RYE_STATE_DIR", self.state())
            .envs(self.settings())
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon by hand, with `config` (YAML, may be empty), and waits until it serves.
    pub fn start(&self, config: &str) -> Daemon {
        Daemon::start(self, config)
    }

    /// Starts a daemon that kills itself and its parent at `fail_point` (see `ryed::fail_point`), and waits until it
    /// serves.
    pub fn start_until(&self, fail_point: &str, config: &str) -> Daemon {
        Daemon::start_until(self, config, Some(fail_point))
    }

    /// Starts a daemon and waits until it dies at `fail_point`, whether or not it has served by then.
    pub fn live_until(&self, fail_point: &str, config: &str) {
        Daemon::live_until(self, config, fail_point);
    }

    /// Returns the daemon's own description.
    pub fn info(&self) -> Value {
        self.ryectl("daemon info --json --no-autostart").ok().json()
    }

    /// Writes `text` to `path`, relative to the project.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().expect("a file has a directory"))
            .expect("the world is ours");
        fs::write(&path, text).expect("the world is ours");
        path
    }

    /// Reads `path`, relative to the project. A missing file is empty.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project().join(path)).unwrap_or_default()
    }

    /// Returns `thread.json` of a run once its status is `status`. The daemon writes files of a run after its record.
    pub fn thread_file(&self, run: &str, status: &str) -> Value {
        let path = format!(".ai/state/threads/{run}/thread.json");
        until("the thread file of the run", || {
            let thread: Value = serde_json::from_str(&self.read(&path)).ok()?;
            (thread["status"] == status).then_some(thread)
        })
    }

    /// Writes and signs a tool. `file` is relative to `.ai/tools`.
    pub fn tool(&self, file: &str, text: &str) {
        let path = self.write(&format!(".ai/tools/{file}"), text);
        let _signed = self.ryectl("sign").arg(path).ok();
    }

    /// Signs the YAML file at `path` with the user's key, as another program would that does not check it.
    pub fn sign_unchecked(&self, kind: ItemKind, path: &Path) {
        let key = self.home().join(".ai/config/keys/signing/private_key.pem");
        let pem = fs::read_to_string(key).expect("the user has a key");
        let key = SecretKey::from_pem(&pem).expect("the key is one");
        let text = fs::read_to_string(path).expect("the world is ours");
        let signed = sign_text(kind, "yaml", &text, &key, Timestamp::default());
        fs::write(path, signed.expect("YAML can be signed")).expect("the world is ours");
    }

    /// Writes and signs a Python tool whose `execute` has `body`.
    pub fn python(&self, id: &str, body: &str) {
        let indented = indented(body, "    ");
        let text = format!(
            "\"\"\"A tool of the tests.\"\"\"\n\
             __version__ = \"1.0.0\"\n\
             __tool_type__ = \"python\"\n\
             __executor_id__ = \"rye/core/runtimes/python/function\"\n\
             __category__ = \"{}\"\n\
             __tool_description__ = \"A tool of the tests.\"\n\n\
             def execute(params, project_path):\n{indented}",
            category(id)
        );
        self.tool(&format!("{id}.py"), &text);
    }

    /// Writes and signs a graph that may execute every tool. `config` is the YAML below the key `config`.
    pub fn graph(&self, id: &str, config: &str) {
        self.graph_with(id, "permissions: [\"rye.execute.tool.*\"]", config);
    }

    /// Writes and signs a graph with `head` (YAML, such as permissions and a schema) instead of the permissions.
    pub fn graph_with(&self, id: &str, head: &str, config: &str) {
        self.tool(&format!("{id}.yaml"), &graph_text(id, head, config));
    }

    /// Writes and signs a directive. `metadata` follows its description, and `rest` follows the metadata.
    pub fn directive(&self, id: &str, metadata: &str, rest: &str, body: &str) {
        let name = id.rsplit('/').next().unwrap_or(id);
        let text = format!(
            "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\
             <description>A directive of the tests.</description><author>tests</author>\
             <category>{}</category>\n{metadata}</metadata>\n{rest}\n</directive>\n```\n{body}\n",
            category(id)
        );
        let path = self.write(&format!(".ai/directives/{id}.md"), text);
        let _signed = self.ryectl("sign").arg(path).ok();
    }

    /// Starts the graph `id`. Returns its run id.
    pub fn start_run(&self, id: &str) -> String {
        self.ryectl("run --detach").arg(id).ok().line()
    }

    /// Waits until the run has ended or is suspended. Returns its record.
    pub fn settled(&self, run: &str) -> Value {
        let out = self.ryectl("wait --timeout 120 --json").arg(run).run();
        let out = out.code_among(&[0, 1, 75]);
        let runs = out.json();
        runs.get(0).cloned().unwrap_or(runs)
    }

    pub fn record(&self, run: &str) -> Value {
        self.ryectl("get --json").arg(run).ok().json()
    }

    /// Returns the daemon's public key as PEM, from the user's trust store.
    pub fn node_key(&self) -> String {
        let info = self.info();
        let fingerprint = info["node_fingerprint"].as_str().unwrap_or_default();
        let directory = self.home().join(".ai/config/keys/trusted");
        let entry = fs::read_to_string(directory.join(format!("{fingerprint}.toml")))
            .expect("the node key is in the user's trust store");
        let begin = entry.find("-----BEGIN").expect("a trust entry holds a PEM");
        let end = entry.rfind("-----\n").expect("a trust entry holds a PEM");
        format!("{}\n", &entry[begin..end + 5])
    }

    /// Returns the daemon's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.state().join("ryed.log")).unwrap_or_default()
    }

    /// Lists the live processes of this world.
    pub fn processes(&self) -> Vec<processes::Process> {
        processes::below(self.root())
    }

    /// Requests every daemon of this world to stop.
    fn stop_daemons(&self) {
        let daemons: Vec<_> = self
            .processes()
            .into_iter()
            .filter(|process| process.name == "ryed")
            .collect();
        let inner = |parent: i32| daemons.iter().any(|process| process.pid == parent);
        for outer in daemons.iter().filter(|process| !inner(process.parent)) {
            processes::send(outer.pid, Signal::SIGTERM);
        }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for World {
    #[expect(
        clippy::print_stderr,
        reason = "the log of the daemon explains why a test failed"
    )]
    fn drop(&mut self) {
        self.stop_daemons();
        let left = processes::left_after(STOP_PATIENCE, self.root());
        for process in &left {
            processes::send(process.pid, Signal::SIGKILL);
        }
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(6000);
            let from = (from..=log.len())
                .find(|at| log.is_char_boundary(*at))
                .unwrap_or_default();
            eprintln!("--- the end of the daemon's log\n{}", &log[from..]);
        } else {
            assert!(
                left.is_empty(),
                "processes outlived their daemon: {left:#?}"
            );
            if self.knows_secret {
                let told = files_with(self.root(), SECRET.as_bytes());
                assert!(told.is_empty(), "a secret stands in {told:?}");
            }
        }
    }
}

/// Lists the files below `directory` that contain `bytes`.
pub fn files_with(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                open.push(entry.path());
            } else if kind.is_ok_and(|kind| kind.is_file()) {
                let text = fs::read(entry.path()).unwrap_or_default();
                if text.windows(bytes.len()).any(|part| part == bytes) {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

/// Renders a graph file; see [`World::graph_with`].
pub fn graph_text(id: &str, head: &str, config: &str) -> String {
    let indented = indented(config.trim_matches('\n'), "  ");
    format!(
        "version: \"1.0.0\"\n\
         tool_type: graph\n\
         executor_id: rye/core/runtimes/state-graph/runtime\n\
         category: {}\n\
         name: {}\n\
         description: \"A graph of the tests.\"\n\
         {}\n\
         config:\n{indented}",
        category(id),
        id.rsplit('/').next().unwrap_or(id),
        head.trim()
    )
}

fn category(id: &str) -> &str {
    id.rsplit_once('/').map_or("", |(category, _)| category)
}

fn indented(text: &str, by: &str) -> String {
    text.lines().flat_map(|line| [by, line, "\n"]).collect()
}
