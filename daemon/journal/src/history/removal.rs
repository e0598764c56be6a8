//! Removals of runs, as the log and the sections of history record them.

use rye_core::clock::Timestamp;
use rye_core::id::{Name, RunId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Runs that were removed together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// The runs.
    pub runs: Vec<RemovedRun>,
    /// Accounts of other runs that were in records of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Box<RawValue>>,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Name,
}

/// A run that was removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedRun {
    /// The run.
    pub run: RunId,
    /// Directory that held the files of its project.
    pub files: Name,
    /// Its item, which its pages are named by.
    pub item: Name,
    /// Its start key, with its principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_key: Option<Name>,
}
