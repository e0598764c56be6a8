//! How a chain ends, and the primitives and runtimes that end one.

use rye_core::thread::ThreadTool;

use crate::native;

/// The runtime of graphs.
pub const STATE_GRAPH: &str = "rye/core/runtimes/state-graph/runtime";
pub(super) const EXECUTE: &str = "rye/core/primitives/execute";
pub(super) const HTTP: &str = "rye/core/primitives/http";

/// What stands at the end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// A tool inside the daemon.
    Native(native::Tool),
    /// A process.
    Process,
    /// A call of another host.
    Http,
    /// A call of a server of the Model Context Protocol.
    Mcp(Way),
    /// A graph run.
    Graph,
    /// A thread, of the directive that the parameters name.
    Thread(ThreadTool),
}

/// How the server of a tool is reached, as its runtime says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is a process.
    Stdio,
    /// It is another host.
    Http,
    /// As the server says: its tools are listed.
    Any,
}

impl Way {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Any => "any",
        }
    }
}
