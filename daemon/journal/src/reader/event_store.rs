//! Dependencies of readers of events.

use std::sync::Arc;

use rye_core::memory::Memory;

use super::run_store::RunStore;
use crate::log::Log;
use crate::stream::Published;

/// The published events of all runs: in the log, and in history once they are sealed.
#[derive(Debug)]
pub(crate) struct EventStore {
    pub(crate) runs: Arc<RunStore>,
    pub(crate) log: Arc<Log>,
    pub(crate) published: Arc<Published>,
    pub(crate) memory: Arc<Memory>,
}
