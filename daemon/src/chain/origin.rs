//! Run for which a call is planned.

use std::sync::Arc;

use rye_core::id::RunId;
use rye_core::model::Spec;

/// Run and attempt for which a call is planned.
#[derive(Debug, Clone)]
pub struct CallOrigin {
    pub run: RunId,
    /// Its authority and its project.
    pub spec: Arc<Spec>,
    /// Number of the try of the step, from 1.
    pub attempt: u32,
    /// Idempotency key of the step.
    pub key: String,
}
