//! Plan of a process.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_core::model::{Isolation, Resources};
use serde::{Deserialize, Serialize};

/// Stream of an attempt. Its lines are not mixed with those of the other stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Stdout,
    Stderr,
}

/// Variable that carries the tag of an attempt in the environment of its processes.
pub const ATTEMPT_VARIABLE: &str = "RYE_ATTEMPT";

/// Longest argument of a process in bytes, and longest `NAME=value` of a variable: the kernel's limit with pages of
/// 4 KiB.
pub const MAX_ARGUMENT_BYTES: usize = 32 * 4096 - 1;

/// Default time between TERM and KILL.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// Default time between TERM and KILL when a run is killed.
pub const KILL_GRACE: Duration = Duration::from_secs(3);

/// Restriction of the processes of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confinement {
    /// They may gain privileges and signal others.
    None,
    #[default]
    Scoped,
    /// They run below `bwrap`, and see only a part of the host.
    Sandbox(SandboxView),
}

impl Confinement {
    pub const fn level(&self) -> Isolation {
        match self {
            Self::None => Isolation::None,
            Self::Scoped => Isolation::Scoped,
            Self::Sandbox(_) => Isolation::Sandbox,
        }
    }
}

/// Files in a sandbox. All others are read-only, and `/tmp` is its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxView {
    /// Directories that look empty.
    pub hidden: Vec<PathBuf>,
    /// Files and directories that can be read although they are below a hidden one. Missing ones are left out.
    pub shown: Vec<PathBuf>,
    /// Directory that can be written.
    pub project: PathBuf,
    /// The socket of the daemon, if the program may call it.
    pub socket: Option<PathBuf>,
    /// `PATH` in which `bwrap` is searched.
    pub search: OsString,
}

/// Everything that a new process receives; it inherits nothing else.
#[derive(Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Program: absolute, relative to `cwd`, the path of one of `files`, or, without a slash, looked up in the `PATH`
    /// of `env`.
    pub program: PathBuf,
    /// Arguments without the program's name.
    pub args: Vec<OsString>,
    /// Whole environment, except for [`ATTEMPT_VARIABLE`].
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    #[serde(default)]
    pub confinement: Confinement,
    /// Limits of all its processes, which the host enforces.
    #[serde(default)]
    pub resources: Resources,
    /// Standard input.
    pub stdin: Input,
    /// Contents it may open as files, by the paths of [`file_path`](super::file_path): the n-th is sealed memory on
    /// descriptor 3 + n.
    pub files: Vec<Vec<u8>>,
    /// Time limit.
    pub timeout: Duration,
    /// Time between TERM and KILL when it is stopped, by timeout or on request.
    pub grace: Duration,
    /// Maximum number of bytes kept of standard output, and of standard error; the rest is read and counted.
    pub output_limit: usize,
}

/// Standard input of a process.
#[derive(Clone, Serialize, Deserialize)]
pub enum Input {
    /// These bytes and then the end; none means `/dev/null`.
    Bytes(Vec<u8>),
    /// The pipe that [`Running::take_pipes`](super::Running::take_pipes) returns.
    Pipe,
}

impl Input {
    /// Number of bytes known before the start.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pipe => 0,
        }
    }

    /// True if it reads `/dev/null`.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }
}

/// The input may be secret.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Pipe => f.write_str("a pipe"),
        }
    }
}

/// Arguments, environment and input may hold secrets: only their sizes are shown.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .field("confinement", &self.confinement.level())
            .field("resources", &self.resources)
            .field("stdin_bytes", &self.stdin.len())
            .field("files", &self.files.len())
            .field("timeout", &self.timeout)
            .field("grace", &self.grace)
            .field("output_limit", &self.output_limit)
            .finish()
    }
}

/// Observer of a process's output as it arrives. It must neither wait nor block.
#[derive(Clone)]
pub struct Tap(Arc<OutputFn>);

/// Receives each piece of output, and all bytes kept of its stream so far.
type OutputFn = dyn Fn(Source, &[u8], &[u8]) + Send + Sync;

impl Tap {
    /// `told` is called with each piece in the order of its stream, and with the bytes kept of the stream up to its
    /// end.
    pub fn new(told: impl Fn(Source, &[u8], &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub(super) fn report(&self, source: Source, piece: &[u8], kept: &[u8]) {
        (self.0)(source, piece, kept);
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}
