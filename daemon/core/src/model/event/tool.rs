//! Facts about the call of a tool run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

use super::Facets;
use crate::model::failure::Failure;
use crate::model::life::Outcome;

/// A fact about the call of a tool run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "event_type", content = "payload", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ToolEvent {
    /// A tool run came to an end by itself.
    ToolCompleted {
        /// Its result (present on failure too, where the tool gave one).
        result: Arc<Value>,
        /// Why it failed; absent on success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
        /// Wall time of the call in milliseconds.
        elapsed_ms: u64,
    },
    /// A tool run stopped on request.
    ToolCancelled {
        /// Who or what asked.
        cause: String,
    },
}

impl ToolEvent {
    /// What everybody beside the model asks of it.
    pub const fn facets(&self) -> Facets {
        match self {
            Self::ToolCompleted { .. } | Self::ToolCancelled { .. } => Facets::ENDS,
        }
    }

    /// What the run came to.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            Self::ToolCompleted {
                error: Some(error), ..
            } => Outcome::Error {
                error: error.clone(),
            },
            Self::ToolCompleted {
                result,
                error: None,
                ..
            } => Outcome::Completed {
                output: Arc::clone(result),
            },
            Self::ToolCancelled { cause } => Outcome::Cancelled {
                cause: cause.clone(),
            },
        })
    }
}
