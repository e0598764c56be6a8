//! Tools that run inside the daemon.
//!
//! **Owns** the table of native tools. A native tool still is a signed item with a schema; its chain ends here instead of
//! at a process. **Never** blocks.

use rye_core::id::{ItemId, RunId};
use rye_core::model::{Birth, Failure, Object};
use serde_json::Value;

use crate::port::Runs;

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

/// On whose behalf a tool is called, and whom it may ask.
#[derive(Debug)]
pub struct Session<'a> {
    /// The run and the step.
    pub run: &'a RunId,
    /// Its authority and its project.
    pub birth: &'a Birth,
    /// The owner of all runs.
    pub runs: &'a dyn Runs,
}

/// Calls `tool`.
pub async fn call(tool: Tool, params: Object, _session: &Session<'_>) -> Result<Value, Failure> {
    match tool {
        Tool::Echo => Ok(Value::Object(params)),
    }
}
