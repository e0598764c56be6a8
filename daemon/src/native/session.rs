//! What a call of a native tool has: the run that calls, and its parameters.

use std::sync::Arc;

use rye_core::clock::Clock;
use rye_core::id::RunId;
use rye_core::model::{Event, Failure, Object, Slot, Spec};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::port::Runs;
use crate::projects::Projects;

/// On whose behalf a tool is called, and whom it may ask.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "what puts events on record cannot be shown"
)]
pub struct Session<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Which step of it, and which part of that.
    pub attempt: (u32, Slot),
    /// Its authority and its project.
    pub spec: &'a Spec,
    /// The owner of all runs.
    pub runs: &'a dyn Runs,
    /// The projects in use.
    pub projects: &'a Arc<Projects>,
    /// The source of what nobody can guess.
    pub clock: &'a dyn Clock,
    /// Puts on record what has happened on behalf of the run.
    pub note: &'a (dyn Fn(Event) + Sync),
}

/// Parameters that do not fit; the message says which, and the fix.
pub(super) fn invalid(problem: impl std::fmt::Display) -> Failure {
    Failure::permanent("invalid_params", problem.to_string())
}

/// The parameters as `T`; those that are null count as absent.
pub(super) fn read<T: DeserializeOwned>(mut params: Object) -> Result<T, Failure> {
    params.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(params)).map_err(invalid)
}
