//! Aliases of items in the original system and in items written for it.

use super::{ItemId, ItemKind, ItemRef};

/// The runtime of graphs.
pub const STATE_GRAPH: &str = "rye/core/runtimes/state-graph/runtime";
const PYTHON_FUNCTION: &str = "rye/core/runtimes/python/function";
const PYTHON_SCRIPT: &str = "rye/core/runtimes/python/script";
const NODE: &str = "rye/core/runtimes/node/node";
const RUST_RUNTIME: &str = "rye/core/runtimes/rust/runtime";
const HTTP: &str = "rye/core/primitives/http";
const MCP_STDIO: &str = "rye/core/runtimes/mcp/stdio";
const MCP_HTTP: &str = "rye/core/runtimes/mcp/http";
const BASH_RUNTIME: &str = "rye/core/runtimes/bash";
const EXECUTE: &str = "rye/core/primitives/execute";

const ALIASES: [(&str, &str); 54] = [
    ("rye/core/runtimes/state_graph_runtime", STATE_GRAPH),
    ("state_graph_runtime", STATE_GRAPH),
    ("rye/core/runtimes/state-graph", STATE_GRAPH),
    ("state-graph/runtime", STATE_GRAPH),
    ("rye/core/runtimes/python_function_runtime", PYTHON_FUNCTION),
    ("python_function_runtime", PYTHON_FUNCTION),
    ("python/function", PYTHON_FUNCTION),
    ("rye/core/runtimes/python_script_runtime", PYTHON_SCRIPT),
    ("python_script_runtime", PYTHON_SCRIPT),
    ("python/script", PYTHON_SCRIPT),
    ("rye/core/runtimes/python_runtime", PYTHON_SCRIPT),
    ("python_runtime", PYTHON_SCRIPT),
    (
        "rye/core/runtimes/python/python_tool_runtime",
        PYTHON_FUNCTION,
    ),
    ("rye/core/runtimes/python_tool_runtime", PYTHON_FUNCTION),
    ("rye/core/runtimes/node_runtime", NODE),
    ("node_runtime", NODE),
    ("node/node", NODE),
    ("rye/core/runtimes/native/binary", RUST_RUNTIME),
    ("native/binary", RUST_RUNTIME),
    ("rust/runtime", RUST_RUNTIME),
    ("rye/core/primitives/http_client", HTTP),
    ("http_client", HTTP),
    ("http", HTTP),
    ("mcp/stdio", MCP_STDIO),
    ("rye/core/runtimes/mcp_stdio_runtime", MCP_STDIO),
    ("mcp/http", MCP_HTTP),
    ("rye/core/runtimes/mcp_http_runtime", MCP_HTTP),
    ("rye/core/runtimes/bash/bash", BASH_RUNTIME),
    ("bash/bash", BASH_RUNTIME),
    ("rye/core/primitives/subprocess", EXECUTE),
    ("subprocess", EXECUTE),
    ("rye/bash/bash", "rye/bash"),
    ("fs_read", "rye/file-system/read"),
    ("rye/file-system/fs_read", "rye/file-system/read"),
    ("fs_write", "rye/file-system/write"),
    ("rye/file-system/fs_write", "rye/file-system/write"),
    ("fs_edit_lines", "rye/file-system/edit_lines"),
    (
        "rye/file-system/fs_edit_lines",
        "rye/file-system/edit_lines",
    ),
    ("fs_ls", "rye/file-system/ls"),
    ("rye/file-system/fs_ls", "rye/file-system/ls"),
    ("fs_glob", "rye/file-system/glob"),
    ("rye/file-system/fs_glob", "rye/file-system/glob"),
    ("fs_grep", "rye/file-system/grep"),
    ("rye/file-system/fs_grep", "rye/file-system/grep"),
    ("orchestrator", "rye/agent/threads/orchestrator"),
    ("budget_ledger", "rye/agent/threads/budget_ledger"),
    ("cancel_thread", "rye/agent/threads/cancel_thread"),
    ("error_classifier", "rye/agent/threads/error_classifier"),
    ("managed_subprocess", "rye/agent/threads/managed_subprocess"),
    ("orphan_detector", "rye/agent/threads/orphan_detector"),
    ("resume_thread", "rye/agent/threads/resume_thread"),
    ("thread_directive", "rye/agent/threads/thread_directive"),
    ("thread_tool", "rye/agent/threads/thread_tool"),
    ("wait_threads", "rye/agent/threads/wait_threads"),
];

impl ItemRef {
    /// Returns the item that this name is an alias of, or itself. Checks, resolution and records always use this one.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let other = ALIASES
            .iter()
            .find(|(alias, _)| self.kind == ItemKind::Tool && *alias == self.id.as_str());
        match other {
            Some((_, id)) => Self::tool(ItemId::new(*id).expect("the aliases are valid ids")),
            None => self.clone(),
        }
    }
}
