//! Settings: one [`Config`], made once at the start and passed by value.
//!
//! **Owns** every setting with its default, and the only look at the environment. **Never** creates a file.
//!
//! **Order.** For each setting on its own: flag, then environment variable, then settings file, then default. One
//! exception keeps daemons apart: a state directory from a stronger source than the socket's brings its own socket
//! `<state dir>/ryed.sock`, so that `ryed --state-dir DIR` never takes the socket of the daemon the file describes.
//!
//! **Failure.** Unknown keys, wrong types and values out of range are errors that name the file with line and column,
//! the variable, or the flag. Nothing is guessed.

mod args;
mod environment;
mod layer;
mod print;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_core::error::{ErrorKind, Kinded};
use rye_core::ledger::Caps;
use rye_core::model::{Durability, Recovery};

pub use args::{Args, Command, LogFormat};
pub use environment::Environment;
use layer::{Cap, Days, Layer, Megabytes, Stack};

/// The variable by which the parent process tells the daemon that it is its parent: its pid. Not a setting.
pub const PARENT_VARIABLE: &str = "RYE_PARENT_PID";

/// The variable by which the parent process tells the daemon how its last life ended. Not a setting.
pub const DEATH_VARIABLE: &str = "RYE_LAST_DEATH";

/// The longest path a Unix socket can have, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;

/// What a segment of the journal's log may measure: enough for a few hundred events, and no more than a start can zero.
/// There is no need to hold the longest frame: one that is longer than a segment gets a segment of its own length.
const SEGMENT_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;

/// The daemon's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// What is logged: a level, or a filter by module.
    pub level: String,
}

/// Limits that apply where a graph, a tool or a caller sets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most steps of a graph run.
    pub max_steps: NonZeroU32,
    /// How long a tool may run.
    pub tool_timeout: Duration,
    /// How long a shell command may run.
    pub bash_timeout: Duration,
    /// Most bytes kept of each output stream of a process.
    pub output_bytes: NonZeroUsize,
    /// Largest message on the control API, in bytes.
    pub message_bytes: NonZeroUsize,
    /// The memory that the values of all runs together may take, in MiB; half of the host's if none is set.
    pub memory_mb: Option<NonZeroUsize>,
    /// Most runs of one tree that are not over.
    pub tree_runs: NonZeroUsize,
}

/// Retention of ended runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Trees in which nothing has happened for so long are removed; none are if there is no number.
    pub older_than: Option<Duration>,
    /// The newest trees of each project that stay, however old they are.
    pub keep: usize,
    /// How long the idempotency key of a removed run starts nothing.
    pub keys: Duration,
}

/// The environment of the daemon's children, before project and chain add to it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ChildEnv {
    /// The names that the setting `env.pass` adds.
    pub pass: Vec<String>,
    /// PATH, HOME, LANG, TZ and the names of `pass`, as far as the daemon has them.
    pub base: Vec<(OsString, OsString)>,
}

/// Values are secrets: names only.
impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.base.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where log, store and keys of the daemon are.
    pub state_dir: PathBuf,
    /// The socket it serves on.
    pub socket: PathBuf,
    /// The directory whose `.ai` is the user space.
    pub user_space: PathBuf,
    /// Its own log.
    pub log: Log,
    /// What children find in their environment.
    pub env: ChildEnv,
    /// What the daemon itself found in its own.
    pub environment: Environment,
    /// Limits where nobody sets others.
    pub limits: Limits,
    /// When a step counts as done, where a run does not say.
    pub durability: Durability,
    /// What happens to live runs at the next start, where a run does not say.
    pub recovery: Recovery,
    /// Programs by the variable under which a runtime calls them: these are used instead of looking for one.
    pub interpreters: BTreeMap<String, PathBuf>,
    /// How often in a minute the daemon is started again after it died.
    pub restarts: u32,
    /// Length of a segment of the journal's log in bytes.
    pub segment_bytes: u64,
    /// How long runs may take to stop when the daemon is asked to.
    pub shutdown_grace: Duration,
    /// What all runs together may spend.
    pub budget: Caps,
    /// Retention of ended runs.
    pub retention: Retention,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This environment variable.
    Variable(&'static str),
    /// The settings file.
    File(PathBuf),
    /// Nobody set it.
    Default,
}

impl Origin {
    /// A smaller number wins.
    const fn rank(&self) -> u8 {
        match self {
            Self::Flag => 0,
            Self::Variable(_) => 1,
            Self::File(_) => 2,
            Self::Default => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Settings, and where each comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    origins: Vec<(&'static str, Origin)>,
}

/// Why there are no settings. All of them are the user's to fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings file cannot be read.
    #[error("failed to read the settings file `{path}`")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The settings file is not what it should be.
    #[error("the settings file `{path}` is invalid")]
    File {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        source: serde_yaml::Error,
    },
    /// An environment variable does not hold what it should.
    #[error("the environment variable {name} is invalid")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong, with line and column.
        source: serde_yaml::Error,
    },
    /// An environment variable is not text.
    #[error("the environment variable {name} is not valid UTF-8")]
    NotText {
        /// Its name.
        name: &'static str,
    },
    /// There is no home directory to put things in.
    #[error("no home directory is known; set HOME, or `{setting}`")]
    NoHome {
        /// The setting that needs it.
        setting: &'static str,
    },
    /// A path cannot be made absolute.
    #[error("failed to make `{path}` absolute")]
    Relative {
        /// The path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The path of the socket does not fit into a socket address.
    #[error(
        "the socket path `{path}` has {bytes} bytes, and the system allows {LONGEST_SOCKET_PATH}; choose a shorter one with --socket or RYE_SOCKET ({origin})"
    )]
    SocketTooLong {
        /// The path.
        path: String,
        /// Its length.
        bytes: usize,
        /// Where it comes from.
        origin: Origin,
    },
    /// A log filter that cannot be understood.
    #[error("`{level}` is not a log level or filter ({origin})")]
    Level {
        /// The text.
        level: String,
        /// Where it comes from.
        origin: Origin,
        /// What is wrong.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A length of log segments that is out of bounds.
    #[error(
        "`journal.segment_bytes` is {bytes}, and has to be {} to {} ({origin})",
        SEGMENT_BYTES.start(),
        SEGMENT_BYTES.end()
    )]
    SegmentBytes {
        /// The length.
        bytes: u64,
        /// Where it comes from.
        origin: Origin,
    },
    /// A program that cannot be meant.
    #[error("`interpreters.{name}` is `{path}`, and has to be an absolute path ({origin})")]
    Interpreter {
        /// The variable.
        name: String,
        /// What it is set to.
        path: String,
        /// Where it comes from.
        origin: Origin,
    },
    /// A name that must not be passed on.
    #[error("`{name}` cannot be passed to children: {reason} (`env.pass`, {origin})")]
    Pass {
        /// The name.
        name: String,
        /// Why not.
        reason: &'static str,
        /// Where it comes from.
        origin: Origin,
    },
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
            | Self::Pass { .. } => ErrorKind::Invalid,
        }
    }
}

/// The settings in force.
pub fn load(args: &Args, environment: &Environment) -> Result<Loaded, Error> {
    let mut layers = vec![(Origin::Flag, Layer::from_args(args))];
    layers.extend(Layer::from_environment(environment)?);
    if let Some((path, text)) = settings_file(args, environment)? {
        let layer = Layer::from_yaml(&path, &text)?;
        layers.push((Origin::File(path), layer));
    }
    resolve(Stack::new(layers), environment)
}

/// The file that applies, with its text: a named one must be there, the user's own need not.
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

/// Picks each setting from the strongest layer that has it, and checks it.
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
    };
    Ok(Loaded {
        config,
        origins: stack.into_origins(),
    })
}

/// Its own setting; or beside a state directory that somebody chose; or where a user's sockets are.
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
        None if state_dir_rank < Origin::Default.rank() => {
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
    let mut base: Vec<(OsString, OsString)> = Vec::new();
    let always = ["PATH", "HOME", "LANG", "TZ"].map(|name| (name, environment.get(name)));
    // What somebody asked to pass on is passed on as it is, be it empty.
    let asked = pass
        .iter()
        .map(|name| (name.as_str(), environment.exact(name)));
    for (name, value) in always.into_iter().chain(asked) {
        if let Some(value) = value
            && !base.iter().any(|(known, _)| known == name)
        {
            base.push((name.into(), value.to_owned()));
        }
    }
    Ok(ChildEnv { pass, base })
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|source| Error::Relative {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests;
