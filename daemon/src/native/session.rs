//! Context of a native tool's call, and the parsing of its parameters.

use std::sync::Arc;

use rye_core::clock::Clock;
use rye_core::id::RunId;
use rye_core::model::{Event, Failure, Object, Slot, Spec};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::live_processes::LiveProcesses;
use crate::port::Runs;
use crate::process_log::ProcessLogs;
use crate::projects::Projects;

/// Context of a native tool's call.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "what puts events on record cannot be shown"
)]
pub struct Session<'a> {
    pub run: &'a RunId,
    /// Step of the call, and its slot in the step.
    pub attempt: (u32, Slot),
    /// Permissions and project of the run.
    pub spec: &'a Spec,
    /// Operations on other runs.
    pub runs: &'a dyn Runs,
    /// Output of managed processes.
    pub process_logs: &'a ProcessLogs,
    /// Managed processes in flight.
    pub live_processes: &'a LiveProcesses,
    /// Projects in use.
    pub projects: &'a Arc<Projects>,
    /// Source of time and of random numbers.
    pub clock: &'a dyn Clock,
    /// Records an event in the calling run.
    pub note: &'a (dyn Fn(Event) + Sync),
}

/// Failure for invalid parameters; the message names the parameter and the fix.
pub(super) fn invalid(problem: impl std::fmt::Display) -> Failure {
    Failure::permanent("invalid_params", problem.to_string())
}

/// Parses the parameters as `T`; null counts as absent.
pub(super) fn read<T: DeserializeOwned>(mut params: Object) -> Result<T, Failure> {
    params.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(params)).map_err(invalid)
}
