//! Processes: the parent that outlives the daemon, tool processes in groups of their own, and who is calling.
//!
//! **Owns** every fork of the daemon. [`parent`] runs `ryed` as two processes; [`Spawner`] starts a [`Plan`], and
//! [`Running::finish`] carries it to its end; [`end_leftovers`] clears up after an earlier life of the daemon;
//! [`Peer`] tells where a caller comes from. **Never** decides what to run or what a result means.
//!
//! ```text
//! ryed (parent: subreaper, waits, forwards signals)
//!  └─ ryed (daemon)                        dies ⇒ the parent ends all that is left, exits with its code
//!      ├─ leader of a group and session    PDEATHSIG=KILL: never outlives the daemon
//!      │   └─ its children                 orphaned ⇒ adopted by the parent, which reaps them
//!      └─ leader …
//! ```
//!
//! **States** of a running process: free → terminating (TERM, grace) → killed. Reasons only
//! escalate, and what is left of a grace only shrinks.
//!
//! **Order and races.** A pidfd is opened before anything can reap the child. When it says that the leader has ended,
//! the leader stays a zombie until the rest of its group has been killed, so its group id cannot have passed to
//! somebody else; only then is it reaped. Any other process is signalled through a pidfd whose start time was checked
//! after it was opened. What left the group (`setsid`, double fork) is found by two facts: the parent has adopted it,
//! and its environment carries the tag of the attempt; or it was seen below the leader when the leader was asked to
//! stop. While a process changes its program, its environment cannot be read whole, and one that has just died may have
//! handed on children since the list of the adopted was read: a sweep is over only when each adopted process was known for
//! ours or somebody else's in one look. Exit and end of output are two facts: after the exit, output gets one more second,
//! then it is a leak.
//!
//! **Failure.** An [`Error`] of [`Spawner::start`] means that the program was not executed. A dropped [`Running`] kills
//! its group; its leader is reaped before the next start. A daemon that is killed takes its leaders along (PDEATHSIG)
//! and the parent ends the rest; if both are killed, [`end_leftovers`] does at the next boot.

mod host;
mod image;
mod ladder;
mod oom;
mod output;
pub mod parent;
mod peer;
mod pidfd;
mod procfs;
mod reap;
mod running;
mod spawn;
mod sweep;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use rye_core::error::{ErrorKind, Kinded};
use rye_core::memory::Charge;
use rye_core::model::KillReceipt;
use tokio::sync::watch;

use crate::async_log::Source;

pub use host::{OpenFiles, Trimmer, harden, memory_of_host, most_open_files};
pub use image::file_path;
pub use peer::{Lineage, Peer};
pub use procfs::{boot_id, pid_host, start_time};
pub use running::Running;
pub use spawn::Spawner;
pub use sweep::{Leftover, end_leftovers};

/// The variable that carries the tag of an attempt in the environment of its processes.
pub const ATTEMPT_VARIABLE: &str = "RYE_ATTEMPT";

/// How processes are kept together, strongest first, as `daemon info` tells it.
pub const CONTAINMENT: [&str; 4] = [
    "pidfd and start time",
    "subreaper parent",
    "process group",
    "PDEATHSIG",
];

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
    /// Contents it may open as files, by the paths [`file_path`] names: the n-th is sealed memory on descriptor 3 + n.
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
    /// What is written to the pipe that [`Running::take_pipes`] hands out.
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

    fn tell(&self, source: Source, piece: &[u8], kept: &[u8]) {
        (self.0)(source, piece, kept);
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code a shell shows for it: 128 and the number for a signal.
    pub fn shell_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code & 0xff,
            Self::Signal(number) => 128 | (number & 0x7f),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "signal {signal}"),
                Err(_) => write!(f, "signal {number}"),
            },
        }
    }
}

/// Why a process is stopped. The order is that of force: a reason gives way only to a stronger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody asked: TERM, the grace of the plan, KILL.
    Cancel,
    /// Its time is up: TERM, the grace of the plan, KILL.
    Timeout,
    /// Somebody who says how long it may take: TERM, this grace, KILL; without a grace KILL at once. The shorter, the
    /// stronger.
    Kill {
        /// Time between TERM and KILL.
        grace: Duration,
    },
}

impl StopReason {
    const fn force(self) -> (u8, Reverse<Duration>) {
        match self {
            Self::Cancel => (0, Reverse(Duration::ZERO)),
            Self::Timeout => (1, Reverse(Duration::ZERO)),
            Self::Kill { grace } => (2, Reverse(grace)),
        }
    }
}

impl Ord for StopReason {
    fn cmp(&self, other: &Self) -> Ordering {
        self.force().cmp(&other.force())
    }
}

impl PartialOrd for StopReason {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The side that asks a process, or a row of them, to stop.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<StopReason>>);

/// The side that [`Running::finish`] listens to.
pub type Stop = watch::Receiver<Option<StopReason>>;

impl Stopper {
    /// A stopper that has asked for nothing yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// A listener; it also hears what was asked before it came.
    pub fn listen(&self) -> Stop {
        self.0.subscribe()
    }

    /// Asks to stop for `reason`; a weaker one than already asked for changes nothing.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|asked| {
            let stronger = *asked < Some(reason);
            if stronger {
                *asked = Some(reason);
            }
            stronger
        });
    }
}

impl Default for Stopper {
    fn default() -> Self {
        Self::new()
    }
}

/// What one stream of a process came to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// Its first bytes, as many as the plan allows.
    pub bytes: Vec<u8>,
    /// How many bytes were written to it in all.
    pub total: u64,
    /// Whether there was no memory to keep more of them.
    pub is_starved: bool,
}

impl Captured {
    /// Whether bytes are missing at the end.
    pub fn is_truncated(&self) -> bool {
        u64::try_from(self.bytes.len()).is_ok_and(|kept| kept < self.total)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("kept", &self.bytes.len())
            .field("total", &self.total)
            .field("is_starved", &self.is_starved)
            .finish()
    }
}

/// What a process came to.
#[derive(Debug)]
pub struct Exited {
    /// How the leader ended; of one that hangs in the kernel and is in `receipt.survivors`, the KILL that awaits it.
    pub exit: Exit,
    /// Its standard output, and that of its descendants.
    pub stdout: Captured,
    /// Its standard error, and that of its descendants.
    pub stderr: Captured,
    /// What is charged for the bytes of both.
    pub charge: Charge,
    /// From the start of the process to its end.
    pub elapsed: Duration,
    /// Why it was stopped; `None` if it ended by itself.
    pub ended_by: Option<StopReason>,
    /// What we ended: the leader if it was stopped, and whatever of its group or its adopted descendants was left; and what
    /// does not end.
    pub receipt: KillReceipt,
    /// Whether something still held an output open a second after everything we know of was gone.
    pub pipe_leak: bool,
}

/// Why a process could not be started or followed. From [`Spawner::start`]: the program was not executed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such program.
    #[error("program `{program}` not found (looked for {looked_for})")]
    ProgramNotFound {
        /// As the plan names it.
        program: String,
        /// The paths that were tried.
        looked_for: String,
    },
    /// The program is there and cannot be executed.
    #[error("failed to execute `{program}`")]
    Execute {
        /// Its path.
        program: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("failed to enter the working directory `{cwd}`")]
    WorkingDirectory {
        /// The directory.
        cwd: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// An argument, a variable or a path holds a NUL byte, which the kernel cannot pass on.
    #[error("{what} of `{program}` holds a NUL byte")]
    NulByte {
        /// Which part of the plan.
        what: &'static str,
        /// The program.
        program: String,
    },
    /// A step before the execution failed.
    #[error("failed to {step} for `{program}`")]
    Prepare {
        /// What was to be done.
        step: &'static str,
        /// The program.
        program: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// A process that was started could not be followed to its end.
    #[error("failed to {step} of process {pid}")]
    Follow {
        /// What was to be done.
        step: &'static str,
        /// The process.
        pid: i32,
        /// What the kernel says.
        source: io::Error,
    },
    /// The thread that starts processes has ended.
    #[error("the daemon starts no processes any more")]
    SpawnerGone,
    /// The caller behind a socket cannot be identified.
    #[error("failed to read the credentials of a caller")]
    Credentials(#[source] io::Error),
    /// The parent could not start or watch the daemon.
    #[error("failed to {step}")]
    Parent {
        /// What was to be done.
        step: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl Kinded for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ProgramNotFound { .. } | Self::Execute { .. } | Self::WorkingDirectory { .. } => {
                ErrorKind::Precondition
            }
            Self::NulByte { .. } => ErrorKind::Invalid,
            Self::Prepare { .. } | Self::Parent { .. } => ErrorKind::Exhausted,
            Self::Follow { .. } => ErrorKind::Bug,
            Self::SpawnerGone => ErrorKind::Unavailable,
            Self::Credentials(_) => ErrorKind::Denied,
        }
    }
}

/// The kernel's number of `signal`.
#[expect(clippy::as_conversions, reason = "the discriminant of a C-like enum")]
const fn number(signal: Signal) -> i32 {
    signal as i32
}
