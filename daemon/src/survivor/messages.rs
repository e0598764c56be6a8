//! Files and messages between the daemon and a shim.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_core::memory::Memory;
use rye_core::model::{Failure, KillReceipt, ProcessIdentity};
use rye_process::shim::{self, PROTOCOL};
use rye_process::{Captured, CgroupLimit, Exit, Exited, OpenFiles, Plan, StopReason, Usage};
use serde::{Deserialize, Serialize};

use super::NewSurvivor;

/// The socket of a shim.
pub(super) const SOCKET: &str = "ctl";
/// The end of its process.
pub(super) const STATUS: &str = "status.json";

/// What a shim of the same program receives in sealed memory.
#[derive(Serialize, Deserialize)]
pub(super) struct ShimPlan {
    pub(super) directory: PathBuf,
    pub(super) attempt: u32,
    pub(super) tag: String,
    pub(super) process: Plan,
    /// Texts to mask in its output.
    pub(super) secrets: Vec<Vec<u8>>,
    pub(super) open_files: OpenFiles,
    pub(super) is_scoped: bool,
    pub(super) cgroup: Option<PathBuf>,
}

impl ShimPlan {
    pub(super) fn new(directory: PathBuf, new: &NewSurvivor<'_>) -> Self {
        let secrets = new.masker.texts().iter();
        Self {
            directory,
            attempt: new.attempt,
            tag: new.tag.to_owned(),
            process: new.process.clone(),
            secrets: secrets.map(|text| text.to_vec()).collect(),
            open_files: new.open_files,
            is_scoped: new.is_scoped,
            cgroup: None,
        }
    }

    /// Returns the form in memory, for a shim in `cgroup`.
    pub(super) fn sealed(self, cgroup: Option<PathBuf>) -> Vec<u8> {
        let plan = Self { cgroup, ..self };
        serde_json::to_vec(&plan).expect("its keys are texts")
    }
}

/// First message of a shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub(super) enum Start {
    Running { child: ProcessIdentity },
    Failed { failure: Box<Failure> },
}

/// A request to a shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "request")]
pub(super) enum Request {
    /// TERM, the grace period, KILL.
    Stop {
        grace_ms: u64,
    },
    /// KILL at once.
    Kill,
    Status,
    /// Every growth of the log is announced on this connection.
    Follow,
}

/// Names of the requests.
const REQUESTS: [&str; 4] = ["stop", "kill", "status", "follow"];

/// A line on the socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line<M> {
    pub(super) v: u32,
    #[serde(flatten)]
    pub(super) message: M,
}

/// What a shim says on its socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The process runs.
    State(State),
    /// There is more output.
    Output(Growth),
    Error(RequestError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Running,
    Stopping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Growth {
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RequestError {
    UnknownRequest,
    /// A field is missing or has a value of another type.
    InvalidRequest,
}

/// Returns the form of `message` on the socket.
pub(super) fn line(message: impl Serialize) -> Vec<u8> {
    let line = Line {
        v: PROTOCOL,
        message,
    };
    let mut line = serde_json::to_vec(&line).expect("its keys are texts");
    line.push(b'\n');
    line
}

impl Request {
    /// Reads a line.
    pub(super) fn read(line: &[u8]) -> Result<Self, RequestError> {
        let invalid = RequestError::InvalidRequest;
        let line: serde_json::Value = serde_json::from_slice(line).map_err(|_malformed| invalid)?;
        if line.get("v").and_then(serde_json::Value::as_u64).is_none() {
            return Err(invalid);
        }
        let name = line.get("request").and_then(serde_json::Value::as_str);
        if !name.is_some_and(|name| REQUESTS.contains(&name)) {
            return Err(name.map_or(invalid, |_| RequestError::UnknownRequest));
        }
        serde_json::from_value(line).map_err(|_malformed| invalid)
    }
}

/// The end of a process, as in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub(super) v: u32,
    pub(super) attempt: u32,
    pub(super) pid: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    pub(super) wall_ms: u64,
    pub(super) cpu_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_rss_kib: Option<u64>,
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<CgroupLimit>,
    #[serde(default)]
    pub(super) memory_short: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<StopReason>,
    pub(super) receipt: KillReceipt,
}

impl Status {
    pub(super) fn new(attempt: u32, pid: i32, exited: Exited) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (exit_code, signal) = exited.exit.code_or_signal();
        Self {
            v: PROTOCOL,
            attempt,
            pid,
            exit_code,
            signal,
            wall_ms: milliseconds(exited.elapsed),
            cpu_ms: milliseconds(exited.usage.cpu),
            max_rss_kib: exited.usage.max_rss_kib,
            stdout_bytes: exited.stdout.total,
            stderr_bytes: exited.stderr.total,
            limit: exited.limit,
            memory_short: exited.was_memory_short,
            stopped: exited.ended_by,
            receipt: exited.receipt,
        }
    }

    /// Pid of the process that ended.
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Reads the file in `directory`; `None` if there is none.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(directory.join(STATUS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Writes the file durably.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        shim::replace(directory, STATUS, &serde_json::to_vec(self)?)
    }

    /// Returns the end of the process, as of one that the daemon has followed itself.
    pub fn into_exited(self) -> Exited {
        let captured = |total| Captured {
            total,
            ..Captured::default()
        };
        let exit = match (self.exit_code, self.signal) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
        };
        Exited {
            exit,
            stdout: captured(self.stdout_bytes),
            stderr: captured(self.stderr_bytes),
            charge: Arc::new(Memory::default()).open(),
            elapsed: Duration::from_millis(self.wall_ms),
            usage: Usage {
                cpu: Duration::from_millis(self.cpu_ms),
                max_rss_kib: self.max_rss_kib,
            },
            limit: self.limit,
            was_memory_short: self.memory_short,
            ended_by: self.stopped,
            receipt: self.receipt,
            pipe_leak: false,
        }
    }
}
