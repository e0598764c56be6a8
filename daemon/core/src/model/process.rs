//! The model of managed processes: a command that runs until it ends or is stopped, attempt by attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::isolation::Isolation;
use super::process_end::ProcessEnd;
use super::process_probe::{HealthCheck, HttpProbe, PortChoice, PortRef, Ports, Unready};
use super::process_watch::{ProcessWatch, WatchRule};
use super::resources::Resources;
use crate::clock::Timestamp;
use crate::id::ItemId;

/// All input of a managed process, as it was requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub name: String,
    /// The program, or a shell command if there are no `args`.
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The working directory, below the project or absolute; the project without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables in addition to those of every tool of the project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub ready: Readiness,
    /// Time in milliseconds for which a start waits until the process is ready.
    pub ready_timeout_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, PortChoice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<HealthCheck>,
    #[serde(default)]
    pub restart: RestartPolicy,
    /// Failures in a row after which it is started again.
    pub max_restarts: u32,
    /// Time in milliseconds between TERM and KILL.
    pub grace_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// True if the process keeps running while the daemon is away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub survive: bool,
    /// Rules by which lines of its output are messages to the thread that owns it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<WatchRule>,
    /// Set if a session with an MCP server starts it, which then holds its input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpSession>,
}

/// The session of a process that is an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpSession {
    /// Item of the server.
    pub server: ItemId,
    /// Identifies the session in the life of the daemon that opened it.
    pub session: String,
}

impl ProcessSpec {
    /// Maximum length of a name.
    pub const MOST_NAME: usize = 64;

    /// True if `name` may be the name of a process.
    pub fn is_name(name: &str) -> bool {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=Self::MOST_NAME).contains(&name.len())
            && !name.starts_with(['.', '-'])
            && name.bytes().all(is_known)
    }

    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    pub const fn ready_timeout(&self) -> Duration {
        Duration::from_millis(self.ready_timeout_ms)
    }

    /// Returns the ports whose numbers the request has.
    pub fn fixed_ports(&self) -> Ports {
        let fixed = |(name, choice): (&String, &PortChoice)| match choice {
            PortChoice::Auto => None,
            PortChoice::Fixed(number) => Some((name.clone(), *number)),
        };
        self.ports.iter().filter_map(fixed).collect()
    }

    /// Returns the names of the ports whose numbers are chosen at each start.
    pub fn auto_ports(&self) -> Vec<String> {
        let auto = self.ports.iter();
        let auto = auto.filter(|(_, choice)| **choice == PortChoice::Auto);
        auto.map(|(name, _)| name.clone()).collect()
    }
}

/// The sign by which a process is ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// It is alive a moment after its start.
    #[default]
    Alive,
    /// A line of its output matches this regular expression.
    Pattern(String),
    /// It listens on this TCP port of the host.
    Port(PortRef),
    /// It answers this request well.
    Http(HttpProbe),
}

impl Readiness {
    pub const fn sign(&self) -> ReadySign {
        match self {
            Self::Alive => ReadySign::Alive,
            Self::Pattern(_) => ReadySign::Pattern,
            Self::Port(_) => ReadySign::Port,
            Self::Http(_) => ReadySign::Http,
        }
    }
}

/// The sign that an attempt has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadySign {
    Alive,
    Pattern,
    Port,
    Http,
}

/// The ends of an attempt after which the next one follows by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    #[default]
    No,
    /// An exit code other than 0, a signal, or an end of the daemon.
    OnFailure,
}

impl RestartPolicy {
    /// Every policy, the default first.
    pub const ALL: [Self; 2] = [Self::No, Self::OnFailure];

    /// The word that people write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::OnFailure => "on-failure",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == word)
    }
}

/// The reason for which an attempt follows another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartReason {
    /// The attempt failed.
    Failed,
    /// The daemon went down during the attempt.
    Interrupted,
    /// A person or a run requested it.
    Requested,
    /// Another process took the port that was chosen for it.
    PortForeign,
}

/// The state of a managed process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessState {
    pub stage: ProcessStage,
    /// Number of attempts so far.
    #[serde(default)]
    pub attempts: u32,
    /// Failures in a row, without an attempt that was up for long.
    #[serde(default)]
    pub failures: u32,
    #[serde(default)]
    pub requested: RequestedRestart,
    /// Ports of the last attempt. The next one tries the chosen ones first.
    #[serde(default, skip_serializing_if = "Ports::is_empty")]
    pub ports: Ports,
    /// True if the process was moved to another port, which happens once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_moved: bool,
    /// The reason for which the attempt in flight was not ready in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unready: Option<Arc<Unready>>,
    /// True if the processes of the attempt in flight stand still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_frozen: bool,
    /// The end of the last attempt that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Arc<ProcessEnd>>,
    #[serde(default, skip_serializing_if = "ProcessWatch::is_empty")]
    pub watch: ProcessWatch,
}

impl ProcessState {
    /// Returns the attempt in flight.
    pub const fn attempt(&self) -> Option<&Attempt> {
        match &self.stage {
            ProcessStage::Starting(attempt) | ProcessStage::Up { attempt, .. } => Some(attempt),
            ProcessStage::New | ProcessStage::Paused { .. } | ProcessStage::Over => None,
        }
    }

    /// Returns the time at which the attempt in flight became ready.
    pub const fn ready_since(&self) -> Option<Timestamp> {
        match &self.stage {
            ProcessStage::Up { since, .. } => Some(*since),
            ProcessStage::New
            | ProcessStage::Starting(_)
            | ProcessStage::Paused { .. }
            | ProcessStage::Over => None,
        }
    }

    /// Number of attempts after the first one.
    pub const fn restarts(&self) -> u32 {
        self.attempts.saturating_sub(1)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStage {
    /// Nothing was launched yet.
    #[default]
    New,
    /// The attempt in flight is not ready.
    Starting(Attempt),
    /// The attempt in flight is ready.
    Up {
        attempt: Attempt,
        since: Timestamp,
    },
    /// The next attempt follows at `due`.
    Paused {
        due: Timestamp,
    },
    Over,
}

/// The progress of a requested restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedRestart {
    /// None is in progress.
    #[default]
    None,
    /// The attempt in flight is to be stopped.
    Stopping,
    /// The next attempt is launched and not ready.
    Starting,
}
