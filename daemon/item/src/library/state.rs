//! A library and its cache of verified items.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rye_core::clock::Clock;
use rye_core::id::ItemRef;
use rye_host::cache::Cache;

use super::item::Item;
use super::snapshot::Made;
use crate::spaces::Spaces;
use crate::trust::TrustStore;

/// Items of one view: a project (or none), the user, the system.
#[derive(Debug)]
pub struct Library {
    pub(super) spaces: Spaces,
    pub(super) trust: Arc<TrustStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) built_in: HashMap<ItemRef, Arc<Item>>,
    pub(super) verified: Cache<PathBuf, Remembered>,
    pub(super) snapshot: Mutex<Option<Made>>,
}

#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) content: String,
    pub(super) trust: u64,
    pub(super) item: Arc<Item>,
}
