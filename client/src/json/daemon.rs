//! The daemon: `daemon info --json` and `daemon status --json`.

use rye_proto::v1;
use serde::Serialize;

use super::time;

/// `daemon info --json`; `daemon status --json` adds `running`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Daemon {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: i32,
    /// The process that watches over it.
    pub parent_pid: i32,
    /// Which of its lives this is.
    pub epoch: u64,
    /// RFC 3339.
    pub started_at: Option<String>,
    /// Its state directory.
    pub state_dir: String,
    /// Its socket.
    pub socket: String,
    /// Fingerprint of its node key.
    pub node_fingerprint: String,
    /// How far tools are kept apart.
    pub isolation: Option<&'static str>,
    /// How processes are contained, strongest first.
    pub containment: Vec<String>,
    /// Runs that have not ended.
    pub live_runs: u32,
    /// `ok`, or why new runs are not admitted.
    pub storage: String,
    /// Sentences on what its history has lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history_notes: Vec<String>,
}

impl From<v1::InfoResponse> for Daemon {
    fn from(info: v1::InfoResponse) -> Self {
        let isolation = match info.isolation() {
            v1::Isolation::Unspecified => None,
            v1::Isolation::None => Some("none"),
            v1::Isolation::Scoped => Some("scoped"),
            v1::Isolation::Sandbox => Some("sandbox"),
            v1::Isolation::User => Some("user"),
        };
        Self {
            started_at: time(info.started_at.as_ref()),
            version: info.version,
            pid: info.pid,
            parent_pid: info.parent_pid,
            epoch: info.epoch,
            state_dir: info.state_dir,
            socket: info.socket,
            node_fingerprint: info.node_fingerprint,
            isolation,
            containment: info.containment,
            live_runs: info.live_runs,
            storage: info.storage,
            history_notes: info.history_notes,
        }
    }
}
