//! A process that is to be started.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::async_log::Source;

/// The variable that carries the tag of an attempt in the environment of its processes.
pub const ATTEMPT_VARIABLE: &str = "RYE_ATTEMPT";

/// How long a process that was asked to stop may take before it is killed, unless its plan says otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// The same where somebody kills a run and does not say.
pub const KILL_GRACE: Duration = Duration::from_secs(3);

/// Everything about one process that is to be started. Nothing else reaches it.
#[derive(Clone)]
pub struct Plan {
    /// The program: absolute, relative to `cwd`, the path of one of `files`, or, without a slash, looked up in the `PATH` of `env`.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Its whole environment, but for [`ATTEMPT_VARIABLE`].
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// What it reads on standard input.
    pub stdin: Input,
    /// Contents it may open as files, by the paths [`file_path`](super::file_path) names: the n-th is sealed memory on descriptor 3 + n.
    pub files: Vec<Vec<u8>>,
    /// How long it may run.
    pub timeout: Duration,
    /// Time between TERM and KILL when it is stopped, by timeout or on request.
    pub grace: Duration,
    /// Most bytes kept of standard output, and of standard error; the rest is read and counted.
    pub output_limit: usize,
}

/// What a process reads on standard input.
#[derive(Clone)]
pub enum Input {
    /// These bytes and then the end; none means `/dev/null`.
    Bytes(Vec<u8>),
    /// What is written to the pipe that [`Running::take_pipes`](super::Running::take_pipes) hands out.
    Pipe,
}

impl Input {
    /// How many bytes are known before it starts.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pipe => 0,
        }
    }

    /// Whether it reads `/dev/null`.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }
}

/// What is read may be a secret.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Pipe => f.write_str("a pipe"),
        }
    }
}

/// Arguments, environment and input hold secrets: they are counted, not shown.
impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .field("stdin_bytes", &self.stdin.len())
            .field("files", &self.files.len())
            .field("timeout", &self.timeout)
            .field("grace", &self.grace)
            .field("output_limit", &self.output_limit)
            .finish()
    }
}

/// Who is told what a process prints, as it comes. It must neither wait nor block.
#[derive(Clone)]
pub struct Tap(Arc<Told>);

/// What is called with each piece that is printed, and with all that is kept of its stream by then.
type Told = dyn Fn(Source, &[u8], &[u8]) + Send + Sync;

impl Tap {
    /// `told` is called with each piece, in the order of its stream, and with what is kept of the stream up to the end of the piece.
    pub fn new(told: impl Fn(Source, &[u8], &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub(super) fn tell(&self, source: Source, piece: &[u8], kept: &[u8]) {
        (self.0)(source, piece, kept);
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}
