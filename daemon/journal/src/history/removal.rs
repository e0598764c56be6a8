//! Removals of runs, as recorded in the log and in sections of history.

use rye_core::clock::Timestamp;
use rye_core::id::{Name, RunId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Runs that were removed together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    pub runs: Vec<RemovedRun>,
    /// Accounts of other runs that the records of these runs hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Box<RawValue>>,
    /// Time of the removal.
    pub at: Timestamp,
    /// Principal that removed them.
    pub by: Name,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedRun {
    pub run: RunId,
    /// Directory that held the files of its project.
    pub files: Name,
    /// Its item, which is part of the names of its pages.
    pub item: Name,
    /// Its start key, with its principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_key: Option<Name>,
}
