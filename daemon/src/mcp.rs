//! Client of the Model Context Protocol: sessions with servers, their tools, and calls.
//!
//! **Owns** the sessions of all runs ([`Sessions`]): their start, lifetime and end; the messages exchanged with a
//! server, and their bounds; and the check that a tool still is what its user signed. **Never** decides which server a
//! tool has, or which program runs it: a [`Plan`], made from verified items, states both. **Never** starts a process: a
//! server is a managed process of its root run, and gives its pipes to its session. **Never** answers a server's
//! request for a model or a person. Such requests are declined, except for the root, which is the project.
//!
//! ```text
//! (root run, server) ──first call──► starting: process or connection, handshake, tools/list
//!                                        │ within `start_timeout`          └─ failed: nothing stays
//!                                        ▼
//!                                      open ◄── calls, several at once
//!   the root run ended · 5 min without a call · the server ended, or broke a rule
//!                                        ▼
//!                                      over: stdin closed, TERM, KILL; the next call starts it anew
//! ```
//!
//! **Bounds.** A message has at most 8 MiB. The number and total size of messages that answer no request are bounded;
//! beyond the bounds the session ends. A root run has at most [`MOST_SERVERS`]. **Order.** A process starts once its run
//! is on record. **Races.** Calls
//! during the start of a session wait for it; a call during its end starts it again. **Failure.** A [`Failure`] states
//! whether the call was sent: a call that was sent and not answered may have been executed.

mod answer;
mod inbox;
mod message;
mod process;
mod remote;
mod session;
mod sessions;
mod stdio;

use std::fmt;
use std::time::Duration;

use rye_core::id::{ItemId, RunId};
use rye_core::model::Object;
use rye_core::seal::{canonical, sha256_hex};
use serde_json::{Value, json};

use crate::http::Url;

pub use self::inbox::SessionEnd;
pub use self::process::{ServerLink, ServerProcess};
pub use self::sessions::{Caller, Sessions};

/// Maximum number of concurrent servers of one root run.
pub const MOST_SERVERS: usize = 16;
/// Maximum duration of a call, whatever progress the server reports.
pub const LONGEST_CALL: Duration = Duration::from_mins(10);

/// A server and its transport.
#[derive(Debug, Clone)]
pub struct Server {
    pub id: ItemId,
    /// Content hash of its item.
    pub hash: String,
    pub reached: Reached,
    /// Project that it works for.
    pub project: String,
    /// Time limit from its start until it has listed its tools.
    pub start_timeout: Duration,
    /// Time limit for an answer or a report of progress.
    pub timeout: Duration,
}

/// Transport to a server.
#[derive(Debug, Clone)]
pub enum Reached {
    /// A process that reads and writes lines.
    Stdio(Box<rye_process::Plan>),
    /// A server on another host.
    Http(Box<Remote>),
}

impl Reached {
    /// Name of the transport in the server's item.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
        }
    }
}

/// A server on another host.
#[derive(Clone)]
pub struct Remote {
    pub url: Url,
    /// Headers of each request: name, value, and true if the value is secret.
    pub headers: Vec<(String, String, bool)>,
    /// Texts that no answer may reveal; the longest first.
    pub secrets: Vec<String>,
}

/// Headers are secret.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

/// A request to a server.
#[derive(Debug, Clone)]
pub struct Plan {
    pub server: Server,
    pub operation: ServerOperation,
    /// Caller's time limit for the whole request.
    pub max_duration: Option<Duration>,
}

/// The kind of request.
#[derive(Debug, Clone)]
pub enum ServerOperation {
    /// List the tools.
    Tools,
    /// Call one tool.
    Call {
        tool: String,
        /// Expected hash of its name, description and schema, if it is pinned.
        pinned: Option<String>,
        params: Object,
    },
}

impl Plan {
    /// Description of the request, for display before it is sent.
    pub fn described(&self) -> Value {
        let mut shown = json!({
            "primitive": "mcp",
            "server": self.server.id.as_str(),
            "transport": self.server.reached.as_str(),
            "timeout": self.server.timeout.as_secs_f64(),
        });
        match &self.server.reached {
            Reached::Stdio(plan) => shown["command"] = json!(plan.program),
            Reached::Http(remote) => shown["url"] = json!(remote.url.as_str()),
        }
        if let ServerOperation::Call { tool, .. } = &self.operation {
            shown["tool"] = json!(tool);
        }
        shown
    }

    /// Texts that no answer may reveal.
    pub fn secrets(&self) -> &[String] {
        match &self.server.reached {
            Reached::Stdio(_) => &[],
            Reached::Http(remote) => &remote.secrets,
        }
    }
}

/// A tool as listed by its server.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    pub name: String,
    /// The server's description of its purpose.
    pub description: String,
    /// JSON Schema of its parameters.
    pub input_schema: Value,
}

impl Offered {
    /// SHA-256 over all that a model gets of it: name, description and schema.
    pub fn hash(&self) -> String {
        let told = json!([self.name, self.description, self.input_schema]);
        sha256_hex(canonical(&told))
    }

    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "schema_hash": self.hash(),
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ServerAnswer {
    Tools(Vec<Offered>),
    /// Result of a tool in the form of the protocol.
    Called {
        /// Object with the list `content`, the bool `isError`, and `structuredContent` if there is any.
        result: Value,
        /// Deviations from the protocol, as text.
        remarks: Vec<String>,
        /// True if the tool is not pinned.
        is_unpinned: bool,
    },
}

/// Reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(
        "the runs below {root} have {MOST_SERVERS} servers already; let tools use fewer, or wait until one is idle"
    )]
    TooMany { root: RunId },
    #[error("the server `{server}` cannot be started: {problem}")]
    Program { server: ItemId, problem: String },
    /// The session could not be opened.
    #[error("the server `{server}` did not get ready: {problem}")]
    Start {
        server: ItemId,
        /// The reason, with the last lines of its stderr.
        problem: String,
    },
    #[error(
        "the server `{server}` has no tool `{tool}`{known}; `ryectl mcp import {server}` writes tools for what it has"
    )]
    UnknownTool {
        server: ItemId,
        tool: String,
        /// Suggestion, as text; empty if there is none.
        known: String,
    },
    /// The tool differs from the one its user signed.
    #[error(
        "the tool `{tool}` of the server `{server}` is not what was signed: its name, description and schema hash to {found}, and \
         `schema_hash` is {pinned}; look at it and sign it anew with `ryectl mcp import {server} --tools '{tool}' --replace`"
    )]
    Changed {
        server: ItemId,
        tool: String,
        pinned: String,
        /// Hash of the server's current tool.
        found: String,
    },
    #[error("the server `{server}` refused the call: {message}")]
    Refused { server: ItemId, message: String },
    /// The server executed the call, but its answer cannot be used.
    #[error("the server `{server}` answered what cannot be used: {problem}")]
    Unclear { server: ItemId, problem: String },
    /// The session ended before the answer arrived.
    #[error("the server `{server}` gave no answer: {problem}")]
    Lost {
        server: ItemId,
        /// The reason, with the last lines of its stderr.
        problem: String,
    },
    #[error("the server `{server}` gave no answer and no progress for {} s (more with `config.timeout` of the server, at most {} s){odd}",
        .waited.as_secs_f64(), LONGEST_CALL.as_secs())]
    Silent {
        server: ItemId,
        /// Duration of the wait.
        waited: Duration,
        /// Unexpected messages of the server, as a clause to append; empty if there were none.
        odd: String,
    },
}

/// Reason why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Failed(Failure),
    /// The run is being stopped.
    Stopped,
    /// The caller's time limit expired.
    Late,
}

/// A call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The reason.
    pub ending: Ending,
    /// True if nothing was sent to the server.
    pub is_unsent: bool,
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Trouble {
    fn unsent(ending: impl Into<Ending>) -> Self {
        Self {
            ending: ending.into(),
            is_unsent: true,
        }
    }

    fn sent(ending: impl Into<Ending>) -> Self {
        Self {
            ending: ending.into(),
            is_unsent: false,
        }
    }
}
