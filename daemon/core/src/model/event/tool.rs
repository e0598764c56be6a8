//! Facts about the call of a tool run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::failure::Failure;

/// A tool run ended by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCompleted {
    /// Its result (present on failure too, if the tool returned one).
    pub result: Arc<Value>,
    /// Absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// True if the call is at-most-once and may have taken effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// Wall time of the call in milliseconds.
    pub elapsed_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCancelled {
    /// The user or component that requested it.
    pub cause: String,
}
