//! The configuration at one moment.

use std::sync::Arc;

use super::item::Item;

/// The configuration at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// JSON text of `{file name: merged content}` of the files that affect a graph run. A file that no space has is
    /// left out.
    pub policy: Arc<str>,
    /// SHA-256, in hex, of the canonical JSON of `{file name: merged content}` of all files that may affect the result
    /// of a tool or a graph: `agent`, `coordination`, `error_classification`, `hook_conditions`, `hooks` and
    /// `resilience`, each with the extension `.yaml`.
    pub hash: Arc<str>,
    /// Messages about ignored settings of project files, each with its reason.
    pub ignored: Arc<[String]>,
}

/// A snapshot, and the verified files it was made of.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) of: Vec<Option<Arc<Item>>>,
    pub(super) snapshot: Snapshot,
}
