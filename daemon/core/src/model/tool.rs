//! The model of tool runs: one call, written down before and after.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::Attempt;

/// Where a tool run stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Nothing was called yet.
    #[default]
    New,
    /// Its one call is in flight.
    Calling(Attempt),
    /// The call ended; if it failed, with this result. What one came to that did not is the outcome of the run.
    Over(Arc<Value>),
}

impl ToolState {
    /// The call in flight.
    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Calling(attempt) => Some(attempt),
            Self::New | Self::Over(_) => None,
        }
    }
}
