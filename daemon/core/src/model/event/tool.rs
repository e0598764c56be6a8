//! Facts about the call of a tool run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::failure::Failure;

/// A tool run came to an end by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCompleted {
    /// Its result (present on failure too, where the tool gave one).
    pub result: Arc<Value>,
    /// Why it failed; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Wall time of the call in milliseconds.
    pub elapsed_ms: u64,
}

/// A tool run stopped on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCancelled {
    /// Who or what asked.
    pub cause: String,
}
