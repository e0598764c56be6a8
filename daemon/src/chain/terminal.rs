//! Ends of chains, and the primitives and runtimes that end one.

pub use rye_core::id::STATE_GRAPH;
use rye_core::thread::ThreadTool;
use rye_item::Item;

use crate::native;

pub(super) const EXECUTE: &str = "rye/core/primitives/execute";
pub(super) const HTTP: &str = "rye/core/primitives/http";

/// End of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Tool inside the daemon.
    Native(native::Tool),
    Process,
    Http,
    Mcp(McpTransport),
    Graph,
    /// Thread of the directive that the parameters name.
    Thread(ThreadTool),
}

/// Transport to an MCP server, as set by the runtime of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTransport {
    /// The server is a process.
    Stdio,
    /// The server is another host.
    Http,
    /// Transport set by the server, for the tool that lists its tools.
    Any,
}

impl McpTransport {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Any => "any",
        }
    }
}

/// True if the item declares itself a tool of the daemon.
pub(super) fn is_native(element: &Item) -> bool {
    element.metadata.tool_type.as_deref() == Some("native")
}
