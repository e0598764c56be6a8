//! Tools that run inside the daemon.
//!
//! **Owns** the table of native tools. A native tool still is a signed item with a schema; its chain ends here instead of
//! at a process. **Never** blocks.

use rye_core::id::ItemId;
use rye_core::model::{Failure, Object};
use serde_json::Value;

/// A native tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `rye/core/echo`: its parameters are its result.
    Echo,
}

/// The native tool of that id, if there is one.
pub fn find(id: &ItemId) -> Option<Tool> {
    match id.as_str() {
        "rye/core/echo" => Some(Tool::Echo),
        _ => None,
    }
}

/// Calls `tool`.
pub fn call(tool: Tool, params: Object) -> Result<Value, Failure> {
    match tool {
        Tool::Echo => Ok(Value::Object(params)),
    }
}
