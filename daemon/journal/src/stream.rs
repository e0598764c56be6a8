//! The published state of each run and of all runs, and its listeners.

mod deltas;
mod signatures;
pub(crate) mod touches;

pub(crate) mod run_stream;

pub(crate) mod all_runs;

use std::sync::Arc;

use rye_core::id::Lsn;

use all_runs::AllRuns;
pub use deltas::{Delta, DeltaKind, DeltaSender};
pub(crate) use deltas::{DeltaListeners, DeltaQueue};
pub(crate) use signatures::{EventSpot, Signatures};
pub(crate) use touches::Touches;
pub use touches::{Missed, Reported, Touch, TouchKind};

use crate::watermark::Watermark;

/// State of the publisher that readers share.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) watermark: Watermark,
    /// For listeners to many runs.
    pub(crate) wide: AllRuns,
    pub(crate) signatures: Signatures,
    /// Outlives the journal, for its one consumer.
    pub(crate) touches: Arc<Touches>,
}

impl Published {
    /// Returns the state in which everything up to `lsn` is published.
    pub(crate) fn new(lsn: Lsn) -> Self {
        Self {
            watermark: Watermark::new(lsn),
            wide: AllRuns::new(lsn),
            signatures: Signatures::default(),
            touches: Arc::default(),
        }
    }
}
