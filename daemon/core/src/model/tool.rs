//! The model of tool runs: one call, recorded before and after.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::Attempt;

/// The state of a tool run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Nothing was called yet.
    #[default]
    New,
    /// Its one call is in flight.
    Calling(Attempt),
    /// The call ended; if it failed, with this result. The result of a successful call is the outcome of the run.
    Over(Arc<Value>),
}

impl ToolState {
    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Calling(attempt) => Some(attempt),
            Self::New | Self::Over(_) => None,
        }
    }
}
