//! The run for which a call is planned.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::Spec;

/// The run on whose behalf something is done.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its id.
    pub run: RunId,
    /// Its authority and its project.
    pub spec: Arc<Spec>,
    /// Try of the step, from 1.
    pub attempt: u32,
    /// The idempotency key of the step.
    pub key: String,
}
