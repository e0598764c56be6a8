//! Servers of the Model Context Protocol: sessions, what they offer, and one call.
//!
//! **Owns** the sessions of all runs ([`Sessions`]): who starts a server, how long it stays, and how it ends; what passes between us and
//! a server, and how much of it; whether a tool still is what its user signed. **Never** decides which server a tool has, or which program
//! that is: a [`Plan`] says so, made of verified items. **Never** answers a server that asks for a model or for a person: what it asks
//! for is declined, but for the root, which is the project.
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
//! **Bounds.** A message has at most 8 MiB. A server may send so many messages, and so many bytes, that answer nothing we asked; then its
//! session is over. A root run has at most [`MOST_SERVERS`]. **Order.** A process is a leaf of its own with the tag of its session, which
//! the next start of the daemon finds by the id of the root run. **Races.** Calls that come while a session starts wait for it; one that
//! comes while it ends starts it anew. **Failure.** A [`Failure`] says whether the call had left: what was sent and not answered may
//! have been done.

mod answer;
mod inbox;
mod message;
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
use crate::process;

pub use sessions::{Caller, Sessions};

/// Most servers that one root run has at a time.
pub const MOST_SERVERS: usize = 16;
/// How long a call may take in all, whatever the server reports of its progress.
pub const LONGEST_CALL: Duration = Duration::from_mins(10);

/// A server, and how it is reached.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its item.
    pub id: ItemId,
    /// The content hash of its item.
    pub hash: String,
    /// How it is reached.
    pub reached: Reached,
    /// The project it works for.
    pub project: String,
    /// How long it may take until it has told its tools.
    pub start_timeout: Duration,
    /// How long it may take to answer, or to report progress.
    pub timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reached {
    /// It is a process of ours, which reads and writes lines.
    Stdio(Box<process::Plan>),
    /// It is another host.
    Http(Box<Remote>),
}

impl Reached {
    /// The word of the server's item for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
        }
    }
}

/// A server on another host.
#[derive(Clone)]
pub struct Remote {
    /// Where it is.
    pub url: Url,
    /// What each request carries: name, value, and whether the value is never shown.
    pub headers: Vec<(String, String, bool)>,
    /// What no answer may give away; the longest first.
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

/// What is asked of a server.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub server: Server,
    /// What is asked.
    pub asked: Asked,
    /// Longest time it may take in all, if whoever calls says so.
    pub within: Option<Duration>,
}

/// What is asked of a server.
#[derive(Debug, Clone)]
pub enum Asked {
    /// Which tools it has.
    Tools,
    /// One of them.
    Call {
        /// Its name there.
        tool: String,
        /// What its name, description and schema must hash to, if that is pinned.
        pinned: Option<String>,
        /// The parameters.
        params: Object,
    },
}

impl Plan {
    /// What would be asked, for somebody who wants to see it first.
    pub fn described(&self) -> Value {
        let mut shown = json!({
            "primitive": "mcp",
            "server": self.server.id.as_str(),
            "transport": self.server.reached.word(),
            "timeout": self.server.timeout.as_secs_f64(),
        });
        match &self.server.reached {
            Reached::Stdio(plan) => shown["command"] = json!(plan.program),
            Reached::Http(remote) => shown["url"] = json!(remote.url.as_str()),
        }
        if let Asked::Call { tool, .. } = &self.asked {
            shown["tool"] = json!(tool);
        }
        shown
    }

    /// What no answer may give away.
    pub fn secrets(&self) -> &[String] {
        match &self.server.reached {
            Reached::Stdio(_) => &[],
            Reached::Http(remote) => &remote.secrets,
        }
    }
}

/// A tool as its server tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// Its name there.
    pub name: String,
    /// What it is for, in the server's words.
    pub description: String,
    /// The schema of its parameters.
    pub input_schema: Value,
}

impl Offered {
    /// What stands for all that a model is told of it: name, description and schema.
    pub fn hash(&self) -> String {
        let told = json!([self.name, self.description, self.input_schema]);
        sha256_hex(canonical(&told))
    }

    /// It, as data.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "schema_hash": self.hash(),
        })
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Which tools it has.
    Tools(Vec<Offered>),
    /// What a tool answered, as the protocol has it.
    Called {
        /// An object with the list `content`, the bool `isError`, and `structuredContent` if there is any.
        result: Value,
        /// What was not as the protocol says, in words.
        remarks: Vec<String>,
        /// Whether nothing pins the tool.
        is_unpinned: bool,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There are too many servers.
    #[error(
        "the runs below {root} have {MOST_SERVERS} servers already; let tools use fewer, or wait until one is idle"
    )]
    TooMany {
        /// The root run.
        root: RunId,
    },
    /// The program of the server cannot be started.
    #[error("the server `{server}` cannot be started: {problem}")]
    Program {
        /// The server.
        server: ItemId,
        /// Why.
        problem: String,
    },
    /// There is no session.
    #[error("the server `{server}` did not get ready: {problem}")]
    Start {
        /// The server.
        server: ItemId,
        /// Why, with the last that it wrote to stderr.
        problem: String,
    },
    /// The server has no such tool.
    #[error(
        "the server `{server}` has no tool `{tool}`{known}; `ryectl mcp import {server}` writes tools for what it has"
    )]
    UnknownTool {
        /// The server.
        server: ItemId,
        /// The tool.
        tool: String,
        /// What is near, in words; empty if nothing is.
        known: String,
    },
    /// The tool is not what its user signed.
    #[error(
        "the tool `{tool}` of the server `{server}` is not what was signed: its name, description and schema hash to {found}, and \
         `schema_hash` is {pinned}; look at it and sign it anew with `ryectl mcp import {server} --tools '{tool}' --replace`"
    )]
    Changed {
        /// The server.
        server: ItemId,
        /// The tool.
        tool: String,
        /// What was signed.
        pinned: String,
        /// What the server tells.
        found: String,
    },
    /// The server refuses the call.
    #[error("the server `{server}` refused the call: {message}")]
    Refused {
        /// The server.
        server: ItemId,
        /// Its words.
        message: String,
    },
    /// The server carried the call out, and what it answered cannot be used.
    #[error("the server `{server}` answered what cannot be used: {problem}")]
    Unclear {
        /// The server.
        server: ItemId,
        /// Why.
        problem: String,
    },
    /// The session ended before the answer came.
    #[error("the server `{server}` gave no answer: {problem}")]
    Lost {
        /// The server.
        server: ItemId,
        /// Why, with the last that it wrote to stderr.
        problem: String,
    },
    /// There was no answer in time.
    #[error("the server `{server}` gave no answer and no progress for {} s (more with `config.timeout` of the server, at most {} s){odd}",
        .waited.as_secs_f64(), LONGEST_CALL.as_secs())]
    Silent {
        /// The server.
        server: ItemId,
        /// How long it was waited for.
        waited: Duration,
        /// What it sent instead, in words that follow a sentence; empty if nothing.
        odd: String,
    },
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It failed.
    Failed(Failure),
    /// Its run is to stop.
    Stopped,
    /// Whoever called gave it no more time.
    Late,
}

/// A call without an answer, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Why there is none.
    pub ending: Ending,
    /// Whether nothing has reached the server.
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

/// The beginning of the tag of all servers of `root`; see [`process::Leftover`].
pub fn tags_of(root: &RunId) -> String {
    format!("{root}.mcp.")
}
