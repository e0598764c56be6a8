//! Settings: one [`Config`], loaded once at the start and passed by value.
//!
//! **Owns** every setting with its default, and the only read of the environment. **Never** creates a file.
//!
//! **Order.** Each setting is resolved on its own: flag, then environment variable, then settings file, then default.
//! One exception keeps daemons apart. A state directory from a stronger source than the socket's implies the socket
//! `<state dir>/ryed.sock`. `ryed --state-dir DIR` therefore never takes the socket of the daemon that the file
//! describes.
//!
//! **Failure.** Unknown keys, wrong types and values out of range are errors that name the file with line and column,
//! the variable, or the flag. Nothing is guessed.

mod args;
mod environment;
mod handover;
mod layer;
mod networks;
mod port_range;
mod print;
mod resources;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::ledger::Caps;
use rye_core::model::{Durability, Isolation, Recovery};

pub use args::{Args, Command, Containment, LogFormat};
pub use environment::Environment;
pub use handover::hide;
use layer::{Cap, Days, Layer, Megabytes, Stack};
pub use networks::Networks;
pub use port_range::PortRange;
pub use resources::ResourceSettings;

/// Default of `env.secrets`.
const SECRETS: [&str; 6] = [
    "*_API_KEY",
    "*_ACCESS_KEY",
    "*_PASSWORD",
    "*_SECRET",
    "*_SECRET_KEY",
    "*_TOKEN",
];

/// Maximum length of the path of a Unix socket, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;

/// Valid lengths of a segment of the journal's log: from a few hundred events up to the amount that a start can zero. A
/// segment need not hold the largest frame: a longer frame gets a segment of its own length.
const SEGMENT_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;

/// The daemon's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    /// A level, or a filter by module.
    pub level: String,
}

/// Limits that apply where a graph, a tool or a caller sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of steps of a graph run.
    pub max_steps: NonZeroU32,
    /// Time limit of a tool.
    pub tool_timeout: Duration,
    /// Time limit of a shell command.
    pub bash_timeout: Duration,
    /// Maximum number of bytes kept of each output stream of a process.
    pub output_bytes: NonZeroUsize,
    /// Maximum size of a message of the control API, in bytes.
    pub message_bytes: NonZeroUsize,
    /// Memory limit for the values of all runs together, in MiB; `None` is half of the host's memory.
    pub memory_mb: Option<NonZeroUsize>,
    /// Maximum number of active runs of one tree.
    pub tree_runs: NonZeroUsize,
}

/// Retention of ended runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Age after its last event at which a tree is removed; `None` keeps all.
    pub older_than: Option<Duration>,
    /// Number of the newest trees of each project that are kept whatever their age.
    pub keep: usize,
    /// Time for which the idempotency key of a removed run still prevents a start.
    pub keys: Duration,
}

/// Environment of the daemon's children, before project and chain add to it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ChildEnv {
    /// Names from the setting `env.pass`.
    pub pass: Vec<String>,
    /// Patterns from the setting `env.secrets`.
    pub secrets: Vec<String>,
    /// PATH from the setting `env.path`; `None` for that of the daemon.
    pub path: Option<String>,
    /// PATH, HOME, LANG, LC_*, TZ and the names of `pass`, as far as the daemon has them.
    pub base: Vec<(OsString, OsString)>,
}

/// Shows names only: values are secrets.
impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.base.iter().map(|(name, _)| name))
            .finish()
    }
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the daemon's log, store and keys.
    pub state_dir: PathBuf,
    /// Path of the socket to serve on.
    pub socket: PathBuf,
    /// Directory whose `.ai` is the user space.
    pub user_space: PathBuf,
    pub log: Log,
    /// Environment of child processes.
    pub env: ChildEnv,
    /// Environment of the daemon itself.
    pub environment: Environment,
    pub limits: Limits,
    /// Default durability of a step.
    pub durability: Durability,
    /// Default treatment of live runs at the next start.
    pub recovery: Recovery,
    /// Programs by the variable under which a runtime calls them. They are used without a search.
    pub interpreters: BTreeMap<String, PathBuf>,
    /// Maximum number of restarts of the daemon per minute.
    pub restarts: u32,
    /// Cgroups for attempts.
    pub cgroups: Containment,
    /// Signal scope of attempts.
    pub signals: Containment,
    /// Weakest isolation of the processes of tools.
    pub least_isolation: Isolation,
    pub resources: ResourceSettings,
    /// Length of a segment of the journal's log in bytes.
    pub segment_bytes: u64,
    /// Time for runs to stop at a shutdown.
    pub shutdown_grace: Duration,
    /// Spending limits of all runs together.
    pub budget: Caps,
    pub retention: Retention,
    /// Networks of the hosts that signed items may call.
    pub networks: Networks,
    pub port_range: PortRange,
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    Flag,
    Variable(&'static str),
    File(PathBuf),
    /// No source sets it.
    Default,
}

impl SettingOrigin {
    /// Precedence of the source; a smaller number takes precedence.
    const fn rank(&self) -> u8 {
        match self {
            Self::Flag => 0,
            Self::Variable(_) => 1,
            Self::File(_) => 2,
            Self::Default => 3,
        }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Settings with their sources.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    origins: Vec<(&'static str, SettingOrigin)>,
}

/// Invalid settings. The user can fix all of these errors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the settings file `{path}`")]
    Read { path: String, source: io::Error },
    #[error("the settings file `{path}` is invalid")]
    File {
        path: String,
        /// The error, with line and column.
        source: serde_yaml::Error,
    },
    #[error("the environment variable {name} is invalid")]
    Variable {
        name: &'static str,
        /// The error, with line and column.
        source: serde_yaml::Error,
    },
    #[error("the environment variable {name} is not valid UTF-8")]
    NotText { name: &'static str },
    /// The home directory is unknown.
    #[error("no home directory is known; set HOME, or `{setting}`")]
    NoHome {
        /// Setting whose default needs it.
        setting: &'static str,
    },
    #[error("failed to make `{path}` absolute")]
    Relative { path: String, source: io::Error },
    /// The path of the socket does not fit into a socket address.
    #[error(
        "the socket path `{path}` has {bytes} bytes, and the system allows {LONGEST_SOCKET_PATH}; choose a shorter one with --socket or RYE_SOCKET ({origin})"
    )]
    SocketTooLong {
        path: String,
        bytes: usize,
        origin: SettingOrigin,
    },
    #[error("`{level}` is not a log level or filter ({origin})")]
    Level {
        level: String,
        origin: SettingOrigin,
        source: tracing_subscriber::filter::ParseError,
    },
    /// The length of log segments is out of range.
    #[error(
        "`journal.segment_bytes` is {bytes}, and has to be {} to {} ({origin})",
        SEGMENT_BYTES.start(),
        SEGMENT_BYTES.end()
    )]
    SegmentBytes { bytes: u64, origin: SettingOrigin },
    /// The path of an interpreter is not absolute.
    #[error("`interpreters.{name}` is `{path}`, and has to be an absolute path ({origin})")]
    Interpreter {
        name: String,
        path: String,
        origin: SettingOrigin,
    },
    /// The variable must not be passed to children.
    #[error("`{name}` cannot be passed to children: {reason} (`env.pass`, {origin})")]
    Pass {
        name: String,
        reason: &'static str,
        origin: SettingOrigin,
    },
    /// A relative directory would depend on the project.
    #[error("`{path}` is no list of absolute directories (`env.path`, {origin})")]
    ChildPath { path: String, origin: SettingOrigin },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { .. }
            | Self::File { .. }
            | Self::Variable { .. }
            | Self::NotText { .. }
            | Self::NoHome { .. }
            | Self::Relative { .. }
            | Self::SocketTooLong { .. }
            | Self::Level { .. }
            | Self::SegmentBytes { .. }
            | Self::Interpreter { .. }
            | Self::Pass { .. }
            | Self::ChildPath { .. } => ErrorKind::Invalid,
        }
    }
}

/// Loads the settings in force.
pub fn load(args: &Args, environment: &Environment) -> Result<Loaded, Error> {
    let mut layers = vec![(SettingOrigin::Flag, Layer::from_args(args))];
    layers.extend(Layer::from_environment(environment)?);
    if let Some((path, text)) = settings_file(args, environment)? {
        let layer = Layer::from_yaml(&path, &text)?;
        layers.push((SettingOrigin::File(path), layer));
    }
    resolve(Stack::new(layers), environment)
}

/// Path and text of the settings file. A named file must exist; the user's default file is optional.
fn settings_file(
    args: &Args,
    environment: &Environment,
) -> Result<Option<(PathBuf, String)>, Error> {
    let named = args
        .config
        .clone()
        .or_else(|| environment.get("RYE_CONFIG").map(PathBuf::from));
    let path = match &named {
        Some(path) => absolute(path)?,
        None => match environment.config_home() {
            Some(home) => home.join("rye/ryed.yaml"),
            None => return Ok(None),
        },
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            path: path.display().to_string(),
            source,
        }),
    }
}

/// Resolves each setting from the strongest layer that has it, and validates it.
fn resolve(mut stack: Stack, environment: &Environment) -> Result<Loaded, Error> {
    let no_home = |setting| Error::NoHome { setting };
    let state_dir = stack
        .path("state_dir", environment, |layer| layer.state_dir.clone())?
        .or_else(|| Some(environment.state_home()?.join("rye")))
        .ok_or(no_home("state_dir"))?;
    let socket = socket(&mut stack, environment, &state_dir)?;
    let user_space = stack
        .path("user_space", environment, |layer| layer.user_space.clone())?
        .or_else(|| environment.home())
        .ok_or(no_home("user_space"))?;
    let config = Config {
        state_dir,
        socket,
        user_space,
        log: log(&mut stack)?,
        env: child_env(&mut stack, environment)?,
        environment: environment.clone(),
        limits: limits(&mut stack),
        durability: stack
            .pick("durability", |layer| layer.durability)
            .unwrap_or_default(),
        recovery: stack
            .pick("recovery", |layer| layer.recovery)
            .unwrap_or_default(),
        interpreters: interpreters(&mut stack)?,
        restarts: stack.pick("restarts", |layer| layer.restarts).unwrap_or(5),
        cgroups: stack
            .pick("containment.cgroup", |layer| layer.containment.cgroup)
            .unwrap_or_default(),
        signals: stack
            .pick("containment.signals", |layer| layer.containment.signals)
            .unwrap_or_default(),
        least_isolation: stack
            .pick("isolation.least", |layer| layer.isolation.least)
            .unwrap_or(Isolation::None),
        resources: ResourceSettings::of(&mut stack),
        segment_bytes: segment_bytes(&mut stack)?,
        shutdown_grace: Duration::from_secs(
            stack
                .pick("shutdown_grace_seconds", |layer| {
                    layer.shutdown_grace_seconds
                })
                .unwrap_or(10),
        ),
        budget: caps(&mut stack),
        retention: retention(&mut stack),
        networks: stack
            .pick("http.networks", |layer| layer.http.networks)
            .unwrap_or_default(),
        port_range: stack
            .pick("ports.range", |layer| layer.ports.range.clone())
            .unwrap_or_default(),
    };
    Ok(Loaded {
        config,
        origins: stack.into_origins(),
    })
}

/// Resolves the socket: its own setting, else a path in a configured state directory, else the runtime directory of the
/// user.
fn socket(
    stack: &mut Stack,
    environment: &Environment,
    state_dir: &Path,
) -> Result<PathBuf, Error> {
    let set = stack.path("socket", environment, |layer| layer.socket.clone())?;
    let state_dir_rank = stack.origin("state_dir").rank();
    let socket_rank = stack.origin("socket").rank();
    let beside = state_dir.join("ryed.sock");
    let path = match set {
        Some(path) if socket_rank <= state_dir_rank => path,
        Some(_) => {
            stack.derive("socket", "state_dir");
            beside
        }
        None if state_dir_rank < SettingOrigin::Default.rank() => {
            stack.derive("socket", "state_dir");
            beside
        }
        None => environment
            .runtime_dir()
            .map_or(beside, |runtime| runtime.join("rye/ryed.sock")),
    };
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > LONGEST_SOCKET_PATH {
        return Err(Error::SocketTooLong {
            path: path.display().to_string(),
            bytes,
            origin: stack.origin("socket"),
        });
    }
    Ok(path)
}

fn segment_bytes(stack: &mut Stack) -> Result<u64, Error> {
    const DEFAULT: u64 = 8 << 20;
    let bytes = stack
        .pick("journal.segment_bytes", |layer| layer.journal.segment_bytes)
        .unwrap_or(DEFAULT);
    if SEGMENT_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(Error::SegmentBytes {
        bytes,
        origin: stack.origin("journal.segment_bytes"),
    })
}

fn log(stack: &mut Stack) -> Result<Log, Error> {
    let format = stack.pick("log.format", |layer| layer.log.format);
    let level = stack
        .pick("log.level", |layer| layer.log.level.clone())
        .unwrap_or_else(|| "info".to_owned());
    if let Err(source) = tracing_subscriber::EnvFilter::builder().parse(&level) {
        return Err(Error::Level {
            level,
            origin: stack.origin("log.level"),
            source,
        });
    }
    Ok(Log {
        format: format.unwrap_or_default(),
        level,
    })
}

fn limits(stack: &mut Stack) -> Limits {
    const MAX_STEPS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
    const OUTPUT_BYTES: NonZeroUsize = NonZeroUsize::new(8 << 20).expect("not zero");
    const MESSAGE_BYTES: NonZeroUsize = NonZeroUsize::new(16 << 20).expect("not zero");
    let seconds = |seconds: Option<std::num::NonZeroU64>, default| {
        Duration::from_secs(seconds.map_or(default, std::num::NonZeroU64::get))
    };
    Limits {
        max_steps: stack
            .pick("limits.max_steps", |layer| layer.limits.max_steps)
            .unwrap_or(MAX_STEPS),
        tool_timeout: seconds(
            stack.pick("limits.tool_timeout_seconds", |layer| {
                layer.limits.tool_timeout_seconds
            }),
            300,
        ),
        bash_timeout: seconds(
            stack.pick("limits.bash_timeout_seconds", |layer| {
                layer.limits.bash_timeout_seconds
            }),
            120,
        ),
        output_bytes: stack
            .pick("limits.output_bytes", |layer| layer.limits.output_bytes)
            .unwrap_or(OUTPUT_BYTES),
        message_bytes: stack
            .pick("limits.message_bytes", |layer| layer.limits.message_bytes)
            .unwrap_or(MESSAGE_BYTES),
        memory_mb: stack
            .pick("limits.memory_mb", |layer| layer.limits.memory_mb)
            .and_then(|Megabytes(most)| most),
        tree_runs: stack
            .pick("limits.tree_runs", |layer| layer.limits.tree_runs)
            .unwrap_or(rye_journal::TREE_RUNS),
    }
}

fn retention(stack: &mut Stack) -> Retention {
    const KEYS_DAYS: u32 = 30;
    let days = |days: u32| Duration::from_hours(u64::from(days) * 24);
    let older_than = stack.pick("retention.older_than_days", |layer| {
        layer.retention.older_than_days
    });
    let keep = stack.pick("retention.keep", |layer| layer.retention.keep);
    let keys = stack.pick("retention.keys_days", |layer| layer.retention.keys_days);
    Retention {
        older_than: older_than
            .and_then(|Days(number)| number)
            .map(|number| days(number.get())),
        keep: keep.unwrap_or(0),
        keys: days(keys.unwrap_or(KEYS_DAYS)),
    }
}

fn caps(stack: &mut Stack) -> Caps {
    let day = stack.pick("budget.day", |layer| layer.budget.day);
    let month = stack.pick("budget.month", |layer| layer.budget.month);
    Caps {
        day: day.and_then(|Cap(day)| day),
        month: month.and_then(|Cap(month)| month),
    }
}

fn interpreters(stack: &mut Stack) -> Result<BTreeMap<String, PathBuf>, Error> {
    let programs = stack.pick("interpreters", |layer| layer.interpreters.clone());
    let programs = programs.unwrap_or_default();
    match programs.iter().find(|(_, path)| !path.is_absolute()) {
        None => Ok(programs),
        Some((name, path)) => Err(Error::Interpreter {
            name: name.clone(),
            path: path.display().to_string(),
            origin: stack.origin("interpreters"),
        }),
    }
}

fn child_env(stack: &mut Stack, environment: &Environment) -> Result<ChildEnv, Error> {
    let pass = stack
        .pick("env.pass", |layer| layer.env.pass.clone())
        .unwrap_or_default();
    for name in &pass {
        let reason = if name.is_empty() || name.contains(['=', '\0']) {
            "it is not the name of a variable"
        } else if name.starts_with("RYE_") {
            "names that begin with RYE_ are set for each call"
        } else {
            continue;
        };
        return Err(Error::Pass {
            name: name.clone(),
            reason,
            origin: stack.origin("env.pass"),
        });
    }
    let path = stack.pick("env.path", |layer| layer.env.path.clone());
    let path = path.filter(|path| path != layer::AUTO);
    if let Some(path) = &path
        && !std::env::split_paths(path).all(|directory| directory.is_absolute())
    {
        return Err(Error::ChildPath {
            path: path.clone(),
            origin: stack.origin("env.path"),
        });
    }
    let mut base: Vec<(OsString, OsString)> = Vec::new();
    let of_path = path.as_deref().map(OsStr::new);
    let of_path = ("PATH", of_path.or_else(|| environment.get("PATH")));
    let always = ["HOME", "LANG", "TZ"].map(|name| (name, environment.get(name)));
    let always = [of_path]
        .into_iter()
        .chain(always)
        .chain(environment.locale());
    // Requested variables are passed unchanged, even if they are empty.
    let asked = pass
        .iter()
        .map(|name| (name.as_str(), environment.exact(name)));
    for (name, value) in always.chain(asked) {
        if let Some(value) = value
            && !base.iter().any(|(known, _)| known == name)
        {
            base.push((name.into(), value.to_owned()));
        }
    }
    let secrets = stack
        .pick("env.secrets", |layer| layer.env.secrets.clone())
        .unwrap_or_else(|| SECRETS.map(str::to_owned).to_vec());
    Ok(ChildEnv {
        pass,
        secrets,
        path,
        base,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|source| Error::Relative {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests;
