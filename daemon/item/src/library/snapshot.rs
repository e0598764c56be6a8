//! The configuration of one moment.

use std::sync::Arc;

use super::item::Item;

/// The configuration of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// JSON text of `{file name: merged content}` of the files that decide about a graph run; a file that is in no space
    /// is left out.
    pub policy: Arc<str>,
    /// SHA-256, in hex, of the canonical JSON of `{file name: merged content}` of all files that may decide about what a
    /// tool or a graph comes to: `agent`, `coordination`, `error_classification`, `hook_conditions`, `hooks` and
    /// `resilience`, each with the extension `.yaml`.
    pub hash: Arc<str>,
    /// What files of the project say and may not, each with the reason: it does not count.
    pub ignored: Arc<[String]>,
}

/// A snapshot, and the verified files it was made of.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) of: Vec<Option<Arc<Item>>>,
    pub(super) snapshot: Snapshot,
}
