//! Managed processes as users see them.

use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::id::{ItemId, RunId};
use crate::model::{
    Object, Outcome, Ports, ProcessEnd, ProcessStage, ProcessState, ProcessWatch, RequestedRestart,
    Run, Unready, WatchedRule,
};

/// The state of a managed process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessView {
    pub handle: RunId,
    pub name: String,
    /// The run that it ends with.
    pub owner: Option<RunId>,
    pub status: ProcessStatus,
    /// Process id of the attempt in flight, also its group and session.
    pub pid: Option<i32>,
    pub ready: bool,
    /// Time from the start of the attempt in flight until it was ready, in milliseconds.
    pub after_ms: Option<u64>,
    /// Time since the start of the attempt in flight in milliseconds.
    pub uptime_ms: Option<u64>,
    /// The end of the last attempt that has ended, unless another one is in flight.
    pub end: Option<ProcessEnd>,
    pub restarts: u32,
    pub started_at: Timestamp,
    /// Reason of the end or of the last failure, for people.
    pub reason: Option<String>,
    pub command: String,
    pub args: Option<Vec<String>>,
    pub cwd: Option<String>,
    pub survive: bool,
    /// Item of the MCP server that it is.
    pub server: Option<ItemId>,
    /// Ports of the last attempt.
    pub ports: Ports,
    /// The reason for which the attempt in flight was not ready in time.
    pub why: Option<Unready>,
    pub watch: ProcessWatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessStatus {
    /// An attempt is in flight, or about to be.
    Running,
    /// The processes of the attempt in flight stand still.
    Frozen,
    /// The last attempt failed, and another one follows.
    Restarting,
    /// It ended by itself.
    Exited,
    /// It could not be started.
    Failed,
    /// It was stopped or killed.
    Stopped,
    /// The daemon went down, and it was not started again.
    Stale,
}

impl ProcessStatus {
    /// The word used on the wire, in results of tools and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Restarting => "restarting",
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Stale => "stale",
        }
    }

    fn of(run: &Run, state: &ProcessState) -> Self {
        let has_end = state.last_end.is_some();
        // A stop thaws.
        let is_stopping = run.cancel.is_some() || state.requested == RequestedRestart::Stopping;
        match (run.outcome(), &state.stage) {
            (None, _) if state.is_frozen && !is_stopping => Self::Frozen,
            (None, ProcessStage::Paused { .. }) => Self::Restarting,
            (None, _) => Self::Running,
            (Some(Outcome::Completed { .. } | Outcome::CompletedWithErrors { .. }), _) => {
                Self::Exited
            }
            (Some(Outcome::Cancelled { .. } | Outcome::Killed { .. }), _) => Self::Stopped,
            (Some(Outcome::Error { error }), _) => {
                if matches!(&*error.code, "interrupted" | "lost") {
                    Self::Stale
                } else if has_end {
                    Self::Exited
                } else {
                    Self::Failed
                }
            }
        }
    }
}

impl ProcessView {
    /// Returns the state of `run` at `now`; `None` if it is no managed process.
    pub fn of(run: &Run, now: Timestamp) -> Option<Self> {
        let (state, spec) = (run.process()?, run.spec.process()?);
        let attempt = state.attempt().filter(|_| run.outcome().is_none());
        let status = ProcessStatus::of(run, state);
        let end = state.last_end.as_deref().filter(|_| attempt.is_none());
        let process = attempt.and_then(|attempt| attempt.process.as_ref());
        Some(Self {
            handle: run.id.clone(),
            name: spec.name.clone(),
            owner: run.spec.parent.clone(),
            status,
            pid: process.map(|process| process.pid),
            ready: attempt.is_some() && state.ready_since().is_some(),
            after_ms: attempt
                .zip(state.ready_since())
                .map(|(attempt, ready)| ready.ms_since(attempt.since)),
            uptime_ms: attempt.map(|attempt| now.ms_since(attempt.since)),
            end: end.cloned(),
            restarts: state.restarts(),
            started_at: run.created_at,
            reason: run.failure().map(|failure| failure.message),
            command: spec.command.clone(),
            args: spec.args.clone(),
            cwd: spec.cwd.clone(),
            survive: spec.survive,
            server: spec.mcp.as_ref().map(|mcp| mcp.server.clone()),
            ports: state.ports.clone(),
            why: attempt.and(state.unready.as_deref().cloned()),
            watch: state.watch.clone(),
        })
    }

    pub const fn is_running(&self) -> bool {
        self.uptime_ms.is_some()
    }

    pub fn exit_code(&self) -> Option<i32> {
        self.end.as_ref().and_then(|end| end.exit_code)
    }

    pub fn signal(&self) -> Option<i32> {
        self.end.as_ref().and_then(|end| end.signal)
    }

    /// Cause of the end of the last attempt.
    pub fn cause(&self) -> Option<&'static str> {
        self.end.as_ref().map(|end| end.cause.as_str())
    }

    /// The handle file: for people and for other programs.
    pub fn file(&self) -> Object {
        let fields = [
            ("handle", json!(self.handle)),
            ("name", json!(self.name)),
            ("pid", json!(self.pid)),
            ("pgid", json!(self.pid)),
            ("command", json!(self.command)),
            ("args", json!(self.args)),
            ("cwd", json!(self.cwd)),
            ("started_at", json!(self.started_at.to_string())),
            ("status", json!(self.status.as_str())),
            ("ready", json!(self.ready)),
            ("ports", json!(self.ports)),
            ("exit_code", json!(self.exit_code())),
            ("signal", json!(self.signal())),
            ("reason", json!(self.reason)),
            ("survive", json!(self.survive)),
        ];
        let fields = fields.into_iter();
        fields.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The form in results of tools.
    pub fn to_json(&self) -> Value {
        json!({
            "handle_id": self.handle,
            "name": self.name,
            "owner": self.owner,
            "status": self.status.as_str(),
            "running": self.is_running(),
            "ready": self.ready,
            "why": self.why,
            "ports": self.ports,
            "pid": self.pid,
            "pgid": self.pid,
            "after_ms": self.after_ms,
            "uptime_ms": self.uptime_ms,
            "exit_code": self.exit_code(),
            "signal": self.signal(),
            "cause": self.cause(),
            "restarts": self.restarts,
            "started_at": self.started_at.to_string(),
            "reason": self.reason,
            "command": self.command,
            "args": self.args,
            "cwd": self.cwd,
            "survive": self.survive,
            "server": self.server,
            "watch": self.watch.rules.iter().map(WatchedRule::to_json).collect::<Value>(),
        })
    }
}
